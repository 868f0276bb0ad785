"""What `syncpoint analyze` prints of what analyses find, and how it ends."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from syncpoint.programs.analytics import back_test, reconciliation, stored_messages, topic_profile
from syncpoint.programs.analytics.back_test import BackTest, JudgedBucket, Selected
from syncpoint.programs.analytics.json_drift import JsonDrift, JsonField
from syncpoint.programs.analytics.reconciliation import Anomaly, Reconciliation
from syncpoint.programs.analytics.rule_test import RuleCopy, RuleOutcome
from syncpoint.programs.analytics.topic_profile import Attribute, Bucket, Keys, Sizes, TopicProfile, ValueCount
from syncpoint.programs.cli import analyze
from syncpoint.programs.cli.main import cli
from syncpoint.programs.cli.settings import Settings
from syncpoint.programs.federation.servers import Servers
from syncpoint.wire.protobuf.messages import admin, pubsub

TIME = datetime(2026, 11, 28, 12, 0, 0, tzinfo=UTC)
TOPIC = "projects/p/topics/orders"
PROFILE = TopicProfile(
    TOPIC,
    200,
    TIME,
    TIME,
    Sizes(2_000_000, 1, 5, 9, 10, 12),
    Keys(100, 7, (ValueCount("busy", 50),)),
    (Attribute("kind", 200, 2, 6, (ValueCount("order", 150),)),),
    (),
    (Bucket(TIME, 200, 2_000_000),),
    1.0,
    JsonDrift(200, 100, (JsonField("vat", 50, {"number": 50}, 1, 2, ("appeared",)),), 0),
)
TESTED = BackTest(
    TOPIC, 'attributes.kind = "order"', "", Selected(200, 10), Selected(50, 5, ("1-0",)), Selected(150, 5), None, None,
    (JudgedBucket(TIME, 200, 50),),
)  # fmt: skip


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyze, "local_spark", lambda name, master: contextlib.nullcontext())
    monkeypatch.setattr(stored_messages, "stored_topic", lambda server, topic: None)
    monkeypatch.setattr(topic_profile, "topic_profile", lambda *_, **__: PROFILE)
    monkeypatch.setattr(back_test, "back_test", lambda *_, **__: TESTED)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["--project", "p", *arguments])


def test_a_profile_as_tables_and_as_json() -> None:
    text = run("analyze", "profile", "orders").output
    for expected in ("200", "2.0 MB", "p99 10", "busy", "25.0%", "order (75.0%)", "vat", "appeared"):
        assert expected in text
    found = json.loads(run("--format", "json", "analyze", "profile", "orders").stdout)
    assert found["first"] == "2026-11-28T12:00:00Z"
    assert found["payloads"]["fields"][0]["path"] == "vat"


def test_a_back_test_leaves_out_what_it_was_not_compared_with() -> None:
    text = run("analyze", "backtest", "orders", "--filter", TESTED.filter).stdout
    assert "25.0%" in text
    assert "gained" not in text


def test_a_plot_of_an_unknown_kind_is_refused_before_any_work(tmp_path: Path) -> None:
    result = run("analyze", "profile", "orders", "--plot", str(tmp_path / "profile.bmp"))
    assert result.exit_code == 1
    assert ".svg, .png or .pdf" in result.output
    assert not (tmp_path / "profile.bmp").exists()


def test_a_plot_is_drawn(tmp_path: Path) -> None:
    assert run("analyze", "profile", "orders", "--plot", str(tmp_path / "profile.png")).exit_code == 0
    assert (tmp_path / "profile.png").read_bytes().startswith(b"\x89PNG")


STREAM = """streams: {lake: {kafka: {bootstrap: 'k:1'}}}
tasks:
  back: {pattern: queue-to-stream, from: {cluster: a, topic: projects/shop/topics/orders}, to: {stream: lake, topic: o}}
