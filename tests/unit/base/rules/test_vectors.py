"""What Service Bus's pages say of filters and actions, as vectors: one section each. The rest: `test_sql_rules`."""

from __future__ import annotations

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.rules.sql_compile import compile_action, compile_filter
from syncpoint.base.rules.sql_parser import parse_action, parse_filter
from syncpoint.base.rules.sql_values import RuleError, Value
from syncpoint.base.rules.system_properties import RuleMessage

MESSAGE = RuleMessage(
    {"i": "7", "d": "2.5", "s": "abc", "b": "true", "at": "2026-03-01T00:00:00Z", "span": "1.00:00:00", "a b": "x",
     'say "hi"': "y", "größe": "1", "数": "2", "SELECT": "3", "pct": "50%_[x]"},
    message_id="9", ordering_key="k", publish_time_ns=1_772_409_600_000_000_000, offset=3,
)  # fmt: skip
T, F, U = "1=1", "1=2", "missing = 1"


def truth(text: str, **parameters: Value) -> bool | None:
    return compile_filter(parse_filter(text), parameters)(MESSAGE, lambda number: f"id-{number}")


def changed(text: str, attributes: dict[str, str], **parameters: Value) -> dict[str, str]:
    seen = RuleMessage(attributes, "9", "k")
    return compile_action(parse_action(text), parameters)(seen, lambda number: f"id-{number}")


# -- three-valued logic ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [
        (T, T, True, True), (T, F, False, True), (T, U, None, True),
        (F, T, False, True), (F, F, False, False), (F, U, False, None),
        (U, T, None, True), (U, F, False, None), (U, U, None, None),
    ],
)  # fmt: skip
def test_and_and_or(left: str, right: str, both: bool | None, either: bool | None) -> None:
    assert (truth(f"{left} AND {right}"), truth(f"{left} OR {right}")) == (both, either)


@pytest.mark.parametrize(("text", "wanted"), [(T, False), (F, True), (U, None)])
def test_not(text: str, wanted: bool | None) -> None:
    assert truth(f"NOT {text}") is wanted
    assert truth(f"NOT NOT ({text})") is (None if wanted is None else not wanted)


@pytest.mark.parametrize(
    "text",
    [
        "missing + 1 = 1", "1 - missing = 1", "missing * 0 = 0", "0 / missing = 0", "missing % 2 = 0", "-missing = 0",
        "+missing = 0", "missing = 1", "missing <> 1", "missing != 1", "missing < 1", "missing <= 1", "missing > 1",
        "missing >= 1", "missing = missing", "missing LIKE '%'", "missing NOT LIKE '%'", "s LIKE missing",
        "missing IN (1, NULL)", "missing NOT IN (1)", "NULL = 1", "NULL <> NULL", "NULL IN (NULL)", "p('missing') = 1",
        "p(missing) = 1",
    ],
)  # fmt: skip
def test_what_is_unknown_makes_unknown(text: str) -> None:
    assert truth(text) is None


def test_null_and_missing_are_asked_for() -> None:
    assert [truth(f"{name} IS NULL") for name in ("missing", "s")] == [True, False]
    assert [truth(f"{name} IS NOT NULL") for name in ("missing", "s")] == [False, True]
    assert [truth(f"EXISTS({name})") for name in ("missing", "s", "user.s", "sys.To")] == [False, True, True, False]
    assert truth("missing IS NULL AND missing <> 1") is None


