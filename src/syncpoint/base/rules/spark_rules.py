"""SQL rules on Spark: a tree becomes Spark SQL, in steps that each add columns to a data frame of messages.

Place: beside `sql_compile`, from the same trees; federation and analysis apply the steps. Loads no Spark.
Promise: a message is selected, changed and failed on as by the closures of the same rule, whatever Spark's settings,
and no Python is in the plan. What Spark SQL cannot express is refused with `InvalidArgument` when it is compiled:
an escape character of LIKE, and names in `property(...)`, that only the message knows.
How: a value may be of several kinds, which only the message decides; so it is an expression for each kind, of which at
most one is not NULL. What is used more than once becomes a column first, so that texts grow with the rule, not with
its depth. Where a rule may fail on a message, that is a condition of its own, beside its truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.rules import spark_values as spark
from syncpoint.base.rules import sql_tree as tree
from syncpoint.base.rules.spark_operations import (
    Columns,
    Terms,
    any_of,
    calculated,
    compared,
    constant,
    converted,
    first_of,
    negated,
)
from syncpoint.base.rules.sql_compile import (
    TURNED,
    check_targets,
    compile_action,
    compile_expression,
    compile_filter,
    is_time_or_span,
)
from syncpoint.base.rules.sql_values import RuleError, Value, literal_of, pattern_symbols
from syncpoint.base.rules.system_properties import TABLE, Origin, RuleMessage

ATTRIBUTES = "attributes"


@dataclass(frozen=True, slots=True)
class SparkCondition:
    """A filter. `truth`: true, false, or NULL for unknown; `fails`: when it has no result ("": never)."""

    truth: str
    fails: str = ""

    @property
    def selects(self) -> str:
        """True or false: whether a message is selected."""
        truth = f"coalesce({self.truth}, false)"
        return f"({truth} AND NOT {self.fails})" if self.fails else truth


@dataclass(frozen=True, slots=True)
class SparkAction:
    """What an action leaves: the expression of the attributes, and when it fails ("": never)."""

    attributes: str
    fails: str = ""


def new_id_text(number: int) -> str:
    """What the `number`-th `newid()` of a rule is for a message: the same whenever the message is read."""
    digest = f"md5(concat_ws('/', CAST(source AS STRING), CAST(offset AS STRING), '{number}'))"
    places = ((1, 8), (9, 4), (14, 3), (18, 3), (21, 12))
    parts = [f"substring({digest}, {at}, {size})" for at, size in places]
    return f"concat({parts[0]}, '-', {parts[1]}, '-4', {parts[2]}, '-a', {parts[3]}, '-', {parts[4]})"


class SparkRules:
    """Compiles filters and actions, all for one data frame of messages; `steps` are the columns that they need, in the
    order in which they have to be added. Names of columns end in `__`.

    The data frame has the columns message_id, source, offset, publish_time, attributes and ordering_key.
    """

    def __init__(self) -> None:
        self._columns = Columns()

    @property
    def steps(self) -> list[dict[str, str]]:
        """For each step, the columns to add, by name."""
        return self._columns.steps

    def filter(self, node: tree.Predicate, parameters: Mapping[str, Value] | None = None) -> SparkCondition:
        """A filter. Raises `InvalidArgument` for what Spark cannot say, and as `compile_filter`."""
        given = dict(parameters or {})
        compile_filter(node, given)
        return _Compiler(self._columns, given, ATTRIBUTES).predicate(node)

    def action(self, actions: Sequence[tree.Statement], parameters: Mapping[str, Value] | None = None) -> SparkAction:
        """An action. Raises `InvalidArgument` for what Spark cannot say, and as `compile_action`."""
        given = dict(parameters or {})
        check_targets(actions)
        compile_action(actions, given)
        attributes, fails = ATTRIBUTES, list[str]()
        for one in actions:
            names = TABLE[one.property.name].attributes if one.property.system else (one.property.name,)
            compiler = _Compiler(self._columns, given, attributes)
            written = spark.NULL_TEXT
            if isinstance(one, tree.Set):
                value = compiler.expression(one.value)
                texts = [spark.text_of(kind, self._columns.bound(text)) for kind, text in value.of.items()]
                written = self._columns.bound(first_of(texts, spark.NULL_TEXT))
                fails += [value.fails, compiler.unreadable(one.property, written)]
            attributes = self._columns.bound(self._with_property(attributes, names, written))
        return SparkAction(attributes, self._columns.bound(any_of(fails)) if any(fails) else "")

    def _with_property(self, attributes: str, names: Sequence[str], written: str) -> str:
        """The attributes with another value for a property, under the name that it had."""
        name, *older = names
        for before in older:
            held = f"{spark.attribute(attributes, name)} IS NULL AND {spark.attribute(attributes, before)} IS NOT NULL"
            kept = spark.with_attribute(attributes, before, written)
            rest = self._columns.bound(spark.with_attribute(attributes, before, spark.NULL_TEXT))
            return f"CASE WHEN {held} THEN {kept} ELSE {spark.with_attribute(rest, name, written)} END"
        return spark.with_attribute(attributes, name, written)


class _Compiler:
    """One rule, whose message has these attributes."""

    def __init__(self, columns: Columns, given: Mapping[str, Value], attributes: str) -> None:
        self._columns, self._given, self._attributes = columns, given, attributes

    # -- conditions ----------------------------------------------------------------------------------------------------

    def predicate(self, node: tree.Predicate) -> SparkCondition:
        """Its truth, and when it fails."""
        if not any(_needs_message(part) for part in _parts(node)):
            return self._known(node)
        match node:
            case tree.Comparison(_, op, left, right):
                if is_time_or_span(left) and not is_time_or_span(right):
                    op, left, right = TURNED.get(op, op), right, left
                return self._comparison(op, self.expression(left), right)
            case tree.Like(_, text, pattern, escape, negative):
                return _not(negative, self._like(text, pattern, escape))
            case tree.In(_, operand, choices, negative):
                return _not(negative, self._in(self.expression(operand), choices))
            case tree.IsNull(_, operand, negative):
                return self._there(operand, negative)
            case tree.Exists(_, operand):
                return self._there(operand, True)
            case tree.Negation(_, operand):
                return _not(True, self.predicate(operand))
            case tree.Conjunction(_, operands):
                return self._joined([self.predicate(one) for one in operands], "AND")
            case tree.Disjunction(_, operands):
                return self._joined([self.predicate(one) for one in operands], "OR")
        raise AssertionError(node)

    def _known(self, node: tree.Predicate) -> SparkCondition:
        try:
            truth = compile_filter(node, self._given)(RuleMessage({}), str)
        except RuleError:
            return SparkCondition(spark.NULL_BOOLEAN, "true")
        return SparkCondition(spark.NULL_BOOLEAN if truth is None else spark.literal(truth))

    def _comparison(self, op: str, left: Terms, right: tree.Expression) -> SparkCondition:
        other = self.expression(right)
        fails = any_of((left.fails, other.fails))
        if isinstance(right, tree.Constant) and isinstance(right.value, str):
            meant = literal_of(right.value)
            if meant is not None and "text" in left.of:
                text = self._columns.bound(left.of["text"])
                as_meant = compared(op, Terms({"text": text}), constant(meant), self._columns)
                return SparkCondition(first_of([as_meant, compared(op, left, other, self._columns)]), fails)
        return SparkCondition(compared(op, left, other, self._columns), fails)

    def _in(self, operand: Terms, choices: Sequence[tree.Expression]) -> SparkCondition:
        operand = Terms({kind: self._columns.bound(text) for kind, text in operand.of.items()}, operand.fails)
        any_choice = self._joined([self._comparison("=", operand, one) for one in choices], "OR")
        if not any_choice.fails or not operand.of:
            return SparkCondition(any_choice.truth, operand.fails if not operand.of else any_choice.fails)
        there = any_of(f"{text} IS NOT NULL" for text in operand.of.values())
        return SparkCondition(any_choice.truth, any_of((operand.fails, f"({there} AND {any_choice.fails})")))

    def _there(self, operand: tree.Property | tree.BodyField, wanted: bool) -> SparkCondition:
        value = self.expression(operand)
        found = any_of(f"{text} IS NOT NULL" for text in value.of.values()) or "false"
        return SparkCondition(found if wanted else f"(NOT {found})", value.fails)

    def _joined(self, operands: Sequence[SparkCondition], word: str) -> SparkCondition:
        truths = [self._columns.bound(one.truth) if any(o.fails for o in operands) else one.truth for one in operands]
        whole = f"({f' {word} '.join(truths)})" if len(truths) > 1 else truths[0]
        if not any(one.fails for one in operands):
            return SparkCondition(whole)
        fails = ""
        for truth, one in reversed(list(zip(truths, operands, strict=True))):
            goes_on = f"coalesce({truth}, true)" if word == "AND" else f"NOT coalesce({truth}, false)"
            fails = any_of((one.fails, f"({goes_on} AND {fails})" if fails else ""))
        return SparkCondition(whole, self._columns.bound(fails))

    def _like(self, text: tree.Expression, pattern: tree.Expression, escape: tree.Expression | None) -> SparkCondition:
        subject, wanted = self.expression(text), self.expression(pattern)
        by = Terms({"text": spark.text_literal("")}) if escape is None else self.expression(escape)
        fails = any_of((subject.fails, wanted.fails, by.fails))
        if not all("text" in one.of for one in (subject, wanted, by)):
            return SparkCondition(spark.NULL_BOOLEAN, fails)
        seen = self._columns.bound(subject.of["text"])
        if escape is not None and _needs_message_below(escape):
            raise InvalidArgument("rule.sql", "on Spark, the escape character of LIKE must not depend on the message")
        if _needs_message_below(pattern):
            if escape is not None:
                raise InvalidArgument(
                    "rule.sql", "on Spark, the pattern of LIKE with ESCAPE must not depend on the message"
                )
            return SparkCondition(spark.like_pattern_of(seen, self._columns.bound(wanted.of["text"])), fails)
        try:
            symbols = pattern_symbols(self._text(pattern), "" if escape is None else self._text(escape))
        except RuleError:
            return SparkCondition(spark.NULL_BOOLEAN, any_of((fails, f"({seen} IS NOT NULL)")))
        return SparkCondition(spark.like(seen, symbols), fails)

    def _text(self, node: tree.Expression) -> str:
        found = compile_expression(node, self._given)(RuleMessage({}), str)
        assert isinstance(found, str)
        return found

    # -- values --------------------------------------------------------------------------------------------------------

    def expression(self, node: tree.Expression) -> Terms:
        """Its value."""
        if not _needs_message_below(node):
            try:
                return constant(compile_expression(node, self._given)(RuleMessage({}), str))
            except RuleError:
                return Terms({}, "true")
        match node:
            case tree.Property(_, name, True):
                return self._system(name)
            case tree.Property(_, name):
                return self._attribute(name)
            case tree.PropertyNamed(_, expression):
                return self._named(expression)
            case tree.NewId(_, number):
                return Terms({"text": self._columns.bound(new_id_text(number))})
            case tree.Negative(_, operand):
                return negated(self.expression(operand), self._columns)
            case tree.Arithmetic(_, op, left, right):
                return calculated(op, self.expression(left), self.expression(right), self._columns)
        raise AssertionError(node)

    def _attribute(self, name: str) -> Terms:
        return Terms({"text": self._columns.bound(spark.attribute(self._attributes, name))})

    def _named(self, expression: tree.Expression) -> Terms:
        if _needs_message_below(expression):
            raise InvalidArgument("rule.sql", "on Spark, the name in property(...) must not depend on the message")
        try:
            name = compile_expression(expression, self._given)(RuleMessage({}), str)
        except RuleError:
            return Terms({}, "true")
        if name is None:
            return Terms()
        return self._attribute(name) if isinstance(name, str) else Terms({}, "true")

    def _system(self, name: str) -> Terms:
        published = "unix_micros(publish_time)"
        match TABLE[name].origin:
            case Origin.ORDERING_KEY:
                return Terms({"text": "nullif(ordering_key, '')"})
            case Origin.PUBLISH_TIME:
                return Terms({"time": published})
            case Origin.OFFSET:
                return Terms({"integer": "offset"})
            case Origin.EXPIRY:
                return calculated("+", Terms({"time": published}), self._system("TimeToLive"), self._columns)
        texts = [self._columns.bound(spark.attribute(self._attributes, one)) for one in TABLE[name].attributes]
        text = self._columns.bound(first_of(texts, spark.NULL_TEXT))
        if TABLE[name].origin is Origin.MESSAGE_ID:
            text = self._columns.bound(f"coalesce({text}, nullif(message_id, ''))")
        kind = _KINDS.get(name)
        if kind is None:
            return Terms({"text": text})
        return converted(text, kind, self._columns)

    def unreadable(self, target: tree.Property, written: str) -> str:
        """When a text cannot stand in a property of the system; "" for never."""
        kind = _KINDS.get(target.name) if target.system else None
        if kind is None:
            return ""
        read = any_of(f"{text} IS NOT NULL" for text in converted(written, kind, self._columns).of.values())
        return f"({written} IS NOT NULL AND NOT {read})"


_KINDS = {"TimeToLive": "span", "ScheduledEnqueueTimeUtc": "time", "ForwardHops": "integer"}
"""Kinds of the system's properties that are no texts, as `system_properties` reads them."""


def _not(negative: bool, condition: SparkCondition) -> SparkCondition:
    return SparkCondition(f"(NOT {condition.truth})", condition.fails) if negative else condition


def _needs_message(node: tree.SqlNode) -> bool:
    return isinstance(node, tree.Property | tree.PropertyNamed | tree.NewId | tree.BodyField)


def _needs_message_below(node: tree.SqlNode) -> bool:
    return any(_needs_message(part) for part in _parts(node))


def _parts(node: tree.SqlNode) -> Iterator[tree.SqlNode]:
    yield node
    for one in fields(node):
        found = getattr(node, one.name)
        for child in found if isinstance(found, tuple) else (found,):
            if isinstance(child, tree.SqlNode):
                yield from _parts(child)
