"""Reports to chains about batches they may have stored although another chain has confirmed them.

Place: beside `publisher`, after the client has its answer. When a batch was confirmed, and an earlier attempt at
another chain had an unknown end, that chain may hold a second copy of it. The report is repeated until the owner of
that chain, or whichever process adopts it, answers; it acknowledges the copy for every subscription (protocol rule 20).
Promise: only what another chain has confirmed is ever reported; no client waits for it. Every batch is counted in the
end: found twice or not, or, when no answer has come for the chain within `GIVE_UP_S`, as not known.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import Any

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.tasks import stop
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.front.proxy.cancellable_calls import MOVABLE
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal

GIVE_UP_S = 120.0
CALL_S = 0.5  # the owner may hang, and another one come
PAUSE_S = 0.05
BATCHES_MAX = 1_000  # batches in one call
PENDING_MAX = 100_000

log = logging.getLogger(__name__)


class DuplicateReports:
    """Report batches to chains that may have stored them although another chain confirmed them.

    `duplicates` counts messages that were stored twice; `late` those of them that may have been delivered twice;
    `unknown` batches of which nobody could say.
    """

    def __init__(self, view: ClusterView, peers: PeerChannels, sender: int) -> None:
        self._view, self._peers, self._sender = view, peers, sender
        self.reported = self.duplicates = self.late = self.unknown = 0
        self.pending = 0
        self._waiting: dict[int, dict[int, float]] = {}  # chain -> batch -> until when it is reported
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def add(self, chain: int, batch: int) -> None:
        """A batch that may be in this chain was confirmed by another one."""
        if self.pending >= PENDING_MAX:
            self.unknown += 1
            return
        loop = asyncio.get_running_loop()
        self.pending += 1
        self._waiting.setdefault(chain, {})[batch] = loop.time() + GIVE_UP_S
        if chain not in self._tasks:
            self._tasks[chain] = loop.create_task(self._report(chain))

    async def close(self) -> None:
        """Notify nobody any more."""
        await stop(self._tasks.values())
        self.unknown += self.pending
        self.pending = 0
        self._waiting.clear()
        self._tasks.clear()

    async def _report(self, chain: int) -> None:
        waiting, loop = self._waiting[chain], asyncio.get_running_loop()
        while waiting:
            batches = list(islice(waiting, BATCHES_MAX))
            try:
                answer = await self._ask(chain, batches)
            except SyncpointError as error:  # an older version, for example: there is no use in asking again
                log.warning("chain %d cannot be informed which batches were stored elsewhere: %s", chain, error)
                self._not_known(waiting, batches)
                continue
            if answer is None:
                self._not_known(waiting, [one for one in batches if waiting[one] <= loop.time()])
                await asyncio.sleep(PAUSE_S)
                continue
            self._remove(waiting, batches)
            self.reported += len(batches)
            self.duplicates += answer.messages
            self.late += answer.late
            if answer.messages:
                log.info("chain %d held %d messages that another chain has confirmed", chain, answer.messages)
        del self._waiting[chain], self._tasks[chain]

    async def _ask(self, chain: int, batches: list[int]) -> Any | None:
        """What the owner answers; None when nobody answers for the chain now."""
        owner = self._view.owner(chain)
        if owner is None:
            return None
        request = internal.VoidRequest(chain=chain, sender=self._sender, batches=batches).SerializeToString()
        try:
            answer = await self._peers.call(owner.address, methods.CHAINS.Void, request, timeout_s=CALL_S)
        except SyncpointError as error:
            if error.code in MOVABLE:
                return None
            raise
        return internal.VoidResponse.FromString(answer)

    def _remove(self, waiting: dict[int, float], batches: list[int]) -> None:
        for batch in batches:
            del waiting[batch]
        self.pending -= len(batches)

    def _not_known(self, waiting: dict[int, float], batches: list[int]) -> None:
        self._remove(waiting, batches)
        self.unknown += len(batches)
