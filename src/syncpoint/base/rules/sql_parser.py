"""The SQL of rules: text -> tree.

Place: read when a rule is made or tested; `sql_compile` goes on with the tree.
Promise: a text that is none raises `InvalidArgument`, which names the place; time and depth are bounded, whatever the
text. Words of the language may be written in any case; names of properties are kept as they are written.
Source: the language references of SQL filters and SQL actions of Azure Service Bus. `!=` is `<>`. Statements of an
action are parted by `;` or `,`.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any as Anything

from lark import Lark, Token, Transformer, Tree, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError
from lark.tree import Meta

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.rules import sql_tree as tree
from syncpoint.base.rules.sql_values import INT_MAX, kind_of, text_of
from syncpoint.base.rules.system_properties import system_name

TEXT_MAX = 1024  # characters
STATEMENTS_MAX = 32
DEPTH_MAX = 64
RESERVED = frozenset(("and", "or", "not", "like", "in", "is", "null", "exists", "escape", "true", "false"))

_GRAMMAR = r"""
?filter: disjunction
action: statement (_part statement)* _part?
_part: ";" | ","
?statement: "SET"i property "=" sum     -> set
          | "REMOVE"i property          -> remove

?disjunction: conjunction ("OR"i conjunction)*
?conjunction: negation ("AND"i negation)*
?negation: "NOT"i negation              -> negation
         | comparison
?comparison: sum
           | sum COMPARE sum                               -> comparison
           | sum "=" sum                                   -> equality
           | sum [NOT] "LIKE"i sum ["ESCAPE"i sum]         -> like
           | sum [NOT] "IN"i "(" sum ("," sum)* ")"         -> in_list
           | sum "IS"i [NOT] "NULL"i                        -> is_null
           | "EXISTS"i "(" property ")"                    -> exists
?sum: product | sum SIGN product        -> arithmetic
?product: signed | product TIMES signed -> arithmetic
?signed: atom | SIGN signed             -> signed
?atom: "(" disjunction ")"
     | constant | property
     | "@" NAME                         -> parameter
     | NAME "(" [sum] ")"               -> call

?constant: INTEGER -> integer
         | DOUBLE  -> double
         | TEXT    -> text
         | "TRUE"i  -> true
         | "FALSE"i -> false
         | "NULL"i  -> null
property: (NAME | BRACKETS | QUOTES) ("." (NAME | BRACKETS | QUOTES))*

NOT: "NOT"i
COMPARE: "<>" | "!=" | "<=" | ">=" | "<" | ">"
SIGN: "+" | "-"
TIMES: "*" | "/" | "%"
INTEGER: /[0-9]+/
DOUBLE: /([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
TEXT: /'(?:[^']|'')*'/
BRACKETS: /\[(?:[^\]]|\]\])+\]/
QUOTES: /"(?:[^"]|"")+"/
NAME: /[^\W\d_]\w*/i
%ignore /\s+/
"""


def parse_filter(text: str, field: str = "filter", *, body: bool = False) -> tree.Predicate:
    """The tree of a filter; `body`: it may name fields of the message's data. Raises `InvalidArgument` for `field`."""
    found = _parsed("filter", text, field, body)
    if not isinstance(found, tree.Predicate):
        raise InvalidArgument(field, f"{text!r} is a value, not a condition: compare it with something")
    return found


def parse_action(text: str, field: str = "action") -> tuple[tree.Statement, ...]:
    """The statements of an action. Raises `InvalidArgument` for `field`."""
    found = _parsed("action", text, field, False)
    if len(found) > STATEMENTS_MAX:
        raise InvalidArgument(field, f"must not have more than {STATEMENTS_MAX} statements")
    statements: tuple[tree.Statement, ...] = found
    return statements


