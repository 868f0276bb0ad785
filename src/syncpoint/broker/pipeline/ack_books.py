"""Acknowledged offsets that another site may need, beyond what the ledgers of this log say.

Place: under `ack_exchange`; a machine: it changes nothing but itself, and returns the facts to write.
A *book* is of one subscription and one link that ends here, and holds offsets of the link's source: what the source
reported (an acknowledgement may come before its message), and what was acknowledged here of messages that are gone,
with the map of their offsets. The book of the link "" holds what was acknowledged of whole sources of this log that are
gone. *Passed* are offsets that count as acknowledged here only because nobody could have them any more; that is not
reported to other sites, where they may be whole.
Promise: facts may be applied twice, in any order within a generation; a higher generation voids lower ones (protocol
rule 28). A book nobody asks for is forgotten after a month, and one holds 1,000 sources at the most, the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from syncpoint.base.kernel.acks import OFFSET_END, AckSet, encode_runs
from syncpoint.broker.publish.facts.records import ExtensionNumber
from syncpoint.wire.protobuf.messages import stored_epochs

NUMBER = ExtensionNumber.ACK_BOOKS
SOURCES_MAX = 1000
UNUSED_NS = 31 * 24 * 3600 * 10**9
USED_AGAIN_NS = 3600 * 10**9  # how often it is written that a book is used
FACT_RUNS = 50_000  # in one fact of a checkpoint


@dataclass(slots=True)
class Book:
    """One subscription and link, in one generation."""

    subscription: int
    link: str
    generation: int
    used_ns: int = 0
    sets: dict[int, AckSet] = field(default_factory=dict)

    def take(self, source: int, runs: bytes) -> int:
        """Acknowledged offsets of a source; returns how many are new."""
        held = self.sets.get(source)
        if held is None:
            held = self.sets[source] = AckSet()
            while len(self.sets) > SOURCES_MAX:
                del self.sets[min(self.sets)]
        return held.add_runs(runs)


class AckBooks:
    """All books of one log."""

    def __init__(self, found: Iterable[bytes] = ()) -> None:
        """`found`: the facts of this extension, as recovery found them."""
        self._books: dict[tuple[int, str], Book] = {}
        self._passed: dict[int, Book] = {}  # by subscription
        for fact in found:
            self._apply(stored_epochs.Acked.FromString(fact))

    def book(self, subscription: int, link: str, generation: int) -> Book | None:
        """The book of a subscription and a link, if there is one of this generation."""
        found = self._books.get((subscription, link))
        return found if found is not None and found.generation == generation else None

    def of_link(self, link: str) -> list[Book]:
        """Those of all subscriptions."""
        return [book for book in self._books.values() if book.link == link]

    def of_subscription(self, subscription: int) -> list[Book]:
        """Those of all links."""
        return [book for book in self._books.values() if book.subscription == subscription]

    def is_kept(self, subscription: int) -> bool:
        """Whether somebody exchanges acknowledgements of a subscription."""
        return subscription in self._passed

    def passed(self, subscription: int, generation: int, source: int) -> AckSet | None:
        """What was passed over of a source."""
        book = self._passed.get(subscription)
        return book.sets.get(source) if book is not None and book.generation == generation else None

    # -- changing ----------------------------------------------------------------------------------------------------

    def open(self, subscription: int, link: str, generation: int, now_ns: int) -> tuple[Book, list[bytes]]:
        """The book somebody asks for, begun where there is none, and the facts of that."""
        found, book = self._books.get((subscription, link)), self._begun(subscription, link, generation)
        self._passed.setdefault(subscription, Book(subscription, "", generation))
        if book is found and now_ns - book.used_ns < USED_AGAIN_NS:
            return book, []
        book.used_ns = max(book.used_ns, now_ns)
        return book, [_fact(book, used_ns=book.used_ns)]

    def take(self, book: Book, source: int, runs: bytes) -> list[bytes]:
        """Acknowledged offsets of a source that are to be remembered; the fact of it, where any are new."""
        return [_fact(book, source, runs)] if runs and book.take(source, runs) else []

    def pass_over(self, subscription: int, generation: int, source: int, runs: bytes) -> list[bytes]:
        """Offsets that count as acknowledged from now on because nobody can have them."""
        if subscription not in self._passed or not runs:
            return []
        book = self._passed_of(subscription, generation)
        return [_fact(book, source, runs, passed=True)] if book.take(source, runs) else []

    def forget_passed(self, source: int) -> None:
        """A source is gone; what was acknowledged of it stands in books."""
        for book in self._passed.values():
            book.sets.pop(source, None)

    def tidy(self, now_ns: int, exists: Iterable[int]) -> None:
        """Forget books that nobody has used for a month, and those of subscriptions that are gone. A checkpoint leaves
        them out; until then they come back with a restart, and are forgotten again.
        """
        there = set(exists)
        for key, book in list(self._books.items()):
            if book.subscription not in there or now_ns - book.used_ns >= UNUSED_NS:
                del self._books[key]
        kept = {book.subscription for book in self._books.values()}
        self._passed = {number: book for number, book in self._passed.items() if number in kept}

    def subscriptions(self) -> set[int]:
        """Those of which acknowledgements are exchanged."""
        return {book.subscription for book in self._books.values()}

    # -- the log -----------------------------------------------------------------------------------------------------

    def facts(self) -> Iterator[bytes]:
        """All of it, for a checkpoint."""
        for book in list(self._books.values()):
            yield _fact(book, used_ns=book.used_ns)
            yield from _facts_of(book, passed=False)
        for book in list(self._passed.values()):
            yield from _facts_of(book, passed=True)

    def _apply(self, fact: stored_epochs.Acked) -> None:
        about = fact.subscription, fact.link, fact.generation
        if fact.passed:
            book = self._passed_of(fact.subscription, fact.generation)
        else:
            book = self._begun(*about)
            self._passed.setdefault(fact.subscription, Book(fact.subscription, "", fact.generation))
        if book.generation != fact.generation:
            return
        book.used_ns = max(book.used_ns, fact.used_ns)
        if fact.source:
            book.take(fact.source, fact.runs)

    def _begun(self, subscription: int, link: str, generation: int) -> Book:
        """The book in this generation or a higher one."""
        known = self._books.get((subscription, link))
        if known is None or known.generation < generation:
            known = self._books[subscription, link] = Book(subscription, link, generation)
        return known

    def _passed_of(self, subscription: int, generation: int) -> Book:
        known = self._passed.get(subscription)
        if known is None or known.generation < generation:
            known = self._passed[subscription] = Book(subscription, "", generation)
        return known


def _fact(book: Book, source: int = 0, runs: bytes = b"", *, passed: bool = False, used_ns: int = 0) -> bytes:
    encoded: bytes = stored_epochs.Acked(
        subscription=book.subscription,
        link=book.link,
        generation=book.generation,
        source=source,
        runs=runs,
        passed=passed,
        used_ns=used_ns,
    ).SerializeToString()
    return encoded


def _facts_of(book: Book, *, passed: bool) -> Iterator[bytes]:
    for source in list(book.sets):
        held = book.sets.get(source)
        runs = [] if held is None else list(held.runs())
        for at in range(0, len(runs), FACT_RUNS):
            yield _fact(book, source, encode_runs(runs[at : at + FACT_RUNS]), passed=passed)


def held_runs(acks: AckSet, begin: int, end: int) -> list[tuple[int, int]]:
    """The runs (begin, length) of a set in [begin, end)."""
    if begin >= end or not acks.count(begin, end):
        return []
    if acks.covers(begin, end):
        return [(begin, end - begin)]
    part = acks.copy()
    part.remove(0, begin)
    found = []
    for first, length in part.runs():
        if first >= end:
            break
        found.append((first, min(length, end - first)))
    return found


def fresh_runs(runs: bytes, acks: AckSet | None, end: int) -> tuple[list[tuple[int, int]], int]:
    """Encoded runs as far as they lie below `end` and are not in a set, rising; and how many offsets lie above.
    Raises `Malformed`.
    """
    fresh = AckSet()
    fresh.add_runs(runs)
    above = fresh.remove(end, OFFSET_END)
    if acks is not None:
        for begin, length in list(fresh.runs()):
            for first, count in held_runs(acks, begin, begin + length):
                fresh.remove(first, first + count)
    return list(fresh.runs()), above
