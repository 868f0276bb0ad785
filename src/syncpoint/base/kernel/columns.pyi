"""Types of columns.py; see there."""

from collections.abc import Iterable

from typing_extensions import Buffer

class Gathering:
    rows: int
    size: int

    def __init__(
        self,
        columns: Iterable[int],
        room: int = 0,
        program: bytes = b"",
        origins: Iterable[bytes] | None = None,
        here: bytes = b"",
    ) -> None: ...
    def take(
        self,
        payload: Buffer,
        first_offset: int,
        begin: int,
        end: int,
        skip: Buffer | None = None,
        bytes_max: int = ...,
    ) -> int: ...
    def finish(self) -> tuple[int, list[tuple[int, int]], list[int], list[bytearray]]: ...
