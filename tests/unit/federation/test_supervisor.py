"""The supervisor, with a Spark that is only counted and servers that say what a test says; no JVM, no sockets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from syncpoint.federation.flow_plan import Flow
from syncpoint.federation.metrics import Metrics
from syncpoint.federation.patterns import links_of
from syncpoint.federation.servers import FlowProgress
from syncpoint.federation.spec import parse
from syncpoint.federation.state import FlowState, StateFolder, SupervisorState
from syncpoint.federation.supervisor import Supervisor
from syncpoint.model.errors import FailedPrecondition, Unavailable

RUNTIME: dict[str, Any] = {
    "master": "managed",
    "idle": "30s",
    "executors": {"min": 0, "max": 3, "rows_each": 100},
}


class Spark:
    """Does at once what it is told."""

    def __init__(self) -> None:
        self.job = 0
        self.executors = 0
        self.told: list[int] = []
        self.fails = False

    def resize(self, executors: int) -> None:
        self.told.append(executors)
        if self.fails and executors:
            raise Unavailable("Spark's master does not start")
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

    def flows(self, links: Any) -> list[Flow]:
        return [flow for link in links for flow in link.flows(["projects/shop/topics/orders"])]

    def heard_flows(self, links: Any) -> tuple[list[Flow], dict[str, str]]:
        return ([], {"a": "a (a:1) does not answer"}) if self.down else (self.flows(links), {})

    def progress(self, flow: Flow) -> FlowProgress:
        silent = {"a": "a (a:1) does not answer"} if self.down else {}
        silent |= {"b": "b (b:1) does not answer"} if self.target_down else {}
        return FlowProgress(flow, None if self.down else self.lag, gap=self.gap, silent=silent)


class World:
    def __init__(self, folder: Path, **runtime: Any) -> None:
        content = {
            "version": 1,
            "clusters": {"a": {"endpoint": "a:1"}, "b": {"endpoint": "b:1"}},
            "tasks": {
                "copy": {
                    "pattern": "replicate",
                    "from": {"cluster": "a", "topic": "projects/shop/topics/orders"},
                    "to": {"cluster": "b"},
                }
            },
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
        self.supervisor.look(self.servers)  # type: ignore[arg-type]
        said = self.state.supervisor()
        assert said is not None
        return said


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_nothing_waits_and_nothing_runs(world: World) -> None:
    assert world.look(0).wanted == 0
    assert world.spark.told == []


def test_from_nothing_to_one_to_three_and_back_to_nothing(world: World) -> None:
    assert world.look(1).executors == 1
    assert world.look(150).executors == 2
    assert world.look(10_000).executors == 3
    assert world.look(0).executors == 3  # a burst is over sooner than a new executor has paid for its start
    assert world.look(0, after=16).executors == 1
    assert world.look(0, after=29).executors == 0
    assert world.spark.told == [1, 2, 3, 1, 0]
    assert world.look(1).starts == 2


def test_kept_warm_it_keeps_one(tmp_path: Path) -> None:
    world = World(tmp_path, warm=True)
    assert world.look(0).executors == 1
    assert world.look(0, after=500).executors == 1


def test_a_job_that_dies_is_started_again_with_growing_pauses(world: World) -> None:
    world.look(1)
    for pause in (1, 2, 4):
        world.spark.dies()
        told = len(world.spark.told)
        world.look(after=0.5)
        assert len(world.spark.told) == told
        assert world.look(after=pause + 0.1).job == 4711
    assert world.look().failures == 3


def test_a_spark_that_does_not_start_is_tried_again_later(world: World) -> None:
    world.spark.fails = True
    assert world.look(1).job == 0
    world.look(after=0.5)
    assert world.spark.told == [1]
    world.spark.fails = False
    assert world.look(after=1).job == 4711


def test_the_time_of_waking_is_that_to_the_first_batch_of_the_new_job(world: World) -> None:
    world.state.path.mkdir()
    world.state.say_flows({"copy.orders": FlowState("running", batches=7)})  # of a job before
    assert world.look(1).woke_s == 0
    world.look(1, after=5)
    world.state.say_flows({"copy.orders": FlowState("running", batches=8)})
    assert world.look(1, after=5).woke_s == 10


def test_a_blocked_flow_alone_starts_nothing(world: World) -> None:
    world.servers.gap = "source 1: 5 to 9"
    assert world.look(500).wanted == 0


def test_a_source_that_does_not_answer_keeps_its_flows_and_is_told(world: World) -> None:
    world.look(1)
    world.servers.down = True
    said = world.look(after=6)
    assert said.executors == 1
    assert [flow.name for flow in world.supervisor.flows] == ["copy.orders"]


def test_it_ends_with_spark_stopped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.look(1)
    world.supervisor.stopping.set()
    world.supervisor.run()
    assert world.spark.told[-1] == 0


def test_once_ends_although_a_flow_can_not_be_finished(world: World) -> None:
    flow = world.servers.flows(world.supervisor.links)[0]
    progress = [FlowProgress(flow, 5)]
    assert world.supervisor.unable(progress) == {}
    world.now += 60  # it took a while to begin
    world.state.say_flows({"copy.orders": FlowState("failed", error="no such column")})
    assert world.supervisor.unable(progress) == {}
    world.now += 31
    assert world.supervisor.unable(progress) == {"copy.orders": "no such column"}
    assert world.supervisor.unable([FlowProgress(flow, 4, rows=1)]) == {}  # it has copied something
    world.now += 31
    assert world.supervisor.unable([FlowProgress(flow, 0, rows=1)]) == {}  # nothing is left
    assert world.supervisor.unable([FlowProgress(flow, 4, gap="source 1: 5 to 9")]) == {
        "copy.orders": "a gap before source 1: 5 to 9"
    }


@pytest.mark.parametrize(("lag", "unable"), [(5, {"copy.orders": "no such column"}), (0, {})])
def test_once_tells_what_it_could_not_finish(
    lag: int, unable: dict[str, str], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncpoint.federation.supervisor.Servers", lambda: nullcontext(world.servers))
    monkeypatch.setattr("syncpoint.federation.supervisor.LOOK_S", 0.0)
    world.servers.lag = lag

    def time_passes(progress: Any, said: Any) -> None:
        world.now += 10
        world.state.say_flows({"copy.orders": FlowState("failed", error="no such column")})

    world.supervisor.tell = time_passes
    assert world.supervisor.run(until_done=True) == unable
    assert world.spark.told[-1] == 0


@pytest.fixture
def once(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Run until nothing waits; every look takes ten seconds, and `then` happens at some of them."""
    monkeypatch.setattr("syncpoint.federation.supervisor.Servers", lambda: nullcontext(world.servers))
    monkeypatch.setattr("syncpoint.federation.supervisor.LOOK_S", 0.0)

    def run(**then: Callable[[], None]) -> dict[str, str]:
        looks = 0

        def time_passes(progress: Any, said: Any) -> None:
            nonlocal looks
            world.now += 10
            looks += 1
            then.get(f"after_{looks}", lambda: None)()
            assert looks < 50, "it waits for ever"

        world.supervisor.tell = time_passes
        return world.supervisor.run(until_done=True)

    return run


