"""Drills over a server that is made up: what is theirs, what is not, and what clients that get nothing see."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import AlreadyExists, FailedPrecondition, Unavailable
from syncpoint.programs.disaster import drill_driver
from syncpoint.programs.disaster.drill_driver import DrillRun
from syncpoint.programs.disaster.drill_journal import DrillJournal
from syncpoint.programs.disaster.drill_plan import parse_plan
from syncpoint.programs.disaster.outside_prober import OutsideProber
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("drills")


class FailingClient:
    """A client all of whose calls fail."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __enter__(self) -> FailingClient:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def call(self, method: str, request: Any, *, timeout_s: float | None = None) -> Any:
        raise self._error


def test_a_topic_that_was_there_before_is_not_deleted_in_the_end(tmp_path: Path) -> None:
    journal, topic = DrillJournal(tmp_path / "one.journal"), pubsub.Topic(name="projects/p/topics/drill-one")

    def create(error: Exception) -> None:
        with pytest.raises(type(error)):
            DrillRun._create(FailingClient(error), journal, "topic", "Publisher.CreateTopic", topic)  # type: ignore[arg-type]

    create(AlreadyExists(topic.name))
    assert journal.left() == []
    create(Unavailable("it may have been created"))
    assert [one["name"] for one in journal.left()] == [topic.name]


def test_a_drill_that_is_not_rolled_back_is_not_begun_again(tmp_path: Path) -> None:
    def connect() -> Any:
        raise AssertionError("nothing is asked")

    run = DrillRun("one", "projects/p", parse_plan({"kind": "hang", "pid": "7"}), connect, tmp_path)
    DrillJournal(tmp_path / "one.journal").note("continue", pid=7, started=1)
    with pytest.raises(FailedPrecondition, match="Give this one another id"):
        run.run()


def test_a_certificate_counts_what_never_goes_on_again() -> None:
    prober = OutsideProber(lambda: FailingClient(Unavailable("gone")), "t", "s", "one")  # type: ignore[arg-type, return-value]
    prober.start()
    time.sleep(0.1)
    prober.finish(0.0)
    found = prober.certificate(0)
    assert found["publish_gap_ms"] >= 100
    assert found["receive_gap_ms"] >= 100


def test_a_drill_after_which_clients_do_not_go_on_has_not_ended_as_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StuckProber:
        confirmed = received = (1,)

        def __init__(self, *of: Any) -> None:
            pass

        start = restart = lambda self: None
        finish = lambda self, patience_s: None  # noqa: E731
        well = lambda self, since: False  # noqa: E731
        certificate = lambda self, not_copied: {"lost": 1}  # noqa: E731

    plan = parse_plan({"kind": "hang", "pid": "7", "for": "50ms", "limit": "60ms"})
    monkeypatch.setattr(drill_driver, "OutsideProber", StuckProber)
    monkeypatch.setattr(drill_driver, "make_failure", lambda plan, journal: None)
    monkeypatch.setattr(drill_driver, "WARM_S", 0.0)
    run = DrillRun("one", "projects/p", plan, lambda: FailingClient(Unavailable("gone")), tmp_path)  # type: ignore[arg-type, return-value]
    monkeypatch.setattr(DrillRun, "_made", lambda self, client, journal: ("t", "s"))
    journal = DrillJournal(tmp_path / "one.journal")
    assert run._measured(run.connect(), journal, time.monotonic()) == {"lost": 1}
    assert "did not go on" in run.reason
