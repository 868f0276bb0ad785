"""Errors at every call of the disks while a store is opened and closed, one after the other; then all is well again.

Whatever an opening or a closing that failed half-way leaves behind, the next one opens and has all that was
acknowledged.
"""

from __future__ import annotations

import errno

import pytest

from syncpoint.base.runtime.files import DiskUnreachable
from syncpoint.log.storage.errors import StorageError
from syncpoint.log.storage.quorum import AckRule
from tests.kit.disks import Harness

pytestmark = pytest.mark.shows("openings")

THREE, GRID = AckRule.single(3), AckRule.grid(3, 3)
DOMAINS = {1: (1, 2), 3: (3, 4, 5, 6, 7, 8)}  # what fails: two of three disks, or of three domains


class From:
    """From the nth call on, these disks fail; `calls` counts all calls, of any disk."""

    def __init__(self, harness: Harness, first: int, slots: tuple[int, ...], error: type[OSError]) -> None:
        self.calls = 0
        self._first, self._error = first, error
        self._roots = [harness.roots[slot] for slot in slots]

    def __call__(self, operation: str, path: str) -> None:
        self.calls += 1
        if self.calls > self._first and any(path == root or path.startswith(root + "/") for root in self._roots):
            raise self._error(errno.ETIMEDOUT if self._error is DiskUnreachable else errno.EIO, "injected", path)


def lived(rule: AckRule) -> Harness:
    """An owner was killed with acknowledged entries in several segments, and a tail that the disks have in part."""
    harness = Harness(1, len(rule), rule, segment_entries_max=8, pool_segments=0, prewrite_bytes_per_s=1 << 30)
    harness.open()
    for number in range(10):
        harness.publish(number % 2, 1, 50)
        harness.note()
    harness.commit()
    assert not harness.waiting
    for _ in range(3):
        harness.note()
    harness.store.flush()
    harness.run("syncpoint-write-0")
    harness.kill()
    return harness


def attempt(harness: Harness) -> None:
    """Open, write a little, close; it may fail at any point."""
    try:
        harness.open()
        harness.note()
        harness.store.flush()
        harness.quiesce(3)
        harness.store.close(0.1)
        harness.deliver()
    except StorageError:
        pass
    harness.kill()


@pytest.mark.parametrize("error", [OSError, DiskUnreachable])
@pytest.mark.parametrize("rule", [THREE, GRID], ids=["3", "3x3"])
def test_it_opens_again_wherever_two_domains_left(rule: AckRule, error: type[OSError]) -> None:
    slots = DOMAINS[len(rule) // 3]
    harness = lived(rule)
    before = [harness.files.snapshot(root) for root in harness.roots]
    books = dict(harness.acked), set(harness.acked_facts)
    counting = From(harness, 1 << 30, (), error)
    harness.files.faults.append(counting)
    attempt(harness)
    calls = counting.calls
    assert calls > 100, "the schedule is not what it was meant to be"
    # Of three disks each call is the first one to fail, with one error or the other.
    stride = 2 if rule is THREE else calls // 40 | 1
    for first in range(error is OSError, calls + stride, stride):
        for root, content in zip(harness.roots, before, strict=True):
            harness.files.restore(root, content)
        harness.acked, harness.acked_facts = dict(books[0]), set(books[1])
        harness.files.faults.append(From(harness, first, slots, error))
        try:
            attempt(harness)
            harness.open()
            harness.judge()
        except BaseException as failure:
            failure.add_note(f"disks {slots} failed from call {first} of {calls} on")
            raise
        harness.kill()
