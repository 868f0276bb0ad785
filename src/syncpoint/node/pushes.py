"""Push subscriptions, mounted on a subscribe forwarder: the parts of `syncpoint.push` become one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from syncpoint import __version__
from syncpoint.access.accounts import find_account
from syncpoint.access.services import ServiceIdentity
from syncpoint.metadata.catalog import CatalogCopy
from syncpoint.model.errors import SyncpointError
from syncpoint.push.addresses import Vetting
from syncpoint.push.feed import open_feed
from syncpoint.push.http_sender import HttpSender
from syncpoint.push.oidc_tokens import OidcTokens
from syncpoint.push.push_driver import PushDriver
from syncpoint.push.signing_keys import Commit, SigningKeys
from syncpoint.runtime.clock import Clock
from syncpoint.runtime.random import Random
from syncpoint.runtime.tasks import stop
from syncpoint.subscribe.subscribe_forwarder import SubscribeForwarder

KEYS_S = 60.0  # between two looks at the keys
KEYS_AGAIN_S = 1.0  # while there is none

log = logging.getLogger(__name__)


class Pushes:
    """`issuer`: our address as endpoints see it; "": nothing is signed. `service`: under whose identity messages are
    read; None where nobody is asked who he is. `mine`: see `PushDriver`.
    """

    def __init__(
        self,
        copy: CatalogCopy,
        forwarder: SubscribeForwarder,
        vetting: Vetting,
        commit: Commit,
        clock: Clock,
        random: Random,
        issuer: str = "",
        service: ServiceIdentity | None = None,
        mine: Callable[[int], bool] = lambda incarnation: True,
    ) -> None:
        self.sender = HttpSender(vetting, agent=f"Syncpoint-Push/{__version__}")
        self.keys = SigningKeys(copy.catalog, commit, clock) if issuer else None
        known = (lambda account: True) if service is None else partial(_exists, copy)
        self.driver = PushDriver(
            copy,
            partial(open_feed, forwarder),
            self.sender,
            vetting,
            clock,
            random,
            tokens=None if self.keys is None else OidcTokens(self.keys, issuer, clock, known),
            mine=mine,
            may_push=(lambda record: True) if service is None else service.may_push,
        )
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to push. Needs the event loop."""
        if self.keys is not None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep_keys(self.keys))
        self.driver.start()

    async def stop(self) -> None:
        """What is under way has a little time to end."""
        if self._keeping is not None:
            await stop([self._keeping])
        await self.driver.close()
        await self.sender.close()

    async def _keep_keys(self, keys: SigningKeys) -> None:
        while True:
            try:
                await keys.upkeep()
            except SyncpointError as error:
                log.warning("the keys that sign pushes cannot be published now: %s", error)
            await asyncio.sleep(KEYS_S if keys.current else KEYS_AGAIN_S)


def _exists(copy: CatalogCopy, account: str) -> bool:
    return find_account(copy.catalog, account) is not None