def test_once_fails_with_a_source_that_never_answers(world: World, once: Callable[..., dict[str, str]]) -> None:
    world.servers.down = True
    assert once() == {"a": "a (a:1) does not answer"}


def test_once_fails_with_a_source_that_is_lost_under_way(world: World, once: Callable[..., dict[str, str]]) -> None:
    world.servers.lag = 5
    assert once(after_2=lambda: setattr(world.servers, "down", True)) == {"a": "a (a:1) does not answer"}
    assert world.spark.told[-1] == 0


def test_once_fails_with_a_target_that_does_not_answer(world: World, once: Callable[..., dict[str, str]]) -> None:
    world.servers.target_down = True
    assert once() == {"b": "b (b:1) does not answer"}


def test_once_waits_for_a_server_that_comes_back(world: World, once: Callable[..., dict[str, str]]) -> None:
    world.servers.down = True
    assert once(after_2=lambda: setattr(world.servers, "down", False)) == {}


def test_once_fails_when_spark_does_not_start(world: World, once: Callable[..., dict[str, str]]) -> None:
    world.servers.lag = 5
    world.spark.fails = True
    assert once() == {"Spark": "Spark's master does not start"}


def test_once_fails_when_spark_dies_again_and_again(world: World, once: Callable[..., dict[str, str]]) -> None:
    world.servers.lag = 5
    dies = {f"after_{look}": world.spark.dies for look in range(1, 20)}
    assert "3 times" in once(**dies)["Spark"]


def test_metrics_tell_of_every_flow_and_of_spark(world: World) -> None:
    world.look(12)
    text = world.metrics.text()
    assert 'syncpoint_federation_lag_messages{flow="copy.orders",source="a",target="b"} 12.0' in text
    assert "syncpoint_federation_executors 1.0" in text
    assert "syncpoint_federation_starts_total 1.0" in text


def test_one_runs_a_state_folder(tmp_path: Path) -> None:
    first, second = StateFolder(tmp_path), StateFolder(tmp_path)
    first.take()
    with pytest.raises(FailedPrecondition, match="runs already"):
        second.take()
    first.release()
    second.take()
    second.release()


def test_an_accepted_loss_is_seen_once_and_drops_the_checkpoint(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    offsets = state.checkpoint("one") / "offsets"
    offsets.mkdir(parents=True)
    assert not state.has_checkpoint("one")
    (offsets / "0").write_text("v1")
    assert state.has_checkpoint("one")
    state.accept("one", "source 1: 5 to 9")
    assert state.accepted("one")
    state.begin_anew("one")
    assert not state.accepted("one")
    assert not state.has_checkpoint("one")
