"""Looking into disks: which folders are read, what is printed, and that a running server keeps its disks to itself."""

import fcntl
import json

import pytest

from syncpoint.storage import inspect

ENTRY = {
    "log": 1,
    "position": 7,
    "kind": "MESSAGES",
    "bytes": 90,
    "source": 5,
    "first_offset": 3,
    "count": 2,
    "segment": 1,
}
SEGMENT = {
    "segment": 1,
    "first_position": 1,
    "last_position": 9,
    "sealed": True,
    "copies": {"/a/1.seg": "good"},
    "good_copies": 1,
    "lost": [],
}


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "data" / "disk-1"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    return folder


@pytest.fixture
def report(monkeypatch):
    """What the library would have found, and the disks it was asked about."""
    told = {
        "ok": True,
        "problems": [],
        "disks": [],
        "logs": [{"log": 1, "segments": [SEGMENT], "void": []}],
        "asked": None,
    }

    def verify(disks):
        told["asked"] = tuple(disks)
        return told

    monkeypatch.setattr(inspect, "verify", verify)
    return told


def test_verify(run, disk, report):
    result = run("log", "verify", "--data", str(disk.parent))
    assert result.exit_code == 0, result.output
    assert report["asked"] == (disk,)
    assert "1-9" in result.stdout
    assert "All is well." in result.stdout


def test_verify_tells_problems(run, disk, report):
    report |= {"ok": False, "problems": ["segment 4 of log 1 is on no disk"]}
    result = run("log", "verify", "--disk", str(disk))
    assert result.exit_code == 1
    assert "segment 4 of log 1" in result.stdout
    assert "repaired" in result.stderr


def test_dump(run, disk, monkeypatch):
    asked = {}

    def dump(disks, **options):
        asked.update(options)
        return iter([ENTRY, ENTRY | {"position": 8, "kind": "ACKS"}, ENTRY])

    monkeypatch.setattr(inspect, "dump", dump)
    words = ["log", "dump", "--disk", str(disk), "--limit", "2", "--log", "1", "--source", "5"]
    lines = run(*words).stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["POSITION", "7", "8"]
    assert asked == {"log": 1, "source": 5, "payloads": False}
    lines = run(*words, "--format", "json").stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["MESSAGES", "ACKS"]


def test_a_running_server_keeps_its_disks_to_itself(run, disk, report):
    with (disk / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        result = run("log", "verify", "--disk", str(disk))
    assert result.exit_code == 1
    assert "Stop it first" in result.stderr
    assert report["asked"] is None


def test_a_folder_that_is_no_disk(run, disk, report):
    assert run("log", "verify", "--disk", str(disk.parent)).exit_code == 1
    assert report["asked"] is None
    wiped = disk.parent / "wiped"
    wiped.mkdir()
    result = run("log", "verify", "--disk", str(disk), "--disk", str(wiped))
    assert result.exit_code == 0
    assert "wiped disk" in result.stderr
    assert report["asked"] == (disk, wiped)


def test_a_disk_that_is_not_there(run, tmp_path):
    result = run("log", "dump", "--data", str(tmp_path))
    assert result.exit_code == 1
    assert "disk-1 is not there" in result.stderr
