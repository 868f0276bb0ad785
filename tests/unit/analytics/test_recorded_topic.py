"""What delivery records do not say: windows of time in which something may have happened that nobody knows."""

from __future__ import annotations

from typing import NamedTuple

from syncpoint.analytics.recorded_topic import ALWAYS_US, MARGIN_US, windows_of


class Row(NamedTuple):
    writer: str
    number: int
    first: int | None
    last: int | None
    lost: int = 0
    ended: bool = False


def found(*rows: Row, since: int = 100) -> list[tuple[str, int, int]]:
    return [(one.writer, one.begin_us, one.end_us) for one in windows_of(sorted(rows), since)]


def test_whole_numbers_leave_nothing_unknown() -> None:
    assert found(Row("node/1", 1, 100, 150), Row("node/1", 2, 160, 170)) == []
    assert found(Row("a/1", 7, 100, 150), Row("b/1", 1, 90, 95)) == [], "what is older is not kept, and not missing"


def test_a_number_that_is_missing_is_a_window_between_its_neighbours() -> None:
    assert found(Row("node/1", 1, 100, 150), Row("node/1", 4, 300, 310)) == [("node/1", 150, 300)]
    assert found(Row("node/1", 1, 100, 150), Row("node/1", 3, None, None, ended=True)) == [("node/1", 150, ALWAYS_US)]


def test_records_that_were_dropped_may_be_of_any_time() -> None:
    assert found(Row("node/1", 1, 100, 150), Row("node/1", 2, 160, 170, lost=3)) == [("node/1", 0, ALWAYS_US)]


def test_a_life_that_is_followed_by_another_and_did_not_end_is_unknown_until_that_one_began() -> None:
    lives = (Row("node/1", 1, 100, 150), Row("node/2", 1, 400, 450), Row("other/9", 1, 100, 900))
    assert found(*lives) == [("node/1", 150, 400 + MARGIN_US)]
    assert found(Row("node/1", 1, 100, 150, ended=True), Row("node/2", 1, 400, 450)) == []
