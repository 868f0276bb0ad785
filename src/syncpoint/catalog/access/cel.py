"""The Common Expression Language as conditions of policies use it: a text becomes closures once, which are called for
each decision.

Place: under `conditions`, over `cel_values`. Covers the operators, literals and functions of IAM's conditions:
comparisons, `&&`, `||`, `!`, `?:`, arithmetic, `in`, fields, indexes, `has`, `size`, `startsWith`, `endsWith`,
`contains`, conversions, times and spans with their parts. There are no macros over lists and no regular expressions.
Promise: parsing and evaluating cost time in proportion to the text, 2 us and 1 us for each term at most, whatever the
text is. As in the language, `&&` and `||` know their result though one side fails, if the other decides it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from syncpoint.catalog.access.cel_values import (
    ARITHMETIC,
    FUNCTIONS,
    INT_MAX,
    METHODS,
    RELATIONS,
    UINT_MAX,
    CelError,
    Unsigned,
    item,
    key_of,
    negative,
    truth,
)

Variables = Mapping[str, Any]
Valued = Callable[[Variables], Any]
DEPTH_MAX: Final = 20


class ConditionExpression(NamedTuple):
    """`value` raises `CelError`. `terms`: its names, literals and signs; `logical`: how many are `&&`, `||` and `!`."""

    value: Valued
    terms: int
    logical: int


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


def compiled(text: str) -> ConditionExpression:
    """Raises `CelError` for what is none."""
    tokens = _tokens(text)
    parser = _CelParser(tokens)
    found = parser.ternary(0)
    if parser.kind:
        raise CelError(f"unexpected {parser.text!r}")
    return ConditionExpression(
        found, len(tokens), sum(kind == "sign" and one in ("&&", "||", "!") for kind, one in tokens)
    )


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
        return lambda given: yes(given) if truth(condition(given)) else no(given)

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
            left = _two(RELATIONS[sign], left, self._sum(depth))
        return left

    def _sum(self, depth: int) -> Valued:
        left = self._product(depth)
        while sign := self._take("+", "-"):
            left = _two(ARITHMETIC[sign], left, self._product(depth))
        return left

    def _product(self, depth: int) -> Valued:
        left = self._unary(depth)
        while sign := self._take("*", "/", "%"):
            left = _two(ARITHMETIC[sign], left, self._unary(depth))
        return left

    def _unary(self, depth: int) -> Valued:
        if depth > DEPTH_MAX:
            raise CelError(f"the condition is nested deeper than {DEPTH_MAX} levels")
        if self._take("!"):
            negated = self._unary(depth + 1)
            return lambda given: not truth(negated(given))
        if self._take("-"):
            if self.kind == "int" and int(self.text.rstrip("uU"), 0 if "x" in self.text else 10) == INT_MAX + 1:
                self._next()
                return lambda given: -INT_MAX - 1
            inner = self._unary(depth + 1)
            return lambda given: negative(inner(given))
        return self._member(depth)

    def _member(self, depth: int) -> Valued:
        found = self._primary(depth)
        while sign := self._take(".", "["):
            if sign == "[":
                found = _two(item, found, self.ternary(depth + 1))
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
        table = FUNCTIONS if of is None else METHODS
        known = table.get(name)
        arguments = given if of is None else [of, *given]
        if known is None or len(arguments) not in known[1]:
            raise CelError(f"unknown function {name} with {len(given)} arguments")
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
        return lambda given: {key_of(key(given)): value(given) for key, value in pairs}


_WORDS: Final = {"true": True, "false": False, "null": None}


class _NoField(CelError):
    pass


def _literal(kind: str, text: str) -> Any:
    if kind == "float":
        return float(text)
    if kind == "int":
        value = int(text.rstrip("uU"), 16 if text.startswith("0x") else 10)
        unsigned = text[-1] in "uU"
        if value > (UINT_MAX if unsigned else INT_MAX):
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


def _joined(parts: list[Valued], decides: bool) -> Valued:
    """`||` decides by true, `&&` by false; what fails counts only where nothing decides."""

    def joined(given: Variables) -> bool:
        failure = None
        for part in parts:
            try:
                if truth(part(given)) is decides:
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
            raise CelError(f"unknown variable {name}")
        return given[name]

    return variable


def _field(of: Valued, name: str) -> Valued:
    def field(given: Variables) -> Any:
        holder = of(given)
        if not isinstance(holder, dict):
            raise CelError(f"this value has no field {name}")
        if name not in holder:
            raise _NoField(f"unknown field {name}")
        return holder[name]

    return field
