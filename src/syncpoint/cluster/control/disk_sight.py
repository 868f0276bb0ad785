"""Gives chains up whose disks this process does not reach, if another process reaches them.

Place: a loop beside `ownership_driver`; `reachability` knows which disks answer, the machine decides what follows.
Promise: a chain is not given up before another process reported that it could serve it, and a last look here failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from syncpoint.base.model.cluster import PUBLISH, ChainRecord, Member
from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.runtime.clock import Clock
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.ownership_machine import OwnershipMachine
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.cluster.control.reachability import DiskReachability
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal

SIGHT_S = 1.0
OFFER_S = 3.0  # for the others to look
OFFERED_S = 5.0  # until they are asked again

Spawn = Callable[[Coroutine[Any, Any, None]], None]

log = logging.getLogger(__name__)


class DiskSight:
    """Watch which disks the process `me` can reach. `wake`: called when the state machine has work."""

    def __init__(
        self,
        view: ClusterView,
        me: Member,
        machine: OwnershipMachine,
        peers: PeerChannels,
        clock: Clock,
        spawn: Spawn,
        wake: Callable[[], None],
    ) -> None:
        self._view, self._me, self._machine, self._peers, self._clock = view, me, machine, peers, clock
        self._spawn, self._wake = spawn, wake
        self._reach = DiskReachability(view, peers.ping, clock.monotonic)
        self._offered: dict[int, float] = {}  # chain -> when others were asked whether they could serve it

    async def can_serve(self, chain: int) -> None:
        """Return if this process could serve a chain. Raises `FailedPrecondition` otherwise. For Chains/CanServe."""
        record = self._view.chain(chain)
        me = self._me
        if record is None or self._view.draining(me) or not await self._reach.could_serve(record):
            raise FailedPrecondition(f"{me.name} cannot reach enough disks of chain {chain}, or accepts nothing new.")

    async def watch(self) -> None:
        """Look after the disks of the chains that are open here, or should be."""
        while True:
            await asyncio.sleep(self._clock.pause_s(SIGHT_S))
            numbers = {*self._machine.open_chains, *self._machine.unserved}
            records = [record for number in numbers if (record := self._view.chain(number)) is not None]
            await self._reach.check(records)
            now = self._clock.monotonic()
            for record in records:
                number = record.number
                if number in self._machine.unserved:
                    if self._reach.serves(record):
                        self._machine.can_serve(number)
                elif not self._reach.serves(record) and now >= self._offered.get(number, now) + OFFERED_S:
                    self._spawn(self._offer(record))
                elif self._reach.serves(record):
                    self._offered[number] = now - OFFERED_S

    async def _offer(self, record: ChainRecord) -> None:
        """Give a chain up whose disks cannot be reached from here, if anybody else reaches them."""
        number, me = record.number, self._me
        self._offered[number] = self._clock.monotonic()
        others = [
            one
            for one in self._view.with_role(PUBLISH)
            if one.name != me.name and record.region in ("", one.region) and not self._view.draining(one)
        ]
        request = internal.HandOverRequest(chain=number, to=me.name).SerializeToString()
        answers = await asyncio.gather(
            *(self._peers.call(one.address, methods.CHAINS.CanServe, request, timeout_s=OFFER_S) for one in others),
            return_exceptions=True,
        )
        able = [one.name for one, answer in zip(others, answers, strict=True) if isinstance(answer, bytes)]
        if able and not await self._reach.could_serve(record):  # they may all have come back together
            log.warning("chain %d is given up: its disks cannot be reached from here, but from %s", number, able[0])
            self._machine.cannot_serve(number)
            self._wake()
