"""The supervisor, with a Spark that is only counted and servers that say what a test says; no JVM, no sockets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition, Unavailable
from syncpoint.programs.federation.flow_plan import Flow
from syncpoint.programs.federation.flow_status import state_of
from syncpoint.programs.federation.metrics import Metrics
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.servers import FlowProgress
from syncpoint.programs.federation.spec import parse
from syncpoint.programs.federation.state import FlowState, StateFolder, SupervisorState
from syncpoint.programs.federation.supervisor import Supervisor

RUNTIME: dict[str, Any] = {
    "master": "managed",
    "idle": "30s",
    "executors": {"min": 0, "max": 3, "rows_each": 100},
}


class Spark:
    """Does at once what it is given."""

    def __init__(self) -> None:
        self.job = 0
        self.executors = 0
        self.reported: list[int] = []
        self.fails = False

    def resize(self, executors: int) -> None:
        self.reported.append(executors)
        if self.fails and executors:
            raise Unavailable("Spark's master did not start")
        self.executors = executors
        self.job = 4711 if executors else 0

    def pids(self) -> dict[str, int]:
        return {}

    def dies(self) -> None:
        self.job = self.executors = 0


class Servers:
    """One flow that has so many messages to copy."""

    def __init__(self) -> None:
        self.lag: int | None = 0
        self.gap = ""
        self.down = False
        self.target_down = False
        self.topics = ["projects/shop/topics/orders"]

    def flows(self, links: Any) -> list[Flow]:
        return [flow for link in links for flow in link.flows(self.topics)]

    def reported_flows(self, links: Any) -> tuple[list[Flow], dict[str, str]]:
        return ([], {"a": "a (a:1) does not answer"}) if self.down else (self.flows(links), {})

    def progress_of(self, flows: list[Flow], asked_max: int | None) -> list[FlowProgress]:
        return [self.progress(flow) for flow in flows]

    def progress(self, flow: Flow) -> FlowProgress:
        silent = {"a": "a (a:1) does not answer"} if self.down else {}
        silent |= {"b": "b (b:1) does not answer"} if self.target_down else {}
        return FlowProgress(flow, None if self.down else self.lag, gap=self.gap, silent=silent)


COPY = {
    "pattern": "replicate",
    "from": {"cluster": "a", "topic": "projects/shop/topics/orders"},
    "to": {"cluster": "b"},
}


class Harness:
    def __init__(self, folder: Path, task: dict[str, Any] = COPY, **runtime: Any) -> None:
        content = {
            "version": 1,
            "clusters": {"a": {"endpoint": "a:1"}, "b": {"endpoint": "b:1"}},
            "streams": {"lake": {"kafka": {"bootstrap": "k:1"}}},
            "tasks": {"copy": task},
            "runtime": {**RUNTIME, **runtime},
        }
        federation = parse(content, folder)
        self.now = 1000.0
        self.spark, self.servers, self.metrics = Spark(), Servers(), Metrics()
        self.state = StateFolder(federation.runtime.state)
        self.supervisor = Supervisor(
            folder / "federation.yaml",
            federation,
            links_of(federation),
            self.spark,
            self.state,
            metrics=self.metrics,
            clock=lambda: self.now,
        )

    def look(self, lag: int | None = None, *, after: float = 1.0) -> SupervisorState:
        """One look, `after` seconds later."""
        self.now += after
        if lag is not None:
            self.servers.lag = lag
        self.supervisor.step(self.servers)  # type: ignore[arg-type]
        said = self.state.supervisor()
        assert said is not None
        return said


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def test_nothing_waits_and_nothing_runs(harness: Harness) -> None:
    assert harness.look(0).wanted == 0
    assert harness.spark.reported == []


def test_from_nothing_to_one_to_three_and_back_to_nothing(harness: Harness) -> None:
    assert harness.look(1).executors == 1
    assert harness.look(150).executors == 2
    assert harness.look(10_000).executors == 3
    assert harness.look(0).executors == 3  # a burst is over sooner than a new executor has paid for its start
    assert harness.look(0, after=16).executors == 1
    assert harness.look(0, after=29).executors == 0
    assert harness.spark.reported == [1, 2, 3, 1, 0]
    assert harness.look(1).starts == 2


def test_a_paused_flow_starts_nothing_and_is_not_waited_for(harness: Harness) -> None:
    harness.state.pause("copy.orders")
    assert harness.look(500).executors == 0
    harness.servers.lag = 500
    progress = harness.supervisor.step(harness.servers)  # type: ignore[arg-type]
    assert [one.paused for one in progress] == [True]
    assert state_of(progress[0], None, running=True) == (
        "paused", "until `syncpoint federation resume copy.orders`",
    )  # fmt: skip
    assert harness.supervisor.quiet(progress, {})
    assert harness.state.resume("copy.orders")
    assert not harness.state.resume("copy.orders")
    assert harness.look(500).executors > 0


def test_kept_warm_it_keeps_one(tmp_path: Path) -> None:
    harness = Harness(tmp_path, warm=True)
    assert harness.look(0).executors == 1
    assert harness.look(0, after=500).executors == 1


def test_for_a_stream_spark_wakes_up_to_look_and_stays_awake(tmp_path: Path) -> None:
    """What waits there the job alone can see: until it has said so, nothing is done."""
    stream = {**COPY, "pattern": "stream-to-queue", "from": {"stream": "lake", "topic": "orders"}}
    harness = Harness(tmp_path, stream | {"to": {"cluster": "b", "topic": "projects/shop/topics/orders"}})
    harness.servers.lag = None
    assert harness.look().executors == 1
    progress = harness.supervisor.step(harness.servers)  # type: ignore[arg-type]
    assert not harness.supervisor.quiet(progress, {})
    harness.state.say_flows({"copy.orders": FlowState("running", lag=7)})
    assert harness.look().lags == {"copy.orders": 7}
    harness.state.say_flows({"copy.orders": FlowState("running", lag=0)})
    assert harness.look(after=500).executors == 1
    assert harness.supervisor.quiet(harness.supervisor.step(harness.servers), {})  # type: ignore[arg-type]


def test_a_stream_that_fails_is_given_up_though_nobody_knows_what_waits(tmp_path: Path) -> None:
    stream = {**COPY, "pattern": "stream-to-queue", "from": {"stream": "lake", "topic": "orders"}}
    harness = Harness(tmp_path, stream | {"to": {"cluster": "b", "topic": "projects/shop/topics/orders"}})
    harness.servers.lag = None
    harness.look()
    harness.state.say_flows({"copy.orders": FlowState("failed", "Spark has no Kafka source")})
    assert not harness.supervisor.unable(harness.supervisor.step(harness.servers))  # type: ignore[arg-type]
    harness.now += 31
    progress = harness.supervisor.step(harness.servers)  # type: ignore[arg-type]
    assert harness.supervisor.unable(progress) == {"copy.orders": "Spark has no Kafka source"}


def test_a_job_that_dies_is_started_again_with_growing_pauses(harness: Harness) -> None:
    harness.look(1)
    for pause in (1, 2, 4):
        harness.spark.dies()
        reported = len(harness.spark.reported)
        harness.look(after=0.5)
        assert len(harness.spark.reported) == reported
        assert harness.look(after=pause + 0.1).job == 4711
    assert harness.look().failures == 3


def test_a_spark_that_does_not_start_is_tried_again_later(harness: Harness) -> None:
    harness.spark.fails = True
    assert harness.look(1).job == 0
    harness.look(after=0.5)
    assert harness.spark.reported == [1]
    harness.spark.fails = False
    assert harness.look(after=1).job == 4711


def test_the_time_of_waking_is_that_to_the_first_batch_of_the_new_job(harness: Harness) -> None:
    harness.state.path.mkdir()
    harness.state.say_flows({"copy.orders": FlowState("running", batches=7)})  # of a job before
    assert harness.look(1).woke_s == 0
    harness.look(1, after=5)
    harness.state.say_flows({"copy.orders": FlowState("running", batches=8)})
    assert harness.look(1, after=5).woke_s == 10


def test_a_blocked_flow_alone_starts_nothing(harness: Harness) -> None:
    harness.servers.gap = "source 1: 5 to 9"
    assert harness.look(500).wanted == 0


def test_a_source_that_does_not_answer_keeps_its_flows_and_is_reported(harness: Harness) -> None:
    harness.look(1)
    harness.servers.down = True
    said = harness.look(after=6)
    assert said.executors == 1
    assert [flow.name for flow in harness.supervisor.flows] == ["copy.orders"]


def test_it_ends_with_spark_stopped(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.look(1)
    harness.supervisor.stopping.set()
    harness.supervisor.run()
    assert harness.spark.reported[-1] == 0


def test_once_ends_although_a_flow_can_not_be_finished(harness: Harness) -> None:
    flow = harness.servers.flows(harness.supervisor.links)[0]
    progress = [FlowProgress(flow, 5)]
    assert harness.supervisor.unable(progress) == {}
    harness.now += 60  # it took a while to begin
    harness.state.say_flows({"copy.orders": FlowState("failed", error="no such column")})
    assert harness.supervisor.unable(progress) == {}
    harness.now += 31
    assert harness.supervisor.unable(progress) == {"copy.orders": "no such column"}
    assert harness.supervisor.unable([FlowProgress(flow, 4, rows=1)]) == {}  # it has copied something
    harness.now += 31
    assert harness.supervisor.unable([FlowProgress(flow, 0, rows=1)]) == {}  # nothing is left
    assert harness.supervisor.unable([FlowProgress(flow, 4, gap="source 1: 5 to 9")]) == {
        "copy.orders": "a gap before source 1: 5 to 9"
    }


@pytest.mark.parametrize(("lag", "unable"), [(5, {"copy.orders": "no such column"}), (0, {})])
def test_once_reports_what_it_could_not_finish(
    lag: int, unable: dict[str, str], harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncpoint.programs.federation.supervisor.Servers", lambda: nullcontext(harness.servers))
    monkeypatch.setattr("syncpoint.programs.federation.supervisor.LOOK_S", 0.0)
    harness.servers.lag = lag

    def time_passes(progress: Any, said: Any) -> None:
        harness.now += 10
        harness.state.say_flows({"copy.orders": FlowState("failed", error="no such column")})

    harness.supervisor.on_progress = time_passes
    assert harness.supervisor.run(until_done=True) == unable
    assert harness.spark.reported[-1] == 0


@pytest.fixture
def once(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Run until nothing waits; every look takes ten seconds, and `then` happens at some of them."""
    monkeypatch.setattr("syncpoint.programs.federation.supervisor.Servers", lambda: nullcontext(harness.servers))
    monkeypatch.setattr("syncpoint.programs.federation.supervisor.LOOK_S", 0.0)

    def run(**then: Callable[[], None]) -> dict[str, str]:
        looks = 0

        def time_passes(progress: Any, said: Any) -> None:
            nonlocal looks
            harness.now += 10
            looks += 1
            then.get(f"after_{looks}", lambda: None)()
            assert looks < 50, "it waits for ever"

        harness.supervisor.on_progress = time_passes
        return harness.supervisor.run(until_done=True)

    return run


