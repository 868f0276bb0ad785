"""Requests to topics with a schema: checked as a whole, marked message by message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument, NotFound
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Topic, TopicSchema
from syncpoint.catalog.schemas import publishing, stored
from syncpoint.catalog.schemas.publishing import SchemaGate
from syncpoint.wire.protobuf.messages import pubsub

NAME = "projects/p/schemas/orders"
TOPIC = "projects/p/topics/orders"


def definition(*fields: str) -> pubsub.Schema:
    made = [{"name": field, "type": "int", "default": 0} for field in fields]
    text = json.dumps({"type": "record", "name": "R", "fields": made})
    return pubsub.Schema(type=pubsub.Schema.AVRO, definition=text)


def catalog_with(*definitions: pubsub.Schema) -> Catalog:
    catalog = Catalog()
    schema = stored.Schema(NAME, 7, pubsub.Schema.AVRO, (), 0)
    for number, one in enumerate(definitions, 1):
        schema = schema.with_revision(f"{number:08x}", number)
        settings = schema.setting(), stored.definition_setting(NAME, f"{number:08x}", one, b"")
        for change in catalog.assign([CatalogChange.put(setting) for setting in settings]):
            catalog.apply(change)
    return catalog


def topic(**bounds: Any) -> Topic:
    given: dict[str, Any] = {"uid": 7, "encoding": 1, **bounds}
    return Topic(1, TOPIC, schema=TopicSchema(NAME, **given))


def request(*data: bytes, **attributes: str) -> bytes:
    messages = [pubsub.PubsubMessage(data=one, attributes=attributes) for one in data]
    return pubsub.PublishRequest(topic=TOPIC, messages=messages).SerializeToString()


def marks(found: bytes | memoryview) -> list[dict[str, str]]:
    return [dict(message.attributes) for message in pubsub.PublishRequest.FromString(bytes(found)).messages]


def expected(revision: str, encoding: str = "JSON") -> dict[str, str]:
    return {publishing.NAME: NAME, publishing.REVISION: revision, publishing.ENCODING: encoding}


X, XY = b'{"x": 1}', b'{"x": 1, "y": 2}'


def test_a_topic_without_a_schema_takes_requests_as_they_come() -> None:
    data = request(b"anything")
    assert SchemaGate(Catalog()).marked(Topic(1, TOPIC), data) is data


def test_every_message_is_marked_with_the_newest_revision_that_it_fits() -> None:
    gate = SchemaGate(catalog_with(definition("x"), definition("x", "y"), definition("x")))
    found = gate.marked(topic(), request(X, XY))
    assert marks(found) == [expected("00000003"), expected("00000002")]
    assert [one.data for one in pubsub.PublishRequest.FromString(bytes(found)).messages] == [X, XY]


def test_what_a_caller_claims_does_not_stand() -> None:
    gate = SchemaGate(catalog_with(definition("x")))
    found = gate.marked(topic(), request(X, **{publishing.REVISION: "ffffffff", "mine": "kept"}))
    assert marks(found) == [{**expected("00000001"), "mine": "kept"}]


def test_one_message_that_does_not_fit_refuses_all() -> None:
    gate = SchemaGate(catalog_with(definition("x")))
    with pytest.raises(InvalidArgument, match="Message failed schema validation") as caught:
        gate.marked(topic(), request(X, XY))
    assert caught.value.field == "messages[1].data"
    assert "messages[1] does not match" in caught.value.message
    assert caught.value.message.endswith("the record R has no field y.")


def test_revisions_outside_of_the_range_are_not_tried() -> None:
    gate = SchemaGate(catalog_with(definition("x"), definition("x", "y"), definition("x", "y", "z")))
    assert marks(gate.marked(topic(last=2), request(XY))) == [expected("00000002")]
    for bounds in ({"first": 2}, {"last": 1, "first": 1}):
        with pytest.raises(InvalidArgument):
            gate.marked(topic(**bounds), request(X if "last" not in bounds else XY))


def test_a_bound_whose_revision_is_deleted_still_bounds() -> None:
    catalog = catalog_with(definition("x"), definition("x", "y"), definition("x", "y", "z"))
    gate = SchemaGate(catalog)
    schema = stored.find_schema(catalog, NAME)
    assert schema is not None
    for change in catalog.assign(stored.revision_deletion(schema, "00000002")):
        catalog.apply(change)
    assert marks(gate.marked(topic(last=2), request(X))) == [expected("00000001")]
    with pytest.raises(InvalidArgument):
        gate.marked(topic(last=2), request(XY))
    with pytest.raises(NotFound, match="range"):
        gate.marked(topic(first=2, last=2), request(XY))


def test_a_schema_that_is_deleted_or_another() -> None:
    for catalog in (Catalog(), catalog_with(definition("x"))):
        with pytest.raises(NotFound, match=r"Schema associated with topic deleted\."):
            SchemaGate(catalog).marked(topic(uid=8), request(X))


def test_a_definition_that_changes_under_the_same_id_is_read_again() -> None:
    catalog = catalog_with(definition("x"))
    gate = SchemaGate(catalog)
    gate.marked(topic(), request(X))
    other = stored.definition_setting(NAME, "00000001", definition("x", "y"), b"")
    for change in catalog.assign([CatalogChange.put(other)]):
        catalog.apply(change)
    gate.marked(topic(), request(XY))
    with pytest.raises(InvalidArgument):
        gate.marked(topic(), request(X))


def test_binary() -> None:
    gate = SchemaGate(catalog_with(definition("x")))
    assert marks(gate.marked(topic(encoding=2), request(b"\2"))) == [expected("00000001", "BINARY")]
    with pytest.raises(InvalidArgument):
        gate.marked(topic(encoding=2), request(X))


def test_what_marking_would_hide_is_refused_before() -> None:
    gate = SchemaGate(catalog_with(definition("x")))
    for data, says in (
        (b"\xff", "not a valid PublishRequest"),
        (request(), "No messages to publish"),
        (request(b""), "Some messages are empty"),
        (request(*[X] * 1001), "Too many messages to publish"),
        (request(b" " * 10_000_000), "request_size is too large"),
    ):
        with pytest.raises(InvalidArgument, match=says):
            gate.marked(topic(), data)


def test_the_attributes_of_a_message_are_counted_before_it_is_marked() -> None:
    gate = SchemaGate(catalog_with(definition("x")))
    found = gate.marked(topic(), request(X, **{f"k{index}": "v" for index in range(100)}))
    assert len(marks(found)[0]) == 103
    with pytest.raises(InvalidArgument, match=r"messages\[0\]\.attributes: must not have more than 100"):
        gate.marked(topic(), request(X, **{f"k{index}": "v" for index in range(101)}))


def test_fields_that_nobody_knows_are_kept() -> None:
    message = pubsub.PubsubMessage(data=X).SerializeToString() + b"\xba\x3e\x03new"
    data = b"\x12" + bytes((len(message),)) + message + b"\xba\x3e\x03NEW"
    found = bytes(SchemaGate(catalog_with(definition("x"))).marked(topic(), data))
    assert b"\xba\x3e\x03new" in found
    assert b"\xba\x3e\x03NEW" in found


def test_marking_adds_no_more_than_it_says() -> None:
    longest = "projects/" + "p" * 255 + "/schemas/" + "s" * 255
    assert len(publishing._marks(longest, "0" * 8, publishing.Encoding.BINARY)) + 8 <= publishing.ROOM_BYTES // 1000
