"""Schemas with the official client: created, revised, set on topics, and what publishing to those does."""

from __future__ import annotations

import json

import pytest

from syncpoint.testing.rigs.official import refused

pytestmark = pytest.mark.shows("schemas")

PROTO = 'syntax = "proto3"; message Order { string id = 1; int32 count = 2; }'
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
REVISED = {**AVRO, "fields": [*AVRO["fields"], {"name": "count", "type": "int", "default": 0}]}


def create(space, kind="AVRO", definition=AVRO):
    text = definition if isinstance(definition, str) else json.dumps(definition)
    request = {
        "parent": f"projects/{space.project}",
        "schema_id": "order",
        "schema": {"type_": kind, "definition": text},
    }
    return space.api.create_schema(request)


def topic_with(space, schema, encoding="JSON"):
    topic = space.path("topics", "typed")
    space.api.create_topic({"name": topic, "schema_settings": {"schema": schema.name, "encoding": encoding}})
    subscription = space.path("subscriptions", "typed")
    space.api.create_subscription({"name": subscription, "topic": topic})
    return topic, subscription


def test_a_schema_with_its_revisions(space):
    made = create(space)
    assert made.name == space.path("schemas", "order")
    assert space.api.get_schema({"name": made.name}) == made
    second = space.api.commit_schema(
        {"name": made.name, "schema": {"name": made.name, "type_": "AVRO", "definition": json.dumps(REVISED)}}
    )
    with refused("INVALID_ARGUMENT", "not compatible with the previous revision"):
        space.api.commit_schema({"name": made.name, "schema": {"type_": "AVRO", "definition": '"int"'}})
    third = space.api.rollback_schema({"name": made.name, "revision_id": made.revision_id})
    assert third.definition == made.definition
    revisions = space.api.list_schema_revisions({"name": made.name, "view": "FULL"}).schemas
    assert [one.revision_id for one in revisions] == [third.revision_id, second.revision_id, made.revision_id]
    space.api.delete_schema_revision({"name": f"{made.name}@{second.revision_id}"})
    with refused("NOT_FOUND", "Resource not found"):
        space.api.get_schema({"name": f"{made.name}@{second.revision_id}"})
    assert [one.name for one in space.api.list_schemas({"parent": f"projects/{space.project}"}).schemas] == [made.name]
    space.api.delete_schema({"name": made.name})
    assert not space.api.list_schemas({"parent": f"projects/{space.project}"}).schemas


@pytest.mark.parametrize(
    ("kind", "definition", "encoding", "fits"),
    [
        ("AVRO", AVRO, "JSON", b'{"id": "a"}'),
        ("AVRO", AVRO, "BINARY", b"\x02a"),
        ("PROTOCOL_BUFFER", PROTO, "JSON", b'{"id": "a"}'),
        ("PROTOCOL_BUFFER", PROTO, "BINARY", b"\x0a\x01a"),
    ],
)
def test_what_fits_is_published_and_marked(space, kind, definition, encoding, fits):
    made = create(space, kind, definition)
    topic, subscription = topic_with(space, made, encoding)
    space.api.publish({"topic": topic, "messages": [{"data": fits, "attributes": {"a": "1"}}]})
    with refused("INVALID_ARGUMENT", "Invalid data in message: Message failed schema validation."):
        space.api.publish({"topic": topic, "messages": [{"data": fits}, {"data": b"\xffno"}]})
    (received,) = space.api.pull({"subscription": subscription, "max_messages": 10}).received_messages
    assert received.message.data == fits
    assert dict(received.message.attributes) == {
        "a": "1",
        "googclient_schemaname": made.name,
        "googclient_schemarevisionid": made.revision_id,
        "googclient_schemaencoding": encoding,
    }
    space.api.validate_message(
        {"parent": f"projects/{space.project}", "name": made.name, "message": fits, "encoding": encoding}
    )


def test_a_definition_that_is_not_legal(space):
    for kind, definition, says in (
        ("AVRO", "{", "not JSON"),
        ("PROTOCOL_BUFFER", "message A {", "Reached end of input"),
        ("PROTOCOL_BUFFER", PROTO + " message B {}", "exactly one top-level message"),
        ("PROTOCOL_BUFFER", PROTO.replace("message", 'import "other.proto"; message', 1), "was not found"),
    ):
        with refused("INVALID_ARGUMENT", says):
            create(space, kind, definition)
        with refused("INVALID_ARGUMENT", says):
            space.api.validate_schema(
                {"parent": f"projects/{space.project}", "schema": {"type_": kind, "definition": definition}}
            )
