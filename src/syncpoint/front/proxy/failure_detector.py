"""Failure detection: which processes that owe us an answer are suspected, because they do not answer pings either.

Place: under `publisher` and the relays. A process that was killed is noticed by its connections; one that hangs sends
nothing, and its lease ends only after seconds. So a call that waits for an address for long has it pinged: a process
that is merely slow answers, and is waited for; one that does not answer twice is suspected, and what can go elsewhere
does. Suspicion is for speed: nothing that must not happen twice rests on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from syncpoint.base.runtime.tasks import Tasks
from syncpoint.cluster.control.peer_channels import PeerChannels, Reach

BEAT_S = 0.5
PATIENCE_S = 0.7  # for one ping
MISSES = 2


class FailureDetector:
    """Watched addresses. `on_suspect(address, suspected)` is called for changes."""

    def __init__(self, peers: PeerChannels, *, beat_s: float = BEAT_S, patience_s: float = PATIENCE_S) -> None:
        self._peers, self._beat_s, self._patience_s = peers, beat_s, patience_s
        self._waiting: dict[str, dict[object, float]] = {}  # address -> who waits since when
        self._missed: dict[str, int] = {}
        self._pinging: dict[str, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.suspected: set[str] = set()
        self.silent: set[str] = set()  # those of them that do not even refuse: the host, or the way there, is gone
        self._checking = Tasks()
        self.on_suspect: Callable[[str, bool], None] = lambda address, suspected: None

    def wait(self, address: str, who: object) -> None:
        """`who` begins to wait for an answer, or has a stream open."""
        waiting = self._waiting.get(address)
        if waiting is None:
            waiting = self._waiting[address] = {}
        loop = asyncio.get_running_loop()
        waiting[who] = loop.time()
        if self._timer is None and not self._closed:
            self._timer = loop.call_later(self._beat_s, self._beat)

    def done(self, address: str, who: object) -> None:
        """Note that `who` no longer waits for the address."""
        waiting = self._waiting.get(address)
        if waiting is not None:
            waiting.pop(who, None)
            if not waiting:
                del self._waiting[address]

    def close(self) -> None:
        """No more pings."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in (*self._pinging.values(), *self._checking):
            task.cancel()

    def check(self, address: str) -> None:
        """Ping a process that owes no answer: another one of its region is silent."""
        if address not in self.suspected and not self._closed:
            self._checking.start(self._check(address))

    async def _check(self, address: str) -> None:
        for _ in range(MISSES):
            await self._ask(address)
            if address not in self._missed:
                break

    def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        now = loop.time()
        for address, waiting in list(self._waiting.items()):
            if now - next(iter(waiting.values())) >= self._beat_s:
                self._ping(address)
        for address in self.suspected - self._waiting.keys():
            self._ping(address)
        if self._waiting or self.suspected:
            self._timer = loop.call_later(self._beat_s, self._beat)

    def _ping(self, address: str) -> None:
        if address not in self._pinging:
            task = asyncio.get_running_loop().create_task(self._ask(address))
            self._pinging[address] = task
            task.add_done_callback(lambda _: self._pinging.pop(address, None))

    async def _ask(self, address: str) -> None:
        reach = await self._peers.ping(address, timeout_s=self._patience_s)
        if reach is Reach.ANSWERED:
            self._missed.pop(address, None)
            self.silent.discard(address)
            if address in self.suspected:
                self.suspected.discard(address)
                self.on_suspect(address, False)
            return
        missed = self._missed[address] = self._missed.get(address, 0) + 1
        if reach is Reach.REFUSED:
            self.silent.discard(address)
        elif missed >= MISSES:
            self.silent.add(address)
        if address not in self.suspected and (missed >= MISSES or reach is Reach.REFUSED):
            self.suspected.add(address)
            if self._timer is None and not self._closed:
                self._timer = asyncio.get_running_loop().call_later(self._beat_s, self._beat)
            self.on_suspect(address, True)

    def forget(self, address: str) -> None:
        """Nobody is expected at this address any more."""
        self._missed.pop(address, None)
        self.suspected.discard(address)
        self.silent.discard(address)