# -- constants, names, parameters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "i = 7", "i = 7.0", "i = 70e-1", "i = 7.0E0", "d = 2.5", "d > 2", "i / 2 = 3", "i / 2.0 = 3.5", "i * d = 17.5",
        "i + d * 1 = 9.5", "i % 4 = 3", "-i / 2 = -3", "1 + 0.5 = 1.5", "9223372036854775807 > 9223372036854775806",
        "-9223372036854775807 - 1 < 0", "b = true", "b = TRUE", "s = 'abc'", "s <> 'ABC'", "'a' < 'b'", "'B' < 'a'",
        "'10' < '9'", "s > 'abb'", "s <= 'abc'", "'it''s' = 'it''s'", "TRUE <> FALSE",
    ],
)  # fmt: skip
def test_constants_and_promotion(text: str) -> None:
    assert truth(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "I = 7", "user.i = 7", "USER.I = 7", "[i] = 7", '"i" = 7', "[a b] = 'x'", '"a b" = \'x\'',
        '"say ""hi""" = \'y\'', "[say \"hi\"] = 'y'", "größe = 1", "数 = 2", "[SELECT] = 3", "[select] = 3",
        "property('i') = 7", "P('I') = 7", "p('a' + ' ' + 'b') = 'x'", "sys.messageid = '9'", "SYS.SessionId = 'k'",
        "sys.PartitionKey = 'k'", "sys.SequenceNumber = 3", "sys.Label IS NULL", "sys.Subject IS NULL",
    ],
)  # fmt: skip
def test_names(text: str) -> None:
    assert truth(text) is True


def test_two_texts_are_joined_and_a_time_taken_from_a_time_leaves_a_span() -> None:
    assert truth("i + d = '72.5'") is True
    assert truth("at - due = '1.00:00:00' AND at - span = due") is None
    message = RuleMessage({"at": "2026-03-02", "due": "2026-03-01T00:00:00Z", "span": "1.00:00:00"})
    assert compile_filter(parse_filter("at - due = span AND at - span = due AND due - at < '0:0'"), {})(message, str)


@pytest.mark.parametrize("word", ["and", "OR", "Not", "in", "LIKE", "escape", "is", "EXISTS"])
def test_reserved_words_need_brackets_or_quotes(word: str) -> None:
    with pytest.raises(InvalidArgument):
        truth(f"{word} = 1")
    assert truth(f"[{word}] IS NULL") is True
    assert truth(f'"{word}" IS NULL') is True


def test_parameters_of_each_kind() -> None:
    assert truth("i = @n AND d = @f AND s = @t AND b = @yes AND i < @big", n=7, f=2.5, t="abc", yes=True, big=1 << 62)
    assert truth("at - @from = @span AND at > @from", **{"from": "2026-02-28T00:00:00Z", "span": "1.00:00:00"})
    assert truth("i IN (@a, @b)", a=1, b=7) is True
    assert truth("i = @nothing", nothing=None) is None
    assert changed("SET v = @n + 1; SET t = @t", {}, n=1, t="x") == {"v": "2", "t": "x"}
    with pytest.raises(InvalidArgument, match="@gone"):
        truth("i = @gone")


def test_times_and_spans() -> None:
    assert truth("at - '2026-02-28T00:00:00Z' = span") is True
    assert truth("sys.EnqueuedTimeUtc - at > '0:59:59'") is True
    assert truth("at - '2026-02-28T00:00:00Z' > '23:59:59'") is True, "a text beside a span is read as one"
    assert truth("span > '23:59:59'") is True, "one day and no hours, beside a span that the rule names"
    assert truth("at = span") is False


# -- LIKE, functions, failures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("s LIKE 'abc'", True), ("s LIKE 'ABC'", False), ("s LIKE 'a%'", True), ("s LIKE '_b_'", True),
        ("s LIKE '____'", False), ("s LIKE '%%%'", True), ("s LIKE ''", False),
        ("pct LIKE '50!%!_[x]' ESCAPE '!'", True),
        ("s LIKE 'a!%' ESCAPE '!'", False), ("pct LIKE '50\\%%' ESCAPE '\\'", True), ("pct LIKE '%[x]'", True),
        ("s LIKE 'a' + '%'", True), ("'a' + 'bc' LIKE s", True), ("s NOT LIKE 'b%'", True),
    ],
)  # fmt: skip
def test_like(text: str, wanted: bool) -> None:
    assert truth(text) is wanted


