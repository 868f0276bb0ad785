"""SQL rules as Spark SQL: what is refused, how texts grow, and names in every case. What they mean: `tests/spark`."""

from __future__ import annotations

import re

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.rules.spark_rules import SparkRules
from syncpoint.base.rules.spark_values import spellings, text_literal
from syncpoint.base.rules.sql_parser import parse_action, parse_filter
from syncpoint.base.rules.system_properties import folded

pytestmark = pytest.mark.shows("spark-rules")


def size(text: str) -> int:
    rules = SparkRules()
    condition = rules.filter(parse_filter(text))
    return len(condition.selects) + sum(len(one) for step in rules.steps for one in step.values())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("p(a) = 1", "the name in property"),
        ("a LIKE 'x' ESCAPE b", "the escape character"),
        ("a LIKE b ESCAPE '!'", "the pattern of LIKE with ESCAPE"),
        ("a = @gone", "@gone has no value"),
    ],
)
def test_what_spark_cannot_say_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        SparkRules().filter(parse_filter(text))


def test_what_an_action_may_not_set_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"sys\.SessionId is the ordering key"):
        SparkRules().action(parse_action("SET sys.SessionId = 'x'"))


@pytest.mark.parametrize("action", ["SET [sys.ForwardHops] = '0'", "REMOVE [SYS.deadlettercount]"])
def test_an_action_changes_no_count_of_the_server(action: str) -> None:
    with pytest.raises(InvalidArgument, match="written by the server"):
        SparkRules().action(parse_action(action))


def test_texts_grow_with_the_rule_and_not_with_its_depth() -> None:
    few, many = (size(f"{' * '.join(['a'] * count)} > 5") for count in (8, 32))
    assert many < 5 * few
    few, many = (size(" AND ".join(["a / 2 > 5"] * count)) for count in (8, 32))
    assert many < 5 * few


@pytest.mark.parametrize("name", ["kind", "GRÖßE", "k", "Å", "σς", "a.b [c]", "数"])
def test_every_spelling_of_a_name_and_no_other(name: str) -> None:
    pattern = spellings(name)
    other = [name.swapcase(), name.lower(), name.upper(), name.title(), name + "x", "\u212a", "\u212b", "ΣΣ", "kınd"]
    for one in (name, *other):
        fits = re.fullmatch(pattern, one) is not None if pattern else one == name
        assert fits == (folded(one) == folded(name)), one


@pytest.mark.parametrize("text", ["o'hara", "${spark.home}", "a\nb", "\x00", "ü"])
def test_texts_in_which_sparks_parser_would_see_more_are_written_as_bytes(text: str) -> None:
    assert text_literal(text) == f"CAST(X'{text.encode().hex()}' AS STRING)"
    assert text_literal("plain \\d {1}") == "r'plain \\d {1}'"
