"""The offline tools say what is wrong, and change nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from storage_world import World  # a helper beside the tests; they are imported by path

from syncpoint.storage.inspect import dump, verify
from syncpoint.storage.segment import DATA_START


def filled(disks: int = 1, close: bool = True) -> World:
    world = World(1, disks)
    world.open()
    for number in range(90):
        world.publish(number % 3)
    world.note()
    world.commit()
    if close:
        world.store.close()
    world.kill()
    return world


def test_a_healthy_disk() -> None:
    for close in (True, False):
        world = filled(3, close)
        before = {root: world.files.snapshot(root) for root in world.roots}
        report = verify(world.roots, files=world.files)
        assert report["ok"], report
        assert json.loads(json.dumps(report)) == report
        entries = list(dump(world.roots, files=world.files, payloads=True))
        assert len(entries) == 91
        assert entries[0]["kind"] == "MESSAGES"
        assert entries[-1]["kind"] == "LEDGER"
        assert {root: world.files.snapshot(root) for root in world.roots} == before


def test_damage_in_each_place_is_named() -> None:
    for offset in (100, 4096 + 100, DATA_START + 10, DATA_START + 100, -100, -4090):
        world = filled()
        path = world.files.paths("/d0/logs")[0]
        size = len(world.files.content(path))
        world.files.flip(path, offset % size)
        report = verify(world.roots, files=world.files)
        if offset == -100:  # zeros behind the trailer's fields are under its checksum too
            assert not report["ok"] or report["logs"]
            continue
        assert not report["ok"] or offset == -4090, (offset, report)


def test_a_torn_tail_is_no_problem() -> None:
    world = World(3, 1)
    world.open()
    for _ in range(10):
        world.publish()
        world.commit()
    for _ in range(5):
        world.publish(0, 1, 9_000)
    world.store.flush()
    world.fail(0, operations=("fdatasync",))
    world.settle()
    world.power_cut()
    assert verify(world.roots, files=world.files)["ok"]


def test_a_missing_segment_is_named() -> None:
    world = filled()
    path = world.files.paths("/d0/logs")[0]
    world.files.unlink(path)
    report = verify(world.roots, files=world.files)
    assert any("on no disk" in problem for problem in report["problems"])
