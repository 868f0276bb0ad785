"""Who is connected: what is noted of calls, for how long, of how many, and what of it is shown to whom."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.errors import NotFound, Unavailable
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.front.api.client_admin import SHOWN_MAX, ClientAdmin
from syncpoint.front.api.connected_clients import KEPT_MAX, RECENT_S, ConnectedClients, OpenPull
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, internal, pubsub
from syncpoint.wire.transport.calls import Methods, Streaming, Unary

pytestmark = pytest.mark.shows("connected")

PUBLISH, PULL = methods.PUBLISHER.Publish.encode(), methods.SUBSCRIBER.Pull.encode()
STREAM = methods.SUBSCRIBER.StreamingPull.encode()
OTHER = "projects/p/topics/other"


class FakeCall:
    """A call's head. `who`: a principal."""

    def __init__(self, peer: str, who: str = "") -> None:
        self.peer, self.who, self.over = peer, who, False
        self.began, self.noted = 0.0, dict[str, float]()
        self.metadata = {b"user-agent": b"grpc-python/1.70 \xff", b"x-goog-api-client": b"gccl/2.29" * 100}


class Server:
    """Methods that only count; who calls them is noted, a peer being a connection."""

    def __init__(self) -> None:
        self.clock, self.called, self.identified = ManualClock(), 0, 0
        self.open: list[OpenPull] = []
        self.clients = ConnectedClients("one", self.clock, lambda name: self.open, self._who)
        self.noted: dict[str, dict[str, float]] = {}
        self.table: Methods = self.clients.noted(
            {PUBLISH: Unary(self._publish), PULL: Unary(self._count), STREAM: Streaming(lambda call: None)}
        )

    def _who(self, call: Any) -> str:
        self.identified += 1
        return str(call.who)

    def _count(self, call: Any, request: bytes) -> None:
        self.called += 1

    def _publish(self, call: Any, request: bytes) -> None:
        """As the publishers of nodes and proxies do it."""
        self.called += 1
        topic = pubsub.PublishRequest.FromString(request).topic
        if call.noted.get(topic, 0.0) <= call.began:
            self.clients.note_publisher(call, topic)

    def publish(self, call: FakeCall, topic: str = TOPIC) -> None:
        call.began, call.noted = self.clock.monotonic(), self.noted.setdefault(call.peer, {})
        self.table[PUBLISH].handler(call, pubsub.PublishRequest(topic=topic).SerializeToString())  # type: ignore[call-arg, arg-type]

    def pull(self, call: FakeCall) -> None:
        self.table[PULL].handler(call, pubsub.PullRequest(subscription=SUB).SerializeToString())  # type: ignore[call-arg, arg-type]

    def stream(self, call: Any, **first: Any) -> None:
        self.table[STREAM].handler(call)  # type: ignore[call-arg]
        self.open.append(OpenPull(call, pubsub.StreamingPullRequest(**first), f"one/{len(self.open)}"))

    def ask(self, clients_max: int = 1000, **asked: str) -> internal.ClientsResponse:
        return asyncio.run(self.clients.answer(internal.ClientsRequest(clients_max=clients_max, **asked)))

    def publishers(self, topic: str = TOPIC) -> list[str]:
        return [one.client.peer for one in self.ask(topic=topic).clients]


def test_a_publisher_is_seen_for_a_minute_and_only_of_its_topic() -> None:
    server = Server()
    server.publish(FakeCall("a:1", "ann"))
    server.publish(FakeCall("a:1"), OTHER)
    server.clock.advance(30)
    server.publish(FakeCall("b:1"))
    assert server.publishers() == ["b:1", "a:1"]
    assert server.publishers(OTHER) == ["a:1"]
    (seen,) = (one.client for one in server.ask(topic=TOPIC).clients if one.client.peer == "a:1")
    assert (seen.kind, seen.principal, seen.process) == (admin.ConnectedClient.PUBLISHER, "ann", "one")
    assert seen.user_agent == "grpc-python/1.70 �"
    assert len(seen.api_client) == 300
    assert seen.connect_time == seen.last_call_time
    server.clock.advance(RECENT_S - 30)
    assert server.publishers() == ["b:1"]
    assert server.publishers(OTHER) == []
    assert server.called == 3


