"""Who does not answer is not asked for a moment: exactly who gave no sign of life, and nobody else."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.files import DiskUnreachable
from syncpoint.log.diskserver.command_channel import Patience
from syncpoint.log.diskserver.remote_files import DiskAddress, RemoteFiles
from tests.kit.disk_process import DiskProcess

PATIENT = Patience(connect_s=1.0, silence_s=2.0, give_up_s=0.3, retry_s=0.05, quiet_s=1000.0)  # silence lasts the test


class Refusing:
    """A port that nobody listens at, or somebody who hangs up at once; `asked`: how often."""

    def __init__(self) -> None:
        self.asked = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.place: tuple[str, int] = self._socket.getsockname()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.asked += 1
            connection.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)


@pytest.fixture
def refusing() -> Iterator[Refusing]:
    made = Refusing()
    yield made
    made.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[DiskProcess]:
    process = DiskProcess(tmp_path, 3)
    yield process
    process.end()


def refused(files: RemoteFiles, root: str) -> bool:
    try:
        files.mkdir(root)
    except DiskUnreachable:
        return True
    return False


def files_of(places: dict[str, object]) -> RemoteFiles:
    return RemoteFiles(places, 7, 1, ManualClock(), patience=PATIENT, waits=lambda: False)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", list(itertools.permutations(("unserved", "refused", "well", "moved"))))
def test_in_every_order_those_that_are_well_are_reached(
    served: DiskProcess, refusing: Refusing, order: tuple[str, ...]
) -> None:
    well = DiskAddress("127.0.0.1", served.port, "d0")
    found: dict[str, object] = {
        "unserved": lambda: None,
        "refused": DiskAddress(*refusing.place, "d0"),
        "well": well,
        "moved": lambda: well._replace(disk="d1"),
    }
    files = files_of({f"/{name}": found[name] for name in order})
    assert {name for name in order if refused(files, f"/{name}")} == {"unserved", "refused"}
    for root in ("/well", "/moved"):
        files.abandon(root)


def test_a_server_that_does_not_answer_is_asked_once_for_all_its_disks(refusing: Refusing) -> None:
    files = files_of({f"/{name}": DiskAddress(*refusing.place, name) for name in ("d0", "d1", "d2")})
    assert all(refused(files, f"/{name}") for name in ("d0", "d1", "d2"))
    assert refusing.asked == 1


def test_a_disk_that_moves_from_a_silent_server_is_asked_where_it_is(served: DiskProcess, refusing: Refusing) -> None:
    where = DiskAddress(*refusing.place, "d0")
    files = files_of({"/a": lambda: where})
    assert refused(files, "/a")
    where = DiskAddress("127.0.0.1", served.port, "d0")
    assert not refused(files, "/a")
    files.abandon("/a")


def test_giving_one_disk_up_says_nothing_of_the_others_of_its_server(served: DiskProcess) -> None:
    files = files_of({f"/{name}": DiskAddress("127.0.0.1", served.port, name) for name in ("d0", "d1")})
    files.mkdir("/d0")
    handle = files.open("/d0/file", create=True)
    files.abandon("/d0")
    with pytest.raises(OSError):
        files.fdatasync(handle)  # under the session that was given up
    assert not refused(files, "/d1")
    assert not refused(files, "/d0")
    for root in ("/d0", "/d1"):
        files.abandon(root)