@lru_cache(256)
def _parsed(start: str, text: str, field: str, body: bool) -> Anything:
    if len(text) > TEXT_MAX:
        raise InvalidArgument(field, f"must not be longer than {TEXT_MAX} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(field, "is not valid Unicode") from None
    if not text.strip():
        raise InvalidArgument(field, "must not be empty")
    try:
        found = _grammar().parse(text, start=start)
        if _depth(found) > DEPTH_MAX:
            raise InvalidArgument(field, f"must not be nested deeper than {DEPTH_MAX} levels")
        return _Builder(text, field, body).transform(found)
    except VisitError as error:
        raise error.orig_exc from None
    except UnexpectedInput as error:
        raise InvalidArgument(field, _complaint(text, error)) from None


@cache
def _grammar() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", start=["filter", "action"], propagate_positions=True, maybe_placeholders=True)


def _depth(whole: Tree[Token]) -> int:
    deepest, level = 0, [whole]
    while level:
        deepest += 1
        level = [child for node in level for child in node.children if isinstance(child, Tree)]
    return deepest


def _complaint(text: str, error: UnexpectedInput) -> str:
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return f"{text!r} ends too early"
    at = (error.pos_in_stream or 0) + 1
    what = f"{text[at - 1]!r}" if isinstance(error, UnexpectedCharacters) else f"{str(error.token)!r}"  # type: ignore[attr-defined]
    return f"{what} was not expected at character {at} of {text!r}"


@v_args(meta=True)
class _Builder(Transformer[Token, Anything]):
    """Makes the tree, and refuses a value where a condition must be, and the other way round."""

    def __init__(self, text: str, field: str, body: bool) -> None:
        super().__init__()
        self._text, self._field, self._body, self._new_ids = text, field, body, 0

    def _refuse(self, at: tuple[int, int], problem: str) -> InvalidArgument:
        return InvalidArgument(self._field, f"{self._text[slice(*at)]!r} {problem}, in {self._text!r}")

    def _value(self, node: tree.SqlNode) -> tree.Expression:
        if isinstance(node, tree.Expression):
            return node
        raise self._refuse(node.at, "is a condition, not a value")

    def _condition(self, node: tree.SqlNode) -> tree.Predicate:
        if isinstance(node, tree.Predicate):
            return node
        raise self._refuse(node.at, "is a value, not a condition")

    def action(self, meta: Meta, parts: list[tree.Statement]) -> tuple[tree.Statement, ...]:
        return tuple(parts)

    def set(self, meta: Meta, parts: list[Anything]) -> tree.Set:
        return tree.Set(_at(meta), parts[0], self._value(parts[1]))

    def remove(self, meta: Meta, parts: list[tree.Property]) -> tree.Remove:
        return tree.Remove(_at(meta), parts[0])

    def disjunction(self, meta: Meta, parts: list[tree.SqlNode]) -> tree.Disjunction:
        return tree.Disjunction(_at(meta), tuple(map(self._condition, parts)))

    def conjunction(self, meta: Meta, parts: list[tree.SqlNode]) -> tree.Conjunction:
        return tree.Conjunction(_at(meta), tuple(map(self._condition, parts)))

    def negation(self, meta: Meta, parts: list[tree.SqlNode]) -> tree.Negation:
        return tree.Negation(_at(meta), self._condition(parts[-1]))

    def comparison(self, meta: Meta, parts: list[Anything]) -> tree.Comparison:
        op = "<>" if parts[1] == "!=" else str(parts[1])
        return tree.Comparison(_at(meta), op, self._value(parts[0]), self._value(parts[2]))

    def equality(self, meta: Meta, parts: list[tree.SqlNode]) -> tree.Comparison:
        return tree.Comparison(_at(meta), "=", self._value(parts[0]), self._value(parts[1]))

    def like(self, meta: Meta, parts: list[Anything]) -> tree.Like:
        text, negated, pattern, escape = parts
        if isinstance(escape, tree.Constant) and len(text_of(escape.value)) != 1:
            raise self._refuse(escape.at, "must be one character")
        escape = None if escape is None else self._value(escape)
        return tree.Like(_at(meta), self._value(text), self._value(pattern), escape, negated is not None)

    def in_list(self, meta: Meta, parts: list[Anything]) -> tree.In:
        operand, negated, *choices = parts
        return tree.In(_at(meta), self._value(operand), tuple(map(self._value, choices)), negated is not None)

    def is_null(self, meta: Meta, parts: list[Anything]) -> tree.IsNull:
        operand, negated = parts
        if not isinstance(operand, tree.Property | tree.BodyField):
            raise self._refuse(operand.at, "is not a property: IS NULL applies to properties only")
        return tree.IsNull(_at(meta), operand, negated is not None)

    def exists(self, meta: Meta, parts: list[tree.Property]) -> tree.Exists:
        return tree.Exists(_at(meta), parts[0])

    def arithmetic(self, meta: Meta, parts: list[Anything]) -> tree.Arithmetic:
        return tree.Arithmetic(_at(meta), str(parts[1]), self._value(parts[0]), self._value(parts[2]))

    def signed(self, meta: Meta, parts: list[Anything]) -> tree.Expression:
        sign, operand = str(parts[0]), self._value(parts[1])
        if isinstance(operand, tree.Constant) and kind_of(operand.value) not in ("number", "NULL"):
            raise self._refuse(operand.at, "cannot have a sign")
        if sign == "-":
            return tree.Negative(_at(meta), operand)
        zero = tree.Constant(operand.at, 0)
        return tree.Arithmetic(_at(meta), "+", zero, operand)

    def parameter(self, meta: Meta, parts: list[Token]) -> tree.Parameter:
        return tree.Parameter(_at(meta), str(parts[0]))

    def call(self, meta: Meta, parts: list[Anything]) -> tree.Expression:
        name, argument = str(parts[0]).lower(), parts[1]
        if name == "newid" and argument is None:
            self._new_ids += 1
            return tree.NewId(_at(meta), self._new_ids)
        if name in ("property", "p") and argument is not None:
            return tree.PropertyNamed(_at(meta), self._value(argument))
        raise self._refuse(_at(meta), "is not a function: use newid(), property(name) or p(name)")

    def property(self, meta: Meta, parts: list[Token]) -> tree.Property | tree.BodyField:
        names = [_name(token) for token in parts]
        if len(parts) == 1:
            if parts[0].type == "NAME" and names[0].lower() in RESERVED:
                raise self._refuse(_at(meta), "is a keyword; write a property with this name in [brackets]")
            return tree.Property(_at(meta), names[0])
        scope = names[0].lower() if parts[0].type == "NAME" else ""
        if scope == "body":
            if not self._body:
                raise self._refuse(
                    _at(meta), "is a field of the message's data, which rules cannot read: publish it as an attribute"
                )
            return tree.BodyField(_at(meta), tuple(names[1:]))
        if scope not in ("sys", "user") or len(parts) > 2:
            raise self._refuse(_at(meta), "must begin with sys. or user.; write other names with a dot in [brackets]")
        if scope == "user":
            return tree.Property(_at(meta), names[1])
        known = system_name(names[1])
        if known is None:
            raise self._refuse(_at(meta), "is not a system property")
        return tree.Property(_at(meta), known, system=True)

    def integer(self, meta: Meta, parts: list[Token]) -> tree.Constant:
        if int(parts[0]) > INT_MAX:
            raise self._refuse(_at(meta), "does not fit into an integer of 64 bits")
        return tree.Constant(_at(meta), int(parts[0]))

    def double(self, meta: Meta, parts: list[Token]) -> tree.Constant:
        value = float(parts[0])
        if value == float("inf"):
            raise self._refuse(_at(meta), "does not fit into a double")
        return tree.Constant(_at(meta), value)

    def text(self, meta: Meta, parts: list[Token]) -> tree.Constant:
        return tree.Constant(_at(meta), str(parts[0])[1:-1].replace("''", "'"))

    def true(self, meta: Meta, parts: list[Token]) -> tree.Constant:
        return tree.Constant(_at(meta), True)

    def false(self, meta: Meta, parts: list[Token]) -> tree.Constant:
        return tree.Constant(_at(meta), False)

    def null(self, meta: Meta, parts: list[Token]) -> tree.Constant:
        return tree.Constant(_at(meta), None)


def _name(token: Token) -> str:
    """The name of a token, without brackets or quotes."""
    name = str(token)
    return name if token.type == "NAME" else name[1:-1].replace(name[-1] * 2, name[-1])


def _at(meta: Meta) -> tuple[int, int]:
    return meta.start_pos, meta.end_pos