def test_once_fails_with_a_source_that_never_answers(harness: Harness, once: Callable[..., dict[str, str]]) -> None:
    harness.servers.down = True
    assert once() == {"a": "a (a:1) does not answer"}


def test_once_fails_with_a_source_that_is_lost_under_way(harness: Harness, once: Callable[..., dict[str, str]]) -> None:
    harness.servers.lag = 5
    assert once(after_2=lambda: setattr(harness.servers, "down", True)) == {"a": "a (a:1) does not answer"}
    assert harness.spark.reported[-1] == 0


def test_once_fails_with_a_target_that_does_not_answer(harness: Harness, once: Callable[..., dict[str, str]]) -> None:
    harness.servers.target_down = True
    assert once() == {"b": "b (b:1) does not answer"}


def test_once_fails_with_a_topic_that_does_not_exist(harness: Harness, once: Callable[..., dict[str, str]]) -> None:
    harness.servers.topics = []
    why = "a has no topic projects/shop/topics/orders; the flow starts once it exists"
    assert once() == {"task copy": why}


def test_a_topic_that_is_made_in_time_is_copied(harness: Harness, once: Callable[..., dict[str, str]]) -> None:
    harness.servers.topics = []
    assert once(after_1=lambda: harness.servers.topics.append("projects/shop/topics/orders")) == {}
    assert [flow.name for flow in harness.supervisor.flows] == ["copy.orders"]


