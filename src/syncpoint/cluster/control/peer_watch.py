"""Finds out which other owners of chains are gone, before their leases end.

Place: a loop beside `ownership_driver`; the machine decides how many refused connections prove an end.
Promise: each process watches few others, and each is watched by few; one that is silent does not keep the others
waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from syncpoint.base.model.cluster import PUBLISH, Member
from syncpoint.base.runtime.clock import Clock
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.ownership_machine import REFUSALS, OwnershipMachine
from syncpoint.cluster.control.peer_channels import PeerChannels, Reach

PING_S = 1.0
PINGED_MAX = 8
AGAIN_S = 0.03  # between two pings of one whose connection broke


class PeerWatch:
    """Watches for the process `me`. `wake`: called when the machine has something to do."""

    def __init__(
        self,
        view: ClusterView,
        me: Member,
        machine: OwnershipMachine,
        peers: PeerChannels,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        wake: Callable[[], None],
    ) -> None:
        self._view, self._me, self._machine, self._peers, self._clock = view, me, machine, peers, clock
        self._spawn, self._wake = spawn, wake
        self._pinging: set[str] = set()
        self.watched: dict[tuple[str, int], asyncio.Task[None]] = {}  # name and incarnation -> what waits for its end

    async def ping_others(self) -> None:
        """Ping them again and again."""
        while True:
            neighbours = self._neighbours()
            self._watch_for_ends(neighbours)
            for member in neighbours:
                if member.name not in self._pinging:  # a silent one must not keep the others waiting
                    self._pinging.add(member.name)
                    self._spawn(self._ping(member))
            await asyncio.sleep(self._clock.pause_s(PING_S))

    async def _ping(self, member: Member) -> None:
        try:
            await self._ask_whether_there(member)
        finally:
            self._pinging.discard(member.name)

    async def _ask_whether_there(self, member: Member) -> bool:
        """Ping a member and pass the answer to the machine; returns whether its address refuses connections."""
        refused = await self._peers.ping(member.address, timeout_s=1.0) is Reach.REFUSED
        if refused:
            self._machine.refused(member.name, member.incarnation)
            self._wake()
        else:
            self._machine.answered(member.name, member.incarnation)
        return refused

    def _watch_for_ends(self, members: Sequence[Member]) -> None:
        """Wait for the end of these processes, of nobody else."""
        wanted = {(member.name, member.incarnation): member for member in members}
        for key in self.watched.keys() - wanted.keys():
            self.watched.pop(key).cancel()
        for key, member in wanted.items():
            if key not in self.watched or self.watched[key].done():
                self.watched[key] = asyncio.get_running_loop().create_task(self._watch(member))

    async def _watch(self, member: Member) -> None:
        """A process that is killed breaks its connections at once: then nobody has to wait for the next pings."""
        await self._peers.until_lost(member.address)
        for _ in range(REFUSALS):
            if not await self._ask_whether_there(member):
                break
            await asyncio.sleep(AGAIN_S)

    def _neighbours(self) -> list[Member]:
        """Owners of chains whose name comes next after this one's, in a ring: few for each, and each has few."""
        me = self._me
        others = [one for one in self._view.with_role(PUBLISH) if one.name != me.name and one.region == me.region]
        after = [one for one in others if one.name > me.name]
        return (after + [one for one in others if one.name < me.name])[:PINGED_MAX]
