"""Connections that break anywhere, and servers that are started anew: every command is done once, in order, in full."""

from __future__ import annotations

import random
import select
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from syncpoint.base.runtime.clock import SystemClock
from syncpoint.base.runtime.files import Files
from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.log.diskserver.disk_server import DiskServer, DiskServerSettings
from syncpoint.log.diskserver.remote_files import DiskAddress, Patience, RemoteFiles

PATIENCE = Patience(connect_s=5.0, silence_s=5.0, give_up_s=30.0, retry_s=0.001, quiet_s=0.01)


class Cutter:
    """Between a caller and a server: passes on a random number of bytes and then breaks the connection."""

    def __init__(self, seed: int) -> None:
        self.target = 0
        self.cuts = 0
        self._chance = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ended = False
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._ended:
                near.close()
                return
            left = self._chance.choice([100, 400, 1000, 3000, 3000, 10_000, 100_000]) + self._chance.randrange(500)
            thread = threading.Thread(target=self._pass_on, args=(near, left), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _pass_on(self, near: socket.socket, left: int) -> None:
        with near, socket.socket() as far, suppress(OSError):
            far.connect(("127.0.0.1", self.target))
            while left > 0:
                for sock in select.select([near, far], [], [])[0]:
                    data = sock.recv(min(left, 4096))
                    if not data:
                        return
                    left -= len(data)
                    (far if sock is near else near).sendall(data)
            self.cuts += 1

    def end(self) -> None:
        self._ended = True
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        self._accepting.join(5)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)


class Steps:
    """The same random commands for two file systems; answers and errors are noted."""

    def __init__(self, files: Files, root: str, seed: int) -> None:
        self.files = files
        self.root = root
        self.log: list[object] = []
        self._chance = random.Random(seed)
        self._handles: list[int] = []

    def path(self) -> str:
        return f"{self.root}/{self._chance.choice('abcdef')}"

    def step(self) -> None:
        chance, files = self._chance, self.files
        what = chance.choice(["open", "write", "write", "write", "sync", "read", "truncate", "rename", "unlink"])
        what = chance.choice([what, what, "close", "mkdir", "rmdir", "list"])
        path, other = self.path(), self.path()
        number, offset, size = chance.randrange(100), chance.randrange(3000), chance.randrange(1, 2000)
        data = chance.randbytes(size)
        handle = self._handles[number % len(self._handles)] if self._handles else None
        answer: object = None
        try:
            if what == "open":
                self._handles.append(files.open(path, create=True))
            elif what == "mkdir":
                files.mkdir(f"{path}{path[-1]}")
            elif what == "rmdir":
                files.rmdir(f"{path}{path[-1]}")
            elif what == "rename":
                files.rename(path, other)
            elif what == "unlink":
                files.unlink(path)
            elif what == "list":
                answer = sorted(files.listdir(self.root))
            elif handle is None:
                return
            elif what == "write":
                files.pwritev(handle, [data], offset)
            elif what == "sync":
                files.fdatasync(handle)
            elif what == "read":
                answer = files.pread(handle, size, offset), files.fstat(handle).size
            elif what == "truncate":
                files.truncate(handle, offset)
            else:
                self._handles.remove(handle)
                files.close(handle)
        except OSError as error:
            answer = error.errno
        self.log.append((what, answer))

    def end(self) -> dict[str, bytes]:
        for handle in self._handles:
            self.files.fdatasync(handle)
        found = {}
        for name in self.files.listdir(self.root):
            if len(name) == 1:
                handle = self.files.open(f"{self.root}/{name}", write=False)
                found[name] = self.files.pread(handle, 100_000, 0)
                self.files.close(handle)
        return found


@pytest.mark.parametrize("seed", range(8))
def test_they_do_what_local_files_do(tmp_path: Path, seed: int) -> None:
    cutter = Cutter(seed)
    server = DiskServer(DiskServerSettings({"d": tmp_path / "served"}))
    cutter.target = int(server.address.rpartition(":")[2])
    address = DiskAddress("127.0.0.1", cutter.port, "d")
    durability = ["sync", "async"][seed % 2]
    remote = RemoteFiles(
        {"/r": address}, 1, 1, SystemClock(), durability=durability, patience=PATIENCE, waits=lambda: True
    )
    while True:
        try:
            remote.mkdir("/r")
            break
        except OSError:
            continue  # the first connection is not waited for
    (tmp_path / "local").mkdir()
    there, here = Steps(remote, "/r", seed), Steps(OsFiles(), str(tmp_path / "local"), seed)
    for _ in range(1000):
        there.step()
        here.step()
        assert there.log == here.log
    assert there.end() == here.end()
    assert cutter.cuts > 0
    remote.abandon("/r")
    cutter.end()
    server.stop_now()


@pytest.mark.parametrize("seed", range(4))
def test_servers_started_anew_lose_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    cutter = Cutter(seed)
    files = RemoteFiles(
        {"/r": DiskAddress("127.0.0.1", cutter.port, "d")},
        1,
        1,
        SystemClock(),
        patience=PATIENCE,
        waits=lambda: True,
    )
    server: DiskServer | None = None
    content = {name: bytearray() for name in "abc"}
    handles: dict[str, int] = {}
    for _ in range(15):
        if server is not None:
            server.stop_now()
        server = DiskServer(DiskServerSettings({"d": tmp_path}))
        cutter.target = int(server.address.rpartition(":")[2])
        while not handles:
            try:
                files.mkdir("/r")
                handles = {name: files.open(f"/r/{name}", create=True) for name in content}
            except OSError:
                continue  # the first connection is not waited for
        for _ in range(chance.randrange(1, 30)):
            name = chance.choice("abc")
            data = chance.randbytes(chance.randrange(1, 3000))
            at = chance.randrange(len(content[name]) + 1)
            content[name][at : at + len(data)] = data
            files.pwritev(handles[name], [data], at)
            if chance.random() < 0.2:
                files.fdatasync(handles[name])
            if chance.random() < 0.1:
                assert files.pread(handles[name], 1 << 20, 0) == bytes(content[name])
    for name, handle in handles.items():
        files.fdatasync(handle)
        assert (tmp_path / "chains/0000000001" / name).read_bytes() == bytes(content[name])
    files.abandon("/r")
    cutter.end()
    assert server is not None
    server.stop_now()
