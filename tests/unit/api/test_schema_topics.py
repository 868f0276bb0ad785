"""Publishing to a topic with a schema, from the servicers to what a subscriber gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from syncpoint.model.errors import InvalidArgument, NotFound
from syncpoint.testing.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.messages import pubsub

NAME, T, S = "projects/p/schemas/orders", "projects/p/topics/typed", "projects/p/subscriptions/typed"


def avro(*fields: str) -> dict[str, Any]:
    made = [{"name": one, "type": "int", "default": 0} for one in fields]
    return {"type": "AVRO", "definition": json.dumps({"type": "record", "name": "R", "fields": made})}


async def prepared(world: ServicerHarness) -> str:
    """The id of the first revision; a topic with the schema and a subscription exist."""
    made = await world.call("CreateSchema", parent="projects/p", schema_id="orders", schema=avro("x"))
    await world.call("CreateTopic", name=T, schema_settings={"schema": NAME, "encoding": "JSON"})
    await world.call("CreateSubscription", name=S, topic=T)
    return str(made.revision_id)


@simulated()
async def test_messages_say_which_revision_they_fit(world: ServicerHarness) -> None:
    first = await prepared(world)
    second = await world.call("CommitSchema", name=NAME, schema=avro("x", "y"))
    await world.put('{"x": 1}', '{"x": 1, "y": 2}', topic=T)
    await world.crash()
    await world.put('{"x": 3}', topic=T)
    found = {one.message.data.decode(): dict(one.message.attributes) for one in await world.pull(subscription=S)}
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
async def test_nothing_of_a_request_is_stored_when_one_message_does_not_fit(world: ServicerHarness) -> None:
    await prepared(world)
    with pytest.raises(InvalidArgument, match=r"Invalid data in message: Message failed schema validation\."):
        await world.put('{"x": 1}', "nothing", topic=T)
    assert world.publish.commit.published == 0


@simulated()
async def test_a_message_with_all_its_attributes_has_room_for_more(world: ServicerHarness) -> None:
    await prepared(world)
    message = pubsub.PubsubMessage(data=b'{"x": 1}', attributes={str(number): "v" for number in range(100)})
    await world.call("Publish", topic=T, messages=[message])
    (received,) = await world.pull(subscription=S)
    assert len(received.message.attributes) == 103


@simulated()
async def test_without_its_schema_a_topic_takes_nothing_and_delivers_what_it_has(world: ServicerHarness) -> None:
    await prepared(world)
    await world.put('{"x": 1}', topic=T)
    await world.call("DeleteSchema", name=NAME)
    await world.call("CreateSchema", parent="projects/p", schema_id="orders", schema=avro("x"))
    with pytest.raises(NotFound, match=r"Schema associated with topic deleted\."):
        await world.put('{"x": 1}', topic=T)
    assert len(await world.pull(subscription=S)) == 1


@simulated()
async def test_a_setting_of_a_deleted_schema_does_not_attach_another_of_its_name(world: ServicerHarness) -> None:
    await prepared(world)
    await world.call("DeleteSchema", name=NAME)
    await world.call("CreateSchema", parent="projects/p", schema_id="orders", schema=avro("x"))

    async def update(*paths: str) -> Any:
        topic = {"name": T, "schema_settings": {"schema": NAME, "encoding": "JSON"}}
        return await world.call("UpdateTopic", topic=topic, update_mask={"paths": list(paths)})

    with pytest.raises(NotFound):
        await update("schema_settings.encoding")
    assert (await update("labels")).schema_settings.schema == "_deleted-schema_"
    assert (await update("schema_settings.schema")).schema_settings.schema == NAME


@simulated()
async def test_a_dead_letter_keeps_all_the_attributes_of_a_message_with_a_schema(world: ServicerHarness) -> None:
    await prepared(world)
    dead = "projects/p/topics/dead"
    await world.call("CreateTopic", name=dead)
    await world.call("CreateSubscription", name=f"{S}-dead", topic=dead)
    policy = {"dead_letter_topic": dead, "max_delivery_attempts": 5}
    await world.call("CreateSubscription", name=f"{S}-main", topic=T, dead_letter_policy=policy)
    message = pubsub.PubsubMessage(data=b'{"x": 1}', attributes={str(number): "v" for number in range(100)})
    await world.call("Publish", topic=T, messages=[message])
    for _ in range(5):
        (one,) = await world.pull(subscription=f"{S}-main")
        await world.call("ModifyAckDeadline", subscription=f"{S}-main", ack_ids=[one.ack_id], ack_deadline_seconds=0)
    (letter,) = await world.pull(subscription=f"{S}-dead")
    assert len(letter.message.attributes) == 100 + 3 + 4
