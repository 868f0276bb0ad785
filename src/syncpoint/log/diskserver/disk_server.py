"""The process that serves disks: sockets and threads around `disk_service`, nothing else.

Place: started by the role process; forwarders connect with `remote_files.RemoteFiles`.
Promise: one thread per connection, so that a disk that hangs holds up nobody but those who wait for it. `stop` lets
the commands under way end, syncs what is open, and leaves no thread behind that could still write.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncpoint.base.runtime.clock import SystemClock
from syncpoint.base.runtime.files import DiskFenced, Files
from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.base.runtime.random import Random, SystemRandom
from syncpoint.log.diskserver.disk_service import Busy, DiskService, ServedChannel
from syncpoint.log.diskserver.protocol import (
    Reply,
    Request,
    Status,
    Welcome,
    decode_hello,
    decode_request,
    encode_reply,
    encode_welcome,
)
from syncpoint.log.diskserver.sockets import FrameReader, hang_up, send_frame, tune
from syncpoint.log.storage.disk.paced_files import DiskTurns

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_HELLO_S = 10.0
_HELLO_MAX = 1 << 16
_STOP_S = 5.0
_LIFE_S = 1.0
_SHARE_S = 0.5  # for bytes that come on the connection of another disk


@dataclass(frozen=True, slots=True)
class DiskServerSettings:
    """Which folders are served under which names, and where."""

    disks: Mapping[str, Path]
    host: str = "127.0.0.1"
    port: int = 0
    connections_max: int = 4096
    tls: ssl.SSLContext | None = None
    require_disks: bool = False  # a folder that is emptied or exchanged in the meantime is refused
    boot: str = ""  # which start of the machine this is; "": ask the system
    files: Files = field(default_factory=OsFiles)
    random: Random = field(default_factory=SystemRandom)


class DiskServer:
    """A listening server; made by `serve_disks`."""

    def __init__(self, settings: DiskServerSettings) -> None:
        self._settings = settings
        self._boot = settings.boot or _BOOT.read_text().strip()
        disks = {name: str(path) for name, path in settings.disks.items()}
        life = int.from_bytes(settings.random.token(7), "little") + 1
        self.service = DiskService(
            disks,
            settings.files,
            self._boot,
            life,
            wait_s=_SHARE_S,
            required=settings.require_disks,
            turns={name: DiskTurns(SystemClock()) for name in disks},
        )
        self.service.start()
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        self._listener = socket.create_server((settings.host, settings.port), family=family, backlog=256)
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._working: dict[_Answer, None] = {}
        self._lock = threading.Lock()
        self._stopping = False
        self._accepting = threading.Thread(target=self._accept, name="syncpoint-disks", daemon=True)
        self._accepting.start()
        self._ended = threading.Event()
        threading.Thread(target=self._show_life, name="syncpoint-disks-life", daemon=True).start()

    @property
    def address(self) -> str:
        """host:port, with the port that was given to us."""
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def stop(self) -> None:
        """Hang up on everybody, wait for the commands under way, sync what is open. Idempotent."""
        await asyncio.to_thread(self.stop_now)

    def stop_now(self) -> None:
        """Stop the server, for callers without an event loop."""
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
            hang_up(self._listener)
            open_now = dict(self._connections)
        for sock in open_now:
            hang_up(sock)
        self._ended.set()
        self._accepting.join(_STOP_S)
        for thread in open_now.values():
            thread.join(_STOP_S)
        if not any(thread.is_alive() for thread in open_now.values()):
            self.service.stop()  # otherwise a disk hangs, and nothing is known to be clean

    def hang_up(self) -> None:
        """End all connections; callers connect again, and send again what they do not know the outcome of."""
        with self._lock:
            open_now = list(self._connections)
        for sock in open_now:
            hang_up(sock)

    def status(self) -> dict[str, Any]:
        """Plain values for tools."""
        return {**self.service.status(), "address": self.address, "connections": len(self._connections)}

    def quarantine(self, known: Collection[int]) -> dict[str, list[int]]:
        """Set aside chains that are not among the known ones and that nobody has open; never deletes."""
        return self.service.quarantine(known)

    def _accept(self) -> None:
        while not self._stopping:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if self._stopping or error.errno in (errno.EBADF, errno.EINVAL):
                    return
                threading.Event().wait(0.1)  # out of file descriptors: those connected now may leave some
                continue
            thread = threading.Thread(target=self._serve, args=(sock,), name="syncpoint-disk", daemon=True)
            with self._lock:
                if self._stopping or len(self._connections) >= self._settings.connections_max:
                    hang_up(sock)
                    continue
                self._connections[sock] = thread
            thread.start()

    def _serve(self, plain: socket.socket) -> None:
        sock = plain
        try:
            plain.settimeout(_HELLO_S)
            tune(plain)
            if self._settings.tls is not None:
                sock = self._settings.tls.wrap_socket(plain, server_side=True)
                with self._lock:
                    self._connections[sock] = self._connections.pop(plain)
                    if self._stopping:
                        return
            self._talk(sock)
        except (OSError, ValueError):
            pass  # the caller connects again, or was none of ours
        finally:
            with self._lock:
                self._connections.pop(sock, None)
                self._connections.pop(plain, None)
            hang_up(sock)

    def _talk(self, sock: socket.socket) -> None:
        reader = FrameReader(sock)
        hello = decode_hello(reader.read(_HELLO_MAX)[0])
        channel: ServedChannel | None = None
        welcome = Welcome(self.service.server, self._boot)
        try:
            channel = self.service.hello(hello)
        except DiskFenced as error:
            welcome = welcome._replace(status=Status.FENCED, errno=errno.ESTALE, message=str(error.strerror))
        except Busy:
            welcome = welcome._replace(status=Status.BUSY)
        except OSError as error:
            text = error.strerror or str(error)
            welcome = welcome._replace(status=Status.ERROR, errno=error.errno or errno.EIO, message=text)
        send_frame(sock, encode_welcome(welcome))
        sock.settimeout(None)
        while channel is not None:
            head, payload = reader.read()
            request = _keeping(decode_request(head, payload), reader)
            answer = _Answer(sock)
            self._working[answer] = None
            try:
                reply = self.service.run(channel, hello.attempt, request)
            finally:
                del self._working[answer]
            answer.give(reply)
            if reply.status == Status.STALE:
                return

    def _show_life(self) -> None:
        """Say about slow commands that they are still being worked on."""
        seen: set[_Answer] = set()
        while not self._ended.wait(_LIFE_S):
            now = set(self._working)
            for answer in now & seen:
                answer.show_life()
            seen = now


def _keeping(request: Request, reader: FrameReader) -> Request:
    """The request, with data for other disks that stays good when the next frame is read."""
    kept = sum(change.size for change in request.changes if change.takers)
    if not kept or reader.let_go(kept):
        return request
    changes = [one._replace(data=bytes(one.data)) if one.takers else one for one in request.changes]
    return request._replace(changes=changes)


class _Answer:
    """The answer to one command, which comes once; before it, there may be signs of life."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._given = False

    def show_life(self) -> None:
        with self._lock, suppress(OSError):
            if not self._given:
                send_frame(self._sock, encode_reply(Reply(Status.WORKING)))

    def give(self, reply: Reply) -> None:
        with self._lock:
            self._given = True
            send_frame(self._sock, encode_reply(reply))


async def serve_disks(settings: DiskServerSettings) -> DiskServer:
    """Start serving at `address`. Raises `OSError`."""
    return await asyncio.to_thread(DiskServer, settings)
