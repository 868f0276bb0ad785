"""Streams through a proxy: forwarders come and go behind a client that notices nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.metadata.contract import Delete, Put
from syncpoint.metadata.layout import MEMBERS
from syncpoint.model.cluster import Member
from syncpoint.model.errors import Code, FailedPrecondition, NotFound, SyncpointError, Unavailable
from syncpoint.proxy.pull_relay import TRY_AGAIN
from syncpoint.wire.messages import pubsub
from tests.kit.errors import failing
from tests.kit.proxy import (
    SUBSCRIBER,
    SUBSCRIPTION,
    ProxyProcess,
    ProxyWorld,
    SubscribeProcess,
    in_world,
    run,
)


async def cluster(world: ProxyWorld, forwarders: int = 2, share: list[str] | None = None, **options: Any) -> Any:
    """Forwarders s1, s2, ... of which the first serves the subscription, and a proxy."""
    for number in range(1, forwarders + 1):
        await world.start(SubscribeProcess, f"s{number}")
    world.share(share or ["s1"])
    made = await world.start(ProxyProcess, "proxy", **options)
    await asyncio.sleep(0.1)
    return made.proxy


def forwarder(world: ProxyWorld, name: str) -> SubscribeProcess:
    found = world.processes[name]
    assert isinstance(found, SubscribeProcess)
    return found


@in_world()
async def test_requests_and_responses_pass_both_ways(world: ProxyWorld) -> None:
    await cluster(world)
    stream = await world.stream(max_outstanding_messages=7, client_id="me")
    assert await stream.data() == [b"s1"]
    one = forwarder(world, "s1")
    (session,) = one.sessions
    assert (session.first.subscription, session.first.max_outstanding_messages) == (SUBSCRIPTION, 7)
    one.send(b"a", b"b")
    assert await stream.data() == [b"a", b"b"]
    await stream.send()
    await stream.send(modify_deadline_ack_ids=["x"], modify_deadline_seconds=[5])
    await asyncio.sleep(0.1)
    assert [len(later.modify_deadline_ack_ids) for later in session.later] == [0, 1]


@in_world()
async def test_a_half_close_ends_with_ok(world: ProxyWorld) -> None:
    proxy = await cluster(world)
    stream = await world.stream()
    await stream.next()
    await stream.behind.end()
    assert await stream.next() is None
    assert forwarder(world, "s1").sessions[0].ended
    assert not proxy.streams.open_streams


@in_world()
async def test_a_crash_is_not_seen(world: ProxyWorld) -> None:
    proxy = await cluster(world)
    stream = await world.stream(ack_ids=["old"], max_outstanding_bytes=99)
    await stream.next()
    await stream.send(stream_ack_deadline_seconds=90)
    await asyncio.sleep(0.1)
    forwarder(world, "s1").crash()
    assert await stream.data() == [b"s2"]
    (session,) = forwarder(world, "s2").sessions
    first = session.first
    assert (first.client_id, first.max_outstanding_bytes) == ("c", 99)
    assert (list(first.ack_ids), first.stream_ack_deadline_seconds) == ([], 90)
    assert proxy.streams.moved == 1


@in_world()
async def test_a_hung_forwarder_is_left_soon(world: ProxyWorld) -> None:
    await cluster(world)
    stream = await world.stream()
    await stream.next()
    forwarder(world, "s1").process.hang()
    began = world.loop.time()
    assert await stream.data() == [b"s2"]
    assert world.loop.time() - began < 3
    forwarder(world, "s1").process.go_on()
    assert await stream.data() == [b"s1"]  # back to the one that is to serve it, when it is there again
    (session,) = forwarder(world, "s2").sessions
    assert session.ended


@in_world()
async def test_without_any_forwarder_the_client_waits(world: ProxyWorld) -> None:
    await cluster(world, 1)
    stream = await world.stream()
    await stream.next()
    forwarder(world, "s1").crash()
    await asyncio.sleep(20)
    await stream.send(stream_ack_deadline_seconds=70)
    await world.start(SubscribeProcess, "s9")
    began = world.loop.time()
    assert await stream.data() == [b"s9"]
    assert world.loop.time() - began < 1
    await asyncio.sleep(0.1)
    (session,) = forwarder(world, "s9").sessions
    assert session.first.stream_ack_deadline_seconds == 70


@in_world()
async def test_without_any_forwarder_keep_alives_are_answered(world: ProxyWorld) -> None:
    await cluster(world, 1)
    old, new = await world.stream(), await world.stream(protocol_version=1)
    for stream in (old, new):
        await stream.next()
    forwarder(world, "s1").crash()
    await asyncio.sleep(20)
    for stream in (old, new):
        await stream.send()
    assert (await new.next()).HasField("subscription_properties")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(old.next(), 5)


@in_world()
async def test_a_draining_forwarder_is_left_and_nothing_is_lost(world: ProxyWorld) -> None:
    await cluster(world)
    stream = await world.stream()
    await stream.next()
    one = forwarder(world, "s1")
    draining = Member("s1", one.roles, one.address, one.incarnation, "r1", draining=True)
    world.store.txn([], [Put(MEMBERS.key("s1"), draining.encode())])
    seen = []
    for number in range(100):
        one.send(b"%d" % number)
        seen += (await stream.data()) if one.open_sessions else []
        await asyncio.sleep(0.1)
        if not one.open_sessions:
            break
    while b"s2" not in seen:
        seen += await stream.data()
    assert seen == [b"%d" % number for number in range(len(seen) - 1)] + [b"s2"]
    assert one.sessions[0].ended
    assert not one.sessions[0].cancelled


@in_world()
async def test_it_returns_to_the_nearest(world: ProxyWorld) -> None:
    await world.start(SubscribeProcess, "far", "r2")
    await world.start(ProxyProcess, "proxy")
    stream = await world.stream()
    assert await stream.data() == [b"far"]
    near = await world.start(SubscribeProcess, "near")
    assert await stream.data() == [b"near"]
    near.crash()
    near.lease_ends()
    assert await stream.data() == [b"far"]


@in_world()
async def test_streams_are_spread_over_those_that_share_the_subscription(world: ProxyWorld) -> None:
    await cluster(world, 3, share=["s1", "s3"])
    streams = [await world.stream() for _ in range(4)]
    seen = sorted([(await stream.data())[0] for stream in streams])
    assert seen == [b"s1", b"s1", b"s3", b"s3"]
    await asyncio.sleep(20)
    assert all(len(forwarder(world, name).sessions) == 2 for name in ("s1", "s3"))  # and stay there


@in_world()
async def test_final_errors_reach_the_client(world: ProxyWorld) -> None:
    proxy = await cluster(world)
    for error in (FailedPrecondition("a push subscription"), SyncpointError(Code.PERMISSION_DENIED, "no")):
        forwarder(world, "s1").refuse = error
        stream = await world.stream()
        assert (await failing(stream.next())).code is error.code
    forwarder(world, "s1").refuse = None
    stream = await world.stream(subscription="projects/p/subscriptions/nobody")
    assert (await failing(stream.next())).code is Code.NOT_FOUND
    stream = await world.stream(subscription="")
    assert (await failing(stream.next())).message == "first message must set subscription"
    assert not proxy.streams.open_streams


@in_world()
async def test_errors_that_would_pass_do_not(world: ProxyWorld) -> None:
    await cluster(world)
    forwarder(world, "s1").refuse = Unavailable(TRY_AGAIN)
    stream = await world.stream()
    assert await stream.data() == [b"s2"]


@in_world()
async def test_a_forwarder_that_does_not_know_the_subscription_yet_is_given_time(world: ProxyWorld) -> None:
    await cluster(world)
    one = forwarder(world, "s1")
    one.refuse = NotFound(SUBSCRIPTION)
    stream = await world.stream()
    world.loop.call_later(1, setattr, one, "refuse", None)
    assert await stream.data() == [b"s1"]
    world.delete(world.subscription)
    one.sessions[0].stream.finish(NotFound(SUBSCRIPTION))
    assert (await failing(stream.next())).code is Code.NOT_FOUND


@in_world()
async def test_a_detached_subscription_is_refused(world: ProxyWorld) -> None:
    await cluster(world)
    name = "projects/p/subscriptions/detached"
    world.add_subscription(name, world.topic, detached=True)
    assert (await failing((await world.stream(subscription=name)).next())).code is Code.FAILED_PRECONDITION


@in_world()
async def test_a_client_that_leaves_takes_the_stream_behind_along(world: ProxyWorld) -> None:
    proxy = await cluster(world)
    stream = await world.stream()
    await stream.next()
    stream.behind.cancel()
    await asyncio.sleep(0.1)
    assert forwarder(world, "s1").sessions[0].cancelled
    assert not proxy.streams.open_streams
    assert not forwarder(world, "s1").calls


class HeldBack:
    """A client's stream whose bytes do not leave."""

    def __init__(self) -> None:
        self.path, self.metadata, self.deadline, self.peer, self.cancelled = b"", {}, None, "c", False
        self.on_cancel = self.on_message = self.on_end = self.on_writable = self.on_drain = None
        self.writable = True
        self.sent: list[Any] = []
        self.finished: list[Any] = []

    def send(self, message: Any, token: object = None) -> None:
        self.sent.append(token)

    def finish(self, error: Any = None) -> None:
        self.finished.append(error)

    def unsent(self) -> list[object]:
        return self.sent[1:]


