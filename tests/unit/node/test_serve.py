"""What a server says when it starts, and when it cannot for want of disks."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from syncpoint.log.storage.errors import DisksMissing
from syncpoint.log.storage.settings import StorageSettings
from syncpoint.node.serve import FAILED, run, ways_out
from syncpoint.node.settings import ServeSettings

LOST = DisksMissing("too few", missing=["00ff"])


def test_that_it_is_ready_is_the_last_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = []

    def announce(endpoint: str) -> None:
        before.append((endpoint, capsys.readouterr().out))
        os.kill(os.getpid(), signal.SIGTERM)

    storage = StorageSettings(segment_bytes=1 << 20, pool_segments=0)
    assert run(ServeSettings(port=0, data=tmp_path, storage=storage), announce) == 0
    ((endpoint, printed),) = before
    assert not printed
    console = f"http://{endpoint}/console/"
    assert capsys.readouterr().out == f"syncpoint ready on {endpoint} (console: {console})\n"


def test_two_of_three_disks_emptied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disks = tuple(tmp_path / name for name in ("a", "b", "the third"))
    storage = StorageSettings(segment_bytes=1 << 20, pool_segments=0)
    settings = ServeSettings(port=0, data=tmp_path / "data", disks=disks, storage=storage)
    assert run(settings, lambda endpoint: os.kill(os.getpid(), signal.SIGTERM)) == 0
    shutil.rmtree(disks[0])
    shutil.rmtree(disks[1])
    capsys.readouterr()
    assert run(settings) == FAILED
    reported = capsys.readouterr().err
    assert f"{disks[0]} (empty or not mounted: no disk.json)" in reported
    assert f"{disks[1]} (empty or not mounted: no disk.json)" in reported
    assert f"{disks[2]} (" not in reported
    assert f"syncpoint log recover --disk {disks[0]} --disk {disks[1]} --disk '{disks[2]}'\n" in reported
    assert "--accept-loss" in reported


def test_without_disks_of_its_own_the_data_folder_is_named() -> None:
    assert "syncpoint log recover --data some/data\n" in ways_out(LOST, ServeSettings(data=Path("some/data")))


def test_disks_that_only_failed_are_not_given_up() -> None:
    assert ways_out(DisksMissing("1 of 3 disks are usable", disks=["a"]), ServeSettings()) == ""
