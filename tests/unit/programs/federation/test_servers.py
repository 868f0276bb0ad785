"""What is asked of servers: where a flow without a checkpoint begins, how far flows are; answers are given by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyspark_pubsub.offsets import Offsets
from syncpoint.base.model.errors import InvalidArgument, PermissionDenied, Unavailable
from syncpoint.programs.federation.flow_plan import Flow
from syncpoint.programs.federation.flow_starts import FlowStart, begin_at, starts
from syncpoint.programs.federation.job import _error_text
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.servers import Servers, read_token
from syncpoint.programs.federation.spec import FederatedCluster, parse
from syncpoint.wire.protobuf.messages import pipeline

TOPIC = "projects/shop/topics/orders"
SECRET = "nobody-sees-this"


class Answers(Servers):
    """Servers that say what a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = pipeline.Positions(topic=TOPIC, topic_incarnation=3, universe="ab")
        self.links = pipeline.ListLinksResponse()
        self.cursors = pipeline.ListCursorsResponse()
        self.down: set[str] = set()
        self.denied: set[str] = set()
        self.calls: list[str] = []

    def call(self, cluster: FederatedCluster, method: str, request: Any) -> Any:
        self.calls.append(method)
        if method in self.denied and getattr(request, "project", ""):
            raise PermissionDenied("not of the whole project")
        if cluster.name in self.down:
            raise Unavailable(f"{cluster.name} is away")
        return {"GetPositions": self.positions, "ListLinks": self.links, "ListCursors": self.cursors}[
            method.partition(".")[2]
        ]


@pytest.fixture
def flow() -> Flow:
    content = {
        "version": 1,
        "clusters": {"a": {"endpoint": "a:1"}, "b": {"endpoint": "b:1"}},
        "tasks": {
            "copy": {
                "pattern": "replicate",
                "from": {"cluster": "a", "topic": TOPIC},
                "to": {"cluster": "b"},
                "start": "latest",
            }
        },
    }
    (link,) = links_of(parse(content, Path("/")))
    (found,) = link.flows([TOPIC])
    return found


@pytest.fixture
def servers() -> Answers:
    return Answers()


def test_a_flow_that_has_copied_nothing_begins_where_the_file_says(servers: Answers, flow: Flow) -> None:
    servers.positions.sources.add(source=1, end=9)
    assert begin_at(servers, flow) == "latest"


def test_a_flow_without_a_checkpoint_begins_where_its_target_is(servers: Answers, flow: Flow) -> None:
    """Also behind a sealed source it has left, and at the oldest message where those it wants are gone."""
    for source, begin, end, sealed in ((1, 0, 50, True), (2, 0, 30, False), (7, 20, 40, False)):
        servers.positions.sources.add(source=source, chain=source // 5, begin=begin, end=end, sealed=sealed)
    link = servers.links.links.add(name=flow.name, source_topic="ab/3")
    link.committed.add(source=2, chain=0, begin=0, end=12)
    link.committed.add(source=7, chain=1, begin=0, end=15)
    assert json.loads(begin_at(servers, flow)) == {"1": 50, "2": 12, "7": 20}


def test_a_topic_that_was_created_again_is_not_begun_in_the_middle(servers: Answers, flow: Flow) -> None:
    servers.positions.sources.add(source=2, end=30)
    link = servers.links.links.add(name=flow.name, source_topic="ab/2")
    link.committed.add(source=2, end=12)
    assert begin_at(servers, flow) == "latest"


def test_all_that_was_copied_is_gone_at_the_source(servers: Answers, flow: Flow) -> None:
    servers.positions.sources.add(source=9, chain=4, end=5)
    servers.links.links.add(name=flow.name, source_topic="ab/3").committed.add(source=2, chain=0, end=12)
    assert begin_at(servers, flow) == "earliest"


def test_a_flow_goes_on_where_its_target_is_with_what_it_takes_to_see_a_loss(servers: Answers, flow: Flow) -> None:
    """A source that is gone is still named, so that the source says whether all of it was read."""
    servers.positions.sources.add(source=7, epoch=2, chain=1, begin=20, end=40)
    link = servers.links.links.add(name=flow.name, source_topic="ab/3")
    link.committed.add(source=7, chain=1, begin=0, end=15)
    link.committed.add(source=2, chain=0, begin=0, end=12)
    at = json.loads(starts(servers, [flow])[flow.name].offsets)  # type: ignore[union-attr]
    assert (at["sources"], at["places"]) == ({"2": 12, "7": 15}, {"2": [0, 0], "7": [2, 1]})
    assert Offsets.from_json(at).ranges() == []


def test_a_flow_that_has_begun_and_copied_nothing_goes_on_where_its_cursor_is(servers: Answers, flow: Flow) -> None:
    """Not at `latest` again. A source that is not waiting was read to its end, or is new."""
    for source, end in ((1, 50), (2, 30)):
        servers.positions.sources.add(source=source, end=end)
    cursor = servers.cursors.cursors.add(name=flow.name, topic=TOPIC)
    cursor.ranges.add(source=2, begin=12, end=30)
    cursor.ranges.add(source=3, begin=0, end=4)
    at = json.loads(starts(servers, [flow])[flow.name].offsets)  # type: ignore[union-attr]
    assert at["sources"] == {"1": 50, "2": 12, "3": 0}
    assert servers.calls.index("LogReader.GetPositions") < len(servers.calls) - 1 - servers.calls[::-1].index(
        "LogReader.ListCursors"
    )


def test_new_flows_are_asked_about_together(servers: Answers, flow: Flow) -> None:
    flows = [*flow.link.flows([TOPIC]), *[Flow(f"copy.{n}", flow.link, f"{TOPIC}{n}", "t") for n in range(9)]]
    assert set(starts(servers, flows).values()) == {FlowStart("latest")}
    assert servers.calls == ["LogReader.ListCursors", "EpochWriter.ListLinks"]
    servers.down = {"b"}
    assert {type(one) for one in starts(servers, flows).values()} == {Unavailable}


def test_progress_is_what_both_ends_say(servers: Answers, flow: Flow) -> None:
    servers.cursors.cursors.add(name="of somebody else", lag_messages=1)
    servers.cursors.cursors.add(name=flow.name, lag_messages=7, lag_bytes=700)
    link = servers.links.links.add(name=flow.name, rows=5, bytes=50, epochs=2, duplicates_dropped=1, gaps_refused=1)
    link.refused.add(source=4, begin=5, end=9)
    link.skipped.add(source=3, begin=0, end=2)
    progress = servers.progress(flow)
    assert (progress.lag, progress.lag_bytes, progress.rows, progress.bytes) == (7, 700, 5, 50)
    assert (progress.epochs, progress.duplicates_dropped, progress.gaps_refused, progress.skipped) == (2, 1, 1, 2)
    assert progress.gap == "source 4: 5 to 8"


def test_who_does_not_answer_is_reported(servers: Answers, flow: Flow) -> None:
    servers.down = {"a"}
    assert servers.progress(flow).lag is None
    assert "a is away" in servers.progress(flow).error
    servers.down = {"b"}
    assert "b is away" in servers.progress(flow).error


def test_a_secret_that_is_not_there_is_reported_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(SECRET + "\n")
    assert read_token(FederatedCluster("b", "b:1", token={"file": str(tmp_path / "token")})) == SECRET
    monkeypatch.setenv("B_TOKEN", SECRET)
    assert read_token(FederatedCluster("b", "b:1", token={"env": "B_TOKEN"})) == SECRET
    monkeypatch.delenv("B_TOKEN")
    with pytest.raises(InvalidArgument, match="B_TOKEN"):
        read_token(FederatedCluster("b", "b:1", token={"env": "B_TOKEN"}))
    with pytest.raises(InvalidArgument, match="none"):
        read_token(FederatedCluster("b", "b:1", token={"file": str(tmp_path / "none")}))


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("plain", "plain"),
        (
            "An error occurred while calling o7.start.\n: org.apache.spark.X: no such thing\n\tat a.b(c:1)",
            "org.apache.spark.X: no such thing",
        ),
        (
            "[STREAM_FAILED] Query\nTraceback\n  File x\npyspark_pubsub.errors.DataLossError: they are gone\n",
            "pyspark_pubsub.errors.DataLossError: they are gone",
        ),
    ],
)
def test_what_a_person_needs_of_an_exception_of_spark(text: str, reported: str) -> None:
    assert _error_text(RuntimeError(text)) == reported


