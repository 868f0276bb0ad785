"""The service AckExchange: what a subscription that lives at two sites has acknowledged here, and there.

Place: beside `reading` and `writing`, over the same log; the ledgers say what was acknowledged, `copied_intervals`
which message here is which one there, `ack_books` what neither of them can say. A link (`programs.federation.acks`)
carries it. Nothing stands on the way of an acknowledgement: changes are found by counting, because within a generation
of seeks the sets only grow.
Promises: what is reported is persisted, and so is what is merged, before the answer. Acknowledgements count in the
generation that they name, or not at all (protocol rule 28). Those that come before their message wait, and the copy is
born acknowledged (29). What is acknowledged is reported for as long as another site may need it, although the message
and its map are gone (34). What counts as acknowledged here alone is not reported: messages from before the
subscription, and those that nobody could have any more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from google.protobuf.message import Message

from syncpoint.base.kernel.acks import OFFSET_END, AckSet, encode_runs
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, NotFound, ResetBySeek, Unavailable
from syncpoint.broker.pipeline import offset_runs
from syncpoint.broker.pipeline.ack_books import NUMBER, AckBooks, Book, fresh_runs, held_runs
from syncpoint.broker.pipeline.ack_snapshots import SnapshotSets, list_snapshots
from syncpoint.broker.pipeline.copied_intervals import OffsetBlock, copied_from, copied_to
from syncpoint.broker.pipeline.epochs import EpochState
from syncpoint.broker.pipeline.links import LinkState
from syncpoint.broker.pipeline.reading_positions import subscription_named
from syncpoint.broker.pipeline.writing import persisted
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.ledger import Ledger
from syncpoint.broker.publish.facts.recovery import of_this_format
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.catalog.metadata.home_sites import fill_home, home_of
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.catalog.metadata.seek_stamps import stamped
from syncpoint.log.storage.record import EntryKind
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods

ANSWER_RUNS_MAX = 50_000  # of one answer: at most 1 MiB, and some ten milliseconds
MERGED_BYTES_MAX = 1 << 20
SOURCES_MAX = 10_000  # of one request
AHEAD_MAX = 1 << 24  # offsets beyond what a link has copied, of which acknowledgements are kept
_UNKNOWN = -1


@dataclass(slots=True)
class _Translated:
    """What is acknowledged here of a link's source, in its offsets; grows as the ledger does."""

    generation: int
    sets: dict[int, AckSet] = field(default_factory=dict)
    seen: dict[int, tuple[int, int]] = field(default_factory=dict)  # by source here: acknowledged, and blocks' end
    done: dict[int, int] = field(default_factory=dict)  # by source here: all before it is translated

    def add(self, source: int, begin: int, length: int) -> None:
        held = self.sets.get(source)
        if held is None:
            held = self.sets[source] = AckSet()
        held.add(begin, begin + length)


