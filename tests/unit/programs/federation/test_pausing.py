"""The job with queries that are only counted: which flows share one, which are alone, and which wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import NotFound, SyncpointError, Unavailable
from syncpoint.programs.federation import job as jobs
from syncpoint.programs.federation.flow_plan import Flow
from syncpoint.programs.federation.flow_starts import FlowStart
from syncpoint.programs.federation.job import FederationJob
from syncpoint.programs.federation.link_query import LinkQuery
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.spec import parse
from syncpoint.programs.federation.state import StateFolder
from syncpoint.programs.federation.transform import FlowsUnknown

CONTENT: dict[str, Any] = {
    "version": 1,
    "clusters": {"a": {"endpoint": "a:1"}, "b": {"endpoint": "b:1"}},
    "namespaces": {"shop": {"clusters": ["a", "b"], "links": [["a", "b"]]}},
}
X, Y, Z = (f"shop.a-b.{one}" for one in "xyz")


class SimQuery:
    """What is asked of Spark's query."""

    def __init__(self) -> None:
        self.isActive = True
        self.status = {"message": "Waiting for data to arrive"}
        self.lastProgress: dict[str, Any] | None = None
        self.recentProgress: tuple[Any, ...] = ()
        self.error = "boom"

    def exception(self) -> Exception | None:
        return None if self.isActive else RuntimeError(self.error)

    def stop(self) -> None:
        self.isActive = False


class SimLinkQuery(LinkQuery):
    """Sees every version at once; a test says when it comes through a batch, what it was to read, and how it ends."""

    batch: tuple[str, ...] = ()
    unstartable: Exception | None = None

    def start(self, spark: Any) -> None:
        if self.unstartable is not None:
            raise self.unstartable
        self.query = SimQuery()  # type: ignore[assignment]

    def suspects(self) -> list[str]:
        return list(self.batch)

    def has_left(self, name: str) -> bool:
        if self.active:
            self._file.say_seen()
        return super().has_left(name)

    def committed(self, rows: int = 1) -> None:
        self.sim.lastProgress = {"numInputRows": rows, "batchId": 0, "durationMs": {"triggerExecution": 9}}

    def broken(self, *batch: str) -> None:
        self.batch, self.sim.isActive = batch, False

    @property
    def sim(self) -> SimQuery:
        assert isinstance(self.query, SimQuery)
        return self.query


class SimFlows:
    """Three topics, whose flows may begin at once, unless a test says otherwise."""

    def __init__(self) -> None:
        self.failing: dict[str, SyncpointError] = {}

    def flows(self, links: Any) -> list[Flow]:
        return [flow for link in links for flow in link.flows([f"projects/shop/topics/{one}" for one in "xyz"])]

    def ensure_targets(self, flows: Any) -> dict[str, SyncpointError]:
        return {}

    def starts(self, flows: Any) -> dict[str, Any]:
        return {one.name: self.failing.get(one.name, FlowStart("earliest")) for one in flows}

    def begin_at(self, flow: Flow) -> str:
        return "{}"


class SimJob(FederationJob):
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        federation = parse(CONTENT, folder)
        super().__init__(federation, links_of(federation), None, StateFolder(folder))  # type: ignore[arg-type]
        self.servers, self.now = SimFlows(), 0.0
        monkeypatch.setattr(jobs, "LinkQuery", SimLinkQuery)
        monkeypatch.setattr(jobs, "starts", lambda servers, flows: servers.starts(flows))
        monkeypatch.setattr(jobs, "begin_at", lambda servers, flow: servers.begin_at(flow))
        monkeypatch.setattr(jobs.time, "monotonic", lambda: self.now)

    def looked(self, seconds: float = 1.0) -> dict[str, str]:
        self.now += seconds
        self._look(self.servers)  # type: ignore[arg-type]
        return {name.rpartition(".")[2]: flow.state for name, flow in self.state.flows().items()}

    def shared(self) -> SimLinkQuery:
        return self.found("shop.a-b")

    def found(self, name: str) -> SimLinkQuery:
        query = self.queries[name]
        assert isinstance(query, SimLinkQuery)
        return query


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimJob:
    return SimJob(tmp_path, monkeypatch)


def test_the_flows_of_a_link_share_one_query(job: SimJob) -> None:
    assert job.looked() == dict.fromkeys("xyz", "running")
    assert set(job.queries) == {"shop.a-b"}
    assert job.shared().flows == {X, Y, Z}