def test_who_goes_on_publishing_stays_with_the_time_of_its_first_call() -> None:
    server, began = Server(), ManualClock().time_ns()
    for _ in range(5):
        server.publish(FakeCall("a:1", "ann"))
        server.clock.advance(50)
    server.publish(FakeCall("a:1", "bob"))
    (seen,) = (one.client for one in server.ask(topic=TOPIC).clients)
    assert seen.connect_time.ToNanoseconds() == began
    assert seen.last_call_time.ToNanoseconds() == server.clock.time_ns()
    assert seen.principal == "bob"


def test_within_a_second_a_connection_is_noted_once() -> None:
    server = Server()
    for _ in range(100):
        server.publish(FakeCall("a:1"))
        server.clock.advance(0.1)
    assert 10 <= server.identified <= 11
    assert server.called == 100


def test_what_is_no_request_is_left_to_the_method() -> None:
    server = Server()
    server.table[PULL].handler(FakeCall("a:1"), b"\x0a\xff")  # type: ignore[call-arg, arg-type]
    server.publish(FakeCall("a:1"), "x" * 100_000)
    assert server.called == 2
    assert server.publishers("x" * 100_000) == []


def test_a_connection_that_publishes_to_many_topics_is_known_for_each_and_keeps_few_names() -> None:
    server = Server()
    for number in range(2500):
        server.publish(FakeCall("a:1"), f"projects/p/topics/t{number}")
    assert server.publishers("projects/p/topics/t7") == ["a:1"]
    assert len(server.noted["a:1"]) <= 1000


def test_memory_is_bounded_and_the_rest_is_counted() -> None:
    server = Server()
    for number in range(KEPT_MAX + 5):
        server.publish(FakeCall(f"a:{number}"))
    found = server.ask(topic=TOPIC, clients_max=10)
    assert [one.client.peer for one in found.clients][:2] == [f"a:{KEPT_MAX + 4}", f"a:{KEPT_MAX + 3}"]
    assert (len(found.clients), found.more) == (10, KEPT_MAX - 10)


def test_streams_come_before_pulls_and_pass_with_their_end() -> None:
    server = Server()
    server.pull(FakeCall("p:1"))
    for number in range(3):
        server.clock.advance(1)
        server.stream(FakeCall(f"s:{number}", "ann"), client_id=f"c{number}", max_outstanding_messages=10 * number)
    found = server.ask(subscription=SUB, clients_max=3)
    assert [(one.client.peer, one.client.client_id, one.client.max_outstanding_messages) for one in found.clients] == [
        ("s:0", "c0", 0), ("s:1", "c1", 10), ("s:2", "c2", 20),
    ]  # fmt: skip
    assert found.more == 1
    assert [one.stream for one in found.clients] == ["one/0", "one/1", "one/2"]
    assert {one.client.principal for one in found.clients} == {"ann"}
    server.open.clear()
    assert [one.client.peer for one in server.ask(subscription=SUB).clients] == ["p:1"]


def test_streams_that_ended_are_forgotten() -> None:
    server = Server()
    lasting = FakeCall("s:0")
    server.stream(lasting)
    for number in range(KEPT_MAX + 1):
        call = FakeCall(f"t:{number}")
        server.table[STREAM].handler(call)  # type: ignore[call-arg, arg-type]
        call.over = True
    assert len(server.clients._opened) == 3
    assert [one.client.peer for one in server.ask(subscription=SUB).clients] == ["s:0"]


class Callers:
    def __init__(self, *, allowed: bool) -> None:
        self.allowed, self.asked = allowed, ""

    def holds(self, call: Any, permission: str, resource: str) -> bool:
        self.asked = f"{permission} {resource}"
        return self.allowed


def reporting(**processes: Any) -> Any:
    """Processes with their answers, or what they fail with."""

    def one(answer: Any) -> Any:
        async def ask(asked: internal.ClientsRequest) -> internal.ClientsResponse:
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ask

    return lambda: {name: one(answer) for name, answer in processes.items()}


async def nothing_held(subscription: int) -> tuple[list[internal.HeldStream], list[str]]:
    return [], []


def seen(kind: str, peer: str, at: int, stream: str = "") -> internal.SeenClient:
    client = admin.ConnectedClient(kind=kind, peer=peer, principal="ann", connect_time={"seconds": at})
    client.last_call_time.seconds = 0 if stream else at
    return internal.SeenClient(client=client, stream=stream)


