"""Heads of requests and ends of responses: what header fields mean to gRPC.

Place: between `fields` and the calls; its results are remembered per connection, so they must be treated as constant.
Promise: a request head is checked as RFC 9113, 8.1-8.3 asks; metadata of the caller is kept, fields of the protocol
are not.
Leaves to the roles: which method answers.
"""

from __future__ import annotations

from contextlib import suppress

from syncpoint.base.model import varint
from syncpoint.base.model.errors import Code, SyncpointError, received
from syncpoint.wire.transport import fields
from syncpoint.wire.transport.encoding import (
    ENCODINGS,
    percent_decode,
    percent_encode,
    read_binary,
    read_timeout,
    write_binary,
)
from syncpoint.wire.transport.fields import Field

Metadata = dict[bytes, bytes]
"""Names in lower case. Values of `-bin` names are raw bytes. Values of a name given twice are joined with a comma."""

_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
_OURS = frozenset(
    (
        b"te", b"content-type", b"content-length", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding",
        b"grpc-status", b"grpc-message", b"grpc-status-details-bin",
    )
)  # fmt: skip
_UPPER = frozenset(range(0x41, 0x5B)) | frozenset(range(0x21)) | frozenset(range(0x7F, 0x100))
_BAD_VALUE = frozenset((0, 10, 13))

STATUS_MESSAGE_BYTES = 4096
SHORT_MESSAGE_BYTES = 512  # where the longer one leaves no room for a status
SECRET = b"x-syncpoint-secret"
"""Metadata by which processes of one server know each other where no certificates do that."""


class MalformedHeaders(Exception):
    """The head breaks a rule of HTTP/2; its stream is reset."""


class RequestHead:
    """A request's head. `problem`: what to answer instead of calling the method, or None."""

    __slots__ = ("encoding", "grpc", "length", "metadata", "path", "problem", "timeout_s")

    def __init__(self) -> None:
        self.path = b""
        self.metadata: Metadata = {}
        self.timeout_s: float | None = None
        self.encoding = b""
        self.length: int | None = None
        self.grpc = False
        self.problem: SyncpointError | None = None


class ResponseHead:
    """Head or trailers of a response. `status` is None when it carries none."""

    __slots__ = ("details", "encoding", "grpc", "http_status", "message", "metadata", "status")

    def __init__(self) -> None:
        self.http_status = 0
        self.grpc = False
        self.status: int | None = None
        self.message = b""
        self.details = b""
        self.encoding = b""
        self.metadata: Metadata = {}


def _check(name: bytes, value: bytes) -> None:
    if not name or not _UPPER.isdisjoint(name) or b":" in name:
        raise MalformedHeaders("bad character in a field name")
    if not _BAD_VALUE.isdisjoint(value):
        raise MalformedHeaders("bad character in a field value")
    if name in _HOP or (name == b"te" and value != b"trailers"):
        raise MalformedHeaders("connection-specific field")


def _keep(metadata: Metadata, name: bytes, value: bytes) -> bool:
    """Add caller's metadata; False when a binary value is malformed."""
    if name.endswith(b"-bin"):
        pieces = [read_binary(piece) for piece in value.split(b",")]
        if None in pieces:
            return False
        value = b",".join(piece for piece in pieces if piece is not None)
    old = metadata.get(name)
    metadata[name] = value if old is None else old + b"," + value
    return True


def read_request(received: list[Field], size: int, list_bytes: int) -> RequestHead:
    """The head of a request. Raises Malformed."""
    head = RequestHead()
    pseudo: Metadata = {}
    host = False
    for name, value in received:
        if name[:1] == b":":
            if host or name in pseudo or name not in (b":method", b":scheme", b":path", b":authority"):
                raise MalformedHeaders("bad pseudo-header")
            pseudo[name] = value
            continue
        host = True
        _check(name, value)
        if name not in _OURS:
            if not _keep(head.metadata, name, value):
                head.problem = SyncpointError(Code.INTERNAL, f"Malformed binary metadata {name.decode()}.")
        elif name == b"content-type":
            head.grpc = value == b"application/grpc" or value[:17] in (b"application/grpc+", b"application/grpc;")
        elif name == b"grpc-timeout":
            head.timeout_s = read_timeout(value)
            if head.timeout_s is None:
                head.problem = SyncpointError(Code.INTERNAL, "Malformed grpc-timeout.")
        elif name == b"grpc-encoding":
            head.encoding = value
            if value not in ENCODINGS:
                text = f"Compression {value.decode('ascii', 'replace')} is not implemented."
                head.problem = SyncpointError(Code.UNIMPLEMENTED, text)
        elif name == b"content-length":
            if not value.isdigit() or len(value) > 18:
                raise MalformedHeaders("bad content-length")
            head.length = int(value)
    head.path = pseudo.get(b":path", b"")
    if not head.path or b":scheme" not in pseudo or b":method" not in pseudo:
        raise MalformedHeaders("missing pseudo-header")
    if pseudo[b":method"] != b"POST":
        head.grpc = False
    if size > list_bytes:
        head.problem = SyncpointError(
            Code.RESOURCE_EXHAUSTED, f"The metadata has {size} bytes; the maximum is {list_bytes}."
        )
    return head


