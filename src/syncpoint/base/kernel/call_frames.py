"""Unary gRPC calls as they lie in the bytes of an HTTP/2 connection: many read, and many answered, at once.

Place: under `wire/transport/call_batches`. A client that has many small requests at once sends them one after the
other; `read` takes them out of what was received, and `write` puts their answers one after the other.
Promise: only what needs no thought is taken: a whole header block that is known, in one frame, then the request, whole
and not compressed, in one frame that ends its stream. WINDOW_UPDATE frames between them are added up. Reading stops in
front of anything else, and nothing beyond the bytes given is read.
What is left to the caller: whether the block means the method that he thinks of, all limits, and everything else that
comes on a connection.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from ._bytes import ReadPtr, WritePtr, as_bytes, copy, cut, finished, new_buffer, read_ptr, same, write_ptr

_HEAD = cython.declare(cython.Py_ssize_t, 9)  # bytes of a frame's head
_PREFIX = cython.declare(cython.Py_ssize_t, 5)  # bytes in front of a gRPC message
_WINDOW_MAX = cython.declare(cython.Py_ssize_t, 2**31 - 1)
_DATA = cython.declare(cython.int, 0)
_HEADERS = cython.declare(cython.int, 1)
_WINDOW_UPDATE = cython.declare(cython.int, 8)
_END_STREAM = cython.declare(cython.int, 1)
_END_HEADERS = cython.declare(cython.int, 4)


def read(
    received: object,
    at: cython.Py_ssize_t,
    block: bytes,
    last_stream: cython.Py_ssize_t,
    count_max: cython.Py_ssize_t,
    data_max: cython.Py_ssize_t,
    bytes_max: cython.Py_ssize_t,
) -> tuple:
    """Take calls that begin with `block` from `received[at:]`, each on the stream after the one before it.

    `last_stream` is the stream before the first call. At most `count_max` calls are taken, none of more than `data_max`
    bytes with the 5 in front of its message, and none after `bytes_max` bytes of them. Returns (where the rest begins,
    requests, windows, bytes of DATA, updates, window of the connection): `windows` has for each call by how much its
    own window was opened; `updates` counts WINDOW_UPDATE frames; the last is by how much they opened the window of the
    connection, at most 2**31 - 1.
    """
    data: bytes = as_bytes(received)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    known: ReadPtr = read_ptr(block)
    known_size: cython.Py_ssize_t = len(block)
    requests: list = []
    windows: list = []
    taken: cython.Py_ssize_t = 0
    data_bytes: cython.Py_ssize_t = 0
    updates: cython.Py_ssize_t = 0
    seen: cython.Py_ssize_t
    whole: cython.Py_ssize_t = 0
    window: cython.Py_ssize_t
    more: cython.Py_ssize_t
    size: cython.Py_ssize_t
    stream: cython.Py_ssize_t
    here: cython.Py_ssize_t
    while end - at >= _HEAD + 4:
        if _is(p, at, _WINDOW_UPDATE, 0, 4, 0):
            more = _number(p, at + _HEAD) & _WINDOW_MAX
            if more == 0 or whole + more > _WINDOW_MAX:
                break
            whole += more
            updates += 1
            at += _HEAD + 4
            continue
        stream = last_stream + 2
        if taken >= count_max or data_bytes > bytes_max or stream > _WINDOW_MAX:
            break
        if end - at < _HEAD + known_size or not _is(p, at, _HEADERS, _END_HEADERS, known_size, stream):
            break
        if not same(p, at + _HEAD, known, 0, known_size):
            break
        here = at + _HEAD + known_size
        window = seen = 0
        while end - here >= _HEAD + 4 and _is(p, here, _WINDOW_UPDATE, 0, 4, stream):
            more = _number(p, here + _HEAD) & _WINDOW_MAX
            if more == 0 or window + more > _WINDOW_MAX:
                break
            window += more
            seen += 1
            here += _HEAD + 4
        if end - here < _HEAD + _PREFIX:
            break
        size = _size(p, here)
        if size < _PREFIX or size > data_max or size > end - here - _HEAD:
            break
        if not _is(p, here, _DATA, _END_STREAM, size, stream):
            break
        here += _HEAD
        if p[here] != 0 or _number(p, here + 1) != size - _PREFIX:
            break
        requests.append(cut(p, here + _PREFIX, here + size))
        windows.append(window)
        updates += seen
        data_bytes += size
        taken += 1
        last_stream = stream
        at = here + size
    return at, requests, windows, data_bytes, updates, whole


def write(messages: list, first_stream: cython.Py_ssize_t, head: bytes, tail: bytes) -> bytes:
    """The answers to calls on `first_stream` and every second one after it: for each its message between two header
    blocks, `head` and `tail`, of which the latter ends the stream. No message may be larger than a frame.
    """
    head_size: cython.Py_ssize_t = len(head)
    tail_size: cython.Py_ssize_t = len(tail)
    total: cython.Py_ssize_t = len(messages) * (3 * _HEAD + _PREFIX + head_size + tail_size)
    size: cython.Py_ssize_t
    message: bytes
    for message in messages:
        total += len(message)
    answers = new_buffer(total)
    out: WritePtr = write_ptr(answers)
    at: cython.Py_ssize_t = 0
    for message in messages:
        size = len(message)
        at = _put_head(out, at, head_size, _HEADERS, _END_HEADERS, first_stream)
        copy(out, at, read_ptr(head), 0, head_size)
        at = _put_head(out, at + head_size, size + _PREFIX, _DATA, 0, first_stream)
        out[at] = 0
        _put_number(out, at + 1, size)
        copy(out, at + _PREFIX, read_ptr(message), 0, size)
        at = _put_head(out, at + _PREFIX + size, tail_size, _HEADERS, _END_HEADERS | _END_STREAM, first_stream)
        copy(out, at, read_ptr(tail), 0, tail_size)
        at += tail_size
        first_stream += 2
    return finished(answers)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _size(p: ReadPtr, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    return p[at] << 16 | p[at + 1] << 8 | p[at + 2]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _number(p: ReadPtr, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The four bytes at `at`, the most significant one first, as HTTP/2 has them."""
    return cython.cast(cython.Py_ssize_t, p[at]) << 24 | p[at + 1] << 16 | p[at + 2] << 8 | p[at + 3]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is(
    p: ReadPtr,
    at: cython.Py_ssize_t,
    kind: cython.int,
    flags: cython.int,
    size: cython.Py_ssize_t,
    stream: cython.Py_ssize_t,
) -> cython.bint:
    """Whether the head of this frame stands at `at`."""
    return (
        p[at + 3] == kind
        and p[at + 4] == flags
        and (_number(p, at + 5) & _WINDOW_MAX) == stream
        and _size(p, at) == size
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_number(out: WritePtr, at: cython.Py_ssize_t, value: cython.Py_ssize_t) -> cython.void:
    out[at] = value >> 24 & 255
    out[at + 1] = value >> 16 & 255
    out[at + 2] = value >> 8 & 255
    out[at + 3] = value & 255


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_head(
    out: WritePtr,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    kind: cython.int,
    flags: cython.int,
    stream: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write the head of a frame; returns the place after it."""
    out[at] = size >> 16 & 255
    out[at + 1] = size >> 8 & 255
    out[at + 2] = size & 255
    out[at + 3] = kind
    out[at + 4] = flags
    _put_number(out, at + 5, stream)
    return at + _HEAD
