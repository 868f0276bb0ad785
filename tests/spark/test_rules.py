"""SQL rules on Spark mean what they mean on the server: the vectors written by hand, random rules on random messages,
and a flow's rules, whose plan holds no Python. A million messages: `make rules-spark`.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.rules.spark_rules import SparkRules
from syncpoint.base.rules.spark_values import double_text
from syncpoint.base.rules.sql_parser import parse_filter
from syncpoint.base.rules.system_properties import RuleMessage
from syncpoint.programs.federation.flow_rules import FlowRule, applied
from tests.kit import older_names as names
from tests.spark import rules_kit as kit
from tests.spark.federation_kit import awaited, running_job, sites
from tests.unit.base.rules import test_sql_rules as rule_tests
from tests.unit.base.rules import test_vectors as vectors

pytestmark = pytest.mark.shows("spark-rules")

REFUSED = {"name LIKE missing", "s LIKE missing", "'a' + 'bc' LIKE s", "p(missing) = 1", "s LIKE 'a' ESCAPE s"}


def marked(module: Any) -> Iterator[str]:
    """The filters that stand in the parameters of a module's tests."""
    for value in vars(module).values():
        for mark in getattr(value, "pytestmark", ()):
            names = mark.args[0] if mark.name == "parametrize" else ()
            if "text" not in (names if isinstance(names, tuple) else (names,)) and "sql" not in names:
                continue
            for one in mark.args[1]:
                text = one[0] if isinstance(one, tuple) else one
                yield text