@simulated()
async def test_answers_of_all_are_one_list_and_who_is_silent_is_named(harness: ServicerHarness) -> None:
    async def held(subscription: int) -> tuple[list[internal.HeldStream], list[str]]:
        assert subscription == harness.control.catalog.subscription(SUB).incarnation  # type: ignore[union-attr]
        return [internal.HeldStream(stream="a/1", messages=7, bytes=70)], ["sub-2 does not report"]

    clients = reporting(
        a=internal.ClientsResponse(clients=[seen("STREAM", "s:2", 2, "a/1"), seen("PULL", "p:1", 1)], more=4),
        b=internal.ClientsResponse(clients=[seen("STREAM", "s:1", 1, "b/1"), seen("PULL", "p:2", 2)]),
        c=Unavailable("gone"),
    )
    service = ClientAdmin(harness.admin.options, clients, held)
    found = await service.list_subscription_clients(admin.ListSubscriptionClientsRequest(subscription=SUB))
    assert [one.peer for one in found.clients] == ["s:1", "s:2", "p:2", "p:1"]
    assert found.more == 4
    assert not found.clients[0].HasField("outstanding_messages")  # not known is not none
    assert (found.clients[1].outstanding_messages, found.clients[1].outstanding_bytes) == (7, 70)
    assert found.unknown[0].startswith("c does not report its clients (")
    assert found.unknown[1:] == ["sub-2 does not report"]


@simulated()
async def test_no_more_than_a_thousand_are_shown(harness: ServicerHarness) -> None:
    many = internal.ClientsResponse(clients=[seen("PUBLISHER", f"p:{n}", n) for n in range(600)], more=2)
    service = ClientAdmin(harness.admin.options, reporting(a=many, b=many), nothing_held)
    found = await service.list_topic_publishers(admin.ListTopicPublishersRequest(topic=TOPIC))
    assert [one.peer for one in found.publishers][:3] == ["p:599", "p:599", "p:598"]
    assert (len(found.publishers), found.more) == (SHOWN_MAX, 204)
    with pytest.raises(NotFound):
        await service.list_topic_publishers(admin.ListTopicPublishersRequest(topic=OTHER))
    with pytest.raises(NotFound):
        await service.list_subscription_clients(admin.ListSubscriptionClientsRequest(subscription=f"{SUB}x"))


@simulated()
async def test_addresses_are_for_who_may_see_the_server(harness: ServicerHarness) -> None:
    answers = reporting(a=internal.ClientsResponse(clients=[seen("STREAM", "s:1", 1, "a/1")]))
    for allowed in (True, False):
        callers = Callers(allowed=allowed)
        service = ClientAdmin(harness.admin.options, answers, nothing_held, callers)
        harness.channel = type(harness.channel)(service.methods())
        found = await harness.call("ListSubscriptionClients", subscription=SUB)
        (one,) = found.clients
        assert callers.asked == "syncpoint.server.get server"
        assert (one.peer, one.principal) == (("s:1", "ann") if allowed else ("", ""))
        assert found.addresses_hidden is not allowed


@simulated()
async def test_of_a_real_stream_limits_and_what_is_outstanding_are_known(harness: ServicerHarness) -> None:
    clients = ConnectedClients("server", harness.clock, harness.streams.open_pulls)
    harness.publisher.note_publisher = clients.note_publisher

    async def held(subscription: int) -> tuple[list[internal.HeldStream], list[str]]:
        return list(harness.streams.held(subscription)), []

    service = ClientAdmin(harness.admin.options, lambda: {"server": clients.answer}, held)
    harness.channel = type(harness.channel)(clients.noted({**harness.table, **service.methods()}))
    await harness.call("Publish", topic=TOPIC, messages=[{"data": b"12345"}] * 5)
    stream = harness.channel.stream(methods.SUBSCRIBER.StreamingPull)
    first = pubsub.StreamingPullRequest(
        subscription=SUB, stream_ack_deadline_seconds=60, client_id="me", max_outstanding_messages=3
    )
    await stream.send(first.SerializeToString())
    await stream.receive()
    found = await harness.call("ListSubscriptionClients", subscription=SUB)
    (one,) = found.clients
    assert (one.client_id, one.max_outstanding_messages, one.outstanding_messages) == ("me", 3, 3)
    assert one.outstanding_bytes >= 15
    (publisher,) = (await harness.call("ListTopicPublishers", topic=TOPIC)).publishers
    assert publisher.process == "server"
    stream.cancel()
    await asyncio.sleep(1)
    assert not (await harness.call("ListSubscriptionClients", subscription=SUB)).clients
