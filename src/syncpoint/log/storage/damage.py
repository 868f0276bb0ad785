"""Damage: where a copy of a segment is not what was written, and what was found there.

Place: between who reads copies (`copy_reader`, `recovery.scrub`), the `disk_set`, which decide what becomes of a copy,
and the status that shows it. Decisions go by `SegmentPlace`; the text is for people.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class SegmentPart(StrEnum):
    """Parts of a segment file."""

    HEADER = "header"
    FRAME = "frame"
    INDEX = "index page"
    TRAILER = "trailer"
    FILE = "file"  # the disk refuses to read something of it


class SegmentPlace(NamedTuple):
    """One place of a segment's file; the same on every disk. `offset` is -1 where there is one such part only."""

    part: SegmentPart
    offset: int = -1

    def __str__(self) -> str:
        return f"{self.part} at {self.offset}" if self.offset >= 0 else self.part.value


class Damage(NamedTuple):
    """What is wrong at a place."""

    place: SegmentPlace
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}" if self.problem else str(self.place)
