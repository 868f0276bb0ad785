"""CRC32C over buffers, in C.

Place: under every frame, page and header on disk. The Castagnoli polynomial (RFC 3720, appendix B.4) has an
instruction of its own on current processors. The C function takes `bytes` only, so anything else is copied once.
"""

from __future__ import annotations

from collections.abc import Iterable

import google_crc32c

IN_C: bool = google_crc32c.implementation == "c"

_extend = google_crc32c.extend


def crc32c(data: bytes | bytearray | memoryview, seed: int = 0) -> int:
    """CRC32C of `data`, going on from `seed`."""
    crc: int = _extend(seed, data if type(data) is bytes else bytes(data))
    return crc


def crc32c_of(buffers: Iterable[bytes | bytearray | memoryview], seed: int = 0) -> int:
    """CRC32C of several buffers as if they were one."""
    for data in buffers:
        seed = _extend(seed, data if type(data) is bytes else bytes(data))
    return seed
