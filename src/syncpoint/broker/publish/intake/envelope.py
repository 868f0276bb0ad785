"""The envelope of a publish between processes, and the frequent answers of Chains/Serve, as bytes.

Place: written by the proxy, read by `service`; the other way round for what Serve sends. The schema is
proto/syncpoint/internal/v1/internal.proto; here it is read and written without message classes, because this happens
per request and because payloads of megabytes need not be copied.
Promise: any order of fields is read, fields of newer versions are passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model import varint
from syncpoint.base.model.delivery import Batch, attempts_of, expired_of, freshness_of, passed_over
from syncpoint.broker.publish.facts.origin import PublishOrigin

_U64 = struct.Struct("<Q")
_REQUEST = 15 << 3 | 2
_ORIGINS = {
    PublishOrigin.SERVICE: b"\x48\x01",
    PublishOrigin.FORWARD: b"\x50\x01",
    PublishOrigin.FIRING: b"\x48\x01\x58\x01",
}


class PublishBatch(NamedTuple):
    """One request on its way to one chain. `request` is a serialised PublishRequest; see the schema for the rest."""

    chain: int
    epoch: int
    keyed: bool
    sender: int
    batch: int
    resent: bool
    request: bytes | memoryview
    topic: int = 0
    schema: int = 0
    origin: PublishOrigin = PublishOrigin.CLIENT


def write_publish(batch: PublishBatch) -> list[bytes | memoryview]:
    """As buffers, ready to be sent; the request is not copied."""
    request = batch.request
    rare = b""
    if batch.schema:
        rare = b"\x41" + _U64.pack(batch.schema)
    if batch.origin is not PublishOrigin.CLIENT:
        rare += _ORIGINS[batch.origin]
    head = b"\x08%b\x10%b\x18%b\x21%b\x28%b\x30%b\x38%b%b\x7a%b" % (
        varint.encode(batch.chain),
        varint.encode(batch.epoch),
        b"\x01" if batch.keyed else b"\x00",
        _U64.pack(batch.sender),
        varint.encode(batch.batch),
        b"\x01" if batch.resent else b"\x00",
        varint.encode(batch.topic),
        rare,
        varint.encode(len(request)),
    )
    return [head, request]


def read_publish(data: bytes) -> PublishBatch:
    """Raises `Malformed`."""
    values = [0] * 12  # by field number
    request: memoryview | bytes = b""
    at, end = 0, len(data)
    try:
        while at < end:
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = varint.decode(data, at - 1)
            wire = tag & 7
            if wire == 0:
                value = data[at]
                at += 1
                if value >= 0x80:
                    value, at = varint.decode(data, at - 1)
                if tag >> 3 < 12:
                    values[tag >> 3] = value
            elif wire == 2:
                size = data[at]
                at += 1
                if size >= 0x80:
                    size, at = varint.decode(data, at - 1)
                if size > end - at:
                    raise Malformed
                if tag == _REQUEST:
                    request = memoryview(data)[at : at + size]
                at += size
            elif wire == 1:
                (value,) = _U64.unpack_from(data, at)
                if tag >> 3 < 12:
                    values[tag >> 3] = value
                at += 8
            elif wire == 5 and end - at >= 4:
                at += 4
            else:
                raise Malformed
    except (IndexError, ValueError, struct.error):
        raise Malformed from None
    _, chain, epoch, keyed, sender, number, resent, topic, schema, within, forwarded, scheduled = values
    origin = PublishOrigin.FIRING if scheduled else PublishOrigin.SERVICE if within else PublishOrigin.CLIENT
    if forwarded:
        origin = PublishOrigin.FORWARD
    return PublishBatch(chain, epoch, bool(keyed), sender, number, bool(resent), request, topic, schema, origin)


def publish_response(prefix: bytes, first_offset: int, count: int) -> bytes:
    """A PublishResponse with the ids of `count` messages."""
    size = bytes((0x0A, len(prefix) + 12))
    return b"".join(b"%b%b%012d" % (size, prefix, offset) for offset in range(first_offset, first_offset + count))


# -- FromChains --------------------------------------------------------------------------------------------------------


def data_message(subscription: int, source: int) -> bytes:
    """Data: messages of a source became available."""
    body = b"\x08%b\x10%b" % (varint.encode(subscription), varint.encode(source))
    return b"\x12%b%b" % (varint.encode(len(body)), body)


def acknowledged_message(number: int) -> bytes:
    """Acknowledged, without an error."""
    body = b"\x08" + varint.encode(number)
    return b"\x3a%b%b" % (varint.encode(len(body)), body)


def heartbeat_message(number: int, chains: Iterable[tuple[int, int]] = ()) -> bytes:
    """Heartbeat: the answer to one, with chains and how many milliseconds ago their disks obeyed."""
    body = b"\x08" + varint.encode(number)
    for chain, age_ms in chains:
        one = b"\x08%b\x10%b" % (varint.encode(chain), varint.encode(age_ms))
        body += b"\x12%b%b" % (varint.encode(len(one)), one)
    return b"\x42%b%b" % (varint.encode(len(body)), body)


def fetched_message(number: int, batches: Sequence[Batch]) -> list[bytes]:
    """Fetched, as buffers; payloads are not copied."""
    parts = [b"\x08" + varint.encode(number)]
    for batch in batches:
        head = b"\x08%b\x10%b\x18%b\x20%b" % (
            varint.encode(batch.source),
            varint.encode(batch.first_offset),
            varint.encode(batch.begin),
            varint.encode(batch.end),
        )
        if batch.skip:
            head += b"\x2a%b%b" % (varint.encode(len(batch.skip)), batch.skip)
        head += b"\x31%b\x3a%b" % (_U64.pack(batch.time_ns), varint.encode(len(batch.payload)))
        parts += (b"\x12%b%b" % (varint.encode(len(head) + len(batch.payload)), head), batch.payload)
    for tag, ranges in ((b"\x2a", passed_over(batches)), (b"\x3a", expired_of(batches))):
        for begin, end in ranges:
            found = b"\x08%b\x10%b" % (varint.encode(begin), varint.encode(end))
            parts.append(b"%b%b%b" % (tag, varint.encode(len(found)), found))
    freshness = freshness_of(batches)
    if freshness is not None:
        parts.append(b"\x42\x1b\x09%b\x11%b\x19%b" % tuple(map(_U64.pack, freshness)))
    for run in attempts_of(batches):
        found = b"\x08%b\x10%b\x18%b\x20%b" % tuple(map(varint.encode, run))
        parts.append(b"\x32%b%b" % (varint.encode(len(found)), found))
    return [b"\x32" + varint.encode(sum(map(len, parts))), *parts]
