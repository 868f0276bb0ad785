"""Topics that a file names and that do not exist: of which it is said, and what the commands show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from syncpoint.programs.cli.main import cli
from syncpoint.programs.federation.flow_plan import absent_topics
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import parse

FILE = """\
version: 1
clusters:
  a: {endpoint: "127.0.0.1:1"}
  b: {endpoint: "127.0.0.1:2"}
tasks:
  copy: {pattern: replicate, from: {cluster: a, topic: projects/shop/topics/orders}, to: {cluster: b}}
"""
SAID = "task copy: a has no topic projects/shop/topics/orders; the flow starts once it exists"


def absent(existing: dict[str, list[str]], tasks: dict[str, Any], **namespaces: Any) -> dict[str, str]:
    """What is said when these clusters have these topics of the project shop."""
    clusters = {name: {"endpoint": f"{name}:1"} for name in "abc"}
    content = {"version": 1, "clusters": clusters, "tasks": tasks, "namespaces": namespaces}
    links = links_of(parse(content, Path()))
    topics = {name: [f"projects/shop/topics/{one}" for one in ids] for name, ids in existing.items()}
    return absent_topics(links, [flow for link in links for flow in link.flows(topics.get(link.source.name, []))])


def copy(source: str, target: str, **keys: Any) -> dict[str, Any]:
    return {"pattern": "replicate", "from": {"cluster": source, **keys}, "to": {"cluster": target}}


def test_a_topic_that_is_named_and_is_missing() -> None:
    task = copy("a", "b", topic="projects/shop/topics/orders")
    assert list(absent({}, {"copy": task})) == ["task copy"]
    assert absent({"a": ["orders"]}, {"copy": task}) == {}


def test_wildcards_may_match_nothing() -> None:
    assert absent({}, {"copy": copy("a", "b", project="shop", topics=["o*", "[xy]"])}) == {}


def test_all_that_are_missing_are_named() -> None:
    said = absent({"a": ["one"]}, {"copy": copy("a", "b", project="shop", topics=["one", "two", "three"])})
    assert said["task copy"].startswith("a has no topics projects/shop/topics/two, projects/shop/topics/three; ")


def test_what_another_flow_creates_is_not_missing() -> None:
    topic = "projects/shop/topics/orders"
    chain = {"first": copy("a", "b", topic=topic), "then": copy("b", "c", topic=topic)}
    assert absent({"a": ["orders"]}, chain) == {}
    assert list(absent({}, chain)) == ["task first", "task then"]
    assert absent({"a": ["orders"]}, {}, shop={"clusters": ["a", "b"], "topics": ["orders"]}) == {}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Servers, "topics", lambda servers, cluster, project: [])
    monkeypatch.setattr(Servers, "able", lambda servers, links: None)
    path = tmp_path / "federation.yaml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize("command", ["plan", "status"])
def test_plan_and_status_say_it(command: str, file: Path) -> None:
    result = CliRunner().invoke(cli, ["federation", command, str(file)], prog_name="syncpoint")
    assert result.exit_code == 0
    assert SAID in result.output


def test_plan_says_it_to_programs(file: Path) -> None:
    result = CliRunner().invoke(cli, ["federation", "plan", str(file), "--format", "json"], prog_name="syncpoint")
    assert json.loads(result.stdout)["absent"] == [SAID]


@pytest.mark.parametrize(
    ("topic", "target", "read"),
    [("orders", "orders", "orders"), ("new-{topic}", "new-orders", "orders"), ("{topic}-{topic}", "a-b-a-b", "a-b"),
     ("new-{topic}", "orders", None), ("{topic}-{topic}", "a-b", None), ("new-{topic}", "new-x", None)],
)  # fmt: skip
def test_the_flow_to_a_topic_is_known_without_the_one_it_reads(topic: str, target: str, read: str | None) -> None:
    topics = ["orders"] if topic == "orders" else ["[!x]*"]
    read_from = {"cluster": "a", "project": "shop", "topics": topics}
    to = {"cluster": "b", "topic": f"projects/there/topics/{topic}"}
    task = {"pattern": "replicate", "from": read_from, "to": to}
    clusters = {name: {"endpoint": f"{name}:1"} for name in "ab"}
    (link,) = links_of(parse({"version": 1, "clusters": clusters, "tasks": {"copy": task}}, Path()))
    found = link.flow_to(f"projects/there/topics/{target}")
    assert (None if found is None else found.source_topic.rpartition("/")[2]) == read
    assert link.flow_to(f"projects/elsewhere/topics/{target}") is None