def many(count: int) -> list[Flow]:
    """Flows of one link."""
    content = {
        "version": 1,
        "clusters": {"a": {"endpoint": "a:1", "token": {"env": "A"}}, "b": {"endpoint": "b:1"}},
        "tasks": {"all": {"pattern": "replicate", "from": {"cluster": "a", "project": "shop"}, "to": {"cluster": "b"}}},
    }
    (link,) = links_of(parse(content, Path("/")))
    return link.flows([f"projects/shop/topics/t{number:03}" for number in range(count)])


def test_many_flows_cost_two_calls(servers: Answers) -> None:
    flows = many(300)
    for number, flow in enumerate(flows):
        servers.cursors.cursors.add(name=flow.name, lag_messages=number, lag_bytes=10 * number)
        servers.links.links.add(name=flow.name, rows=7 * number)
    found = servers.progress_of(flows)
    assert [(one.flow, one.lag, one.lag_bytes, one.rows) for one in found] == [
        (flow, number, 10 * number, 7 * number) for number, flow in enumerate(flows)
    ]
    assert sorted(servers.calls) == ["EpochWriter.ListLinks", "LogReader.ListCursors"]


def test_flows_that_have_not_begun_are_asked_about_in_turns(servers: Answers) -> None:
    flows = many(75)
    servers.positions.sources.add(source=1, begin=0, end=4, mean_bytes=10)
    seen = [[one.lag for one in servers.progress_of(flows, 30)] for _ in range(3)]
    assert [(lags.count(4), lags.count(None)) for lags in seen] == [(30, 45), (60, 15), (75, 0)]
    assert servers.calls.count("LogReader.GetPositions") == 90
    assert [one.lag for one in Answers.progress_of(servers, flows)] == [4] * 75
    assert servers.calls.count("LogReader.GetPositions") == 165


def test_servers_that_are_silent_or_allow_topics_alone(servers: Answers) -> None:
    flows = many(3)
    for flow in flows:
        servers.cursors.cursors.add(name=flow.name, lag_messages=5)
        servers.links.links.add(name=flow.name, rows=2)
    servers.denied = {"LogReader.ListCursors"}
    assert [(one.lag, one.rows) for one in servers.progress_of(flows)] == [(5, 2)] * 3
    servers.down = {"a"}
    assert [(one.lag, one.rows, list(one.silent)) for one in servers.progress_of(flows)] == [(None, 2, ["a"])] * 3
    servers.down = {"b"}
    assert [(one.lag, one.rows, list(one.silent)) for one in servers.progress_of(flows)] == [(5, 0, ["b"])] * 3
