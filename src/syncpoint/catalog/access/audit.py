"""The audit log: who asked for what, and whether it was allowed, in a file whose lines are chained by their hashes.

Place: called by `gate`, written out by `upkeep`; `syncpoint audit` reads it.
Promise: lines are only appended; each has a number and the SHA-256 of the line before, so that a line that is changed,
left out or put in shows from there on. What is cut off at the end is noticed only by comparing with a hash noted
before. A flood of refusals fills neither disk nor memory, and hides nobody else's: beyond so
many lines of one caller they are counted. Files put aside are kept for `KEPT_DAYS`, within `KEPT_BYTES_MAX`. Lines of
the last half second may be lost when the process is killed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from syncpoint.base.model.wording import utc_text
from syncpoint.base.runtime.clock import Clock

FILE_BYTES_MAX: Final = 64 << 20
KEPT_BYTES_MAX: Final = 8 << 30  # of one log; then its oldest files go, also those younger than they are kept for
KEPT_DAYS: Final = 400
PER_S: Final = 500
REFUSED_PER_MIN: Final = 600  # lines of what one caller was refused
ANONYMOUS_PER_MIN: Final = 60  # of what all together were refused who showed no credentials
CALLERS_MAX: Final = 10_000  # that are counted apart within a minute
WAITING_MAX: Final = 20_000  # lines, while the file cannot be written
TEXT_MAX: Final = 500
LINE_BYTES_MAX: Final = 64 * 1024  # of eight such texts, escaped
FIRST: Final = "0" * 64
OTHERS: Final = "*"  # callers beyond those that are counted apart
_READS = (".get", ".list", ".publish", ".consume", ".read", ".write", ".validate")

log = logging.getLogger(__name__)


class Line(NamedTuple):
    """One line, and the place where it stands."""

    path: Path
    number: int
    entry: dict[str, Any]


class Broken(Exception):
    """A line that does not follow the one before."""


class AuditLog:
    """`data`: also what was allowed of reading, publishing and receiving, once for each decision that is remembered."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        data: bool = False,
        bytes_max: int = FILE_BYTES_MAX,
        kept_bytes_max: int = KEPT_BYTES_MAX,
        kept_days: int = KEPT_DAYS,
    ) -> None:
        """Raises `OSError` for a file that cannot be written."""
        self.path, self._clock, self._data, self._bytes_max = path, clock, data, bytes_max
        self._kept_bytes_max, self._kept_days = kept_bytes_max, kept_days
        self._minute, self._refused = 0, Counter[str]()
        self._waiting: list[bytes] = []
        self._second, self._in_second, self._left_out = 0, 0, 0
        self._next, self._hash, torn = _end_of(path)
        self._flushed, self._whole = self._next, True
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if torn:
            os.ftruncate(self._file, os.fstat(self._file).st_size - torn)
        self._size = os.fstat(self._file).st_size
        self._write(method="start", why=f"{torn} bytes of a line that was not written whole are gone" if torn else "")
        self.flush()
        self._remove_old()

    def note(
        self, who: str, peer: str, method: str, permission: str, resource: str, allowed: bool, policy: int, why: str
    ) -> None:
        if allowed and not self._data and any(verb in permission for verb in _READS):
            return
        second = self._clock.time_ns() // 10**9
        if second != self._second:
            self._second, self._in_second = second, 0
        if not allowed and not self._has_lines_left(who, second // 60):
            self._left_out += 1
            return
        self._in_second += 1
        if self._in_second > PER_S or len(self._waiting) >= WAITING_MAX:
            self._left_out += 1
            return
        self._write(
            who=who, peer=peer, method=method, permission=permission, resource=resource, allowed=allowed,
            policy=policy, why=why,
        )  # fmt: skip

    def _has_lines_left(self, who: str, minute: int) -> bool:
        """Whether one more refusal of a caller is written down; so nobody's flood hides what others did."""
        if minute != self._minute:
            self._minute = minute
            self._refused.clear()
        counted = who if who in self._refused or len(self._refused) < CALLERS_MAX else OTHERS
        self._refused[counted] += 1
        return self._refused[counted] <= (REFUSED_PER_MIN if who else ANONYMOUS_PER_MIN)

    def flush(self) -> None:
        """Write out what waits. What cannot be written waits on, and is logged."""
        if self._waiting and self._size >= self._bytes_max and self._whole:
            self._rotate()
        while self._waiting:
            data = b"".join(self._waiting)
            try:
                written = os.write(self._file, data)
            except OSError as error:
                log.error("the audit log %s cannot be written: %s", self.path, error)
                return
            self._size += written
            self._whole = written == len(data)
            self._waiting = [] if self._whole else [data[written:]]
        self._flushed = self._next

    def close(self) -> None:
        """Write out, to the disk."""
        self.flush()
        os.fsync(self._file)
        os.close(self._file)

    def _write(self, **fields: Any) -> None:
        now = utc_text(self._clock.time_ns() // 1000, "milliseconds")
        entry: dict[str, Any] = {"n": self._next, "time": now, **fields}
        if self._left_out:
            entry["left_out"], self._left_out = self._left_out, 0
        entry["before"] = self._hash
        cut = {key: value[:TEXT_MAX] if isinstance(value, str) else value for key, value in entry.items()}
        line = json.dumps(cut, separators=(",", ":")).encode()
        self._next, self._hash = self._next + 1, hashlib.sha256(line).hexdigest()
        self._waiting.append(line + b"\n")

    def _rotate(self) -> None:
        """The file gets the number of its last line; the next one goes on where it ends."""
        os.fsync(self._file)
        os.close(self._file)
        self.path.rename(self.path.with_name(f"{self.path.name}.{self._flushed - 1:012d}"))
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = 0
        self._remove_old()

    def _remove_old(self) -> None:
        """Files put aside go when they are too old, and the oldest ones while all together are too large."""
        oldest = utc_text(max(0, self._clock.time_ns() // 1000 - self._kept_days * 86_400 * 10**6), "milliseconds")
        room = self._kept_bytes_max - self._bytes_max  # for the one that is being written
        for path in reversed(put_aside(self.path)):
            try:
                room -= path.stat().st_size
                if room >= 0 and _last_time(path) >= oldest:
                    continue
                path.unlink()
                log.warning("%s is removed: it is too old, or the audit log is too large", path)
            except OSError as error:
                log.error("%s, which is too old, cannot be removed: %s", path, error)


def _last_time(path: Path) -> str:
    """When the last line of a file was written; infinity where the file cannot be read."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LINE_BYTES_MAX))
        last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    try:
        return str(json.loads(last)["time"])
    except (ValueError, KeyError, TypeError):
        return "9999"


def put_aside(path: Path) -> list[Path]:
    """The earlier files of the log that is written to `path`, oldest first."""
    return sorted(path.parent.glob(f"{path.name}.{'[0-9]' * 12}"))


def lines(paths: Iterable[Path]) -> Iterator[Line]:
    """The lines of files in their order. Raises `Broken` for what is no line, `OSError`."""
    for path in paths:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield Line(path, number, _entry(path, number, line))


def verify(paths: Iterable[Path], *, growing: bool = False) -> tuple[int, str]:
    """Check that lines of files that follow each other are one chain; returns how many there are, and the hash of the
    last. `growing`: the last file is being written, so what follows its last end of a line does not count yet.
    Raises `Broken` naming the first line that does not fit, `OSError`."""
    paths = list(paths)
    count, before, number_before = 0, "", -1
    for path in paths:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if growing and path is paths[-1] and not line.endswith(b"\n"):
                    break
                entry = _entry(path, number, line)
                if count and entry["before"] != before:
                    raise Broken(f"{path}, line {number}: the line before it is not the one that it was written after")
                if count and entry["n"] != number_before + 1:
                    raise Broken(f"{path}, line {number}: it has number {entry['n']} after {number_before}")
                if entry["n"] == 0 and entry["before"] != FIRST:
                    raise Broken(f"{path}, line {number}: it is no beginning")
                before, number_before = hashlib.sha256(line.rstrip(b"\n")).hexdigest(), int(entry["n"])
                count += 1
    return count, before


def in_order(paths: Iterable[Path]) -> list[Path]:
    """Files of one log in the order of their lines: by the numbers of their first ones."""
    return sorted(paths, key=lambda path: next((line.entry["n"] for line in lines([path])), 1 << 62))


def _entry(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
        if line.endswith(b"\n") and isinstance(entry["n"], int) and isinstance(entry["before"], str):
            return dict(entry)
    except (ValueError, KeyError, TypeError):
        pass
    raise Broken(f"{path}, line {number}: it is no line of an audit log")


def _end_of(path: Path) -> tuple[int, str, int]:
    """Number of the next line, hash of the last whole one, and the bytes of one that is not whole."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return _end_of_earlier(path)
    whole = data[: data.rfind(b"\n") + 1]
    if not whole:
        number, before, _ = _end_of_earlier(path)
        return number, before, len(data)
    last = whole[whole.rfind(b"\n", 0, -1) + 1 : -1]
    return int(json.loads(last)["n"]) + 1, hashlib.sha256(last).hexdigest(), len(data) - len(whole)


def _end_of_earlier(path: Path) -> tuple[int, str, int]:
    earlier = put_aside(path)
    return _end_of(earlier[-1]) if earlier else (0, FIRST, 0)
