"""Conditions as closures, compared with the package `cel-python`."""

from __future__ import annotations

import datetime
from contextlib import suppress

import celpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.catalog.access.cel import compiled
from syncpoint.catalog.access.cel_values import CelError

RESOURCE = {
    "name": "projects/p/topics/trial",
    "type": "pubsub.googleapis.com/Topic",
    "service": "pubsub.googleapis.com",
}
NOW = datetime.datetime.fromtimestamp(0, datetime.UTC)
TEXT, MAPPING = celpy.celtypes.StringType, celpy.celtypes.MapType
THEIRS = {
    "resource": MAPPING({TEXT(key): TEXT(value) for key, value in RESOURCE.items()}),
    "request": MAPPING({TEXT("time"): celpy.celtypes.TimestampType(NOW)}),
}
OURS = {"resource": RESOURCE, "request": {"time": NOW}}
EXPRESSIONS = r'''
true
false || true
1 + 2 * 3 == 7
-5 / 2 == -2
-5 % 3 == -2
"a" + 'b' == "ab"
"a\n\x41\u00e9\101" == 'a\nA\u00e9A'
r"a\n" == "a\\n"
"""x"y""" == 'x"y'
resource.name.startsWith("projects/p")
resource.name.endsWith("trial") && resource.type == "pubsub.googleapis.com/Topic"
resource.name.contains("topics")
resource.service in ["pubsub.googleapis.com", "x"]
!(resource.service in ["y"])
request.time < timestamp("2030-01-01T00:00:00Z")
request.time > timestamp("1969-01-01T00:00:00+02:00")
request.time.getHours() == 0
request.time.getHours("Europe/Berlin") == 1
request.time.getHours("-02:00") == 22
request.time.getDayOfWeek() == 4
request.time.getFullYear() == 1970
request.time.getMonth() == 0
request.time.getDate() == 1
request.time.getDayOfMonth() == 0
request.time.getDayOfYear() == 0
request.time + duration("1h30m") == timestamp("1970-01-01T01:30:00Z")
request.time - timestamp("1970-01-01T00:00:10Z") == duration("-10s")
duration("90s").getMinutes() == 1
size("abc") == 3 && "abc".size() == 3
size([1,2]) == 2
has(resource.name)
has(resource.nme)
resource.nme == "x"
resource.nme == "x" || true
true || resource.nme == "x"
false && resource.nme == "x"
resource.nme == "x" && false
resource.nme == "x" && true
1 == "1"
1 != "1"
1 == 1.0
1u == 1u
1 == 1u
null == null
resource["name"] == resource.name
{"a": 1}["a"] == 1
[1,2][1] == 2
true ? 1 == 1 : false
int("12") == 12
string(12) == "12"
double("1.5") == 1.5
1.5e3 == 1500.0
0x10 == 16
9223372036854775807 + 1 == 0
1 / 0 == 0
"a" < "b"
true < false
[1] == [1]
b"abc" == bytes("abc")
"x" in {"x": 1}
timestamp("1970-01-01T00:00:00Z") == request.time
!true
!!true
1 < 2 == true
"""a""" == "a"
request.time.getMilliseconds() == 0
resource.name == "a" ? true : resource.type == "x"
int(request.time) == 0
-9223372036854775808 < 0
'''.strip().split("\n")


def theirs(text: str) -> bool | None:
    """None: it fails."""
    environment = celpy.Environment()
    try:
        return bool(environment.program(environment.compile(text)).evaluate(THEIRS))
    except Exception:  # the library has no base class of what may be raised
        return None


def ours(text: str) -> bool | None:
    try:
        found = compiled(text).value(OURS)
    except CelError:
        return None
    assert isinstance(found, bool)
    return found


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_means_what_it_means_elsewhere(text: str) -> None:
    assert ours(text) is theirs(text)


_LEAVES = st.sampled_from(
    ["true", "false", "1 < 2", "2 / 0 == 1", "resource.nme == 'x'", "resource.name.contains('p')", "has(resource.nme)"]
)
_TREES = st.recursive(
    _LEAVES,
    lambda one: st.one_of(
        st.tuples(one, st.sampled_from([" && ", " || "]), one).map(lambda parts: f"({''.join(parts)})"),
        one.map(lambda part: f"!({part})"),
        st.tuples(one, one, one).map(lambda parts: "({} ? {} : {})".format(*parts)),
    ),
    max_leaves=8,
)


@given(_TREES)
def test_truth_and_failure_go_together_as_elsewhere(text: str) -> None:
    assert ours(text) is theirs(text)


@given(st.text(st.sampled_from(list("ab1.\"'\\()[]{}!&|=<>+-*/%?:,u x")), max_size=30))
def test_whatever_is_written_has_a_value_or_fails(text: str) -> None:
    with suppress(CelError):
        compiled(text).value(OURS)
