"""The driver of `ownership_machine`: carries its decisions out, in the metadata and at the host of the chains.

Place: in every publish forwarder process, between the metadata and `publish.host`.
Promise: each effect of the machine is carried out once, and its outcome reported to the machine, which decides whether
and when to try again.
Leaves to the host: fencing, recovery, serving. To `owner_keys`: the metadata. To `peer_watch`, `disk_sight`: which
processes and disks answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from syncpoint.base.model.cluster import ChainRecord
from syncpoint.base.model.errors import FailedPrecondition, SyncpointError
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.files import DiskFenced
from syncpoint.base.runtime.tasks import Tasks, stop
from syncpoint.catalog.metadata.contract import StoreError
from syncpoint.catalog.metadata.store_client import RETRY_S, SharedLease
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.disk_sight import DiskSight
from syncpoint.cluster.control.membership import Membership
from syncpoint.cluster.control.owner_keys import OwnerKeys
from syncpoint.cluster.control.ownership_effects import (
    ClaimChain,
    CloseChain,
    ConfirmOwnership,
    Effect,
    OpenChain,
    OwnershipView,
    ReleaseOwnership,
    RequestHandOver,
    YieldOwnership,
)
from syncpoint.cluster.control.ownership_machine import OwnershipMachine
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.cluster.control.peer_watch import PeerWatch
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal

TICK_S = 0.2
REST_S = 1.0  # while nothing is to be decided
HAND_OVER_S = 20.0
STOP_S = 20.0

log = logging.getLogger(__name__)


class Host(Protocol):
    """What serves chains in this process."""

    async def open(self, record: ChainRecord, epoch: int) -> None:
        """Return when the chain is recovered and served. Raises `DiskFenced` when a later epoch has begun."""
        ...

    async def close(self, number: int) -> None:
        """Seal it where that is still possible and let go. Never to be called twice for one `open`."""
        ...


class OwnershipDriver:
    """Opens and closes chains in this process until that matches what `machine` decided."""

    def __init__(
        self, view: ClusterView, membership: Membership, host: Host, peers: PeerChannels, clock: Clock
    ) -> None:
        self.view, self.membership, self.host, self.peers, self.clock = view, membership, host, peers, clock
        me = membership.me
        self.machine = OwnershipMachine(me.name, me.incarnation, clock.monotonic())
        self._wake = asyncio.Event()
        self._snapshot: OwnershipView | None = None
        self._tasks, self._loops = Tasks(), Tasks()
        self._gone: dict[int, asyncio.Future[None]] = {}
        self.keys = OwnerKeys(view.store, membership)
        self._disks = DiskSight(view, me, self.machine, peers, clock, self._spawn, self._wake.set)
        self._watch = PeerWatch(view, me, self.machine, peers, clock, self._spawn, self._wake.set)

    def start(self) -> None:
        """Begin. View and membership have been started."""
        self.view.on_change.append(self._changed)
        self.membership.on_lease.append(self._leased)
        self._leased(self.membership.lease)
        for work in (self._run(), self._watch.ping_others(), self._disks.watch()):
            self._loops.start(work)

    async def stop(self, grace_s: float = STOP_S) -> None:
        """Let go of every chain, sealed and ready for others, one after the other. What is not done within `grace_s` is
        left to the end of the process: the next owner's epoch shuts it out.
        """
        self.view.on_change.remove(self._changed)
        self.membership.on_lease.remove(self._leased)
        await stop([*self._loops, *self._watch.watched.values()])
        self.machine.leased(False, self.clock.monotonic())
        left = total = len(self.machine.held)
        log.info("%s hands over %d chains", self.membership.me.name, total)
        try:
            async with asyncio.timeout(grace_s):
                while True:
                    for chain in self.open_chains[:1]:
                        self.machine.hand_over(chain)
                    self._step()
                    if len(self.machine.held) < left:
                        left = len(self.machine.held)
                        log.info("%d of %d chains left", left, total)
                    if not self._tasks:
                        break
                    await asyncio.wait(set(self._tasks), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            log.warning("chains %s are not given up in time", sorted(self.machine.held))
            await self._tasks.stop()

    @property
    def open_chains(self) -> list[int]:
        """Chains that are served here now."""
        return self.machine.open_chains

    async def can_serve(self, chain: int) -> None:
        """Return if this process could serve a chain. Raises `FailedPrecondition` otherwise. For Chains/CanServe."""
        await self._disks.can_serve(chain)

    async def hand_over(self, chain: int) -> None:
        """Close a chain and give its ownership up; returns when that is done. For Chains/HandOver."""
        if not self.machine.hand_over(chain):
            raise FailedPrecondition(f"Chain {chain} is not open at {self.membership.me.name}.")
        gone = self._gone.setdefault(chain, asyncio.get_running_loop().create_future())
        self._step()
        await asyncio.shield(gone)

    def ended(self, chain: int, error: Exception | None) -> None:
        """The host reports that a chain it had open ended by itself."""
        log.warning("chain %d has ended at %s: %s", chain, self.membership.me.name, error)
        self.machine.ended(chain, self.clock.monotonic(), fenced=isinstance(error, DiskFenced))
        self._wake.set()

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        self._snapshot = None
        self._wake.set()

    def _leased(self, lease: SharedLease | None) -> None:
        self.machine.leased(lease is not None, self.clock.monotonic())
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            self._step()
            try:
                rests = self.machine.is_at_rest(self.clock.monotonic())
                async with asyncio.timeout(self.clock.pause_s(REST_S if rests else TICK_S)):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _step(self) -> None:
        if self._snapshot is None:
            self._snapshot = self._take_snapshot()
        if self.membership.superseded.is_set():
            self.machine.leased(False, self.clock.monotonic())  # the name is another's now: it claims for it
        for effect in self.machine.step(self.clock.monotonic(), self._snapshot):
            self._spawn(self._carry_out(effect))
        for chain in [chain for chain in self._gone if chain not in self.machine.held]:
            self._gone.pop(chain).set_result(None)

    def _take_snapshot(self) -> OwnershipView:
        view = self.view
        members = view.members.items
        return OwnershipView(
            members,
            frozenset(name for name, seen in members.items() if view.draining(seen.value)),
            {int(key): seen.value for key, seen in view.chains.items.items()},
            {int(key): seen for key, seen in view.owners.items.items()},
            view.owners.revision,
        )

    # -- doing -------------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.start(work).add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("keeping chains failed", exc_info=error)
        self._wake.set()

    async def _carry_out(self, effect: Effect) -> None:
        match effect:
            case ClaimChain(chain, seen, step):
                await self._claim(chain, seen, step)
            case OpenChain(chain, epoch):
                await self._open(chain, epoch)
            case ConfirmOwnership(chain, epoch):
                await self._confirm(chain, epoch)
            case CloseChain(chain):
                await self._close(chain)
            case ReleaseOwnership(chain, epoch):
                await self._release(chain, epoch)
            case YieldOwnership(chain, epoch):
                await self._yield(chain, epoch)
            case RequestHandOver(chain, address):
                await self._ask(chain, address)

    async def _claim(self, chain: int, seen: int, step: int) -> None:
        try:
            claimed = await self.keys.claim(chain, seen, step)
        except (StoreError, ValueError) as error:
            log.info("chain %d cannot be claimed: %s", chain, error)
            claimed = None
        if claimed is None:
            self.machine.not_claimed(chain, self.clock.monotonic())
        else:
            log.info("chain %d is owned by %s in epoch %d", chain, self.membership.me.name, claimed[0])
            self.machine.claimed(chain, *claimed)

    async def _confirm(self, chain: int, epoch: int) -> None:
        try:
            revision = await self.keys.confirm(chain, epoch)
        except (StoreError, ValueError) as error:
            log.info("the ownership of chain %d cannot be confirmed: %s", chain, error)
            await asyncio.sleep(RETRY_S)
            self.machine.not_confirmed(chain, overtaken=False)
            return
        if revision is None:
            self.machine.not_confirmed(chain, overtaken=True)
        else:
            self.machine.confirmed(chain, revision)

    async def _release(self, chain: int, epoch: int) -> None:
        await self.keys.release(chain, epoch)
        self.machine.released(chain)

    async def _yield(self, chain: int, epoch: int) -> None:
        try:
            await self.keys.yield_once(chain, epoch)
        except StoreError as error:
            log.info("chain %d is released when it is closed: %s", chain, error)

    async def _open(self, chain: int, epoch: int) -> None:
        record = self.view.chain(chain)
        try:
            if record is None:
                raise FailedPrecondition(f"chain {chain} does not exist any more")
            await self.host.open(record, epoch)
        except Exception as error:
            log.warning("chain %d cannot be opened in epoch %d: %s", chain, epoch, error, exc_info=_unusual(error))
            self.machine.open_failed(chain, self.clock.monotonic(), fenced=isinstance(error, DiskFenced))
        else:
            self.machine.opened(chain)

    async def _close(self, chain: int) -> None:
        try:
            await self.host.close(chain)
        except Exception as error:
            # Whatever is left open, the next owner's epoch shuts it out.
            log.warning("chain %d was not closed well: %s", chain, error, exc_info=_unusual(error))
        self.machine.closed(chain)

    async def _ask(self, chain: int, address: str) -> None:
        request = internal.HandOverRequest(chain=chain, to=self.membership.me.name).SerializeToString()
        try:
            await self.peers.call(address, methods.CHAINS.HandOver, request, timeout_s=HAND_OVER_S)
        except SyncpointError as error:
            log.info("chain %d is not handed over by %s: %s", chain, address, error)


def _unusual(error: Exception) -> Exception | None:
    """Errors that nobody planned for are logged with their trace."""
    return None if isinstance(error, (SyncpointError, OSError)) else error
