"""Where a stream stands in the sources of a topic, and how far its next batch goes.

Place: on the driver, between the server's list of sources and Spark's log of offsets; no clock, no calls.
Promise: the offsets of a batch alone say what it reads (`begins` to `sources`), also after a restart. A source is read
only when those before it in the order of keys are read to their sealed end, in this batch or before; it leaves the
offsets when a successor is named in them, so they stay bounded however many sources a topic has had. What was there and
is gone is reported, never passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from pyspark_pubsub.errors import DataLossError

VERSION = 1
MEAN_BYTES = 1024
"""Assumed of a message when the server does not say."""
PARTITION_BYTES = 128 << 20
"""Ranges are split into pieces of about this size unless an option sets another."""


@dataclass(frozen=True)
class SourceOffsets:
    """One source as the server lists it; offsets `begin` to `end` are stored, `start` is where a reader begins."""

    number: int
    epoch: int
    chain: int
    begin: int
    end: int
    sealed: bool = False
    start: int = 0
    mean_bytes: int = 0


@dataclass(frozen=True)
class Listing:
    """The sources of a topic, in the order of keys. `ended`: where sources ended that are gone, as far as is known."""

    topic: str
    incarnation: int
    universe: str
    sources: tuple[SourceOffsets, ...]
    generation: int = 0  # of a subscription: how often it was reset by a seek
    ended: Mapping[int, int] = field(default_factory=dict)

    @property
    def chains(self) -> dict[int, int]:
        """The chain of each source."""
        return {source.number: source.chain for source in self.sources}


@dataclass(frozen=True)
class SourceRange:
    """Offsets [begin, end) of one source; `end` None: all that followed."""

    source: int
    begin: int
    end: int | None


@dataclass(frozen=True)
class Offsets:
    """Positions by source, in the order of keys. `begins`: where the batch that ends here began; `places`: epoch and
    chain of each; `starts`: where sources that are not read yet will begin, if not at their beginning; `reader`: the
    identity of a subscription's exclusive reader; `generation`: how often the subscription had been reset by a seek
    then; `done`: those of `sources` that were sealed then and are read to their end, so that they may be gone.
    """

    topic: str
    incarnation: int
    universe: str
    sources: Mapping[int, int]
    begins: Mapping[int, int] = field(default_factory=dict)
    places: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    starts: Mapping[int, int] = field(default_factory=dict)
    reader: str = ""
    generation: int = 0
    done: frozenset[int] = frozenset()

    @property
    def chains(self) -> dict[int, int]:
        """The chain of each source."""
        return {number: chain for number, (_, chain) in self.places.items()}

    def to_json(self) -> dict[str, Any]:
        """As Spark stores it in `offsets/N` of the checkpoint."""
        found: dict[str, Any] = {
            "v": VERSION,
            "topic": self.topic,
            "incarnation": self.incarnation,
            "universe": self.universe,
            "sources": {str(number): end for number, end in self.sources.items()},
            "from": {str(number): begin for number, begin in self.begins.items()},
            "places": {str(number): list(place) for number, place in self.places.items()},
        }
        if self.starts:
            found["starts"] = {str(number): start for number, start in self.starts.items()}
        if self.done:
            found["done"] = sorted(self.done)
        if self.reader:
            found["reader"] = self.reader
            found["generation"] = self.generation
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Offsets:
        """Raises ValueError for anything that `to_json` does not give."""
        try:
            if value["v"] != VERSION:
                raise ValueError(f"offsets of version {value['v']!r}; this release reads version {VERSION}")
            return cls(
                str(value["topic"]),
                int(value["incarnation"]),
                str(value["universe"]),
                _numbers(value["sources"]),
                _numbers(value["from"]),
                {int(number): (int(epoch), int(chain)) for number, (epoch, chain) in value["places"].items()},
                _numbers(value.get("starts", {})),
                str(value.get("reader", "")),
                int(value.get("generation", 0)),
                frozenset(int(number) for number in value.get("done", ())),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"these are not offsets of the pubsub source: {error!r}") from None

    def ranges(self) -> list[SourceRange]:
        """What the batch that ends here reads, in the order of keys."""
        return [
            SourceRange(number, begin, self.sources[number])
            for number, begin in self.begins.items()
            if begin < self.sources[number]
        ]


def _numbers(value: Mapping[str, Any]) -> dict[int, int]:
    return {int(number): int(offset) for number, offset in value.items()}


def initial(listing: Listing, reader: str = "") -> Offsets:
    """Where a stream begins: at the `start` of each source that may be read; the others' starts are kept for later."""
    sources: dict[int, int] = {}
    starts: dict[int, int] = {}
    places: dict[int, tuple[int, int]] = {}
    blocked = _Blocked()
    for source in listing.sources:
        if blocked.holds(source):
            if source.start != source.begin:
                starts[source.number] = source.start
            continue
        sources[source.number] = source.start
        places[source.number] = (source.epoch, source.chain)
        if source.start < source.end or not source.sealed:
            blocked.by(source)
    kept = _without_passed(sources, places)
    return Offsets(
        listing.topic,
        listing.incarnation,
        listing.universe,
        kept,
        dict(kept),
        {number: places[number] for number in kept},
        starts,
        reader,
        listing.generation,
    )


