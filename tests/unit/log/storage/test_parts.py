"""Small parts against simple models: caches, sources, checkpoints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.runtime.step_workers import ThreadWorkers
from syncpoint.log.storage.cache import TailCache, joined
from syncpoint.log.storage.reader import ReadAhead, limit
from syncpoint.log.storage.record import EntryKind, Queued, StoredBatch
from syncpoint.log.storage.recovery.checkpoints import CheckpointWriter
from syncpoint.log.storage.settings import StorageSettings
from syncpoint.log.storage.source_index import SourceIndex


def entry(position: int, source: int, first: int, count: int, size: int = 10) -> Queued:
    payload = b"%d" % position + bytes(size)
    return Queued(1, position, source, first, count, 5, len(payload), 0, (payload,))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 3000)), max_size=60),
    st.integers(0, 3),
    st.integers(0, 100),
    st.integers(0, 60),
    st.integers(1, 6000),
)
def test_tail_cache_against_a_list(rows, source: int, begin: int, persisted: int, max_bytes: int) -> None:
    cache = TailCache(8_000)
    ends: dict[int, int] = {}
    kept: list[Queued] = []
    for position, (one, count, size) in enumerate(rows, 1):
        item = entry(position, one, ends.get(one, 0), count, size)
        ends[one] = ends.get(one, 0) + count
        cache.add(item)
        kept.append(item)
        while sum(e.length + 400 for e in kept) > 8_000:
            kept.pop(0)
    assert cache.bytes <= 8_000
    mine = [e for e in kept if e.source == source]
    found = cache.get(source, begin, max_bytes, persisted)
    if not mine or begin < mine[0].first_offset:
        assert found is None
        return
    expected = []
    for e in mine:
        if e.first_offset + e.count <= begin:
            continue
        size = sum(len(b.payload) for b in expected)
        if e.position > persisted or (expected and size + e.length > max_bytes):
            break
        expected.append(StoredBatch(e.source, e.first_offset, e.count, e.time_ns, joined(e.buffers)))
    assert found == expected


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=25), st.data()
)
def test_source_map_against_a_set(pairs: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Whatever was added and removed: the candidates contain every segment that may hold what follows an offset."""
    sources = SourceIndex()
    model: dict[int, tuple[int, int]] = {}
    for segment, (first, span, order) in enumerate(pairs):
        number = segment // (order + 1)
        old = model.get(number)
        model[number] = (first, first + span) if old is None else (min(old[0], first), max(old[1], first + span))
        sources.add(9, number, first, first + span)
    for number in data.draw(st.sets(st.sampled_from(sorted(model)), max_size=len(model))):
        sources.remove(9, number)
        del model[number]
    if not model:
        assert 9 not in sources
        assert sources.bounds(9) is None
        return
    low = min(first for first, _ in model.values())
    assert sources.bounds(9)[0] == low
    begin = data.draw(st.integers(0, 26))
    candidates = sources.candidates(9, begin, 100)
    reachable = [number for number, (_, end) in model.items() if end > begin]
    assert set(reachable) <= set(candidates)
    assert sorted(sources.segments(9)) == sorted(model)


def test_source_map_costs_little() -> None:
    import tracemalloc

    tracemalloc.start()
    sources = SourceIndex()
    for source in range(10_000):
        for segment in range(3):
            sources.add(source, segment, segment * 100, segment * 100 + 100)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used / 10_000 < 1_000
    assert len(sources) == 10_000


def test_read_ahead_keeps_what_was_fetched() -> None:
    ahead = ReadAhead(1_000)
    batches = [StoredBatch(1, 10 * n, 10, 0, bytes(100)) for n in range(5)]
    ahead.put(1, batches)
    assert ahead.take(1, 500, 999) == []
    assert ahead.take(2, 0, 999) == []
    assert ahead.take(1, 15, 250) == batches[1:3]
    assert ahead.take(1, 0, 999) == []
    assert ahead.take(1, 30, 999) == batches[3:]
    assert ahead.take(1, 30, 999) == []
    assert limit(batches, 1) == batches[:1]


def test_checkpoint_numbers_its_parts() -> None:
    written = []

    def append(kind: int, payload: bytes, source: int, first: int, count: int) -> int:
        written.append((kind, payload, source, first, count))
        return len(written)

    checkpoint = CheckpointWriter(append, iter([b"aa", b"bb", b"cc"]))
    assert not checkpoint.step(3)
    assert len(written) == 3
    assert checkpoint.step()
    assert checkpoint.step()
    assert written == [
        (EntryKind.CHECKPOINT_BEGIN, b"", 0, 0, 0),
        (EntryKind.CHECKPOINT_PART, b"aa", 1, 0, 0),
        (EntryKind.CHECKPOINT_PART, b"bb", 1, 1, 0),
        (EntryKind.CHECKPOINT_PART, b"cc", 1, 2, 0),
        (EntryKind.CHECKPOINT_END, b"", 0, 1, 3),
    ]


def test_settings_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="at least"):
        StorageSettings(segment_bytes=1)
    with pytest.raises(ValueError, match="sometimes"):
        StorageSettings(durability="sometimes")


def test_no_wake_is_lost() -> None:
    done: list[int] = []
    todo: list[int] = []

    def step() -> float | None:
        while todo:
            done.append(todo.pop(0))
        return None

    worker = ThreadWorkers().start("test", step)
    for number in range(2_000):
        todo.append(number)
        worker.wake()
    for _ in range(500):
        if len(done) == 2_000:
            break
        import time

        time.sleep(0.01)
    assert worker.stop(5)
    assert done == list(range(2_000))
