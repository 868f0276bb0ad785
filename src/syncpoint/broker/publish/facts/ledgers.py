"""All ledgers and snapshots of one log: the one place where they are built, changed and built again.

Place: an acknowledgement arrives here from `subscribe/lease`, is written to the log beside the
messages, and lets `storage/recovery/trim` delete what nobody needs.
Promise: what a record in the log does to a ledger is the same when it is written and when it is read back, because both
call the same method here with the same value. There are three: a *state* (a ledger begun, reset, or as a checkpoint
found it: `take`), acknowledgements (`acknowledge`), and a snapshot (`keep`). Each may be applied twice and over later
ones, which is what fuzzy checkpoints need. What is dropped follows from the catalog and from what storage holds, so
there is no record of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum

from syncpoint.base.kernel.acks import decode_runs, encode_runs
from syncpoint.base.model.lanes import LANE_SIZE, lane_of
from syncpoint.broker.publish.facts.ledger import Ledger, SnapshotState


class AckVerdict(Enum):
    """What an acknowledgement is, measured by the ledger it is for."""

    COUNTS = "counts"
    OLD = "old"  # of a generation before: a seek has decided otherwise, there is nothing to remember
    NO_LANE = "no lane"  # of copies made by rules that are no more
    NEWER = "newer"  # of a seek that was not followed here yet: it must not be lost, and cannot be recorded now
    NO_LEDGER = "no ledger"


class Ledgers(Mapping[int, Ledger]):
    """Ledgers by subscription, to be read as a mapping; `snapshots` by snapshot; `passed_over` counts messages."""

    def __init__(self) -> None:
        self._held: dict[int, Ledger] = {}
        self.snapshots: dict[int, SnapshotState] = {}
        self.passed_over = 0
        self.on_passed: Callable[[Ledger, int, int, int], None] | None = None  # called before a range is passed over

    def __getitem__(self, subscription: int) -> Ledger:
        return self._held[subscription]

    def __iter__(self) -> Iterator[int]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, subscription: object) -> bool:
        return subscription in self._held

    def get(self, subscription: int, default: object = None) -> Ledger | None:  # type: ignore[override]
        """The ledger of a subscription; on the path of every fetch and acknowledgement."""
        return self._held.get(subscription)

    # -- from the log ------------------------------------------------------------------------------------------------

    def take(self, state: Ledger) -> Ledger:
        """A state of a ledger: its beginning, a seek, or what a checkpoint found. Returns the ledger."""
        held = self._held.get(state.subscription)
        if held is None:
            held = self._held[state.subscription] = Ledger(state.subscription, state.generation)
        held.merge(state)
        return held

    def acknowledge(self, subscription: int, generation: int, source: int, runs: bytes) -> AckVerdict:
        """Acknowledged offsets, in the kernel's encoding of runs."""
        held = self._held.get(subscription)
        if held is None:
            return AckVerdict.NO_LEDGER
        if generation != held.generation:
            return AckVerdict.OLD if generation < held.generation else AckVerdict.NEWER
        if held.lanes:
            runs = _of_lanes(runs, held.lanes)
            if not runs:
                return AckVerdict.NO_LANE
        held.of(source).add_runs(runs)
        return AckVerdict.COUNTS

    def keep(self, state: SnapshotState) -> None:
        """What a snapshot holds."""
        self.snapshots[state.snapshot] = state

    # -- what follows from the catalog, and from what is stored ------------------------------------------------------

    def drop(self, subscription: int) -> None:
        """The subscription is gone, or nothing of its topic is left."""
        self._held.pop(subscription, None)

    def drop_snapshot(self, snapshot: int) -> None:
        """The snapshot is gone."""
        self.snapshots.pop(snapshot, None)

    def pass_over(self, ledger: Ledger, source: int, begin: int, end: int) -> None:
        """Messages that are not stored any more, or have run out: nobody can have them. Said by the place where they
        are missed, and again after a restart, so nothing is written.
        """
        if self.on_passed is not None:
            self.on_passed(ledger, source, begin, end)
        self.passed_over += ledger.of(source).add(begin, end)

    def forget_source(self, source: int, subscriptions: Iterable[int]) -> None:
        """Nothing is stored of it any more; `subscriptions` are those of its topic."""
        for subscription in subscriptions:
            ledger = self._held.get(subscription)
            if ledger is not None:
                ledger.forget(source)
        for state in self.snapshots.values():
            state.acks.pop(source, None)

    def only_sources(self, known: Collection[int]) -> None:
        """Forget all sources but these."""
        for ledger in self._held.values():
            for source in [one for one in ledger.sources() if one not in known]:
                ledger.forget(source)
        for state in self.snapshots.values():
            for source in [one for one in state.acks if one not in known]:
                del state.acks[source]


def _of_lanes(runs: bytes, lanes: Collection[int]) -> bytes:
    """Those of some runs that lie in these lanes."""
    kept = []
    for begin, length in decode_runs(runs):
        end = begin + length
        while begin < end:  # one run is in one lane, unless somebody else than a subscribe forwarder made it
            lane = lane_of(begin)
            behind = min(end, (lane + 1) * LANE_SIZE)
            if lane in lanes:
                kept.append((begin, behind - begin))
            begin = behind
    return encode_runs(kept)
