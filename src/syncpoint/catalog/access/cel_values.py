"""Values of the Common Expression Language, and what its operators and functions make of them.

Place: called by the closures of `cel`, of which each operator and function is one here.
Promise: as the language has it, values of different types are never equal or unequal: comparing them fails. A function
raises `CelError` for a value that it is not for, or whatever Python raises, which `cel` takes for the same.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

INT_MAX: Final = (1 << 63) - 1
UINT_MAX: Final = (1 << 64) - 1


class CelError(Exception):
    """The text is no expression, or it has no value."""


class Unsigned(int):
    """An unsigned number, which is of another type than a signed one."""


_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|m|s|ms|us|ns)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
_OFFSET: Final = re.compile(r"([+-]?)(\d\d):(\d\d)")


def truth(value: Any) -> bool:
    """The value, if it is true or false. Raises `CelError`."""
    if value is True or value is False:
        return bool(value)
    raise CelError("true or false is needed")


def item(of: Any, key: Any) -> Any:
    """What a list or a map has at an index. Raises `CelError`, `LookupError`."""
    if isinstance(of, list):
        if type(key) is bool or not isinstance(key, int) or key < 0:
            raise CelError("an index is an integer, from 0 to before the size of the list")
        return of[key]
    if isinstance(of, dict):
        return of[key_of(key)]
    raise CelError("only lists and maps have items")


def key_of(value: Any) -> Any:
    """The value, if a map can have it as a key. Raises `CelError`."""
    if not isinstance(value, str | int):
        raise CelError("keys of maps are strings, numbers or booleans")
    return value


def _alike(left: Any, right: Any) -> None:
    if type(left) is not type(right):
        raise CelError(f"{type(left).__name__} and {type(right).__name__} are different types")
    if isinstance(left, list):
        for one, other in zip(left, right, strict=False):
            _alike(one, other)


def _equal(left: Any, right: Any) -> bool:
    _alike(left, right)
    return bool(left == right)


def _ordered(act: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(left: Any, right: Any) -> bool:
        _alike(left, right)
        if isinstance(left, list | dict) or left is None:
            raise CelError("only numbers, strings, timestamps and durations are ordered")
        return act(left, right)

    return compare


def _within(value: Any, among: Any) -> bool:
    if isinstance(among, dict):
        return key_of(value) in among
    if not isinstance(among, list):
        raise CelError("`in` takes a list or a map on its right")
    return any(type(one) is type(value) and one == value for one in among)


RELATIONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "in": _within,
}


def _number(act: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if type(left) is not type(right) or type(left) not in (int, Unsigned, float):
        raise CelError("the operator takes two numbers of the same type")
    found = act(left, right)
    if isinstance(left, float):
        return found
    unsigned = isinstance(left, Unsigned)
    if not (0 <= found <= UINT_MAX if unsigned else -INT_MAX - 1 <= found <= INT_MAX):
        raise CelError("the number is too large")
    return Unsigned(found) if unsigned else found


def _plus(left: Any, right: Any) -> Any:
    for kind in (str, bytes, list):
        if isinstance(left, kind) and isinstance(right, kind):
            return left + right  # type: ignore[operator]
    if isinstance(left, datetime | timedelta) and isinstance(right, datetime | timedelta):
        return left + right  # type: ignore[operator]
    return _number(operator.add, left, right)


def _minus(left: Any, right: Any) -> Any:
    if isinstance(left, datetime | timedelta) and isinstance(right, datetime | timedelta):
        return left - right  # type: ignore[operator]
    return _number(operator.sub, left, right)


def _quotient(left: Any, right: Any) -> Any:
    if isinstance(left, float):
        return left / right
    found = abs(left) // abs(right)
    return found if (left < 0) == (right < 0) else -found


def _rest(left: Any, right: Any) -> Any:
    if isinstance(left, float):
        raise CelError("% takes integers")
    return left - _quotient(left, right) * right


ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": _plus,
    "-": _minus,
    "*": lambda left, right: _number(operator.mul, left, right),
    "/": lambda left, right: _number(_quotient, left, right),
    "%": lambda left, right: _number(_rest, left, right),
}


def negative(value: Any) -> Any:
    """Minus a signed number. Raises `CelError`."""
    if type(value) not in (int, float):
        raise CelError("- takes a number")
    return _number(operator.sub, type(value)(0), value)


def _time(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if type(value) is int:
        return datetime.fromtimestamp(value, UTC)
    match = _TIME.fullmatch(value)
    if match is None:
        raise CelError(f"{value!r} is not a timestamp, such as 2026-01-31T12:00:00Z")
    fraction = round(float(match[2] or 0) * 1e6)
    zone = "+00:00" if match[3] in "Zz" else match[3]
    return datetime.fromisoformat(match[1].upper() + zone).astimezone(UTC) + timedelta(microseconds=fraction)


def _span(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    body = value.lstrip("+-")
    parts = _DURATION.findall(body)
    if not parts or "".join(map("".join, parts)) != body or len(value) - len(body) > 1:
        raise CelError(f"{value!r} is not a duration, such as 1h30m")
    found = timedelta(seconds=sum(float(size) * _SECONDS[unit] for size, unit in parts))
    return -found if value[0] == "-" else found


def _whole(value: Any) -> int:
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise CelError("the value is not a number")
    found = int(value)
    if not -INT_MAX - 1 <= found <= INT_MAX:
        raise CelError("the number is too large")
    return found


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise CelError("the value is not a number")
    return float(value)


def _text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.decode()
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case timedelta():
            return f"{value.total_seconds():g}s"
        case str() | int() | float():
            return str(value)
    raise CelError("the value cannot be converted to a string")


def _size(value: Any) -> int:
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    raise CelError("only strings, bytes, lists and maps have a size")


def _has_text(act: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def ask(text: Any, part: Any) -> bool:
        if not isinstance(text, str) or not isinstance(part, str):
            raise CelError("the function takes strings")
        return act(text, part)

    return ask


@lru_cache(maxsize=256)
def _zone(name: str) -> Any:
    match = _OFFSET.fullmatch(name)
    if match is not None:
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(-offset if match[1] == "-" else offset)
    return ZoneInfo(name)


def _part(of_time: Callable[[datetime], int], of_span: Callable[[timedelta], int] | None = None) -> Callable[..., int]:
    def part(value: Any, zone: Any = None) -> int:
        if isinstance(value, datetime):
            return of_time(value if zone is None else value.astimezone(_zone(zone)))
        if isinstance(value, timedelta) and of_span is not None and zone is None:
            return of_span(value)
        raise CelError("the value is not a timestamp or a duration")

    return part


_ONE, _TWO, _ONE_OR_TWO = (1,), (2,), (1, 2)
FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], tuple[int, ...]]]] = {
    "size": (_size, _ONE),
    "timestamp": (_time, _ONE),
    "duration": (_span, _ONE),
    "int": (_whole, _ONE),
    "uint": (lambda value: _number(operator.add, Unsigned(0), Unsigned(_whole(value))), _ONE),
    "double": (_float, _ONE),
    "string": (_text, _ONE),
    "bytes": (lambda value: value if isinstance(value, bytes) else value.encode(), _ONE),
    "dyn": (lambda value: value, _ONE),
}
METHODS: Final[dict[str, tuple[Callable[..., Any], tuple[int, ...]]]] = {
    "size": (_size, _ONE),
    "startsWith": (_has_text(str.startswith), _TWO),
    "endsWith": (_has_text(str.endswith), _TWO),
    "contains": (_has_text(str.__contains__), _TWO),
    "getFullYear": (_part(lambda time: time.year), _ONE_OR_TWO),
    "getMonth": (_part(lambda time: time.month - 1), _ONE_OR_TWO),
    "getDate": (_part(lambda time: time.day), _ONE_OR_TWO),
    "getDayOfMonth": (_part(lambda time: time.day - 1), _ONE_OR_TWO),
    "getDayOfWeek": (_part(lambda time: time.isoweekday() % 7), _ONE_OR_TWO),
    "getDayOfYear": (_part(lambda time: time.timetuple().tm_yday - 1), _ONE_OR_TWO),
    "getHours": (_part(lambda time: time.hour, lambda span: int(span.total_seconds() / 3600)), _ONE_OR_TWO),
    "getMinutes": (_part(lambda time: time.minute, lambda span: int(span.total_seconds() / 60)), _ONE_OR_TWO),
    "getSeconds": (_part(lambda time: time.second, lambda span: int(span.total_seconds())), _ONE_OR_TWO),
    "getMilliseconds": (
        _part(lambda time: time.microsecond // 1000, lambda span: span.microseconds // 1000),
        _ONE_OR_TWO,
    ),
}
