"""Who opens which chain: the decisions, without a clock, a network or a store.

Place: one machine in every publish forwarder process, driven by `ownership_driver`. It receives the state of the
metadata and what its own doings came to; `step` answers what to do now.
Promise: safety is not made here. Every claim is one compare-and-set that raises the chain's epoch, and disks refuse
lower epochs, so two owners of the same epoch are impossible whatever this machine believes. What is made here: a chain
without a living owner is claimed, by the least loaded forwarder first and by the others a little later; a chain goes
home when its home is back, one at a time; while the metadata is out of reach owners go on and nobody claims; when it
comes back, owners have time to say that they still are.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

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
    YieldOwnership,
)

BACKOFF_S = 0.4  # how long each next candidate waits for the one before it
RANK_MAX = 5
START_HOLD_S = 2.0  # after a start: until then only chains whose home this is
RETURN_HOLD_S = 3.0  # after an outage of the metadata: until then owners confirm what they hold
QUIET_S = 10.0  # an ownership younger than this is left in peace, where it is
YOUNG_S = 2.0  # an ownership younger than this is ended by the end of a lease only
REFUSALS = 2
RETRY_FIRST_S, RETRY_MAX_S = 0.5, 10.0
ASK_S = 30.0


class Phase(enum.Enum):
    """Where this process stands with a chain."""

    CLAIMING = "claiming"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    RELEASING = "releasing"


@dataclass(slots=True)
class HeldChain:
    """A chain this process is busy with. `written_at`: revision of its owner's key, as far as known."""

    phase: Phase
    epoch: int = 0
    written_at: int = 0
    confirming: bool = False
    overtaken: bool = False  # somebody else is owner: there is nothing to release
    leaving: bool = False  # to be closed as soon as it is open


