"""Following a subscription: what is acknowledged, held and given back, against gRPC's reference implementation."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from syncpoint.base.model.errors import NotFound, PermissionDenied, SyncpointError
from syncpoint.front.client import following
from syncpoint.front.client.following import Following
from syncpoint.front.client.traffic import Target
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.client import Channel

pytestmark = pytest.mark.shows("cli")

SUB = "projects/p/subscriptions/s"


class Reference(grpc.GenericRpcHandler):
    """A subscription with `waiting` messages; remembers what became of them."""

    def __init__(self) -> None:
        self.waiting: queue.Queue[str] = queue.Queue()
        self.breaks = 0  # streams that end before they bring anything
        self.refusals: list[grpc.StatusCode] = []  # of acknowledgements
        self.acked: list[str] = []
        self.deadlines: list[tuple[str, int]] = []
        self.outstanding: list[int] = []
        self.changed = threading.Event()

    def service(self, details: Any) -> Any:
        name = details.method.rpartition("/")[2]
        if name == "StreamingPull":
            return grpc.stream_stream_rpc_method_handler(self.streaming_pull)
        return grpc.unary_unary_rpc_method_handler(self.ack if name == "Acknowledge" else self.modify)

    def streaming_pull(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        first = pubsub.StreamingPullRequest.FromString(next(requests))
        self.outstanding.append(first.max_outstanding_messages)
        if first.subscription != SUB:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such subscription")
        if self.breaks:
            self.breaks -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "the stream has been open for long")
        while context.is_active():
            try:
                name = self.waiting.get(timeout=0.05)
            except queue.Empty:
                continue
            if not context.is_active():
                self.waiting.put(name)
                return
            one = pubsub.ReceivedMessage(ack_id=name, message={"data": name.encode()})
            yield bytes(pubsub.StreamingPullResponse(received_messages=[one]).SerializeToString())

    def ack(self, data: bytes, context: Any) -> bytes:
        if self.refusals:
            context.abort(self.refusals.pop(0), "not now")
        self.acked += pubsub.AcknowledgeRequest.FromString(data).ack_ids
        return b""

    def modify(self, data: bytes, context: Any) -> bytes:
        asked = pubsub.ModifyAckDeadlineRequest.FromString(data)
        self.deadlines += [(one, asked.ack_deadline_seconds) for one in asked.ack_ids]
        self.changed.set()
        return b""


@pytest.fixture
def reference() -> Iterator[tuple[Reference, Target]]:
    handler = Reference()
    server = grpc.server(ThreadPoolExecutor(6), handlers=(handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield handler, Target(lambda: Channel("127.0.0.1", port))
    server.stop(None)


def ids(received: Sequence[Any]) -> list[str]:
    return [one.ack_id for one in received]


async def run(target: Target, handle: Any, subscription: str = SUB, **options: Any) -> Following:
    made = Following(target, subscription, handle, **options)
    async with asyncio.timeout(60):
        await made.run(asyncio.Event())
    return made


def test_messages_are_acknowledged_after_they_were_handled_and_no_more_than_wanted(
    reference: tuple[Reference, Target],
) -> None:
    handler, target = reference
    for number in range(5):
        handler.waiting.put(str(number))
    before: list[tuple[str, list[str]]] = []

    async def handle(received: Sequence[Any]) -> int:
        before.extend((one, list(handler.acked)) for one in ids(received))
        return len(received)

    assert asyncio.run(run(target, handle, messages=3)).handled == 3
    assert [one for one, _ in before] == handler.acked == ["0", "1", "2"]
    assert all(one not in acked for one, acked in before)
    assert handler.outstanding == [3]
    assert not {one for one, _ in handler.deadlines} & set(handler.acked)


def test_a_reader_that_leaves_gets_its_messages_again(reference: tuple[Reference, Target]) -> None:
    handler, target = reference
    handler.waiting.put("a")

    async def handle(received: Sequence[Any]) -> int:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        asyncio.run(run(target, handle))
    assert (handler.acked, handler.deadlines) == ([], [("a", 0)])


def test_the_end_gives_a_handler_that_waits_no_more_than_its_time(
    reference: tuple[Reference, Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, target = reference
    monkeypatch.setattr(following, "END_S", 0.5)
    handler.waiting.put("a")

    async def follow() -> Following:
        over, stuck = asyncio.Event(), asyncio.Event()

        async def handle(received: Sequence[Any]) -> int:
            over.set()
            await stuck.wait()
            return 1

        made = Following(target, SUB, handle)
        await asyncio.wait_for(made.run(over), 30)
        return made

    assert asyncio.run(follow()).handled == 0
    assert (handler.acked, handler.deadlines) == ([], [("a", 0)])


def test_leases_are_kept_while_a_handler_waits(
    reference: tuple[Reference, Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, target = reference
    monkeypatch.setattr(following, "EXTEND_S", 0.05)
    handler.waiting.put("a")

    async def handle(received: Sequence[Any]) -> int:
        assert await asyncio.to_thread(handler.changed.wait, 30)
        return len(received)

    asyncio.run(run(target, handle, messages=1))
    assert handler.deadlines[0] == ("a", following.LEASE_S)
    assert handler.acked == ["a"]


def test_without_acknowledging_everything_is_held_and_given_back(reference: tuple[Reference, Target]) -> None:
    handler, target = reference
    handler.waiting.put("a")
    handler.waiting.put("b")

    async def handle(received: Sequence[Any]) -> int:
        return len(received)

    asyncio.run(run(target, handle, messages=2, acknowledge=False))
    assert handler.acked == []
    assert sorted(handler.deadlines) == [("a", 0), ("b", 0)]


def test_streams_and_acknowledgements_that_fail_for_a_moment_are_tried_again(
    reference: tuple[Reference, Target],
) -> None:
    handler, target = reference
    handler.breaks, handler.refusals = 1, [grpc.StatusCode.UNAVAILABLE]
    handler.waiting.put("a")
    trouble: list[SyncpointError] = []

    async def handle(received: Sequence[Any]) -> int:
        return len(received)

    asyncio.run(run(target, handle, messages=1, trouble=trouble.append))
    assert handler.acked == ["a"]
    assert [one.message for one in trouble] == ["the stream has been open for long", "not now"]


def test_what_stays_wrong_ends_it(reference: tuple[Reference, Target]) -> None:
    handler, target = reference

    async def handle(received: Sequence[Any]) -> int:
        if ids(received) == ["b"]:
            handler.waiting.put("c")
        return len(received)

    with pytest.raises(NotFound):
        asyncio.run(run(target, handle, SUB + "x"))
    handler.waiting.put("a")
    handler.refusals = [grpc.StatusCode.PERMISSION_DENIED]
    with pytest.raises(PermissionDenied):
        asyncio.run(run(target, handle))
    # With exactly-once delivery an acknowledgement may come too late: the message comes again, and no more is lost.
    handler.refusals = [grpc.StatusCode.FAILED_PRECONDITION]
    handler.waiting.put("b")
    asyncio.run(run(target, handle, messages=2))
    assert handler.acked == ["c"]
