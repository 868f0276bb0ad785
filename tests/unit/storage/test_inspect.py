"""The offline tools say what is wrong, and change nothing."""

from __future__ import annotations

import json

import pytest

from syncpoint.storage.disk.inspect_disks import dump, verify
from syncpoint.storage.segment import DATA_START, PAGE
from tests.kit.disks import World


def filled(disks: int = 1, close: bool = True) -> World:
    world = World.opened(1, disks)
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


@pytest.mark.parametrize(
    ("offset", "named"),
    [
        (100, "a page of the header is damaged"),
        (PAGE + 100, "a page of the header is damaged"),
        (DATA_START + 10, f"frame at {DATA_START}: header"),
        (DATA_START + 100, f"frame at {DATA_START}: payload"),
        (-PAGE - 50, "index page at "),
        (-2 * PAGE + 30, "index page at "),
    ],
)
def test_damage_in_each_place_is_named(offset: int, named: str) -> None:
    world = filled()
    path = world.files.paths("/d0/logs")[0]
    world.files.flip(path, offset % len(world.files.content(path)))
    report = verify(world.roots, files=world.files)
    (problem,) = report["problems"]
    assert problem.startswith(f"{path}: {named}")
    assert not report["ok"]


def sealed(world: World) -> dict[int, bool]:
    log = verify(world.roots, files=world.files)["logs"][0]
    return {one["segment"]: one["sealed"] for one in log["segments"]}


@pytest.mark.parametrize("offset", [-PAGE + 6, -100])
def test_a_damaged_trailer_leaves_a_segment_that_is_not_sealed(offset: int) -> None:
    """Like one whose writer died before: nothing of it is lost, and the next opening seals it."""
    world = filled()
    path = world.files.paths("/d0/logs")[0]
    assert sealed(world) == {1: True, 2: True}
    world.files.flip(path, offset % len(world.files.content(path)))
    report = verify(world.roots, files=world.files)
    (log,) = report["logs"]
    assert sealed(world) == {1: False, 2: True}
    assert log["segments"][0]["copies"] == {path: "good"}
    assert report["ok"]
    world.open()
    world.judge()
    world.stop()
    assert sealed(world)[1]


def test_a_torn_tail_is_no_problem() -> None:
    world = World.opened(3, 1)
    for _ in range(10):
        world.persist()
    world.fill(5, 0, 1, 9_000)
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
