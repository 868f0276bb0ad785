"""Deletion and checkpoints under unexpected exceptions: what was not judged or written whole does not count."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from syncpoint.log.storage.deletion import Deletion
from syncpoint.log.storage.disk.segment_catalog import Segment
from syncpoint.log.storage.index import DamagedIndex, Index, IndexRecord, SealedIndex
from syncpoint.log.storage.record import EntryKind, Header
from syncpoint.log.storage.recovery.checkpoints import CheckpointWriter
from tests.kit.disks import Harness

pytestmark = pytest.mark.shows("deletion")

BATCHES = 90


class Unexpected(BaseException):
    """Of a kind that nobody names."""


def filled(**settings: int) -> Harness:
    harness = Harness.opened(1, disks=3, segment_entries_max=20, scrub_bytes_s=0, **settings)
    harness.fill(BATCHES)
    harness.commit()
    for _ in range(3):
        harness.clock.advance(1.1)
        harness.quiesce()
    return harness


def collect(harness: Harness, live: Callable[[int, int, int, int], bool], steps: int = 10) -> int:
    """Deletion as its caller does it, who tries again; returns how often it failed."""
    failed = 0
    for _ in range(steps):
        try:
            harness.store.collect(live)
        except Unexpected:
            failed += 1
        harness.quiesce()
    return failed


def left(harness: Harness) -> int:
    return sum(len(harness.read_all(source)) for source in harness.store.sources())


@pytest.mark.parametrize("page", range(6))
def test_an_index_page_that_cannot_be_loaded_once_deletes_nothing(page: int) -> None:
    harness = filled()
    load, calls = harness.store.catalog.load_soon, [0]

    def failing(*of: object) -> bytes:
        calls[0] += 1
        if calls[0] == page + 1:
            raise Unexpected
        return load(*of)

    harness.store.catalog.load_soon = failing
    failed = collect(harness, harness.live)
    assert failed == (1 if calls[0] > page else 0)
    assert left(harness) == BATCHES
    assert collect(harness, lambda *batch: False) == (1 if failed == 0 and calls[0] > page else 0)
    assert left(harness) < BATCHES, "deletion goes on once the pages are there"


@pytest.mark.parametrize("at", [0, 1, 7, 19, 20, 45])
def test_a_judgement_that_raises_keeps_what_it_was_about(at: int) -> None:
    harness = filled()
    asked = [0]

    def live(source: int, first: int, count: int, time_ns: int) -> bool:
        asked[0] += 1
        if asked[0] % 50 == at:
            raise Unexpected
        return True

    assert collect(harness, live) > 0
    assert collect(harness, harness.live) == 0
    assert left(harness) == BATCHES


def test_a_look_that_saw_too_few_records_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = filled()
    right = SealedIndex.messages

    def short(self: SealedIndex) -> Iterator[IndexRecord]:
        return iter(list(right(self))[:-1])

    monkeypatch.setattr(SealedIndex, "messages", short)
    for number, key in enumerate(sorted(harness.acked)):
        if number % 20 != 19:
            harness.dead.add(key)  # but for the last of each segment, which is not shown
    collect(harness, harness.live, 20)
    monkeypatch.undo()
    harness.judge()


@pytest.mark.parametrize("all_sources", [True, False])
@pytest.mark.parametrize("judged", [1, 15, 20, 45])
def test_what_was_judged_before_more_was_needed_does_not_count(judged: int, all_sources: bool) -> None:
    """In the middle of a segment, and where segments only wait for the disks."""
    harness = filled(collect_entries_step=judged)
    more = None if all_sources else list(harness.store.sources())
    harness.note()  # not synced: nothing that is judged from now on goes before it is
    harness.store.collect(lambda *batch: False)
    for _ in range(10):
        harness.store.collect(harness.live, 1, lambda earlier: more)
        harness.quiesce()
    assert left(harness) == BATCHES
    for _ in range(200):
        harness.store.collect(lambda *batch: False, 1)
        harness.quiesce()
    assert left(harness) < BATCHES, "deletion goes on"


def of_topics(topics: int, batches: int, **settings: int) -> Harness:
    harness = Harness.opened(1, segment_entries_max=20, scrub_bytes_s=0, **settings)
    for number in range(batches):
        harness.publish(number % topics, size=200)
    harness.commit()
    return harness


def test_what_is_needed_of_one_source_does_not_have_the_others_judged_again() -> None:
    harness = of_topics(10, 200, collect_entries_step=3)
    often, judged = harness.store.log_counter << 24, Counter[tuple[int, int]]()

    def live(source: int, first: int, count: int, time_ns: int) -> bool:
        judged[source, first] += 1
        return False

    segments = len(list(harness.store.catalog))
    for basis in range(1, 300):
        harness.store.collect(live, basis, lambda earlier: [often])
        harness.quiesce()
    assert len(list(harness.store.catalog)) < segments / 2
    assert {times for (source, _), times in judged.items() if source != often} == {1}


@pytest.mark.parametrize("seed", range(30))
def test_what_is_needed_again_of_one_source_stays_wherever_its_judgement_had_come_to(seed: int) -> None:
    chance = random.Random(seed)
    harness = of_topics(
        4,
        160,
        collect_entries_step=chance.choice([2, 7, 25]),
        copy_bytes_step=1,
        copy_entries_step=chance.choice([1, 5]),
    )
    share = chance.choice([0.0, 0.02, 0.1])
    needed = {key for key in sorted(harness.acked) if chance.random() < share}
    news: list[tuple[int, int]] = []

    def stored(source: int) -> set[tuple[int, int]]:
        return {(source, first) for first, _, _ in harness.read_all(source)}

    def more(earlier: int) -> list[int]:
        return [source for basis, source in news if basis > earlier]

    def live(source: int, first: int, count: int, time_ns: int) -> bool:
        return (source, first) in needed

    for _ in range(250):
        if chance.random() < 0.2 and len(list(harness.store.sources())):
            source = chance.choice(list(harness.store.sources()))
            there = stored(source)
            assert {key for key in needed if key[0] == source} <= there
            needed |= {key for key in sorted(there) if chance.random() < 0.3}
            news.append((len(news) + 1, source))
        needed -= {key for key in sorted(needed) if chance.random() < 0.02}
        if chance.random() < 0.5:
            harness.note()  # what is judged before it is synced has to wait
        harness.store.collect(live, len(news), more)
        if chance.random() < 0.2:
            harness.quiesce()
    harness.commit()
    found = {key for source in harness.store.sources() for key in stored(source)}
    assert needed <= found
    harness.take_checkpoint()
    harness.commit()
    for _ in range(300):
        harness.store.collect(lambda *batch: False, len(news), more)
        harness.quiesce()
    assert len(list(harness.store.catalog)) <= 4, "deletion goes on"


def test_what_is_left_out_by_a_copy_forward_stays_where_more_was_needed_meanwhile() -> None:
    harness = filled()
    needed = {key for number, key in enumerate(sorted(harness.acked)) if number % 10 == 0}
    for _ in range(60):
        if harness.store._deletion.trim._move is not None:
            break
        harness.store.collect(lambda source, first, count, time_ns: (source, first) in needed)
    else:
        raise AssertionError("nothing is copied forward")
    for _ in range(40):
        harness.store.collect(harness.live, 1)
        harness.quiesce()
    harness.judge()


def test_what_is_needed_again_and_again_is_copied_forward_once() -> None:
    harness = filled(copy_bytes_step=1)
    trim, copies, keys = harness.store._deletion.trim, list[tuple[int, int]](), sorted(harness.acked)
    needed, copy = set(keys[::5]), trim._copy

    def copied(header: Header, payload: bytes) -> int:
        copies.append((header.source, header.first_offset))
        return copy(header, payload)

    trim._copy = copied
    basis = 0
    for step in range(300):
        if step < 200 and trim._move is not None and step % 3 == 0:
            basis += 1
            if basis == 2:
                needed.add(keys[1])  # of the segment that is being copied
        harness.store.collect(lambda source, first, count, time_ns: (source, first) in needed, basis)
        harness.quiesce()
    assert basis > 2
    assert keys[1] in copies
    assert len(copies) == len(set(copies))
    harness.dead.update(set(keys) - needed)
    harness.judge()
    stored = {(source, first) for source in harness.store.sources() for first, _, _ in harness.read_all(source)}
    assert needed <= stored < set(keys)


@pytest.mark.parametrize("at", [1, 2])
def test_a_copy_forward_that_breaks_off_keeps_the_original(at: int) -> None:
    harness = filled()
    for number, key in enumerate(sorted(harness.acked)):
        if number % 10:
            harness.dead.add(key)
    append, copies = harness.store._log.append, [0]

    def failing(kind: int, *rest: object) -> object:
        copies[0] += kind == EntryKind.COPY
        if kind == EntryKind.COPY and copies[0] == at:
            raise Unexpected
        return append(kind, *rest)

    harness.store._log.append = failing
    assert collect(harness, harness.live, 40) == 1
    harness.judge()
    harness.store.close()
    harness.deliver()
    harness.kill()
    harness.open()
    harness.judge()


def test_a_read_for_a_copy_that_raises_leaves_the_reader_alive() -> None:
    harness = filled()
    for number, key in enumerate(sorted(harness.acked)):
        if number % 10:
            harness.dead.add(key)
    frames, calls = harness.store._disks.access.frames, [0]

    def failing(*of: object) -> object:
        calls[0] += 1
        if calls[0] == 1:
            raise RuntimeError("no memory for this one")
        return frames(*of)

    harness.store._disks.access.frames = failing
    for _ in range(40):
        harness.store.collect(harness.live)
        harness.quiesce()
    assert calls[0] > 1, "it is tried again"
    harness.judge()
    assert left(harness) < BATCHES


def test_a_checkpoint_whose_parts_raise_never_ends() -> None:
    entries: list[int] = []

    def append(kind: int, payload: bytes, source: int, first_offset: int, count: int) -> int:
        entries.append(kind)
        return len(entries)

    def parts() -> Iterator[bytes]:
        yield b"first"
        raise Unexpected

    checkpoint = CheckpointWriter(append, parts())
    with pytest.raises(Unexpected):
        checkpoint.step()
    assert checkpoint.broken
    with suppress(ValueError):
        checkpoint.step()
    assert EntryKind.CHECKPOINT_END not in entries
    assert checkpoint.end is None


def test_after_a_broken_checkpoint_everything_before_it_is_replayed() -> None:
    harness = Harness.opened(1)
    for _ in range(5):
        harness.note()
    harness.commit()

    def parts() -> Iterator[bytes]:
        yield b"\n".join(sorted(harness.acked_facts)[:2])
        raise Unexpected

    checkpoint = harness.store.checkpoint(parts())
    for _ in range(3):
        with suppress(Unexpected, ValueError):
            checkpoint.step()
    harness.note()
    harness.commit()
    harness.kill()
    harness.open()
    harness.judge()


@pytest.mark.parametrize("at", [0, 35, 89])
def test_a_damaged_index_makes_a_search_by_time_find_too_much_never_too_little(at: int) -> None:
    harness = Harness.opened(1, disks=3, segment_entries_max=20, scrub_bytes_s=0)
    times = []
    for _ in range(BATCHES):
        harness.clock.advance(1.0)
        times.append(harness.clock.time_ns())
        harness.publish()
    harness.commit()
    source = next(iter(harness.store.sources()))
    right = harness.store.offset_at(source, times[at])
    assert right == at * 3
    index = harness.store.catalog.index
    for bad in list(harness.store.catalog):

        def failing(segment: Segment, bad: Segment = bad) -> Index:
            if segment is bad:
                raise DamagedIndex("checksum")
            return index(segment)

        harness.store.catalog.index = failing
        assert harness.store.offset_at(source, times[at]) <= right
    harness.store.catalog.index = index
    assert harness.store.offset_at(source, times[at]) == right


def test_nothing_is_deleted_before_the_facts_that_it_was_judged_by_are_synced() -> None:
    harness = filled()
    before = left(harness)
    harness.note()  # an acknowledgement, for instance: after a crash now it was never given
    for _ in range(10):
        harness.store.collect(lambda *batch: False)
    assert left(harness) == before
    harness.power_cut()
    harness.open()
    assert left(harness) == before
    harness.note()
    harness.store.collect(lambda *batch: False)
    harness.commit()
    collect(harness, lambda *batch: False)
    assert left(harness) < before


def test_segments_of_which_little_is_live_go_at_the_pace_at_which_they_are_judged() -> None:
    harness = Harness.opened(1, segment_entries_max=20, collect_entries_step=20, scrub_bytes_s=0)
    for _ in range(40):
        batches = [harness.publish() for _ in range(20)]
        harness.dead.update(batches[1:])  # somebody slow needs the first one
    harness.take_checkpoint()
    harness.commit()
    before = len(list(harness.store.catalog))
    assert before >= 40
    for _ in range(160):
        harness.store.collect(harness.live)
        harness.quiesce()
    assert len(list(harness.store.catalog)) <= before // 4
    harness.judge()


@pytest.mark.parametrize(
    ("log", "last_position", "controls", "removable"),
    [(2, 99, 1, True), (3, 9, 1, True), (3, 10, 1, False), (3, 11, 1, False), (4, 1, 1, False), (4, 1, 0, True)],
)
def test_a_checkpoint_stands_for_facts_in_front_of_it_and_not_for_itself(
    log: int, last_position: int, controls: int, removable: bool
) -> None:
    """A segment that ends with the beginning of the newest checkpoint, in log 3 at position 10, has that in it."""
    deletion = cast(Any, SimpleNamespace(_control_floor=(3, 10)))
    segment = cast(Any, SimpleNamespace(log=log, last_position=last_position, controls=controls))
    assert Deletion.removable(deletion, segment) is removable
