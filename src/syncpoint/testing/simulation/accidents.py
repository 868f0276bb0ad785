"""Accidents: exceptions thrown into shipped code at any call that it makes, as when memory runs out.

Place: around the steps that a process repeats by itself (deletion, checkpoints, following the catalog), armed by
`process_faults`. What is thrown in is caught where the product catches it; a step that fails must change nothing that
was promised.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from syncpoint.base.runtime.random import Random

CALLS_MAX = 600
_SHIPPED, _OURS = "/syncpoint/", "/syncpoint/testing/"
_ELSEWHERE = ("/diskserver/disk_service", "/diskserver/commands", "/diskserver/payload_cache", "/testing/memory_files")
"""What a server of disks runs, in a process of its own."""


class Accident(MemoryError):
    """Thrown in by the simulation."""


class Accidents:
    """Faults of one process. While `armed` is above 0, the next steps fail, each at a call chosen by the seed."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.armed = 0
        self.happened = 0

    def within(self, step: Callable[[], object], *, expressions: bool = True) -> None:
        """Do a step; fail in it if it is its turn. Raises `Accident`, unless the product catches it. `expressions`:
        also in generator expressions, where one that is thrown while they are let go of is reported to the console
        only.
        """
        if not self.armed or self._random.random() < 0.5:
            step()
            return
        self.armed -= 1
        left = int(CALLS_MAX ** self._random.random())

        def look(frame: FrameType, event: str, argument: Any) -> None:
            nonlocal left
            if event == "call":
                name = frame.f_code.co_filename
                if _SHIPPED in name and _OURS not in name and not any(one in name for one in _ELSEWHERE):
                    left -= 1
                    if left < 0 and (expressions or frame.f_code.co_name != "<genexpr>"):
                        self.happened += 1
                        sys.setprofile(None)
                        raise Accident(f"in {frame.f_code.co_qualname}")

        before = sys.getprofile()
        sys.setprofile(look)
        try:
            step()
        finally:
            sys.setprofile(before)
