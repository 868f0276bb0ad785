"""Conditions of a file that name a column which no message has, found without Spark.

Place: `federation validate` and `plan`, before anything runs; Spark itself judges all conditions when a link begins.
Promise: only a name that can be nothing but a column is refused: functions, words of SQL, fields, types, parameters and
whole subqueries are left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import pairwise

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.steps.routing import RouteByCondition
from syncpoint.programs.federation.steps.step import DETAIL, REASON, SIZE_READ, TOPIC
from syncpoint.programs.federation.transform import CARRIED, FLOW

_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?\*/)|(?P<text>[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*")"""
    r"""|(?P<quoted>`(?:[^`]|``)*`)|(?P<name>[A-Za-z_]\w*)|(?P<number>\d[\w.]*)|(?P<sign>->|=>|::|.)""",
    re.DOTALL,
)
_SQL = """
all and any array as asc at between both by case cast collate current_catalog current_database current_date
current_schema current_time current_timestamp current_user date day dayofweek days decade default desc distinct div
doy dow else end epoch escape exists false filter first following for from group hour hours if ilike in inf interval
is isodow isoyear last leading like localtimestamp map microsecond microseconds millisecond milliseconds minute
minutes month months nan nanosecond nanoseconds not null nulls or order over overlay partition placing position
preceding quarter quarters range regexp rlike row rows second seconds session_user similar some struct substring then
time timestamp to trailing trim true try_cast unbounded unknown user using week weeks when with within year
yearofweek years zone
"""
_WORDS = frozenset(_SQL.split())
_Token = tuple[str, str]


def check_conditions(links: Iterable[FederationLink]) -> None:
    """Raises `InvalidArgument` for the first condition or value with a column that is none."""
    for link in links:
        change = link.change
        places = [("where", change.where), *((f"select.{name}", text) for name, text in change.select.items())]
        _check(link.name, places, (*CARRIED, FLOW))
        if change.python:
            continue  # which may add columns
        for step in link.steps.steps:
            if isinstance(step, RouteByCondition):
                routes = [(f"routes.{i}.when", condition) for i, (condition, _) in enumerate(step.routes)]
                _check(link.name, routes, (*CARRIED, FLOW, TOPIC, REASON, DETAIL, SIZE_READ))


def _check(link: str, places: Iterable[tuple[str, str]], known: tuple[str, ...]) -> None:
    for key, text in places:
        for name in unknown_columns(text, known):
            near = get_close_matches(name.lower(), CARRIED, 1)
            hint = f"did you mean {near[0]}?" if near else f"for an attribute write attributes['{name}']"
            raise InvalidArgument(
                f"{link}.{key}", f"messages have no column {name}: {hint} The columns are {', '.join(CARRIED)}"
            )


def unknown_columns(text: str, known: Iterable[str]) -> Iterator[str]:
    """Names in an expression of Spark SQL that can be nothing but columns, and are none of these."""
    tokens = list(_tokens(text))
    words = {name.lower() for kind, name in tokens if kind == "name"}
    if "select" in words or _has_nested_type(tokens):
        return
    known = {*known, *_parameters(tokens)}
    for i, (kind, name) in enumerate(tokens):
        before = tokens[i - 1] if i else ("", "")
        after = tokens[i + 1] if i + 1 < len(tokens) else ("", "")
        if kind == "quoted":
            name = name[1:-1].replace("``", "`")
        elif kind != "name" or name.lower() in _WORDS:
            continue
        if before[1] in (".", "::") or before[1].lower() in ("as", "collate"):
            continue  # a field, a type
        if after[0] == "text" or after[1] in ("(", "=>"):
            continue  # a literal such as X'1F', a function, an argument by its name
        if name.lower() not in known:
            yield name


def _tokens(text: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(text):
        if found.lastgroup != "skip":
            yield str(found.lastgroup), found.group()


def _has_nested_type(tokens: list[_Token]) -> bool:
    """Whether there is a type such as STRUCT<a: INT>, whose fields look like columns."""
    pairs = pairwise(tokens)
    return any(one[1].lower() in ("struct", "array", "map") and two[1] == "<" for one, two in pairs)


def _parameters(tokens: list[_Token]) -> set[str]:
    """The parameters of functions such as x -> x + 1 and (x, y) -> x + y."""
    found = set()
    for i, (_, sign) in enumerate(tokens):
        if sign != "->" or not i:
            continue
        at = i - 1
        if tokens[at][1] != ")":
            found.add(tokens[at][1].lower())
            continue
        while at and tokens[at][1] != "(":
            at -= 1
            found.add(tokens[at][1].lower())
    return found
