"""Values of several kinds on Spark: what `sql_values` does with values, done with an expression for each kind.

Place: between `spark_values` and `spark_rules`; without Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from syncpoint.base.rules import spark_values as spark
from syncpoint.base.rules.sql_values import Value, kind_of

_COLUMN = re.compile(r"rule_\d+__")
_TRY = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}


class Columns:
    """Expressions that became columns, in steps: a step uses columns of steps before it only."""

    def __init__(self) -> None:
        self.steps: list[dict[str, str]] = []
        self._known: dict[str, str] = {}
        self._step_of: dict[str, int] = {}

    def bound(self, text: str) -> str:
        """The column for an expression; constants and columns stay as they are."""
        if re.fullmatch(r"\w+|r'[^']*'|\(-?\d+L\)", text):
            return text
        if text not in self._known:
            step = 1 + max((self._step_of[name] for name in _COLUMN.findall(text)), default=-1)
            self.bind(text, step)
        return self._known[text]

    def bind(self, text: str, step: int) -> str:
        """A column for an expression in a certain step, or a later one."""
        name = f"rule_{len(self._step_of)}__"
        while len(self.steps) <= step:
            self.steps.append({})
        self.steps[step][name] = text
        self._known[text], self._step_of[name] = name, step
        return name


@dataclass(frozen=True, slots=True)
class Terms:
    """A value: an expression for each kind that it may be of; `fails`: when it has none at all, "" for never."""

    of: Mapping[str, str] = field(default_factory=dict)  # integer, double, text, boolean, time, span
    fails: str = ""

    def get(self, *kinds: str) -> list[tuple[str, str]]:
        """The kinds of these that it may be of, with their expressions."""
        return [(kind, self.of[kind]) for kind in kinds if kind in self.of]


def constant(value: Value) -> Terms:
    """A value that is known."""
    if value is None:
        return Terms()
    kind = "double" if isinstance(value, float) else "integer" if kind_of(value) == "number" else kind_of(value)
    return Terms({kind: spark.literal(value)})


def any_of(conditions: Iterable[str]) -> str:
    """Whether one of the conditions is true; "" for none."""
    found = list(dict.fromkeys(one for one in conditions if one))
    return f"({' OR '.join(found)})" if len(found) > 1 else found[0] if found else ""


def first_of(expressions: Sequence[str], none: str = spark.NULL_BOOLEAN) -> str:
    """The one that is not NULL."""
    return f"coalesce({', '.join(expressions)})" if len(expressions) > 1 else expressions[0] if expressions else none


# -- reading -----------------------------------------------------------------------------------------------------------


def converted_number(text: str, columns: Columns) -> Terms:
    """The number that a text is."""
    text = columns.bound(text)
    return Terms({"integer": columns.bound(spark.integer_of(text)), "double": columns.bound(spark.double_of(text))})


def converted(text: str, kind: str, columns: Columns) -> Terms:
    """A text read as a literal of a kind."""
    text = columns.bound(text)
    match kind:
        case "integer" | "double":
            return converted_number(text, columns)
        case "boolean":
            return Terms({"boolean": columns.bound(spark.boolean_of(text))})
        case "time":
            whole = columns.bound(spark.time_of(text))
            return Terms({"time": columns.bound(spark.within(whole, spark.TIME_MIN, spark.TIME_MAX))})
        case "span":
            return Terms({"span": columns.bound(spark.span_of(text))})
    return Terms({"text": text})


# -- comparison --------------------------------------------------------------------------------------------------------


def compared(op: str, left: Terms, right: Terms, columns: Columns) -> str:
    """`left op right`: a condition that may be NULL."""
    found = []
    for kind, one in left.of.items():
        for other_kind, other in right.of.items():
            a, b = Terms({kind: one}), Terms({other_kind: other})
            if kind == "text" and other_kind != "text":
                a = converted(one, other_kind, columns)
            elif other_kind == "text" and kind != "text":
                b = converted(other, kind, columns)
            found += _same_kind(op, a, b)
    return first_of(list(dict.fromkeys(found)))


def _same_kind(op: str, left: Terms, right: Terms) -> list[str]:
    found = []
    for kind, one in left.of.items():
        for other_kind, other in right.of.items():
            if kind == other_kind and not (kind == "boolean" and op not in ("=", "<>")):
                found.append(f"({one} {op} {other})")
            elif {kind, other_kind} == {"integer", "double"}:
                found.append(f"({_double(kind, one)} {op} {_double(other_kind, other)})")
    return found


def _double(kind: str, expression: str) -> str:
    return expression if kind == "double" else f"CAST({expression} AS DOUBLE)"


# -- arithmetic --------------------------------------------------------------------------------------------------------


def negated(operand: Terms, columns: Columns) -> Terms:
    """`-operand`."""
    found, fails = dict[str, list[str]](), [operand.fails]
    numbers = [*operand.get("integer", "double", "span")]
    for _, text in operand.get("text"):
        numbers += converted_number(text, columns).of.items()
    for kind, one in numbers:
        if kind != "integer":
            found.setdefault(kind, []).append(f"(-({one}))" if kind == "double" else f"(0 - {one})")
            continue
        one = columns.bound(one)
        result = columns.bound(f"try_subtract(0L, {one})")
        found.setdefault(kind, []).append(result)
        fails.append(f"({one} IS NOT NULL AND {result} IS NULL)")
    return Terms({kind: columns.bound(first_of(ones)) for kind, ones in found.items()}, any_of(fails))


def calculated(op: str, left: Terms, right: Terms, columns: Columns) -> Terms:
    """`left op right`."""
    found: dict[str, list[str]] = {}
    fails = [left.fails, right.fails]

    def add(more: Terms) -> None:
        fails.append(more.fails)
        for kind, text in more.of.items():
            found.setdefault(kind, []).append(text)

    texts, others = left.get("text"), right.get("text")
    numbers, other_numbers = _numbers(left), _numbers(right)
    if texts and others:
        add(_two_texts(op, columns.bound(texts[0][1]), columns.bound(others[0][1]), columns))
    if other_numbers.of and texts:
        add(_number(op, converted_number(texts[0][1], columns), other_numbers, columns))
    if numbers.of and others:
        add(_number(op, numbers, converted_number(others[0][1], columns), columns))
    if numbers.of and other_numbers.of:
        add(_number(op, numbers, other_numbers, columns))
    for kind, one in left.get("time", "span"):
        for other_kind, other in right.get("time", "span"):
            add(_with_time(op, (kind, one), (other_kind, other), columns))
        for _, text in others:
            add(_beside_text(op, kind, one, text, columns))
    for _, text in texts:
        for kind, other in right.get("time", "span"):
            read = converted(text, kind, columns)
            add(_with_time(op, (kind, read.of[kind]), (kind, other), columns))
    return Terms({kind: columns.bound(first_of(ones)) for kind, ones in found.items()}, any_of(fails))


def _numbers(value: Terms) -> Terms:
    return Terms(dict(value.get("integer", "double")))


def _two_texts(op: str, one: str, other: str, columns: Columns) -> Terms:
    if op == "+":
        return Terms({"text": f"concat({one}, {other})"})
    a, b = converted_number(one, columns), converted_number(other, columns)
    plain = _number(op, a, b, columns)
    if op != "-":
        return plain
    since = converted(one, "time", columns).of["time"]  # no text is a time and a number
    timed = _beside_text(op, "time", since, other, columns)
    return Terms({**plain.of, **timed.of}, any_of((plain.fails, timed.fails)))


def _beside_text(op: str, kind: str, one: str, text: str, columns: Columns) -> Terms:
    """A time or a span with a text: beside a time it may be either."""
    span = _with_time(op, (kind, one), ("span", converted(text, "span", columns).of["span"]), columns)
    if kind == "span":
        return span
    time = _with_time(op, (kind, one), ("time", converted(text, "time", columns).of["time"]), columns)
    return Terms({**span.of, **time.of}, any_of((span.fails, time.fails)))


def _number(op: str, left: Terms, right: Terms, columns: Columns) -> Terms:
    left = Terms({kind: columns.bound(text) for kind, text in left.of.items()})
    right = Terms({kind: columns.bound(text) for kind, text in right.of.items()})
    found, fails = {}, []
    if "integer" in left.of and "integer" in right.of:
        one, other = left.of["integer"], right.of["integer"]
        found["integer"] = columns.bound(_whole(op, one, other))
        fails.append(f"({one} IS NOT NULL AND {other} IS NOT NULL AND {found['integer']} IS NULL)")
    doubles = [one for _, one in (*left.get("double"), *right.get("double"))]
    if doubles:
        one, other = (columns.bound(first_of([_double(*each) for each in side.of.items()])) for side in (left, right))
        divisor = f"nullif({other}, 0D)"
        result = {"/": f"{one} / {divisor}", "%": f"{one} % {divisor}"}.get(op, f"{one} {op} {other}")
        some = f"({' OR '.join(f'{each} IS NOT NULL' for each in doubles)})"
        found["double"] = columns.bound(f"CASE WHEN {some} THEN {spark.finite(columns.bound(f'({result})'))} END")
        fails.append(f"({some} AND {one} IS NOT NULL AND {other} IS NOT NULL AND {found['double']} IS NULL)")
    return Terms(found, any_of(fails))


def _whole(op: str, one: str, other: str) -> str:
    if op in _TRY:
        return f"{_TRY[op]}({one}, {other})"
    if op == "%":
        return f"({one} % nullif({other}, 0L))"
    by = f"nullif(nullif({other}, 0L), -1L)"  # -1 alone can overflow
    return f"CASE WHEN {other} = -1L THEN try_subtract(0L, {one}) ELSE {one} div {by} END"


def _with_time(op: str, left: tuple[str, str], right: tuple[str, str], columns: Columns) -> Terms:
    result = {
        ("time", "-", "time"): "span",
        ("time", "+", "span"): "time",
        ("time", "-", "span"): "time",
        ("span", "+", "span"): "span",
        ("span", "-", "span"): "span",
        ("span", "+", "time"): "time",
    }.get((left[0], op, right[0]))
    if result is None:
        return Terms()
    one, other = columns.bound(left[1]), columns.bound(right[1])
    whole = columns.bound(f"(CAST({one} AS DECIMAL(20,0)) {op} CAST({other} AS DECIMAL(20,0)))")
    least, most = (spark.TIME_MIN, spark.TIME_MAX) if result == "time" else (spark.SPAN_MIN, spark.SPAN_MAX)
    kind = "BIGINT" if result == "time" else "DECIMAL(20,0)"
    found = columns.bound(f"CAST({spark.within(whole, least, most)} AS {kind})")
    return Terms({result: found}, f"({whole} IS NOT NULL AND {found} IS NULL)")
