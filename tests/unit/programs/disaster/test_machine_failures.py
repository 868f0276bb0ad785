"""Room of a file system that is taken and given back, and packets of a port, by what nftables gets."""

import os
import tempfile
from pathlib import Path

import pytest

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.programs.disaster import machine_failures
from syncpoint.programs.disaster.drill_failures import check_target, make_failure, undo
from syncpoint.programs.disaster.drill_journal import DrillJournal
from syncpoint.programs.disaster.drill_plan import parse_plan

pytestmark = pytest.mark.shows("drills")
MIB = 1 << 20


def test_the_file_system_of_the_machine_is_not_filled(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(os, "stat", lambda path: os.lstat("/"))
    with pytest.raises(FailedPrecondition, match="the file system of /"):
        machine_failures.check_disk(tmp_path, 0)


def test_a_disk_is_filled_but_for_what_is_left_although_others_take_room(monkeypatch, tmp_path) -> None:
    """A file system of 80 MiB that is imagined, and of which somebody takes 20 MiB in the meantime."""
    room, taken = 80 * MIB, []

    def allocate(handle: int, offset: int, size: int) -> None:
        if sum(taken) + size > room - 20 * MIB:
            raise OSError(28, "No space left on device")
        assert offset == sum(taken)
        taken.append(size)

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    monkeypatch.setattr(machine_failures, "_free_bytes", lambda folder: room - sum(taken))
    machine_failures.fill_disk(tmp_path / "fill", 30 * MIB)
    assert sum(taken) == 50 * MIB
    taken.clear()
    (tmp_path / "fill").unlink()
    machine_failures.fill_disk(tmp_path / "fill", 0)
    assert room - 20 * MIB - sum(taken) < 4096
    with pytest.raises(FailedPrecondition, match="File exists"):  # another drill's, which that one takes away
        machine_failures.fill_disk(tmp_path / "fill", 0)


def undone(journal: DrillJournal) -> None:
    for _ in range(2):  # the watcher may repeat it
        for entry in journal.left():
            undo(entry, lambda method, request: None, journal.path)


def test_a_real_file_system_has_its_room_back(tmp_path: Path) -> None:
    journal = DrillJournal(tmp_path / "d-1.journal")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        room = os.statvfs(folder)
        leave = room.f_bavail * room.f_frsize - 8 * MIB
        plan = parse_plan({"kind": "fill-disk", "folder": folder, "leave": leave})
        check_target(plan)
        make_failure(plan, journal)
        (made,) = Path(folder).iterdir()
        assert made.stat().st_blocks * 512 > MIB
        undone(journal)
        assert list(Path(folder).iterdir()) == []


def test_a_port_is_cut_by_a_table_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program nft is played: it keeps tables as files, and refuses what it does not know."""
    program = tmp_path / "nft"
    program.write_text(
        f"""#!/bin/sh
echo "$*" >> {tmp_path}/asked
case "$*" in
  "list tables") ;;
  "add table inet syncpoint_drill_8085; delete table inet syncpoint_drill_8085") rm -f {tmp_path}/table ;;
  "list table inet syncpoint_drill_8085") test -e {tmp_path}/table ;;
  "add table inet syncpoint_drill_8085; "*) touch {tmp_path}/table ;;
  *) exit 1 ;;
esac
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    journal = DrillJournal(tmp_path / "d-1.journal")
    plan = parse_plan({"kind": "cut-network", "port": 8085})
    check_target(plan)
    make_failure(plan, journal)
    assert (tmp_path / "table").exists()
    with pytest.raises(FailedPrecondition, match="cut off already"):
        check_target(plan)
    assert "tcp dport 8085 drop" in (tmp_path / "asked").read_text()
    assert "tcp sport 8085 drop" in (tmp_path / "asked").read_text()
    undone(journal)
    assert not (tmp_path / "table").exists()
    program.write_text("#!/bin/sh\necho not permitted >&2\nexit 1\n")
    with pytest.raises(OSError, match="not permitted"):  # and the port stays cut: that must not pass for undone
        machine_failures.mend_network("8085")
    with pytest.raises(FailedPrecondition, match="rights of root on this machine: not permitted"):
        check_target(plan)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(FailedPrecondition, match="install nftables"):
        check_target(plan)
