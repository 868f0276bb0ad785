"""Types of stamps.py; see there."""

from typing_extensions import Buffer

def stamp(
    payload: Buffer, prefix: bytes, first_offset: int, seconds: int, nanos: int, skip: int = 0
) -> tuple[int, bytes]: ...