"""


def reconciled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: int, *flows: str, more: str = "") -> Result:
    file = tmp_path / "federation.yaml"
    text = (
        "version: 1\nclusters: {a: {endpoint: 'a:1'}, b: {endpoint: 'b:1'}}\nnamespaces: {shop: {clusters: [a, b]}}\n"
    )
    file.write_text(text + more)
    anomalies = tuple(Anomaly("missing", f"id-{number}", "shop.a-b.orders") for number in range(missing))
    counts = dict.fromkeys(reconciliation.KINDS, 0) | {"missing": missing}

    def work(spark: Any, flow: Any, on_progress: Any) -> Reconciliation:
        return Reconciliation(flow.name, 10, 10 - missing, 0, 0, 0, 0, counts, anomalies)

    monkeypatch.setattr(reconciliation, "reconcile", work)
    monkeypatch.setattr(Servers, "topics", lambda self, cluster, project: ["projects/shop/topics/orders"])
    return run("analyze", "reconcile", str(file), *flows)


def test_a_clean_reconciliation_ends_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = reconciled(monkeypatch, tmp_path, 0)
    assert result.exit_code == 0, result.output
    assert "shop.a-b.orders" in result.output
    assert "shop.b-a.orders" in result.output


def test_anomalies_are_named_and_end_with_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = reconciled(monkeypatch, tmp_path, 2, "shop.a-b.orders")
    assert result.exit_code == 1
    assert "id-1" in result.output
    assert "1 flow of 1 did not copy exactly" in result.output


def test_an_unknown_flow_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = reconciled(monkeypatch, tmp_path, 0, "shop.a-b.none")
    assert result.exit_code == 3
    assert "federation plan" in result.output


def test_a_flow_that_cannot_be_compared_is_said_to_be_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = reconciled(monkeypatch, tmp_path, 0, more=STREAM)
    assert result.exit_code == 0, result.output
    assert "Not compared: back.orders has a stream at one end" in result.output
    assert "shop.a-b.orders" in result.stdout
    result = reconciled(monkeypatch, tmp_path, 0, "back.orders", more=STREAM)
    assert result.exit_code == 1
    assert "back.orders has a stream at one end" in result.output


def test_a_back_test_of_rules_shows_what_they_would_have_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    copy = RuleCopy("1-0", {"a": "5", "c": "x"}, {"a": "5", "b": "2"})
    made = RuleOutcome("rule 1", "a > 1", "SET b = 2", 50, 3, (copy,))

    def tested(*args: Any, **more: Any) -> BackTest:
        asked.update(more)
        return replace(TESTED, filter="", rules=(made,))

    monkeypatch.setattr(back_test, "back_test", tested)
    text = run("analyze", "backtest", "orders", "--sql", "a > 1", "--action", "SET b = 2", "--sql", "a = 0").stdout
    assert [(one.name, one.sql, one.action) for one in asked["rules"]] == [
        ("rule 1", "a > 1", "SET b = 2"), ("rule 2", "a = 0", ""),
    ]  # fmt: skip
    assert "b=2, c removed" in text
    words = ["--correlation", "kind=order,sys.Subject=a=b", "--action", "", "--action", "SET b = 2"]
    said = run("analyze", "backtest", "orders", "--sql", "a = 0", *words).output
    assert [(one.name, one.sql, dict(one.correlation), one.action) for one in asked["rules"]] == [
        ("rule 1", "a = 0", {}, ""), ("rule 2", "", {"kind": "order", "sys.Subject": "a=b"}, "SET b = 2"),
    ]  # fmt: skip
    assert "a = 0 or kind is 'order' AND sys.Subject is 'a=b'" in said
    assert run("analyze", "backtest", "orders").exit_code == 2
    refused = run("analyze", "backtest", "orders", "--correlation", "sys.TimeToLive=1")
    assert "INVALID_ARGUMENT: rule: sys.TimeToLive is not a" in str(refused.exception) + refused.output
    assert run("analyze", "backtest", "orders", "--filter", "x", "--action", "SET b = 2").exit_code == 2
    refused = run("analyze", "backtest", "orders", "--sql", "a >")
    assert refused.exit_code != 0


def test_a_back_test_is_compared_with_all_rules_of_a_subscription(monkeypatch: pytest.MonkeyPatch, server: Any) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(back_test, "back_test", lambda *args, **more: asked.update(more) or TESTED)
    monkeypatch.setattr(Settings, "client", lambda self, **more: server)
    server.answers["Subscriber.GetSubscription"] = pubsub.Subscription(filter="attributes:a")
    rules = [
        admin.Rule(name="eu", sql="region = @r", parameters={"r": {"text": "eu"}}),
        admin.Rule(name="equal", correlation={"properties": {"kind": "order"}}, action="SET b = 1"),
    ]
    server.answers["Admin.ListRules"] = admin.ListRulesResponse(rules=rules)
    words = ["analyze", "backtest", "orders", "--filter", "attributes:b", "--against", "billing"]
    assert run(*words).exit_code == 0
    assert asked["against"] == "attributes:a"
    assert [(one.name, one.sql, dict(one.parameters), dict(one.correlation)) for one in asked["against_rules"]] == [
        ("eu", "region = @r", {"r": "eu"}, {}), ("equal", "", {}, {"kind": "order"}),
    ]  # fmt: skip
    for only, wanted in (([admin.Rule(name="$Default", sql="1=1")], []), ([], ["1=0"])):
        server.answers["Admin.ListRules"] = admin.ListRulesResponse(rules=only)
        assert run(*words).exit_code == 0
        assert [one.sql for one in asked["against_rules"]] == wanted
