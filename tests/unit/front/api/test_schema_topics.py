"""Publishing to a topic with a schema, from the servicers to what a subscriber gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument, NotFound
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf.messages import pubsub

NAME, T, S = "projects/p/schemas/orders", "projects/p/topics/typed", "projects/p/subscriptions/typed"


def avro(*fields: str) -> dict[str, Any]:
    made = [{"name": one, "type": "int", "default": 0} for one in fields]
    return {"type": "AVRO", "definition": json.dumps({"type": "record", "name": "R", "fields": made})}


async def prepared(harness: ServicerHarness) -> str:
    """The id of the first revision; a topic with the schema and a subscription exist."""
    made = await harness.call("CreateSchema", parent="projects/p", schema_id="orders", schema=avro("x"))
    await harness.call("CreateTopic", name=T, schema_settings={"schema": NAME, "encoding": "JSON"})
    await harness.call("CreateSubscription", name=S, topic=T)
    return str(made.revision_id)


@simulated()
async def test_messages_say_which_revision_they_fit(harness: ServicerHarness) -> None:
    first = await prepared(harness)
    second = await harness.call("CommitSchema", name=NAME, schema=avro("x", "y"))
    await harness.put('{"x": 1}', '{"x": 1, "y": 2}', topic=T)
    await harness.crash()
    await harness.put('{"x": 3}', topic=T)
    found = {one.message.data.decode(): dict(one.message.attributes) for one in await harness.pull(subscription=S)}
    assert found == {
        data: {
            "googclient_schemaname": NAME,
            "googclient_schemaencoding": "JSON",
            "googclient_schemarevisionid": revision,
        }
        for data, revision in (
            ('{"x": 1}', first),
            ('{"x": 1, "y": 2}', second.revision_id),
            ('{"x": 3}', first),
        )
    }


@simulated()
async def test_nothing_of_a_request_is_stored_when_one_message_does_not_fit(harness: ServicerHarness) -> None:
    await prepared(harness)
    with pytest.raises(InvalidArgument, match=r"Invalid data in message: Message failed schema validation\."):
        await harness.put('{"x": 1}', "nothing", topic=T)
    assert harness.publish.commit.published == 0


@simulated()
async def test_a_message_with_all_its_attributes_has_room_for_more(harness: ServicerHarness) -> None:
    await prepared(harness)
    message = pubsub.PubsubMessage(data=b'{"x": 1}', attributes={str(number): "v" for number in range(100)})
    await harness.call("Publish", topic=T, messages=[message])
    (received,) = await harness.pull(subscription=S)
    assert len(received.message.attributes) == 103


@simulated()
async def test_without_its_schema_a_topic_takes_nothing_and_delivers_what_it_has(harness: ServicerHarness) -> None:
    await prepared(harness)
    await harness.put('{"x": 1}', topic=T)
    await harness.call("DeleteSchema", name=NAME)
    await harness.call("CreateSchema", parent="projects/p", schema_id="orders", schema=avro("x"))
    with pytest.raises(NotFound, match=r"Schema associated with topic deleted\."):
        await harness.put('{"x": 1}', topic=T)
    assert len(await harness.pull(subscription=S)) == 1


@simulated()
async def test_a_setting_of_a_deleted_schema_does_not_attach_another_of_its_name(harness: ServicerHarness) -> None:
    await prepared(harness)
    await harness.call("DeleteSchema", name=NAME)
    await harness.call("CreateSchema", parent="projects/p", schema_id="orders", schema=avro("x"))

    async def update(*paths: str) -> Any:
        topic = {"name": T, "schema_settings": {"schema": NAME, "encoding": "JSON"}}
        return await harness.call("UpdateTopic", topic=topic, update_mask={"paths": list(paths)})

    with pytest.raises(NotFound):
        await update("schema_settings.encoding")
    assert (await update("labels")).schema_settings.schema == "_deleted-schema_"
    assert (await update("schema_settings.schema")).schema_settings.schema == NAME


@simulated()
async def test_a_dead_letter_keeps_all_the_attributes_of_a_message_with_a_schema(harness: ServicerHarness) -> None:
    await prepared(harness)
    dead = "projects/p/topics/dead"
    await harness.call("CreateTopic", name=dead)
    await harness.call("CreateSubscription", name=f"{S}-dead", topic=dead)
    policy = {"dead_letter_topic": dead, "max_delivery_attempts": 5}
    await harness.call("CreateSubscription", name=f"{S}-main", topic=T, dead_letter_policy=policy)
    message = pubsub.PubsubMessage(data=b'{"x": 1}', attributes={str(number): "v" for number in range(100)})
    await harness.call("Publish", topic=T, messages=[message])
    for _ in range(5):
        (one,) = await harness.pull(subscription=f"{S}-main")
        await harness.call("ModifyAckDeadline", subscription=f"{S}-main", ack_ids=[one.ack_id], ack_deadline_seconds=0)
    (letter,) = await harness.pull(subscription=f"{S}-dead")
    assert len(letter.message.attributes) == 100 + 3 + 8 + 2
