"""The Common Expression Language as conditions of policies use it: a text becomes closures once, which are called for
each decision.

Place: under `conditions`. Covers the operators, literals and functions of IAM's conditions: comparisons, `&&`, `||`,
`!`, `?:`, arithmetic, `in`, fields, indexes, `has`, `size`, `startsWith`, `endsWith`, `contains`, conversions, times
and spans with their parts. There are no macros over lists and no regular expressions.
Promise: parsing and evaluating cost time in proportion to the text, microseconds for a usual one, whatever it says. As
the language has it, `&&` and `||` know their result though one side fails, if the other decides it. Values of different
types are never equal or unequal: comparing them fails.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

Variables = Mapping[str, Any]
Valued = Callable[[Variables], Any]
DEPTH_MAX: Final = 20
_INT_MAX: Final = (1 << 63) - 1
_UINT_MAX: Final = (1 << 64) - 1


class CelError(Exception):
    """The text is no expression, or it has no value."""


class Unsigned(int):
    """An unsigned number, which is of another type than a signed one."""


_TOKEN: Final = re.compile(
    r"""\s*(?:
    (?P<float>(?:\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?))
    |(?P<int>(?:0x[0-9a-fA-F]+|\d+)[uU]?)
    |(?P<text>(?:[bB][rR]?|[rR][bB]?)?(?:\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
    |(?P<raw>[rR](?:"[^"\n]*"|'[^'\n]*'))
    |(?P<name>[A-Za-z_]\w*)
    |(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])
    )""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\\?\"'`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.|\Z))",
    re.DOTALL,
)
_SIMPLE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|m|s|ms|us|ns)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
_OFFSET: Final = re.compile(r"([+-]?)(\d\d):(\d\d)")


def compiled(text: str) -> Valued:
    """The expression as a function of its variables, which raises `CelError`. Raises `CelError` for what is none."""
    parser = _CelParser(_tokens(text))
    found = parser.ternary(0)
    if parser.kind:
        raise CelError(f"unexpected {parser.text!r}")
    return found


def logical_operators(text: str) -> int:
    """How many `&&`, `||` and `!` a text has."""
    return sum(kind == "sign" and one in ("&&", "||", "!") for kind, one in _tokens(text))


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise CelError(f"unexpected {text[at:].split(maxsplit=1)[0][:20]!r}")
        assert match.lastgroup is not None
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


class _CelParser:
    """From the loosest operator to the tightest."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens, self._at = tokens, -1
        self._next()

    def _next(self) -> None:
        self._at += 1
        self.kind, self.text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "the end")

    def _take(self, *texts: str) -> str:
        """The sign or word, if it stands here."""
        if self.kind in ("sign", "name") and self.text in texts:
            found = self.text
            self._next()
            return found
        return ""

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise CelError(f"{text!r} is missing before {self.text!r}")

    def ternary(self, depth: int) -> Valued:
        """An expression."""
        if depth > DEPTH_MAX:
            raise CelError(f"the condition is nested deeper than {DEPTH_MAX} levels")
        condition = self._any(depth)
        if not self._take("?"):
            return condition
        yes = self._any(depth + 1)
        self._need(":")
        no = self.ternary(depth + 1)
        return lambda given: yes(given) if _truth(condition(given)) else no(given)

    def _any(self, depth: int) -> Valued:
        parts = [self._all(depth)]
        while self._take("||"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else _joined(parts, True)

    def _all(self, depth: int) -> Valued:
        parts = [self._relation(depth)]
        while self._take("&&"):
            parts.append(self._relation(depth))
        return parts[0] if len(parts) == 1 else _joined(parts, False)

    def _relation(self, depth: int) -> Valued:
        left = self._sum(depth)
        while sign := self._take("==", "!=", "<", "<=", ">", ">=", "in"):
            left = _two(_RELATIONS[sign], left, self._sum(depth))
        return left

    def _sum(self, depth: int) -> Valued:
        left = self._product(depth)
        while sign := self._take("+", "-"):
            left = _two(_ARITHMETIC[sign], left, self._product(depth))
        return left

    def _product(self, depth: int) -> Valued:
        left = self._unary(depth)
        while sign := self._take("*", "/", "%"):
            left = _two(_ARITHMETIC[sign], left, self._unary(depth))
        return left

    def _unary(self, depth: int) -> Valued:
        if depth > DEPTH_MAX:
            raise CelError(f"the condition is nested deeper than {DEPTH_MAX} levels")
        if self._take("!"):
            negated = self._unary(depth + 1)
            return lambda given: not _truth(negated(given))
        if self._take("-"):
            if self.kind == "int" and int(self.text.rstrip("uU"), 0 if "x" in self.text else 10) == _INT_MAX + 1:
                self._next()
                return lambda given: -_INT_MAX - 1
            inner = self._unary(depth + 1)
            return lambda given: _negative(inner(given))
        return self._member(depth)

    def _member(self, depth: int) -> Valued:
        found = self._primary(depth)
        while sign := self._take(".", "["):
            if sign == "[":
                found = _two(_item, found, self.ternary(depth + 1))
                self._need("]")
                continue
            name = self._name()
            found = self._call(name, found, depth) if self._take("(") else _field(found, name)
        return found

    def _name(self) -> str:
        if self.kind != "name":
            raise CelError(f"{self.text!r} is not a name")
        name = self.text
        self._next()
        return name

    def _listed(self, end: str, depth: int) -> list[Valued]:
        found: list[Valued] = []
        while not self._take(end):
            if found:
                self._need(",")
                if self._take(end):
                    break
            found.append(self.ternary(depth + 1))
        return found

    def _call(self, name: str, of: Valued | None, depth: int) -> Valued:
        if of is None and name == "has":
            return self._has(depth)
        given = self._listed(")", depth)
        table = _FUNCTIONS if of is None else _METHODS
        known = table.get(name)
        arguments = given if of is None else [of, *given]
        if known is None or len(arguments) not in known[1]:
            raise CelError(f"there is no function {name} with {len(given)} arguments")
        act = known[0]
        if len(arguments) == 1:
            only = arguments[0]
            return lambda values: _tried(act, only(values))
        first, second = arguments
        return _two(act, first, second)

    def _has(self, depth: int) -> Valued:
        at = self._at
        whole = self._member(depth + 1)
        if self._tokens[self._at - 2 : self._at - 1] != [("sign", ".")] or self._at - at < 3:
            raise CelError("has() takes a field, such as has(resource.name)")
        self._need(")")

        def has(given: Variables) -> bool:
            try:
                whole(given)
            except _NoField:
                return False
            return True

        return has

    def _primary(self, depth: int) -> Valued:
        kind, text = self.kind, self.text
        if kind in ("float", "int", "text", "raw"):
            self._next()
            constant = _literal(kind, text)
            return lambda given: constant
        if self._take("("):
            inner = self.ternary(depth + 1)
            self._need(")")
            return inner
        if self._take("["):
            parts = self._listed("]", depth)
            return lambda given: [part(given) for part in parts]
        if self._take("{"):
            return self._map(depth)
        self._take(".")
        name = self._name()
        if name in _WORDS:
            word = _WORDS[name]
            return lambda given: word
        if self._take("("):
            return self._call(name, None, depth)
        return _variable(name)

    def _map(self, depth: int) -> Valued:
        pairs: list[tuple[Valued, Valued]] = []
        while not self._take("}"):
            if pairs:
                self._need(",")
            key = self.ternary(depth + 1)
            self._need(":")
            pairs.append((key, self.ternary(depth + 1)))
        return lambda given: {_key(key(given)): value(given) for key, value in pairs}


_WORDS: Final = {"true": True, "false": False, "null": None}


class _NoField(CelError):
    pass


def _literal(kind: str, text: str) -> Any:
    if kind == "float":
        return float(text)
    if kind == "int":
        value = int(text.rstrip("uU"), 16 if text.startswith("0x") else 10)
        unsigned = text[-1] in "uU"
        if value > (_UINT_MAX if unsigned else _INT_MAX):
            raise CelError(f"{text} is too large")
        return Unsigned(value) if unsigned else value
    quote = min(at for at in (text.find("'"), text.find('"')) if at >= 0)
    marks, body = text[:quote].lower(), text[quote:]
    size = 3 if body[:3] in ('"""', "'''") and len(body) >= 6 else 1
    body = body[size:-size]
    if "r" not in marks:
        body = _ESCAPE.sub(_unescaped, body)
    return body.encode() if "b" in marks else body


