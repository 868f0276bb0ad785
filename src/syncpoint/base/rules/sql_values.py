"""Values of SQL rules: their kinds, what is converted into what, arithmetic, comparison and LIKE.

Place: under `sql_compile`; plain functions.
Promise: `None` is both NULL and unknown, and whatever is asked of it is unknown. Arithmetic that has no result (an
integer beyond 64 bits, a division by zero, a double that is not finite) raises `RuleError`: the rule has failed on this
message, which is not the same as that it does not match.
Source: the language reference of SQL filters of Azure Service Bus, where it covers the case. Two rules are our own
and follow from attributes being text: a text beside a number, a boolean, a time or a span is read as a literal of that
kind, as a whole, and is unknown if it is none; `+` of two texts joins them. SQL writes times and spans as texts, too: a
text in a rule that reads as one is compared as one with texts that do, see `literal_of`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

Value = bool | int | float | str | datetime | timedelta | None

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
NUMBER_MAX = 64  # bytes of a text that can be a number
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SPAN = re.compile(r"(-)?(?:(\d{1,8})\.)?(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,7}))?)?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:\d{2})?)?", re.ASCII)


class RuleError(Exception):
    """A rule has no result for this message; the text gives the reason."""


def span_of(text: str) -> timedelta | None:
    """A span as `[-][days.]hours:minutes[:seconds[.fraction]]`; None for a text that is none."""
    found = _SPAN.fullmatch(text)
    if found is None:
        return None
    minus, days, hours, minutes, seconds, fraction = found.groups()
    if int(hours) > 23 or int(minutes) > 59 or int(seconds or 0) > 59:
        return None
    micros = int((fraction or "").ljust(6, "0")[:6])
    span = timedelta(int(days or 0), int(seconds or 0), micros, 0, int(minutes), int(hours))
    return -span if minus else span


def time_of(text: str) -> datetime | None:
    """A time as in ISO 8601, of UTC where it does not say; None for a text that is none."""
    if _TIME.fullmatch(text) is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def literal_of(text: str) -> datetime | timedelta | None:
    """The time or the span that a text in a rule stands for beside a text that is one; None: it is a text alone."""
    return time_of(text) if _SPAN.fullmatch(text) is None else span_of(text)


def number_of(text: str) -> int | float | None:
    """An integer of 64 bits or a double, in at most `NUMBER_MAX` characters; None for a text that is neither."""
    if len(text) > NUMBER_MAX:
        return None
    if _INTEGER.fullmatch(text):
        value = int(text)
        return value if INT_MIN <= value <= INT_MAX else None
    if _DOUBLE.fullmatch(text):
        double = float(text)
        return double if math.isfinite(double) else None
    return None


def boolean_of(text: str) -> bool | None:
    """`true` or `false` in any case; None for another text."""
    return {"true": True, "false": False}.get(text.lower())


def converted(text: str, beside: Value) -> Value:
    """A text read as a literal of the kind of `beside`; None if it is none."""
    if isinstance(beside, bool):
        return boolean_of(text)
    if isinstance(beside, int | float):
        return number_of(text)
    if isinstance(beside, datetime):
        return time_of(text)
    if isinstance(beside, timedelta):
        return span_of(text)
    return text


def text_of(value: Value) -> str:
    """The invariant text of a value, as SET writes it; reading it gives the value back."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return _span_text(value)
    return str(value)


