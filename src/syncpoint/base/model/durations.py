"""Durations as people write them.

Place: under options of the command line and keys of files.
"""

from __future__ import annotations

import re
from decimal import Decimal

UNITS_S = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86_400)}
UNITS_S |= {"w": 7 * UNITS_S["d"]}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SECONDS = re.compile(r"\d+(?:\.\d+)?")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")


def is_duration(text: str) -> bool:
    """Whether `parse_duration` takes it."""
    return bool(_DURATION.fullmatch(text) or _SECONDS.fullmatch(text))


def parse_duration(text: str) -> tuple[int, int]:
    """A duration such as `600s`, `10m`, `1h30m`, `7d` or plain seconds, as (seconds, nanoseconds). Raises
    ValueError."""
    if _SECONDS.fullmatch(text):
        text += "s"
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration, such as 600s, 10m, 1h30m or 7d")
    total = sum((Decimal(number) * UNITS_S[unit] for number, unit in _PART.findall(text)), Decimal(0))
    seconds, rest = divmod(total, 1)
    return int(seconds), int(rest * 10**9)


def written(seconds: int, nanoseconds: int = 0) -> str:
    """A duration as `parse_duration` takes it, exactly: `7d`, `1h30m`, `2.5s`; 0 is `0s`."""
    parts, rest = [], seconds
    for unit in ("d", "h", "m"):
        number, rest = divmod(rest, int(UNITS_S[unit]))
        if number:
            parts.append(f"{number}{unit}")
    if rest or nanoseconds or not parts:
        parts.append(f"{Decimal(rest) + Decimal(nanoseconds).scaleb(-9):f}".rstrip("0").rstrip(".") or "0")
        parts[-1] = (f"{rest}" if not nanoseconds else parts[-1]) + "s"
    return "".join(parts)


def in_seconds(text: str) -> float:
    """Parse a duration such as 10m into seconds; surrounding blanks are ignored. Raises ValueError."""
    seconds, nanoseconds = parse_duration(text.strip())
    return seconds + nanoseconds / 1e9