def test_newid_is_another_one_each_time() -> None:
    assert truth("newid() <> newid() AND newid() LIKE 'id-_'") is True
    assert changed("SET a = newid(); SET b = newid()", {}) == {"a": "id-1", "b": "id-2"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("i / 0 = 1", "divides by zero"), ("i % 0 = 1", "divides by zero"), ("d / 0 = 1", "divides by zero"),
        ("9223372036854775807 + 1 = 0", "too large"), ("9223372036854775807 * 2 = 0", "too large"),
        ("(-9223372036854775807 - 1) / -1 = 0", "too large"), ("-(-9223372036854775807 - 1) = 0", "too large"),
        ("1e308 + 1e308 = 0", "too large"), ("s LIKE 'a!' ESCAPE '!'", "escape"),
        ("s LIKE 'a' ESCAPE s", "one character"),
    ],
)  # fmt: skip
def test_what_fails_on_a_message(text: str, why: str) -> None:
    with pytest.raises(RuleError, match=why):
        truth(text)


# -- actions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("SET quantity = quantity / 2; REMOVE priority; SET sys.CorrelationId = 'low';",
         {"quantity": "9", "priority": "high"}, {"quantity": "4", "sys.CorrelationId": "low"}),
        ("SET a = 1, REMOVE b", {"b": "2"}, {"a": "1"}),
        ("set sys.TimeToLive='0:2:0'", {}, {"sys.TimeToLive": "0:2:0"}),
        ("set replicated = 1", {}, {"replicated": "1"}),
        ("SET [a b] = 1; SET \"c d\" = 2; SET größe = 3", {}, {"a b": "1", "c d": "2", "größe": "3"}),
        ("SET a = missing + 1", {"a": "x"}, {}),
        ("REMOVE sys.To; SET sys.ReplyTo = 'r'", {"sys.To": "t"}, {"sys.ReplyTo": "r"}),
        ("SET sys.MessageId = newid()", {}, {"sys.MessageId": "id-1"}),
    ],
)  # fmt: skip
def test_actions(text: str, before: dict[str, str], after: dict[str, str]) -> None:
    assert changed(text, before) == after


def test_both_spellings_of_the_rule_against_loops() -> None:
    """`replicated <> 1` alone passes over what was never replicated."""
    for text in ("replicated IS NULL OR replicated <> 1", "NOT EXISTS(replicated) OR replicated != 1"):
        parsed = compile_filter(parse_filter(text), {})
        assert [parsed(RuleMessage(one), str) for one in ({}, {"replicated": "1"}, {"Replicated": "0"})] == [
            True, False, True,
        ]  # fmt: skip
    assert compile_filter(parse_filter("replicated <> 1"), {})(RuleMessage({}), str) is None


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("age > '0:2:0'", True), ("age = '0:10'", True), ("age <> '0:10:0'", False), ("'9:00' > age", True),
        ("age IN ('0:10:00', 'x')", True), ("day < '2026-03-10'", True),
        ("day = '2026-03-09T00:00:00+00:00'", True), ("'2026-03-09' = day", True), ("name > '0:2:0'", True),
        ("name = '0:2:0'", False), ("age > name", False), ("missing > '0:2:0'", None), ("n = '0:2:0'", False),
        ("age >= @span", False), ("'0:2' = '00:02:00'", True), ("age NOT IN ('0:10:00')", False),
    ],
)  # fmt: skip
def test_a_text_of_the_rule_that_is_a_time_or_span_is_compared_as_one_with_texts_that_are(
    sql: str, expected: bool | None
) -> None:
    """`@span` is a parameter, whose type is said: a text."""
    message = RuleMessage({"age": "0:10:0", "day": "2026-03-09", "name": "abc", "n": "7"})
    node = parse_filter(sql)
    assert compile_filter(node, {"span": "0:2:0"})(message, str) is expected