class OwnershipMachine:
    """The decisions of one process. Report what happened, then ask `step` what to do."""

    def __init__(self, name: str, incarnation: int, now: float) -> None:
        self.name, self.incarnation = name, incarnation
        self.held: dict[int, HeldChain] = {}
        self.takeovers = 0
        self._effects: list[Effect] = []
        self._leased = self._had_lease = False
        self._hold_until = now  # for every chain
        self._start_until = now + START_HOLD_S  # for chains at home elsewhere
        self._orphan_since: dict[int, float] = {}
        self._owner_of: dict[int, tuple[str, int, int] | None] = {}
        self._changed_at: dict[int, float] = {}
        self._not_before: dict[int, float] = {}
        self._failures: dict[int, int] = {}
        self._fenced: dict[int, int] = {}
        self._refusals: dict[tuple[str, int], int] = {}
        self.unserved: set[int] = set()  # chains that others can serve and this process cannot: too few disks in sight
        self._asked: tuple[int, float] | None = None  # a chain asked for, and until when it is waited for

    # -- what happened -----------------------------------------------------------------------------------------------

    @property
    def open_chains(self) -> list[int]:
        """Chains that are served here now."""
        return sorted(chain for chain, held in self.held.items() if held.phase is Phase.OPEN)

    def leased(self, has: bool, now: float) -> None:
        """This process has a lease, or has lost it."""
        if has and self._had_lease:
            self._hold_until = now + RETURN_HOLD_S
        self._leased = has
        self._had_lease = self._had_lease or has

    def refused(self, member: str, incarnation: int) -> None:
        """Nobody listens at a member's address."""
        self._refusals[member, incarnation] = self._refusals.get((member, incarnation), 0) + 1

    def answered(self, member: str, incarnation: int) -> None:
        """A member answered, or at least did not refuse."""
        self._refusals.pop((member, incarnation), None)

    def claimed(self, chain: int, epoch: int, revision: int) -> None:
        """The claim stands in the metadata since that revision."""
        assert self.held[chain].phase is Phase.CLAIMING, self.held[chain]
        self.held[chain] = HeldChain(Phase.OPENING, epoch, revision)
        self.takeovers += 1
        self._effects.append(OpenChain(chain, epoch))

    def not_claimed(self, chain: int, now: float) -> None:
        """Somebody was faster, or the metadata did not answer."""
        held = self.held.pop(chain)
        assert held.phase is Phase.CLAIMING, held
        self._not_before[chain] = now + RETRY_FIRST_S

    def opened(self, chain: int) -> None:
        """The chain is served here now."""
        held = self.held[chain]
        assert held.phase is Phase.OPENING, held
        held.phase = Phase.OPEN
        if self._asked is not None and self._asked[0] == chain:
            self._asked = None
        if held.leaving:
            self._close(chain, held)
        else:
            self._failures.pop(chain, None)
            self._fenced.pop(chain, None)

    def open_failed(self, chain: int, now: float, *, fenced: bool) -> None:
        """Note that a chain could not be opened. `fenced`: disks know a higher epoch."""
        self._failed(chain, now, fenced)
        self._let_go(chain, self.held[chain])

    def ended(self, chain: int, now: float, *, fenced: bool) -> None:
        """The chain, served here until now, has ended by itself: fenced, or its disks are gone."""
        if self.hand_over(chain):
            self._failed(chain, now, fenced)

    def hand_over(self, chain: int) -> bool:
        """The chain must go elsewhere; False when it is not open here."""
        held = self.held.get(chain)
        if held is None or held.phase not in (Phase.OPENING, Phase.OPEN):
            return False
        if held.phase is Phase.OPEN:
            self._close(chain, held)
        held.leaving = True
        return True

    def cannot_serve(self, chain: int) -> None:
        """Too few of a chain's disks can be reached from here, and somebody else reaches enough. It is given up at
        once: closing it may take long, and what is written in the meantime could not be acknowledged.
        """
        held = self.held.get(chain)
        if held is not None and held.phase is Phase.OPEN:
            self.unserved.add(chain)
            self._close(chain, held)
            held.leaving = True
            self._effects.append(YieldOwnership(chain, held.epoch))

    def can_serve(self, chain: int) -> None:
        """Its disks can be reached again."""
        self.unserved.discard(chain)

    def confirmed(self, chain: int, revision: int) -> None:
        """The owner's key is written again."""
        held = self.held.get(chain)
        if held is not None:
            held.confirming, held.written_at = False, revision

    def not_confirmed(self, chain: int, *, overtaken: bool) -> None:
        """Note that ownership could not be written. `overtaken`: the epoch is higher now."""
        held = self.held.get(chain)
        if held is not None:
            held.confirming = False
            if overtaken:
                self._overtake(chain, held)

    def closed(self, chain: int) -> None:
        """The chain is not served here any more."""
        assert self.held[chain].phase is Phase.CLOSING, self.held[chain]
        self._let_go(chain, self.held[chain])

    def released(self, chain: int) -> None:
        """The owner's key is gone, or somebody else's."""
        held = self.held.pop(chain)
        assert held.phase is Phase.RELEASING, held

    # -- what to do --------------------------------------------------------------------------------------------------

    def step(self, now: float, view: OwnershipView) -> list[Effect]:
        """What to do now. To be asked after anything happened, and some times a second."""
        self._note_changes(now, view)
        for chain, held in list(self.held.items()):
            if held.phase in (Phase.OPENING, Phase.OPEN) and view.owned_at >= held.written_at:
                self._check_own(chain, held, view.owners.get(chain))
        if self._leased:
            self._leave_drained(view)
            self._claim_orphans(now, view)
            self._ask_for_home(now, view)
        effects, self._effects = self._effects, []
        return effects

    def is_at_rest(self, now: float) -> bool:
        """Whether time alone changes nothing that matters within a second: every chain that is held is open, none waits
        for an owner, and nobody refuses connections.
        """
        waits = self._effects or self._orphan_since or self._refusals or self._asked is not None
        held = all(held.phase is Phase.OPEN and not held.leaving for held in self.held.values())
        return not waits and held and now >= max(self._hold_until, self._start_until)

    def _note_changes(self, now: float, view: OwnershipView) -> None:
        for chain in view.chains:
            seen = view.owners.get(chain)
            owner = None if seen is None else (seen.value.member, seen.value.incarnation, seen.value.epoch)
            if chain not in self._owner_of or self._owner_of[chain] != owner:
                self._owner_of[chain] = owner
                self._changed_at[chain] = now
        if self._refusals:  # of who is neither a member nor an owner any more, nobody asks
            owners = {(seen.value.member, seen.value.incarnation) for seen in view.owners.values()}
            known = owners.union(_identity(seen.value) for seen in view.members.values())
            self._refusals = {who: times for who, times in self._refusals.items() if who in known}

    def _check_own(self, chain: int, held: HeldChain, seen: Versioned[ChainOwner] | None) -> None:
        if seen is None:  # the lease it hung on has ended
            if self._leased and not held.confirming:
                held.confirming = True
                self._effects.append(ConfirmOwnership(chain, held.epoch))
        elif not self._is_me(seen.value) or seen.value.epoch != held.epoch:
            self._overtake(chain, held)

    def _leave_drained(self, view: OwnershipView) -> None:
        """One chain after another goes to somebody who is not drained."""
        if self.name not in view.draining or any(
            held.phase in (Phase.CLOSING, Phase.RELEASING) for held in self.held.values()
        ):
            return
        for chain, held in sorted(self.held.items()):
            record = view.chains.get(chain)
            if held.phase is Phase.OPEN and record is not None and self._others(record, view):
                self._close(chain, held)
                return

    def _claim_orphans(self, now: float, view: OwnershipView) -> None:
        orphans = [chain for chain in sorted(view.chains) if self._is_orphan(chain, now, view)]
        for chain in self._orphan_since.keys() - set(orphans):
            del self._orphan_since[chain]
        if now < self._hold_until:
            return
        loads: dict[str, int] = {}
        for chain, seen in view.owners.items():
            if chain not in orphans:
                loads[seen.value.member] = loads.get(seen.value.member, 0) + 1
        for chain in orphans:
            record = view.chains[chain]
            held_back = now < self._start_until and record.home != self.name
            since = self._orphan_since.setdefault(chain, self._start_until if held_back else now)
            ranked = self._candidates(chain, record, view, loads)
            if self._give_up_stray(chain, view, ranked):
                continue
            if not ranked:
                continue
            loads[ranked[0]] = loads.get(ranked[0], 0) + 1
            if self.name not in ranked or chain in self.held or chain in self.unserved:
                continue
            rank = min(ranked.index(self.name), RANK_MAX)
            if now >= max(since + rank * BACKOFF_S, self._not_before.get(chain, now)):
                self.held[chain] = HeldChain(Phase.CLAIMING)
                seen_at = view.owners[chain].revision if chain in view.owners else 0
                self._effects.append(ClaimChain(chain, seen_at, 1 << min(self._fenced.get(chain, 0), 20)))

    def _give_up_stray(self, chain: int, view: OwnershipView, ranked: list[str]) -> bool:
        """An ownership that came of a claim whose outcome was not known, when this process does not want it any more:
        others take it for a living owner's, so nobody would ever open the chain.
        """
        seen = view.owners.get(chain)
        if seen is None or chain in self.held or self.name in ranked or not self._is_me(seen.value):
            return False
        self.held[chain] = HeldChain(Phase.RELEASING, seen.value.epoch, seen.revision)
        self._effects.append(ReleaseOwnership(chain, seen.value.epoch))
        return True

    def _is_orphan(self, chain: int, now: float, view: OwnershipView) -> bool:
        seen = view.owners.get(chain)
        held = self.held.get(chain)
        if held is not None and held.phase is not Phase.CLAIMING:
            return False
        if seen is None:
            return True
        owner = seen.value
        if self._is_me(owner):
            return True  # left over from a claim whose outcome was not known
        member = view.members.get(owner.member)
        if member is not None and member.value.incarnation != owner.incarnation and member.revision > seen.revision:
            return True  # the process has been started again
        return self._gone(owner) and now >= self._changed_at[chain] + YOUNG_S

    def _candidates(self, chain: int, record: ChainRecord, view: OwnershipView, loads: Mapping[str, int]) -> list[str]:
        """Who may claim a chain, best first; the same list everywhere that the same is known."""
        owner = view.owners.get(chain)
        found = [
            seen.value.name
            for seen in view.members.values()
            if _serves(seen.value, record)
            and self._refusals.get((seen.value.name, seen.value.incarnation), 0) < REFUSALS
            and (owner is None or (owner.value.member, owner.value.incarnation) != _identity(seen.value)
                 or self._is_me(owner.value))
        ]  # fmt: skip
        ready = [name for name in found if name not in view.draining] or found
        return sorted(ready, key=lambda name: (name != record.home, loads.get(name, 0), _mixed(chain, name)))

    def _ask_for_home(self, now: float, view: OwnershipView) -> None:
        """Chains that were made for this process come back, one at a time."""
        busy = any(held.phase in (Phase.CLAIMING, Phase.OPENING) for held in self.held.values())
        if self._asked is not None and now >= self._asked[1]:
            self._asked = None
        if busy or self._asked is not None or self.name in view.draining or self.name not in view.members:
            return
        for chain, record in sorted(view.chains.items()):
            seen = view.owners.get(chain)
            at_home = record.home == self.name and _serves(view.members[self.name].value, record)
            if not at_home or seen is None or chain in self.held or self._is_orphan(chain, now, view):
                continue
            if chain in self.unserved:
                continue
            if now >= self._changed_at[chain] + QUIET_S:
                self._asked = chain, now + ASK_S
                self._effects.append(RequestHandOver(chain, seen.value.address))
                return

    # -- shared ------------------------------------------------------------------------------------------------------

    def _close(self, chain: int, held: HeldChain) -> None:
        held.phase = Phase.CLOSING
        self._effects.append(CloseChain(chain, held.epoch))

    def _overtake(self, chain: int, held: HeldChain) -> None:
        held.overtaken = held.leaving = True
        if held.phase is Phase.OPEN:
            self._close(chain, held)

    def _let_go(self, chain: int, held: HeldChain) -> None:
        if held.overtaken:
            del self.held[chain]
        else:
            held.phase = Phase.RELEASING
            self._effects.append(ReleaseOwnership(chain, held.epoch))

    def _failed(self, chain: int, now: float, fenced: bool) -> None:
        failures = self._failures[chain] = self._failures.get(chain, 0) + 1
        self._not_before[chain] = now + min(RETRY_MAX_S, RETRY_FIRST_S * 2 ** min(failures - 1, 10))
        if fenced:
            self._fenced[chain] = self._fenced.get(chain, 0) + 1

    def _others(self, record: ChainRecord, view: OwnershipView) -> bool:
        return any(
            seen.value.name != self.name and _serves(seen.value, record) and seen.value.name not in view.draining
            for seen in view.members.values()
        )

    def _is_me(self, owner: ChainOwner) -> bool:
        return owner.member == self.name and owner.incarnation == self.incarnation

    def _gone(self, owner: ChainOwner) -> bool:
        return self._refusals.get((owner.member, owner.incarnation), 0) >= REFUSALS


def _serves(member: Member, record: ChainRecord) -> bool:
    return PUBLISH in member.roles and record.region in ("", member.region)


def _identity(member: Member) -> tuple[str, int]:
    return member.name, member.incarnation


def _mixed(chain: int, name: str) -> bytes:
    return hashlib.blake2b(b"%d/%s" % (chain, name.encode()), digest_size=8).digest()
