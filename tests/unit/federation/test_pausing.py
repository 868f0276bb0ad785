"""The job with queries that are only counted: a paused flow has none, and begins again when it is resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syncpoint.federation.flow_plan import Flow
from syncpoint.federation.job import FederationJob
from syncpoint.federation.patterns.registry import links_of
from syncpoint.federation.spec import parse
from syncpoint.federation.state import StateFolder

CONTENT: dict[str, Any] = {
    "version": 1,
    "clusters": {"a": {"endpoint": "a:1"}, "b": {"endpoint": "b:1"}},
    "namespaces": {"shop": {"clusters": ["a", "b"]}},
}


class SimQuery:
    lastProgress = None
    recentProgress: tuple[Any, ...] = ()
    isActive = True
    status = {"message": "Waiting for data to arrive"}

    def stop(self) -> None:
        self.isActive = False


class SimFlows:
    """Two topics, whose flows may begin at once."""

    def flows(self, links: Any) -> list[Flow]:
        return [flow for link in links for flow in link.flows([f"projects/shop/topics/{one}" for one in "xy"])]

    def ensure_target(self, flow: Flow) -> None:
        pass

    def begin_at(self, flow: Flow) -> str:
        return "earliest"


class CountedJob(FederationJob):
    def __init__(self, folder: Path) -> None:
        federation = parse(CONTENT, folder)
        super().__init__(federation, links_of(federation), None, StateFolder(folder))  # type: ignore[arg-type]
        self.begun: list[str] = []

    def _query(self, flow: Flow, start: str, lenient: bool) -> Any:
        self.begun.append(flow.name)
        return SimQuery()

    def looked(self) -> dict[str, str]:
        self._look(SimFlows())  # type: ignore[arg-type]
        return {name: flow.state for name, flow in self.state.flows().items()}


def test_a_paused_flow_stops_alone_and_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    job = CountedJob(tmp_path)
    names = ["shop.a-b.x", "shop.a-b.y", "shop.b-a.x", "shop.b-a.y"]
    assert job.looked() == dict.fromkeys(names, "running")
    queries = {name: one.query for name, one in job.running.items()}
    job.state.pause("shop.a-b.y")
    assert job.looked() == {**dict.fromkeys(names, "running"), "shop.a-b.y": "paused"}
    assert [name for name, query in queries.items() if query is not None and not query.isActive] == ["shop.a-b.y"]
    assert job.looked()["shop.a-b.y"] == "paused"
    assert CountedJob(tmp_path).looked()["shop.a-b.y"] == "paused", "over a restart of the job"
    job.state.resume("shop.a-b.y")
    assert job.looked() == dict.fromkeys(names, "running")
    assert job.begun == [*names, "shop.a-b.y"]


def test_a_flow_that_failed_may_be_paused_and_is_tried_at_once_when_resumed(tmp_path: Path) -> None:
    job = CountedJob(tmp_path)
    job.looked()
    one = job.running["shop.a-b.x"]
    one.query, one.error, one.again_at = None, "a gap", float("inf")
    assert job.looked()["shop.a-b.x"] == "failed"
    job.state.pause("shop.a-b.x")
    assert job.looked()["shop.a-b.x"] == "paused"
    job.state.resume("shop.a-b.x")
    assert job.looked()["shop.a-b.x"] == "running"