def _span_text(span: timedelta) -> str:
    minus, span = ("-", -span) if span < timedelta(0) else ("", span)
    minutes, seconds = divmod(span.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days = f"{span.days}." if span.days else ""
    fraction = f".{span.microseconds:06}" if span.microseconds else ""
    return f"{minus}{days}{hours:02}:{minutes:02}:{seconds:02}{fraction}"


def alike(left: Value, right: Value) -> tuple[Value, Value]:
    """Both values as one kind, if one of them is a text and the other is not."""
    if isinstance(left, str) and not isinstance(right, str):
        return converted(left, right), right
    if isinstance(right, str) and not isinstance(left, str):
        return left, converted(right, left)
    return left, right


def kind_of(value: Value) -> str:
    """What a value is called in messages, and compared as."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return {str: "text", datetime: "time", timedelta: "span"}[type(value)]


def compare(op: str, left: Value, right: Value) -> bool | None:
    """`left op right`. Unknown where one of them is, and between kinds; booleans have no order."""
    left, right = alike(left, right)
    if left is None or right is None or kind_of(left) != kind_of(right):
        return None
    if isinstance(left, float) != isinstance(right, float):
        left, right = float(left), float(right)  # type: ignore[arg-type]  # both are numbers
    if op == "=":
        return left == right
    if op == "<>":
        return left != right
    if isinstance(left, bool):
        return None
    return _ORDER[op](left, right)


def compare_with(op: str, left: Value, text: str, literal: datetime | timedelta) -> bool | None:
    """`left op text`, where the text, of a rule, stands for a time or a span: with a text that is one, as that."""
    found = converted(left, literal) if isinstance(left, str) else None
    return compare(op, left, text) if found is None else compare(op, found, literal)


_ORDER: dict[str, Callable[..., bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def calculate(op: str, left: Value, right: Value) -> Value:
    """`left op right`. Raises `RuleError`; unknown where one of them is, and for kinds that have no such operation."""
    if isinstance(left, str) and isinstance(right, str):
        if op == "+":
            return left + right
        since = time_of(left) if op == "-" else None
        left, right = (number_of(left), number_of(right)) if since is None else (since, right)
    if isinstance(left, datetime) and isinstance(right, str):
        right = time_of(right) if span_of(right) is None else span_of(right)
    left, right = alike(left, right)
    if left is None or right is None or isinstance(left, bool) or isinstance(right, bool):
        return None
    if isinstance(left, int | float) and isinstance(right, int | float):
        return _number(op, left, right)
    try:
        return _with_time(op, left, right)
    except OverflowError:
        raise RuleError(f"{text_of(left)} {op} {text_of(right)} is out of the range of times") from None


def _number(op: str, left: float, right: float) -> int | float:
    both = isinstance(left, int) and isinstance(right, int)
    if op in "/%" and right == 0:
        raise RuleError(f"{text_of(left)} {op} {text_of(right)} divides by zero")
    try:
        if op == "+":
            result = left + right
        elif op == "-":
            result = left - right
        elif op == "*":
            result = left * right
        elif op == "/":
            result = _quotient(int(left), int(right)) if both else left / right
        else:
            result = left - _quotient(int(left), int(right)) * right if both else math.fmod(left, right)
    except OverflowError:
        result = math.inf
    if (isinstance(result, int) and INT_MIN <= result <= INT_MAX) or (
        isinstance(result, float) and math.isfinite(result)
    ):
        return result
    raise RuleError(f"{text_of(left)} {op} {text_of(right)} is too large")


def _quotient(left: int, right: int) -> int:
    """Rounded toward zero."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _with_time(op: str, left: Value, right: Value) -> Value:
    if isinstance(left, datetime) and isinstance(right, datetime):
        return left - right if op == "-" else None
    if isinstance(left, datetime) and isinstance(right, timedelta):
        return left + right if op == "+" else left - right if op == "-" else None
    if isinstance(left, timedelta) and isinstance(right, timedelta):
        return left + right if op == "+" else left - right if op == "-" else None
    if isinstance(left, timedelta) and isinstance(right, datetime):
        return right + left if op == "+" else None
    return None


def negative(value: Value) -> Value:
    """`-value`. Raises `RuleError`."""
    if isinstance(value, str):
        value = number_of(value)
    if isinstance(value, timedelta):
        return -value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if value == INT_MIN and isinstance(value, int):
        raise RuleError(f"-({value}) is too large")
    return -value


def like(text: Value, pattern: Value, escape: Value) -> bool | None:
    """`text LIKE pattern ESCAPE escape`: `%` stands for any text, `_` for one character, the escape character takes
    that meaning from the one after it. `escape` is "" for none. Raises `RuleError`.
    """
    if not isinstance(text, str) or not isinstance(pattern, str) or not isinstance(escape, str):
        return None
    return _matcher(pattern, escape)(text)


def pattern_symbols(pattern: str, escape: str) -> list[str]:
    """A pattern as `%`, `_`, and all other characters with `=` before them. Raises `RuleError`."""
    if len(escape) > 1:
        raise RuleError(f"the escape character {escape!r} must be one character")
    found = list[str]()
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                raise RuleError(f"the pattern {pattern!r} ends with its escape character")
            found.append("=" + literal)
        else:
            found.append(character if character in "%_" else "=" + character)
    return found


@lru_cache(512)
def _matcher(pattern: str, escape: str) -> Callable[[str], bool]:
    """By parts between `%`, each found as early as possible: no recursion. Parts without `_` are found in linear time,
    others by all their beginnings at once, as bits of a number.
    """
    parts: list[list[str]] = [[]]
    for symbol in pattern_symbols(pattern, escape):
        if symbol == "%":
            parts.append([])
        else:
            parts[-1].append(symbol)
    sizes, finders = [len(part) for part in parts], [_finder(part) for part in parts]

    def matches(text: str) -> bool:
        end = len(text) - sizes[-1]
        if len(parts) == 1:
            return end == 0 and finders[0](text, 0, len(text)) == 0
        if sizes[0] > end or finders[0](text, 0, sizes[0]) != 0 or finders[-1](text, end, len(text)) != end:
            return False
        at = sizes[0]
        for size, find in zip(sizes[1:-1], finders[1:-1], strict=True):
            found = find(text, at, end)
            if found < 0:
                return False
            at = found + size
        return True

    return matches


def _finder(part: Sequence[str]) -> Callable[[str, int, int], int]:
    """(text, at, end): where a part of a pattern is first, as a whole between these two; -1 if it is not."""
    if "_" not in part:
        literal = "".join(symbol[1] for symbol in part)
        return lambda text, at, end: text.find(literal, at, end)
    free = sum(1 << index for index, symbol in enumerate(part) if symbol == "_")
    fitting: dict[str, int] = {}  # by character: the places in the part, a bit each, where it may stand
    for index, symbol in enumerate(part):
        if symbol != "_":
            fitting[symbol[1]] = fitting.get(symbol[1], free) | 1 << index
    whole = 1 << len(part) - 1

    def find(text: str, at: int, end: int) -> int:
        begun = 0  # a bit for each beginning of the part that ends here
        for place in range(at, end):
            begun = (begun << 1 | 1) & fitting.get(text[place], free)
            if begun & whole:
                return place + 1 - len(part)
        return -1

    return find
