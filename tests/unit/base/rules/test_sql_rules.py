"""SQL filters and actions: vectors by hand, and every tree against a plain evaluation of it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.rules.correlation import correlation
from syncpoint.base.rules.explain import explain
from syncpoint.base.rules.sql_compile import compile_action, compile_filter
from syncpoint.base.rules.sql_parser import parse_action, parse_filter
from syncpoint.base.rules.sql_values import RuleError, Value, like, number_of, span_of, text_of, time_of
from syncpoint.base.rules.system_properties import TABLE, RuleMessage
from tests.fuzz import sql as fuzz
from tests.kit.examples import examples

pytestmark = pytest.mark.shows("rules")

MESSAGE = RuleMessage(
    {"n": "3", "name": "O'Hara", "empty": "", "flag": "True", "Big": "9223372036854775807", "x.y": "z", "größe": "2.5",
     "due": "2026-01-01T00:00:00Z", "lasts": "0:1:0", "sys.TimeToLive": "1.02:03:04", "sys.Subject": "greeting"},
    message_id="77", ordering_key="key", publish_time_ns=1_767_225_600_000_000_000, offset=41,
)  # fmt: skip


def new_id(number: int) -> str:
    return f"id-{number}"


def truth(text: str, message: RuleMessage = MESSAGE, **parameters: Value) -> bool | None:
    return compile_filter(parse_filter(text), parameters)(message, new_id)


def each(texts: str) -> list[str]:
    """The conditions that stand in lines, parted by semicolons."""
    return [one.strip() for line in texts.strip().splitlines() for one in line.split(" ; ")]


TRUE = each(r"""
    n = 3 ; n=3.0 ; N = '3' ; n > 2.9e0 ; n <> 4 ; n != 4 ; 3 = n ; n IN (1, 2, 3) ; n NOT IN (4) ; n * n = 9
    10 / n = 3 ; -10 / n = -3 ; -10 % n = -1 ; 10 % -3 = 1 ; 10.0 / 4 = 2.5 ; -n = -3 ; +n = 3 ; n + 1 = 4
    - - n = 3 ; 2 + 3 * 4 = 14 ; 10 - 3 - 2 = 5 ; name = 'O''Hara' ; user.name LIKE 'O_H%' ; name NOT LIKE '%x%'
    '50%' LIKE '50!%' ESCAPE '!' ; empty = '' ; empty IS NOT NULL ; missing IS NULL ; NOT EXISTS(missing)
    exists(n) ; flag = TRUE ; flag <> false ; größe = 2.5 ; [x.y] = 'z' ; "x.y" = 'z' ; [a]]b] IS NULL
    property('n') = 3 ; p('na' + 'me') = name ; due = due ; due < sys.ExpiresAtUtc
    sys.EnqueuedTimeUtc = '2026-01-01' ; sys.EnqueuedTimeUtc - '2025-12-31' = '1.00:00:00'
    lasts < sys.TimeToLive ; sys.TimeToLive = '26:3:4' OR sys.TimeToLive = '1.2:3:4' ; sys.Label = 'greeting'
    SYS.subject = sys.Subject ; sys.SessionId = 'key' ; sys.SequenceNumber = 41 ; sys.MessageId = '77'
    sys.MessageId = 77 ; 1=1 ; n = 3 AND missing = 1 OR n = 3 ; NOT (n = 4) ; not n = 4 and not n = 5 ; n = @three
    @Three IN (n) ; newid() = 'id-1' ; newid() <> newid() ; 'a' + 'b' = 'ab' ; '1' + '2' = '12'
    [In] IS NULL ; user.In IS NULL ; GRÖSSE = 1 OR GRÖßE = 2.5
    Big = 9223372036854775807 ; empty + 'x' = 'x' ; (2 + 3) * 4 = 20
    sys.EnqueuedTimeUtc + '1:0' < sys.ExpiresAtUtc ; '00000000000000000000000001' = 1 ; '1e-999' = 0
