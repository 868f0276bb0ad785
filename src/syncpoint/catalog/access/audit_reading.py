"""The audit log of one process as it is read: newest lines first, by what they say, and whether their chain is whole.

Place: beside `audit`, which writes it; the console asks, through `access` of this process or of another one.
Promise: nothing is changed. A page reads a bounded number of lines, so it may be empty although there is a next one. A
line that is no line of an audit log is shown as that, not left out.
"""

from __future__ import annotations

import asyncio
import json
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from syncpoint.catalog.access.audit import Broken, put_aside, verify
from syncpoint.wire.protobuf.messages import internal

LINES_MAX: Final = 500
READ_MAX: Final = 50_000
"""Lines that are read for one page."""


class AuditReading:
    """The files of one log: the one being written, and those put aside beside it."""

    def __init__(self, path: Path, *, read_max: int = READ_MAX) -> None:
        self.path, self._read_max = path, read_max

    async def answer(self, asked: internal.AuditRequest) -> internal.AuditResponse:
        """In a thread: files may be large."""
        return await asyncio.to_thread(self.read, asked)

    def read(self, asked: internal.AuditRequest) -> internal.AuditResponse:
        """A page of lines, or what becomes of checking all of them. Raises `OSError`."""
        answer = internal.AuditResponse(file=str(self.path))
        if asked.verify:
            self._verify(answer)
        else:
            self._page(asked, answer)
        return answer

    def files(self) -> list[Path]:
        """Oldest first."""
        return [*put_aside(self.path), self.path]

    def _verify(self, answer: internal.AuditResponse) -> None:
        try:
            answer.verified, answer.hash = verify(self.files(), growing=True)
        except Broken as broken:
            answer.broken = str(broken)

    def _page(self, asked: internal.AuditRequest, answer: internal.AuditResponse) -> None:
        most = min(asked.lines_max or LINES_MAX, LINES_MAX)
        before = asked.before if asked.HasField("before") else None
        for read, line in enumerate(self._backwards(before), 1):
            entry = _entry(line)
            if entry["time"]:
                answer.next, answer.read_time = entry["n"], entry["time"]
            if asked.since and entry["time"] and entry["time"] < asked.since:
                answer.next = 0
                return
            if _is_wanted(entry, asked):
                answer.lines.append(line)
            if len(answer.lines) >= most or read >= self._read_max:
                return
        answer.next = 0

    def _backwards(self, before: int | None) -> Iterator[bytes]:
        """Whole lines without their ends, newest first; `before`: those with a lower number."""
        for path in reversed(self.files()):
            with path.open("rb") as file:
                if not file.seek(0, 2):
                    continue
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    end = data.rfind(b"\n") + 1
                    if before is not None:
                        end = _end_before(data, end, before)
                    while end > 0:
                        begin = data.rfind(b"\n", 0, end - 1) + 1
                        yield data[begin : end - 1]
                        end = begin


def _entry(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
        if isinstance(entry["n"], int) and isinstance(entry["time"], str):
            return dict(entry)
    except (ValueError, KeyError, TypeError):
        pass
    return {"n": 0, "time": "", "broken": True}


def _is_wanted(entry: dict[str, Any], asked: internal.AuditRequest) -> bool:
    if entry.get("broken"):
        return True
    allowed = entry.get("allowed")
    return (
        asked.who.lower() in entry.get("who", "").lower()
        and asked.method.lower() in entry.get("method", "").lower()
        and asked.resource in entry.get("resource", "")
        and (not asked.outcome or allowed is (asked.outcome == "allowed"))
        and (not asked.until or entry["time"] < asked.until)
    )


def _end_before(data: mmap.mmap, end: int, before: int) -> int:
    """Where the lines end that have a lower number: numbers only grow, so it is looked for by halves."""
    low, high = 0, end
    while low < high:
        begin = data.rfind(b"\n", 0, (low + high) // 2) + 1
        begin = max(begin, low)
        stop = data.find(b"\n", begin) + 1
        if _entry(data[begin : stop - 1])["n"] < before:
            low = stop
        else:
            high = begin
    return low
