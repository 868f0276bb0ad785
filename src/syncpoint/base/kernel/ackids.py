"""Ack ids: which delivery of which message, sealed so that nobody else can write one.

Place: written into every ReceivedMessage by `leases`, read from every Acknowledge and ModifyAckDeadline.
Format: 36 bytes `source u64 | offset u64 | serial u32 | epoch u32 | generation u32 | tag u64`, little-endian, spelled
in the 48 characters of base64url without padding. tag = SipHash-2-4 (Aumasson and Bernstein, 2012) of the first 28
bytes under the subscription's key; 16 key bytes are two little-endian words.
Promise: every ack id has exactly one spelling. What serial, epoch and generation mean is left to `leases`.
"""

from __future__ import annotations

import cython

from .errors import BadAckId

if not cython.compiled:
    from ._bytes import (
        ReadPtr,
        WritePtr,
        as_bytes,
        finished,
        get32,
        get64,
        low64,
        new_buffer,
        put32,
        put64,
        read_ptr,
        u32,
        u64,
        write_ptr,
    )

_ALPHABET: bytes = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_PAIRS: bytes = bytes(c for n in range(4096) for c in (_ALPHABET[n >> 6], _ALPHABET[n & 63]))  # 12 bits, 2 letters
_VALUES: bytes = bytes(_ALPHABET.find(c) & 255 for c in range(256))  # 255: no letter of the alphabet
_pairs = read_ptr(_PAIRS)
_values = read_ptr(_VALUES)


def encode(key: bytes, source: int, offset: int, serial: int, epoch: int, generation: int) -> bytes:
    """The ack id (48 letters) of a delivery; for tests and tools. The key has 16 bytes."""
    buffer = new_buffer(36)
    raw: WritePtr = write_ptr(buffer)
    put64(raw, 0, source)
    put64(raw, 8, offset)
    put32(raw, 16, serial)
    put32(raw, 20, epoch)
    put32(raw, 24, generation)
    spelled = new_buffer(48)
    words = key_words(key)
    write_ack_id(write_ptr(spelled), 0, raw, words[0], words[1])
    return finished(spelled)


def decode(key: bytes, ack_id: bytes) -> tuple:
    """(source, offset, serial, epoch, generation) of an ack id. Raises BadAckId."""
    buffer = new_buffer(36)
    raw: WritePtr = write_ptr(buffer)
    data: bytes = as_bytes(ack_id)
    words = key_words(key)
    if len(data) != 48 or not read_ack_id(read_ptr(data), 0, raw, 0, words[0], words[1]):
        raise BadAckId(data)
    return get64(raw, 0), get64(raw, 8), get32(raw, 16), get32(raw, 20), get32(raw, 24)


def key_words(key: bytes) -> tuple:
    """The two words of a 16-byte key. Raises ValueError for another length."""
    data: bytes = as_bytes(key)
    if len(data) != 16:
        raise ValueError("a key has 16 bytes")
    return get64(read_ptr(data), 0), get64(read_ptr(data), 8)


def tag_of(key: bytes, data: bytes) -> int:
    """SipHash-2-4 of `data` under a 16-byte key."""
    words = key_words(key)
    held: bytes = as_bytes(data)
    return siphash(read_ptr(held), 0, len(held), words[0], words[1])


def siphash(p: ReadPtr, start: cython.Py_ssize_t, size: cython.Py_ssize_t, k0: u64, k1: u64) -> u64:
    """SipHash-2-4 of p[start:start+size]."""
    v0: u64 = 0x736F6D6570736575
    v1: u64 = 0x646F72616E646F6D
    v2: u64 = 0x6C7967656E657261
    v3: u64 = 0x7465646279746573
    word: u64
    length: u64 = size & 255
    words: cython.Py_ssize_t = (size >> 3) + 1
    i: cython.Py_ssize_t
    j: cython.int
    v0 ^= k0
    v1 ^= k1
    v2 ^= k0
    v3 ^= k1
    for i in range(words + 2):  # the four closing rounds are two steps with a word of 0
        if i < words - 1:
            word = get64(p, start + (i << 3))
        elif i == words - 1:
            word = length << 56
            for j in range(size & 7):
                word |= cython.cast(u64, p[start + (i << 3) + j]) << (j << 3)
        else:
            word = 0
            if i == words:
                v2 ^= 0xFF
        v3 ^= word
        for j in range(2):
            v0 = low64(v0 + v1)
            v1 = low64(v1 << 13) | (v1 >> 51)
            v1 ^= v0
            v0 = low64(v0 << 32) | (v0 >> 32)
            v2 = low64(v2 + v3)
            v3 = low64(v3 << 16) | (v3 >> 48)
            v3 ^= v2
            v0 = low64(v0 + v3)
            v3 = low64(v3 << 21) | (v3 >> 43)
            v3 ^= v0
            v2 = low64(v2 + v1)
            v1 = low64(v1 << 17) | (v1 >> 47)
            v1 ^= v2
            v2 = low64(v2 << 32) | (v2 >> 32)
        v0 ^= word
    return v0 ^ v1 ^ v2 ^ v3


def write_ack_id(out: WritePtr, at: cython.Py_ssize_t, raw: WritePtr, k0: u64, k1: u64):
    """Seal the 28 bytes in `raw` (which has room for 36) and spell them, 48 letters, at `at`."""
    put64(raw, 28, siphash(raw, 0, 28, k0, k1))
    spell(raw, 0, out, at)


def spell(raw: ReadPtr, start: cython.Py_ssize_t, out: WritePtr, at: cython.Py_ssize_t):
    """36 bytes as 48 letters."""
    pairs: ReadPtr = _pairs
    i: cython.Py_ssize_t
    three: u32
    high: cython.Py_ssize_t
    low: cython.Py_ssize_t
    for i in range(12):
        three = (raw[start] << 16) | (raw[start + 1] << 8) | raw[start + 2]
        high = (three >> 12) << 1
        low = (three & 4095) << 1
        out[at] = pairs[high]
        out[at + 1] = pairs[high + 1]
        out[at + 2] = pairs[low]
        out[at + 3] = pairs[low + 1]
        start += 3
        at += 4


def read_ack_id(p: ReadPtr, start: cython.Py_ssize_t, raw: WritePtr, at: cython.Py_ssize_t, k0: u64, k1: u64):
    """The 48 letters at `start` as 36 bytes at raw[at:]; False if one is not of the alphabet, or the tag is wrong."""
    values: ReadPtr = _values
    i: cython.Py_ssize_t
    to: cython.Py_ssize_t = at
    four: u32
    a: u32
    b: u32
    c: u32
    d: u32
    seen: u32 = 0
    for i in range(12):
        a = values[p[start]]
        b = values[p[start + 1]]
        c = values[p[start + 2]]
        d = values[p[start + 3]]
        seen |= a | b | c | d
        four = ((a & 63) << 18) | ((b & 63) << 12) | ((c & 63) << 6) | (d & 63)
        raw[to] = four >> 16
        raw[to + 1] = (four >> 8) & 255
        raw[to + 2] = four & 255
        start += 4
        to += 3
    return seen < 64 and siphash(raw, at, 28, k0, k1) == get64(raw, at + 28)
