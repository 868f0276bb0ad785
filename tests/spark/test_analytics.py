"""Analyses of topics: what they count, against what was published; and copies that are not as they should be, named."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.errors import AnalysisException

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.rules.system_properties import RuleMessage
from syncpoint.base.rules.trial import try_rule
from syncpoint.catalog.metadata.entity_options import MessageRule
from syncpoint.programs.analytics.back_test import back_test
from syncpoint.programs.analytics.letter_table import VIEW_COLUMNS, letter_table
from syncpoint.programs.analytics.plots import PLOTS
from syncpoint.programs.analytics.reconciliation import reconcile
from syncpoint.programs.analytics.rule_test import CandidateRule, check_rules
from syncpoint.programs.analytics.stored_messages import stored_topic
from syncpoint.programs.analytics.topic_profile import topic_profile
from syncpoint.programs.federation.flow_plan import Flow
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import FederatedCluster, Federation, parse
from tests.spark.federation_kit import PROJECT, Site, awaited, name_of, running_job, sites

pytestmark = pytest.mark.shows("analytics")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Site]]:
    with sites("ab", tmp_path_factory.mktemp("analytics")) as made:
        yield made


class Progress:
    """What was reported last."""

    def __init__(self) -> None:
        self.done = self.total = 0

    def __call__(self, done: int, total: int) -> None:
        self.done, self.total = done, total


def server(site: Site) -> FederatedCluster:
    return FederatedCluster("server", site.server.endpoint)


def orders(site: Site, topic: str) -> str:
    """300 orders: half of key `busy`; the field `vat` comes with number 200, `amount` is a text from there on."""
    name = site.topic(topic)
    for number in range(300):
        body: dict[str, Any] = {"id": number, "amount": number if number < 200 else str(number)}
        if number >= 200:
            body["vat"] = 19
        attributes = {"kind": "refund" if number % 3 == 0 else "order", "n": str(number)}
        key = "busy" if number % 2 else f"k{number % 10}"
        message = {"data": json.dumps(body).encode(), "attributes": attributes, "ordering_key": key}
        site.api.publish({"topic": name, "messages": [message]})
    return name


@pytest.fixture(scope="module")
def topic(pair: dict[str, Site]) -> str:
    return orders(pair["a"], "profiled")


def test_a_profile_counts_what_was_published(spark: Any, pair: dict[str, Site], topic: str, tmp_path: Path) -> None:
    progress, stored = Progress(), stored_topic(server(pair["a"]), topic)
    found = topic_profile(spark, stored, progress)
    published = pair["a"].log(topic)
    assert found.messages == stored.messages == 300
    sizes = sorted(len(one.data) for one in published)
    assert (found.sizes.total, found.sizes.least, found.sizes.most) == (sum(sizes), sizes[0], sizes[-1])
    assert abs(found.sizes.p50 - sizes[150]) <= 1
    assert (found.keys.messages, found.keys.top[0].value, found.keys.top[0].messages) == (300, "busy", 150)
    assert found.keys.distinct == 6
    attributes = {one.name: one for one in found.attributes}
    assert (attributes["n"].messages, attributes["n"].distinct, attributes["n"].longest) == (300, 300, 3)
    kinds = attributes["kind"]
    assert (kinds.messages, kinds.distinct) == (300, 2)
    assert [(top.value, top.messages) for top in kinds.top] == [("order", 200), ("refund", 100)]
    assert sum(one.messages for one in found.buckets) == 300
    assert sum(one.bytes for one in found.buckets) == found.sizes.total
    fields = {one.path: one for one in found.payloads.fields}
    assert (found.payloads.objects, fields["id"].messages, fields["vat"].messages) == (300, 300, 100)
    assert fields["amount"].changes == ("is number and string",)
    assert fields["vat"].changes == ("appeared",)
    assert progress.done == progress.total > 0
    PLOTS["profile"](found, tmp_path / "profile.svg")
    assert "<svg" in (tmp_path / "profile.svg").read_text(encoding="utf-8")


def test_a_profile_of_an_empty_topic(spark: Any, pair: dict[str, Site]) -> None:
    found = topic_profile(spark, stored_topic(server(pair["a"]), pair["a"].topic("empty")), Progress())
    assert (found.messages, found.first, found.buckets, found.attributes) == (0, None, (), ())


def test_a_back_test_agrees_with_what_a_subscription_receives(
    spark: Any, pair: dict[str, Site], topic: str, tmp_path: Path
) -> None:
    stored = stored_topic(server(pair["a"]), topic)
    expression, other = 'attributes.kind = "refund"', 'hasPrefix(attributes.n, "1")'
    found = back_test(spark, stored, expression, Progress(), against=other)
    published = pair["a"].log(topic)
    chosen = [one.message_id for one in published if one.attributes["kind"] == "refund"]
    ones = [one.message_id for one in published if one.attributes["n"].startswith("1")]
    assert (found.all.messages, found.selected.messages, found.rejected.messages) == (300, len(chosen), 200)
    assert list(found.selected.samples) == chosen[:10]
    assert found.gained is not None
    assert found.lost is not None
    assert found.gained.messages == len(set(chosen) - set(ones))
    assert found.lost.messages == len(set(ones) - set(chosen))
    assert set(found.lost.samples) <= set(ones) - set(chosen)
    assert found.all.bytes == found.selected.bytes + found.rejected.bytes
    assert [sum(one.messages for one in found.buckets), sum(one.selected for one in found.buckets)] == [300, 100]
    PLOTS["backtest"](found, tmp_path / "backtest.png")
    assert (tmp_path / "backtest.png").read_bytes().startswith(b"\x89PNG")


def test_a_back_test_of_rules_agrees_with_what_a_subscription_with_them_receives(
    spark: Any, pair: dict[str, Site], topic: str
) -> None:
    rules = (
        CandidateRule("large", "n >= 250", "SET size = 'large'; REMOVE kind"),
        CandidateRule("odd", "100 / (n - 7) > 40 AND kind = 'order'"),
        CandidateRule("equal", correlation={"KIND": "order", "sys.SessionId": "k4", "n": "4"}),
    )
    found = back_test(spark, stored_topic(server(pair["a"]), topic), "", Progress(), rules=rules, against="",
                      against_rules=(CandidateRule("few", "n < 12"),))  # fmt: skip
    published = pair["a"].log(topic)
    # As try_rule has it, which is what the server's own trial says of a rule.
    judged = {
        rule.name: [
            try_rule(
                MessageRule(rule.name, rule.sql, tuple(rule.correlation.items()), rule.action),
                RuleMessage(dict(one.attributes), one.message_id, one.ordering_key),
            )
            for one in published
        ]
        for rule in rules
    }
    large, odd, equal = found.rules
    assert (large.selected, large.failed) == (sum(one.selected for one in judged["large"]), 0) == (50, 0)
    assert (odd.selected, odd.failed) == (sum(one.selected for one in judged["odd"]), 1)
    assert large.copies[0].before == {"kind": "order", "n": "250"}
    assert large.copies[0].after == {"n": "250", "size": "large"}
    assert not odd.copies
    assert (equal.selected, equal.failed, equal.sql) == (1, 0, "KIND is 'order' AND n is '4' AND sys.SessionId is 'k4'")
    either = [any(one.selected for one in of_rules) for of_rules in zip(*judged.values(), strict=True)]
    assert found.selected.messages == sum(either)
    few = [int(one.attributes["n"]) < 12 for one in published]
    assert found.gained is not None
    assert found.lost is not None
    assert found.gained.messages == sum(one and not other for one, other in zip(either, few, strict=True))
    assert found.lost.messages == sum(other and not one for one, other in zip(either, few, strict=True))
    with pytest.raises(InvalidArgument, match="odd: "):
        check_rules([CandidateRule("odd", "n >")])


def federation(pair: dict[str, Site], folder: Path, topic: str, **keys: Any) -> tuple[dict[str, Any], Federation]:
    content = {
        "version": 1,
        "clusters": {name: {"endpoint": site.server.endpoint} for name, site in pair.items()},
        "tasks": {
            "copied": {
                "pattern": "replicate",
                "from": {"cluster": "a", "topic": name_of(topic)},
                "to": {"cluster": "b", "topic": f"projects/{PROJECT}/topics/{topic}-copy"},
                **keys,
            }
        },
        "runtime": {"state": str(folder / "state"), "trigger": "100ms"},
    }
    return content, parse(content, folder)


def flow_of(found: Federation) -> Flow:
    with Servers() as servers:
        return servers.flows(links_of(found))[0]


def test_a_flow_that_filters_and_changes_is_reconciled_with_nothing_to_name(
    spark: Any, pair: dict[str, Site], tmp_path: Path
) -> None:
    name = orders(pair["a"], "clean")
    keys = {"where": "attributes['kind'] = 'order'", "select": {"data": "upper(CAST(data AS STRING))"}}
    content, found = federation(pair, tmp_path, "clean", **keys)
    flow = flow_of(found)
    pair["b"].topic("clean-copy")
    with running_job(spark, content, tmp_path):
        awaited(lambda: len(pair["b"].log(flow.target_topic)) == 200, "all orders are copied")
    result = reconcile(spark, flow, Progress())
    assert result.clean, result
    assert (result.expected, result.right, result.waiting) == (200, 200, 0)
    pair["a"].publish(name, range(7), kind="order")
    assert reconcile(spark, flow, Progress()).waiting == 7


def test_a_flow_with_steps_is_reconciled_topic_by_topic(spark: Any, pair: dict[str, Site], tmp_path: Path) -> None:
    """Validated: what fits goes on, what does not becomes a letter; then a copy comes to a topic that it is not for."""
    orders(pair["a"], "checked")
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    (tmp_path / "order.json").write_text(json.dumps(schema))
    invalid = pair["b"].topic("invalid")
    keys = {"pattern": "validate", "schema": {"type": "json-schema", "file": "order.json"},
            "invalid": {"topic": invalid}}  # fmt: skip
    content, found = federation(pair, tmp_path, "checked", **keys)
    flow = flow_of(found)
    pair["b"].topic("checked-copy")
    with running_job(spark, content, tmp_path):
        awaited(lambda: (len(pair["b"].log(flow.target_topic)), len(pair["b"].log(invalid))) == (200, 100), "all came")
    result = reconcile(spark, flow, Progress())
    assert result.clean, result
    assert (result.expected, result.right, result.waiting, result.gone_at_target) == (300, 300, 0, 0)
    good, letter = pair["b"].log(flow.target_topic)[0].message_id, pair["b"].log(invalid)[0].message_id
    for one, topic in ((good, invalid), (letter, invalid)):
        copies = spark.read.format("pubsub").options(endpoint=pair["a"].server.endpoint, topic=flow.source_topic).load()
        copies = copies.where(copies.message_id == one).select("message_id", "data", "attributes", "ordering_key")
        again = copies.write.format("pubsub").mode("append")
        again.options(endpoint=pair["b"].server.endpoint, topic=topic, keepIdentity="true", via="a").save()
    result = reconcile(spark, flow, Progress())
    assert {(one.kind, one.message_id) for one in result.anomalies} == {("unexpected", good), ("twice", letter)}
    assert (result.expected, result.right) == (300, 298)


def test_what_a_faulty_task_did_is_named(spark: Any, pair: dict[str, Site], tmp_path: Path) -> None:
    """A task that commits what it was to copy, and drops one message, changes one, and copies one twice."""
    name = pair["a"].topic("faulty")
    pair["a"].publish(name, range(50), keys=1)
    _, found = federation(pair, tmp_path, "faulty")
    flow = flow_of(found)
    pair["b"].topic("faulty-copy")
    published = pair["a"].log(name)
    lost, changed, twice = (published[number].message_id for number in (3, 10, 20))
    copied(spark, pair, flow, tmp_path, f"CASE WHEN message_id = '{changed}' THEN 'other' ELSE data END", lost)
    again = spark.read.format("pubsub").options(endpoint=pair["a"].server.endpoint, topic=name).load()
    again = again.where(again.message_id == twice).selectExpr(
        "message_id", "publish_time", "data", "attributes", "ordering_key"
    )
    again.write.format("pubsub").mode("append").options(
        endpoint=pair["b"].server.endpoint, topic=flow.target_topic, keepIdentity="true", via="a"
    ).save()
    result = reconcile(spark, flow, Progress())
    assert {(one.kind, one.message_id, one.hop) for one in result.anomalies} == {
        ("missing", lost, flow.name),
        ("altered", changed, flow.name),
        ("twice", twice, flow.name),
    }
    assert (result.expected, result.right) == (50, 47)


def copied(spark: Any, pair: dict[str, Site], flow: Flow, folder: Path, data: str, without: str) -> None:
    """Copy a flow's topic under its link, with other data, and without one message."""
    frame = (
        spark.readStream.format("pubsub")
        .options(endpoint=pair["a"].server.endpoint, topic=flow.source_topic)
        .load()
        .where(f"message_id <> '{without}'")
        .selectExpr(
            "message_id", "source", "offset", "publish_time", f"CAST({data} AS BINARY) AS data", "attributes",
            "ordering_key",
        )
    )  # fmt: skip
    query = (
        frame.writeStream.format("pubsub")
        .options(endpoint=pair["b"].server.endpoint, topic=flow.target_topic, link=flow.name, via="a", here="b")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    query.stop()


def test_dead_letters_are_counted_by_cause_asked_by_sql_and_written(
    spark: Any, pair: dict[str, Site], tmp_path: Path
) -> None:
    site, dead = pair["a"], pair["a"].topic("dead")
    waiting, billing = "projects/fed/subscriptions/dead-letters", "projects/fed/subscriptions/billing"
    site.api.create_subscription({"name": waiting, "topic": dead})
    for number in range(6):
        attributes = {
            "CloudPubSubDeadLetterSourceDeliveryCount": "5" if number else "often",
            "CloudPubSubDeadLetterSourceSubscription": "billing",
            "CloudPubSubDeadLetterSourceSubscriptionProject": "fed",
            "CloudPubSubDeadLetterSourceTopicPublishTime": "2026-11-28T06:00:00.123Z",
            **({"sys.DeadLetterReason": "Odd", "sys.DeadLetterErrorDescription": "why"} if number > 3 else {}),
            **({"sys.RedriveCount": "1"} if number == 5 else {}),
        }  # fmt: skip
        data = json.dumps({"id": number}).encode() if number else b"\xff\xfe"
        site.api.publish({"topic": dead, "messages": [{"data": data, "attributes": attributes}]})
    site.api.publish({"topic": dead, "messages": [{"data": b"nobody's"}]})
    ids = [one.message_id for one in site.log(dead)]

    stored = stored_topic(server(site), dead)
    found = letter_table(spark, stored, Progress(), subscription=billing, out=tmp_path / "all.csv")
    assert [(one.reason, one.letters, one.attempts, one.redriven, one.example) for one in found.causes] == [
        ("MaxDeliveryCountExceeded", 4, 5, 0, ids[0]), ("Odd", 2, 5, 1, ids[4]),
    ]  # fmt: skip
    assert {one.subscription for one in found.causes} == {billing}
    assert [(one.description, one.letters) for one in found.descriptions] == [("why", 2)]
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(VIEW_COLUMNS)
    by_id = {row["letter_id"]: row for row in rows}
    assert (by_id[ids[1]]["data"], by_id[ids[0]]["data"], by_id[ids[0]]["attempts"]) == ('{"id": 1}', "//4=", "")
    assert json.loads(by_id[ids[5]]["attributes"])["sys.RedriveCount"] == "1"

    answer = site.api.pull({"subscription": waiting, "max_messages": 10})
    gone = [one for one in answer.received_messages if one.message.message_id in ids[:2]]
    site.api.acknowledge({"subscription": waiting, "ack_ids": [one.ack_id for one in gone]})
    sql = "SELECT reason, count(*) AS n, min(original_time) AS first FROM letters GROUP BY 1 ORDER BY 1"
    found = letter_table(spark, stored, Progress(), waiting_for=waiting, sql=sql, out=tmp_path / "asked.parquet")
    assert found.letters == 7 - len(gone)
    assert found.columns == ("reason", "n", "first")
    published = datetime(2026, 11, 28, 6, 0, 0, 123_000, tzinfo=UTC)
    assert found.rows == (("", 1, None), ("MaxDeliveryCountExceeded", 4 - len(gone), published), ("Odd", 2, published))
    assert parquet.read_table(tmp_path / "asked.parquet").column("n").to_pylist() == [1, 4 - len(gone), 2]
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")], "nothing else is left"
    with pytest.raises(AnalysisException, match="no_such"):
        letter_table(spark, stored, Progress(), sql="SELECT no_such FROM letters")
