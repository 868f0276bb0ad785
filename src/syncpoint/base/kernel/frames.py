"""Batch payloads: messages one behind the other, `[u32 length][PubsubMessage bytes]`, little-endian.

Place: what `publish.scan` writes, storage keeps, and `leases` delivers; payloads joined are a payload.
Promise: a torn or lying payload raises Malformed and is never read beyond its end. Whether the messages in it are well
formed is left to whoever wrote them (`publish.scan` checks).
"""

from __future__ import annotations

import cython

from .errors import Malformed

if not cython.compiled:
    from ._bytes import Field, ReadPtr, as_bytes, cut, get32, read_field, read_ptr


def next_message(p: ReadPtr, at: cython.Py_ssize_t, end: cython.Py_ssize_t):
    """Where the message whose length stands at `at` ends. Raises Malformed if that is behind `end`."""
    if end - at < 4 or get32(p, at) > cython.cast(cython.size_t, end - at - 4):
        raise Malformed("a batch ends in the middle of a message")
    return at + 4 + get32(p, at)


def count(payload: object) -> int:
    """Messages in a payload. Raises Malformed."""
    data: bytes = as_bytes(payload)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    found: cython.Py_ssize_t = 0
    while at < end:
        at = next_message(p, at, end)
        found += 1
    return found


def describe(payload: object) -> tuple:
    """(sizes, ordering keys) of the messages, in bytes and as bytes (b"" = none); for ordered subscriptions.

    A size counts the PubsubMessage without its length. Raises Malformed.
    """
    data: bytes = as_bytes(payload)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    stop: cython.Py_ssize_t
    key_start: cython.Py_ssize_t
    key_stop: cython.Py_ssize_t
    field: Field
    sizes: list = []
    keys: list = []
    while at < end:
        stop = next_message(p, at, end)
        at += 4
        sizes.append(stop - at)
        key_start = key_stop = at
        while at < stop:
            field = read_field(p, at, stop)
            if field.number == 0:
                raise Malformed("a message in a batch is not a PubsubMessage")
            if field.number == 5 and field.wire == 2:
                key_start = field.start
                key_stop = field.stop
            at = field.stop
        keys.append(cut(p, key_start, key_stop))
    return sizes, keys


def slice_payload(payload: object, skip: cython.Py_ssize_t, take: cython.Py_ssize_t) -> bytes:
    """The payload of at most `take` messages behind the first `skip`. Raises Malformed; ValueError if below 0."""
    data: bytes = as_bytes(payload)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    start: cython.Py_ssize_t
    if skip < 0 or take < 0:
        raise ValueError("skip and take count messages")
    while skip > 0 and at < end:
        at = next_message(p, at, end)
        skip -= 1
    start = at
    while take > 0 and at < end:
        at = next_message(p, at, end)
        take -= 1
    return data if start == 0 and at == end else cut(p, start, at)


def message_at(payload: object, index: cython.Py_ssize_t) -> bytes:
    """The PubsubMessage bytes of one message (from 0). Raises Malformed, or IndexError if there are not so many."""
    one: bytes = slice_payload(payload, index, 1)
    if not one:
        raise IndexError(f"no message {index} in this batch")
    return cut(read_ptr(one), 4, len(one))
