"""Sealing: the data of published messages encrypted, the data of delivered messages opened, a whole request or a
whole column at a time.

Place: called by the proxy, in front of everything that stores or forwards. Only data is sealed; attributes, ordering
key and whatever else a message has stay as they are, because filters and forwarders read them.
Format of sealed data: magic (7 bytes) | version 1 (1 byte) | number of the data key (u32, little-endian) | nonce (12
bytes) | ciphertext | tag (16 bytes). The first twelve bytes, the header, are authenticated with the data. Empty data
is not sealed.
Promise: data that begins with a header is opened or kept back, never passed on. What cannot be opened is named.
Leaves to the caller: the keys, and a nonce from which it has counted on for as many messages as were sealed.
"""

from __future__ import annotations

import cython

from .errors import Malformed

if not cython.compiled:
    from ._bytes import (
        Field,
        ReadPtr,
        WritePtr,
        array_ptr,
        as_bytes,
        cut,
        get32,
        put32,
        put_varint,
        read_field,
        read_ptr,
        same,
    )

HEADER_BYTES = 12
NONCE_BYTES = 12
TAG_BYTES = 16
OVERHEAD_BYTES = 40
_MAGIC: bytes = b"\xf5SPseal\x01"
_HEADER = cython.declare(cython.Py_ssize_t, 12)
_LEAST = cython.declare(cython.Py_ssize_t, 40)
_NONCES = 1 << 96


def header_of(key: int) -> bytes:
    """What sealed data begins with. Raises ValueError for a number of more than 32 bits."""
    if not 0 <= key < 1 << 32:
        raise ValueError("a data key's number has 32 bits")
    return _MAGIC + int(key).to_bytes(4, "little")


def seal_request(request: object, header: bytes, nonce: int, encrypt: object) -> tuple:
    """(PublishRequest with sealed data, messages sealed). `encrypt(nonce, data, header)` is AES-256-GCM.

    The messages get the nonces `nonce`, `nonce + 1`, ... modulo 2**96. Raises Malformed.
    """
    data: bytes = as_bytes(request)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    begin: cython.Py_ssize_t = 0
    sealed: cython.Py_ssize_t = 0
    field: Field
    out: list = []
    parts: list
    while at < end:
        field = read_field(p, at, end)
        if field.number == 0:
            raise Malformed("the request is not a PublishRequest")
        if field.number == 2 and field.wire == 2:
            parts = _sealed_message(p, field.start, field.stop, header, (nonce + sealed) % _NONCES, encrypt)
            if parts:
                out.append(cut(p, begin, at))
                out.append(_prefix(2, parts))
                out += parts
                begin = field.stop
                sealed += 1
        at = field.stop
    if sealed == 0:
        return data, 0
    out.append(cut(p, begin, end))
    return b"".join(out), sealed


def open_response(response: object, keys: dict) -> tuple:
    """(response with data opened, ack ids of messages kept back, numbers of keys that are missing).

    `response` is a PullResponse or a StreamingPullResponse; `keys` gives `decrypt(nonce, data, header)` by the number
    of the key. If keys are missing the first value is b"": come again with them. A message whose data was tampered with
    is left out. Raises Malformed.
    """
    data: bytes = as_bytes(response)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    begin: cython.Py_ssize_t = 0
    body_start: cython.Py_ssize_t
    body_stop: cython.Py_ssize_t
    field: Field
    content: Field
    body: Field
    out: list = []
    kept_back: list = []
    missing: list = []
    while at < end:
        field = read_field(p, at, end)
        if field.number == 0:
            raise Malformed("the response is not a PullResponse")
        if field.number == 1 and field.wire == 2:
            body_start = body_stop = field.stop
            body = _last(p, field.start, field.stop, 2)
            if body.number != 0:
                body_start = body.start
                body_stop = body.stop
            content = _last(p, body_start, body_stop, 1)
            if content.number != 0 and _is_sealed(p, content.start, content.stop):
                number = get32(p, content.start + 8)
                decrypt = keys.get(number)
                if decrypt is None:
                    if number not in missing:
                        missing.append(number)
                elif not missing:
                    out.append(cut(p, begin, at))
                    begin = field.stop
                    parts = _opened_message(p, field.start, field.stop, body_start, body_stop, content, decrypt)
                    if parts is None:
                        content = _last(p, field.start, field.stop, 1)
                        kept_back.append(cut(p, content.start, content.stop))
                    else:
                        out.append(_prefix(1, parts))
                        out += parts
        at = field.stop
    if missing:
        return b"", [], missing
    if begin == 0:
        return data, kept_back, missing
    out.append(cut(p, begin, end))
    return b"".join(out), kept_back, missing


