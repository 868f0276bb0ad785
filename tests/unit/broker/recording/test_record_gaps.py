"""What delivery records do not say: times in which something may have happened that nobody knows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.broker.recording.record_gaps import ALWAYS_US, CLOCKS_US, RecordGap, RecordsMessage, gaps_of, of_content


def message(
    writer: str, number: int, first: int | None, last: int | None, lost: int = 0, *, ended: bool = False
) -> RecordsMessage:
    return RecordsMessage(writer, number, lost, ended, first, last)


def found(*messages: RecordsMessage, since: int = 100, whole: bool = False) -> list[tuple[str, int, int]]:
    return [(one.writer, one.begin_us, one.end_us) for one in gaps_of(messages, since_us=since, whole=whole)]


def test_whole_numbers_leave_nothing_unknown() -> None:
    assert found(message("node/1", 1, 100, 150), message("node/1", 2, 160, 170)) == []
    assert found(message("a/1", 7, 100, 150), message("b/1", 1, 90, 95)) == [], "older ones are not kept, not missing"
    assert found(message("a/1", 7, 120, 150), whole=True) == [("a/1", 100, 120)], "unless all of them are read"
    assert found() == []


def test_a_number_that_is_missing_is_a_gap_between_its_neighbours() -> None:
    one = message("node/1", 1, 100, 150)
    assert found(message("node/1", 4, 300, 310), one) == [("node/1", 150, 300)]
    assert found(one, message("node/1", 3, None, None, ended=True)) == [("node/1", 150, ALWAYS_US)]
    assert found(one, message("node/1", 2, None, None), message("node/1", 4, 300, 310)) == [("node/1", 150, 300)]


def test_records_that_were_dropped_may_be_of_any_time_also_where_counting_began_again() -> None:
    assert found(message("node/1", 1, 100, 150), message("node/1", 2, 160, 170, lost=3)) == [("node/1", 0, ALWAYS_US)]
    assert found(message("node/1", 1, 100, 150, lost=3), message("node/1", 2, 160, 170)) == [("node/1", 0, ALWAYS_US)]


def test_a_life_that_is_followed_by_another_and_did_not_end_is_unknown_until_that_one_began() -> None:
    lives = (message("node/1", 1, 100, 150), message("node/2", 1, 400, 450), message("other/9", 1, 100, 900))
    assert found(*lives) == [("node/1", 150, 400 + CLOCKS_US)]
    assert found(message("node/1", 1, 100, 150, ended=True), message("node/2", 1, 400, 450)) == []


def test_a_gap_in_words() -> None:
    said = [RecordGap("node/1", begin, end, "so").sentence for begin, end in
            ((0, ALWAYS_US), (1_500_000, ALWAYS_US), (0, 2_000_000), (1_500_000, 2_000_000))]  # fmt: skip
    assert said == [
        "what node/1 did at any time, since so",
        "what node/1 did from 1970-01-01T00:00:01.500000Z on, since so",
        "what node/1 did until 1970-01-01T00:00:02.000000Z, since so",
        "what node/1 did between 1970-01-01T00:00:01.500000Z and 1970-01-01T00:00:02.000000Z, since so",
    ]
    why = [one.why for one in gaps_of([message("a/1", 3, 5, 6), message("a/1", 7, 8, 9)], whole=True)]
    assert why == [
        "messages 1 to 2 of its records are not stored (any more)",
        "messages 4 to 6 of its records are not stored (any more)",
    ]
    (one,) = gaps_of([message("a/1", 2, 5, 6)], whole=True)
    assert one.why == "message 1 of its records is not stored (any more)"


def test_what_a_message_says_of_itself() -> None:
    content = {"topic": "t", "writer": "a/1", "number": 2, "lost": 1, "records": [{"at": 7}, {"at": 5}]}
    assert of_content(content) == RecordsMessage("a/1", 2, 1, False, 5, 7)
    assert of_content({**content, "records": [], "ended": True}) == RecordsMessage("a/1", 2, 1, True, None, None)


@given(st.sets(st.integers(1, 12)), st.booleans())
def test_each_number_that_is_missing_is_in_exactly_one_gap(kept: set[int], whole: bool) -> None:
    """Message N has its records at 10 N: the gaps, told by the time of the messages around them, hold just the rest."""
    gaps = list(gaps_of((message("a/1", one, 10 * one, 10 * one + 1) for one in kept), whole=whole))
    asked = range(1 if whole else min(kept, default=0), max(kept, default=0))
    missing = [one for one in asked if one not in kept]
    inside = [one for one in missing for gap in gaps if gap.begin_us < 10 * one < gap.end_us]
    assert inside == missing
    assert not [one for one in kept for gap in gaps if gap.begin_us < 10 * one < gap.end_us]
