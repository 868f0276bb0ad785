"""Types of rows.py; see there."""

from collections.abc import Mapping

from typing_extensions import Buffer

NAME_MAX: int
VISITED_MAX: int
ROWS_MAX: int

def frame(
    batch: Buffer,
    rows: int,
    columns: Mapping[str, tuple[list[tuple[int, int]], list[tuple[int, int]]]],
    via: bytes,
    here: bytes,
    keep: bool,
    room: int,
) -> tuple[list[tuple[bytes, int, bytes, bool]], int]: ...
