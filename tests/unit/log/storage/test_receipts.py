"""Receipts: a disk is said to hold an entry only if it was read from there in good order, and synced."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.receipts import CopyState, EntryReceipt
from tests.kit.disks import Harness

pytestmark = pytest.mark.shows("receipts")

HELD, LATE, DAMAGED, UNREACHABLE, ABSENT = CopyState


def opened(disks: int = 3, rule: AckRule | None = None) -> Harness:
    return Harness.opened(
        1, disks=disks, rule=rule, segment_entries_max=20, scrub_bytes_s=0, cache_bytes=2_000, read_ahead_bytes=1_000
    )


def turn(harness: Harness, rounds: int = 30, seconds: float = 0.0, late: str = "") -> None:
    harness.store.flush()
    for _ in range(rounds):
        for name in list(harness.workers.steps):
            if name != late:
                harness.run(name)
        harness.deliver()
        harness.clock.advance(seconds)


def asked(harness: Harness, source: int, offset: int) -> EntryReceipt | None:
    answers: list[EntryReceipt | Exception | None] = []
    harness.store.receipt(source, offset, answers.append)
    for _ in range(20):
        harness.run("syncpoint-read")
        harness.deliver()
    (answer,) = answers
    if isinstance(answer, Exception):
        raise answer
    return answer


def states(found: EntryReceipt | None) -> list[CopyState]:
    assert found is not None
    return [copy.state for copy in found.copies]


@pytest.mark.parametrize("batches", [1, 60])
def test_every_message_has_a_receipt_of_all_disks(batches: int) -> None:
    harness = opened()
    keys = [harness.publish() for _ in range(batches)]
    turn(harness)
    for number, (source, offset) in enumerate(keys, 1):
        found = asked(harness, source, offset + 2)
        assert states(found) == [HELD] * 3
        assert found is not None
        assert (found.position, found.first_offset, found.messages) == (number, offset, 3)
        assert (found.suffices, found.needed) == (True, 2)


def test_what_is_not_stored_has_none() -> None:
    harness = opened()
    source, offset = harness.publish()
    assert asked(harness, source, offset) is None, "not persisted yet"
    turn(harness)
    assert asked(harness, source, offset) is not None
    assert asked(harness, source, offset + 3) is None
    assert asked(harness, source + 1, 0) is None


def test_a_disk_that_has_not_synced_is_late() -> None:
    harness = opened()
    source, offset = harness.publish()
    turn(harness, late="syncpoint-write-1")
    found = asked(harness, source, offset)
    assert states(found) == [HELD, LATE, HELD]
    assert found is not None
    assert found.suffices


def test_a_damaged_copy_is_found_and_what_is_left_may_not_suffice() -> None:
    harness = opened()
    key = harness.publish()
    harness.fill(9)
    turn(harness)
    segment = next(iter(harness.store.catalog))
    harness.files.flip(segment.copies[0].path, 3 * 4096 + 100)
    found = asked(harness, *key)
    assert states(found) == [DAMAGED, HELD, HELD]
    assert found is not None
    assert (found.suffices, found.copies[0].reason) == (True, "checksum mismatch")
    harness.files.flip(segment.copies[2].path, 3 * 4096 + 100)
    found = asked(harness, *key)
    assert states(found) == [DAMAGED, HELD, DAMAGED]
    assert found is not None
    assert not found.suffices


def test_of_a_failed_disk_nothing_is_claimed_and_a_wiped_one_is_filled_again() -> None:
    harness = opened()
    key = harness.publish()
    harness.fill(60)
    turn(harness)
    fault = harness.fail(1, errno.EIO)
    harness.fill(2)
    turn(harness, 10, 0.5)
    assert states(asked(harness, *key)) == [HELD, UNREACHABLE, HELD]
    harness.files.faults.remove(fault)
    turn(harness, 60, 0.5)
    assert harness.store.status().disks[1].state == "ok"
    assert states(asked(harness, *key)) == [HELD] * 3


def test_a_receipt_outlives_restarts() -> None:
    harness = opened()
    keys = [harness.publish() for _ in range(30)]
    turn(harness)
    harness.kill()
    harness.open()
    turn(harness)
    for key in keys:
        assert states(asked(harness, *key)) == [HELD] * 3


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(0, 8)))
def test_a_receipt_suffices_where_the_rule_says_so(spoilt: set[int]) -> None:
    rule = AckRule.grid(3, 3)
    harness = opened(9, rule)
    key = harness.publish()
    harness.fill(9)
    turn(harness)
    segment = next(iter(harness.store.catalog))
    for slot in spoilt:
        harness.files.flip(segment.copies[slot].path, 3 * 4096 + 100)
    found = asked(harness, *key)
    assert states(found) == [DAMAGED if slot in spoilt else HELD for slot in range(9)]
    assert found is not None
    assert found.suffices == rule.can_acknowledge(set(range(9)) - spoilt)
    assert found.needed == 4
