"""Requests that take long to be checked or transformed: beside the loop, stored in the order in which they came."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, InvalidArgument, ResourceExhausted, SyncpointError
from syncpoint.base.runtime.child_processes import at_once
from syncpoint.broker.publish.facts.project_room import ProjectRoom
from syncpoint.catalog.schemas.limits import BINARY_BYTES_AT_ONCE, DEFINITION_BYTES_AT_ONCE, JSON_BYTES_AT_ONCE
from syncpoint.catalog.transforms.message_transforms import Outcome
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from tests.kit.transforming import PlayedTransformer

NAME, T, S = "projects/p/schemas/texts", "projects/p/topics/typed", "projects/p/subscriptions/typed"
LARGE = json.dumps("x" * JSON_BYTES_AT_ONCE)


class Elsewhere:
    """Whoever checks large requests, when the test says so."""

    busy = False
    here = staticmethod(at_once.here)

    def __init__(self) -> None:
        self.asked = 0
        self.free = asyncio.Event()

    async def __call__(self, work: Callable[[], Any], project: str, /) -> Any:
        self.asked += 1
        await self.free.wait()
        return work()


async def prepared(harness: ServicerHarness, encoding: str = "JSON", definition: str = '"string"') -> Elsewhere:
    schema = {"type": "AVRO", "definition": definition}
    await harness.call("CreateSchema", parent="projects/p", schema_id="texts", schema=schema)
    await harness.call("CreateTopic", name=T, schema_settings={"schema": NAME, "encoding": encoding})
    await harness.call("CreateSubscription", name=S, topic=T, enable_message_ordering=True)
    elsewhere = Elsewhere()
    harness.preparation.schemas.apart = elsewhere
    return elsewhere


async def begun(*works: Any) -> list[asyncio.Task[Any]]:
    tasks = [asyncio.ensure_future(work) for work in works]
    for _ in range(20):
        await asyncio.sleep(0)
    return tasks


@simulated()
async def test_what_comes_behind_a_large_request_is_stored_behind_it(harness: ServicerHarness) -> None:
    elsewhere = await prepared(harness)
    tasks = await begun(
        harness.put(LARGE, key="k", topic=T),
        harness.put('"small"', key="k", topic=T),
        harness.put("5", key="k", topic=T),
    )
    assert elsewhere.asked == 1
    await harness.put("to another topic")
    assert not any(task.done() for task in tasks[:2]), "the loop goes on, what came behind it waits"
    elsewhere.free.set()
    await tasks[0]
    await tasks[1]
    with pytest.raises(InvalidArgument, match="failed schema validation"):
        await tasks[2]
    received: list[str] = []
    while len(received) < 2:
        for one in await harness.pull(subscription=S):
            received.append(one.message.data.decode())
            await harness.call("Acknowledge", subscription=S, ack_ids=[one.ack_id])
    assert received == [LARGE, '"small"']
    assert not harness.publisher.prepared.order


@simulated()
async def test_a_large_request_is_stored_by_the_settings_that_hold_when_it_is(harness: ServicerHarness) -> None:
    elsewhere = await prepared(harness)
    (task,) = await begun(harness.put(LARGE, topic=T))
    schema = {"type": "AVRO", "definition": '"int"'}
    await harness.call("CreateSchema", parent="projects/p", schema_id="numbers", schema=schema)
    settings = {"schema": "projects/p/schemas/numbers", "encoding": "JSON"}
    topic = {"name": T, "schema_settings": settings}
    await harness.call("UpdateTopic", topic=topic, update_mask={"paths": ["schema_settings"]})
    elsewhere.free.set()
    with pytest.raises(InvalidArgument, match="failed schema validation"):
        await task
    assert harness.publish.commit.published == 0


@simulated()
async def test_what_waits_is_bounded_and_turned_away_at_the_end(
    harness: ServicerHarness,
) -> None:
    await prepared(harness)
    harness.publisher.prepared._room = ProjectRoom(4 * (len(LARGE) + 100))
    tasks = await begun(harness.put(LARGE, topic=T), harness.put(LARGE, topic=T))
    with pytest.raises(ResourceExhausted, match="Retry with backoff"):
        await harness.put(LARGE, topic=T)
    other = "projects/other/topics/typed"
    await harness.call("CreateTopic", name=other, schema_settings={"schema": NAME, "encoding": "JSON"})
    tasks += await begun(harness.put(LARGE, topic=other))
    assert not tasks[-1].done(), "what one project has waiting refuses nothing of another"
    await harness.publisher.stop()
    for task in tasks:
        with pytest.raises(SyncpointError, match="not stored") as refused:
            await task
        assert refused.value.code is Code.UNAVAILABLE


@pytest.mark.parametrize(
    ("encoding", "bound"), [("JSON", JSON_BYTES_AT_ONCE), ("BINARY", BINARY_BYTES_AT_ONCE)]
)  # fmt: skip
@simulated()
async def test_the_loop_checks_so_many_bytes_at_once_and_no_more(
    harness: ServicerHarness, *, encoding: str, bound: int
) -> None:
    await prepared(harness, encoding)
    gate, topic = harness.preparation.schemas, harness.publish.catalog.topic(T)
    assert topic is not None
    assert (gate.is_large(topic, bytes(bound)), gate.is_large(topic, bytes(bound + 1))) == (False, True)
    await harness.call("CommitSchema", name=NAME, schema={"type": "AVRO", "definition": '"string"'})
    half = bound // 2
    assert (gate.is_large(topic, bytes(half)), gate.is_large(topic, bytes(half + 1))) == (False, True)


@simulated()
async def test_a_large_definition_is_not_read_on_the_loop(harness: ServicerHarness) -> None:
    doc = {"type": "record", "name": "R", "doc": "x" * DEFINITION_BYTES_AT_ONCE, "fields": []}
    elsewhere = await prepared(harness, definition=json.dumps(doc))
    (task,) = await begun(harness.put("{}", topic=T))
    assert elsewhere.asked == 1
    elsewhere.free.set()
    assert await task


class SlowTo(PlayedTransformer):
    """Takes longer for some messages than for others."""

    async def play(self, transforms: Any, messages: Any) -> list[Outcome]:
        await asyncio.sleep({b"first": 2.0, b"second": 1.0}.get(messages[0].data, 0.0))
        return [None if one.data == b"drop" else one for one in messages]


@simulated()
async def test_keys_keep_their_order_through_transforms_and_their_removal(harness: ServicerHarness) -> None:
    harness.preparation.transforms.transformer = SlowTo.of({})
    transforms = [{"compression": {"compression_algorithm": "ZLIB", "compression_mode": "COMPRESS"}}]
    await harness.call("CreateTopic", name=T, message_transforms=transforms)
    await harness.call("CreateSubscription", name=S, topic=T)
    tasks = await begun(
        *(harness.put(one, key="k", topic=T) for one in ("first", "second", "drop", "third")),
        harness.put("of no key", topic=T),
    )
    await harness.call("UpdateTopic", topic={"name": T}, update_mask={"paths": ["message_transforms"]})
    tasks += await begun(harness.put("fourth", key="k", topic=T))
    ids = [(await task)[0] for task in tasks]
    received = [one.message.data.decode() for one in await harness.pull(subscription=S)]
    assert [one for one in received if one != "of no key"] == ["first", "second", "drop", "third", "fourth"]
    assert len(set(ids)) == len(received) == 6, "what was stored late was prepared anew, without transforms"
