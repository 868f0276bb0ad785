"""The driver of `ownership_machine`: carries its decisions out, in the metadata and at the host of the chains.

Place: in every publish forwarder process, between the metadata and `publish.host`.
Promise: the owner's key of a chain is under this process's lease and says the epoch it was opened with. What fails is
told to the machine, which decides whether and when to try again.
Leaves to the host: fencing, recovery, serving.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from syncpoint.control.membership import Membership
from syncpoint.control.ownership_machine import (
    REFUSALS,
    ClaimChain,
    CloseChain,
    ConfirmOwnership,
    Effect,
    OpenChain,
    OwnershipMachine,
    OwnershipView,
    Phase,
    ReleaseOwnership,
    RequestHandOver,
    YieldOwnership,
)
from syncpoint.control.peer_channels import PeerChannels, Reach
from syncpoint.control.reachability import DiskReachability
from syncpoint.metadata.contract import (
    Compare,
    Delete,
    Indeterminate,
    KeyValue,
    Operation,
    Put,
    StoreError,
    StoreUnavailable,
    TxnResult,
    absent,
    unchanged,
)
from syncpoint.metadata.layout import EPOCHS, OWNERS
from syncpoint.metadata.store_client import SharedLease
from syncpoint.metadata.view import ClusterView
from syncpoint.model.cluster import PUBLISH, ChainOwner, ChainRecord, Member
from syncpoint.model.errors import FailedPrecondition, SyncpointError
from syncpoint.runtime.clock import Clock
from syncpoint.runtime.files import DiskFenced
from syncpoint.runtime.tasks import Tasks, stop
from syncpoint.transport.calls import Methods
from syncpoint.wire import methods
from syncpoint.wire.messages import internal
from syncpoint.wire.serving import served

SIGHT_S = 1.0
OFFER_S = 3.0  # for the others to look
OFFERED_S = 5.0  # until they are asked again
TICK_S = 0.2
PING_S = 0.3
PINGED_MAX = 8
AGAIN_S = 0.03  # between two pings of one whose connection broke
HAND_OVER_S = 20.0
STOP_S = 20.0
_RETRY_S = 0.2

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
    """Keeps open here what should be open here. `machine` shows where it stands."""

    def __init__(
        self, view: ClusterView, membership: Membership, host: Host, peers: PeerChannels, clock: Clock
    ) -> None:
        self.view, self.membership, self.host, self.peers, self.clock = view, membership, host, peers, clock
        self.store = view.store
        me = membership.me
        self.machine = OwnershipMachine(me.name, me.incarnation, clock.monotonic())
        self._wake = asyncio.Event()
        self._snapshot: OwnershipView | None = None
        self._tasks, self._loops = Tasks(), Tasks()
        self._gone: dict[int, asyncio.Future[None]] = {}
        self.sight = DiskReachability(view, peers.ping, clock.monotonic)
        self._offered: dict[int, float] = {}  # chain -> when others were asked whether they could serve it
        self._pinging: set[str] = set()
        self._watched: dict[tuple[str, int], asyncio.Task[None]] = {}  # name and incarnation -> who waits for its end

    def start(self) -> None:
        """Begin. View and membership have been started."""
        self.view.on_change.append(self._changed)
        self.membership.on_lease.append(self._leased)
        self._leased(self.membership.lease)
        for work in (self._run(), self._ping_others(), self._watch_disks()):
            self._loops.start(work)

    async def stop(self, grace_s: float = STOP_S) -> None:
        """Let go of every chain, sealed and ready for others, one after the other. What is not done within `grace_s` is
        left to the end of the process: the next owner's epoch shuts it out.
        """
        self.view.on_change.remove(self._changed)
        self.membership.on_lease.remove(self._leased)
        await stop([*self._loops, *self._watched.values()])
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
        return sorted(chain for chain, held in self.machine.held.items() if held.phase is Phase.OPEN)

    async def hand_over(self, chain: int) -> None:
        """Close a chain and give its ownership up; returns when that is done. For Chains/HandOver."""
        if not self.machine.hand_over(chain):
            raise FailedPrecondition(f"Chain {chain} is not open at {self.membership.me.name}.")
        gone = self._gone.setdefault(chain, asyncio.get_running_loop().create_future())
        self._step()
        await asyncio.shield(gone)

    def ended(self, chain: int, error: Exception | None) -> None:
        """The host says that a chain it had open has ended by itself."""
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
                async with asyncio.timeout(TICK_S):
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
        owner_key, epoch_key, lease = OWNERS.key(chain), EPOCHS.key(chain), self.membership.lease
        try:
            known = await self.store.get(epoch_key)
            epoch = step + (0 if known is None else int(known.value))
            if lease is None:
                raise StoreUnavailable("no lease")
            result = await self._txn_known(
                [absent(owner_key) if seen == 0 else unchanged(owner_key, seen), _is_value(epoch_key, known)],
                [Put(owner_key, self._owner(epoch), lease.id), Put(epoch_key, b"%d" % epoch)],
                owner_key,
                self._owner(epoch),
            )
        except (StoreError, ValueError) as error:  # ValueError: the lease has ended
            log.info("chain %d cannot be claimed: %s", chain, error)
            self.machine.not_claimed(chain, self.clock.monotonic())
            return
        if result is None:
            self.machine.not_claimed(chain, self.clock.monotonic())
        else:
            log.info("chain %d is owned by %s in epoch %d", chain, self.membership.me.name, epoch)
            self.machine.claimed(chain, epoch, result)

    async def _txn_known(
        self, compares: Sequence[Compare], puts: Sequence[Operation], key: str, value: bytes
    ) -> int | None:
        """The revision at which `key` has `value`; None when the conditions do not hold. An unknown outcome is read;
        raises `Indeterminate` where the key does not have the value yet: it may come to that later, as long as the
        conditions hold.
        """
        try:
            result: TxnResult = await self.store.txn(compares, puts)
            return result.revision if result.ok else None
        except Indeterminate as unknown:
            while True:
                try:
                    found = await self.store.get(key)
                except StoreError:
                    await asyncio.sleep(_RETRY_S)
                    continue
                if found is None or found.value != value:
                    raise unknown
                return found.revision

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

    async def _confirm(self, chain: int, epoch: int) -> None:
        owner_key, epoch_key, lease = OWNERS.key(chain), EPOCHS.key(chain), self.membership.lease
        value = self._owner(epoch)
        try:
            if lease is None:
                raise StoreUnavailable("no lease")
            revision = await self._txn_known(
                [absent(owner_key), Compare(epoch_key, "value", "=", b"%d" % epoch)],
                [Put(owner_key, value, lease.id)],
                owner_key,
                value,
            )
            if revision is None:
                found = await self.store.get(owner_key)
                if found is not None and found.value == value:
                    revision = found.revision
        except (StoreError, ValueError) as error:
            log.info("the ownership of chain %d cannot be confirmed: %s", chain, error)
            await asyncio.sleep(_RETRY_S)
            self.machine.not_confirmed(chain, overtaken=False)
            return
        if revision is None:
            self.machine.not_confirmed(chain, overtaken=True)
        else:
            self.machine.confirmed(chain, revision)

    async def _release(self, chain: int, epoch: int) -> None:
        owner_key = OWNERS.key(chain)
        while True:
            try:
                await self.store.txn([Compare(owner_key, "value", "=", self._owner(epoch))], [Delete(owner_key)])
                break
            except StoreError as error:
                lease = self.membership.lease
                if lease is None or lease.lost.is_set():
                    break  # the key went with the lease
                log.info("chain %d cannot be released yet: %s", chain, error)
                await asyncio.sleep(_RETRY_S)
        self.machine.released(chain)

    async def _yield(self, chain: int, epoch: int) -> None:
        owner_key = OWNERS.key(chain)
        try:
            await self.store.txn([Compare(owner_key, "value", "=", self._owner(epoch))], [Delete(owner_key)])
        except StoreError as error:
            log.info("chain %d is released when it is closed: %s", chain, error)

    async def _ask(self, chain: int, address: str) -> None:
        request = internal.HandOverRequest(chain=chain, to=self.membership.me.name).SerializeToString()
        try:
            await self.peers.call(address, methods.CHAINS.HandOver, request, timeout_s=HAND_OVER_S)
        except SyncpointError as error:
            log.info("chain %d is not handed over by %s: %s", chain, address, error)

    def _owner(self, epoch: int) -> bytes:
        me = self.membership.me
        return ChainOwner(me.name, me.incarnation, epoch, me.address).encode()

    # -- which disks are in sight ------------------------------------------------------------------------------------

    async def can_serve(self, chain: int) -> None:
        """Return if this process could serve a chain. Raises `FailedPrecondition` otherwise. For Chains/CanServe."""
        record = self.view.chain(chain)
        me = self.membership.me
        if record is None or self.view.draining(me) or not await self.sight.could_serve(record):
            raise FailedPrecondition(f"{me.name} cannot reach enough disks of chain {chain}, or takes nothing new.")

    async def _watch_disks(self) -> None:
        while True:
            await asyncio.sleep(SIGHT_S)
            numbers = {*self.open_chains, *self.machine.unserved}
            records = [record for number in numbers if (record := self.view.chain(number)) is not None]
            await self.sight.look(records)
            now = self.clock.monotonic()
            for record in records:
                number = record.number
                if number in self.machine.unserved:
                    if self.sight.serves(record):
                        self.machine.can_serve(number)
                elif not self.sight.serves(record) and now >= self._offered.get(number, now) + OFFERED_S:
                    self._spawn(self._offer(record))
                elif self.sight.serves(record):
                    self._offered[number] = now - OFFERED_S

    async def _offer(self, record: ChainRecord) -> None:
        """Give a chain up whose disks cannot be reached from here, if anybody else reaches them."""
        number, me = record.number, self.membership.me
        self._offered[number] = self.clock.monotonic()
        others = [
            one
            for one in self.view.with_role(PUBLISH)
            if one.name != me.name and record.region in ("", one.region) and not self.view.draining(one)
        ]
        request = internal.HandOverRequest(chain=number, to=me.name).SerializeToString()
        answers = await asyncio.gather(
            *(self.peers.call(one.address, methods.CHAINS.CanServe, request, timeout_s=OFFER_S) for one in others),
            return_exceptions=True,
        )
        able = [one.name for one, answer in zip(others, answers, strict=True) if isinstance(answer, bytes)]
        if able and not await self.sight.could_serve(record):  # they may all have come back together
            log.warning("chain %d is given up: its disks cannot be reached from here, but from %s", number, able[0])
            self.machine.cannot_serve(number)
            self._wake.set()

    # -- who is still there ------------------------------------------------------------------------------------------

    async def _ping_others(self) -> None:
        while True:
            neighbours = self._neighbours()
            self._watch_for_ends(neighbours)
            for member in neighbours:
                if member.name not in self._pinging:  # a silent one must not keep the others waiting
                    self._pinging.add(member.name)
                    self._spawn(self._ping(member))
            await asyncio.sleep(PING_S)

    async def _ping(self, member: Member) -> None:
        try:
            await self._ask_whether_there(member)
        finally:
            self._pinging.discard(member.name)

    async def _ask_whether_there(self, member: Member) -> bool:
        """Whether its address refuses connections; the machine is told."""
        refused = await self.peers.ping(member.address, timeout_s=1.0) is Reach.REFUSED
        if refused:
            self.machine.refused(member.name, member.incarnation)
            self._wake.set()
        else:
            self.machine.answered(member.name, member.incarnation)
        return refused

    def _watch_for_ends(self, members: Sequence[Member]) -> None:
        """Wait for the end of these processes, of nobody else."""
        wanted = {(member.name, member.incarnation): member for member in members}
        for key in self._watched.keys() - wanted.keys():
            self._watched.pop(key).cancel()
        for key, member in wanted.items():
            if key not in self._watched or self._watched[key].done():
                self._watched[key] = asyncio.get_running_loop().create_task(self._watch(member))

    async def _watch(self, member: Member) -> None:
        """A process that is killed breaks its connections at once: then nobody has to wait for the next pings."""
        await self.peers.until_lost(member.address)
        for _ in range(REFUSALS):
            if not await self._ask_whether_there(member):
                break
            await asyncio.sleep(AGAIN_S)

    def _neighbours(self) -> list[Member]:
        """Owners of chains whose name comes next after this one's, in a ring: few for each, and each has few."""
        me = self.membership.me
        others = [one for one in self.view.with_role(PUBLISH) if one.name != me.name and one.region == me.region]
        after = [one for one in others if one.name > me.name]
        return (after + [one for one in others if one.name < me.name])[:PINGED_MAX]


class ChainOwnership(Protocol):
    """Who can let go of a chain."""

    async def hand_over(self, chain: int) -> None:
        """Close a chain and give its ownership up."""
        ...

    async def can_serve(self, chain: int) -> None:
        """Raises `FailedPrecondition` where it could not."""
        ...


def hand_over_methods(keeper: ChainOwnership) -> Methods:
    """Chains/HandOver and CanServe, for the method table of a publish forwarder."""

    async def hand_over(asked: internal.HandOverRequest) -> internal.HandOverResponse:
        await keeper.hand_over(asked.chain)
        return internal.HandOverResponse()

    async def can_serve(asked: internal.HandOverRequest) -> internal.HandOverResponse:
        await keeper.can_serve(asked.chain)
        return internal.HandOverResponse()

    return {**served({methods.CHAINS.HandOver: hand_over, methods.CHAINS.CanServe: can_serve})}


def _is_value(key: str, known: KeyValue | None) -> Compare:
    return absent(key) if known is None else Compare(key, "value", "=", known.value)


def _unusual(error: Exception) -> Exception | None:
    """Errors that nobody planned for are logged with their trace."""
    return None if isinstance(error, (SyncpointError, OSError)) else error
