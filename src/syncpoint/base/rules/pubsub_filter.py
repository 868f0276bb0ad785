"""The filter language of Pub/Sub subscriptions: text -> syntax tree -> program for the kernel.

Place: read once when a subscription is created; from then on `kernel.filters` runs the program over every message.
Promise: `matches(compile(text), message)` equals `evaluate(parse(text), attributes of message)` for a legal text; an
illegal one raises `InvalidArgument` with the position. A missing attribute satisfies `!=` (unlike in SQL).
Source of the language: the public Pub/Sub page "Filter messages from a subscription".

    expression = term { AND term } | term { OR term }          never both without parentheses
    term       = [ NOT | - ] primary
    primary    = ( expression )
               | attributes : key                              the key is there
               | attributes . key = "v"  |  attributes . key != "v"
               | hasPrefix ( attributes . key , "v" )
    key        = letters, digits, - and _   |   "string"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.limits import FILTER_BYTES_MAX

_HAS, _EQ, _NE, _PREFIX, _NOT, _AND, _OR = range(1, 8)  # operations of kernel.filters
_DEPTH_MAX = 50  # parentheses inside each other; far below the program's stack of 64 and Python's own
_SIMPLE_ESCAPES = {
    "\\": b"\\", '"': b'"', "'": b"'", "`": b"`", "?": b"?",
    "a": b"\a", "b": b"\b", "f": b"\f", "n": b"\n", "r": b"\r", "t": b"\t", "v": b"\v",
}  # fmt: skip
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}  # how many hexadecimal digits follow


@dataclass(frozen=True, slots=True)
class Has:
    """The attribute exists, with whatever value."""

    key: str


@dataclass(frozen=True, slots=True)
class Equals:
    """The attribute exists and has this value. `negated`: it is absent or has another one."""

    key: str
    value: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class HasPrefix:
    """The attribute exists and its value starts so."""

    key: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Not:
    """The operand does not hold."""

    operand: Node


@dataclass(frozen=True, slots=True)
class All:
    """Every operand holds."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """At least one operand holds."""

    operands: tuple[Node, ...]


Node = Has | Equals | HasPrefix | Not | All | Any


def parse(text: str) -> Node:
    """The syntax tree of a filter that is not empty. Raises `InvalidArgument`."""
    if len(text.encode()) > FILTER_BYTES_MAX:
        raise InvalidArgument("filter", f"must not be longer than {FILTER_BYTES_MAX} bytes")
    return _Parser(text).parse()


def evaluate(node: Node, attributes: Mapping[str, str]) -> bool:
    """Whether a message with these attributes passes: the meaning of the language in plain words."""
    match node:
        case Has(key):
            return key in attributes
        case Equals(key, value, negated):
            return (attributes.get(key) == value) is not negated
        case HasPrefix(key, prefix):
            return key in attributes and attributes[key].startswith(prefix)
        case Not(operand):
            return not evaluate(operand, attributes)
        case All(operands):
            return all(evaluate(operand, attributes) for operand in operands)
        case Any(operands):
            return any(evaluate(operand, attributes) for operand in operands)


def compile(text: str) -> bytes:
    """The program of a filter for `kernel.filters`; b"" for the empty filter, which lets everything pass.

    Raises `InvalidArgument` for a text that is not a filter.
    """
    return _program(parse(text)) if text else b""


def _program(node: Node) -> bytes:
    match node:
        case Has(key):
            return bytes([_HAS]) + _counted(key)
        case Equals(key, value, negated):
            return bytes([_NE if negated else _EQ]) + _counted(key) + _counted(value)
        case HasPrefix(key, prefix):
            return bytes([_PREFIX]) + _counted(key) + _counted(prefix)
        case Not(operand):
            return _program(operand) + bytes([_NOT])
        case All(operands) | Any(operands):
            join = bytes([_AND if isinstance(node, All) else _OR])
            first, *rest = operands
            # Joined one by one, so that a long chain never needs more than two places on the stack.
            return _program(first) + b"".join(_program(operand) + join for operand in rest)


def _counted(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "little") + data


class _Parser:
    """Recursive descent over the characters of one filter."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> Node:
        node = self._expression()
        if self._at < len(self._text):
            self._fail("expected AND, OR or the end")
        return node

    def _fail(self, problem: str, at: int | None = None) -> NoReturn:
        position = (self._at if at is None else at) + 1
        raise InvalidArgument("filter", f"{problem} at character {position} of {self._text!r}")

    def _space(self) -> None:
        while self._at < len(self._text) and self._text[self._at] in " \t\r\n":
            self._at += 1

    def _take(self, token: str) -> bool:
        """Step over `token` if it comes next, blanks before it aside."""
        self._space()
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def _take_word(self, word: str) -> bool:
        """As `_take`, but only when no further letter follows."""
        self._space()
        end = self._at + len(word)
        if not self._text.startswith(word, self._at) or (end < len(self._text) and _in_word(self._text[end])):
            return False
        self._at = end
        return True

    def _expect(self, token: str) -> None:
        if not self._take(token):
            self._fail(f"expected {token!r}")

    def _expression(self) -> Node:
        operands = [self._term()]
        joined = ""
        while True:
            self._space()
            start = self._at
            word = "AND" if self._take_word("AND") else "OR" if self._take_word("OR") else ""
            if not word:
                break
            if joined not in ("", word):
                self._fail("AND and OR need parentheses between them", start)
            joined = word
            operands.append(self._term())
        if not joined:
            return operands[0]
        return All(tuple(operands)) if joined == "AND" else Any(tuple(operands))

    def _term(self) -> Node:
        if self._take_word("NOT") or self._take("-"):
            return Not(self._primary())
        return self._primary()

    def _primary(self) -> Node:
        if self._take("("):
            self._depth += 1
            if self._depth > _DEPTH_MAX:
                self._fail("too many parentheses")
            node = self._expression()
            self._expect(")")
            self._depth -= 1
            return node
        if self._take_word("hasPrefix"):
            self._expect("(")
            self._expect_attributes()
            self._expect(".")
            key = self._key()
            self._expect(",")
            prefix = self._string()
            self._expect(")")
            return HasPrefix(key, prefix)
        self._expect_attributes()
        if self._take(":"):
            return Has(self._key())
        if not self._take("."):
            self._fail("expected '.' or ':'")
        key = self._key()
        negated = self._take("!=")
        if not negated and not self._take("="):
            self._fail("expected '=' or '!='")
        return Equals(key, self._string(), negated)

    def _expect_attributes(self) -> None:
        if not self._take_word("attributes"):
            self._fail("expected 'attributes'")

    def _key(self) -> str:
        self._space()
        if self._text.startswith('"', self._at):
            start = self._at
            key = self._string()
            if not key:
                self._fail("a key must not be empty", start)
            return key
        start = self._at
        while self._at < len(self._text) and _in_word(self._text[self._at]):
            self._at += 1
        if self._at == start:
            self._fail("expected a key")
        return self._text[start : self._at]

    def _string(self) -> str:
        """A literal in double quotes. \\x and octal escapes stand for bytes of UTF-8, \\u and \\U for characters."""
        self._space()
        start = self._at
        if not self._text.startswith('"', start):
            self._fail("expected a string in double quotes")
        self._at += 1
        parts = bytearray()
        while (char := self._text[self._at : self._at + 1]) != '"':
            if not char:
                self._fail("the string has no end", start)
            self._at += 1
            parts += self._escape() if char == "\\" else char.encode()
        self._at += 1
        try:
            # Two \\u escapes may spell one character outside of the basic plane, as in JSON.
            return parts.decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._fail("the string is not valid UTF-8", start)

    def _escape(self) -> bytes:
        """What follows a backslash."""
        start = self._at - 1
        char = self._text[self._at : self._at + 1]
        self._at += 1
        if char in _SIMPLE_ESCAPES:
            return _SIMPLE_ESCAPES[char]
        if char in _HEX_ESCAPES:
            value = self._digits(_HEX_ESCAPES[char], 16, start)
        elif char in "01234567" and char:
            self._at -= 1
            value = self._digits(3, 8, start)
            char = "x"
        else:
            self._fail("unknown escape", start)
        if char == "x":
            if value > 0xFF:
                self._fail("unknown escape", start)
            return bytes([value])
        if value > 0x10FFFF:
            self._fail("unknown escape", start)
        return chr(value).encode("utf-8", "surrogatepass")

    def _digits(self, count: int, base: int, start: int) -> int:
        digits = self._text[self._at : self._at + count]
        self._at += count
        allowed = "0123456789abcdefABCDEF" if base == 16 else "01234567"
        if len(digits) < count or any(digit not in allowed for digit in digits):
            self._fail("unknown escape", start)
        return int(digits, base)


def _in_word(char: str) -> bool:
    return char.isalnum() or char in "-_"
