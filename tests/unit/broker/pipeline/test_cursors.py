"""Cursors: what they hold, how far, for how long; what is reported lost; that 200 restarts leave nothing behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import InvalidArgument, NotFound, ResourceExhausted
from syncpoint.base.model.spans import OffsetRange
from syncpoint.broker.pipeline.cursors import CURSORS_MAX, CursorLimits, Cursors, ReaderCursor, passed
from syncpoint.broker.pipeline.cursors_facts import decode, encode, encode_deleted
from syncpoint.broker.publish.facts.source import Source, SourceTable
from syncpoint.catalog.metadata.records import CatalogChange, Topic
from tests.kit.reading import TOPIC, ReadingHarness

DAY_S = 24 * 3600.0
numbers = st.integers(0, (1 << 64) - 1)
offsets = st.integers(0, 1 << 62)


@given(
    numbers, st.text(max_size=255), st.tuples(offsets, offsets, offsets), offsets, st.dictionaries(numbers, offsets),
    st.sets(numbers), st.lists(st.tuples(numbers, offsets, offsets)),
)  # fmt: skip
def test_facts_say_what_they_were_given(topic, name, limits, used, positions, done, lost) -> None:  # type: ignore[no-untyped-def]
    fact = decode(encode(topic, name, limits, used, positions, done, lost))
    assert fact == (topic, name, False, limits, used, tuple(positions.items()), tuple(sorted(done)), tuple(lost))
    assert decode(encode_deleted(topic, name))[:3] == (topic, name, True)


def test_a_newer_versions_fact_is_refused() -> None:
    with pytest.raises(ValueError, match="newer version"):
        decode(b"\x09" + encode_deleted(1, "x")[1:])


def names(harness: ReadingHarness) -> list[str]:
    return [cursor.name for cursor in harness.call("ListCursors", topic=TOPIC).cursors]


def stored(harness: ReadingHarness) -> list[tuple[int, int]]:
    return [(one.begin, one.end) for one in harness.positions().sources]


def test_a_cursor_holds_what_it_has_not_passed() -> None:
    harness = ReadingHarness()
    harness.send("a", "b")
    harness.send("c")
    (source,) = harness.positions(cursor={"name": "spark"}, first=True).sources
    harness.acknowledge_all()
    harness.collect()
    assert stored(harness) == [(0, 3)]
    moved = harness.positions(cursor={"name": "spark"}, processed=[{"source": source.source, "end": 2}])
    assert not moved.lost
    harness.collect()
    assert stored(harness) == [(0, 3)], "a crash would lose that it has moved"
    harness.reader.tick()
    harness.collect()
    assert stored(harness) == [(2, 3)]
    harness.positions(cursor={"name": "spark"}, processed=[{"source": source.source, "end": 1}])  # never back
    assert not harness.positions(cursor={"name": "spark"}).lost
    harness.call("DeleteCursor", topic=TOPIC, name="spark")
    harness.collect()
    assert stored(harness) == [(3, 3)]


def test_without_a_cursor_nothing_is_held() -> None:
    harness = ReadingHarness()
    harness.send("a")
    harness.acknowledge_all()
    harness.collect()
    assert stored(harness) == [(1, 1)]


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_cursor_survives_a_crash(checkpointed: bool) -> None:
    harness = ReadingHarness()
    harness.send("a", "b", "c")
    (source,) = harness.positions(cursor={"name": "x", "retention_seconds": 1000}, first=True).sources
    harness.positions(cursor={"name": "x", "retention_seconds": 1000}, processed=[{"source": source.source, "end": 2}])
    harness.reader.tick()
    harness.quiesce()
    if checkpointed:
        harness.checkpoint()
    harness.restart()
    (cursor,) = harness.call("ListCursors", topic=TOPIC).cursors
    assert (cursor.name, cursor.retention_seconds, cursor.lag_messages) == ("x", 1000, 1)
    assert [(one.source, one.begin, one.end) for one in cursor.ranges] == [(source.source, 2, 3)]
    harness.acknowledge_all()
    harness.collect()
    assert stored(harness) == [(0, 3)]
    harness.call("DeleteCursor", topic=TOPIC, name="x")
    harness.restart()
    assert names(harness) == []


def test_a_lost_move_only_keeps_more() -> None:
    harness = ReadingHarness()
    harness.send("a", "b")
    (source,) = harness.positions(cursor={"name": "x"}, first=True).sources
    harness.positions(cursor={"name": "x"}, processed=[{"source": source.source, "end": 2}])
    harness.restart()
    assert harness.call("ListCursors", topic=TOPIC).cursors[0].lag_messages == 2


def test_what_a_lost_move_had_passed_was_not_deleted() -> None:
    harness = ReadingHarness()
    harness.send("a", "b")
    (source,) = harness.positions(cursor={"name": "x", "retention_seconds": 1000}, first=True).sources
    harness.advance(20)
    harness.acknowledge_all()
    harness.positions(cursor={"name": "x", "retention_seconds": 10}, processed=[{"source": source.source, "end": 1}])
    harness.collect()
    harness.restart()
    answer = harness.positions(cursor={"name": "x", "retention_seconds": 1000})
    assert [(one.begin, one.end) for one in answer.sources] == [(0, 2)], "neither for its place nor for its limits"
    assert not answer.lost


def test_a_cursor_that_holds_more_says_so() -> None:
    """Whatever was judged not to be needed before, and is not deleted yet."""
    harness = ReadingHarness()
    harness.send("a", "b")
    versions = [harness.publish.needs.version]
    (source,) = harness.positions(cursor={"name": "x", "retention_seconds": 100}, first=True).sources
    versions.append(harness.publish.needs.version)
    harness.positions(cursor={"name": "x", "retention_seconds": 1000}, processed=[{"source": source.source, "end": 1}])
    harness.reader.tick()
    versions.append(harness.publish.needs.version)
    harness.positions(cursor={"name": "x", "retention_seconds": 1000}, processed=[{"source": source.source, "end": 2}])
    harness.reader.tick()
    versions.append(harness.publish.needs.version)
    assert versions[0] < versions[1] < versions[2] == versions[3]
    assert harness.publish.needed_since(versions[0]) == [source.source]
    assert harness.publish.needed_since(versions[2]) == []


def test_beyond_its_retention_messages_go_and_are_reported_lost() -> None:
    harness = ReadingHarness()
    harness.send("a")
    harness.positions(cursor={"name": "x", "retention_seconds": 100}, first=True)
    harness.advance(60)
    harness.send("b")
    harness.acknowledge_all()
    harness.advance(60)
    harness.collect()
    (source,) = harness.positions().sources
    assert (source.begin, source.end) == (1, 2)
    for _ in range(2):  # until the reader says that it went on behind it
        reported = harness.positions(cursor={"name": "x", "retention_seconds": 100}).lost
        assert [(one.begin, one.end) for one in reported] == [(0, 1)]
    ends = [{"source": source.source, "end": 1}]
    assert not harness.positions(cursor={"name": "x", "retention_seconds": 100}, processed=ends).lost


def test_lost_with_its_source() -> None:
    harness = ReadingHarness()
    harness.send("a", "b")
    (old,) = harness.positions(cursor={"name": "x", "retention_seconds": 100}, first=True).sources
    harness.positions(cursor={"name": "x", "retention_seconds": 100}, processed=[{"source": old.source, "end": 1}])
    harness.reader.tick()
    harness.quiesce()
    harness.restart()
    harness.acknowledge_all()
    harness.send("c")
    harness.advance(200)
    harness.collect()
    (new,) = harness.positions().sources
    assert new.source > old.source
    reported = harness.positions(
        cursor={"name": "x", "retention_seconds": 100},
        processed=[{"source": old.source, "end": 1}, {"source": new.source, "end": 0}],
    ).lost
    assert [(one.source, one.begin, one.end) for one in reported] == [(old.source, 1, 2)]
    harness.reader.tick()
    harness.quiesce()
    harness.restart()
    assert len(harness.call("ListCursors", topic=TOPIC).cursors[0].lost) == 1
    ends = [{"source": new.source, "end": 1}]
    assert not harness.positions(cursor={"name": "x"}, processed=ends).lost


def test_a_limit_of_bytes() -> None:
    harness = ReadingHarness()
    for _ in range(10):
        harness.send("x" * 1000)
    harness.acknowledge_all()
    harness.positions(cursor={"name": "x", "retention_bytes": 5 * 1100}, first=True)
    harness.collect()
    ((begin, end),) = stored(harness)
    assert end == 10
    assert 5 <= begin <= 6


@pytest.mark.parametrize("turns", ["ab" * 8, "aaab" * 4, "a" * 12 + "bbb", "bbb" + "a" * 12])
def test_a_limit_of_bytes_over_chains_keeps_the_newest_of_the_topic_and_no_more_than_the_limit_in_each(
    turns: str,
) -> None:
    chains = {name: ReadingHarness() for name in "ab"}
    published: list[tuple[str, int]] = []
    for name in turns:
        published.append((name, turns[: len(published)].count(name)))
        chains[name].send("x" * 1000)
    held: set[tuple[str, int]] = set()
    for name, chain in chains.items():
        chain.acknowledge_all()
        chain.positions(cursor={"name": "x", "retention_bytes": 5 * 1100}, first=True)
        chain.collect()
        ((begin, end),) = stored(chain)
        assert end - begin <= 5
        held |= {(name, offset) for offset in range(begin, end)}
    assert set(published[-4:]) <= held


def test_a_limit_of_bytes_holds_after_a_restart_without_the_reader() -> None:
    harness = ReadingHarness()
    for _ in range(10):
        harness.send("x" * 1000)
    harness.positions(cursor={"name": "x", "retention_bytes": 5 * 1100}, first=True)
    harness.restart()
    harness.acknowledge_all()
    harness.reader.tick()
    harness.collect()
    ((begin, _),) = stored(harness)
    assert 5 <= begin <= 6


def test_unused_cursors_expire_and_time_without_the_server_does_not_count() -> None:
    harness = ReadingHarness()
    harness.send("a")
    harness.positions(cursor={"name": "short", "expiration_seconds": 3600}, first=True)
    harness.positions(cursor={"name": "long"}, first=True)
    harness.clock.advance(20 * DAY_S)
    harness.restart()
    harness.clock.advance(61)
    harness.reader.tick()
    assert names(harness) == ["long", "short"]
    harness.clock.advance(3700)
    harness.reader.tick()
    harness.quiesce()
    assert names(harness) == ["long"]
    harness.clock.advance(32 * DAY_S)
    harness.reader.tick()
    harness.quiesce()
    harness.restart()
    assert names(harness) == []


def test_a_wall_clock_that_jumps_ahead_deletes_neither_a_cursor_nor_what_it_holds() -> None:
    harness = ReadingHarness()
    harness.send("a")
    harness.positions(cursor={"name": "x"}, first=True)
    source = harness.publish.sources.of_topic(1)[0]
    published_ns = harness.clock.time_ns()
    harness.clock.set_time_ns(published_ns + 400 * DAY_S * 1_000_000_000)
    harness.clock.advance(61)
    harness.reader.tick()
    harness.quiesce()
    assert names(harness) == ["x"]
    assert harness.reader.cursors.holds(source, 0, 1, published_ns)


def test_cursors_go_with_their_topic() -> None:
    harness = ReadingHarness()
    harness.send("a")
    harness.positions(cursor={"name": "x"}, first=True)
    topic = harness.publish.catalog.topic(TOPIC)
    assert topic is not None
    harness.commit(CatalogChange.delete(topic))
    harness.acknowledge_all()
    source = harness.publish.sources.of_topic(1)[0]
    assert not harness.reader.cursors.holds(source, 0, 1, harness.clock.time_ns())
    harness.clock.advance(61)
    harness.reader.tick()
    assert list(harness.reader.cursors.all()) == []
    harness.commit(CatalogChange.put(Topic(9, TOPIC)))
    assert names(harness) == []


def test_a_new_source_is_held_from_its_first_message() -> None:
    harness = ReadingHarness()
    harness.send("a")
    harness.positions(cursor={"name": "x"}, latest=True, first=True)
    harness.restart()
    harness.send("b")
    harness.acknowledge_all()
    harness.collect()
    assert stored(harness) == [(0, 1)]  # what was before the start is gone, with its source
    (cursor,) = harness.call("ListCursors", topic=TOPIC).cursors
    assert cursor.lag_messages == 1


def test_many_restarts_leave_a_bounded_state() -> None:
    harness = ReadingHarness()
    sizes = []
    for life in range(200):
        harness.send(f"message {life}")
        last = harness.positions(cursor={"name": "x"}, first=life == 0).sources[-1]
        processed = [{"source": last.source, "end": last.end - 1}]  # one message behind
        assert not harness.positions(cursor={"name": "x"}, processed=processed).lost
        harness.reader.tick()
        harness.acknowledge_all()
        harness.collect()
        harness.quiesce()
        if life % 7 == 0:
            harness.checkpoint()
        sizes.append(sum(len(fact) for fact in harness.reader.cursors.facts()))
        harness.restart()
    assert max(sizes) < 200
    cursor = next(harness.reader.cursors.all())
    assert len(cursor.positions) + len(cursor.done) <= 2


def test_a_source_that_goes_leaves_nothing_in_a_cursor() -> None:
    harness = ReadingHarness()
    harness.send("a")
    harness.positions(cursor={"name": "x"}, latest=True, first=True)
    harness.restart()
    harness.send("b")
    new = harness.positions().sources[-1].source
    harness.positions(cursor={"name": "x"}, processed=[{"source": new, "end": 1}])
    (cursor,) = harness.reader.cursors.all()
    assert len(cursor.done) == 1
    harness.acknowledge_all()
    harness.collect()
    assert cursor.done == set()
    assert cursor.positions == {new: 1}
    assert cursor.lost == []


def test_a_dead_cursor_remembers_only_so_many_losses() -> None:
    harness = ReadingHarness()
    harness.send("first")
    harness.positions(cursor={"name": "x", "retention_seconds": 1, "expiration_seconds": 10**8}, first=True)
    for _ in range(150):
        harness.restart()
        harness.send("more")
        harness.acknowledge_all()
        harness.clock.advance(10)
        harness.collect()
    (cursor,) = harness.reader.cursors.all()
    assert len(cursor.lost) <= 100
    assert len(cursor.positions) + len(cursor.done) <= 2


def test_refusals() -> None:
    harness = ReadingHarness()
    for bad in (
        {"name": ""},
        {"name": "x" * 256},
        {"name": "x", "retention_seconds": -1},
        {"name": "x", "retention_bytes": -1},
        {"name": "x", "expiration_seconds": 10**12},
    ):
        with pytest.raises(Exception, match="cursor") as refusal:
            harness.positions(cursor=bad, first=True)
        assert refusal.value.code == InvalidArgument("", "").code  # type: ignore[attr-defined]
    assert names(harness) == []
    with pytest.raises(Exception, match="no cursor 'x'") as missing:
        harness.call("DeleteCursor", topic=TOPIC, name="x")
    assert missing.value.code == NotFound("").code  # type: ignore[attr-defined]
    cursors = harness.reader.cursors
    for number in range(CURSORS_MAX):
        cursors.begin(1, f"c{number}", CursorLimits(), {})
    cursors.begin(1, "c0", CursorLimits(), {})
    with pytest.raises(ResourceExhausted):
        cursors.begin(1, "one more", CursorLimits(), {})


# -- the rule of `processed` ------------------------------------------------------------------------------------------

sources = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), max_size=6).map(
    lambda given_: [
        Source(index + 1, 1, epoch=epoch, end=end, visible=end) for index, (epoch, end) in enumerate(given_)
    ]
)


@given(sources, st.dictionaries(st.integers(0, 7), st.integers(0, 25), max_size=4))
def test_what_comes_before_a_named_source_is_passed(known: list[Source], ends: dict[int, int]) -> None:
    found = passed(known, ends)
    for source in known:
        if source.number in ends:
            assert found[source.number] == min(ends[source.number], source.end)
        elif source.number in found:
            assert found[source.number] == source.end
            assert any(number in ends for number in range(8))
    named = [source for source in known if source.number in ends]
    for source in known:
        later = [one for one in named if one.number > source.number]
        if source.number not in ends and named:
            assert (source.number in found) == bool(later)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=12))
def test_a_cursor_never_goes_back(moves: list[tuple[bool, int]]) -> None:
    source, cursor = Source(5, 1, end=20, visible=20), ReaderCursor(1, "x")
    before = 0
    for seal, to in moves:
        source.sealed = source.sealed or seal
        cursor.move(source, to)
        assert cursor.position(source) == max(before, min(to, 20))
        before = cursor.position(source)
        assert not (source.number in cursor.done and source.number in cursor.positions)


def test_what_is_read_of_facts_is_what_was_written() -> None:
    harness = ReadingHarness()
    table = SourceTable(10**12, 3)
    cursors = Cursors(table, harness.publish.catalog, harness.publish.clock, lambda topic: 0.0)
    source, _ = table.open_for(1)
    source.end = 9
    cursor = cursors.begin(1, "x", CursorLimits(5, 6, 7), {source.number: 4})
    cursor.lost = [OffsetRange(1, 2, 3)]
    again = Cursors(table, harness.publish.catalog, harness.publish.clock, lambda topic: 0.0, cursors.facts())
    cursor.note_written()
    assert next(again.all()) == cursor


def test_a_reader_whose_cursor_was_deleted_learns_of_sources_that_are_gone() -> None:
    """Nobody kept for it what it had not read there; it learns so until it has gone on, over a restart too."""
    harness = ReadingHarness()
    harness.send("a", "b", "c")
    (source,) = harness.positions(cursor={"name": "x"}, first=True).sources
    processed = [{"source": source.source, "end": 2}]
    assert not harness.positions(cursor={"name": "x"}, processed=processed).lost
    harness.call("DeleteCursor", topic=TOPIC, name="x")
    harness.restart()  # the source is sealed by it, and goes
    harness.acknowledge_all()
    harness.collect()
    assert not stored(harness)
    for _ in range(2):
        (lost,) = harness.positions(cursor={"name": "x"}, processed=processed).lost
        assert (lost.source, lost.begin, lost.end) == (source.source, 2, 3)
    harness.send("d")
    (newer,) = harness.positions().sources
    assert not harness.positions(cursor={"name": "x"}, processed=[{"source": newer.source, "end": 0}]).lost