def seal_values(
    batch: object, column: tuple, rows: cython.Py_ssize_t, header: bytes, nonce: int, encrypt: object
) -> tuple:
    """(offsets, values, how many were sealed) of a binary Arrow column with every value sealed that is not empty.

    `column`: where in `batch` its offsets and its values begin, and how many bytes of values there are. Nonces as in
    `seal_request`. Raises Malformed for a column that leads outside of its values or of the batch.
    """
    data: bytes = as_bytes(batch)
    p: ReadPtr = read_ptr(data)
    offsets: cython.Py_ssize_t = column[0]
    values: cython.Py_ssize_t = column[1]
    _check_values(p, len(data), offsets, values, column[2], rows)
    new: bytearray = bytearray(4 * (rows + 1))
    w: WritePtr = array_ptr(new)
    start: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = 0
    out: list = []
    for i in range(rows):
        start = values + get32(p, offsets + 4 * i)
        stop = values + get32(p, offsets + 4 * i + 4)
        if start < stop:
            raw: bytes = ((nonce + count) % _NONCES).to_bytes(12, "little")
            out.append(header)
            out.append(raw)
            out.append(encrypt(raw, cut(p, start, stop), header))
            at += stop - start + _LEAST
            count += 1
            if at > 0x7FFFFFFF:
                raise Malformed("a column has more than 2 GiB when it is sealed")
        put32(w, 4 * i + 4, at)
    return bytes(new), b"".join(out), count


def open_values(batch: object, column: tuple, rows: cython.Py_ssize_t, keys: dict) -> tuple:
    """(offsets, values, rows that cannot be opened, numbers of keys that are missing) of a binary Arrow column.

    `column` as in `seal_values`, `keys` as in `open_response`. If keys are missing, or nothing is sealed, the first two
    are b"". Raises Malformed.
    """
    data: bytes = as_bytes(batch)
    p: ReadPtr = read_ptr(data)
    offsets: cython.Py_ssize_t = column[0]
    values: cython.Py_ssize_t = column[1]
    _check_values(p, len(data), offsets, values, column[2], rows)
    new: bytearray = bytearray(4 * (rows + 1))
    w: WritePtr = array_ptr(new)
    begin: cython.Py_ssize_t
    start: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    sealed: cython.bint = False
    out: list = []
    closed: list = []
    missing: list = []
    begin = values + get32(p, offsets)
    start = begin
    for i in range(rows):
        stop = values + get32(p, offsets + 4 * i + 4)
        if _is_sealed(p, start, stop):
            sealed = True
            number = get32(p, start + 8)
            decrypt = keys.get(number)
            if decrypt is None:
                if number not in missing:
                    missing.append(number)
            elif not missing:
                out.append(cut(p, begin, start))
                begin = stop
                try:
                    plain: bytes = decrypt(
                        cut(p, start + _HEADER, start + 24), cut(p, start + 24, stop), cut(p, start, start + _HEADER)
                    )
                    out.append(plain)
                    at += len(plain)
                except Exception:  # the cipher's own class of failure, which only the caller knows
                    closed.append(i)
        else:
            at += stop - start
        put32(w, 4 * i + 4, at)
        start = stop
    if missing or not sealed:
        return b"", b"", [], missing
    out.append(cut(p, begin, start))
    return bytes(new), b"".join(out), closed, missing


