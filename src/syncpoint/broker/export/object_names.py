"""What the files of a Cloud Storage subscription are called: PREFIX DATETIME _ UUID SUFFIX.

Place: pure; the driver gives time and chance, the api asks whether a format is one.
Promise: no two files have one name.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

DATETIME_DEFAULT: Final = "YYYY-MM-DDThh:mm:ss+00:00"
_PARTS: Final = {
    "YYYY": "{0.year:04}", "YY": "{1:02}", "MM": "{0.month:02}", "DD": "{0.day:02}",
    "hh": "{0.hour:02}", "mm": "{0.minute:02}", "ss": "{0.second:02}",
}  # fmt: skip
_SEPARATORS: Final = "-_:/"
_TOKENS: Final = re.compile(r"YYYY|YY|MM|DD|hh|mm|ss|T|Z|\+00:00|[-_:/]")


def object_name(prefix: str, suffix: str, form: str, begun: datetime, token: bytes) -> str:
    """`begun`: in UTC, when the file was; `token`: 16 bytes of chance, written as a UUID. A format that ends in a
    separator brings its own in place of the `_` before the UUID."""
    digits, form = token.hex(), form or DATETIME_DEFAULT
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))
    when = _TOKENS.sub(lambda part: _PARTS.get(part[0], part[0]).format(begun, begun.year % 100), form)
    return f"{prefix}{when}{'' if form[-1] in _SEPARATORS else '_'}{uuid}{suffix}"


def bad_format(form: str) -> str:
    """What is wrong with a format; "": nothing. Each part of date and time stands in it once, and nothing that is
    neither such a part nor a separator."""
    if _TOKENS.sub("", form):
        return "may only have the parts YYYY or YY, MM, DD, hh, mm, ss, T, Z or +00:00, and - _ : /"
    found = _TOKENS.findall(form)
    years = found.count("YYYY") + found.count("YY")
    if years != 1 or any(found.count(part) != 1 for part in ("MM", "DD", "hh", "mm", "ss")):
        return "must have YYYY or YY, MM, DD, hh, mm and ss exactly once"
    if found.count("T") > 1 or found.count("Z") + found.count("+00:00") > 1:
        return "must not have T, or Z or +00:00, more than once"
    return ""
