"""The steps of patterns on frames that are there: what passes, what is refused and why, and where it goes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_pubsub.json_columns import JsonColumns
from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.spec import parse
from syncpoint.programs.federation.steps.json_objects import NO_OBJECT
from syncpoint.programs.federation.steps.references import tables_of
from syncpoint.programs.federation.steps.step import JSON_END, JSON_FIELDS
from syncpoint.programs.federation.transform import CARRIED, looked_for, prepared

pytestmark = pytest.mark.shows("patterns")

SCHEMA = (
    "message_id string, source bigint, offset bigint, publish_time timestamp, data binary,"
    " attributes map<string,string>, ordering_key string, origin string, visited array<string>"
)
INVALID = "projects/p/topics/invalid"
TARGET = "projects/p/topics/orders"


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Callable[..., list[Any]]:
    """Rows behind a task with these keys, in the order of their offsets; `data`: of messages whose attributes are n."""

    def ran(pattern: str, data: list[bytes], **keys: Any) -> list[Any]:
        rows = sorted(framed(spark, tmp_path, pattern, data, **keys).collect(), key=lambda row: row.offset)
        if pattern == "enrich":  # the same when the source has looked at nothing
            again = framed(spark, tmp_path, pattern, data, looked=False, **keys).collect()
            assert sorted(again, key=lambda row: row.offset) == rows
        return rows

    return ran


def framed(
    spark: SparkSession,
    folder: Path,
    pattern: str,
    data: list[bytes],
    more: dict[str, str] | None = None,
    looked: bool = True,
    **keys: Any,
) -> DataFrame:
    """`more`: attributes of all messages; `looked`: the source has looked for what the flow asks it to."""
    flow = flow_of(folder, pattern, **keys)
    rows: list[tuple[Any, ...]] = [
        (f"m{n}", 1, n, None, one, {"n": str(n), "sys.DeadLetterReason": "older", **(more or {})}, "key", "", [])
        for n, one in enumerate(data)
    ]
    schema = SCHEMA
    if looked and (look := looked_for(flow.link)):
        kinds = {JSON_FIELDS: pa.map_(pa.string(), pa.string()), JSON_END: pa.int32()}
        columns = JsonColumns(look.fields, look.without, pa.schema([(name, kinds[name]) for name in look.columns]))
        found = columns.of(pa.array(data, pa.binary()))
        values = zip(*(found[name].to_pylist() for name in look.columns), strict=True)
        rows = [
            (*row, *(dict(one) if isinstance(one, list) else one for one in some))
            for row, some in zip(rows, values, strict=True)
        ]
        schema += "".join(f", {one} {'int' if one == JSON_END else 'map<string,string>'}" for one in look.columns)
    return prepared(spark.createDataFrame(rows, schema).coalesce(1), flow.link, flow)


def flow_of(folder: Path, pattern: str, **keys: Any) -> Any:
    content = {
        "version": 1,
        "clusters": {"a": {"endpoint": "127.0.0.1:1"}, "b": {"endpoint": "127.0.0.1:2"}},
        "tasks": {"t": {"pattern": pattern, "from": {"cluster": "a", "topic": TARGET}, "to": {"cluster": "b"}, **keys}},
    }
    (link,) = links_of(parse(content, folder))
    (flow,) = link.flows([TARGET])
    return flow


def to_invalid(rows: list[Any]) -> dict[int, str]:
    """Why, by the number of the message, of what went to INVALID."""
    found = {}
    for row in rows:
        if row.topic == INVALID:
            assert row.attributes["sys.DeadLetterSource"] == TARGET
            assert row.attributes["sys.DeadLetterMessageId"] == row.message_id
            found[row.offset] = (
                f"{row.attributes['sys.DeadLetterReason']}: " + (row.attributes["sys.DeadLetterErrorDescription"])
            )
    return found


ORDER = {
    "type": "object",
    "required": ["id", "price"],
    "properties": {"id": {"type": "integer"}, "price": {"type": "number", "minimum": 0}},
}


def test_json_schema_separates_what_fits_from_what_does_not(run: Any, tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text(json.dumps(ORDER))
    data = [
        b'{"id": 1, "price": 2.5}',
        b'{"id": "x", "price": 1}',
        b'{"id": 1}',
        b"nothing",
        b"\xff\xfe",
        b"",
        b"[" * 9999,
        b'\xef\xbb\xbf{"id": 1, "price": 1}',
        b'{"id": 1, "price": NaN}',
    ]
    schema = {"type": "json-schema", "file": "order.json"}
    rows = run("validate", data, schema=schema, invalid={"topic": INVALID})
    assert [row.data for row in rows] == data  # a letter has the data that were refused
    reasons = to_invalid(rows)
    assert sorted(reasons) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert all(reason.startswith("ValidationFailed: ") for reason in reasons.values())
    assert reasons[1] == "ValidationFailed: id: 'x' is not of type 'integer'"
    assert reasons[2] == "ValidationFailed: 'price' is a required property"
    assert rows[0].topic == TARGET
    assert rows[0].attributes == {"n": "0", "sys.DeadLetterReason": "older"}
    dropped = run("validate", data, schema=schema, invalid="drop")
    assert [row.offset for row in dropped] == [0]
    assert tuple(dropped[0].__fields__) == CARRIED


def test_avro_and_protobuf_are_checked_as_servers_check_them(run: Any, tmp_path: Path) -> None:
    definition = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "order.avsc").write_text(json.dumps(definition))
    (tmp_path / "order.proto").write_text('syntax = "proto3"; message Order { int64 id = 1; }')
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(definition), {"id": 70_000})
    avro = {"type": "avro", "file": "order.avsc"}
    good, longer, cut = written.getvalue(), written.getvalue() + b"x", written.getvalue()[:-1]
    rows = run("validate", [good, longer, cut], schema=avro, invalid={"topic": INVALID})
    assert sorted(to_invalid(rows)) == [1, 2]
    rows = run("validate", [b'{"id": 3}', b'{"id": "3"}'], schema={**avro, "encoding": "json"}, invalid="drop")
    assert [row.offset for row in rows] == [0]
    proto = {"type": "protobuf", "file": "order.proto"}
    rows = run("validate", [b"\x08\x05", b"\x10\x05", b"\x08"], schema=proto, invalid={"topic": INVALID})
    assert sorted(to_invalid(rows)) == [1, 2]


def test_fields_are_left_out_and_nothing_passes_that_may_hide_them(run: Any) -> None:
    data = [
        b'{"id": 12345678901, "card": "4111", "who": {"name": "Z", "card": "4111", "at": {"zip": "1", "city": "B"}},'
        b' "x": [1, {"a": null}]}',
        b'{"id": 2}',
        b'{"who": null}',
        b'{"who": [{"card": "4111"}]}',
        b'[{"card": "4111"}]',
        b'{"who": {"at": "zip 4111"}}',
        b'{"it\'s": 1, "card": {}}',
        b'{"id": 3} {"card": "4111"}',
        b'{"id": 4, "name": "\xff"}',
    ]
    rows = run(
        "reduce", data, omit=["card", "who.card", "who.at.zip"], omit_attributes=["n"], invalid={"topic": INVALID}
    )
    assert to_invalid(rows) == {
        3: "ReductionFailed: who is not an object",
        4: f"ReductionFailed: {NO_OBJECT}",
        5: "ReductionFailed: who.at is not an object",
        7: f"ReductionFailed: {NO_OBJECT}",
        8: f"ReductionFailed: {NO_OBJECT}",
    }
    passed = {row.offset: json.loads(row.data) for row in rows if row.topic == TARGET}
    assert passed[0] == {"id": 12345678901, "who": {"name": "Z", "at": {"city": "B"}}, "x": [1, {"a": None}]}
    assert passed[1] == {"id": 2}
    assert passed[2] == {"who": None}
    assert passed[6] == {"it's": 1}
    assert "n" not in rows[0].attributes
    assert rows[3].attributes["n"] == "3"
    rows = run("reduce", data, keep=["id"], invalid="drop")
    assert [json.loads(row.data) for row in rows] == [{"id": 12345678901}, {"id": 2}, {}, {}, {}, {}]


def test_a_letter_never_has_more_attributes_than_a_message_may_have(run: Any) -> None:
    """A server would refuse it, and with it the whole batch, again and again."""
    for many, lettered in ((95, True), (96, False)):
        more = {f"a{n}": "" for n in range(many)}
        (row,) = run("reduce", [b"?"], more=more, omit=["x"], invalid={"topic": INVALID})
        assert row.topic == INVALID
        assert len(row.attributes) == (100 if lettered else many + 2)
        assert row.attributes["sys.DeadLetterReason"] == ("ReductionFailed" if lettered else "older")


def test_fields_are_left_out_by_spark_alone(spark: SparkSession, tmp_path: Path) -> None:
    frame = framed(spark, tmp_path, "reduce", [b'{"a":1,"bb":22}', b"?", b'{"a":1}'], omit=["bb"], invalid="drop")
    assert [bytes(row.data) for row in frame.collect()] == [b'{"a":1}', b'{"a":1}']
    assert "ArrowEvalPython" not in frame._jdf.queryExecution().executedPlan().toString()


def test_fields_are_added_from_tables_that_are_read_again_when_they_change(
    run: Any, spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "airlines"
    table.mkdir()
    (table / "one.csv").write_text("carrier,name,fleet\nUA,United,3\nUA,Other,2\nAA,American,\n")
    planes = tmp_path / "planes"
    spark.createDataFrame([("N1", "A", 2001), ("N1", "B", 2002)], "tail string, kind string, year int").write.parquet(
        str(planes)
    )
    lookups: list[dict[str, Any]] = [
        {
            "table": "airlines",
            "format": "csv",
            "match": {"carrier": "flight.carrier"},
            "take": {"name": "airline", "fleet": "fleet"},
            "types": {"fleet": "INT"},
        },
        {
            "table": "planes",
            "format": "parquet",
            "match": {"tail": "tail", "kind": "k'ind"},
            "take": {"year": "year"},
            "missing": "keep",
        },
    ]
    data = [
        b'{"flight": {"carrier": "UA"}, "tail": "N1", "k\'ind": "B", "airline": "old"}',
        b'{"flight": {"carrier": "AA"}}',
        b'{"flight": {"carrier": "ZZ"}, "x": 1.5}',
        b"nothing",
    ]
    rows = run("enrich", data, lookups=lookups, invalid={"topic": INVALID})
    assert [row.offset for row in rows] == [0, 1, 2, 3]
    assert json.loads(rows[0].data) == {
        "flight": {"carrier": "UA"}, "tail": "N1", "k'ind": "B", "airline": "United", "fleet": 3, "year": 2002
    }  # fmt: skip
    assert json.loads(rows[1].data) == {"flight": {"carrier": "AA"}, "airline": "American"}
    assert json.loads(rows[2].data) == {"flight": {"carrier": "ZZ"}, "x": 1.5}
    assert to_invalid(rows) == {3: f"EnrichmentFailed: {NO_OBJECT}"}

    (table / "two.csv").write_text("carrier,name,fleet\nZZ,Zed,9\n")
    tables = tables_of(spark)
    changed = tables.look(1e12) + tables.look(2e12)  # whoever sees it first, this or the thread
    assert changed in ([table], [])
    lookups[0]["missing"] = "refuse"
    rows = run("enrich", data, lookups=lookups[:1], invalid={"topic": INVALID})
    assert json.loads(rows[2].data)["airline"] == "Zed"
    (table / "two.csv").unlink()
    tables.look(3e12)
    rows = run("enrich", data, lookups=lookups[:1], invalid={"topic": INVALID})
    assert to_invalid(rows)[2] == "EnrichmentFailed: airlines has no row for the key of this message"
    frame = framed(spark, tmp_path, "enrich", data, lookups=lookups[:1], invalid="drop")
    assert "BroadcastHashJoin" in frame._jdf.queryExecution().executedPlan().toString()


def test_a_field_is_added_whatever_an_object_looks_like(run: Any, spark: SparkSession, tmp_path: Path) -> None:
    """Behind the last field, all bytes before it staying as they are, where that is possible; else written anew."""
    (tmp_path / "names.json").write_text('{"id": "1", "name": "o\\"n\\\\e", "size": 2.5, "none": null}\n')
    take = {"name": "name", "size": "größe", "none": "none"}
    lookups = [{"table": "names.json", "format": "json", "match": {"id": "id"}, "take": take}]
    added = {"name": 'o"n\\e', "größe": 2.5}
    tail = ',"name":"o\\"n\\\\e","größe":2.5}'.encode()
    kept = [
        b'{"id":1',
        b'{"id" : "1", "x": 2.50, "deep": {"name": {}}',
        b'{\n  "id": "1",\n  "n": [1, {"a": "}"}]\n',
        '{"é": "ü", "id": 1'.encode(),
    ]
    objects = [
        b'{"id":1,"name":"old","x":1}',
        b'{"id":1,"name":null}',
        b'{"id":1,"n\\u0061me":"old"}',
    ]
    rest = [b"{}", b"{ }", b'{"id":2,"n":2.50}\n', b'{"name":"old", "n":2.50}']
    wrong = [
        b"", b"1", b"{'id':1}", b'"}"', b'[{"id":1}]', b'{"id":1', b'{"id":"}', b'{"id":1,}', b'{"a":{"id":1}',
        b'{"id":3,"id":1}', b'{"id":1,"name":"a","name":"b"}', b"\xff}", b'{"id":1} x}', b'{"id":1}, "y": {"z": 2}',
        b'{"id":1}\n{"id":2}', b'{"id":1}] x', b'{"id":1]', b'{"id":1x', b'{"id":1,"none":"a"}}',
        b'{"id":1,"none":"a"}\n{"id":2,"none":"b"}', b'{"none":"old","id":1} x}', b'{"id":1},"the data end here"]',
    ]  # fmt: skip
    data = [*(one + b"}" for one in kept), kept[0] + b"}  ", kept[1] + b"} \r\n", *objects, *rest, *wrong]
    found = [row.data for row in run("enrich", data, lookups=lookups, invalid={"topic": INVALID})]
    assert found[:6] == [one + tail for one in (*kept, *kept[:2])]
    for before, after in zip(objects, found[6:9], strict=True):
        fields = {"x": 1} if b'"x":1' in before else {}
        assert json.loads(after) == {"id": 1, **fields, **added}, before
    assert found[9:] == [*rest, *wrong], "where nothing is added, all stays"
    (tmp_path / "empty.json").write_text('{"name": "", "new": "x"}\n')
    renamed = {"table": "empty.json", "format": "json", "match": {"name": "name"}, "take": {"new": "name"}}
    without, empty = (
        row.data for row in run("enrich", [b'{"id":1}', b'{"name":""}'], lookups=[renamed], invalid="drop")
    )
    assert (without, empty) == (b'{"id":1}', b'{"name":"x"}'), "a field that is not there is not an empty one"
    plan = framed(spark, tmp_path, "enrich", data, lookups=lookups, invalid="drop")._jdf.queryExecution().executedPlan()
    assert not [one for one in ("from_json", "lambda", "Python") if one in plan.toString()], "rows are copied for it"


def test_tables_of_csv_are_text_unless_types_are_named(run: Any, tmp_path: Path) -> None:
    """As RFC 4180 writes them: quotes are doubled, a value in quotes may have commas and lines."""
    rows = ["zip,city,code,size", '01234,"Adams, ""the"" old\nand new",007,2.50', "1234,Bern,8,n/a"]
    (tmp_path / "places.csv").write_text("\n".join(rows) + "\n")
    take = {"city": "city", "code": "code", "size": "size"}
    lookup = {"table": "places.csv", "format": "csv", "match": {"zip": "zip"}, "take": take}
    data = [b'{"zip":"01234"}', b'{"zip":1234}', b'{"zip":"1"}']
    (first, second, third) = (json.loads(row.data) for row in run("enrich", data, lookups=[lookup], invalid="drop"))
    assert first == {"zip": "01234", "city": 'Adams, "the" old\nand new', "code": "007", "size": "2.50"}
    assert second == {"zip": 1234, "city": "Bern", "code": "8", "size": "n/a"}
    assert third == {"zip": "1"}
    typed = {**lookup, "types": {"code": "INT", "size": "DOUBLE"}}
    (first, second, _) = (json.loads(row.data) for row in run("enrich", data, lookups=[typed], invalid="drop"))
    assert (first["code"], first["size"]) == (7, 2.5)
    assert second == {"zip": 1234, "city": "Bern", "code": 8}
    with pytest.raises(FailedPrecondition, match=r"places.csv has no column ctiy; it has zip, city, code, size"):
        run("enrich", data, lookups=[{**lookup, "take": {"ctiy": "city"}}], invalid="drop")
    (tmp_path / "deep.json").write_text('{"zip": "1", "at": {"x": 1}}\n')
    deep = {**lookup, "table": "deep.json", "format": "json", "take": {"at": "at"}}
    with pytest.raises(FailedPrecondition, match=r"the column at of the table .*deep.json is not a scalar"):
        run("enrich", data, lookups=[deep], invalid="drop")


def test_the_first_true_condition_says_where_a_message_goes(run: Any) -> None:
    gold, rest = "projects/p/topics/gold", "projects/q/topics/rest"
    routes = [
        {"when": "CAST(attributes['n'] AS INT) >= 3", "topic": gold},
        {"when": "CAST(attributes['n'] AS INT) >= 1", "topic": rest},
    ]
    data = [b"0", b"1", b"2", b"3", b"4"]
    rows = run("route", data, routes=routes)
    assert [row.topic for row in rows] == [TARGET, rest, rest, gold, gold]
    rows = run("route", data, routes=routes, otherwise="drop")
    assert [row.topic for row in rows] == [rest, rest, gold, gold]
    rows = run("route", data, routes=routes[:1], otherwise={"topic": rest})
    assert [row.topic for row in rows] == [rest, rest, rest, gold, gold]
    with pytest.raises(InvalidArgument, match=r"routes\.0\.when"):
        run("route", data, routes=[{"when": "nothing_such = 1", "topic": gold}])


def test_all_steps_follow_each_other(run: Any, tmp_path: Path) -> None:
    """A task may validate, add, leave out and route at once; what the first step refuses is no affair of the others."""
    (tmp_path / "order.json").write_text(json.dumps(ORDER))
    (tmp_path / "names.json").write_text('{"id": 1, "name": "one"}\n')
    gold = "projects/p/topics/gold"
    rows = run(
        "enrich",
        [b'{"id": 1, "price": 5}', b'{"id": 2, "price": 50}', b'{"id": "1"}'],
        schema={"type": "json-schema", "file": "order.json"},
        lookups=[{"table": "names.json", "format": "json", "match": {"id": "id"}, "take": {"name": "name"}}],
        omit=["price"],
        routes=[{"when": "get_json_object(CAST(data AS STRING), '$.name') = 'one'", "topic": gold}],
        invalid={"topic": INVALID},
    )
    assert [(row.topic, row.data) for row in rows] == [
        (gold, b'{"id":1,"name":"one"}'),
        (TARGET, b'{"id":2}'),
        (INVALID, b'{"id": "1"}'),
    ]


def test_rows_of_many_flows_go_to_topics_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    """One query for all topics of a task: what a row is of stands in its column `flow`."""
    content = {
        "version": 1,
        "clusters": {"a": {"endpoint": "127.0.0.1:1"}, "b": {"endpoint": "127.0.0.1:2"}},
        "tasks": {
            "t": {
                "pattern": "reduce",
                "from": {"cluster": "a", "project": "p", "topics": ["*"]},
                "to": {"cluster": "b", "topic": "projects/q/topics/eu-{topic}-copy"},
                "omit": ["card"],
                "invalid": {"topic": INVALID},
            }
        },
    }
    (link,) = links_of(parse(content, tmp_path))
    flows = link.flows(["projects/p/topics/orders", "projects/p/topics/refunds"])
    rows = [
        (f"m{n}", n, 0, None, data, {"n": str(n)}, "key", "", [], flow.name)
        for n, (flow, data) in enumerate((flow, data) for flow in flows for data in (b'{"card":1}', b"no JSON"))
    ]
    found = prepared(spark.createDataFrame(rows, f"{SCHEMA}, flow string"), link, None).collect()
    assert {(row.flow, row.topic) for row in found if row.topic != INVALID} == {
        (flow.name, flow.target_topic) for flow in flows
    }
    letters = {(row.flow, row.attributes["sys.DeadLetterSource"]) for row in found if row.topic == INVALID}
    assert letters == {(flow.name, flow.source_topic) for flow in flows}
