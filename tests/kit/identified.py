"""Topics that know duplicates by ids: publishes under ids, and what is delivered of them."""

from __future__ import annotations

from typing import Any

from syncpoint.broker.publish.facts.message_ids import PUBLISHED
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.catalog.metadata.entity_options import TopicOptions
from syncpoint.catalog.metadata.records import CatalogChange, Topic
from syncpoint.testing.rigs.forwarder_harness import TOPIC, ForwarderHarness, HarnessCaller, Subscriber
from syncpoint.wire.protobuf.messages import pubsub

WINDOW_S = 60


def harness_with(window_s: int = WINDOW_S) -> ForwarderHarness:
    harness = ForwarderHarness()
    harness.commit(CatalogChange.put(Topic(1, TOPIC, options=TopicOptions(duplicate_window_s=window_s))))
    return harness


def send(
    harness: ForwarderHarness,
    *ids: str | None,
    name: str = PUBLISHED,
    origin: PublishOrigin = PublishOrigin.CLIENT,
    data: bytes = b"x",
    **more: Any,
) -> HarnessCaller:
    """One request with a message for each id, not persisted yet."""
    caller = HarnessCaller()
    request = pubsub.PublishRequest(topic=TOPIC)
    for one in ids:
        request.messages.add(data=data, attributes={name: one} if one is not None else {}, **more)
    topic = harness.publish.catalog.topic(TOPIC)
    assert topic is not None
    harness.publish.intake.publish(caller, topic, request.SerializeToString(), origin)
    return caller


def ids_of(caller: HarnessCaller) -> list[str]:
    assert caller.ids is not None
    return caller.ids


def delivered(harness: ForwarderHarness) -> list[str]:
    subscriber = Subscriber(harness)
    harness.quiesce()
    return [one.message.message_id for one in subscriber.received]
