"""Load: what is published and received is counted once, against a server of the reference implementation of gRPC."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any

import grpc
import pytest

from syncpoint.base.model.errors import InvalidArgument, NotFound
from syncpoint.programs.cli.bench_load import LoadResult, PublishLoad, Reach, ReceiveLoad, publish, receive
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("cli")

TOPIC, SUB = "projects/p/topics/t", "projects/p/subscriptions/s"


class Reference(grpc.GenericRpcHandler):
    """Stores keys of messages; hands out `waiting` messages, ten at a time, and remembers what became of them."""

    def __init__(self) -> None:
        self.keys: Counter[str] = Counter()
        self.sizes: set[int] = set()
        self.refusals = 0
        self.waiting = 0
        self.ends = 0  # streams that end by themselves before they bring anything
        self.acked: list[str] = []
        self.given_back: list[str] = []

    def service(self, details: Any) -> Any:
        name = details.method.rpartition("/")[2]
        if name == "StreamingPull":
            return grpc.stream_stream_rpc_method_handler(self.streaming_pull)
        return grpc.unary_unary_rpc_method_handler(
            {"Publish": self.publish, "Acknowledge": self.ack}.get(name, self.modify)
        )

    def publish(self, data: bytes, context: Any) -> bytes:
        asked = pubsub.PublishRequest.FromString(data)
        if asked.topic != TOPIC:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such topic")
        if self.refusals:
            self.refusals -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        self.keys.update(one.ordering_key for one in asked.messages)
        self.sizes |= {len(one.data) for one in asked.messages}
        return bytes(pubsub.PublishResponse(message_ids=["1"] * len(asked.messages)).SerializeToString())

    def streaming_pull(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        if self.ends:
            self.ends -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "the stream has been open for long")
        first = pubsub.StreamingPullRequest.FromString(next(requests))
        if first.subscription != SUB:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such subscription")
        while self.waiting:
            self.waiting -= 1
            response = pubsub.StreamingPullResponse()
            for _ in range(10):
                response.received_messages.add(ack_id=f"{self.waiting}", message={"data": b"12345"})
            yield bytes(response.SerializeToString())
        for _ in requests:
            pass

    def ack(self, data: bytes, context: Any) -> bytes:
        self.acked += pubsub.AcknowledgeRequest.FromString(data).ack_ids
        return b""

    def modify(self, data: bytes, context: Any) -> bytes:
        asked = pubsub.ModifyAckDeadlineRequest.FromString(data)
        assert (asked.subscription, asked.ack_deadline_seconds) == (SUB, 0)
        self.given_back += asked.ack_ids
        return b""


@pytest.fixture
def reference() -> Iterator[tuple[Reference, Reach]]:
    handler = Reference()
    server = grpc.server(ThreadPoolExecutor(4), handlers=(handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield handler, {"addresses": f"127.0.0.1:{port}"}
    server.stop(None)


def test_all_messages_are_published_by_turns_of_their_keys(reference: tuple[Reference, Reach]) -> None:
    handler, reach = reference
    handler.refusals = 3
    reported: list[int] = []
    load = PublishLoad(TOPIC, 1_050, size=30, batch=100, connections=2, window=3, keys=2)
    result = asyncio.run(publish(reach, load, reported.append))
    assert (result.messages, result.payload_bytes, result.again) == (1_050, 31_500, 3)
    assert (sum(handler.keys.values()), set(handler.keys), handler.sizes) == (1_050, {"key-0", "key-1"}, {30})
    assert (max(reported), len(result.latencies_s)) == (1_050, 11)
    assert result.seconds > 0
    assert 0 < result.latency_s(0.5) <= result.latency_s(0.99) <= result.latency_s(1.0)


def test_a_failure_that_stays_ends_the_run(reference: tuple[Reference, Reach]) -> None:
    _, reach = reference
    with pytest.raises(NotFound):
        asyncio.run(publish(reach, PublishLoad(TOPIC + "x", 100)))
    with pytest.raises(NotFound):
        asyncio.run(receive(reach, ReceiveLoad(SUB + "x", 100)))
    with pytest.raises(InvalidArgument, match="size: a message of"):  # no request has room for it
        asyncio.run(publish(reach, PublishLoad(TOPIC, messages=2, size=10_000_000, batch=1)))


@pytest.mark.parametrize("wanted", [1_000, 45])
def test_what_is_received_is_acknowledged_or_given_back(reference: tuple[Reference, Reach], wanted: int) -> None:
    handler, reach = reference
    handler.waiting, handler.ends = 100, 1
    result = asyncio.run(receive(reach, ReceiveLoad(SUB, wanted, idle_s=20)))
    assert (result.again, result.payload_bytes) == (1, 5 * result.messages)
    assert result.messages >= wanted
    assert len(handler.acked) == result.messages
    assert len(handler.acked) + len(handler.given_back) == 1_000 - 10 * handler.waiting
    if wanted == 45:
        assert result.messages == 50


def test_a_rate_is_kept_and_time_ends_it(reference: tuple[Reference, Reach]) -> None:
    handler, reach = reference
    load = PublishLoad(TOPIC, inf, size=1, batch=10, connections=2, window=3, rate=2_000, seconds=1.0)
    result = asyncio.run(publish(reach, load))
    assert result.messages == sum(handler.keys.values()) == 10 * len(result.latencies_s)
    assert 10 <= result.messages <= 2_000, "as many as were due in that second, and no more"
    handler.waiting = 1_000_000_000
    result = asyncio.run(receive(reach, ReceiveLoad(SUB, inf, seconds=0.5)))
    assert result.messages > 0
    assert len(handler.acked) + len(handler.given_back) >= result.messages


def test_it_ends_where_nothing_comes(reference: tuple[Reference, Reach]) -> None:
    _, reach = reference
    result = asyncio.run(receive(reach, ReceiveLoad(SUB, 10, idle_s=0.3)))
    assert (result.messages, result.seconds) == (0, 0.0)


def test_a_result_without_calls_has_no_latency() -> None:
    assert LoadResult().latency_s(0.99) == 0.0