class AckExchange:
    """The service of one log, and an `Extension` of its publish forwarder. `state`: of the links that end here."""

    number = NUMBER

    def __init__(self, publish: PublishForwarder, state: EpochState) -> None:
        self.publish, self.catalog, self.state = publish, publish.catalog, state
        with of_this_format(lambda: "a fact of exchanged acknowledgements in the log"):
            self.books = AckBooks(publish.memory.extensions.pop(NUMBER, []))
        self.snapshots = SnapshotSets(publish, state.copies)
        self._translated: dict[tuple[int, str], _Translated] = {}
        publish.extensions.append(self)
        publish.on_leaving.append(self._source_leaves)
        publish.ledgers.on_passed = self._passed_over
        state.on_copied = self._copied
        state.copies.on_leaving = self._block_leaves

    def methods(self) -> Methods:
        """The method table of this service."""
        return served(self.unary())

    def unary(self) -> dict[Method, Callable[[Any], Awaitable[Message]]]:
        """What answers the unary methods."""
        return {
            methods.ACK_EXCHANGE.AckChanges: self.ack_changes,
            methods.ACK_EXCHANGE.MergeAcks: self.merge_acks,
        }

    def recover(self) -> None:
        """Acknowledge the copies whose acknowledgements came before them, and were not in the log yet."""
        for block in self.state.copies.blocks():
            self._copied(block)

    def tidy(self) -> None:
        """Now and then: forget what nobody asks for."""
        there = {one.incarnation for one in self.catalog.subscriptions()}
        self.books.tidy(self.publish.clock.sure_ns(), there)
        for key in [one for one in self._translated if one[0] not in self.books.subscriptions()]:
            del self._translated[key]

    # -- what has changed --------------------------------------------------------------------------------------------

    async def ack_changes(self, asked: pipeline.AckChangesRequest) -> pipeline.AckChangesResponse:
        """AckChanges."""
        record = subscription_named(self.catalog, asked.subscription)
        link = self._check(asked, record)
        generation = self._generation(record)
        book = self._open(record, asked.link, generation)
        found: Iterator[_Reported] = iter(())
        if not asked.homes_only and not asked.snapshot:
            found = self._sets_of_link(record, book) if asked.link else self._own_sets(record, book)
        answer = pipeline.AckChangesResponse(
            generation=generation, source_topic=link.source_topic if link else self._topic(record)
        )
        last = stamped(self.catalog, record.incarnation)
        answer.stamp.number, answer.stamp.site = last.stamp
        answer.stamped_generation = last.generation
        fill_home(answer, home_of(self.catalog, record.incarnation))
        if record.target is not None and record.target.time_ns is not None:
            answer.seek_time.FromNanoseconds(_in_range(record.target.time_ns))
        _report(answer, found, asked)
        if asked.snapshot:
            answer.held.extend(self.snapshots.held(record, asked.snapshot, link))
        elif not asked.homes_only:
            list_snapshots(self.publish, record, asked.snapshots_seen, answer)
        await persisted(self.publish)
        if self._generation(record) != generation:
            raise _being_reset(record)
        return answer

    def _own_sets(self, record: Subscription, book: Book) -> Iterator[_Reported]:
        ledger = self.publish.ledgers.get(record.incarnation)
        there = self.publish.sources.of_topic(record.topic_incarnation)
        for source in there if ledger is not None else ():
            assert ledger is not None
            yield self._reported(ledger, source.number)
        known = {one.number for one in there}
        for number, held in book.sets.items():
            if number not in known:
                yield _Reported(number, len(held), held.first_gap(0), held)

    def _reported(self, ledger: Ledger, source: int) -> _Reported:
        acks = ledger.known(source)
        if acks is None:
            return _Reported(source, 0, 0, AckSet())
        start = ledger.start.get(source, 0)
        passed = self.books.passed(ledger.subscription, ledger.generation, source)
        count = len(acks) - acks.count(0, start)
        if passed is not None:
            count -= passed.count(start, OFFSET_END)
        return _Reported(source, count, acks.first_gap(0), acks, start, passed)

    def _sets_of_link(self, record: Subscription, book: Book) -> Iterator[_Reported]:
        ledger = self.publish.ledgers.get(record.incarnation)
        known = self._translation(book)
        for source in self.publish.sources.of_topic(record.topic_incarnation) if ledger is not None else ():
            assert ledger is not None
            blocks = self.state.copies.of_source(source.number, book.link)
            if not blocks:
                continue
            one = self._reported(ledger, source.number)
            if known.seen.get(source.number) == (one.count, blocks[-1].end):
                continue
            for place in copied_from(one.runs(known.done.get(source.number, 0)), blocks):
                known.add(*place)
            known.done[source.number] = one.prefix
            known.seen[source.number] = one.count, blocks[-1].end
        for number, held in known.sets.items():
            yield _Reported(number, len(held), held.first_gap(0), held)

    def _translation(self, book: Book) -> _Translated:
        key = book.subscription, book.link
        known = self._translated.get(key)
        if known is None or known.generation != book.generation:
            sets = {source: held.copy() for source, held in book.sets.items()}
            known = self._translated[key] = _Translated(book.generation, sets)
        return known

    # -- what is merged ----------------------------------------------------------------------------------------------

    async def merge_acks(self, asked: pipeline.MergeAcksRequest) -> pipeline.MergeAcksResponse:
        """MergeAcks."""
        record = subscription_named(self.catalog, asked.subscription)
        link = self._check(asked, record)
        parts = [*(one.runs for one in asked.sources), *(one.runs for one in asked.held)]
        if sum(map(len, parts)) > MERGED_BYTES_MAX or len(parts) > SOURCES_MAX:
            raise InvalidArgument(
                "sources", f"may hold up to {MERGED_BYTES_MAX} bytes of runs, of {SOURCES_MAX} sources"
            )
        self.publish.commit.check_writable()
        if asked.snapshot:
            return await self._fill_snapshot(asked, record, link)
        generation = self._generation(record)
        _check_generation(record, asked.generation, generation)
        book = self._open(record, asked.link, generation)
        wanted = self._wanted(asked, record, book, link)
        answer = pipeline.MergeAcksResponse()
        for source, runs, refused in wanted:
            answer.newly += sum(length for _, length in runs)
            answer.refused += refused
            if asked.link:
                self._merge_copied(record, book, source, runs)
            else:
                self._acknowledge(record, source, runs)
        await persisted(self.publish)
        return answer

    async def _fill_snapshot(
        self, asked: pipeline.MergeAcksRequest, record: Subscription, link: LinkState | None
    ) -> pipeline.MergeAcksResponse:
        book = self._open(record, asked.link, self._generation(record))
        known = self._sets_of_link(record, book) if asked.link else self._own_sets(record, book)
        acknowledged = {one.source: one.acks for one in known}
        answer = self.snapshots.fill(record, asked, link, acknowledged)
        await persisted(self.publish)
        return answer

    def _wanted(
        self, asked: pipeline.MergeAcksRequest, record: Subscription, book: Book, link: LinkState | None
    ) -> list[tuple[int, list[tuple[int, int]], int]]:
        """What is new in a request, by source, and how much of it is too far ahead. Raises before anything is done."""
        wanted = []
        ledger = self.publish.ledgers.get(record.incarnation)
        for index, one in enumerate(asked.sources):
            if link is not None:
                interval = link.intervals.get(one.source)
                held, end = book.sets.get(one.source), (0 if interval is None else interval.end) + AHEAD_MAX
            else:
                source = self.publish.sources.by_number.get(one.source)
                if source is None or ledger is None:
                    continue  # of another chain, or nothing of it is left
                if source.topic != record.topic_incarnation:
                    raise InvalidArgument(f"sources[{index}].source", f"is not of the topic of {record.name}")
                held, end = ledger.known(one.source), source.visible
            try:
                wanted.append((one.source, *fresh_runs(one.runs, held, min(end, OFFSET_END))))
            except Malformed as error:
                raise InvalidArgument(f"sources[{index}].runs", str(error)) from None
        return wanted

    def _merge_copied(self, record: Subscription, book: Book, source: int, runs: list[tuple[int, int]]) -> None:
        if not runs:
            return
        self._write(self.books.take(book, source, encode_runs(runs)))
        known = self._translation(book)
        for begin, length in runs:
            known.add(source, begin, length)
        for block in self.state.copies.of_link(book.link, source, runs[0][0], sum(runs[-1])):
            if self._is_of(block, record):
                self._acknowledge(record, block.source, list(copied_to(runs, block)))

    def _acknowledge(self, record: Subscription, source: int, runs: Sequence[tuple[int, int]]) -> None:
        ledger = self.publish.ledgers.get(record.incarnation)
        if ledger is None or not runs:
            return
        known = ledger.known(source)
        fresh = [one for one in runs if known is None or not known.covers(one[0], sum(one))]
        if fresh:
            self.publish.server.acknowledge(
                record.incarnation, ledger.generation, source, encode_runs(fresh), _nobody_waits, urgent=True
            )

    # -- what becomes of messages ------------------------------------------------------------------------------------

    def _copied(self, block: OffsetBlock) -> None:
        """Messages of a link have their places: those that were acknowledged before they came are born acknowledged."""
        for book, record, ledger in self._books_about(block):
            held = book.sets.get(block.link_source)
            if held is not None:
                self._acknowledge(record, block.source, list(_known_of(block, held)))
            known = self._translated.get((book.subscription, book.link))
            if known is not None:
                for place in copied_from(self._reported(ledger, block.source).within(block), [block]):
                    known.add(*place)

    def _block_leaves(self, block: OffsetBlock) -> None:
        """Messages of a link are gone, and their map goes: what was acknowledged of them is remembered in its book."""
        for book, _, ledger in self._books_about(block):
            self._remember(book, copied_from(self._reported(ledger, block.source).within(block), [block]))

    def _source_leaves(self, source: Source) -> None:
        """Nothing of a source is stored any more: what was acknowledged of it is remembered in books."""
        for subscription in self.books.subscriptions():
            record, ledger = (
                self.catalog.subscription_by_incarnation(subscription),
                self.publish.ledgers.get(subscription),
            )
            if record is None or ledger is None or record.topic_incarnation != source.topic:
                continue
            runs = list(self._reported(ledger, source.number).runs(0))
            for book in self.books.of_subscription(subscription):
                if book.generation != ledger.generation:
                    continue
                if book.link:
                    self._remember(book, copied_from(runs, self.state.copies.of_source(source.number, book.link)))
                else:
                    self._remember(book, ((source.number, begin, length) for begin, length in runs))

    def _remember(self, book: Book, places: Iterable[tuple[int, int, int]]) -> None:
        by_source: dict[int, AckSet] = {}
        known = self._translated.get((book.subscription, book.link))
        for source, begin, length in places:
            if known is not None:
                known.add(source, begin, length)
            by_source.setdefault(source, AckSet()).add(begin, begin + length)
        for source, acks in by_source.items():
            self._write(self.books.take(book, source, encode_runs(acks.runs())))

    def _passed_over(self, ledger: Ledger, source: int, begin: int, end: int) -> None:
        """Messages that nobody can have any more are about to count as acknowledged."""
        if not self.books.is_kept(ledger.subscription) or self.publish.commit.failed is not None:
            return
        fresh, _ = fresh_runs(
            encode_runs([(begin, end - begin)]) if begin < end else b"", ledger.known(source), OFFSET_END
        )
        self._write(self.books.pass_over(ledger.subscription, ledger.generation, source, encode_runs(fresh)))

    def _books_about(self, block: OffsetBlock) -> Iterator[tuple[Book, Subscription, Ledger]]:
        """The books that a block is about."""
        for book in self.books.of_link(block.link):
            record = self.catalog.subscription_by_incarnation(book.subscription)
            ledger = self.publish.ledgers.get(book.subscription)
            if record is None or ledger is None or ledger.generation != book.generation:
                continue
            if self._is_of(block, record):
                yield book, record, ledger

    def _is_of(self, block: OffsetBlock, record: Subscription) -> bool:
        source = self.publish.sources.by_number.get(block.source)
        return source is not None and source.topic == record.topic_incarnation

    # -- the Extension of the forwarder ------------------------------------------------------------------------------

    def facts(self) -> Iterator[bytes]:
        yield from self.books.facts()

    def forgotten(self, source: Source) -> None:
        self.books.forget_passed(source.number)

    def _write(self, facts: Iterable[bytes]) -> None:
        for fact in facts:
            self.publish.commit.append_fact(EntryKind.LEDGER, records.encode_extension(NUMBER, fact))

    # -- requests ----------------------------------------------------------------------------------------------------

    def _open(self, record: Subscription, link: str, generation: int) -> Book:
        book, facts = self.books.open(record.incarnation, link, generation, self.publish.clock.sure_ns())
        self._write(facts)
        return book

    def _check(self, asked: Any, record: Subscription) -> LinkState | None:
        """The link of a request; None: it names none. Raises `NotFound`, `FailedPrecondition`."""
        if not asked.link:
            here = self._topic(record)
            if asked.source_topic not in ("", here):
                raise FailedPrecondition(
                    f"source_topic: {record.topic_name} is {here} here, not {asked.source_topic}: the server's disks or"
                    " the topic were replaced."
                )
            return None
        link = self.state.links.get(asked.link)
        if link is None:
            raise NotFound(asked.link, f"{asked.link} has copied nothing yet: Link not found (resource={asked.link}).")
        if asked.source_topic not in ("", link.source_topic):
            raise FailedPrecondition(
                f"source_topic: link {link.name} copies {link.source_topic}, not {asked.source_topic}"
            )
        return link

    def _topic(self, record: Subscription) -> str:
        return f"{self.publish.store.universe:x}/{record.topic_incarnation}"

    def _generation(self, record: Subscription) -> int:
        """The generation that a subscription is in. Raises `Unavailable` while a seek is on its way."""
        ledger = self.publish.ledgers.get(record.incarnation)
        known = self.catalog.subscription_by_incarnation(record.incarnation)
        if known is None:
            raise NotFound(record.name)
        if ledger is not None and known.generation != ledger.generation:
            raise _being_reset(record)
        return known.generation


