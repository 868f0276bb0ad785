"""What runs: calls from one file of the product into another, and the way that led to each.

Place: under `node` and `cluster`, which let a message live and say what belongs to it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
SOURCES = str(ROOT / "src" / "syncpoint") + os.sep
# Words, clocks and small helpers that everything uses: no stations.
NO_STATIONS = (
    "base/kernel/_", "base/model/", "base/runtime/clock", "base/runtime/held", "base/runtime/random",
    "base/runtime/trusted", "log/storage/checksum", "log/storage/layout", "log/storage/settings", "testing/",
    "wire/protobuf/",
)  # fmt: skip

Place = tuple[str, str]  # a file without its ending, a function
Way = list[Place]  # from the outermost call to the place itself


@dataclass
class Row:
    """One file of a table. `caller` is empty where the event loop, or the network, called it."""

    function: str
    caller: str
    where: str = ""


Rows = dict[str, Row]


class Trace:
    """Each place once for each kind of way, `kind(way)`, in the order in which it was entered first."""

    def __init__(self, kind: Callable[[Way], str]) -> None:
        self.ways: dict[tuple[Place, str], Way] = {}
        self._kind = kind

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(SOURCES):
            return
        way, back = [_place(frame)], frame.f_back
        while back is not None:
            if back.f_code.co_filename.startswith(SOURCES):
                caller = _place(back)
                if caller[0] != way[-1][0]:
                    way.append(caller)
                elif len(way) == 1:
                    return  # within the file
            back = back.f_back
        way.reverse()
        self.ways.setdefault((way[-1], self._kind(way)), way)


def _place(frame: FrameType) -> Place:
    function = frame.f_code.co_qualname.partition(".<locals>.<")[0].replace(".<locals>", "")
    return frame.f_code.co_filename.removeprefix(SOURCES).removesuffix(".py"), function


@contextmanager
def traced(into: dict[str, Trace], name: str, kind: Callable[[Way], str]) -> Iterator[None]:
    """Everything that runs in the meantime is noted."""
    into[name] = Trace(kind)
    sys.setprofile(into[name])
    try:
        yield
    finally:
        sys.setprofile(None)


def enter(rows: Rows, way: Way, *, begin: int = 0, where: str = "", left_out: tuple[str, ...] = NO_STATIONS) -> None:
    """Add the files of a way, from its step `begin` on, behind those that are in the table."""
    for at, (file, function) in enumerate(way):
        if at < begin or file.startswith(left_out):
            continue
        caller = way[at - 1][0] if at else ""
        row = rows.setdefault(file, Row(function, caller, where))
        if "__" in row.function and row.caller == caller:
            row.function = function  # says more than a constructor does
