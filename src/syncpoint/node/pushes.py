"""Push subscriptions, mounted in a process: the parts of `syncpoint.broker.push` become one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from syncpoint import __version__
from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.periodic import Periodic
from syncpoint.broker.inner.inner_driver import ConsumingProcess
from syncpoint.broker.push.addresses import Vetting
from syncpoint.broker.push.http_sender import HttpSender
from syncpoint.broker.push.oidc_tokens import OidcTokens
from syncpoint.broker.push.push_driver import PushDriver, PushState, Sender
from syncpoint.broker.push.signing_keys import DISCOVERY_PATH, JWKS_PATH, Commit, SigningKeys, discovery, jwks
from syncpoint.catalog.access.accounts import Accounts, uid_from
from syncpoint.wire.protobuf.messages import admin

KEYS_S = 60.0  # between two looks at the keys
KEYS_AGAIN_S = 1.0  # while there is none


class Pushes:
    """`issuer`: our address as endpoints see it; "": nothing is signed. `accounts`: those that tokens can
    be for; None: callers are not identified, so of any. `sender`: what posts, instead of HTTP."""

    def __init__(
        self,
        process: ConsumingProcess,
        vetting: Vetting,
        commit: Commit,
        *,
        issuer: str,
        accounts: Accounts | None,
        sender: Sender | None = None,
    ) -> None:
        self._catalog, self._issuer, self._name = process.copy.catalog, issuer, process.name
        self._http: HttpSender | None = None
        if sender is None:
            sender = self._http = HttpSender(vetting, agent=f"Syncpoint-Push/{__version__}")
        self.keys = SigningKeys(self._catalog, commit, process.clock) if issuer else None
        subject = _any_subject if accounts is None else partial(_subject, accounts)
        self.tokens = None if self.keys is None else OidcTokens(self.keys, issuer, process.clock, subject)
        self.driver = PushDriver(process, sender, vetting, tokens=self.tokens)
        self._keeping: Periodic | None = None
        if self.keys is not None:
            pauses, failed = partial(_keys_pause_s, self.keys), "the keys that sign pushes cannot be published now"
            self._keeping = Periodic(self.keys.upkeep, pauses, (SyncpointError,), failed, at_start=True)

    def start(self) -> None:
        """Begin to push. Needs the event loop."""
        if self._keeping is not None:
            self._keeping.start()
        self.driver.start()

    async def stop(self) -> None:
        """What is under way has a little time to end."""
        if self._keeping is not None:
            await self._keeping.stop()
        await self.driver.close()
        if self._http is not None:
            await self._http.close()

    def pages(self) -> list[BaseRoute]:
        """Where endpoints find the keys that tokens are checked with."""
        if self.keys is None:
            return []
        return [
            _page(DISCOVERY_PATH, lambda: discovery(self._issuer)),
            _page(JWKS_PATH, lambda: jwks(self._catalog)),
        ]

    def status(self) -> dict[str, Any]:
        """Numbers for operators."""
        return {**self.driver.totals(), **({} if self.keys is None else {"push_key": self.keys.current})}

    def state(self, incarnation: int) -> admin.PushState | None:
        """How a subscription is pushed from here, for its owner; None: it is not."""
        state = self.driver.state(incarnation)
        return None if state is None else push_state(state, self._name)


def _keys_pause_s(keys: SigningKeys) -> float:
    return KEYS_S if keys.current else KEYS_AGAIN_S


def push_state(state: PushState, name: str) -> admin.PushState:
    """For owners of subscriptions."""
    shown = admin.PushState(
        endpoint=state.endpoint,
        pushed_by=name,
        window=state.window,
        under_way=state.under_way,
        acknowledged=state.acknowledged,
        refused=state.refused,
        last_status=state.last_status,
        last_error=state.last_error,
    )
    if state.paused_s > 0:
        shown.pause.FromNanoseconds(int(state.paused_s * 1e9))
    return shown


def _page(path: str, content: Callable[[], bytes]) -> Route:
    async def answer(request: Request) -> Response:
        return Response(content(), media_type="application/json", headers={"cache-control": "public, max-age=300"})

    return Route(path, answer, methods=["GET"])


def _any_subject(email: str) -> str:
    return uid_from(email.encode())


def _subject(accounts: Accounts, email: str) -> str | None:
    account = accounts.find(email)
    return None if account is None else account.uid