@in_world()
async def test_a_slow_client_is_not_sent_more_and_gives_back_what_it_did_not_get(world: ProxyWorld) -> None:
    world.subscription = world.add_subscription("projects/p/subscriptions/once", world.topic, exactly_once=True)
    proxy = await cluster(world)
    one = forwarder(world, "s1")
    client: Any = HeldBack()
    first = pubsub.StreamingPullRequest(
        subscription=world.subscription.name, stream_ack_deadline_seconds=60
    ).SerializeToString()

    async def open_stream() -> None:
        proxy.streams.open(client)
        client.on_message(first)

    process = world.processes["proxy"].process
    await process.start(open_stream())
    await asyncio.sleep(0.1)
    one.send(b"in the socket's way")
    client.writable = False
    await asyncio.sleep(0.1)
    for number in range(3):
        one.send(b"%d" % number)
    await asyncio.sleep(1)
    assert len(client.sent) == 2
    client.writable = True
    client.on_writable()
    await asyncio.sleep(0.1)
    client.writable = False
    one.send(b"seen")
    await asyncio.sleep(0.1)
    one.send(b"never seen")
    await asyncio.sleep(0.1)
    assert len(client.sent) == 6
    client.cancelled = True

    async def cancel() -> None:
        client.on_cancel()

    await process.start(cancel())
    await asyncio.sleep(1)
    back = [ack_id for asked in one.calls for ack_id in asked.ack_ids]
    assert {asked.ack_deadline_seconds for asked in one.calls} == {0}
    assert {asked.subscription for asked in one.calls} == {world.subscription.name}
    assert len(back) == len(set(back)) == 6  # all but the greeting, the first thing that was sent
    assert client.finished == []


