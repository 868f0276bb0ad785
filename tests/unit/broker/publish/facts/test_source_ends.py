"""A source ends where it ended, whatever is left of it: over restarts, for readers, seeks, counts and duplicates."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.broker.publish.facts import records, source_ends
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.intake.seek import acks_at_time
from syncpoint.broker.publish.keep.backlog import unacknowledged
from syncpoint.broker.publish.keep.retention import forget_empty_sources, is_needed
from syncpoint.log.storage.errors import ForeignDisk
from syncpoint.log.storage.record import EntryKind
from syncpoint.testing.rigs.forwarder_harness import ForwarderHarness
from tests.kit.reading import ReadingHarness, only_source

u64 = st.integers(0, 2**64 - 1)


def delete(harness: ForwarderHarness, first_offset: int) -> bool:
    """Delete the entry that begins at this offset of the oldest source, if it may be; returns whether it was."""
    source = harness.publish.sources.of_topic(1)[0].number

    def live(number: int, first: int, count: int, time_ns: int) -> bool:
        return (number, first) != (source, first_offset) or is_needed(harness.publish, number, first, count, time_ns)

    before = harness.store.sources(), harness.store.bounds(source), stored(harness)
    harness.store.collect(live)
    return before != (harness.store.sources(), harness.store.bounds(source), stored(harness))


def stored(harness: ForwarderHarness) -> list[int]:
    source = harness.publish.sources.of_topic(1)[0].number
    return [one.first_offset for one in harness.store._of(source)]


def newest_deleted(harness: ForwarderHarness) -> Source:
    """A source of five messages, of which the last two were deleted before the others, in the log after it."""
    harness.send("a", "b", "c")
    harness.send("d", "e")
    harness.restart()
    harness.checkpoint()
    ledger = harness.publish.ledgers[harness.record.incarnation]
    source = harness.publish.sources.of_topic(1)[0]
    ledger.of(source.number).add(3, 5)
    harness.checkpoint()
    assert delete(harness, 3)
    harness.restart()
    return harness.publish.sources.of_topic(1)[0]


@given(st.dictionaries(u64, u64, max_size=20), st.integers(1, 7))
def test_ends_come_back_as_they_were_written(ends: dict[int, int], part: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(source_ends, "PART", part)
        facts = list(source_ends.parts(iter(ends.items())))
    known = {number: end for number, end in ends.items() if end}
    assert source_ends.decode_ends(facts) == known
    assert source_ends.decode_ends([*facts, source_ends.encode_ends((one, 1) for one in known)]) == known
    assert len(facts) == -(-len(known) // part)


def test_what_came_last_is_kept_until_a_checkpoint_states_where_the_source_ends() -> None:
    harness = ForwarderHarness()
    harness.send("a")
    harness.send("b")
    source = harness.publish.sources.of_topic(1)[0]
    harness.publish.ledgers[harness.record.incarnation].of(source.number).add(0, 2)
    assert not delete(harness, 1)
    assert delete(harness, 0), "nobody learns anything by what came before"
    harness.checkpoint()
    harness.send("c")
    assert delete(harness, 1)
    assert not delete(harness, 2)


def test_a_checkpoint_that_was_not_written_whole_states_nothing() -> None:
    harness = ForwarderHarness()
    harness.send("a")
    (source,) = harness.publish.sources.of_topic(1)
    harness.publish.ledgers[harness.record.incarnation].of(source.number).add(0, 1)
    begun = harness.store.checkpoint(harness.follower.checkpoint_parts())
    begun.step(1)
    assert not delete(harness, 0)


def test_a_source_whose_newest_messages_were_deleted_first_ends_where_it_ended() -> None:
    source = newest_deleted(ForwarderHarness())
    assert (source.sealed, source.end, source.visible, source.stated_end) == (True, 5, 5, 5)


def test_a_reader_that_had_read_all_of_it_finds_the_same_end() -> None:
    harness = ReadingHarness()
    newest_deleted(harness)
    found = only_source(harness)
    assert (found.begin, found.end, found.sealed) == (0, 5, True)
    late = {"seconds": 1 << 33}
    assert [one.start for one in harness.positions(time=late).sources] == [5]
    assert [one.start for one in harness.positions(latest=True).sources] == [5]


def test_counts_are_of_what_is_stored() -> None:
    harness = ForwarderHarness()
    source = newest_deleted(harness)
    assert source_ends.stored_run(harness.store, source) == (0, 3)  # type: ignore[arg-type]
    assert unacknowledged(harness.publish, harness.record) == 3
    harness.publish.replace_acks(harness.record.incarnation, {}, None)
    assert unacknowledged(harness.publish, harness.record) == 3, "nor does a seek bring back what is deleted"


def test_a_seek_behind_everything_acknowledges_all_of_the_source() -> None:
    harness = ForwarderHarness()
    source = newest_deleted(harness)
    acks = acks_at_time(harness.publish, harness.record, harness.clock.time_ns() + 10**9)
    assert acks[source.number].covers(0, 5)
    harness.send("f")
    acks = acks_at_time(harness.publish, harness.record, harness.store.entries[0].time_ns)
    assert acks[source.number].first_gap(0) == 0


def test_a_source_of_which_nothing_is_left_is_reported_with_its_end() -> None:
    """Its owner died between the deletion and the note that the source is gone."""
    harness = ReadingHarness()
    source = newest_deleted(harness).number
    harness.publish.ledgers[harness.record.incarnation].of(source).add(0, 3)
    assert delete(harness, 0)
    harness.restart()
    assert [(one.source, one.begin, one.end) for one in harness.positions().sources] == [(source, 5, 5)]
    forget_empty_sources(harness.publish)
    harness.reader.tick()
    harness.quiesce()
    for _ in range(2):
        answer = harness.positions(known=[source])
        assert not answer.sources
        assert [(one.source, one.end) for one in answer.ended] == [(source, 5)]
        harness.restart()


def test_a_log_that_does_not_state_where_sources_end_is_read_by_what_is_stored() -> None:
    """As versions before wrote it; what they delete is not known either. The next checkpoint states it."""
    harness = ForwarderHarness()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(source_ends, "parts", lambda ends: iter(()))
        harness.send("a", "b")
        harness.checkpoint()
    harness.restart()
    (source,) = harness.publish.sources.of_topic(1)
    assert (source.end, source.stated_end) == (2, 0)
    harness.publish.ledgers[harness.record.incarnation].of(source.number).add(0, 2)
    assert not delete(harness, 0)
    harness.checkpoint()
    assert source.stated_end == 2
    assert delete(harness, 0)


def test_ends_in_another_format_are_refused_in_words() -> None:
    harness = ForwarderHarness()
    harness.store.append(EntryKind.LEDGER, records.encode_extension(source_ends.NUMBER, bytes(7)))
    harness.quiesce()
    with pytest.raises(ForeignDisk, match="where sources end has a format"):
        harness.restart()


@pytest.mark.parametrize("seed", range(12))
def test_no_history_of_deletions_and_restarts_moves_an_end(seed: int) -> None:
    lots = random.Random(seed)
    harness = ForwarderHarness()
    ends: dict[int, int] = {}
    for _ in range(60):
        match lots.choice(("send", "send", "acknowledge", "checkpoint", "delete", "delete", "restart")):
            case "send":
                harness.send(*("x" * lots.randrange(1, 4)))
            case "acknowledge":
                for source in harness.publish.sources.of_topic(1):
                    first = lots.randrange(0, source.end + 1)
                    harness.publish.ledgers[harness.record.incarnation].of(source.number).add(first, source.end)
            case "checkpoint":
                harness.checkpoint()
            case "delete":
                chance = lots.random()
                harness.store.collect(lambda *one, c=chance: lots.random() > c or is_needed(harness.publish, *one))
            case "restart":
                if lots.random() < 0.5:  # what was acknowledged is known again
                    harness.checkpoint()
                harness.restart()
        if lots.random() < 0.3:
            for number in set(harness.publish.sources.by_number):
                if harness.store.bounds(number) is None:
                    ends.pop(number, None)
            forget_empty_sources(harness.publish)
        found = {source.number: source.end for source in harness.publish.sources.of_topic(1)}
        for number, end in ends.items():
            assert found.get(number, -1) >= end, (seed, number)
        ends = found
