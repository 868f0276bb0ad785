"""Cursors: what they hold, how far, for how long; what is told lost; that 200 restarts leave nothing behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.metadata.records import CatalogChange, Topic
from syncpoint.model.errors import InvalidArgument, NotFound, ResourceExhausted
from syncpoint.pipeline.cursors import CURSORS_MAX, CursorLimits, Cursors, OffsetRange, ReaderCursor, passed
from syncpoint.pipeline.cursors_facts import decode, encode, encode_deleted
from syncpoint.publish.source import Source, SourceTable
from tests.kit.reading import TOPIC, ReadingWorld

DAY_S = 24 * 3600.0
numbers = st.integers(0, (1 << 64) - 1)
offsets = st.integers(0, 1 << 62)


@given(
    numbers, st.text(max_size=255), st.tuples(offsets, offsets, offsets), offsets, st.dictionaries(numbers, offsets),
    st.sets(numbers), st.lists(st.tuples(numbers, offsets, offsets)),
)  # fmt: skip
def test_facts_say_what_they_were_told(topic, name, limits, used, positions, done, lost) -> None:  # type: ignore[no-untyped-def]
    fact = decode(encode(topic, name, limits, used, positions, done, lost))
    assert fact == (topic, name, False, limits, used, tuple(positions.items()), tuple(sorted(done)), tuple(lost))
    assert decode(encode_deleted(topic, name))[:3] == (topic, name, True)


def test_a_newer_versions_fact_is_refused() -> None:
    with pytest.raises(ValueError, match="newer version"):
        decode(b"\x09" + encode_deleted(1, "x")[1:])


def names(world: ReadingWorld) -> list[str]:
    return [cursor.name for cursor in world.call("ListCursors", topic=TOPIC).cursors]


def stored(world: ReadingWorld) -> list[tuple[int, int]]:
    return [(one.begin, one.end) for one in world.positions().sources]


def test_a_cursor_holds_what_it_has_not_passed() -> None:
    world = ReadingWorld()
    world.send("a", "b")
    world.send("c")
    (source,) = world.positions(cursor={"name": "spark"}, first=True).sources
    world.acknowledge_all()
    world.collect()
    assert stored(world) == [(0, 3)]
    moved = world.positions(cursor={"name": "spark"}, processed=[{"source": source.source, "end": 2}])
    assert not moved.lost
    world.collect()
    assert stored(world) == [(0, 3)], "a crash would lose that it has moved"
    world.reader.tick()
    world.collect()
    assert stored(world) == [(2, 3)]
    world.positions(cursor={"name": "spark"}, processed=[{"source": source.source, "end": 1}])  # never back
    assert not world.positions(cursor={"name": "spark"}).lost
    world.call("DeleteCursor", topic=TOPIC, name="spark")
    world.collect()
    assert stored(world) == [(3, 3)]


def test_without_a_cursor_nothing_is_held() -> None:
    world = ReadingWorld()
    world.send("a")
    world.acknowledge_all()
    world.collect()
    assert stored(world) == [(1, 1)]


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_cursor_survives_a_crash(checkpointed: bool) -> None:
    world = ReadingWorld()
    world.send("a", "b", "c")
    (source,) = world.positions(cursor={"name": "x", "retention_seconds": 1000}, first=True).sources
    world.positions(cursor={"name": "x", "retention_seconds": 1000}, processed=[{"source": source.source, "end": 2}])
    world.reader.tick()
    world.settle()
    if checkpointed:
        world.checkpoint()
    world.restart()
    (cursor,) = world.call("ListCursors", topic=TOPIC).cursors
    assert (cursor.name, cursor.retention_seconds, cursor.lag_messages) == ("x", 1000, 1)
    assert [(one.source, one.begin, one.end) for one in cursor.ranges] == [(source.source, 2, 3)]
    world.acknowledge_all()
    world.collect()
    assert stored(world) == [(0, 3)]
    world.call("DeleteCursor", topic=TOPIC, name="x")
    world.restart()
    assert names(world) == []


def test_a_lost_move_only_keeps_more() -> None:
    world = ReadingWorld()
    world.send("a", "b")
    (source,) = world.positions(cursor={"name": "x"}, first=True).sources
    world.positions(cursor={"name": "x"}, processed=[{"source": source.source, "end": 2}])
    world.restart()
    assert world.call("ListCursors", topic=TOPIC).cursors[0].lag_messages == 2


def test_what_a_lost_move_had_passed_was_not_deleted() -> None:
    world = ReadingWorld()
    world.send("a", "b")
    (source,) = world.positions(cursor={"name": "x", "retention_seconds": 1000}, first=True).sources
    world.advance(20)
    world.acknowledge_all()
    world.positions(cursor={"name": "x", "retention_seconds": 10}, processed=[{"source": source.source, "end": 1}])
    world.collect()
    world.restart()
    answer = world.positions(cursor={"name": "x", "retention_seconds": 1000})
    assert [(one.begin, one.end) for one in answer.sources] == [(0, 2)], "neither for its place nor for its limits"
    assert not answer.lost


def test_a_cursor_that_holds_more_says_so() -> None:
    """Whatever was judged not to be needed before, and is not deleted yet."""
    world = ReadingWorld()
    world.send("a", "b")
    versions = [world.publish.needs.version]
    (source,) = world.positions(cursor={"name": "x", "retention_seconds": 100}, first=True).sources
    versions.append(world.publish.needs.version)
    world.positions(cursor={"name": "x", "retention_seconds": 1000}, processed=[{"source": source.source, "end": 1}])
    world.reader.tick()
    versions.append(world.publish.needs.version)
    world.positions(cursor={"name": "x", "retention_seconds": 1000}, processed=[{"source": source.source, "end": 2}])
    world.reader.tick()
    versions.append(world.publish.needs.version)
    assert versions[0] < versions[1] < versions[2] == versions[3]
    assert world.publish.needed_since(versions[0]) == [source.source]
    assert world.publish.needed_since(versions[2]) == []


def test_beyond_its_retention_messages_go_and_are_told_lost() -> None:
    world = ReadingWorld()
    world.send("a")
    world.positions(cursor={"name": "x", "retention_seconds": 100}, first=True)
    world.advance(60)
    world.send("b")
    world.acknowledge_all()
    world.advance(60)
    world.collect()
    (source,) = world.positions().sources
    assert (source.begin, source.end) == (1, 2)
    for _ in range(2):  # until the reader says that it went on behind it
        told = world.positions(cursor={"name": "x", "retention_seconds": 100}).lost
        assert [(one.begin, one.end) for one in told] == [(0, 1)]
    ends = [{"source": source.source, "end": 1}]
    assert not world.positions(cursor={"name": "x", "retention_seconds": 100}, processed=ends).lost


def test_lost_with_its_source() -> None:
    world = ReadingWorld()
    world.send("a", "b")
    (old,) = world.positions(cursor={"name": "x", "retention_seconds": 100}, first=True).sources
    world.positions(cursor={"name": "x", "retention_seconds": 100}, processed=[{"source": old.source, "end": 1}])
    world.reader.tick()
    world.settle()
    world.restart()
    world.acknowledge_all()
    world.send("c")
    world.advance(200)
    world.collect()
    (new,) = world.positions().sources
    assert new.source > old.source
    told = world.positions(
        cursor={"name": "x", "retention_seconds": 100},
        processed=[{"source": old.source, "end": 1}, {"source": new.source, "end": 0}],
    ).lost
    assert [(one.source, one.begin, one.end) for one in told] == [(old.source, 1, 2)]
    world.reader.tick()
    world.settle()
    world.restart()
    assert len(world.call("ListCursors", topic=TOPIC).cursors[0].lost) == 1
    ends = [{"source": new.source, "end": 1}]
    assert not world.positions(cursor={"name": "x"}, processed=ends).lost


def test_a_limit_of_bytes() -> None:
    world = ReadingWorld()
    for _ in range(10):
        world.send("x" * 1000)
    world.acknowledge_all()
    world.positions(cursor={"name": "x", "retention_bytes": 5 * 1100}, first=True)
    world.collect()
    ((begin, end),) = stored(world)
    assert end == 10
    assert 5 <= begin <= 6


@pytest.mark.parametrize("turns", ["ab" * 8, "aaab" * 4, "a" * 12 + "bbb", "bbb" + "a" * 12])
def test_a_limit_of_bytes_over_chains_keeps_the_newest_of_the_topic_and_no_more_than_the_limit_in_each(
    turns: str,
) -> None:
    chains = {name: ReadingWorld() for name in "ab"}
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
    world = ReadingWorld()
    for _ in range(10):
        world.send("x" * 1000)
    world.positions(cursor={"name": "x", "retention_bytes": 5 * 1100}, first=True)
    world.restart()
    world.acknowledge_all()
    world.reader.tick()
    world.collect()
    ((begin, _),) = stored(world)
    assert 5 <= begin <= 6


def test_unused_cursors_expire_and_time_without_the_server_does_not_count() -> None:
    world = ReadingWorld()
    world.send("a")
    world.positions(cursor={"name": "short", "expiration_seconds": 3600}, first=True)
    world.positions(cursor={"name": "long"}, first=True)
    world.clock.advance(20 * DAY_S)
    world.restart()
    world.clock.advance(61)
    world.reader.tick()
    assert names(world) == ["long", "short"]
    world.clock.advance(3700)
    world.reader.tick()
    world.settle()
    assert names(world) == ["long"]
    world.clock.advance(32 * DAY_S)
    world.reader.tick()
    world.settle()
    world.restart()
    assert names(world) == []


def test_a_wall_clock_that_jumps_ahead_deletes_neither_a_cursor_nor_what_it_holds() -> None:
    world = ReadingWorld()
    world.send("a")
    world.positions(cursor={"name": "x"}, first=True)
    source = world.publish.sources.of_topic(1)[0]
    published_ns = world.clock.time_ns()
    world.clock.set_time_ns(published_ns + 400 * DAY_S * 1_000_000_000)
    world.clock.advance(61)
    world.reader.tick()
    world.settle()
    assert names(world) == ["x"]
    assert world.reader.cursors.holds(source, 0, 1, published_ns)


def test_cursors_go_with_their_topic() -> None:
    world = ReadingWorld()
    world.send("a")
    world.positions(cursor={"name": "x"}, first=True)
    topic = world.publish.catalog.topic(TOPIC)
    assert topic is not None
    world.commit(CatalogChange.delete(topic))
    world.acknowledge_all()
    source = world.publish.sources.of_topic(1)[0]
    assert not world.reader.cursors.holds(source, 0, 1, world.clock.time_ns())
    world.clock.advance(61)
    world.reader.tick()
    assert list(world.reader.cursors.all()) == []
    world.commit(CatalogChange.put(Topic(9, TOPIC)))
    assert names(world) == []


def test_a_new_source_is_held_from_its_first_message() -> None:
    world = ReadingWorld()
    world.send("a")
    world.positions(cursor={"name": "x"}, latest=True, first=True)
    world.restart()
    world.send("b")
    world.acknowledge_all()
    world.collect()
    assert stored(world) == [(0, 1)]  # what was before the start is gone, with its source
    (cursor,) = world.call("ListCursors", topic=TOPIC).cursors
    assert cursor.lag_messages == 1


def test_many_restarts_leave_a_bounded_state() -> None:
    world = ReadingWorld()
    sizes = []
    for life in range(200):
        world.send(f"message {life}")
        last = world.positions(cursor={"name": "x"}, first=life == 0).sources[-1]
        processed = [{"source": last.source, "end": last.end - 1}]  # one message behind
        assert not world.positions(cursor={"name": "x"}, processed=processed).lost
        world.reader.tick()
        world.acknowledge_all()
        world.collect()
        world.settle()
        if life % 7 == 0:
            world.checkpoint()
        sizes.append(sum(len(fact) for fact in world.reader.cursors.facts()))
        world.restart()
    assert max(sizes) < 200
    cursor = next(world.reader.cursors.all())
    assert len(cursor.positions) + len(cursor.done) <= 2


def test_a_source_that_goes_leaves_nothing_in_a_cursor() -> None:
    world = ReadingWorld()
    world.send("a")
    world.positions(cursor={"name": "x"}, latest=True, first=True)
    world.restart()
    world.send("b")
    new = world.positions().sources[-1].source
    world.positions(cursor={"name": "x"}, processed=[{"source": new, "end": 1}])
    (cursor,) = world.reader.cursors.all()
    assert len(cursor.done) == 1
    world.acknowledge_all()
    world.collect()
    assert cursor.done == set()
    assert cursor.positions == {new: 1}
    assert cursor.lost == []


def test_a_dead_cursor_remembers_only_so_many_losses() -> None:
    world = ReadingWorld()
    world.send("first")
    world.positions(cursor={"name": "x", "retention_seconds": 1, "expiration_seconds": 10**8}, first=True)
    for _ in range(150):
        world.restart()
        world.send("more")
        world.acknowledge_all()
        world.clock.advance(10)
        world.collect()
    (cursor,) = world.reader.cursors.all()
    assert len(cursor.lost) <= 100
    assert len(cursor.positions) + len(cursor.done) <= 2


def test_refusals() -> None:
    world = ReadingWorld()
    for bad in (
        {"name": ""},
        {"name": "x" * 256},
        {"name": "x", "retention_seconds": -1},
        {"name": "x", "retention_bytes": -1},
        {"name": "x", "expiration_seconds": 10**12},
    ):
        with pytest.raises(Exception, match="cursor") as refusal:
            world.positions(cursor=bad, first=True)
        assert refusal.value.code == InvalidArgument("", "").code  # type: ignore[attr-defined]
    assert names(world) == []
    with pytest.raises(Exception, match="no cursor 'x'") as missing:
        world.call("DeleteCursor", topic=TOPIC, name="x")
    assert missing.value.code == NotFound("").code  # type: ignore[attr-defined]
    cursors = world.reader.cursors
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
    world = ReadingWorld()
    table = SourceTable(10**12, 3)
    cursors = Cursors(table, world.publish.catalog, world.publish.clock, lambda topic: 0.0)
    source, _ = table.open_for(1)
    source.end = 9
    cursor = cursors.begin(1, "x", CursorLimits(5, 6, 7), {source.number: 4})
    cursor.lost = [OffsetRange(1, 2, 3)]
    again = Cursors(table, world.publish.catalog, world.publish.clock, lambda topic: 0.0, cursors.facts())
    cursor.note_written()
    assert next(again.all()) == cursor


def test_a_reader_whose_cursor_was_deleted_hears_of_sources_that_are_gone() -> None:
    """Nobody kept for it what it had not read there; it hears so until it has gone on, over a restart too."""
    world = ReadingWorld()
    world.send("a", "b", "c")
    (source,) = world.positions(cursor={"name": "x"}, first=True).sources
    processed = [{"source": source.source, "end": 2}]
    assert not world.positions(cursor={"name": "x"}, processed=processed).lost
    world.call("DeleteCursor", topic=TOPIC, name="x")
    world.restart()  # the source is sealed by it, and goes
    world.acknowledge_all()
    world.collect()
    assert not stored(world)
    for _ in range(2):
        (lost,) = world.positions(cursor={"name": "x"}, processed=processed).lost
        assert (lost.source, lost.begin, lost.end) == (source.source, 2, 3)
    world.send("d")
    (newer,) = world.positions().sources
    assert not world.positions(cursor={"name": "x"}, processed=[{"source": newer.source, "end": 0}]).lost