""")
FALSE = each(r"""
    n = 4 ; n <> 3 ; name = 'o''hara' ; 1 = 2 ; EXISTS(missing) ; n IS NULL ; n IN (4, 5) ; missing = 1 AND n = 4
    NOT n = 3 ; name LIKE 'O' ; TRUE = FALSE ; n NOT IN (3, missing) ; n < '10' ; sys.TimeToLive < '0:0:1'
""")
UNKNOWN = each(r"""
    missing = 1 ; missing <> 1 ; NOT missing = 1 ; NULL = NULL ; n = NULL ; missing + 1 = 1 ; missing LIKE 'x'
    name LIKE missing ; missing IN (1) ; n IN (4, missing) ; n NOT IN (4, NULL) ; -missing = 1
    missing = 1 OR n = 4 ; missing = 1 AND n = 3 ; name = 1 ; name > 1 ; flag < TRUE ; n = TRUE ; empty = 0
    sys.CorrelationId = 'x' ; name * 2 = 2 ; missing = missing ; sys.TimeToLive = 5
    sys.EnqueuedTimeUtc = sys.TimeToLive ; '9223372036854775808' > 0 ; '99999999999999999999' > 0 ; '1e999' > 0
    '00000000000000000000000000000000000000000000000000000000000000001' = 1
