"""The frames between a forwarder and the process that serves its disks: four bytes, a head, a payload.

    frame        u32 length of the head, u32 length of the payload, head, payload
    hello        the first frame of a connection, both ways: a head of JSON, no payload
    request      operation, flags, sequence number, epoch, handle, two numbers, two texts, handles to close, changes;
                 the payload holds the bytes of the changes, one after the other, but for those that came with the
                 request of another disk
    reply        sequence number, status, error number, three numbers; the payload is what was read, or the error's text

Place: spoken by `command_channel` and `disk_server`; `disk_service` executes each `Request`.
Promise: a frame longer than `FRAME_MAX` or cut short raises `ValueError`, and nothing of it is executed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from syncpoint.base.runtime.files import Buffer

VERSION = 1  # the newest that is spoken here
OLDEST = 1  # the oldest that still is; both sides then speak the lower one of their newest
FRAME_MAX = 64 << 20
READ_MAX = 16 << 20
LENGTHS = struct.Struct("<II")

_MAGIC = "syncpoint-disk"
_REQUEST = struct.Struct("<BBHHHIQQQQQ")
_CHANGE = struct.Struct("<BBQQQ")
_REPLY = struct.Struct("<QBiQQQ")
_NUMBER = struct.Struct("<Q")
REPLY_HEAD = _REPLY.size


class DiskOp(IntEnum):
    """What a request asks for."""

    OPEN = 1
    CLOSE = 2
    LOCK = 3
    PREAD = 4
    CHANGE = 5  # nothing but the changes the request carries
    FDATASYNC = 6
    FSTAT = 7
    STAT = 8
    LISTDIR = 9
    MKDIR = 10
    RMDIR = 11
    RENAME = 12
    UNLINK = 13
    SYNC_DIR = 14
    FREE_BYTES = 15
    LEAVE = 16  # number a: 1 when nothing is left unsynced
    TOMBSTONE = 17
    DELETE = 18
    LINK = 19
    SKIP_ZEROS = 20


LOOKUPS = frozenset({DiskOp.PREAD, DiskOp.SKIP_ZEROS, DiskOp.FSTAT, DiskOp.STAT, DiskOp.LISTDIR, DiskOp.FREE_BYTES})
"""Operations that change nothing: they are done again when an answer was lost."""

CREATE, WRITE, REOPEN, AGAIN = 1, 2, 4, 8
"""Flags. REOPEN: open the handle's file if the server does not have it. AGAIN: an earlier server may have done it."""


class ChangeKind(IntEnum):
    """What a change does to a file. All of them may be done twice."""

    WRITE = 1
    ZERO = 2
    TRUNCATE = 3
    ALLOCATE = 4
    COPY = 5  # write what another disk's request brought


class FileChange(NamedTuple):
    """One change of a file; `data` only for WRITE.

    Of a WRITE with a `name` the server keeps the data until `takers` other disks have written them, too: each by a COPY
    with that name and size. See `payload_cache`.
    """

    kind: int
    offset: int
    size: int
    data: Buffer = b""
    name: int = 0
    takers: int = 0


class Request(NamedTuple):
    """One command. What `a`, `b` and the texts are depends on the operation, see `disk_service`.

    `sizes` and `take` are not sent: the pieces in which the caller wants to have what is read, and who is given each
    of them as it comes. `take` raises nothing, and begins anew where the command has to be sent again.
    """

    op: int
    handle: int = 0
    a: int = 0
    b: int = 0
    path: str = ""
    other: str = ""
    flags: int = 0
    changes: Sequence[FileChange] = ()
    closes: Sequence[int] = ()
    epoch: int = 0
    seq: int = 0
    sizes: Sequence[int] = ()
    take: Callable[[bytes], None] | None = None


class Status(IntEnum):
    """How a command ended."""

    OK = 0
    ERROR = 1  # of the operating system: number and text
    FENCED = 2  # somebody with a higher epoch has the chain
    STALE = 3  # this connection was replaced by a later one; nothing was done
    BUSY = 4  # an earlier command has not ended yet; nothing was done
    WORKING = 5  # the disk is slow, the answer is still to come
    LACKING = 6  # what a COPY names is not here; nothing was done


class Reply(NamedTuple):
    """How a command ended, and what it found. `pieces`: the payload as it was received, where pieces were wanted."""

    status: int = Status.OK
    errno: int = 0
    a: int = 0
    b: int = 0
    c: int = 0
    payload: Buffer = b""
    seq: int = 0
    pieces: Sequence[bytes] = ()


class Hello(NamedTuple):
    """Who is calling: the token on a chain, and the channel, of which only the newest connection counts."""

    disk: str
    chain: int
    epoch: int
    session: int
    durability: str
    channel: int
    attempt: int


class Welcome(NamedTuple):
    """Which life of the server this is and which start of its machine, or why not."""

    server: int
    boot: str
    status: int = Status.OK
    errno: int = 0
    message: str = ""


def encode_hello(hello: Hello) -> list[Buffer]:
    """The first frame of a connection."""
    return _json({"magic": _MAGIC, "version": VERSION, "oldest": OLDEST, **hello._asdict()})