def test_once_waits_for_a_server_that_comes_back(harness: Harness, once: Callable[..., dict[str, str]]) -> None:
    harness.servers.down = True
    assert once(after_2=lambda: setattr(harness.servers, "down", False)) == {}


def test_once_fails_when_spark_does_not_start(harness: Harness, once: Callable[..., dict[str, str]]) -> None:
    harness.servers.lag = 5
    harness.spark.fails = True
    assert once() == {"Spark": "Spark's master did not start"}


def test_once_fails_when_spark_dies_again_and_again(harness: Harness, once: Callable[..., dict[str, str]]) -> None:
    harness.servers.lag = 5
    dies = {f"after_{look}": harness.spark.dies for look in range(1, 20)}
    assert "3 times" in once(**dies)["Spark"]


def test_metrics_report_every_flow_and_of_spark(harness: Harness) -> None:
    harness.look(12)
    text = harness.metrics.text()
    assert 'syncpoint_federation_lag_messages{flow="copy.orders",source="a",target="b"} 12.0' in text
    assert "syncpoint_federation_executors 1.0" in text
    assert "syncpoint_federation_starts_total 1.0" in text


def test_one_runs_a_state_folder(tmp_path: Path) -> None:
    first, second = StateFolder(tmp_path), StateFolder(tmp_path)
    first.take()
    with pytest.raises(FailedPrecondition, match="already runs"):
        second.take()
    first.release()
    second.take()
    second.release()


def test_an_accepted_loss_is_seen_once(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.accept("one", "source 1: 5 to 9")
    assert state.accepted("one")
    state.begin_anew("one")
    assert not state.accepted("one")


def test_a_job_begins_without_the_queries_of_an_earlier_one_and_of_an_earlier_release(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    for path in (state.query("shop.a-b"), tmp_path / "checkpoints" / "shop.a-b.orders" / "offsets"):
        path.mkdir(parents=True)
    state.pause("shop.a-b.orders")
    state.clear_queries()
    assert [path.name for path in tmp_path.iterdir()] == ["paused"]