def check_same(before: Offsets, listing: Listing) -> None:
    """Raises DataLossError unless topic and server are those the offsets are of."""
    if before.universe != listing.universe:
        raise DataLossError(
            f"The checkpoint was made with another server: its offsets of {before.topic} mean nothing on this one."
            " Point `endpoint` at the former server, or begin with a new checkpoint."
        )
    if before.incarnation != listing.incarnation or before.topic != listing.topic:
        raise DataLossError(
            f"{before.topic} was deleted and created again (it is now incarnation {listing.incarnation}, and the"
            f" checkpoint knows {before.incarnation}), or the checkpoint is of another topic than {listing.topic}."
            " Begin with a new checkpoint."
        )


def lost_before(before: Offsets, listing: Listing, *, kept: bool = False) -> list[SourceRange]:
    """What a stream that stands at `before` cannot read any more. `kept`: the server keeps and reports it for a cursor,
    so a source that is not listed was read to its end. Raises DataLossError when the server has less than was read.
    """
    found = {source.number: source for source in listing.sources}
    lost = []
    for number, position in _without_passed(before.sources, before.places).items():
        source = found.get(number)
        if source is None:
            end = listing.ended.get(number)
            if not kept and number not in before.done and (end is None or position < end):
                lost.append(SourceRange(number, position, end))
        elif position > source.end:
            raise DataLossError(
                f"Source {number} of {before.topic} was read up to offset {position} and ends at {source.end} now: the"
                " server was set back to an older state. Restore its data, or begin with a new checkpoint."
            )
        elif position < source.begin:
            lost.append(SourceRange(number, position, source.begin))
    return lost


def plan(before: Offsets, listing: Listing, rows: int = 0, size: int = 0) -> Offsets:
    """The end of the next batch: at most `rows` rows and about `size` bytes (0: no limit), shared fairly among the
    sources that may be read. With nothing to read, `before` itself.
    """
    listed = {source.number for source in listing.sources}
    named = {
        number: end
        for number, end in _without_passed(before.sources, before.places).items()
        if number in listed or not (number in before.done or end >= listing.ended.get(number, end + 1))
    }
    places = {number: before.places[number] for number in named}
    begins = dict(named)
    for source in listing.sources:
        if source.number in named and source.begin > named[source.number]:
            named[source.number] = begins[source.number] = source.begin
    done = dict(named)
    rows_left, size_left = rows or 1 << 62, size or 1 << 62
    while rows_left > 0 and size_left > 0:
        ready = []
        blocked = _Blocked()
        for source in listing.sources:
            if source.number not in done:
                if blocked.holds(source) or _passed(source.number, (source.epoch, source.chain), places):
                    continue
                start = max(before.starts.get(source.number, source.begin), source.begin)
                done[source.number] = begins[source.number] = start
                places[source.number] = (source.epoch, source.chain)
            if done[source.number] < source.end:
                ready.append(source)
            if done[source.number] < source.end or not source.sealed:
                blocked.by(source)
        if not ready:
            break
        for source, count in zip(ready, _shares(ready, done, rows_left, size_left), strict=True):
            done[source.number] += count
            rows_left -= count
            size_left -= count * (source.mean_bytes or MEAN_BYTES)
    if all(done[number] == begins[number] for number in done):
        return before
    order = sorted(done, key=lambda number: (*places[number], number))
    return replace(
        before,
        sources={number: done[number] for number in order},
        begins={number: begins[number] for number in order},
        places={number: places[number] for number in order},
        starts={number: start for number, start in before.starts.items() if number not in done},
        done=frozenset(
            source.number for source in listing.sources if source.sealed and done.get(source.number, -1) >= source.end
        ),
    )


