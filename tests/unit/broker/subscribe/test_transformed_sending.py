"""Message transforms in front of subscribers of one node: slow ones, failing ones, and callers that leave meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.errors import SyncpointError
from syncpoint.broker.subscribe.transformed_sending import DeliveryTransforms
from syncpoint.catalog.transforms.errors import TransformError
from syncpoint.catalog.transforms.message_transforms import Outcome, Transformer
from syncpoint.testing.rigs.forwarder_harness import SUB
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.transforming import PlayedTransformer

ANY = pubsub.Subscription(message_transforms=[pubsub.MessageTransform()]).SerializeToString()


class Played(PlayedTransformer):
    """Takes some seconds for a response, and fails as the data of a message says."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.given, self.failing = seconds, list[bytes](), True

    async def play(self, transforms: Any, messages: Any) -> list[Outcome]:
        self.given += [one.data for one in messages]
        await asyncio.sleep(self.seconds)
        if self.failing and any(one.data == b"odd" for one in messages):
            raise ValueError("nobody expected this")
        return [TransformError("no") if self.failing and one.data == b"fail" else one for one in messages]


def transformed_by(harness: ServicerHarness, transformer: Transformer) -> None:
    harness.subscribe.transforms = DeliveryTransforms(transformer)


@simulated(config=ANY)
async def test_nothing_is_lent_to_a_subscriber_while_it_waits_for_a_transform(harness: ServicerHarness) -> None:
    transformer = Played(seconds=4.0)
    transformed_by(harness, transformer)
    stream = await harness.stream()
    for number in range(6):
        await harness.put(str(number))
        await asyncio.sleep(0.01)
    assert transformer.given == [b"0"]
    assert harness.subscribe.outstanding()[0] == 1, "the others' leases would run while they wait"
    assert [one.message.data for one in await stream.messages(6)] == [b"%d" % number for number in range(6)]


@simulated(config=ANY)
async def test_a_response_that_cannot_be_transformed_at_all_stops_nothing(harness: ServicerHarness) -> None:
    transformer = Played(seconds=0.5)
    transformed_by(harness, transformer)
    stream = await harness.stream()
    await harness.put("odd")
    await asyncio.sleep(3)
    await harness.put("even")
    transformer.failing = False
    got = await stream.messages(2)
    assert sorted(one.message.data for one in got) == [b"even", b"odd"]


@simulated(config=ANY)
async def test_what_cannot_be_transformed_at_all_is_tried_again_after_a_pause(harness: ServicerHarness) -> None:
    transformer = Played()
    transformed_by(harness, transformer)
    stream = await harness.stream()
    await harness.put("odd")
    await asyncio.sleep(10.5)
    assert 5 <= len(transformer.given) <= 12
    transformer.failing = False
    assert [one.message.data for one in await stream.messages(1)] == [b"odd"]


@simulated(config=ANY)
async def test_a_pull_that_does_not_wait_is_answered_with_what_is_being_transformed(harness: ServicerHarness) -> None:
    transformed_by(harness, Played(seconds=2.0))
    await harness.put("a")
    request = {"subscription": SUB, "max_messages": 1, "return_immediately": True}
    answer = await harness.call("Pull", **request, timeout=60.0)
    assert [one.message.data for one in answer.received_messages] == [b"a"]


@simulated(config=ANY)
async def test_what_a_pull_did_not_wait_for_is_free_again_at_once(harness: ServicerHarness) -> None:
    transformer = Played(seconds=2.0)
    transformed_by(harness, transformer)
    await harness.put("a")
    with pytest.raises(SyncpointError):
        await harness.pull(timeout=1.0)
    transformer.seconds = 0.0
    await asyncio.sleep(1.5)
    assert [one.message.data for one in await harness.pull(timeout=1.0)] == [b"a"]
