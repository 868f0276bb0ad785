"""By which revision of the topic's schema a file is written, while new ones come."""

from __future__ import annotations

import json

import pytest

from syncpoint.broker.export.export_driver import topic_avro
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic, TopicSchema
from syncpoint.catalog.schemas import stored
from syncpoint.wire.protobuf.messages import pubsub

NAME = "projects/p/schemas/orders"


def commit(catalog: Catalog, schema: stored.Schema, number: int, *fields: str) -> stored.Schema:
    made = [{"name": field, "type": "int", "default": 0} for field in fields]
    text = pubsub.Schema(definition=json.dumps({"type": "record", "name": "R", "fields": made}))
    schema = schema.with_revision(f"{number:08x}", number)
    settings = schema.setting(), stored.definition_setting(NAME, f"{number:08x}", text, b"")
    for change in catalog.assign([CatalogChange.put(setting) for setting in settings]):
        catalog.apply(change)
    return schema


def test_a_file_takes_no_message_of_a_revision_whose_fields_it_would_lose() -> None:
    config = pubsub.CloudStorageConfig()
    config.avro_config.use_topic_schema = True
    catalog = Catalog()
    schema = commit(catalog, stored.Schema(NAME, 7, pubsub.Schema.AVRO, (), 0), 1, "x")
    topic = Topic(1, "projects/p/topics/t", schema=TopicSchema(NAME, uid=7, encoding=1))
    record = Subscription(2, "projects/p/subscriptions/s", 1, topic.name)
    for change in catalog.assign([CatalogChange.put(topic), CatalogChange.put(record)]):
        catalog.apply(change)

    def message(number: int) -> pubsub.PubsubMessage:
        marks = {"googclient_schemarevisionid": f"{number:08x}"}
        return pubsub.PubsubMessage(data=b'{"x": 1, "y": 2}' if number == 2 else b'{"x": 1}', attributes=marks)

    earlier = topic_avro(catalog, record, config)
    assert earlier is not None
    assert earlier.read(message(1)) == {"x": 1}
    commit(catalog, schema, 2, "x", "y")
    assert earlier.read(message(1)) == {"x": 1}
    with pytest.raises(ValueError, match="revision 00000001, which is older"):
        earlier.read(message(2))
    later = topic_avro(catalog, record, config)
    assert later is not None
    assert (later.read(message(1)), later.read(message(2))) == ({"x": 1, "y": 0}, {"x": 1, "y": 2})
