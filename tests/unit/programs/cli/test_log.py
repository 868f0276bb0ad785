"""Looking into disks: which folders are read, what is printed, and that a running server keeps its disks to itself.

Tables and exit codes are tested with made-up reports, the whole way with disks of a real store.
"""

import fcntl
import json

import pytest

from syncpoint.base.runtime.environment import Environment
from syncpoint.log.storage.disk import inspect_disks

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
    reported = {
        "ok": True,
        "problems": [],
        "disks": [],
        "logs": [{"log": 1, "segments": [SEGMENT], "void": []}],
        "asked": None,
    }

    def verify(disks):
        reported["asked"] = tuple(disks)
        return reported

    monkeypatch.setattr(inspect_disks, "verify", verify)
    return reported


def test_verify(run, disk, report):
    result = run("log", "verify", "--data", str(disk.parent))
    assert result.exit_code == 0, result.output
    assert report["asked"] == (disk,)
    assert "1-9" in result.stdout
    assert "All is well." in result.stdout


def test_verify_reports_problems(run, disk, report):
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

    monkeypatch.setattr(inspect_disks, "dump", dump)
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
    assert "disk-1 does not exist" in result.stderr


@pytest.fixture
def filled(tmp_path):
    """Three disks of a real store that was stopped."""
    from syncpoint.log.storage.settings import StorageSettings
    from syncpoint.log.storage.store import EntryKind, Store

    disks = [tmp_path / name for name in "abc"]
    reported: list = []
    store = Store.open(
        disks,
        StorageSettings(segment_bytes=1 << 20, pool_segments=0),
        Environment(notify=reported.append),
    )
    store.append(EntryKind.MESSAGES, b"one", source=store.log_counter << 24, first_offset=0, count=3)
    store.close()
    return disks


def words_for(disks):
    return [word for disk in disks for word in ("--disk", str(disk))]


def test_verify_and_dump_of_real_disks(run, filled):
    result = run("log", "verify", *words_for(filled))
    assert result.exit_code == 0, result.output
    reported = json.loads(run("log", "verify", *words_for(filled), "--format", "json").stdout)
    assert reported["ok"]
    (segment,) = [segment for one in reported["logs"] for segment in one["segments"] if segment["last_position"]]
    assert set(segment["copies"].values()) == {"good"}
    assert segment["good_copies"] == 3
    lines = run("log", "dump", *words_for(filled), "--payloads", "--format", "json").stdout.splitlines()
    (entry,) = [one for one in map(json.loads, lines) if one["kind"] == "MESSAGES"]
    assert (entry["source"], entry["first_offset"], entry["count"]) == (1 << 24, 0, 3)
    assert bytes.fromhex(entry["payload"]) == b"one"


def test_verify_finds_a_flipped_bit_on_real_disks(run, filled):
    (path,) = [path for path in filled[1].rglob("*.seg") if b"one" in path.read_bytes()]
    content = bytearray(path.read_bytes())
    content[content.index(b"one")] ^= 1
    path.write_bytes(bytes(content))
    result = run("log", "verify", *words_for(filled))
    assert result.exit_code == 1
    assert f"{path}: frame at " in result.stdout
    assert "2 of 3" in result.stdout
    lines = run("log", "dump", "--disk", str(filled[0]), "--format", "json").stdout.splitlines()
    assert "MESSAGES" in {json.loads(line)["kind"] for line in lines}


def test_recover_of_healthy_disks(run, filled):
    words = [word for disk in filled for word in ("--disk", str(disk))]
    result = run("log", "recover", *words)
    assert result.exit_code == 0, result.output
    assert "Nothing acknowledged is lost" in result.stdout
    reported = json.loads(run("log", "recover", *words, "--format", "json").stdout)
    assert reported["problems"] == []
    assert not any((disk / "audit").exists() for disk in filled)


def test_recover_gives_up_only_on_request(run, filled):
    words = [word for disk in filled for word in ("--disk", str(disk))]
    for disk in filled[:2]:
        for path in sorted(disk.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    result = run("log", "recover", *words)
    assert result.exit_code == 1
    assert "LOST  segment 1 of log 1 needs at least 2 of its 3 disks" in result.stdout
    assert f"{1 << 24}: " in result.stdout
    assert "000000000003 and later" in result.stdout
    assert not any((disk / "audit").exists() for disk in filled)
    assert run("log", "recover", *words, "--accept-loss").exit_code == 1, "nobody said yes"
    assert not any((disk / "audit").exists() for disk in filled)
    result = run("log", "recover", *words, "--accept-loss", "--yes")
    assert result.exit_code == 0, result.output
    for disk in filled:
        (audit,) = (disk / "audit").iterdir()
        assert json.loads(audit.read_text())["state"] == "done"
    assert run("log", "recover", *words).exit_code == 0


def test_recover_wants_a_folder_for_each_disk(run, filled):
    result = run("log", "recover", "--disk", str(filled[0]))
    assert result.exit_code == 1
    assert "give an empty folder" in result.stderr
