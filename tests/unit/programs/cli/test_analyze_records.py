"""What `syncpoint analyze deliveries` and `slis` print of what analyses of delivery records find, and how they end."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from syncpoint.broker.recording.record_gaps import RecordGap
from syncpoint.programs.analytics import delivery_reconciliation, delivery_slis, recorded_topic
from syncpoint.programs.analytics.delivery_reconciliation import (
    HOPS,
    DeliveryAnomaly,
    DeliveryReconciliation,
    SubscriptionDeliveries,
)
from syncpoint.programs.analytics.delivery_slis import DeliverySli, DeliverySlis
from syncpoint.programs.cli import analyze_records
from syncpoint.programs.cli.main import cli

TOPIC, SUB = "projects/p/topics/orders", "projects/p/subscriptions/billing"
CLEAN = DeliveryReconciliation(
    TOPIC, 200, 200, 3, 7, (SubscriptionDeliveries(SUB, 190, 180, 5, 5),),
    (RecordGap("node/1", 5, 9, "it ended without saying so"),), dict.fromkeys(HOPS, 0), (),
)  # fmt: skip
FOUND = replace(
    CLEAN,
    counts={**CLEAN.counts, "lost": 1, "never delivered": 2},
    anomalies=(
        DeliveryAnomaly("lost", "persist", "17-0", ""),
        DeliveryAnomaly("never delivered", "deliver", "17-1", SUB),
    ),
)
SLIS = DeliverySlis(
    TOPIC, 1000.0,
    (DeliverySli("2026-11-28", "", 200, 1.0, 2.0, 3.0, 4.0, 1.0),
     DeliverySli("2026-11-28", SUB, 190, 11.0, 12.0, 13.0, 14.0, 0.995, 3, 180, 25.5, 2)),
)  # fmt: skip


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyze_records, "local_spark", lambda name, master: contextlib.nullcontext())
    monkeypatch.setattr(recorded_topic, "recorded_topic", lambda server, topic: None)
    monkeypatch.setattr(delivery_slis, "delivery_slis", lambda *_, **__: SLIS)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["--project", "p", *arguments])


def test_a_clean_topic_ends_well_and_says_what_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_reconciliation, "reconcile_deliveries", lambda *_, **__: CLEAN)
    result = run("analyze", "deliveries", "orders")
    assert result.exit_code == 0
    assert f"Unknown: {CLEAN.gaps[0].sentence}." in result.output
    assert "LOST" not in result.output
    for expected in ("billing", "190", "180"):
        assert expected in result.output


def test_what_is_wrong_is_named_and_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_reconciliation, "reconcile_deliveries", lambda *_, **__: FOUND)
    result = run("analyze", "deliveries", "orders")
    assert result.exit_code == 1
    for expected in ("LOST", "NEVER DELIVERED", "persist", "17-0", "deliver", "17-1"):
        assert expected in result.output
    found = json.loads(run("--format", "json", "analyze", "deliveries", "orders").stdout)
    assert found["anomalies"][1] == {
        "kind": "never delivered", "hop": "deliver", "message_id": "17-1", "subscription": SUB,
    }  # fmt: skip


def test_service_levels_as_a_table_as_json_and_drawn(tmp_path: Path) -> None:
    drawn = tmp_path / "slis.svg"
    result = run("analyze", "slis", "orders", "--target", "1s", "--plot", str(drawn))
    assert result.exit_code == 0, result.output
    for expected in ("WITHIN 1 S", "(persisted)", "billing", "13.0 ms", "99.500%", "25.5 ms"):
        assert expected in result.output
    assert "<svg" in drawn.read_text(encoding="utf-8")
    found = json.loads(run("--format", "json", "analyze", "slis", "orders").stdout)
    assert found["rows"][1]["p99_ms"] == 13.0
