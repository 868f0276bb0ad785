"""The driver of `edge_route` over channels that answer, refuse and hang."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from syncpoint.base.model.errors import Code, InvalidArgument, SyncpointError, Unavailable, Unprocessed
from syncpoint.client.edge_publisher import EdgeDeadlineMissed, EdgePublisher
from syncpoint.client.service_link import Connecting
from syncpoint.front.client.switching_receiver import MESSAGE_ID
from syncpoint.wire.protobuf.messages import pubsub

TOPIC = "projects/p/topics/gate"


class HeldPlace:
    """Stores, refuses with `error`, or hangs."""

    def __init__(self, error: SyncpointError | None = None, *, hangs: bool = False) -> None:
        self.error, self.hangs = error, hangs
        self.stored: list[Any] = []

    async def unary(self, path: str, message: bytes, **_: Any) -> bytes:
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        self.stored += pubsub.PublishRequest.FromString(message).messages
        answer: bytes = pubsub.PublishResponse(message_ids=[str(len(self.stored))]).SerializeToString()
        return answer

    async def close(self) -> None:
        """Nothing is open."""


@contextmanager
def publisher(places: dict[str, HeldPlace], **options: Any) -> Iterator[EdgePublisher]:
    with (
        mock.patch.object(Connecting, "channel", lambda self, address: places[address]),
        EdgePublisher({name: name for name in places}, TOPIC, **options) as edge,
    ):
        yield edge


def test_a_message_is_stored_by_the_place_that_can() -> None:
    places = {"eu": HeldPlace(Unavailable("away")), "us": HeldPlace()}
    with publisher(places) as edge:
        receipt = edge.publish(b"pay", attributes={"n": "1"}, ordering_key="k")
        assert (receipt.place, receipt.message_id) == ("us", "1")
        (stored,) = places["us"].stored
        assert (stored.data, stored.ordering_key) == (b"pay", "k")
        assert stored.attributes == {"n": "1", MESSAGE_ID: receipt.identity}
        assert edge.publish(b"again", attributes={MESSAGE_ID: "mine"}).identity == "mine"


def test_nobody_waits_for_a_place_that_hangs() -> None:
    with publisher({"eu": HeldPlace(hangs=True), "us": HeldPlace()}, patience_s=0.01) as edge:
        assert edge.publish(b"pay").place == "us"


@pytest.mark.parametrize(
    ("place", "in_doubt", "said"),
    [
        (HeldPlace(Unprocessed("nobody listens")), [], "eu: nobody listens"),
        (HeldPlace(Unavailable("broken")), ["eu"], "may be stored at eu"),
        (HeldPlace(hangs=True), ["eu"], "no place answers"),
    ],
)
def test_a_missed_deadline_says_where_the_message_may_be(place: HeldPlace, in_doubt: list[str], said: str) -> None:
    with publisher({"eu": place}) as edge, pytest.raises(EdgeDeadlineMissed, match=said) as caught:
        edge.publish(b"pay", deadline_s=0.05)
    assert (caught.value.code, caught.value.in_doubt) == (Code.DEADLINE_EXCEEDED, in_doubt)


def test_what_is_wrong_with_a_message_is_raised_at_once() -> None:
    places = {"eu": HeldPlace(InvalidArgument("topic", "no")), "us": HeldPlace()}
    with publisher(places, deadline_s=60.0) as edge, pytest.raises(SyncpointError) as caught:
        edge.publish(b"pay")
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert not places["us"].stored
