"""Tasks of the patterns that work on messages: what they come to, and what is wrong with them, by place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.federation.flow_options import reading
from syncpoint.programs.federation.flow_starts import FlowStart
from syncpoint.programs.federation.link_query import shared_flow
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.spec import Runtime, parse
from syncpoint.programs.federation.transform import CARRIED

T = "projects/p/topics/"
DROPPED = {"invalid": "drop"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.json").write_text('{"type": "object"}')
    (tmp_path / "bad.json").write_text('{"type": 7}')
    (tmp_path / "r.avsc").write_text('{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}')
    (tmp_path / "table").mkdir()
    return tmp_path


def links(folder: Path, pattern: str, **keys: Any) -> list[Any]:
    task = {"pattern": pattern, "from": {"cluster": "a", "topic": T + "sales"}, "to": {"cluster": "b"}, **keys}
    clusters = {name: {"endpoint": f"{name}:1"} for name in "abc"}
    return links_of(parse({"version": 1, "clusters": clusters, "tasks": {"one": task}}, folder))


def test_steps_are_in_their_order_and_topics_are_known(folder: Path) -> None:
    (link,) = links(
        folder,
        "route",
        routes=[{"when": "true", "topic": T + "gold"}],
        otherwise={"topic": T + "rest"},
        schema={"type": "json-schema", "file": "s.json"},
        lookups=[{"table": "table", "format": "json", "match": {"k": "f"}, "take": {"v": "w"}}],
        omit=["x"],
        invalid={"topic": T + "refused"},
    )
    assert link.steps.topics == (T + "gold", T + "rest", T + "refused")
    assert link.steps.summary == (
        "validate with json-schema s.json; add w from table; omit x; to p/gold where true, else to p/rest;"
        " refused messages to p/refused"
    )
    (flow,) = link.flows([T + "sales"])
    assert reading(link, Runtime(folder), "flows.json")["columns"] == ",".join(CARRIED)
    assert shared_flow(flow, FlowStart("earliest")).target == ""  # each row says where it goes


def test_what_goes_to_one_topic_alone_says_so_once(folder: Path) -> None:
    (link,) = links(folder, "reduce", omit=["x"], invalid="drop")
    (flow,) = link.flows([T + "sales"])
    assert shared_flow(flow, FlowStart("earliest")).target == T + "sales"


def test_each_region_has_a_link(folder: Path) -> None:
    keys = {"from": {"clusters": ["a", "b"], "topic": T + "sales"}, "to": {"cluster": "c", "topic": T + "all"}}
    found = links(folder, "consolidate", **keys, where="true")
    assert [(one.name, one.source.name, one.target.name) for one in found] == [("one.a", "a", "c"), ("one.b", "b", "c")]
    assert [one.steps.summary for one in found] == ["region = a", "region = b"]
    assert {one.change.where for one in found} == {"true"}
    assert [one.flows([T + "sales"])[0].name for one in found] == ["one.a.sales", "one.b.sales"]


SCHEMA = {"schema": {"type": "json-schema", "file": "s.json"}}
NORMAL: dict[str, Any] = {
    "schema": "r.avsc", "inputs": {"one": {"format": "json"}}, "output": {"format": "json"}, **DROPPED
}  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "keys", "place", "says"),
    [
        ("validate", DROPPED, "tasks.one", "'schema' is a required property"),
        ("validate", SCHEMA, "tasks.one.invalid", "required for messages"),
        ("validate", {**SCHEMA, "invalid": "keep"}, "tasks.one.invalid", "drop"),
        ("validate", {**SCHEMA, "invalid": {"topic": "bad"}}, "tasks.one.invalid.topic", "not a topic name"),
        ("validate", {"schema": {"type": "xml", "file": "s"}, **DROPPED}, "tasks.one.schema.type", "xml"),
        ("validate", {"schema": {"type": "avro", "file": "none"}, **DROPPED}, "tasks.one.schema.file", "cannot be"),
        ("validate", {"schema": {"type": "avro", "file": "s.json"}, **DROPPED}, "tasks.one.schema.file", "s.json"),
        ("validate", {"schema": {"type": "json-schema", "file": "bad.json"}, **DROPPED}, "tasks.one.schema.file", "no"),
        ("reduce", DROPPED, "tasks.one", "needs at least one of"),
        ("reduce", {"omit": ["x"]}, "tasks.one.invalid", "required for messages"),
        (
            "enrich",
            {"lookups": [{"table": "gone", "format": "csv", "match": {"a": "b"}, "take": {"c": "d"}}], **DROPPED},
            "tasks.one.lookups.0.table",
            "there is no",
        ),
        ("enrich", {"lookups": [{"table": "table", "format": "csv", "take": {"c": "d"}}], **DROPPED}, "", "'match"),
        ("route", {}, "tasks.one", "'routes' is a required property"),
        ("route", {"routes": [{"when": "true", "topic": "x"}]}, "tasks.one.routes.0.topic", "not a topic name"),
        ("reduce", {"omit": ["x"], "otherwise": "drop", **DROPPED}, "tasks.one.otherwise", "must not be empty"),
        ("normalise", {**NORMAL, "inputs": {**NORMAL["inputs"], "b": {"format": "json"}}}, "tasks.one.by", "several"),
        ("normalise", {**NORMAL, "inputs": {"one": {"format": "csv"}}}, "tasks.one.inputs.one.columns", "columns"),
        ("normalise", {**NORMAL, "inputs": {"one": {"format": "avro"}}}, "tasks.one.inputs.one.file", "definition"),
        ("normalise", {**NORMAL, "schema": "s.json"}, "tasks.one.schema", "object"),
        (
            "normalise",
            {**NORMAL, "inputs": {"one": {"format": "json", "fields": {"it": "x"}}}},
            "tasks.one.inputs.one.fields",
            "no field 'it'",
        ),
        (
            "consolidate",
            {"from": {"clusters": ["a"], "topic": T + "sales"}, "to": {"cluster": "a", "topic": T + "sales"}},
            "tasks.one.to.topic",
            "choose another topic",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(
    folder: Path, pattern: str, keys: dict[str, Any], place: str, says: str
) -> None:
    with pytest.raises(InvalidArgument, match=says) as error:
        links(folder, pattern, **keys)
    assert place in str(error.value)


def test_the_source_looks_for_what_is_compared_and_added(folder: Path) -> None:
    """Where data come to the step as they were read, and options can name the fields."""
    lookup = {"table": "table", "format": "json", "match": {"k": "a.f"}, "take": {"v": "w", "x": "y"}}
    more = {"table": "table", "format": "json", "match": {"k": "a.f", "l": "g"}, "take": {"v": "z"}}

    def read(**keys: Any) -> dict[str, str]:
        (link,) = links(folder, "enrich", **DROPPED, **keys)
        return reading(link, Runtime(folder), "flows.json", shared=True)

    found = read(lookups=[lookup, more])
    assert found["columns"] == ",".join((*CARRIED, "json_end", "json_fields", "flow"))
    assert (found["jsonFields"], found["jsonWithout"]) == ("a.f,g", "w,y,z")
    by_attributes = {"table": "table", "format": "json", "match_attributes": {"k": "a"}, "take": {"v": "w"}}
    assert read(lookups=[by_attributes])["columns"] == ",".join((*CARRIED, "json_end", "flow"))
    plain = ",".join((*CARRIED, "flow"))
    for keys in (
        {"lookups": [lookup], "where": "true"},
        {"lookups": [{**lookup, "take": {"v": "a,b"}}]},
        {"lookups": [{**lookup, "match": {f"k{n}": f"f{n}" for n in range(33)}}]},
        {"lookups": [lookup], "schema": {"type": "json-schema", "file": "s.json"}},
    ):
        assert read(**keys)["columns"] == plain