@pytest.fixture
def interpreted(spark: Any) -> Iterator[None]:
    """Spark does not compile plans, which for many short rules takes longer than to interpret them."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    yield
    spark.conf.unset("spark.sql.codegen.wholeStage")
    spark.conf.unset("spark.sql.codegen.factoryMode")


def parsed(texts: Iterator[str] | list[str], **parameters: Any) -> tuple[list[str], list[str]]:
    """(what Spark can say, what it refuses) of those that are filters."""
    said, refused = [], []
    for text in dict.fromkeys(texts):
        try:
            node = parse_filter(text)
        except InvalidArgument:
            continue
        try:
            SparkRules().filter(node, parameters)
        except InvalidArgument as error:
            if "on Spark" in str(error):
                refused.append(text)
            continue
        said.append(text)
    return said, refused


@pytest.mark.usefixtures("interpreted")
def test_the_vectors_written_by_hand(spark: Any) -> None:
    given = {"three": 3, "n": 7}
    texts = [*rule_tests.TRUE, *rule_tests.FALSE, *rule_tests.UNKNOWN, *marked(vectors), *marked(rule_tests)]
    said, refused = parsed(texts, **given)
    assert len(said) > 220
    assert set(refused) <= REFUSED | {"name LIKE 'x' ESCAPE name"}
    held = [rule_tests.MESSAGE, vectors.MESSAGE, RuleMessage({}), RuleMessage({"replicated": "1"}, "7")]
    made = [
        RuleMessage(one.attributes, one.message_id, one.ordering_key, one.publish_time_ns, at)
        for at, one in enumerate(held)
    ]
    for at in range(0, len(said), 90):
        part = said[at : at + 90]
        outcomes, _, plan = kit.on_spark(spark, made, part, **given)
        assert "Python" not in plan
        for text, found in zip(part, outcomes, strict=True):
            assert found == kit.by_server_filter(text, made, **given), text


@pytest.mark.usefixtures("interpreted")
def test_a_property_under_two_names(spark: Any) -> None:
    """The vectors are judged for the server by unit tests; here what Spark makes of the same."""
    held = [*names.HELD, *(before for _, before, _ in names.LEFT)]
    made = [RuleMessage(one, offset=number) for number, one in enumerate(held)]
    wanted = [text.replace("{}", names.NAMES[0]) for text in names.SELECTED]
    acted = [text.replace("{}", names.NAMES[0]) for text in dict.fromkeys(text for text, _, _ in names.LEFT)]
    assert kit.differences(spark, made, wanted, acted) == []


def test_random_rules_on_random_messages(spark: Any) -> None:
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    rng = random.Random(20)
    for _ in range(2):
        made = kit.messages(rng, 25_000)
        wanted = kit.sayable(kit.filters(rng, 4))
        acted = kit.sayable(kit.actions(rng, 1), action=True)
        assert kit.differences(spark, made, wanted, acted) == []


def test_doubles_are_written_as_the_server_writes_them(spark: Any) -> None:
    rng = random.Random(7)
    doubles = [
        0.0,
        -0.0,
        5e-324,
        5e-323,
        1e-322,
        1e-4,
        9.999e-5,
        1e16,
        2e23,
        9999999999999998.0,
        1.7976931348623157e308,
    ]
    while len(doubles) < 20_000:
        (anything,) = struct.unpack("d", rng.randbytes(8))
        doubles += [anything] if isfinite(anything) else []
        doubles += [2.0**63 - rng.random() * 1e9, rng.uniform(-1e19, 1e19), round(rng.random() * 1000, 3)]
    rows = spark.createDataFrame([(one,) for one in doubles], "v double").selectExpr("v", f"{double_text('v')} AS text")
    assert [row for row in rows.collect() if row.text != repr(row.v)] == []


RULES = (
    FlowRule("kind = 'order' AND amount / parts >= 10", "SET each = amount / parts; REMOVE parts"),
    FlowRule("Kind LIKE 'ref_n%'", "SET kind = 'r-' + kind"),
    FlowRule("sys.Label = @label", "", {"label": "all"}),
)
MESSAGES = [
    RuleMessage({"kind": "order", "amount": "25", "parts": "2"}, "m0"),
    RuleMessage({"kind": "order", "amount": "25", "parts": "0"}, "m1"),
    RuleMessage({"KIND": "refund"}, "m2", offset=1),
    RuleMessage({"kind": "other"}, "m3", offset=2),
    RuleMessage({"kind": "other", "sys.Subject": "all", "parts": "0", "amount": "1"}, "m4", offset=3),
]


def through(spark: Any, made: list[RuleMessage], on_failure: str) -> tuple[dict[str, dict[str, str]], str]:
    frame = applied(spark.createDataFrame(kit.table(made)), RULES, on_failure, "tasks.x.rules")
    return {row.message_id: row.attributes for row in frame.collect()}, frame._jdf.queryExecution().toString()


def test_the_first_rule_of_a_flow_that_selects_a_message_decides(spark: Any) -> None:
    found, plan = through(spark, MESSAGES, "drop")
    assert found == {
        "m0": {"kind": "order", "amount": "25", "each": "12"},
        "m2": {"KIND": "r-refund"},
        "m4": MESSAGES[4].attributes,
    }
    assert "Python" not in plan
    assert "InArrow" not in plan
    assert through(spark, MESSAGES[2:], "stop")[0].keys() == {"m2", "m4"}
    with pytest.raises(Exception, match="the filter of rule 0 fails on message m1"):
        through(spark, MESSAGES[:2], "stop")


def test_a_flow_with_rules_copies_what_they_select_and_stops_where_one_fails(spark: Any, tmp_path: Path) -> None:
    rules = [{key: value for key, value in asdict(one).items() if value} for one in RULES]
    with sites("ab", tmp_path) as pair:
        topic = pair["a"].topic("ruled")
        ends = {"from": {"cluster": "a", "topic": topic}, "to": {"cluster": "b"}}
        content = {
            "version": 1,
            "clusters": {name: {"endpoint": site.server.endpoint} for name, site in pair.items()},
            "tasks": {"copy": {"pattern": "replicate", **ends, "rules": rules}},
        }

        def publish(message: RuleMessage) -> None:
            pair["a"].api.publish({"topic": topic, "messages": [{"data": b"x", "attributes": message.attributes}]})

        with running_job(spark, content, tmp_path) as running:
            for at in (0, 2, 3, 4):
                publish(MESSAGES[at])
            awaited(lambda: topic in pair["b"].topics() and len(pair["b"].log(topic)) >= 3, "what the rules select")
            publish(MESSAGES[1])
            awaited(lambda: running.state.flows()["copy.ruled"].error, "a rule fails")
            assert "the filter of rule 0 fails on message" in running.state.flows()["copy.ruled"].error
        assert [one.attributes for one in pair["b"].log(topic)] == [
            {"kind": "order", "amount": "25", "each": "12"},
            {"KIND": "r-refund"},
            MESSAGES[4].attributes,
        ]
