"""CRC32C over buffers, in C.

Place: under every frame, page and header on disk. The Castagnoli polynomial (RFC 3720, appendix B.4) has an
instruction of its own on current processors. The C function takes `bytes` only, so anything else is copied once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import google_crc32c

IN_C: bool = google_crc32c.implementation == "c"

_extend = google_crc32c.extend


def crc32c(data: bytes | bytearray | memoryview, seed: int = 0) -> int:
    """CRC32C of `data`, going on from `seed`."""
    crc: int = _extend(seed, data if type(data) is bytes else bytes(data))
    return crc


def crc32c_of(buffers: Iterable[bytes | bytearray | memoryview]) -> int:
    """CRC32C of several buffers as if they were one."""
    found = 0
    for data in buffers:
        found = _extend(found, data if type(data) is bytes else bytes(data))
    return found


def checked_json(content: Mapping[str, Any]) -> bytes:
    """A small file: JSON that operators can read, with the checksum of its content."""
    text = json.dumps(content, separators=(",", ":"), sort_keys=True)
    return json.dumps({"crc32c": crc32c(text.encode()), "content": content}, indent=1, sort_keys=True).encode()


def checked_content(data: bytes | None) -> dict[str, Any] | None:
    """What such a file holds; None where there is none, or it is damaged."""
    try:
        outer = json.loads(data or b"null")
        content: dict[str, Any] = outer["content"]
        text = json.dumps(content, separators=(",", ":"), sort_keys=True)
        return content if crc32c(text.encode()) == outer["crc32c"] else None
    except (ValueError, TypeError, KeyError):
        return None
