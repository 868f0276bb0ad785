"""Numbers, spans and moments as people read them: "2 links", "3.65 min", "2026-11-21T03:00:00.000Z".

Place: texts of the command line and of reports, and of what they read.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


def counted(number: int, noun: str, plural: str = "s") -> str:
    """The number and the noun, in the plural unless it is one."""
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def lasting(seconds: float) -> str:
    """A span, from below a millisecond to days; in a larger unit from 2 of it on, or if it is exactly 1."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    for size, unit in _UNITS:
        if seconds >= 2 * size or seconds == size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def utc_text(at_us: int, timespec: str = "microseconds") -> str:
    """A moment, in microseconds since 1970, as RFC 3339 has it."""
    at = datetime.fromtimestamp(at_us // 1_000_000, UTC).replace(microsecond=at_us % 1_000_000)
    return at.isoformat(timespec=timespec).replace("+00:00", "Z")
