"""The tables of messages that wait for their time, against a plain list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.broker.publish.facts.message_facts import FactLog
from syncpoint.broker.publish.facts.scheduled import NEVER_NS, Scheduled, ScheduledMessages
from syncpoint.broker.publish.facts.source import WAITING_TOPIC, Source

pytestmark = pytest.mark.shows("schedules")


def tables(*rows: Scheduled) -> ScheduledMessages:
    made = ScheduledMessages(FactLog(lambda *entry: None))
    made.note(*rows)
    return made


rows = st.lists(
    st.builds(Scheduled, st.integers(1, 50), st.integers(1, 3), st.integers(0, 30), st.integers(1, 3)),
    unique_by=lambda one: (one.source, one.offset),
    max_size=40,
)


@given(rows, st.data())
def test_the_tables_against_a_plain_list(found: list[Scheduled], data: st.DataObject) -> None:
    made, model = tables(*found), set(found)
    for _ in range(5):
        now = data.draw(st.integers(0, 60))
        due = made.due(now, 1000)
        assert sorted(due) == sorted(one for one in model if one.due_ns <= now)
        for topic in (1, 2, 3):
            assert [one for one in due if one.topic == topic] == sorted(one for one in due if one.topic == topic)
            assert made.of_topic(topic, None, 100) == sorted(one for one in model if one.topic == topic)
            assert (topic in made) == any(one.topic == topic for one in model)
        assert made.first_ns <= min((one.due_ns for one in model), default=NEVER_NS)
        if model:
            chosen = data.draw(st.sampled_from(sorted(model)))
            if data.draw(st.booleans()):
                first = [one for one in sorted(model) if one.topic == chosen.topic][: data.draw(st.integers(1, 5))]
                made.fire(first, 9, 0)
                model -= set(first)
            else:
                made.cancel([chosen])
                model.discard(chosen)
        assert len(made) == len(model)
        source = Source(2, WAITING_TOPIC)
        begin = data.draw(st.integers(0, 30))
        end = data.draw(st.integers(begin + 1, 31))
        assert made.holds(source, begin, end, 0) == any(o.source == 2 and begin <= o.offset < end for o in model)
    again = tables()
    again.recover(made.facts())
    assert sorted(one for topic in (1, 2, 3) for one in again.of_topic(topic, None, 100)) == sorted(model)


@pytest.mark.parametrize("others", [0, 9])
def test_one_that_waits_holds_its_entry_wherever_it_stands_in_it(others: int) -> None:
    source = Source(2, WAITING_TOPIC)
    for offset in range(10, 14):
        made = tables(*(Scheduled(5, 2, 100 + one, 1) for one in range(others)), Scheduled(5, 2, offset, 1))
        assert made.holds(source, 10, 14, 0)
        assert made.holds(source, offset, offset + 1, 0)
        assert not made.holds(source, offset - 4, offset, 0)
        assert not made.holds(source, offset + 1, offset + 5, 0)


def test_what_came_first_and_was_cancelled_leaves_no_heap_behind() -> None:
    made = tables(Scheduled(100, 1, 0, 1))
    for offset in range(1, 1000):
        one = Scheduled(100 - offset % 50, 1, offset, 1)
        made.note(one)
        made.cancel([one])
    assert len(made._firsts) < 200


def test_facts_of_a_newer_version_are_refused() -> None:
    with pytest.raises(ValueError, match="newer version"):
        tables().recover([b"\x09"])
