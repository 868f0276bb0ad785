"""Errors at every call of the disks while a store is opened and closed, one after the other; then all is well again.

Whatever an opening or a closing that failed half-way leaves behind, the next one opens and has all that was
acknowledged.
"""

from __future__ import annotations

import errno

import pytest

from syncpoint.runtime.files import DiskUnreachable
from syncpoint.storage.errors import StorageError
from syncpoint.storage.quorum import AckRule
from tests.kit.disks import World

THREE, GRID = AckRule.single(3), AckRule.grid(3, 3)
DOMAINS = {1: (1, 2), 3: (3, 4, 5, 6, 7, 8)}  # what fails: two of three disks, or of three domains


class From:
    """From the nth call on, these disks fail; `calls` counts all calls, of any disk."""

    def __init__(self, world: World, first: int, slots: tuple[int, ...], error: type[OSError]) -> None:
        self.calls = 0
        self._first, self._error = first, error
        self._roots = [world.roots[slot] for slot in slots]

    def __call__(self, operation: str, path: str) -> None:
        self.calls += 1
        if self.calls > self._first and any(path == root or path.startswith(root + "/") for root in self._roots):
            raise self._error(errno.ETIMEDOUT if self._error is DiskUnreachable else errno.EIO, "injected", path)


def lived(rule: AckRule) -> World:
    """An owner was killed with acknowledged entries in several segments, and a tail that the disks have in part."""
    world = World(1, len(rule), rule, segment_entries_max=8, pool_segments=0, prewrite_bytes_per_s=1 << 30)
    world.open()
    for number in range(10):
        world.publish(number % 2, 1, 50)
        world.note()
    world.commit()
    assert not world.waiting
    for _ in range(3):
        world.note()
    world.store.flush()
    world.run("syncpoint-write-0")
    world.kill()
    return world


def attempt(world: World) -> None:
    """Open, write a little, close; it may fail at any point."""
    try:
        world.open()
        world.note()
        world.store.flush()
        world.settle(3)
        world.store.close(0.1)
        world.deliver()
    except StorageError:
        pass
    world.kill()


@pytest.mark.parametrize("error", [OSError, DiskUnreachable])
@pytest.mark.parametrize("rule", [THREE, GRID], ids=["3", "3x3"])
def test_it_opens_again_wherever_two_domains_left(rule: AckRule, error: type[OSError]) -> None:
    slots = DOMAINS[len(rule) // 3]
    world = lived(rule)
    before = [world.files.snapshot(root) for root in world.roots]
    books = dict(world.acked), set(world.acked_facts)
    counting = From(world, 1 << 30, (), error)
    world.files.faults.append(counting)
    attempt(world)
    calls = counting.calls
    assert calls > 100, "the schedule is not what it was meant to be"
    stride = 1 if rule is THREE else calls // 40 | 1
    for first in range(0, calls + stride, stride):
        for root, content in zip(world.roots, before, strict=True):
            world.files.restore(root, content)
        world.acked, world.acked_facts = dict(books[0]), set(books[1])
        world.files.faults.append(From(world, first, slots, error))
        try:
            attempt(world)
            world.open()
            world.judge()
        except BaseException as failure:
            failure.add_note(f"disks {slots} failed from call {first} of {calls} on")
            raise
        world.kill()