""")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [(one, True) for one in TRUE] + [(one, False) for one in FALSE] + [(one, None) for one in UNKNOWN],
)
def test_conditions(text: str, wanted: bool | None) -> None:
    if "26:3:4" in text:
        assert span_of("26:3:4") is None  # hours end at 23; more are days
    assert truth(text, three=3) is wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 / 0 = 1", "divides by zero"),
        ("n % 0 = 1", "divides by zero"),
        ("1.5 / 0.0 = 1", "divides by zero"),
        ("Big + 1 = 1", "too large"),
        ("-9223372036854775807 - 2 = 1", "too large"),
        ("1e308 * 10 = 1", "too large"),
        ("name LIKE 'x!' ESCAPE '!'", "ends with its escape"),
        ("name LIKE 'x' ESCAPE name", "must be one character"),
        ("sys.EnqueuedTimeUtc + '9999999.0:0:0' > due", "out of the range of times"),
        ("p(5) = 1", "needs a name"),
    ],
)
def test_a_rule_can_fail_on_a_message(text: str, why: str) -> None:
    with pytest.raises(RuleError, match=why):
        truth(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must not be empty"),
        ("n =", "ends too early"),
        ("n = 1 &", "'&' was not expected at character 7"),
        ("n", "is a value, not a condition"),
        ("n = (m = 1)", "'m = 1' is a condition, not a value"),
        ("NOT n", "is a value, not a condition"),
        ("n = 1 AND m", "'m' is a value"),
        ("1 IS NULL", "applies to properties only"),
        ("n = 1 = 1", "was not expected"),
        ("sys.Body = 1", "not a system property"),
        ("a.b = 1", "must begin with sys. or user."),
        ("user.a.b = 1", "must begin with sys. or user."),
        ("[sys].To = 1", "must begin with sys. or user."),
        ("body.a = 1", "rules cannot read"),
        ("in = 1", "is a keyword"),
        ("f(1) = 1", "is not a function: use newid"),
        ("newid(1) = 1", "is not a function: use newid"),
        ("p() = 1", "is not a function: use newid"),
        ("9223372036854775808 = 1", "does not fit into an integer"),
        ("1e999 = 1", "does not fit into a double"),
        ("-'x' = 1", "cannot have a sign"),
        ("n LIKE 'x' ESCAPE 'ab'", "must be one character"),
        ("(" * 500 + "1=1" + ")" * 500, None),
        ("NOT " * 100 + "1=1", "nested deeper"),
        ("1" + "+1" * 400 + " = 1", "nested deeper"),
        ("x" * 1025, "longer than 1024"),
        ("n = 'x", "was not expected"),
        ("1 = @gone", "@gone has no value"),
    ],
)
def test_what_is_no_filter_is_refused(text: str, why: str | None) -> None:
    if why is None:
        assert truth(text) is True  # parentheses alone cost nothing
        return
    with pytest.raises(InvalidArgument, match=why.replace("(", r"\(").replace("+", r"\+")):
        truth(text)


def changed(text: str, attributes: dict[str, str]) -> dict[str, str]:
    return compile_action(parse_action(text))(RuleMessage(attributes, "77", "key"), new_id)


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("SET replicated = 1", {}, {"replicated": "1"}),
        ("set Quantity = quantity / 2; REMOVE Priority;", {"quantity": "9", "priority": "x"}, {"quantity": "4"}),
        ("SET a = 1, SET b = a + 1", {}, {"a": "1", "b": "2"}),
        ("SET a = b; SET b = a", {"b": "x"}, {"a": "x", "b": "x"}),
        ("SET a = missing", {"a": "1"}, {}),
        ("REMOVE missing", {"a": "1"}, {"a": "1"}),
        ("set sys.TimeToLive = '0:2:0'", {}, {"sys.TimeToLive": "0:2:0"}),
        ("SET sys.Label = 'low'", {"sys.subject": "x"}, {"sys.subject": "low"}),
        ("SET t = TRUE; SET d = 2.50; SET i = newid()", {}, {"t": "true", "d": "2.5", "i": "id-1"}),
        ("SET b = sys.TimeToLive + '0:0:1'", {"sys.TimeToLive": "23:59:59"},
         {"sys.TimeToLive": "23:59:59", "b": "1.00:00:00"}),
        ("SET a = 'x' + [b c]", {"b c": "y"}, {"b c": "y", "a": "xy"}),
    ],
)  # fmt: skip
def test_actions(text: str, before: dict[str, str], after: dict[str, str]) -> None:
    unchanged = dict(before)
    assert changed(text, before) == after
    assert before == unchanged


def test_what_the_two_rules_of_replication_say() -> None:
    """A missing property is neither 1 nor something else, so that `<>` alone selects nothing at first."""
    assert truth("replicated <> 1", RuleMessage({})) is None
    assert truth("replicated IS NULL OR replicated <> 1", RuleMessage({})) is True
    once = changed("SET replicated = 1", {})
    assert truth("replicated <> 1", RuleMessage(once)) is False
    assert truth("replicated IS NULL OR replicated <> 1", RuleMessage(once)) is False
    assert truth("replication IS NULL", RuleMessage(changed("set replication = 1", {}))) is False


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SET sys.SessionId = 'x'", "the ordering key, and cannot be changed"),
        ("REMOVE sys.EnqueuedTimeUtc", "cannot be changed"),
        ("SET a", "ends too early"),
        ("SET a = 1 SET b = 2", "was not expected"),
        ("SET a = (b = 1)", "is a condition"),
        (";".join(["REMOVE a"] * 33), "more than 32 statements"),
    ],
)
def test_what_is_no_action_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        changed(text, {})


def test_an_action_can_fail_on_a_message() -> None:
    with pytest.raises(RuleError, match="TimeToLive cannot be 'soon'"):
        changed("SET sys.TimeToLive = 'soon'", {})


@given(st.text("ab%_\xe9", max_size=8), st.text("ab\xe9", max_size=9))
def test_like_is_what_a_regular_expression_says(pattern: str, text: str) -> None:
    wanted = "".join({"%": ".*", "_": "."}.get(one, one) for one in pattern)
    assert like(text, pattern, "") is (re.fullmatch(wanted, text) is not None)


def test_a_time_to_live_beyond_all_times_fails_the_rule() -> None:
    longest = RuleMessage({"SYS.timetolive": "99999999.00:00"}, publish_time_ns=1)
    with pytest.raises(RuleError, match="out of the range of times"):
        compile_filter(parse_filter("sys.ExpiresAtUtc > '2026-01-01'"))(longest, str)


TEXTS = st.sampled_from(["", "5", "5.0", "true", "x", "X", "2026-01-01T00:00:00Z"])
NAMES = st.sampled_from(["a", "A", "sys.Subject", "sys.label", "sys.MessageId", "sys.SessionId", "größe"])


@given(st.dictionaries(NAMES, TEXTS, min_size=1), st.dictionaries(NAMES, TEXTS), TEXTS, TEXTS)
def test_a_correlation_filter_says_the_same_as_its_sql(
    wanted: dict[str, str], attributes: dict[str, str], message_id: str, key: str
) -> None:
    message = RuleMessage(attributes, message_id, key)
    found = correlation(wanted)
    assert (compile_filter(found.predicate())(message, str) is True) == found.matches(message)


def test_correlation_compares_texts_as_they_are() -> None:
    assert correlation({"NAME": "O'Hara", "sys.label": "greeting", "sys.SessionId": "key"}).matches(MESSAGE)
    assert not correlation({"name": "o'hara"}).matches(MESSAGE)
    assert not correlation({"missing": ""}).matches(MESSAGE)
    with pytest.raises(InvalidArgument, match=r"sys\.TimeToLive is not a system property"):
        correlation({"sys.TimeToLive": "1"})
    with pytest.raises(InvalidArgument, match="must name a property"):
        correlation({})


def test_fields_of_the_body_can_be_asked_for_by_who_tries_a_rule() -> None:
    message = RuleMessage({"n": "1"}, body={"order": {"in": 3, "open": True, "lines": []}})
    text = "body.order.in > n AND body.order.open = TRUE AND body.order.lines IS NULL AND NOT EXISTS(body.gone.x)"
    assert compile_filter(parse_filter(text, body=True))(message, new_id) is True
    assert compile_filter(parse_filter("body.order.in > 2", body=True))(RuleMessage({}), new_id) is None


def test_names_are_equal_but_for_their_case() -> None:
    """No letter beyond ASCII is equal to one of ASCII, and of several spellings always the same one counts."""
    assert truth("k = 1", RuleMessage({"\u212a": "1"})) is None  # the sign of kelvin, whose small letter is k
    assert truth("N = 1", RuleMessage({"n": "1", "N": "2"})) is False
    for attributes in ({"aB": "1", "Ab": "2"}, {"Ab": "2", "aB": "1"}):
        assert truth("ab = 2", RuleMessage(attributes)) is True
        assert changed("SET ab = 3", attributes) == {"Ab": "3"}


def test_explain_says_what_each_part_came_to() -> None:
    text = "n = 4 OR missing = 1 AND 1/(n-3) = 1"
    found = {part.text: part.result for part in explain(text, parse_filter(text), MESSAGE, new_id)}
    fails = "fails: 1 / 0 divides by zero"
    assert found == {
        text: fails, "n = 4": "false", "n": "'3'", "missing = 1 AND 1/(n-3) = 1": fails, "missing = 1": "unknown",
        "missing": "not there", "1/(n-3) = 1": fails, "1/(n-3)": fails, "n-3": "0",
    }  # fmt: skip


def test_the_page_has_the_table_of_properties() -> None:
    page = (Path(__file__).parents[4] / "docs" / "service-bus.md").read_text()
    rows = re.findall(r"^\| `sys\.(\w+)` \| (.*) \| (yes|no) \|$", page, re.MULTILINE)
    older = {one.name: f"; without one, `sys.{one.older}`" for one in TABLE.values() if one.older}
    table = [
        (one.name, one.origin.value + older.get(one.name, ""), "yes" if one.settable else "no")
        for one in TABLE.values()
    ]
    assert rows == table


# -- any filter at all -------------------------------------------------------------------------------------------------


@given(st.text(max_size=60))
@settings(max_examples=examples(100), deadline=None)
def test_no_text_does_more_than_be_refused(text: str) -> None:
    fuzz.tried(text)


def test_what_is_nearly_a_rule_is_one_or_is_refused() -> None:
    texts, rules, _ = fuzz.run(300, seed=1)
    assert (texts, rules > 30) == (300, True)


@given(st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back_from_their_text(number: float) -> None:
    assert number_of(text_of(number)) == number


@given(st.timedeltas(timedelta(-9999), timedelta(9999)))
def test_spans_come_back_from_their_text(span: timedelta) -> None:
    assert span_of(text_of(span)) == span


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)))
def test_times_come_back_from_their_text(time: datetime) -> None:
    assert time_of(text_of(time.replace(tzinfo=UTC))) == time.replace(tzinfo=UTC)
