"""The server inside this process: several callers, TLS, restarts of the machine, the end, its status."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncpoint.base.runtime.clock import ManualClock, SystemClock
from syncpoint.base.runtime.files import DiskFenced, DiskUnreachable, FolderExchanged
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.log.diskserver.command_channel import ChannelLost, CommandChannel
from syncpoint.log.diskserver.disk_server import DiskServer, DiskServerSettings, serve_disks
from syncpoint.log.diskserver.protocol import DiskOp, Reply, Request
from syncpoint.log.diskserver.remote_files import DiskAddress, Patience, RemoteFiles
from syncpoint.testing.rigs.memory_files import MemoryFiles

FAST = Patience(connect_s=1.0, silence_s=1.0, give_up_s=1.0, retry_s=0.02, quiet_s=0.1)


class Served:
    """One server after the other at one port, and their callers."""

    def __init__(self, root: Path, tls: ssl.SSLContext | None = None, tls_client: ssl.SSLContext | None = None) -> None:
        self.root = root
        self.port = 0
        self.boot = "first"
        self.callers: list[RemoteFiles] = []
        self._tls = tls
        self._tls_client = tls_client
        self.server = self.start()

    def start(self) -> DiskServer:
        settings = DiskServerSettings({"d": self.root / "d"}, port=self.port, boot=self.boot, tls=self._tls)
        self.server = asyncio.run(serve_disks(settings))
        self.port = int(self.server.address.rpartition(":")[2])
        return self.server

    def stop(self) -> None:
        asyncio.run(self.server.stop())

    def files(self, epoch: int = 1, chain: int = 1, **more: object) -> RemoteFiles:
        address = DiskAddress("127.0.0.1", self.port, "d")
        made = RemoteFiles({"/r": address}, chain, epoch, SystemClock(), patience=FAST, tls=self._tls_client, **more)  # type: ignore[arg-type]
        self.callers.append(made)
        return made

    def end(self) -> None:
        for files in self.callers:
            files.abandon("/r")
        self.stop()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.end()


def put(files: RemoteFiles, name: str, data: bytes) -> int:
    files.mkdir("/r")
    handle = files.open(f"/r/{name}", create=True)
    files.pwritev(handle, [data], 0)
    files.fdatasync(handle)
    return handle


def get(files: RemoteFiles, name: str) -> bytes:
    handle = files.open(f"/r/{name}", write=False)
    try:
        return files.pread(handle, 1000, 0)
    finally:
        files.close(handle)


def test_chains_do_not_see_each_other(served: Served) -> None:
    put(served.files(chain=1), "a", b"one")
    put(served.files(chain=2), "a", b"two")
    assert get(served.files(chain=1, epoch=2), "a") == b"one"
    assert get(served.files(chain=2, epoch=2), "a") == b"two"


def test_what_it_says_of_itself(served: Served) -> None:
    files = served.files(epoch=3)
    put(files, "a", b"12345")
    status = served.server.status()
    assert status["address"] == f"127.0.0.1:{served.port}"
    assert status["bytes_written"] == 5
    assert status["syncs"] == 1
    assert status["connections"] == 1
    disk = status["disks"]["d"]
    assert disk["chains"] == {1: {"epoch": 3, "open_files": 1, "channels": 1}}
    assert disk["free_bytes"] > 0


def test_a_polite_stop_is_clean(served: Served) -> None:
    files = served.files(durability="async", waits=lambda: True)
    handle = put(files, "disk.json", b"me")
    served.stop()
    served.stop()
    served.boot = "second"
    served.start()
    files.pwritev(handle, [b"ME"], 0)
    files.fdatasync(handle)
    assert get(files, "disk.json") == b"ME"


def test_a_machine_that_lost_its_memory_makes_the_disk_unknown(served: Served) -> None:
    put(served.files(durability="memory"), "disk.json", b"me")
    token = (served.root / "d/chains/0000000001/fencing.json").read_bytes()
    served.stop()
    (served.root / "d/chains/0000000001/fencing.json").write_bytes(token)  # as if it had not been polite
    served.boot = "second"
    served.start()
    with pytest.raises(FileNotFoundError):
        get(served.files(epoch=2, durability="memory"), "disk.json")


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_what_a_machine_lost_is_sent_again(durability: str) -> None:
    disk = MemoryFiles()
    disk.mkdir("/d")
    first = DiskServer(DiskServerSettings({"d": Path("/d")}, boot="first", files=disk))
    port = int(first.address.rpartition(":")[2])
    files = RemoteFiles(
        {"/r": DiskAddress("127.0.0.1", port, "d")},
        1,
        1,
        SystemClock(),
        durability=durability,
        patience=FAST,
        waits=lambda: True,
    )
    handle = put(files, "a", b"0123456789")
    files.sync_dir("/r")
    files.pwritev(handle, [b"ab"], 0)
    files.truncate(handle, 8)
    files.pwritev(handle, [b"xyz"], 7)
    files.zero(handle, 3, 2)
    first.service.stop = lambda: None  # type: ignore[method-assign]  # it has no time to sync
    first.stop_now()
    disk.power_cut(SeededRandom(1))
    assert disk.content("/d/chains/0000000001/a") != b"ab2\0\0" + b"56xyz"
    second = DiskServer(DiskServerSettings({"d": Path("/d")}, port=port, boot="second", files=disk))
    files.fdatasync(handle)
    disk.power_cut(SeededRandom(2))
    assert disk.content("/d/chains/0000000001/a") == b"ab2\0\0" + b"56xyz"
    files.abandon("/r")
    second.stop_now()


def test_zeros_are_read_as_zeros(served: Served) -> None:
    """What was never written is not sent, but reported: the parts of a file, mixed ones, and what lies
    behind its end.
    """
    files, size = served.files(), 3 << 20
    handle = put(files, "f", bytes(size) + b"x" + bytes(99))
    sent: list[int] = []
    call = files._call

    def counted(*arguments: object) -> Reply:
        reply = call(*arguments)  # type: ignore[arg-type]
        sent.append(len(reply.payload))
        return reply

    files._call = counted  # type: ignore[method-assign, assignment]
    for begin, count in ((0, 1 << 20), (5, 100), (1 << 20, 1 << 20), (size + 1, 99), (size + 50, 1000)):
        assert files.pread(handle, count, begin) == bytes(min(count, size + 100 - begin))
    assert sent == [0] * 5
    assert files.pread(handle, 101, size - 1) == b"\0x" + bytes(99)
    assert files.pread(handle, 9, size + 100) == b""


def test_leaving_clean_and_unclean(served: Served) -> None:
    for clean in (True, False):
        files = served.files(epoch=1 + (not clean), durability="async")
        handle = put(files, "disk.json", b"me")
        if not clean:
            files.pwritev(handle, [b"x"], 0)
            files.close(handle)
        files.close_all()
        text = (served.root / "d/chains/0000000001/fencing.json").read_text()
        assert ('"clean": true' in text) is clean


def test_going_on_after_leaving_ends_the_cleanness(served: Served) -> None:
    files = served.files(durability="async")
    put(files, "a", b"1")
    files.close_all()
    assert get(files, "a") == b"1"
    assert '"clean": false' in (served.root / "d/chains/0000000001/fencing.json").read_text()


def test_closing_the_lock_is_leaving(served: Served) -> None:
    files = served.files(durability="async")
    lock = put(files, "lock", b"")
    files.lock(lock)
    put(files, "a", b"1")
    files.close(lock)
    assert '"clean": true' in (served.root / "d/chains/0000000001/fencing.json").read_text()
    assert served.server.status()["disks"]["d"]["chains"][1]["open_files"] == 0
    assert get(files, "a") == b"1"


def test_a_server_may_move(served: Served) -> None:
    known: list[DiskAddress | None] = [None]
    files = RemoteFiles({"/r": lambda: known[0]}, 1, 1, SystemClock(), patience=FAST, waits=lambda: True)
    served.callers.append(files)
    with pytest.raises(DiskUnreachable, match="no process serves it"):
        files.mkdir("/r")
    known[0] = DiskAddress("127.0.0.1", served.port, "d")
    handle = put(files, "a", b"1")
    served.stop()
    served.port = 0
    served.start()
    files.pwritev(handle, [b"2"], 0)
    known[0] = DiskAddress("127.0.0.1", served.port, "d")
    files.fdatasync(handle)
    assert get(files, "a") == b"2"


def test_deleting_a_chain(served: Served) -> None:
    files = served.files()
    put(files, "a", b"1")
    with pytest.raises(PermissionError):
        files.delete("/r")
    files.tombstone("/r")
    files.delete("/r")
    with pytest.raises(DiskFenced):
        served.files(epoch=2).mkdir("/r")
    assert served.server.quarantine([]) == {"d": []}


def test_nothing_changes_once_a_greater_token_was_answered_for(served: Served) -> None:
    ended = threading.Event()
    newest = 0

    def write(epoch: int) -> None:
        files = served.files(epoch=epoch, waits=lambda: True)
        number = 0
        try:
            handle = put(files, "a", b"%08d%08d" % (epoch, 0))
            while not ended.is_set():
                number += 1
                files.pwritev(handle, [b"%08d" % epoch, b"%08d" % number], 0)
                files.fdatasync(handle)
        except DiskFenced:
            return

    threads = []
    for epoch in range(1, 60, 2):
        threads.append(threading.Thread(target=write, args=(epoch,)))
        threads[-1].start()
        if epoch % 3:
            time.sleep(0.01)
        files = served.files(epoch=epoch + 1)
        files.mkdir("/r")
        if "a" in files.listdir("/r"):
            found = get(files, "a")
            for _ in range(3):
                time.sleep(0.002)
                assert get(files, "a") == found
            newest = max(newest, int(found[:8] or b"0"))
    ended.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert newest > 40


def test_no_such_disk(served: Served) -> None:
    files = RemoteFiles({"/r": DiskAddress("127.0.0.1", served.port, "none")}, 1, 1, SystemClock(), patience=FAST)
    with pytest.raises(FileNotFoundError):
        files.mkdir("/r")


def test_noise_is_hung_up_on(served: Served) -> None:
    for noise in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 100,
        b"\x05\0\0\0\0\0\0\0hello",
        b"\x02\0\0\0\0\0\0\0{}",
        b"\0\0\2\0\0\0\0\0",
    ):
        with socket.create_connection(("127.0.0.1", served.port), 5) as sock:
            sock.sendall(noise)
            sock.settimeout(5)
            try:
                assert sock.recv(100) == b""
            except ConnectionResetError:
                continue
    put(served.files(), "a", b"still there")


def test_callers_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    server = DiskServer(DiskServerSettings({"d": tmp_path}, connections_max=1))
    port = int(server.address.rpartition(":")[2])
    first, second = (
        RemoteFiles({"/r": DiskAddress("127.0.0.1", port, "d")}, chain, 1, SystemClock(), patience=FAST)
        for chain in (1, 2)
    )
    first.mkdir("/r")
    with pytest.raises(DiskUnreachable):
        second.mkdir("/r")
    first.close_all()
    server.stop_now()


def test_no_thread_is_left(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    served = Served(tmp_path)
    put(served.files(), "a", b"1")
    served.end()
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()


def test_over_tls(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {cert} -days 2 -subj /CN=disks"
    subprocess.run([*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(cert, key)
    served = Served(tmp_path, server_side, ssl.create_default_context(cafile=str(cert)))
    files = served.files(waits=lambda: True)
    handle = put(files, "a", b"x" * 3_000_000)
    files.pwritev(handle, [b"after"], 0)
    served.stop()
    served.start()
    files.fdatasync(handle)
    assert get(files, "a")[:6] == b"afterx"
    plain = RemoteFiles({"/r": DiskAddress("127.0.0.1", served.port, "d")}, 2, 1, SystemClock(), patience=FAST)
    with pytest.raises(DiskUnreachable):
        plain.mkdir("/r")
    served.end()


@pytest.mark.parametrize("answered", [False, True], ids=["never came", "was done and not answered"])
def test_a_lost_farewell_does_not_lock_its_sender_out(
    served: Served, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    files = served.files(waits=lambda: True)
    files.mkdir("/r")
    held = files.open("/r/lock", create=True)
    files.lock(held)
    exchange = CommandChannel.exchange

    def lossy(channel: CommandChannel, request: Request) -> Reply:
        if request.op == DiskOp.LEAVE:
            if answered:
                exchange(channel, request)
            channel.break_off()
            raise ChannelLost("the connection broke")
        return exchange(channel, request)

    monkeypatch.setattr(CommandChannel, "exchange", lossy)
    files.close(held)
    monkeypatch.undo()
    again = files.open("/r/lock", create=True)
    files.lock(again)
    other = files.open("/r/lock", create=True)
    with pytest.raises(BlockingIOError):
        files.lock(other)


def test_every_session_is_a_new_one() -> None:
    class StoppedClock(ManualClock):
        def time_ns(self) -> int:
            return 5

    files = RemoteFiles({"/r": lambda: None, "/s": lambda: None}, 1, 1, StoppedClock(), patience=FAST)
    drawn = []
    for _ in range(3):
        for root in ("/r", "/s"):
            files.abandon(root)
            drawn.append(files._disks[root]._hello.session)
        files.close_all()
        drawn += [disk._hello.session for disk in files._disks.values()]
    assert len(set(drawn)) == len(drawn)
    assert drawn == sorted(drawn)


def test_a_required_disk_that_is_not_there_says_so_to_every_session(tmp_path: Path) -> None:
    server = DiskServer(DiskServerSettings({"d": tmp_path / "d"}, require_disks=True))
    host, port = server.address.split(":")
    files = RemoteFiles({"/r": DiskAddress(host, int(port), "d")}, 1, 1, SystemClock(), patience=FAST)
    try:
        files.mkdir("/r")
        (tmp_path / "d").rename(tmp_path / "away")
        (tmp_path / "d").mkdir()
        for _ in range(2):
            with pytest.raises(FolderExchanged, match="require_disks"):
                files.mkdir("/r")
            files.abandon("/r")
        assert not list((tmp_path / "d").iterdir())
    finally:
        files.abandon("/r")
        server.stop_now()