def test_a_paused_flow_leaves_alone_and_comes_back_when_it_is_resumed(
    job: SimJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.looked()
    query, first = job.shared(), job.shared()._members[Y].run
    job.state.pause(Y)
    assert job.looked()["y"] == "running"  # a batch may be under way
    assert job.looked() == {"x": "running", "y": "paused", "z": "running"}
    assert (job.shared(), query.flows) == (query, {X, Z})
    assert SimJob(tmp_path, monkeypatch).looked()["y"] == "paused", "over a restart of the job"
    job.state.resume(Y)
    assert job.looked() == dict.fromkeys("xyz", "running")
    assert query.flows == {X, Y, Z}
    assert query._members[Y].run != first  # nothing of its former run may write any more


def test_when_all_are_paused_no_query_runs(job: SimJob) -> None:
    job.looked()
    for one in (X, Y, Z):
        job.state.pause(one)
    job.looked()
    assert job.looked() == dict.fromkeys("xyz", "paused")
    assert not job.queries


def test_a_flow_that_stands_still_is_tried_alone_and_joins_the_others_behind_a_batch(job: SimJob) -> None:
    job.looked()
    query = job.shared()
    query._file.fail(query._members[X], "a gap")
    states = job.looked(0.5)
    assert states == {"x": "failed", "y": "running", "z": "running"}
    assert query.flows == {Y, Z}
    assert job.state.flows()[X].error == "a gap"
    job.looked(2)
    assert job.found(X).flows == {X}
    assert job.looked()["x"] == "failed"  # it has not come through yet
    job.found(X).committed()
    job.looked()
    assert job.looked() == dict.fromkeys("xyz", "running")
    assert (set(job.queries), query.flows) == ({"shop.a-b"}, {X, Y, Z})


def test_a_flow_that_goes_on_failing_waits_longer_each_time(job: SimJob) -> None:
    job.looked()
    query, pauses = job.shared(), []
    query._file.fail(query._members[X], "a gap")
    job.looked()
    for _ in range(4):
        begun = job.now
        while X not in job.queries:
            job.looked()
        pauses.append(job.now - begun)
        job.found(X)._file.fail(job.found(X)._members[X], "still a gap")
        job.looked()
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 4 * pauses[0]


def test_a_batch_of_one_flow_that_fails_is_its_own_failure(job: SimJob) -> None:
    job.looked()
    job.shared().broken(Y)
    assert job.looked(0.5) == {"x": "starting", "y": "failed", "z": "starting"}
    job.looked(3)
    assert job.shared().flows == {X, Z}
    assert job.found(Y).flows == {Y}


def test_when_nobody_knows_whose_failure_it_is_all_try_again_first_then_each_alone(job: SimJob) -> None:
    job.looked()
    job.shared().broken(X, Y)
    assert job.looked(0.5) == {"x": "failed", "y": "failed", "z": "starting"}
    job.looked(5)
    assert job.shared().flows == {X, Y, Z}
    job.shared().broken(X, Y)
    job.looked(0.5)
    job.looked(9)
    assert (job.shared().flows, job.found(X).flows, job.found(Y).flows) == ({Z}, {X}, {Y})


def test_a_server_that_is_away_keeps_them_together(job: SimJob) -> None:
    job.servers.failing = dict.fromkeys((X, Y, Z), Unavailable("away"))
    assert job.looked() == dict.fromkeys("xyz", "failed")
    job.servers.failing = {}
    job.looked(5)
    assert job.shared().flows == {X, Y, Z}


def test_one_that_cannot_begin_keeps_nobody_else_back(job: SimJob) -> None:
    job.servers.failing = {X: NotFound("x")}
    assert job.looked() == {"x": "failed", "y": "running", "z": "running"}


def test_a_function_without_the_flow_s_column_has_a_query_for_each(
    job: SimJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimLinkQuery, "unstartable", FlowsUnknown())
    job.looked()
    monkeypatch.setattr(SimLinkQuery, "unstartable", None)
    assert job.looked() == dict.fromkeys("xyz", "running")
    assert set(job.queries) == {X, Y, Z}


def test_an_accepted_loss_is_passed_over_by_the_flow_alone(job: SimJob) -> None:
    job.looked()
    query = job.shared()
    query._file.fail(query._members[X], "gone")
    job.looked()
    job.state.accept(X, "source 1")
    job.looked(5)
    assert job.found(X).lenient
    assert not job.state.accepted(X)
    job.found(X).committed()
    job.looked()
    job.looked()
    assert query.flows == {X, Y, Z}


def test_a_flow_that_failed_may_be_paused_and_is_tried_at_once_when_resumed(job: SimJob) -> None:
    job.looked()
    query = job.shared()
    query._file.fail(query._members[X], "a gap")
    job.looked()
    job.running[X].again_at = float("inf")
    assert job.looked()["x"] == "failed"
    job.state.pause(X)
    assert job.looked()["x"] == "paused"
    job.state.resume(X)
    assert job.looked()["x"] == "running"
