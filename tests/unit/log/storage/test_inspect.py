"""The offline tools say what is wrong, and change nothing."""

from __future__ import annotations

import json

import pytest

from syncpoint.log.storage.disk.inspect_disks import dump, verify
from syncpoint.log.storage.segment import DATA_START, PAGE
from tests.kit.disks import Harness


def filled(disks: int = 1, close: bool = True) -> Harness:
    harness = Harness.opened(1, disks)
    for number in range(90):
        harness.publish(number % 3)
    harness.note()
    harness.commit()
    if close:
        harness.store.close()
    harness.kill()
    return harness


def test_a_healthy_disk() -> None:
    for close in (True, False):
        harness = filled(3, close)
        before = {root: harness.files.snapshot(root) for root in harness.roots}
        report = verify(harness.roots, files=harness.files)
        assert report["ok"], report
        assert json.loads(json.dumps(report)) == report
        entries = list(dump(harness.roots, files=harness.files, payloads=True))
        assert len(entries) == 91
        assert entries[0]["kind"] == "MESSAGES"
        assert entries[-1]["kind"] == "LEDGER"
        assert {root: harness.files.snapshot(root) for root in harness.roots} == before


@pytest.mark.parametrize(
    ("offset", "named"),
    [
        (100, "one page of the header is damaged"),
        (PAGE + 100, "one page of the header is damaged"),
        (DATA_START + 10, f"frame at {DATA_START}: header"),
        (DATA_START + 100, f"frame at {DATA_START}: payload"),
        (-PAGE - 50, "index page at "),
        (-2 * PAGE + 30, "index page at "),
    ],
)
def test_damage_in_each_place_is_named(offset: int, named: str) -> None:
    harness = filled()
    path = harness.files.paths("/d0/logs")[0]
    harness.files.flip(path, offset % len(harness.files.content(path)))
    report = verify(harness.roots, files=harness.files)
    (problem,) = report["problems"]
    assert problem.startswith(f"{path}: {named}")
    assert not report["ok"]


def sealed(harness: Harness) -> dict[int, bool]:
    log = verify(harness.roots, files=harness.files)["logs"][0]
    return {one["segment"]: one["sealed"] for one in log["segments"]}


@pytest.mark.parametrize("offset", [-PAGE + 6, -100])
def test_a_damaged_trailer_leaves_a_segment_that_is_not_sealed(offset: int) -> None:
    """Like one whose writer died before: nothing of it is lost, and the next opening seals it."""
    harness = filled()
    path = harness.files.paths("/d0/logs")[0]
    assert sealed(harness) == {1: True, 2: True}
    harness.files.flip(path, offset % len(harness.files.content(path)))
    report = verify(harness.roots, files=harness.files)
    (log,) = report["logs"]
    assert sealed(harness) == {1: False, 2: True}
    assert log["segments"][0]["copies"] == {path: "good"}
    assert report["ok"]
    harness.open()
    harness.judge()
    harness.stop()
    assert sealed(harness)[1]


def test_a_torn_tail_is_no_problem() -> None:
    harness = Harness.opened(3, 1)
    for _ in range(10):
        harness.persist()
    harness.fill(5, 0, 1, 9_000)
    harness.store.flush()
    harness.fail(0, operations=("fdatasync",))
    harness.quiesce()
    harness.power_cut()
    assert verify(harness.roots, files=harness.files)["ok"]


def test_a_missing_segment_is_named() -> None:
    harness = filled()
    path = harness.files.paths("/d0/logs")[0]
    harness.files.unlink(path)
    report = verify(harness.roots, files=harness.files)
    assert any("missing on every disk" in problem for problem in report["problems"])
