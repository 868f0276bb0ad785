"""What a proxy does to a request before it sends it: checks, transforms, seals, and again where the topic changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, Unavailable
from syncpoint.base.runtime.child_processes import at_once
from syncpoint.broker.publish.intake.envelope import PublishBatch
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Record, Topic, TopicSchema
from syncpoint.catalog.schemas import stored
from syncpoint.catalog.schemas.limits import JSON_BYTES_AT_ONCE
from syncpoint.catalog.transforms.inference import Models
from syncpoint.catalog.transforms.message_transforms import Outcome
from syncpoint.catalog.transforms.sandbox import Sandbox
from syncpoint.front.proxy.rate_limits import RateLimiter, TurnWindow
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.errors import failing
from tests.kit.proxy import (
    PUBLISHER,
    TOPIC,
    ProxyHarness,
    in_harness,
)
from tests.kit.transforming import PlayedTransformer

pytestmark = pytest.mark.shows("transforms")


def of_records(*records: Record) -> Catalog:
    made = Catalog()
    made.become(records, 1, 1)
    return made


SCHEMA = stored.Schema("projects/p/schemas/s", 7, pubsub.Schema.AVRO, (), 0)


def put_schema(harness: ProxyHarness, schema: stored.Schema, revision: str, definition: str) -> None:
    """One more revision that the proxy knows."""
    given = pubsub.Schema(type=pubsub.Schema.AVRO, definition=definition)
    harness.put_setting(schema.setting())
    harness.put_setting(stored.definition_setting(schema.name, revision, given, b""))


@in_harness()
async def test_sealed_data_is_nowhere_behind_the_proxy(harness: ProxyHarness) -> None:
    proxy, _one, _two = await harness.cluster([1], sealed=True)
    await harness.publish(b"the plain secret", key="k")
    ((stored, _),) = harness.stored[1].values()
    assert b"secret" not in stored
    (message,) = pubsub.PublishRequest.FromString(stored).messages
    assert message.ordering_key == "k"
    assert proxy.status()["sealed"] == 1


@pytest.mark.parametrize("key", ["", "k"])
@in_harness()
async def test_for_a_topic_that_was_created_anew_it_is_sealed_again(harness: ProxyHarness, *, key: str) -> None:
    """It waits for its chain while the topic is deleted and created again: the key of the old one will be removed."""
    proxy, one, _two = await harness.cluster([1], sealed=True)
    old, held = harness.topic, asyncio.Event()
    one.refusals = [Unavailable("a failover")]
    seal = proxy.sealer.seal

    async def sealing(topic: int, request: bytes) -> bytes:
        sealed: bytes = await seal(topic, request)
        if topic == old.incarnation:
            await held.wait()
        return sealed

    proxy.sealer.seal = sealing
    publishing = asyncio.ensure_future(harness.publish(b"secret", key=key))
    await asyncio.sleep(0.1)
    harness.delete(old)
    harness.topic = harness.add_topic(TOPIC)
    harness.assign([1])
    held.set()
    assert await publishing
    ((stored, _),) = [batch for chain in harness.stored.values() for batch in chain.values()]
    number = int.from_bytes(pubsub.PublishRequest.FromString(stored).messages[0].data[8:12], "little")
    (item,) = harness.store.range(f"keys/data/{number}").items
    assert json.loads(item.value)["topic"] == harness.topic.incarnation


@in_harness()
async def test_what_comes_from_within_the_cluster_is_sealed_already(harness: ProxyHarness) -> None:
    proxy, *_ = await harness.cluster([1], sealed=True)
    harness.network._listening["proxy:1"][1].update(proxy.internal_methods())  # type: ignore[attr-defined]
    assert await harness.publish(b"a dead letter, as it was stored")
    assert harness.found(1) == [b"a dead letter, as it was stored"]


@pytest.mark.parametrize("sealed", [False, True])
@in_harness()
async def test_messages_of_a_topic_with_a_schema_are_checked_before_they_are_sealed(
    harness: ProxyHarness, *, sealed: bool
) -> None:
    proxy, *_ = await harness.cluster(sealed=sealed)
    schema = SCHEMA.with_revision("0000000a", 1)
    put_schema(harness, schema, "0000000a", '"string"')
    harness.topic = replace(harness.topic, schema=TopicSchema(schema.name, 7, 1))
    harness.put(harness.topic)
    harness.assign([1])
    assert await harness.publish(b'"fits"')
    ((request, _),) = harness.stored[1].values()
    (message,) = pubsub.PublishRequest.FromString(request).messages
    assert message.attributes["googclient_schemarevisionid"] == "0000000a"
    assert (message.data == b'"fits"') is not sealed
    changed = pubsub.PublishRequest(topic=TOPIC, messages=[{"data": b'"fits"', "attributes": {"a": "b"}}])
    edited = await proxy.publisher.edited(harness.topic, changed.SerializeToString())
    (message,) = pubsub.PublishRequest.FromString(edited).messages
    assert message.attributes["googclient_schemarevisionid"] == "0000000a"
    assert (message.data == b'"fits"') is not sealed, "so it is with what is published again with other data"
    changed.messages[0].data = b"5"
    assert "schema" in (await failing(proxy.publisher.edited(harness.topic, changed.SerializeToString()))).message
    error = await failing(harness.publish(b"5"))
    assert error.code is Code.INVALID_ARGUMENT
    assert error.message.startswith("Invalid data in message: Message failed schema validation. messages[0] does not")


@in_harness()
async def test_a_proxy_that_lags_checks_by_what_the_chains_know(harness: ProxyHarness) -> None:
    """Nothing is stored unchecked, and nothing refused for what another proxy has committed."""
    _proxy, one, _two = await harness.cluster([1])
    first = SCHEMA.with_revision("0000000a", 1)
    second = first.with_revision("0000000b", 2)
    bound = replace(harness.topic, schema=TopicSchema(first.name, 7, 1))

    def known_here() -> None:
        put_schema(harness, first, "0000000a", '"string"')
        harness.put(bound)

    one.catalog = of_records(bound)
    harness.on_refresh = known_here
    assert (await failing(harness.publish(b"5"))).code is Code.INVALID_ARGUMENT
    assert not harness.stored[1]
    assert await harness.publish(b'"fits"')
    harness.on_refresh = lambda: put_schema(harness, second, "0000000b", '"int"')
    assert await harness.publish(b"5")
    marks = [
        message.attributes["googclient_schemarevisionid"]
        for request, _ in harness.stored[1].values()
        for message in pubsub.PublishRequest.FromString(request).messages
    ]
    assert marks == ["0000000a", "0000000b"]


class _DropsB(PlayedTransformer):
    """Drops messages `b` where the first transform says so."""

    async def play(self, transforms: Any, messages: Any) -> list[Outcome]:
        drops = transforms[0].compression.compression_mode == pubsub.Compression.DECOMPRESS
        return [None if drops and one.data == b"b" else one for one in messages]


@in_harness()
async def test_what_may_be_stored_by_other_transforms_is_not_sent_again_by_newer_ones(harness: ProxyHarness) -> None:
    """The chain would answer with the ids of what it stored first, which are those of other messages."""
    proxy, *owners = await harness.cluster([1, 2])

    def with_mode(mode: pubsub.Compression.CompressionMode) -> Topic:
        one = pubsub.MessageTransform(compression=pubsub.Compression(compression_mode=mode))
        return replace(harness.topic, config=pubsub.Topic(message_transforms=[one]).SerializeToString())

    newer = with_mode(pubsub.Compression.DECOMPRESS)
    harness.put(with_mode(pubsub.Compression.COMPRESS))
    proxy.publisher._preparation._messages.transforms.transformer = _DropsB.of({})

    def stored_but_lost(_: PublishBatch) -> None:
        for one in owners:
            one.before_answer, one.catalog = lambda batch: None, of_records(newer)
        harness.on_refresh = lambda: harness.put(newer)
        raise Unavailable("the connection is lost")

    for one in owners:
        one.before_answer = stored_but_lost
    request = pubsub.PublishRequest(
        topic=TOPIC, messages=[pubsub.PubsubMessage(data=one) for one in (b"a", b"b", b"c")]
    )
    error = await failing(harness.call(PUBLISHER + "Publish", request))
    assert (error.code, "may or may not be stored" in error.message) == (Code.UNAVAILABLE, True)
    assert len(harness.stored[1]) + len(harness.stored.get(2, {})) == 1


class _Held(PlayedTransformer):
    """Takes long."""

    came: tuple[bytes, ...] = ()

    async def play(self, transforms: Any, messages: Any) -> list[Outcome]:
        self.came += tuple(one.data for one in messages)
        await asyncio.sleep(5.0 if messages[0].data[0] else 12.0)
        return list(messages)


async def held_up(harness: ProxyHarness) -> tuple[RateLimiter, _Held]:
    """The limits of a proxy where transforms take long, and room for one request to be sent."""
    proxy, *_ = await harness.cluster([1])
    one = pubsub.MessageTransform(compression=pubsub.Compression())
    harness.put(replace(harness.topic, config=pubsub.Topic(message_transforms=[one]).SerializeToString()))
    limiter = proxy.publisher.rate_limiter
    limiter.transforming = TurnWindow(4_000, 2_500)
    limiter.sending.window = limiter.sending.name_window = 2_000
    transformer = proxy.publisher._preparation._messages.transforms.transformer = _Held(Sandbox(), Models({}))
    return limiter, transformer


async def begun(harness: ProxyHarness, numbers: Iterable[int]) -> list[asyncio.Task[list[str]]]:
    """Publishes of one key, in this order."""
    tasks = []
    for n in numbers:
        tasks.append(asyncio.ensure_future(harness.publish(bytes([n]) * 1_000, key="k")))
        await asyncio.sleep(0.1)
    return tasks


@in_harness()
async def test_what_is_transformed_waits_for_room_of_its_project_and_holds_up_nobody_else(
    harness: ProxyHarness,
) -> None:
    limiter, transformer = await held_up(harness)
    harness.put(plain := Topic(9, TOPIC + "-plain"))
    tasks = await begun(harness, range(6))
    began = harness.loop.time()
    assert limiter.transforming.underway < 2_500 < 6_000 < limiter.transforming.held
    assert await harness.publish(b"x" * 1_900, topic=plain.name)
    assert harness.loop.time() < began + 1.0
    late = await failing(harness.publish(b"late", timeout=2.0))
    assert late.code is Code.DEADLINE_EXCEEDED
    await asyncio.gather(*tasks)
    assert len(transformer.came) == 6, "no function is run for who has given up"
    assert [data[0] for data in harness.found(1) if len(data) == 1_000] == [*range(6)]
    assert (limiter.held, limiter.transforming.underway, limiter.sending.underway) == (0, 0, 0)


@in_harness()
async def test_what_need_not_be_transformed_takes_no_room_from_what_is_before_it_of_its_key(
    harness: ProxyHarness,
) -> None:
    limiter, _ = await held_up(harness)
    tasks = await begun(harness, range(1))
    harness.put(harness.topic)
    tasks += await begun(harness, range(1, 4))
    await asyncio.gather(*tasks)
    assert [data[0] for data in harness.found(1)] == [*range(4)]
    assert (limiter.held, limiter.transforming.underway, limiter.sending.underway) == (0, 0, 0)


@in_harness()
async def test_large_requests_are_checked_apart_and_keys_keep_their_order(harness: ProxyHarness) -> None:
    proxy, *_ = await harness.cluster([1])
    schema = SCHEMA.with_revision("0000000a", 1)
    put_schema(harness, schema, "0000000a", '"string"')
    harness.put(replace(harness.topic, schema=TopicSchema(schema.name, 7, 1)))
    checked: list[int] = []

    class Apart:
        busy = False
        here = staticmethod(at_once.here)

        async def __call__(self, work: Any, project: str, /) -> Any:
            await asyncio.sleep(0.5)
            checked.append(1)
            return work()

    proxy.publisher._preparation._messages.schemas.apart = Apart()
    harness.network.delay_s_max = 0.0  # calls arrive in the order in which they are made
    large = b'"%b"' % (b"x" * JSON_BYTES_AT_ONCE)
    tasks = [asyncio.ensure_future(harness.publish(one, key="k")) for one in (large, b'"small"')]
    await asyncio.gather(*tasks)
    assert harness.found(1) == [large, b'"small"']
    assert checked == [1]


@in_harness()
async def test_settings_that_a_chain_never_learns_of_are_not_guessed(harness: ProxyHarness) -> None:
    _proxy, one, two = await harness.cluster([1])
    settings = TopicSchema("projects/p/schemas/s", 7, 1)
    one.catalog = two.catalog = of_records(replace(harness.topic, schema=settings))
    error = await failing(harness.publish(b"x"))
    assert (error.code, "schema settings" in error.message) == (Code.UNAVAILABLE, True)
    assert not harness.stored[1]


@in_harness()
async def test_limits_are_those_of_the_plain_request(harness: ProxyHarness) -> None:
    await harness.cluster([1], sealed=True)
    room = 10_000_000 - len(pubsub.PublishRequest(topic=TOPIC).SerializeToString())
    largest = room - 10  # tags and lengths of the message and of its data
    assert await harness.publish(bytes(largest))
    error = await failing(harness.publish(bytes(largest + 1)))
    assert error.code is Code.INVALID_ARGUMENT
    assert error.message.startswith("request: request_size is too large")


@in_harness()
async def test_without_a_key_for_sealing_nothing_is_published(harness: ProxyHarness) -> None:
    await harness.cluster([1], sealed=True)
    harness.processes["proxy"].store.cut = True
    assert (await failing(harness.publish(b"x"))).code is Code.UNAVAILABLE
    assert harness.stored == {}
