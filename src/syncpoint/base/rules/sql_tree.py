"""The syntax tree of a SQL rule.

Place: made by `sql_parser`; `sql_compile` makes a function of it, and code that translates rules into another language
begins here, too. `at` is where a node stands in its text: its first character, and one past its last.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncpoint.base.rules.sql_values import Value


@dataclass(frozen=True, slots=True)
class SqlNode:
    """Any node."""

    at: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Expression(SqlNode):
    """Has a value."""


@dataclass(frozen=True, slots=True)
class Predicate(SqlNode):
    """Is true, false or unknown."""


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """A number, a text, TRUE, FALSE or NULL."""

    value: Value


@dataclass(frozen=True, slots=True)
class Property(Expression):
    """A property of the message: of the system's, or one of the user's, which are its attributes."""

    name: str
    system: bool = False


@dataclass(frozen=True, slots=True)
class BodyField(Expression):
    """`body.a.b`: a field of the message's data, which people may ask for who try a rule, and rules never."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PropertyNamed(Expression):
    """`property(name)`: the user's property whose name is the value of an expression."""

    name: Expression


@dataclass(frozen=True, slots=True)
class Parameter(Expression):
    """`@name`: given when the rule was made."""

    name: str


@dataclass(frozen=True, slots=True)
class NewId(Expression):
    """`newid()`: the `number`-th one of its rule."""

    number: int


@dataclass(frozen=True, slots=True)
class Negative(Expression):
    """`-operand`."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic(Expression):
    """`left op right`; `op` is one of + - * / %."""

    op: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Comparison(Predicate):
    """`left op right`; `op` is one of = <> < <= > >=."""

    op: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Like(Predicate):
    """`text LIKE pattern ESCAPE escape`; `negated` by NOT."""

    text: Expression
    pattern: Expression
    escape: Expression | None
    negated: bool


@dataclass(frozen=True, slots=True)
class In(Predicate):
    """`operand IN (choices)`; `negated` by NOT."""

    operand: Expression
    choices: tuple[Expression, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class IsNull(Predicate):
    """`property IS NULL`: there is no such property; `negated` by NOT."""

    property: Property | BodyField
    negated: bool


@dataclass(frozen=True, slots=True)
class Exists(Predicate):
    """`EXISTS(property)`."""

    property: Property | BodyField


@dataclass(frozen=True, slots=True)
class Negation(Predicate):
    """`NOT operand`."""

    operand: Predicate


@dataclass(frozen=True, slots=True)
class Conjunction(Predicate):
    """`operand AND operand AND ...`."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Disjunction(Predicate):
    """`operand OR operand OR ...`."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Set(SqlNode):
    """`SET property = value`."""

    property: Property
    value: Expression


@dataclass(frozen=True, slots=True)
class Remove(SqlNode):
    """`REMOVE property`."""

    property: Property


Statement = Set | Remove