@cython.cfunc
def _check_values(
    p: ReadPtr,
    end: cython.Py_ssize_t,
    offsets: cython.Py_ssize_t,
    values: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    rows: cython.Py_ssize_t,
):
    """Offsets must rise, within the values, within the batch. Raises Malformed."""
    last: cython.Py_ssize_t = 0
    value: cython.Py_ssize_t
    i: cython.Py_ssize_t
    if rows < 0 or rows > 0x1FFFFFFF or offsets < 0 or values < 0 or size < 0 or values > end - size:
        raise Malformed("a column lies outside its batch")
    if offsets > end - 4 * (rows + 1):
        raise Malformed("a column has fewer values than there are rows")
    for i in range(rows + 1):
        value = get32(p, offsets + 4 * i)
        if value < last or value > size:
            raise Malformed("the offsets of a column fall or point outside it")
        last = value


@cython.cfunc
def _sealed_message(
    p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t, header: bytes, nonce: int, encrypt: object
) -> list:
    """The PubsubMessage with its data sealed, in pieces; none if it has no data."""
    begin: cython.Py_ssize_t = at
    start: cython.Py_ssize_t = at
    end: cython.Py_ssize_t = at
    field: Field
    out: list = []
    while at < stop:
        field = read_field(p, at, stop)
        if field.number == 0:
            raise Malformed("a message is not a PubsubMessage")
        if field.number == 1 and field.wire == 2:
            if begin < at:
                out.append(cut(p, begin, at))
            begin = field.stop
            start = field.start
            end = field.stop
        at = field.stop
    if start == end:
        return []
    if begin < stop:
        out.append(cut(p, begin, stop))
    raw: bytes = nonce.to_bytes(12, "little")
    sealed: list = [header, raw, encrypt(raw, cut(p, start, end), header)]
    out.append(_prefix(1, sealed))
    out += sealed
    return out


@cython.cfunc
def _opened_message(
    p: ReadPtr,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    body_start: cython.Py_ssize_t,
    body_stop: cython.Py_ssize_t,
    content: Field,
    decrypt: object,
) -> list | None:
    """The ReceivedMessage with its data opened, in pieces; None if it cannot be."""
    head: cython.Py_ssize_t = content.start
    try:
        plain: bytes = decrypt(
            cut(p, head + _HEADER, head + 24), cut(p, head + 24, content.stop), cut(p, head, head + _HEADER)
        )
    except Exception:  # the cipher's own class of failure, which only the caller knows
        return None
    inner: list = _without(p, body_start, body_stop, 1)
    inner.append(_prefix(1, [plain]))
    inner.append(plain)
    outer: list = _without(p, start, stop, 2)
    outer.append(_prefix(2, inner))
    outer += inner
    return outer


@cython.cfunc
def _without(p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t, number: cython.uint) -> list:
    """What lies between the fields of that number. Everything has been read once, so nothing is malformed."""
    begin: cython.Py_ssize_t = at
    field: Field
    out: list = []
    while at < stop:
        field = read_field(p, at, stop)
        if field.number == number and field.wire == 2:
            if begin < at:
                out.append(cut(p, begin, at))
            begin = field.stop
        at = field.stop
    if begin < stop:
        out.append(cut(p, begin, stop))
    return out


@cython.cfunc
def _last(p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t, number: cython.uint) -> Field:
    """The last field of that number with a length; number 0 if there is none. Raises Malformed."""
    found: Field = read_field(p, stop, stop)
    field: Field
    while at < stop:
        field = read_field(p, at, stop)
        if field.number == 0:
            raise Malformed("a message in the response is not a ReceivedMessage")
        if field.number == number and field.wire == 2:
            found = field
        at = field.stop
    return found


@cython.cfunc
@cython.exceptval(check=False)
def _is_sealed(p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
    """Whether data begins with a header and is long enough."""
    return stop - at >= _LEAST and same(p, at, read_ptr(_MAGIC), 0, 8)


def _prefix(number: cython.int, parts: list) -> bytes:
    """Tag and length of a field made of these parts."""
    size: cython.Py_ssize_t = 0
    for part in parts:
        size += len(part)
    out: bytearray = bytearray(11)
    w: WritePtr = array_ptr(out)
    w[0] = number << 3 | 2
    size = put_varint(w, 1, size)
    return bytes(out[:size])