@dataclass(slots=True)
class _Reported:
    """What is reported of a source: those of `acks` from `start` on that were not passed over."""

    source: int
    count: int
    prefix: int
    acks: AckSet
    start: int = 0
    passed: AckSet | None = None

    def runs(self, begin: int) -> Iterator[tuple[int, int]]:
        """Rising runs (begin, length) from an offset on."""
        part = self.acks
        if max(begin, self.start) or self.passed is not None:
            part = part.copy()
            part.remove(0, max(begin, self.start))
            for first, length in [] if self.passed is None else list(self.passed.runs()):
                part.remove(first, first + length)
        return iter(part.runs())

    def within(self, block: OffsetBlock) -> list[tuple[int, int]]:
        """Those in a block."""
        found = held_runs(self.acks, max(block.first, self.start), block.end)
        if self.passed is None or not self.passed.count(block.first, block.end):
            return found
        rest = AckSet()
        rest.add_runs(encode_runs(found))
        for first, length in list(self.passed.runs()):
            rest.remove(first, first + length)
        return list(rest.runs())


def _report(answer: pipeline.AckChangesResponse, found: Iterable[_Reported], asked: pipeline.AckChangesRequest) -> None:
    """Enter what differs from what is known, as far as it fits."""
    known = {one.source: one for one in asked.known} if asked.generation == answer.generation else {}
    left = ANSWER_RUNS_MAX
    for one in found:
        before = known.get(one.source)
        if one.count == (0 if before is None else before.count):
            continue
        if not left:
            answer.more = True
            return
        begin = 0 if before is None else before.prefix
        runs = list(islice(one.runs(begin), left + 1))
        whole = len(runs) <= left
        if not whole:
            runs.pop()
            answer.more = True
        # A report that goes on where another one ended has not looked again at what lies before.
        count = one.count if whole and begin <= one.prefix else _UNKNOWN
        prefix = one.prefix if whole else sum(runs[-1])
        answer.sources.add(source=one.source, count=count, prefix=prefix, runs=encode_runs(runs))
        left -= len(runs)


def _known_of(block: OffsetBlock, held: AckSet) -> Iterator[tuple[int, int]]:
    """Where the messages of a block lie that are in a set of its link's source."""
    low, high = offset_runs.bounds(block.runs)
    return copied_to(held_runs(held, low, high), block)


def _in_range(time_ns: int) -> int:
    """A time that a Timestamp can say."""
    return max(-62_135_596_800 * 10**9, min(time_ns, 253_402_300_799 * 10**9))


def _check_generation(record: Subscription, named: int, generation: int) -> None:
    if named != generation:
        raise ResetBySeek(
            f"{record.name} is in generation {generation} of its seeks, these acknowledgements are of generation"
            f" {named}. Call AckChanges to see where it is."
        )


def _being_reset(record: Subscription) -> Unavailable:
    return Unavailable(f"The subscription {record.name} is being reset by a seek. Try again.")


def _nobody_waits(error: Exception | None) -> None:
    """Who asked waits for the log."""
