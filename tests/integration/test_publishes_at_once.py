"""Publishes that come together on one connection are answered, refused, stored and delivered as each is alone, whatever
its topic and its attributes ask for, in all three houses."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import grpc
import pytest

from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf.messages import pubsub
from tests.integration.conftest import Space
from tests.integration.test_one_house_changes import transform

pytestmark = pytest.mark.shows("one-house")

EACH = 25  # calls of each kind
PUBLISH = "/google.pubsub.v1.Publisher/Publish"
GONE_S = 2  # when messages run out
KINDS = (
    "plain", "keyed", "several", "ttl", "scheduled", "repeated", "fits", "misfit", "changed", "suspended", "nowhere",
    "long key", "empty", "malformed",
)  # fmt: skip


@pytest.fixture
def space(house: str) -> Iterator[Space]:
    made = Space(house)
    yield made
    made.close()


class Topics(NamedTuple):
    """Topics that ask for something each, every one with a subscription."""

    plain: str
    window: str
    schema: str
    transform: str
    suspended: str
    subscriptions: dict[str, str]


def topics_of(space: Space, tag: str) -> Topics:
    definition = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]})
    schema = {"type_": "AVRO", "definition": definition}
    made = space.api.create_schema({"parent": f"projects/{space.project}", "schema_id": tag, "schema": schema})
    names = {
        "plain": space.topic(f"{tag}-plain"),
        "window": space.topic(f"{tag}-window"),
        "schema": space.topic(f"{tag}-schema", schema_settings={"schema": made.name, "encoding": "JSON"}),
        "transform": space.topic(
            f"{tag}-transform", message_transforms=[transform("message.data += '!'; return message;")]
        ),
        "suspended": space.topic(f"{tag}-suspended"),
    }
    subscriptions = {kind: space.subscription(name, f"{tag}-{kind}") for kind, name in names.items()}
    for kind, options in (
        ("window", {"duplicate_detection_window": {"seconds": 600}}),
        ("suspended", {"send_suspended": True}),
    ):
        mask = {"paths": list(options)}
        space.asked("UpdateTopicOptions", options={"topic": names[kind], **options}, update_mask=mask)
    return Topics(**names, subscriptions=subscriptions)


def request_of(topics: Topics, kind: str, number: int, due: str) -> bytes:
    """A serialised PublishRequest."""
    data, attributes, key = f"{kind} {number}".encode(), {"number": str(number)}, ""
    topic = topics.plain
    if kind == "malformed":
        return pubsub.PublishRequest(topic=topic).SerializeToString() + b"\x12\x7f"
    if kind == "keyed":
        key = f"k{number % 3}"
    elif kind == "ttl":
        attributes["sys.TimeToLive"] = f"00:00:{GONE_S:02}"
    elif kind == "scheduled":
        attributes["sys.ScheduledEnqueueTimeUtc"] = due
    elif kind == "repeated":
        topic, data, attributes = topics.window, b"%d" % (number % 5), {"sys.MessageId": f"id-{number % 5}"}
    elif kind in ("fits", "misfit"):
        topic, data = topics.schema, json.dumps({"id" if kind == "fits" else "no": str(number)}).encode()
    elif kind == "changed":
        topic = topics.transform
    elif kind == "suspended":
        topic = topics.suspended
    elif kind == "nowhere":
        topic += "-not"
    elif kind == "long key":
        attributes["k" * 300] = "v"
    elif kind == "empty":
        data, attributes = b"", {}
    messages = [pubsub.PubsubMessage(data=data, attributes=attributes, ordering_key=key)]
    return pubsub.PublishRequest(topic=topic, messages=messages * (3 if kind == "several" else 1)).SerializeToString()


async def answers(endpoint: str, requests: Sequence[bytes], *, at_once: bool) -> list[tuple[str, str, int]]:
    """Of each call its code, details and number of ids."""
    async with grpc.aio.insecure_channel(endpoint) as channel:
        method: Any = channel.unary_unary(PUBLISH)

        async def call(request: bytes) -> tuple[str, str, int]:
            try:
                response = pubsub.PublishResponse.FromString(await method(request, timeout=60))
            except grpc.aio.AioRpcError as error:
                return error.code().name, error.details() or "", 0
            return "OK", "", len(response.message_ids)

        if at_once:
            return list(await asyncio.gather(*map(call, requests)))
        return [await call(request) for request in requests]


def received(space: Space, subscription: str) -> Counter[tuple[bytes, str]]:
    """Data and ordering key of all that came, once nothing is left."""
    came: Counter[tuple[bytes, str]] = Counter()

    def is_empty() -> bool:
        got = space.peek(subscription)
        if got:
            space.ack(subscription, *got)
        came.update((one.message.data, one.message.ordering_key) for one in got)
        return not space.asked("GetSubscriptionState", subscription=subscription).backlog_messages

    eventually(is_empty)
    return came


def held(space: Space, subscription: str) -> list[bytes]:
    """The data of all that waits for a subscription, which is not received."""
    found = space.asked("PeekSubscription", subscription=subscription, page_size=1000)
    assert not found.next_page_token
    return [one.message.data for one in found.messages]


def waiting(space: Space, topics: Topics) -> set[bytes]:
    """What is scheduled."""
    listed = space.asked("ListScheduledMessages", topic=topics.plain, page_size=100).messages
    return {
        space.asked("GetScheduledMessage", topic=topics.plain, message_id=one.message_id).message.data for one in listed
    }


def test_what_comes_together_is_taken_as_what_comes_alone(space: Space) -> None:
    random = Random(0)
    alone, together = topics_of(space, "alone"), topics_of(space, "together")
    calls = [(kind, number) for kind in KINDS for number in range(EACH)]
    random.shuffle(calls)
    due = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    outcome = {}
    for topics, at_once in ((alone, False), (together, True)):
        requests = [request_of(topics, kind, number, due) for kind, number in calls]
        outcome[at_once] = asyncio.run(answers(space.endpoint, requests, at_once=at_once))
    names = [(code, details.replace("together", "alone"), ids) for code, details, ids in outcome[True]]
    for (kind, _), one, other in zip(calls, outcome[False], names, strict=True):
        assert one == other, kind
        refused = kind in ("misfit", "suspended", "nowhere", "long key", "empty", "malformed")
        assert (one[0] != "OK") == refused, (kind, one)
        assert one[2] == (0 if refused else 3 if kind == "several" else 1), kind
    for topics in (alone, together):
        eventually(
            lambda plain=topics.subscriptions["plain"]: not any(one.startswith(b"ttl") for one in held(space, plain))
        )
    for topic, subscription in alone.subscriptions.items():
        assert received(space, subscription) == received(space, together.subscriptions[topic]), topic
    assert (
        waiting(space, alone) == waiting(space, together) == {f"scheduled {number}".encode() for number in range(EACH)}
    )