def _unescaped(match: re.Match[str]) -> str:
    simple, *codes, octal, other = match.groups()
    if simple:
        return _SIMPLE.get(simple, simple)
    if other is not None:
        raise CelError(f"{match[0]!r} is not an escape sequence")
    try:
        return chr(int(octal, 8) if octal else int(next(filter(None, codes)), 16))
    except (ValueError, OverflowError):
        raise CelError(f"{match[0]!r} is not a character") from None


def _truth(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise CelError("true or false is needed")


def _joined(parts: list[Valued], decides: bool) -> Valued:
    """`||` decides by true, `&&` by false; what fails counts only where nothing decides."""

    def joined(given: Variables) -> bool:
        failure = None
        for part in parts:
            try:
                if _truth(part(given)) is decides:
                    return decides
            except CelError as error:
                failure = error
        if failure is not None:
            raise failure
        return not decides

    return joined


def _tried(act: Callable[..., Any], *values: Any) -> Any:
    try:
        return act(*values)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise CelError(str(error)) from None


def _two(act: Callable[[Any, Any], Any], left: Valued, right: Valued) -> Valued:
    return lambda given: _tried(act, left(given), right(given))


def _variable(name: str) -> Valued:
    def variable(given: Variables) -> Any:
        if name not in given:
            raise CelError(f"there is no variable {name}")
        return given[name]

    return variable


def _field(of: Valued, name: str) -> Valued:
    def field(given: Variables) -> Any:
        holder = of(given)
        if not isinstance(holder, dict):
            raise CelError(f"this value has no field {name}")
        if name not in holder:
            raise _NoField(f"there is no field {name}")
        return holder[name]

    return field


def _item(of: Any, key: Any) -> Any:
    if isinstance(of, list):
        if type(key) is bool or not isinstance(key, int) or key < 0:
            raise CelError("an index is an integer, from 0 to before the size of the list")
        return of[key]
    if isinstance(of, dict):
        return of[_key(key)]
    raise CelError("only lists and maps have items")


def _key(value: Any) -> Any:
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
        return _key(value) in among
    if not isinstance(among, list):
        raise CelError("`in` takes a list or a map on its right")
    return any(type(one) is type(value) and one == value for one in among)


_RELATIONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
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
    if not (0 <= found <= _UINT_MAX if unsigned else -_INT_MAX - 1 <= found <= _INT_MAX):
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


_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": _plus,
    "-": _minus,
    "*": lambda left, right: _number(operator.mul, left, right),
    "/": lambda left, right: _number(_quotient, left, right),
    "%": lambda left, right: _number(_rest, left, right),
}


def _negative(value: Any) -> Any:
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
    if not -_INT_MAX - 1 <= found <= _INT_MAX:
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
_FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], tuple[int, ...]]]] = {
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
_METHODS: Final[dict[str, tuple[Callable[..., Any], tuple[int, ...]]]] = {
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