def available(before: Offsets, listing: Listing) -> int:
    """Rows that `plan` without limits would read."""
    after = plan(before, listing)
    return 0 if after is before else sum(after.sources[number] - begin for number, begin in after.begins.items())


def split(
    ranges: Iterable[SourceRange], means: Mapping[int, int], most: int = 0, partitions: int = 0
) -> list[SourceRange]:
    """Ranges cut into contiguous pieces, in order: of at most `most` rows, and into at least about `partitions`.

    With neither, into pieces of about `PARTITION_BYTES`; `means`: mean bytes by source.
    """
    whole = [(found, found.end - found.begin) for found in ranges if found.end is not None]
    total = sum(rows for _, rows in whole)
    pieces = []
    for found, rows in whole:
        count = -(-rows // most) if most else 1
        if partitions:
            count = max(count, -(-rows * partitions // total))
        if not most and not partitions:
            count = -(-rows * (means.get(found.source) or MEAN_BYTES) // PARTITION_BYTES)
        count = min(count, rows)
        cuts = [found.begin + rows * i // count for i in range(count + 1)]
        pieces += [SourceRange(found.source, begin, end) for begin, end in pairwise(cuts)]
    return pieces


def fair(wants: Sequence[int], budget: int, turn: int = 0) -> list[int]:
    """Shares of a budget: none is above its want, small wants are met in full, the others get the same. When there is
    less than one for each, they take turns by `turn`.
    """
    given = [0] * len(wants)
    waiting = [i for i, want in enumerate(wants) if want > 0]
    while budget > 0 and waiting:
        each = budget // len(waiting)
        if each == 0:
            for i in range(budget):
                given[waiting[(turn + i) % len(waiting)]] += 1
            break
        for i in waiting:
            more = min(each, wants[i] - given[i])
            given[i] += more
            budget -= more
        waiting = [i for i in waiting if given[i] < wants[i]]
    return given


def _shares(ready: Sequence[SourceOffsets], done: Mapping[int, int], rows: int, size: int) -> list[int]:
    turn = sum(done.values())
    wants = [source.end - done[source.number] for source in ready]
    means = [source.mean_bytes or MEAN_BYTES for source in ready]
    by_rows = fair(wants, rows, turn)
    by_size = fair([want * mean for want, mean in zip(wants, means, strict=True)], size, turn)
    shares = [min(n, b // mean) for n, b, mean in zip(by_rows, by_size, means, strict=True)]
    if not any(shares):
        shares[turn % len(shares)] = 1  # a message larger than the limit is read alone
    return shares


class _Blocked:
    """What may not be read yet: after a source that is not read to its end, later ones of its chain and of epochs."""

    def __init__(self) -> None:
        self._chains: set[tuple[int, int]] = set()
        self._epoch: int | None = None

    def by(self, source: SourceOffsets) -> None:
        self._chains.add((source.epoch, source.chain))
        self._epoch = source.epoch if self._epoch is None else self._epoch

    def holds(self, source: SourceOffsets) -> bool:
        late = self._epoch is not None and source.epoch > self._epoch
        return late or (source.epoch, source.chain) in self._chains


def _passed(number: int, place: tuple[int, int], places: Mapping[int, tuple[int, int]]) -> bool:
    """Whether a later source of its chain is named: then this one was read to its end. Epochs say nothing here: a chain
    that knows of a new assignment late may begin a source of an older one after others were read.
    """
    return any(other[1] == place[1] and later > number for later, other in places.items())


def _without_passed(sources: Mapping[int, int], places: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    return {number: end for number, end in sources.items() if not _passed(number, places[number], places)}
