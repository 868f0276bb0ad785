"""What `syncpoint analyze letters` prints of dead letters, which topic it reads, and what it refuses."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from pyspark.errors import AnalysisException

from syncpoint.programs.analytics import letter_table, stored_messages
from syncpoint.programs.analytics.letter_table import LetterCause, LetterDescription, LetterTable
from syncpoint.programs.cli import analyze_letters
from syncpoint.wire.protobuf.messages import pubsub

TIME = datetime(2026, 11, 28, 12, 0, 0, tzinfo=UTC)
BILLING, DEAD = "projects/p/subscriptions/billing", "projects/p/topics/dead"
FOUND = LetterTable(
    DEAD, 7,
    (LetterCause(BILLING, "Odd", 6, TIME, TIME, 3_000_000, 900, 5, 2, "1-0"),
     LetterCause("", "", 1, TIME, TIME, 10, 10, 0, 0, "1-6")),
    (LetterDescription("Odd", "customer 7", 5, "1-1"),),
)  # fmt: skip
Run = Callable[..., Result]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, server: Any) -> dict[str, Any]:
    """How the table was asked for."""
    found: dict[str, Any] = {"answer": FOUND}

    def stored(cluster: Any, topic: str) -> None:
        found["topic"] = topic

    def table(*_: Any, **more: Any) -> LetterTable:
        found.update(more)
        if isinstance(found["answer"], Exception):
            raise found["answer"]
        return found["answer"]  # type: ignore[no-any-return]

    monkeypatch.setattr(analyze_letters, "local_spark", lambda name, master: contextlib.nullcontext())
    monkeypatch.setattr(analyze_letters, "server_of", lambda settings: None)
    monkeypatch.setattr(stored_messages, "stored_topic", stored)
    monkeypatch.setattr(letter_table, "letter_table", table)
    policy = {"dead_letter_topic": DEAD}
    server.answers["Subscriber.GetSubscription"] = pubsub.Subscription(
        name=BILLING, topic="projects/p/topics/of-letters", dead_letter_policy=policy
    )
    return found


def test_letters_are_counted_by_cause(run: Run, run_json: Any, asked: dict[str, Any]) -> None:
    shown = run("analyze", "letters", "--subscription", "billing").stdout
    assert (asked["topic"], asked["subscription"], asked["waiting_for"]) == (DEAD, BILLING, "")
    for expected in ("billing", "Odd", "(none)", "3.0", "900", "2026-11-28 12:00:00", "customer 7", "1-1"):
        assert expected in shown
    found = run_json("analyze", "letters", "--topic", "other")
    assert asked["topic"] == "projects/p/topics/other"
    assert (found["letters"], found["causes"][0]["redriven"], found["causes"][0]["first"]) == (
        7,
        2,
        "2026-11-28T12:00:00Z",
    )
    run("analyze", "letters", "--letters", "billing", "--since", "2026-11-28T00:00:00Z")
    assert (asked["topic"], asked["waiting_for"], asked["since"]) == (
        "projects/p/topics/of-letters", BILLING, "2026-11-28T00:00:00Z",
    )  # fmt: skip


def test_sql_is_answered_by_its_rows_and_written(run: Run, asked: dict[str, Any], tmp_path: Path) -> None:
    asked["answer"] = replace(FOUND, columns=("reason", "n"), rows=(("Odd", 6), (None, TIME)), more=True)
    out = tmp_path / "x.csv"
    result = run("analyze", "letters", "--topic", "dead", "--sql", "SELECT 1 FROM letters", "--out", str(out))
    assert (asked["sql"], asked["out"]) == ("SELECT 1 FROM letters", out)
    assert [line.split() for line in result.stdout.splitlines()[2:]] == [["Odd", "6"], ["2026-11-28T12:00:00Z"]]
    assert "more than these 2 rows" in result.stderr
    assert f"written to {out}" in result.stderr
    assert "customer 7" not in result.stdout


def test_what_cannot_be_is_refused(run: Run, server: Any, asked: dict[str, Any]) -> None:
    assert "Give --subscription" in run("analyze", "letters").stderr
    refused = run("analyze", "letters", "--topic", "dead", "--out", "x.xls")
    assert refused.exit_code == 1
    assert ".parquet or .csv" in refused.stderr
    assert "topic" not in asked, "before any work"
    asked["answer"] = AnalysisException("no column x\nand more")
    refused = run("analyze", "letters", "--topic", "dead", "--sql", "SELECT x FROM letters")
    assert refused.exit_code == 1
    assert "--sql: no column x" in refused.stderr
    assert "original_message_id" in refused.stderr
    server.answers["Subscriber.GetSubscription"] = pubsub.Subscription(name=BILLING)
    assert "has no dead-letter topic" in run("analyze", "letters", "--subscription", "billing").stderr


def test_an_answer_is_json_whatever_it_holds(run_json: Any, asked: dict[str, Any]) -> None:
    row = letter_table._plain((b"text", b"\xff", TIME, {"a": b"b"}, [1.5, None], json))
    assert row[:5] == ["text", "/w==", TIME, {"a": "b"}, [1.5, None]]
    asked["answer"] = replace(FOUND, columns=tuple("abcde"), rows=(tuple(row[:5]),))
    found = run_json("analyze", "letters", "--topic", "dead", "--sql", "SELECT 1")
    assert found["rows"] == [["text", "/w==", "2026-11-28T12:00:00Z", {"a": "b"}, [1.5, None]]]
