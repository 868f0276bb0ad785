"""One connection to a disk server, which may be lost and made anew: one command after the other, each answered once.

Place: below `remote_disk`, which decides whether to wait, to ask again or to give up.
Promise: after `connect` the server executes nothing of this channel's earlier connections any more, and a command sent
again with its number is not executed twice. `ChannelLost` means that the outcome of the last command is unknown.
"""

from __future__ import annotations

import errno
import socket
import ssl
from dataclasses import dataclass

from syncpoint.base.runtime.files import DiskFenced, FolderExchanged
from syncpoint.log.diskserver.protocol import (
    REPLY_HEAD,
    Hello,
    Reply,
    Request,
    Status,
    decode_reply,
    decode_welcome,
    encode_hello,
    encode_request,
)
from syncpoint.log.diskserver.sockets import FrameReader, hang_up, send_frame, tune, wait_at_most

Server = tuple[str, int]
"""Host and port of a server."""


class ChannelLost(Exception):
    """There is no connection, or it does not answer."""

    def __init__(self, why: str, server: Server | None = None) -> None:
        """`server`: who gave no sign of life; None where it is not known who, or where only one disk is meant."""
        super().__init__(why)
        self.server = server


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited for what, in seconds."""

    connect_s: float = 2.0  # for a connection
    silence_s: float = 4.0  # for a sign of life from a server that was asked, before the connection is made anew
    give_up_s: float = 5.0  # without a sign of life, by those who can do without the disk; others wait for ever
    retry_s: float = 0.2  # between two tries
    quiet_s: float = 1.0  # after a failure, before those who can do without try again


class CommandChannel:
    """Used by one thread at a time; `break_off` by any."""

    def __init__(self, number: int, tls: ssl.SSLContext | None, patience: Patience) -> None:
        self.number = number
        self.server = 0  # which life of the server answered last
        self.boot = ""  # and which start of its machine
        self.doubtful = False  # the last command was given up and may be under way
        self.seq = 0
        self._attempt = 0
        self.place: Server | None = None  # of the server asked last
        self._tls = tls
        self._patience = patience
        self._sock: socket.socket | None = None
        self._reader: FrameReader | None = None

    @property
    def connected(self) -> bool:
        return self._sock is not None

    def connect(self, host: str, port: int, hello: Hello) -> None:
        """Make a new connection. Raises `ChannelLost`, `DiskFenced`, and `OSError` for what the server cannot do."""
        self.break_off()
        self._attempt += 1
        self.place = host, port
        try:
            sock = socket.create_connection(self.place, self._patience.connect_s)
        except OSError as error:
            raise ChannelLost(f"{host}:{port}: {error}", self.place) from error
        try:
            tune(sock)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=host)
            self._sock = sock
            wait_at_most(sock, self._patience.silence_s)
            reader = FrameReader(sock)
            send_frame(sock, encode_hello(hello._replace(channel=self.number, attempt=self._attempt)))
            welcome = decode_welcome(reader.read()[0])
        except (OSError, ValueError) as error:
            self.break_off()
            hang_up(sock)
            raise ChannelLost(f"{host}:{port} did not complete the handshake: {error}", self.place) from error
        if welcome.status == Status.OK:
            self.server, self.boot, self._reader = welcome.server, welcome.boot, reader
            return
        self.break_off()
        if welcome.status == Status.FENCED:
            raise DiskFenced(errno.ESTALE, welcome.message)
        if welcome.status == Status.ERROR and welcome.errno == errno.ESTALE:
            raise FolderExchanged(errno.ESTALE, welcome.message, f"{host}:{port}")
        if welcome.status == Status.ERROR:
            raise OSError(welcome.errno, welcome.message)
        raise ChannelLost("an earlier command is still running")

    def exchange(self, request: Request) -> Reply:
        """Send one command and wait for its answer, however long the server works on it. Raises `ChannelLost`."""
        sock, reader, place = self._sock, self._reader, self.place
        if sock is None or reader is None or place is None:
            raise ChannelLost("not connected")
        try:
            send_frame(sock, encode_request(request))
            reply = Reply(Status.WORKING)
            while reply.status == Status.WORKING:
                head, payload = reader.read_head(REPLY_HEAD)
                reply = decode_reply(head, b"")
                pieces: list[bytes] = []
                wanted = reply.status == Status.OK and reply.seq == request.seq and payload
                reader.read_cut(payload, request.sizes, (request.take if wanted else None) or pieces.append)
        except (OSError, ValueError) as error:
            self.break_off()
            raise ChannelLost(f"{place[0]}:{place[1]}: {error}", place) from error
        if reply.status == Status.STALE or reply.seq != request.seq:
            self.break_off()
            raise ChannelLost("the connection was replaced")
        if request.sizes and reply.status == Status.OK:
            return reply._replace(pieces=pieces)
        return reply._replace(payload=b"".join(pieces))

    def break_off(self) -> None:
        """Hang up; a thread that waits for an answer sees `ChannelLost`."""
        sock, self._sock, self._reader = self._sock, None, None
        if sock is not None:
            hang_up(sock)
