"""Types of json_fields.py; see there."""

from collections.abc import Iterable, Sequence

from typing_extensions import Buffer

PATHS_MAX: int

class FieldFinder:
    def __init__(self, paths: Iterable[Sequence[Buffer]], without: Iterable[Buffer] = ()) -> None: ...
    def find(
        self, data: Buffer, ends: Buffer, first: int, rows: int
    ) -> tuple[bytearray, bytearray, bytearray, bytearray, bytearray, bytearray, bytearray]: ...
