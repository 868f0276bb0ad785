"""Which topics have a name: bounded, and nothing that was counted is lost or counted twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.watch.metrics.ranked import OTHER, PROJECTS, Ranked, Shown


class Counted:
    """Counters of one topic."""

    def __init__(self) -> None:
        self.numbers = [0, 0]

    def values(self) -> tuple[int, ...]:
        return tuple(self.numbers)


def named(number: int) -> str:
    return f"projects/p{number % 3}/topics/t{number}"


@given(st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 100)), max_size=40), max_size=12))
def test_all_series_together_grow_by_what_was_counted_and_none_falls(looks: list[list[tuple[int, int]]]) -> None:
    ranked = Ranked(2, 1, 3, named)
    counted = {number: Counted() for number in range(31)}
    before: dict[Shown, tuple[int, ...]] = {}
    for look in looks:
        for number, more in look:
            counted[number].numbers[0] += 1
            counted[number].numbers[1] += more
        ranked.look(counted, {})
        series = list(ranked.series())
        now = dict(series)
        assert len(now) == len(series)
        for project in ("p0", "p1", "p2"):
            assert sum(one.project == project and one.name != OTHER for one in now) <= 3
        grown = [sum(one[at] for one in now.values()) for at in (0, 1)]
        ended = [sum(one[at] for shown, one in before.items() if shown not in now) for at in (0, 1)]
        was = [sum(one[at] for one in before.values()) for at in (0, 1)]
        again = sum(now[shown][0] < values[0] for shown, values in before.items() if shown in now)
        assert again == 0
        assert [g - w + e for g, w, e in zip(grown, was, ended, strict=True)] == [
            len(look),
            sum(more for _, more in look),
        ]
        before = now


def test_projects_are_bounded_too() -> None:
    ranked = Ranked(2, 0, 1, lambda number: f"projects/p{number}/topics/t")
    counted = {number: Counted() for number in range(100)}
    for one in counted.values():
        one.numbers[0] = 1
    ranked.look(counted, {})
    series = dict(ranked.series())
    assert len(series) <= 2 * PROJECTS + 1
    assert sum(one[0] for one in series.values()) == 100
    assert Shown(OTHER, OTHER) in series


def test_what_is_deleted_loses_its_series_and_its_name_begins_anew() -> None:
    there = {1: "projects/p/topics/t"}
    ranked, one = Ranked(2, 0, 1, there.get), Counted()
    one.numbers[0] = 5
    ranked.look({1: one}, {})
    assert ranked.is_named(1)
    del there[1]
    ranked.look({}, {})
    assert list(ranked.series()) == []
    there[2], fresh = "projects/p/topics/t", Counted()
    fresh.numbers[0] = 1
    ranked.look({2: fresh}, {})
    assert dict(ranked.series()) == {Shown("p", "t"): (1, 0)}
