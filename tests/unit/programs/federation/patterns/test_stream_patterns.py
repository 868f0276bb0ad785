"""Tasks with a stream at one end: what they come to, what they are given, and what is wrong with them, by place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.federation.flow_options import reading, writing
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.spec import Runtime, parse
from syncpoint.programs.federation.streams.stream_ends import FileStream, KafkaStream
from syncpoint.programs.federation.streams.stream_queries import FromFiles, FromKafka, ToKafka, stream_query
from syncpoint.programs.federation.transform import CARRIED

T = "projects/p/topics/"
FROM_KAFKA: dict[str, Any] = {
    "pattern": "stream-to-queue",
    "from": {"stream": "lake", "topic": "Orders_1.x"},
    "to": {"cluster": "a", "topic": T + "orders"},
}
FROM_FILES: dict[str, Any] = {
    "pattern": "stream-to-queue",
    "from": {"stream": "drop"},
    "to": {"cluster": "a", "topic": T + "lines"},
}
TO_KAFKA: dict[str, Any] = {
    "pattern": "queue-to-stream",
    "from": {"cluster": "a", "topic": T + "orders"},
    "to": {"stream": "lake", "topic": "out"},
}
LAKE: dict[str, Any] = {"kafka": {"bootstrap": "k1:9092,k2:9092"}}
DROP: dict[str, Any] = {"files": {"path": "incoming", "format": "text"}}


def content(task: dict[str, Any], **streams: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "clusters": {"a": {"endpoint": "a:1"}},
        "streams": {"lake": LAKE, "drop": DROP, **streams},
        "tasks": {"one": task},
    }


def link_of(task: dict[str, Any], folder: Path = Path("/"), **streams: Any) -> FederationLink:
    (link,) = links_of(parse(content(task, **streams), folder))
    return link


def test_a_topic_of_kafka_is_one_flow_whatever_its_name() -> None:
    link = link_of(FROM_KAFKA | {"from": {"stream": "lake", "topic": "Orders_1.x", "partitions": [2, 0]}})
    (flow,) = link.flows([])
    assert (flow.name, flow.source_topic, flow.target_topic) == ("one.Orders_1.x", "Orders_1.x", T + "orders")
    assert (link.partitions, link.single, link.unchanged, link.streams) == ((0, 2), True, False, True)
    assert stream_query(link) is FromKafka
    assert writing(link, "flows.json", "c")["via"] == "lake"


def test_a_folder_is_one_flow() -> None:
    link = link_of(FROM_FILES, Path("/base"))
    (flow,) = link.flows([])
    assert (flow.name, flow.target_topic) == ("one.files", T + "lines")
    assert link.source.endpoint == "/base/incoming"
    assert stream_query(link) is FromFiles


def test_what_goes_to_kafka_is_read_row_by_row_and_not_what_came_from_there() -> None:
    link = link_of(TO_KAFKA)
    (flow,) = link.flows([T + "orders", T + "others"])
    assert (flow.name, flow.source_topic, flow.target_topic) == ("one.orders", T + "orders", "out")
    options = reading(link, Runtime(Path("/")), "flows.json")
    assert (options["columns"], options["notVisited"]) == (",".join(CARRIED), "lake")
    assert stream_query(link) is ToKafka


def test_steps_and_changes_are_those_of_any_task(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"type": "object"}')
    task = {
        **FROM_KAFKA,
        "where": "true",
        "schema": {"type": "json-schema", "file": "s.json"},
        "routes": [{"when": "true", "topic": T + "gold"}],
        "invalid": {"topic": T + "bad"},
    }
    link = link_of(task, tmp_path)
    assert link.steps.topics == (T + "gold", T + "bad")
    assert link.change.where == "true"


def test_secrets_are_named_and_never_given() -> None:
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": {"env": "LAKE_JAAS"},
        "ssl.truststore.password": {"file": "secret/trust"},
        "max.poll.records": 500,
    }
    stream = link_of(FROM_KAFKA, Path("/base"), lake={"kafka": {"bootstrap": "k:9", "options": options}}).source.stream
    assert isinstance(stream, KafkaStream)
    given = stream.spark_options
    assert given["kafka.sasl.jaas.config"] == "${env:LAKE_JAAS}"
    assert given["kafka.ssl.truststore.password"] == "${directory:/base/secret:trust}"
    assert given["kafka.config.providers"] == "directory,env"
    assert (given["kafka.bootstrap.servers"], given["kafka.max.poll.records"]) == ("k:9", "500")
    assert given["kafka.isolation.level"] == "read_committed", "what was aborted is no record"


@pytest.mark.parametrize(
    ("task", "streams", "place", "says"),
    [
        (FROM_KAFKA | {"from": {"stream": "pond", "topic": "o"}}, {}, "tasks.one.from.stream", "choose from drop"),
        (FROM_KAFKA | {"from": {"stream": "lake"}}, {}, "tasks.one.from.topic", "set the topic"),
        (FROM_KAFKA | {"to": {"cluster": "b", "topic": T + "orders"}}, {}, "tasks.one.to.cluster", "unknown cluster"),
        (FROM_KAFKA | {"to": {"cluster": "a", "topic": "o"}}, {}, "tasks.one.to.topic", "not a topic name"),
        (FROM_KAFKA | {"to": {"cluster": "a", "topic": T + "{topic}"}}, {}, "tasks.one.to.topic", "placeholder"),
        (FROM_KAFKA | {"from": {"stream": "drop", "topic": "o"}}, {}, "tasks.one.from.topic", "folder"),
        (FROM_FILES | {"start": "latest"}, {}, "tasks.one.start", "always read whole"),
        (TO_KAFKA | {"to": {"stream": "drop", "topic": "o"}}, {}, "tasks.one.to.stream", "must be Kafka"),
        (TO_KAFKA | {"omit": ["x"]}, {}, "tasks.one", "omit"),
        (FROM_KAFKA, {"a": LAKE}, "streams.a", "a cluster already has this name"),
        (FROM_KAFKA, {"lake": {"kafka": {"bootstrap": "k"}}}, "streams.lake.kafka.bootstrap", "does not match"),
        (FROM_KAFKA, {"lake": {"kafka": {"bootstrap": "k:1", "options": {"sasl.jaas.config": "x"}}}},
         "streams.lake.kafka.options.sasl.jaas.config", "env"),
        (FROM_KAFKA, {"lake": {"kafka": {"bootstrap": "k:1", "options": {"group.id": "x"}}}},
         "streams.lake.kafka.options.group.id", "set by the federation"),
        (FROM_KAFKA, {"drop": {"files": {"path": "x", "format": "csv"}}}, "streams.drop.files.schema", "columns"),
        (FROM_KAFKA, {"drop": {"files": {"path": "x", "format": "json", "schema": "a INT"}}},
         "streams.drop.files.schema", "only csv"),
        (FROM_KAFKA, {"drop": {"files": {"path": "x", "format": "xml"}}}, "streams.drop.files.format", "xml"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_place(task: dict[str, Any], streams: Any, place: str, says: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        link_of(task, **streams)
    assert raised.value.message.startswith(place)
    assert says in str(raised.value)


def test_a_folder_elsewhere_stays_where_it_is() -> None:
    stream = link_of(FROM_FILES, Path("/base"), drop={"files": {"path": "s3a://b/x", "format": "binary"}}).source.stream
    assert stream == FileStream("s3a://b/x", "binary")
