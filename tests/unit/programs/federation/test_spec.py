"""The file: what is right, and what every mistake is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.federation.flow_options import reading, writing
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.spec import FieldChange, load, parse

CLUSTERS: dict[str, Any] = {"eu": {"endpoint": "eu:8085"}, "us": {"endpoint": "us:8085"}}
COPY: dict[str, Any] = {
    "pattern": "replicate",
    "from": {"cluster": "eu", "topic": "projects/shop/topics/orders"},
    "to": {"cluster": "us"},
}


def file(**more: Any) -> dict[str, Any]:
    return {"version": 1, "clusters": CLUSTERS, **more}


def test_two_clusters_on_a_namespace_are_enough() -> None:
    links = links_of(parse(file(namespaces={"shop": {"clusters": ["eu", "us"]}}), Path("/")))
    assert [(one.name, one.source.name, one.target.name, one.origins, one.topics) for one in links] == [
        ("shop.eu-us", "eu", "us", ("",), ("*",)),
        ("shop.us-eu", "us", "eu", ("",), ("*",)),
    ]


def test_what_happens_on_the_way_and_where_it_goes() -> None:
    task = {
        **COPY,
        "to": {"cluster": "us", "topic": "projects/copies/topics/eu-{topic}"},
        "where": "attributes['kind'] = 'order'",
        "select": {"data": "upper(data)"},
        "python": "rules:clean",
        "start": "latest",
        "loss": "accept",
    }
    (link,) = links_of(parse(file(tasks={"orders": task}), Path("/")))
    assert link.change == FieldChange(
        "attributes['kind'] = 'order'", {"data": "upper(data)"}, "rules:clean", "latest", "accept"
    )
    (flow,) = link.flows(["projects/shop/topics/orders", "projects/shop/topics/other", "projects/else/topics/orders"])
    assert (flow.name, flow.source_topic, flow.target_topic) == (
        "orders.orders",
        "projects/shop/topics/orders",
        "projects/copies/topics/eu-orders",
    )


def test_a_file_on_disk_with_its_own_folder_as_base(tmp_path: Path) -> None:
    path = tmp_path / "federation.yaml"
    path.write_text(
        "version: 1\n"
        "clusters:\n"
        "  eu: {endpoint: 'eu:1', tls: {ca: ca.pem}, token: {file: secret}}\n"
        "  us: {endpoint: 'us:1', token: {env: US_TOKEN}}\n"
        "namespaces: {shop: {clusters: [eu, us]}}\n"
        "runtime: {trigger: 1.5s, warm: true, state: here, spark: {spark.ui.enabled: false}, executors: {min: 1}}\n"
    )
    found = load(path)
    assert found.clusters["eu"].tls == {"ca": str(tmp_path / "ca.pem")}
    assert found.clusters["eu"].token == {"file": str(tmp_path / "secret")}
    runtime = found.runtime
    assert (runtime.trigger_s, runtime.warm, runtime.state) == (1.5, True, tmp_path / "here")
    assert (runtime.spark, runtime.executors_min, runtime.executors_max) == ({"spark.ui.enabled": "false"}, 1, 1)


def test_secrets_are_named_and_never_read() -> None:
    clusters = {"eu": {"endpoint": "eu:1", "token": {"env": "EU_TOKEN"}}, "us": {"endpoint": "us:1"}}
    (link, _) = links_of(parse(file(clusters=clusters, namespaces={"shop": {"clusters": ["eu", "us"]}}), Path("/")))
    runtime = parse(file(), Path("/")).runtime
    read, written = reading(link, runtime, "flows.json"), writing(link, "flows.json", "/checkpoint")
    assert read["token.env"] == "EU_TOKEN"
    assert "token.env" not in written
    assert read["origins"] == "original"
    assert read["notVisited"] == "us"
    assert (written["flows"], written["via"], written["here"]) == ("flows.json", "eu", "us")


@pytest.mark.parametrize(
    ("content", "place", "words"),
    [
        ({}, "the file", "required"),
        ({"version": 2, "clusters": CLUSTERS}, "version", "1 was expected"),
        (file(cluster={}), "the file", "'cluster' was unexpected; did you mean 'clusters'?"),
        (file(clusters={"eu": {"endpoint": "eu"}}), "clusters.eu.endpoint", "does not match"),
        (file(clusters={"eu": {"endpoint": "eu:1", "token": "abc"}}), "clusters.eu.token", "is not of type"),
        (
            file(namespaces={"shop": {"clusters": ["eu", "asia"]}}),
            "namespaces.shop.clusters",
            "unknown cluster 'asia'",
        ),
        (file(namespaces={"shop": {"clusters": ["eu"]}}), "namespaces.shop.clusters", "too short"),
        (
            file(namespaces={"shop": {"clusters": ["eu", "us"], "topic": "x"}}),
            "namespaces.shop",
            "did you mean 'topics'?",
        ),
        (
            file(namespaces={"shop": {"clusters": ["eu", "us"], "links": [["eu", "asia"]]}}),
            "namespaces.shop.links",
            "not a link between two of eu, us",
        ),
        (file(tasks={"t": {"pattern": "replicat"}}), "tasks.t.pattern", "did you mean 'replicate'"),
        (file(tasks={"t": {**COPY, "wher": "x"}}), "tasks.t", "'wher' was unexpected; did you mean 'where'?"),
        (file(tasks={"t": {**COPY, "to": {"cluster": "eu"}}}), "tasks.t.to", "must differ from the source"),
        (file(tasks={"t": {**COPY, "from": {"cluster": "eu"}}}), "tasks.t.from", "required"),
        (
            file(
                tasks={
                    "t": {
                        **COPY,
                        "from": {"cluster": "eu", "project": "shop"},
                        "to": {"cluster": "us", "topic": "projects/shop/topics/all"},
                    }
                }
            ),
            "tasks.t.to.topic",
            "several topics would be merged into one",
        ),
        (
            file(tasks={"t": {**COPY, "from": {"cluster": "eu", "topic": "orders"}}}),
            "tasks.t.from.topic",
            "not a topic name",
        ),
        (file(tasks={"t": {**COPY, "start": "now"}}), "tasks.t.start", "does not match"),
        (file(runtime={"idle": "5"}), "runtime.idle", "'5' does not match; it is written like 200ms, 5s, 10m, 1h, 7d"),
        (file(runtime={"executors": {"max": 2}}), "runtime.executors.max", "master: managed"),
        (
            file(runtime={"master": "managed", "executors": {"min": 3, "max": 2}}),
            "runtime.executors",
            "`min` must not exceed `max`",
        ),
        (
            file(namespaces={"shop": {"clusters": ["eu", "us"]}}, tasks={"shop": COPY}),
            "tasks.shop",
            "already has this name",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(content: Any, place: str, words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        links_of(parse(content, Path("/")))
    assert caught.value.field == place
    assert words in caught.value.problem


def test_what_is_no_yaml(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("a: [")
    with pytest.raises(InvalidArgument, match="not YAML"):
        load(tmp_path / "f.yaml")


def test_sql_rules_are_compiled_for_spark_when_the_file_is_read() -> None:
    rules = [{"filter": "amount > @least", "parameters": {"least": 3}}, {"action": "SET region = 'eu'; REMOVE debug"}]
    task = {**COPY, "rules": rules, "rule_failure": "drop"}
    (link,) = links_of(parse(file(tasks={"orders": task}), Path("/")))
    assert [(one.filter, one.action, one.parameters) for one in link.change.rules] == [
        ("amount > @least", "", {"least": 3}),
        ("", "SET region = 'eu'; REMOVE debug", {}),
    ]
    assert not link.change.unchanged
    for rule, place, why in (
        ({"filter": "amount >"}, "filter", "ends too early"),
        ({"filter": "p(name) = 1"}, "filter", "must not depend on the message"),
        ({"action": "SET sys.SequenceNumber = 1"}, "action", "cannot be changed"),
        ({"when": "1=1"}, "", "'when' was unexpected; there are action, filter, parameters"),
    ):
        with pytest.raises(InvalidArgument, match=why) as refused:
            links_of(parse(file(namespaces={"shop": {"clusters": ["eu", "us"], "rules": [rule]}}), Path("/")))
        assert refused.value.field == ".".join(p for p in ("namespaces.shop.rules.0", place) if p)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("projects/shop/topics/ab", "is not a topic name. Names have 3 to 255 letters"),
        ("projects/shop/subscriptions/orders", "in full: projects/PROJECT/topics/NAME."),
        ("orders", "'orders' is not a topic name: must be a full name, such as projects/PROJECT/topics/orders"),
        ("ab", "'ab' is not a topic name: must be a full name, such as projects/PROJECT/topics/ab"),
    ],
)
def test_what_is_no_topic_s_name_is_refused_with_what_would_be_one(name: str, why: str) -> None:
    reading_it = {**COPY, "from": {"cluster": "eu", "topic": name}}
    dropping_there = {**COPY, "pattern": "reduce", "omit": ["x"], "invalid": {"topic": name}}
    for task, place in ((reading_it, "from.topic"), (dropping_there, "invalid.topic")):
        with pytest.raises(InvalidArgument) as refused:
            links_of(parse(file(tasks={"orders": task}), Path("/")))
        assert refused.value.field == f"tasks.orders.{place}"
        assert why in refused.value.message