@in_world()
async def test_stopping_ends_streams_so_that_clients_open_them_elsewhere(world: ProxyWorld) -> None:
    await cluster(world)
    stream = await world.stream()
    await stream.next()
    made = world.processes["proxy"]
    stopping = made.process.start(made.stop())
    error = await failing(stream.next())
    assert (error.code, error.message) == (Code.UNAVAILABLE, TRY_AGAIN)
    await stopping
    assert forwarder(world, "s1").sessions[0].ended


@in_world()
async def test_sealed_data_is_opened(world: ProxyWorld) -> None:
    proxy = await cluster(world, sealed=True)
    one = forwarder(world, "s1")

    async def sealed(text: bytes) -> bytes:
        request = pubsub.PublishRequest(messages=[pubsub.PubsubMessage(data=text)]).SerializeToString()
        hidden = await proxy.sealer.seal(world.topic.incarnation, request)
        data: bytes = pubsub.PublishRequest.FromString(hidden).messages[0].data
        return data

    process = world.processes["proxy"].process
    hidden = [await process.start(sealed(text)) for text in (b"first", b"second")]
    stream = await world.stream()
    assert await stream.data() == [b"s1"]
    one.send(*hidden)
    assert await stream.data() == [b"first", b"second"]
    proxy.sealer.keys._known.clear()
    proxy.sealer.keys.ciphers.clear()
    world.processes["proxy"].store.cut = True
    one.send(hidden[0])
    receiving = asyncio.ensure_future(stream.data())
    await asyncio.sleep(5)
    assert not receiving.done()  # without the keys the client waits
    world.processes["proxy"].store.cut = False
    assert await receiving == [b"first"]
    proxy.sealer.keys._known.clear()
    proxy.sealer.keys.ciphers.clear()
    world.store.txn([], [Delete(item.key) for item in world.store.range("keys/data/").items])
    one.send(hidden[0])
    one.send(b"not sealed")
    receiving = asyncio.ensure_future(stream.data())
    while (got := await receiving) == []:
        receiving = asyncio.ensure_future(stream.data())
    assert got == [b"not sealed"], "where a key is gone, the others go on"


