"""The ledger: which offsets a subscription (or a snapshot) has acknowledged. Values; `ledgers` is where they change.

A ledger belongs to one subscription incarnation and one *seek generation*: range sets merge by union inside a
generation, a higher generation replaces lower ones (protocol rule 12).
"""

from dataclasses import dataclass, field

from syncpoint.kernel.acks import AckSet


@dataclass(slots=True)
class Ledger:
    """Acknowledged offsets by source. `start` is the sync point: offsets below it were published before the
    subscription existed. `renewed_ns`: the newest seek to a snapshot; for the subscription's retention no message is
    older than that, or what the snapshot kept would be gone as soon as it is reset by a seek.
    """

    subscription: int
    generation: int = 0
    acks: dict[int, AckSet] = field(default_factory=dict)
    start: dict[int, int] = field(default_factory=dict)
    renewed_ns: int = 0

    def of(self, source: int) -> AckSet:
        """The acknowledged set of one source, created when first needed."""
        found = self.acks.get(source)
        if found is None:
            found = self.acks[source] = AckSet()
        return found

    def covers(self, source: int, begin: int, end: int) -> bool:
        """Whether every offset in `[begin, end)` is acknowledged."""
        found = self.acks.get(source)
        return found is not None and found.covers(begin, end)

    def first_gap(self, source: int, begin: int) -> int:
        """The first offset at or after `begin` that is not acknowledged."""
        found = self.acks.get(source)
        return begin if found is None else found.first_gap(begin)

    def merge(self, state: "Ledger") -> None:
        """Take over what another state of the same ledger says. Any number of states, in any order, any of them twice,
        come to the same.
        """
        for source, offset in state.start.items():
            self.start.setdefault(source, offset)
        if state.generation == self.generation:
            self.renewed_ns = max(self.renewed_ns, state.renewed_ns)
            for source, acks in state.acks.items():
                self.of(source).union(acks)
        elif state.generation > self.generation:
            self.generation, self.renewed_ns = state.generation, state.renewed_ns
            self.acks = {source: acks.copy() for source, acks in state.acks.items()}

    def forget(self, source: int) -> None:
        """Nothing of the source is stored any more."""
        self.acks.pop(source, None)
        self.start.pop(source, None)


def begun(subscription: int, generation: int, places: dict[int, int]) -> Ledger:
    """A ledger at its sync point: everything before these offsets was published before the subscription existed."""
    ledger = Ledger(subscription, generation, start=dict(places))
    for source, offset in places.items():
        if offset:
            ledger.of(source).add(0, offset)
    return ledger


@dataclass(slots=True)
class SnapshotState:
    """What a snapshot remembers: the acknowledged sets at its creation. What was published later counts as not
    acknowledged.
    """

    snapshot: int
    acks: dict[int, AckSet]
