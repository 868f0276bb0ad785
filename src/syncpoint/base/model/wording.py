"""Numbers, spans and moments as people read them: "2 links", "3 min 39 s", "2026-11-21T03:00:00.000Z".

Place: texts of the command line and of reports, and of what they read.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def counted(number: int, noun: str, plural: str = "s") -> str:
    """The number and the noun, in the plural unless it is one."""
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def lasting(seconds: float) -> str:
    """A span as people read it, in two units at most: `24.3 ms`, `4.9 s`, `3 min 39 s`, `2 d 7 h`."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms" if seconds else "0 s"
    if seconds < 10:
        return f"{seconds:.2g} s"
    parts: list[str] = []
    rest = round(seconds)
    for size, unit in _UNITS:
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number} {unit}")
        if parts and (number == 0 or len(parts) == 2):
            break
    return " ".join(parts)


def utc_text(at_us: int, timespec: str = "microseconds") -> str:
    """A moment, in microseconds since 1970, as RFC 3339 has it."""
    at = datetime.fromtimestamp(at_us // 1_000_000, UTC).replace(microsecond=at_us % 1_000_000)
    return at.isoformat(timespec=timespec).replace("+00:00", "Z")
