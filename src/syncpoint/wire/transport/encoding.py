"""Texts and bytes in gRPC's own dress: message compression, percent-encoding, timeouts, binary metadata.

Place: between header fields or message bytes and the values calls work with. Source: grpc/doc/PROTOCOL-HTTP2.md.
Promise: reading is bounded (a compressed message never unfolds beyond the limit) and fails with a SyncpointError.
Leaves to nobody; pure functions.
"""

from __future__ import annotations

import base64
import binascii
import zlib

from syncpoint.base.model.errors import Code, SyncpointError

_WBITS = {b"gzip": 31, b"deflate": 15}
ENCODINGS = frozenset((b"", b"identity", *_WBITS))

_PLAIN = frozenset(range(0x20, 0x7F)) - {0x25}
_UNITS = (("n", 1e-9), ("u", 1e-6), ("m", 1e-3), ("S", 1.0), ("M", 60.0), ("H", 3600.0))
_SECONDS = {ord(unit): size for unit, size in _UNITS}
TIMEOUT_S_MAX = 30 * 365 * 86400.0


def inflate(flag: int, encoding: bytes, payload: bytes, limit: int) -> bytes:
    """The message of a prefix whose first byte is `flag` (not 0), at most `limit` bytes.

    Raises SyncpointError: INTERNAL when it was not announced or is broken, RESOURCE_EXHAUSTED above the limit.
    """
    message = inflate_small(flag, encoding, payload, limit)
    if message is None:
        text = f"Received message larger than max ({limit}) after decompression."
        raise SyncpointError(Code.RESOURCE_EXHAUSTED, text)
    return message


def inflate_small(flag: int, encoding: bytes, payload: bytes, most: int) -> bytes | None:
    """What `inflate` returns or raises; None where that is larger than `most`."""
    wbits = _WBITS.get(encoding)
    if flag != 1 or wbits is None:
        raise SyncpointError(Code.INTERNAL, "Compressed message without a supported grpc-encoding.")
    unfold = zlib.decompressobj(wbits)
    try:
        message = unfold.decompress(payload, most + 1)
    except zlib.error:
        raise SyncpointError(Code.INTERNAL, "The compressed message is damaged.") from None
    if len(message) > most:
        return None
    if not unfold.eof:
        raise SyncpointError(Code.INTERNAL, "The compressed message is cut short.")
    return message


def deflate(encoding: bytes, message: bytes) -> bytes:
    """`message` compressed for sending."""
    fold = zlib.compressobj(6, zlib.DEFLATED, _WBITS[encoding])
    return fold.compress(message) + fold.flush()


def percent_encode(text: str) -> bytes:
    """A status message as a header value."""
    raw = text.encode("utf-8", "replace")
    if _PLAIN.issuperset(raw):
        return raw
    return b"".join(bytes((c,)) if c in _PLAIN else b"%%%02X" % c for c in raw)


def percent_decode(raw: bytes) -> str:
    """The text of a grpc-message; what is not properly encoded is kept as it came."""
    if b"%" not in raw:
        return raw.decode("utf-8", "replace")
    out = bytearray()
    at = 0
    while at < len(raw):
        if raw[at] == 0x25:
            try:
                out += binascii.unhexlify(raw[at + 1 : at + 3])
                if len(raw) - at >= 3:
                    at += 3
                    continue
            except binascii.Error:
                pass
        out.append(raw[at])
        at += 1
    return out.decode("utf-8", "replace")


def read_timeout(raw: bytes) -> float | None:
    """Seconds of a grpc-timeout; None when it is malformed."""
    digits = raw[:-1]
    if not digits.isdigit() or len(digits) > 8:
        return None
    size = _SECONDS.get(raw[-1])
    return None if size is None else min(int(digits) * size, TIMEOUT_S_MAX)


def write_timeout(seconds: float) -> bytes:
    """A grpc-timeout of at least `seconds` and at most 1 % more: few different texts, so that header blocks repeat."""
    counts = ((max(1, -int(-seconds // size)), unit) for unit, size in _UNITS)
    count, unit = next((pair for pair in counts if pair[0] < 100_000), (99_999_999, "H"))
    step = 10 ** max(0, len(str(count)) - 3)
    return b"%d%s" % (min(-(-count // step) * step, 99_999_999), unit.encode())


def read_binary(raw: bytes) -> bytes | None:
    """Value of a `-bin` header (base64 with or without padding); None when it is malformed."""
    try:
        return base64.b64decode(raw + b"=" * (-len(raw) % 4), validate=True)
    except binascii.Error:
        return None


def write_binary(value: bytes) -> bytes:
    """Value of a `-bin` header, without padding."""
    return base64.b64encode(value).rstrip(b"=")
