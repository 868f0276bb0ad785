"""Books of acknowledged offsets: what they say follows from their facts, in whatever order and however often read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.kernel.acks import AckSet, encode_runs
from syncpoint.broker.pipeline.ack_books import (
    SOURCES_MAX,
    UNUSED_NS,
    AckBooks,
    fresh_runs,
    held_runs,
)

HOUR_NS = 3600 * 10**9
run_lists = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), max_size=8)


def filled(runs: list[tuple[int, int]]) -> AckSet:
    made = AckSet()
    for begin, length in runs:
        made.add(begin, begin + length)
    return made


def shown(books: AckBooks) -> dict[tuple[str, int], list[tuple[int, int]]]:
    return {
        (book.link, source): list(held.runs())
        for book in books.of_subscription(7)
        for source, held in book.sets.items()
    }


def test_facts_make_the_same_books_in_any_order_and_twice() -> None:
    books = AckBooks()
    book, facts = books.open(7, "l", 0, 5)
    facts += books.take(book, 3, encode_runs([(0, 4)]))
    facts += books.take(book, 3, encode_runs([(9, 1)]))
    facts += books.pass_over(7, 0, 4, encode_runs([(2, 2)]))
    for order in (facts, facts[::-1], [*facts, *facts]):
        again = AckBooks(order)
        assert shown(again) == {("l", 3): [(0, 4), (9, 1)]}
        assert list(again.passed(7, 0, 4).runs()) == [(2, 2)]  # type: ignore[union-attr]
    assert shown(AckBooks(books.facts())) == shown(books)
    assert books.take(book, 3, encode_runs([(1, 2)])) == []  # nothing is new


def test_a_higher_generation_voids_what_was_before() -> None:
    books = AckBooks()
    book, facts = books.open(7, "l", 1, 5)
    facts += books.take(book, 3, encode_runs([(0, 4)]))
    facts += books.pass_over(7, 1, 3, encode_runs([(5, 1)]))
    newer, more = books.open(7, "l", 2, 5)
    more += books.take(newer, 3, encode_runs([(8, 1)]))
    for order in ([*facts, *more], [*more, *facts]):
        again = AckBooks(order)
        assert again.book(7, "l", 1) is None
        assert shown(again) == {("l", 3): [(8, 1)]}
        assert again.passed(7, 2, 3) is None


def test_nothing_is_passed_over_for_who_exchanges_nothing() -> None:
    books = AckBooks()
    assert books.pass_over(7, 0, 3, encode_runs([(0, 1)])) == []
    assert not books.is_kept(7)


def test_a_book_is_used_once_an_hour_and_forgotten_after_a_month() -> None:
    books = AckBooks()
    _, facts = books.open(7, "", 0, HOUR_NS)
    assert facts
    assert books.open(7, "", 0, 2 * HOUR_NS - 1)[1] == []
    assert books.open(7, "", 0, 2 * HOUR_NS)[1]
    books.tidy(2 * HOUR_NS + UNUSED_NS - 1, {7})
    assert books.subscriptions() == {7}
    books.tidy(2 * HOUR_NS + UNUSED_NS, {7})
    assert (books.subscriptions(), books.is_kept(7), list(books.facts())) == (set(), False, [])
    books.open(8, "", 0, HOUR_NS)
    books.tidy(HOUR_NS, {7})
    assert books.subscriptions() == set()


def test_of_many_sources_the_newest_are_kept() -> None:
    books = AckBooks()
    book, _ = books.open(7, "", 0, 0)
    for source in range(1, SOURCES_MAX + 3):
        books.take(book, source, encode_runs([(0, 1)]))
    assert (len(book.sets), min(book.sets)) == (SOURCES_MAX, 3)


@given(run_lists, run_lists, st.integers(0, 340))
def test_runs_against_sets(some: list[tuple[int, int]], others: list[tuple[int, int]], end: int) -> None:
    one, other = filled(some), filled(others)
    numbers = {n for begin, length in one.runs() for n in range(begin, begin + length)}
    held = {n for begin, length in other.runs() for n in range(begin, begin + length)}

    def all_of(runs: list[tuple[int, int]]) -> set[int]:
        return {n for begin, length in runs for n in range(begin, begin + length)}

    assert all_of(held_runs(one, 50, end)) == {n for n in numbers if 50 <= n < end}
    fresh, behind = fresh_runs(encode_runs(some), other, end)
    assert all_of(fresh) == {n for n in numbers - held if n < end}
    assert behind == sum(n >= end for n in numbers)