def decode_hello(head: bytes) -> Hello:
    """Raises `ValueError` for anything else, also when there is no version that both sides speak."""
    found = _load(head)
    if found.get("magic") != _MAGIC:
        raise ValueError("not the disk protocol")
    try:
        newest, oldest = int(found["version"]), int(found["oldest"])
        if newest < OLDEST or oldest > VERSION:
            raise ValueError(
                f"the peer supports versions {oldest} to {newest} of the disk protocol, this one {OLDEST} to {VERSION}."
                " Upgrade one release at a time."
            )
        return Hello(
            str(found["disk"]),
            int(found["chain"]),
            int(found["epoch"]),
            int(found["session"]),
            str(found["durability"]),
            int(found["channel"]),
            int(found["attempt"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"the hello lacks {error}") from error


def encode_welcome(welcome: Welcome) -> list[Buffer]:
    """The answer to a hello."""
    return _json({"version": VERSION, **welcome._asdict()})


def decode_welcome(head: bytes) -> Welcome:
    """Raises `ValueError` for anything else."""
    found = _load(head)
    try:
        return Welcome(
            int(found["server"]),
            str(found["boot"]),
            Status(found["status"]),
            int(found["errno"]),
            str(found["message"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"the answer lacks {error}") from error


def _load(head: bytes) -> dict[str, Any]:
    found = json.loads(head)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def _json(values: Mapping[str, Any]) -> list[Buffer]:
    head = json.dumps(values, separators=(",", ":")).encode()
    return [LENGTHS.pack(len(head), 0), head]


def encode_request(request: Request) -> list[Buffer]:
    """Buffers to send one after the other. Raises `ValueError` for one that no frame can hold."""
    path, other = request.path.encode(), request.other.encode()
    changes, closes = request.changes, request.closes
    parts = [
        _REQUEST.pack(
            request.op,
            request.flags,
            len(path),
            len(other),
            len(closes),
            len(changes),
            request.seq,
            request.epoch,
            request.handle,
            request.a,
            request.b,
        ),
        path,
        other,
        *(_NUMBER.pack(number) for number in closes),
    ]
    size = 0
    buffers: list[Buffer] = []
    for change in changes:
        parts.append(_CHANGE.pack(change.kind, change.takers, change.offset, change.size, change.name))
        if change.kind == ChangeKind.WRITE:
            buffers.append(change.data)
            size += change.size
    head = b"".join(parts)
    if len(head) + size > FRAME_MAX:
        raise ValueError(f"a request of {len(head) + size} bytes exceeds the maximum of {FRAME_MAX}")
    return [LENGTHS.pack(len(head), size), head, *buffers]


def decode_request(head: bytes, payload: memoryview) -> Request:
    """The data of the changes are views into `payload`. Raises `ValueError` for a frame that is not whole."""
    try:
        op, flags, n_path, n_other, n_closes, n_changes, seq, epoch, handle, a, b = _REQUEST.unpack_from(head)
        at = _REQUEST.size
        if len(head) != at + n_path + n_other + 8 * n_closes + _CHANGE.size * n_changes:
            raise ValueError("the head has the wrong length")
        path = head[at : at + n_path].decode()
        at += n_path
        other = head[at : at + n_other].decode()
        at += n_other
        closes = [_NUMBER.unpack_from(head, at + 8 * number)[0] for number in range(n_closes)]
        at += 8 * n_closes
        changes = []
        begin = 0
        for _ in range(n_changes):
            kind, takers, offset, size, name = _CHANGE.unpack_from(head, at)
            at += _CHANGE.size
            if kind == ChangeKind.WRITE:
                if begin + size > len(payload):
                    raise ValueError("the payload is too short")
                changes.append(FileChange(kind, offset, size, payload[begin : begin + size], name, takers))
                begin += size
            else:
                changes.append(FileChange(ChangeKind(kind), offset, size, b"", name, takers))
        if begin != len(payload):
            raise ValueError("the payload is too long")
        return Request(DiskOp(op), handle, a, b, path, other, flags, changes, closes, epoch, seq)
    except struct.error as error:
        raise ValueError(f"the request is truncated: {error}") from error


def encode_reply(reply: Reply) -> list[Buffer]:
    """Buffers to send one after the other."""
    head = _REPLY.pack(reply.seq, reply.status, reply.errno, reply.a, reply.b, reply.c)
    return [LENGTHS.pack(len(head), len(reply.payload)), head, reply.payload]


def decode_reply(head: bytes, payload: bytes) -> Reply:
    """Raises `ValueError` for a head of the wrong length or an unknown status."""
    if len(head) != _REPLY.size:
        raise ValueError("the reply has the wrong length")
    seq, status, number, a, b, c = _REPLY.unpack(head)
    return Reply(Status(status), number, a, b, c, payload, seq)


def check_lengths(lengths: bytes | bytearray) -> tuple[int, int]:
    """Lengths of head and payload. Raises `ValueError` when they are too much."""
    head, payload = LENGTHS.unpack(lengths)
    if head + payload > FRAME_MAX:
        raise ValueError(f"a frame of {head + payload} bytes exceeds the maximum of {FRAME_MAX}")
    return head, payload
