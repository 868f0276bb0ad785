"""Topics with a schema as typed columns, read and written, over revisions; and what is refused before anything runs."""

import json

import pytest

from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("spark")
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; %s }'


def definition(*names):
    fields = [{"name": "id", "type": "long"}] + [
        {"name": n, "type": ["null", "string"], "default": None} for n in names
    ]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


def attach(topic, kind, text, encoding):
    """A schema of its own for a topic; its name."""
    name = topic.name.replace("topics", "schemas")
    request = pubsub.CreateSchemaRequest(parent="projects/spark", schema_id=name.rpartition("/")[2])
    request.schema.type, request.schema.definition = kind, text
    topic.call("CreateSchema", request, methods.SCHEMAS.prefix)
    update = pubsub.UpdateTopicRequest(update_mask={"paths": ["schema_settings"]})
    update.topic.name = topic.name
    update.topic.schema_settings.schema, update.topic.schema_settings.encoding = name, encoding
    topic.call("UpdateTopic", update)
    return name


def commit(topic, name, kind, text):
    request = pubsub.CommitSchemaRequest(name=name)
    request.schema.name, request.schema.type, request.schema.definition = name, kind, text
    topic.call("CommitSchema", request, methods.SCHEMAS.prefix)


def publish(topic, *data):
    topic.call("Publish", pubsub.PublishRequest(topic=topic.name, messages=[{"data": one} for one in data]))


def values(frame):
    return [tuple(row) for row in frame.orderBy("offset").select("value.*").collect()]


def test_avro_over_revisions_read_written_and_refused(spark, server, topic, rows, tmp_path):
    name = attach(topic, pubsub.Schema.AVRO, definition(), pubsub.Encoding.JSON)
    publish(topic, b'{"id": 1}', b'{"id": 2}')
    before = rows(topic, decode="topic")
    commit(topic, name, pubsub.Schema.AVRO, definition("kind"))
    publish(topic, b'{"id": 3, "kind": {"string": "refund"}}')
    assert values(before) == [(1,), (2,), (3,)]  # a frame keeps the columns it has
    assert values(rows(topic, decode="topic")) == [(1, None), (2, None), (3, "refund")]

    written = spark.range(4, 6).selectExpr("struct(id, 'order' AS kind) AS value")
    given = {"endpoint": server.endpoint, "topic": topic.name, "encode": "topic"}
    written.write.format("pubsub").options(**given).mode("append").save()
    stream = (
        spark.readStream.format("pubsub").options(endpoint=server.endpoint, topic=topic.name, decode="topic").load()
    )
    query = (
        stream.where("value.kind = 'order'").selectExpr("struct(value.id + 10 AS id) AS value")
        .writeStream.format("pubsub").options(**given, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    assert values(rows(topic, decode=name))[3:] == [(4, "order"), (5, "order"), (14, None), (15, None)]

    for frame, says in (
        (spark.range(1).selectExpr("struct('x' AS id) AS value"), r"value\.id is string, and the schema wants bigint"),
        (spark.range(1).selectExpr("struct(id, 1 AS total) AS value"), r"value\.total is not in the schema"),
    ):
        with pytest.raises(Exception, match=says):
            frame.write.format("pubsub").options(**given).mode("append").save()
    plain = spark.range(1).selectExpr("'x' AS data")
    with pytest.raises(Exception, match=r"has the schema .* the option encode=topic"):
        plain.write.format("pubsub").options(endpoint=server.endpoint, topic=topic.name).mode("append").save()
    claimed = plain.selectExpr("data", f"map('googclient_schemaname', '{name}') AS attributes")
    with pytest.raises(Exception, match=r"rows\[0\]: must name a revision"):
        claimed.write.format("pubsub").options(endpoint=server.endpoint, topic=topic.name).mode("append").save()
    assert rows(topic).count() == 7


def test_protocol_buffers_and_data_that_do_not_fit(spark, server, topic, rows):
    publish(topic, b"\x0a\xff")  # before there was a schema
    name = attach(topic, pubsub.Schema.PROTOCOL_BUFFER, PROTO % "", pubsub.Encoding.BINARY)
    commit(topic, name, pubsub.Schema.PROTOCOL_BUFFER, PROTO % "repeated string tags = 2;")
    frame = spark.range(1, 3).selectExpr("struct(id, array('a', 'b') AS tags) AS value")
    given = {"endpoint": server.endpoint, "topic": topic.name, "encode": "topic"}
    frame.write.format("pubsub").options(**given).mode("append").save()
    with pytest.raises(Exception, match=r"offset 0 of source .* does not fit .*decodeErrors=null"):
        rows(topic, decode="topic").collect()
    shown = rows(topic, decode="topic", decodeErrors="null").orderBy("offset").select("value", "decode_error").collect()
    assert shown[0].value is None
    assert "not a message Order" in shown[0].decode_error
    assert [(one.value.id, one.value.tags, one.decode_error) for one in shown[1:]] == [
        (1, ["a", "b"], None),
        (2, ["a", "b"], None),
    ]
    assert rows(topic, decode="topic", decodeErrors="drop", columns="value").count() == 2


def test_names_that_are_not_there_are_answered_with_those_that_are(spark, server, topic):
    wrong = topic.name[:-1] + "-"
    reader = spark.read.format("pubsub").option("endpoint", server.endpoint).option("topic", wrong)
    says = f"There is no topic {wrong} .* did you mean {topic.name}"
    with pytest.raises(Exception, match=says) as batch:
        reader.load()
    with pytest.raises(Exception, match=says) as save:
        spark.range(1).selectExpr("'x' AS data").write.format("pubsub").options(
            endpoint=server.endpoint, topic=wrong
        ).mode("append").save()
    for shown in (batch, save):
        assert "Traceback" not in str(shown.value).partition("JVM stacktrace")[0]
