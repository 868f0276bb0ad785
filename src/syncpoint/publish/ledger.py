"""The ledger: which offsets each subscription (and each snapshot) has acknowledged.

Station 11 of a message's life: an acknowledgement arrives here from `subscribe/lease`, is written to the log beside
the messages, and lets `storage/recovery/trim` delete what nobody needs. A ledger belongs to one subscription
incarnation and one *seek generation*: range sets merge by union inside a generation, a higher generation replaces
lower ones (protocol rule 12), so replaying a record twice, or over a newer checkpoint, changes nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from syncpoint.kernel.acks import AckSet


@dataclass(slots=True)
class Ledger:
    """Acknowledged offsets by source. `start` is the sync point: offsets below it were never the subscription's."""

    subscription: int
    generation: int = 0
    acks: dict[int, AckSet] = field(default_factory=dict)
    start: dict[int, int] = field(default_factory=dict)

    def of(self, source: int) -> AckSet:
        """The acknowledged set of one source, created when first needed."""
        found = self.acks.get(source)
        if found is None:
            found = self.acks[source] = AckSet()
        return found

    def begin_at(self, start: Iterable[tuple[int, int]]) -> None:
        """Apply the sync point: everything before these ends was published before the subscription existed."""
        for source, offset in start:
            self.start[source] = offset
            if offset:
                self.of(source).add(0, offset)

    def covers(self, source: int, begin: int, end: int) -> bool:
        """Whether every offset in `[begin, end)` is acknowledged."""
        found = self.acks.get(source)
        return found is not None and found.covers(begin, end)

    def first_gap(self, source: int, begin: int) -> int:
        """The first offset at or after `begin` that is not acknowledged."""
        found = self.acks.get(source)
        return begin if found is None else found.first_gap(begin)

    def replace(self, generation: int, acks: dict[int, AckSet]) -> bool:
        """Take a higher generation's sets; False (and no change) if it is not higher."""
        if generation <= self.generation:
            return False
        self.generation, self.acks = generation, acks
        return True

    def forget(self, source: int) -> None:
        """Nothing of the source is stored any more."""
        self.acks.pop(source, None)
        self.start.pop(source, None)


@dataclass(slots=True)
class SnapshotState:
    """What a snapshot remembers: the acknowledged sets at its creation. What was published later counts as not
    acknowledged.
    """

    snapshot: int
    acks: dict[int, AckSet]