@pytest.mark.parametrize("seed", range(15))
def test_whatever_happens_every_stream_goes_on(seed: int) -> None:
    async def work(world: ProxyWorld) -> None:
        proxy = await cluster(world, 3, share=["s1", "s2"])
        streams = [await world.stream() for _ in range(5)]
        got = [0] * len(streams)

        async def client(number: int) -> None:
            while await streams[number].next() is not None:
                got[number] += 1

        clients = [asyncio.ensure_future(client(number)) for number in range(len(streams))]
        for _ in range(12):
            name = f"s{world.random.randrange(1, 4)}"
            victim = forwarder(world, name)
            what = world.random.randrange(0, 3)
            if what == 0:
                victim.crash()
                await asyncio.sleep(world.random.random() * 3)
                await world.start(SubscribeProcess, name)
            elif what == 1:
                victim.process.hang()
                await asyncio.sleep(world.random.random() * 6)
                victim.process.go_on()
            else:
                order = ["s1", "s2", "s3"]
                world.share(order[world.random.randrange(0, 3) :], epoch=2 + world.random.randrange(0, 50))
            await asyncio.sleep(world.random.random() * 3)
        await asyncio.sleep(10)
        before = list(got)
        for name in ("s1", "s2", "s3"):
            forwarder(world, name).send(b"at last")
        await asyncio.sleep(1)
        assert not any(one.done() for one in clients)
        assert [now - then for now, then in zip(got, before, strict=True)] == [1] * len(streams)
        assert sum(len(forwarder(world, name).open_sessions) for name in ("s1", "s2", "s3")) == len(streams)
        assert len(proxy.streams.open_streams) == len(streams)
        for one in clients:
            one.cancel()

    run(work, seed)


@in_world()
async def test_pings_follow_the_stream(world: ProxyWorld) -> None:
    await cluster(world)
    stream = await world.stream(protocol_version=1)
    await stream.next()
    forwarder(world, "s1").process.hang()
    for _ in range(40):
        await stream.send()
        await asyncio.sleep(0.1)
    (session,) = forwarder(world, "s2").sessions
    assert session.first.protocol_version == 1
    assert len(session.later) >= 10
    assert SUBSCRIBER