def check_trailers(received: list[Field]) -> None:
    """Trailers of a request, which mean nothing to gRPC. Raises Malformed."""
    for name, value in received:
        if name[:1] == b":":
            raise MalformedHeaders("pseudo-header in trailers")
        _check(name, value)


def read_response(received: list[Field]) -> ResponseHead:
    """Head or trailers of a response. Raises Malformed."""
    head = ResponseHead()
    for name, value in received:
        if name == b":status":
            if not value.isdigit():
                raise MalformedHeaders("bad :status")
            head.http_status = int(value)
            continue
        _check(name, value)
        if name == b"grpc-status":
            head.status = int(value) if value.isdigit() and len(value) < 9 else Code.UNKNOWN
        elif name == b"grpc-message":
            head.message = value
        elif name == b"grpc-status-details-bin":
            head.details = read_binary(value) or b""
        elif name == b"content-type":
            head.grpc = value.startswith(b"application/grpc")
        elif name == b"grpc-encoding":
            head.encoding = value
        elif name not in _OURS:
            _keep(head.metadata, name, value)
    return head


def error_of(head: ResponseHead) -> SyncpointError | None:
    """The failure that trailers state, or None for OK."""
    if head.status == 0:
        return None
    if head.status is None:
        code = {
            400: Code.INTERNAL,
            401: Code.UNAUTHENTICATED,
            403: Code.PERMISSION_DENIED,
            404: Code.UNIMPLEMENTED,
        }.get(head.http_status, Code.UNAVAILABLE if head.http_status in (429, 502, 503, 504) else Code.UNKNOWN)
        return SyncpointError(code, f"The answer has no gRPC status (HTTP status {head.http_status}).")
    return received(head.status, percent_decode(head.message), unpack_details(head.details))


# -- blocks we write -----------------------------------------------------------------------------------------------

# Index 8 of the static table is `:status: 200`; 31 is the name `content-type` (RFC 7541, appendix A).
HEAD_BLOCK = b"\x88" + b"\x0f\x10" + b"\x10application/grpc"
OK_BLOCK = fields.literal(b"grpc-status", b"0")


def status_block(error: SyncpointError, list_bytes: int) -> bytes:
    """Trailers that state `error`, each with a google.rpc.Status: official clients in Python take an acknowledgement
    that fails without one for confirmed.

    Details are left out when the peer could not take them (`list_bytes`, RFC 9113, 6.5.2), and the message is cut: from
    half of what it announces on, gRPC's C core refuses some trailers by lot, and puts another status in place of ours
    beside our details; official clients end their threads at that.
    """
    room, block = list_bytes // 2 - 256, b""
    for text_bytes in (STATUS_MESSAGE_BYTES, SHORT_MESSAGE_BYTES):
        message = _cut(error.message, text_bytes)
        block = fields.literal(b"grpc-status", b"%d" % error.code)
        if message:
            block += fields.literal(b"grpc-message", percent_encode(message))
        for details in (error.details if sum(map(len, error.details)) < room else (), ()):
            packed = pack_details(SyncpointError(error.code, message, details))  # with the same message, or it is void
            status = fields.literal(b"grpc-status-details-bin", write_binary(packed))
            if len(block) + len(status) <= room:
                return block + status
    return block


def _cut(text: str, encoded_bytes: int) -> str:
    """The text, or its beginning where it would be longer than this in a header."""
    text = text[: encoded_bytes + 1]  # no letter is shorter in a header; it may hold the megabytes of a request
    if len(percent_encode(text)) <= encoded_bytes:
        return text
    return text.encode()[: encoded_bytes // 3].decode("utf-8", "ignore")


def plain_block(status: int, length: int) -> bytes:
    """Head of an answer to a request that is not gRPC."""
    return fields.write(
        [
            (b":status", b"%d" % status),
            (b"content-type", b"text/plain"),
            (b"content-length", b"%d" % length),
        ]
    )


def request_block(path: bytes, scheme: bytes, authority: bytes, extra: list[Field]) -> bytes:
    """Head of a gRPC request; `extra` is timeout and metadata, values of `-bin` names still raw."""
    return fields.write(
        [
            (b":method", b"POST"),
            (b":scheme", scheme),
            (b":path", path),
            (b":authority", authority),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            *((name, write_binary(value) if name.endswith(b"-bin") else value) for name, value in extra),
        ]
    )


# -- google.rpc.Status ---------------------------------------------------------------------------------------------
# Three fields, written and read here so that this room needs no protobuf: code = 1 (int32), message = 2 (string),
# details = 3 (repeated google.protobuf.Any).


def pack_details(error: SyncpointError) -> bytes:
    """A serialised google.rpc.Status of `error`."""
    text = error.message.encode()
    out = b"\x08" + varint.encode(int(error.code)) + b"\x12" + varint.encode(len(text)) + text
    return out + b"".join(b"\x1a" + varint.encode(len(detail)) + detail for detail in error.details)


def unpack_details(raw: bytes) -> tuple[bytes, ...]:
    """The details of a serialised google.rpc.Status; what cannot be read is left out."""
    details = []
    with suppress(IndexError, ValueError):
        for number, content in varint.fields(raw):  # those before a broken one are kept
            if number == 3:
                details.append(content)
    return tuple(details)
