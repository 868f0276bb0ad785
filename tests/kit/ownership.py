"""Many claim machines over one imagined metadata store and imagined disks, in imagined time."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from syncpoint.base.model.cluster import PUBLISH, ChainOwner, ChainRecord, Member
from syncpoint.catalog.metadata.view import Versioned
from syncpoint.cluster.control.ownership_effects import (
    ClaimChain,
    CloseChain,
    ConfirmOwnership,
    Effect,
    OpenChain,
    OwnershipView,
    ReleaseOwnership,
    RequestHandOver,
)
from syncpoint.cluster.control.ownership_machine import OwnershipMachine

TTL_S = 4.0


@dataclass
class Process:
    """One life of a member."""

    member: Member
    machine: OwnershipMachine
    alive: bool = True
    paused: bool = False
    lease_until: float = 0.0
    leased: bool = False
    open: dict[int, int] = field(default_factory=dict)  # chain -> epoch, as served
    seen: OwnershipView | None = None


class Metadata:
    """Keys with revisions; leases by incarnation."""

    def __init__(self) -> None:
        self.revision = 1
        self.members: dict[str, Versioned[Member]] = {}
        self.owners: dict[int, Versioned[ChainOwner]] = {}
        self.epochs: dict[int, int] = {}
        self.chains: dict[int, ChainRecord] = {}
        self.drained: set[str] = set()
        self.granted: dict[tuple[int, int], int] = {}  # (chain, epoch) -> incarnation
        self.up = True

    def harness(self) -> OwnershipView:
        return OwnershipView(
            dict(self.members), frozenset(self.drained), dict(self.chains), dict(self.owners), self.revision
        )  # fmt: skip

    def put_member(self, member: Member) -> None:
        self.revision += 1
        self.members[member.name] = Versioned(member, self.revision)

    def put_owner(self, chain: int, owner: ChainOwner) -> int:
        key = (chain, owner.epoch)
        assert self.granted.setdefault(key, owner.incarnation) == owner.incarnation, "two owners of one epoch"
        self.revision += 1
        self.owners[chain] = Versioned(owner, self.revision)
        return self.revision

    def expire(self, incarnation: int) -> None:
        gone = [name for name, seen in self.members.items() if seen.value.incarnation == incarnation]
        owned = [chain for chain, seen in self.owners.items() if seen.value.incarnation == incarnation]
        if gone or owned:
            self.revision += 1
        for name in gone:
            del self.members[name]
        for chain in owned:
            del self.owners[chain]


class Imagined:
    """The whole of it. `run` lets time pass."""

    def __init__(self, seed: int, names: Iterable[str], chains_each: int = 1) -> None:
        self.random = random.Random(seed)
        self.now = 100.0
        self.meta = Metadata()
        self.disks: dict[int, int] = {}  # chain -> highest epoch seen
        self.lives: list[Process] = []
        self.current: dict[str, Process] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.claims: list[tuple[float, int, str]] = []
        self.broken: set[int] = set()  # chains whose disks are away
        number = 0
        for name in names:
            for _ in range(chains_each):
                number += 1
                self.meta.chains[number] = ChainRecord(number, f"{name}/default", "default", "r", name)
            self.start(name)

    # -- time --------------------------------------------------------------------------------------------------------

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, act))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, act = heapq.heappop(self._events)
            act()
            self.check()
        self.now = end

    def check(self) -> None:
        """One writer: of all that believe to serve a chain, only one has the epoch that the disks accept."""
        for chain, epoch in self.disks.items():
            writers = [life for life in self.lives if life.alive and life.open.get(chain) == epoch]
            assert len(writers) <= 1, f"chain {chain} has two writers in epoch {epoch}"

    # -- processes ---------------------------------------------------------------------------------------------------

    def start(self, name: str) -> Process:
        incarnation = self.random.getrandbits(63) | 1
        member = Member(name, (PUBLISH,), f"{name}:1", incarnation, region="r")
        life = Process(member, OwnershipMachine(name, incarnation, self.now))
        self.lives.append(life)
        self.current[name] = life
        self._renew(life)
        self._tick(life)
        self._look(life)
        self._ping(life)
        return life

    def kill(self, name: str) -> None:
        life = self.current[name]
        life.alive = False
        life.open.clear()

    def _renew(self, life: Process) -> None:
        """Keep the lease alive, or register again."""
        if not life.alive:
            self.later(max(0.0, life.lease_until - self.now), lambda: self._end_lease(life))
            return
        mine = self.meta.members.get(life.member.name)
        ours = mine is not None and mine.value.incarnation == life.member.incarnation
        replaced = self.current[life.member.name] is not life
        if not life.paused and self.meta.up and not replaced:
            if life.leased and life.lease_until < self.now:
                self._end_lease(life)
                life.leased, ours = False, False
                life.machine.leased(False, self.now)
            if not ours:
                self.meta.put_member(life.member)
            life.lease_until = self.now + TTL_S
            if not life.leased:
                life.leased = True
                life.machine.leased(True, self.now)
        elif life.lease_until <= self.now and self.meta.up:
            self._end_lease(life)
            if not life.paused and life.leased:
                life.leased = False
                life.machine.leased(False, self.now)
        self.later(1.0, lambda: self._renew(life))

    def _end_lease(self, life: Process) -> None:
        if self.meta.up and life.lease_until <= self.now:
            self.meta.expire(life.member.incarnation)
        elif not self.meta.up:
            self.later(0.5, lambda: self._end_lease(life))

    def _look(self, life: Process) -> None:
        """The watch: some milliseconds late."""
        if not life.alive:
            return
        if self.meta.up:
            harness = self.meta.harness()
            self.later(self.random.uniform(0.001, 0.2), lambda: self._see(life, harness))
        self.later(self.random.uniform(0.01, 0.1), lambda: self._look(life))

    def _see(self, life: Process, harness: OwnershipView) -> None:
        if life.seen is None or harness.owned_at >= life.seen.owned_at:
            life.seen = harness

    def _ping(self, life: Process) -> None:
        if not life.alive:
            return
        if not life.paused:
            for seen in (life.seen or self.meta.harness()).members.values():
                there = self.current[seen.value.name]
                if seen.value.name == life.member.name:
                    continue
                if not there.alive:
                    life.machine.refused(seen.value.name, seen.value.incarnation)
                else:
                    life.machine.answered(seen.value.name, seen.value.incarnation)
        self.later(0.3, lambda: self._ping(life))

    def _tick(self, life: Process) -> None:
        if not life.alive:
            return
        if not life.paused and life.seen is not None:
            for effect in life.machine.step(self.now, life.seen):
                self.later(self.random.uniform(0.001, 0.3), lambda effect=effect: self._do(life, effect))
        self.later(0.1, lambda: self._tick(life))

    # -- what they do ------------------------------------------------------------------------------------------------

    def _do(self, life: Process, effect: Effect) -> None:
        if not life.alive:
            return
        if life.paused:
            self.later(0.2, lambda: self._do(life, effect))
            return
        machine, meta, name = life.machine, self.meta, life.member.name
        match effect:
            case ClaimChain(chain, seen, step):
                owner = meta.owners.get(chain)
                epoch = meta.epochs.get(chain, 0) + step
                if not meta.up or not life.leased or seen != (0 if owner is None else owner.revision):
                    machine.not_claimed(chain, self.now)
                    return
                meta.epochs[chain] = epoch
                self.claims.append((self.now, chain, name))
                revision = meta.put_owner(chain, ChainOwner(name, life.member.incarnation, epoch, life.member.address))
                machine.claimed(chain, epoch, revision)
            case OpenChain(chain, epoch):
                if self.disks.get(chain, 0) > epoch or chain in self.broken:
                    machine.open_failed(chain, self.now, fenced=chain not in self.broken)
                    return
                self.disks[chain] = epoch
                for other in self.lives:
                    if other is not life and other.open.get(chain, epoch) < epoch:
                        self.later(0.05, lambda other=other: self._fenced(other, chain))
                life.open[chain] = epoch
                machine.opened(chain)
            case ConfirmOwnership(chain, epoch):
                owner = meta.owners.get(chain)
                if not meta.up or not life.leased:
                    machine.not_confirmed(chain, overtaken=False)
                elif owner is None and meta.epochs.get(chain) == epoch:
                    revision = meta.put_owner(
                        chain, ChainOwner(name, life.member.incarnation, epoch, life.member.address)
                    )
                    machine.confirmed(chain, revision)
                elif owner is not None and (owner.value.incarnation, owner.value.epoch) == (
                    life.member.incarnation,
                    epoch,
                ):
                    machine.confirmed(chain, owner.revision)
                else:
                    machine.not_confirmed(chain, overtaken=True)
            case CloseChain(chain):
                life.open.pop(chain, None)
                machine.closed(chain)
            case ReleaseOwnership(chain, epoch):
                if not meta.up:
                    self.later(0.2, lambda: self._do(life, effect))
                    return
                owner = meta.owners.get(chain)
                if owner is not None and owner.value.epoch == epoch:
                    meta.revision += 1
                    del meta.owners[chain]
                machine.released(chain)
            case RequestHandOver(chain, address):
                there = self.current[address.split(":")[0]]
                if there.alive and not there.paused:
                    there.machine.hand_over(chain)

    def _fenced(self, life: Process, chain: int) -> None:
        if life.paused:
            self.later(0.2, lambda: self._fenced(life, chain))
        elif life.alive and life.open.get(chain, 0) < self.disks[chain] and chain in life.open:
            del life.open[chain]
            life.machine.ended(chain, self.now, fenced=True)

    # -- looking -----------------------------------------------------------------------------------------------------

    def serving(self) -> dict[int, str]:
        """Who serves each chain in the epoch that its disks accept."""
        return {
            chain: life.member.name
            for chain, epoch in self.disks.items()
            for life in self.lives
            if life.alive and not life.paused and life.open.get(chain) == epoch
        }

    def homes(self) -> dict[int, str]:
        return {chain: record.home for chain, record in self.meta.chains.items()}
