"""Streams through a proxy: forwarders come and go behind a client that notices nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.cluster import Member
from syncpoint.base.model.errors import Code, FailedPrecondition, NotFound, SyncpointError, Unavailable
from syncpoint.catalog.metadata.contract import Delete, Put
from syncpoint.catalog.metadata.layout import MEMBERS
from syncpoint.front.proxy.pull_relay import TRY_AGAIN
from syncpoint.wire.protobuf.messages import internal, pubsub
from syncpoint.wire.protobuf.status import ack_failure
from tests.kit.errors import failing
from tests.kit.proxy import SUBSCRIPTION, ProxyHarness, ProxyProcess, in_harness, run
from tests.kit.proxy_processes import SUBSCRIBER, SubscribeProcess

pytestmark = pytest.mark.shows("proxies")


async def cluster(harness: ProxyHarness, forwarders: int = 2, share: list[str] | None = None, **options: Any) -> Any:
    """Forwarders s1, s2, ... of which the first serves the subscription, and a proxy."""
    for number in range(1, forwarders + 1):
        await harness.start(SubscribeProcess, f"s{number}")
    harness.share(share or ["s1"])
    made = await harness.start(ProxyProcess, "proxy", **options)
    await asyncio.sleep(0.1)
    return made.proxy


def forwarder(harness: ProxyHarness, name: str) -> SubscribeProcess:
    found = harness.processes[name]
    assert isinstance(found, SubscribeProcess)
    return found


@in_harness()
async def test_requests_and_responses_pass_both_ways(harness: ProxyHarness) -> None:
    await cluster(harness)
    stream = await harness.stream(max_outstanding_messages=7, client_id="me")
    assert await stream.data() == [b"s1"]
    one = forwarder(harness, "s1")
    (session,) = one.sessions
    assert (session.first.subscription, session.first.max_outstanding_messages) == (SUBSCRIPTION, 7)
    one.send(b"a", b"b")
    assert await stream.data() == [b"a", b"b"]
    await stream.send()
    await stream.send(modify_deadline_ack_ids=["x"], modify_deadline_seconds=[5])
    await asyncio.sleep(0.1)
    assert [len(later.modify_deadline_ack_ids) for later in session.later] == [0, 1]


@pytest.mark.parametrize("once", [False, True])
def test_acks_go_to_who_lent_the_message_whoever_is_behind_the_stream(once: bool) -> None:
    @in_harness()
    async def scenario(harness: ProxyHarness) -> None:
        name = "projects/p/subscriptions/other"
        harness.subscription = harness.add_subscription(name, harness.topic, exactly_once=once)
        await cluster(harness)
        one, two = forwarder(harness, "s1"), forwarder(harness, "s2")
        theirs = [two.message(b"").ack_id for _ in range(5)]
        stream = await harness.stream(subscription=name, ack_ids=theirs[:1])
        await asyncio.sleep(0.1)
        mine = one.message(b"").ack_id
        two.refuse_acks = ack_failure(theirs[1:2], unknown=theirs[2:3])
        ids = [mine, *theirs[1:4], "none"]
        await stream.send(ack_ids=ids, modify_deadline_ack_ids=ids, modify_deadline_seconds=[1, 0, 9, 9, 2])
        await asyncio.sleep(0.1)
        (session,) = one.sessions
        assert list(session.first.ack_ids) == []
        (later,) = session.later
        assert list(later.ack_ids) == list(later.modify_deadline_ack_ids) == [mine, "none"]
        assert list(later.modify_deadline_seconds) == [1, 2]
        asked = [(list(call.ack_ids), getattr(call, "ack_deadline_seconds", None)) for call in two.calls]
        assert asked == [(theirs[:1], None), (theirs[1:4], None), (theirs[1:2], 0), (theirs[2:4], 9)]
        assert {call.subscription for call in two.calls} == {name}
        two.crash()
        one.refuse_acks = Unavailable("nothing is known of it")
        await stream.send(ack_ids=theirs[4:])
        await stream.behind.end()  # the end waits for what is known of it
        answers = []
        while (answer := await stream.next()) is not None:
            if not answer.received_messages:
                answers.append(answer)
        if not once:
            assert not answers
            return
        assert all(answer.subscription_properties.exactly_once_delivery_enabled for answer in answers)
        acks = [answer.acknowledge_confirmation for answer in answers if answer.HasField("acknowledge_confirmation")]
        kinds = [[list(one.ack_ids), list(one.invalid_ack_ids), list(one.temporary_failed_ack_ids)] for one in acks]
        assert kinds == [[theirs[:1], [], []], [theirs[3:4], theirs[1:2], theirs[2:3]], [[], [], theirs[4:]]]
        modified = [answer.modify_ack_deadline_confirmation for answer in answers[2:4]]
        assert [list(one.invalid_ack_ids) for one in modified] == [theirs[1:2], []]
        assert [list(one.temporary_failed_ack_ids) for one in modified] == [[], theirs[2:3]]

    scenario()


@in_harness()
async def test_a_half_close_ends_with_ok(harness: ProxyHarness) -> None:
    proxy = await cluster(harness)
    stream = await harness.stream()
    await stream.next()
    await stream.behind.end()
    assert await stream.next() is None
    assert not proxy.streams.open_streams
    await asyncio.sleep(0.1)
    assert forwarder(harness, "s1").sessions[0].cancelled  # an end would say that the client goes on elsewhere


@in_harness()
async def test_a_half_close_comes_behind_all_that_was_said_before(harness: ProxyHarness) -> None:
    await cluster(harness)
    stream = await harness.stream()
    await stream.next()
    await stream.send(modify_deadline_ack_ids=["x"], modify_deadline_seconds=[0])
    await stream.behind.end()
    assert await stream.next() is None
    await asyncio.sleep(0.1)
    (session,) = forwarder(harness, "s1").sessions
    assert list(session.later[0].modify_deadline_ack_ids) == ["x"]


@in_harness()
async def test_of_exactly_once_a_half_close_gives_back_only_what_did_not_arrive(harness: ProxyHarness) -> None:
    harness.subscription = harness.add_subscription("projects/p/subscriptions/once", harness.topic, exactly_once=True)
    proxy = await cluster(harness)
    one = forwarder(harness, "s1")
    client: Any = HeldBack()
    first = pubsub.StreamingPullRequest(subscription=harness.subscription.name, stream_ack_deadline_seconds=60)

    async def open_stream() -> None:
        proxy.streams.open(client)
        client.on_message(first.SerializeToString())

    async def end_stream() -> None:
        client.on_end()

    process = harness.processes["proxy"].process
    await process.start(open_stream())
    await asyncio.sleep(0.1)
    one.send(b"never arrives")
    await asyncio.sleep(0.1)
    await process.start(end_stream())
    await asyncio.sleep(1)
    (session,) = one.sessions
    assert session.ended
    assert not session.cancelled
    assert [(type(asked), len(asked.ack_ids)) for asked in one.calls] == [(internal.TakeBackRequest, 1)]
    assert client.finished == [None]


@in_harness()
async def test_a_crash_is_not_seen(harness: ProxyHarness) -> None:
    proxy = await cluster(harness)
    stream = await harness.stream(ack_ids=["old"], max_outstanding_bytes=99)
    await stream.next()
    await stream.send(stream_ack_deadline_seconds=90)
    await asyncio.sleep(0.1)
    forwarder(harness, "s1").crash()
    assert await stream.data() == [b"s2"]
    (session,) = forwarder(harness, "s2").sessions
    first = session.first
    assert (first.client_id, first.max_outstanding_bytes) == ("c", 99)
    assert (list(first.ack_ids), first.stream_ack_deadline_seconds) == ([], 90)
    assert proxy.streams.moved == 1


@in_harness()
async def test_a_hung_forwarder_is_left_soon(harness: ProxyHarness) -> None:
    await cluster(harness)
    stream = await harness.stream()
    await stream.next()
    forwarder(harness, "s1").process.hang()
    began = harness.loop.time()
    assert await stream.data() == [b"s2"]
    assert harness.loop.time() - began < 3
    forwarder(harness, "s1").process.go_on()
    assert await stream.data() == [b"s1"]  # back to the one that is to serve it, when it is there again
    (session,) = forwarder(harness, "s2").sessions
    assert session.ended


@in_harness()
async def test_without_any_forwarder_the_client_waits(harness: ProxyHarness) -> None:
    await cluster(harness, 1)
    stream = await harness.stream()
    await stream.next()
    forwarder(harness, "s1").crash()
    await asyncio.sleep(20)
    await stream.send(stream_ack_deadline_seconds=70)
    await harness.start(SubscribeProcess, "s9")
    began = harness.loop.time()
    assert await stream.data() == [b"s9"]
    assert harness.loop.time() - began < 1
    await asyncio.sleep(0.1)
    (session,) = forwarder(harness, "s9").sessions
    assert session.first.stream_ack_deadline_seconds == 70


@in_harness()
async def test_without_any_forwarder_keep_alives_are_answered(harness: ProxyHarness) -> None:
    await cluster(harness, 1)
    old, new = await harness.stream(), await harness.stream(protocol_version=1)
    for stream in (old, new):
        await stream.next()
    forwarder(harness, "s1").crash()
    await asyncio.sleep(20)
    for stream in (old, new):
        await stream.send()
    assert (await new.next()).HasField("subscription_properties")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(old.next(), 5)


@in_harness()
async def test_a_draining_forwarder_is_left_and_nothing_is_lost(harness: ProxyHarness) -> None:
    await cluster(harness)
    stream = await harness.stream()
    await stream.next()
    one = forwarder(harness, "s1")
    draining = Member("s1", one.roles, one.address, one.incarnation, "r1", draining=True)
    harness.store.txn([], [Put(MEMBERS.key("s1"), draining.encode())])
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


@in_harness()
async def test_it_returns_to_the_nearest(harness: ProxyHarness) -> None:
    await harness.start(SubscribeProcess, "far", "r2")
    await harness.start(ProxyProcess, "proxy")
    stream = await harness.stream()
    assert await stream.data() == [b"far"]
    near = await harness.start(SubscribeProcess, "near")
    assert await stream.data() == [b"near"]
    near.crash()
    near.lease_ends()
    assert await stream.data() == [b"far"]


@in_harness()
async def test_streams_are_spread_over_those_that_share_the_subscription(harness: ProxyHarness) -> None:
    await cluster(harness, 3, share=["s1", "s3"])
    streams = [await harness.stream() for _ in range(4)]
    seen = sorted([(await stream.data())[0] for stream in streams])
    assert seen == [b"s1", b"s1", b"s3", b"s3"]
    await asyncio.sleep(20)
    assert all(len(forwarder(harness, name).sessions) == 2 for name in ("s1", "s3"))  # and stay there


@in_harness()
async def test_final_errors_reach_the_client(harness: ProxyHarness) -> None:
    proxy = await cluster(harness)
    for error in (FailedPrecondition("a push subscription"), SyncpointError(Code.PERMISSION_DENIED, "no")):
        forwarder(harness, "s1").refuse = error
        stream = await harness.stream()
        assert (await failing(stream.next())).code is error.code
    forwarder(harness, "s1").refuse = None
    stream = await harness.stream(subscription="projects/p/subscriptions/nobody")
    assert (await failing(stream.next())).code is Code.NOT_FOUND
    stream = await harness.stream(subscription="")
    assert (await failing(stream.next())).message == "first message must set subscription"
    assert not proxy.streams.open_streams


@in_harness()
async def test_errors_that_would_pass_do_not(harness: ProxyHarness) -> None:
    await cluster(harness)
    forwarder(harness, "s1").refuse = Unavailable(TRY_AGAIN)
    stream = await harness.stream()
    assert await stream.data() == [b"s2"]


@in_harness()
async def test_a_forwarder_that_does_not_know_the_subscription_yet_is_given_time(harness: ProxyHarness) -> None:
    await cluster(harness)
    one = forwarder(harness, "s1")
    one.refuse = NotFound(SUBSCRIPTION)
    stream = await harness.stream()
    harness.loop.call_later(1, setattr, one, "refuse", None)
    assert await stream.data() == [b"s1"]
    harness.delete(harness.subscription)
    one.sessions[0].stream.finish(NotFound(SUBSCRIPTION))
    assert (await failing(stream.next())).code is Code.NOT_FOUND


@in_harness()
async def test_a_detached_subscription_is_refused(harness: ProxyHarness) -> None:
    await cluster(harness)
    name = "projects/p/subscriptions/detached"
    harness.add_subscription(name, harness.topic, detached=True)
    assert (await failing((await harness.stream(subscription=name)).next())).code is Code.FAILED_PRECONDITION


@in_harness()
async def test_a_client_that_leaves_takes_the_stream_behind_along(harness: ProxyHarness) -> None:
    proxy = await cluster(harness)
    stream = await harness.stream()
    await stream.next()
    stream.behind.cancel()
    await asyncio.sleep(0.1)
    assert forwarder(harness, "s1").sessions[0].cancelled
    assert not proxy.streams.open_streams
    assert not forwarder(harness, "s1").calls


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

    def take_back(self) -> list[object]:
        back, self.sent[1:] = self.sent[1:], []
        return back


@in_harness()
async def test_a_slow_client_is_not_sent_more_and_gives_back_what_it_did_not_get(harness: ProxyHarness) -> None:
    harness.subscription = harness.add_subscription("projects/p/subscriptions/once", harness.topic, exactly_once=True)
    proxy = await cluster(harness)
    one = forwarder(harness, "s1")
    client: Any = HeldBack()
    first = pubsub.StreamingPullRequest(
        subscription=harness.subscription.name, stream_ack_deadline_seconds=60
    ).SerializeToString()

    async def open_stream() -> None:
        proxy.streams.open(client)
        client.on_message(first)

    process = harness.processes["proxy"].process
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
    assert {type(asked) for asked in one.calls} == {internal.TakeBackRequest}
    assert {asked.subscription for asked in one.calls} == {harness.subscription.name}
    assert len(back) == len(set(back)) == 6  # all but the greeting, the first thing that was sent
    assert client.finished == []


@in_harness()
async def test_stopping_ends_streams_so_that_clients_open_them_elsewhere(harness: ProxyHarness) -> None:
    await cluster(harness)
    stream = await harness.stream()
    await stream.next()
    made = harness.processes["proxy"]
    stopping = made.process.start(made.stop())
    error = await failing(stream.next())
    assert (error.code, error.message) == (Code.UNAVAILABLE, TRY_AGAIN)
    await stopping
    assert forwarder(harness, "s1").sessions[0].ended


@in_harness()
async def test_sealed_data_is_opened(harness: ProxyHarness) -> None:
    proxy = await cluster(harness, sealed=True)
    one = forwarder(harness, "s1")

    async def sealed(text: bytes) -> bytes:
        request = pubsub.PublishRequest(messages=[pubsub.PubsubMessage(data=text)]).SerializeToString()
        hidden = await proxy.sealer.seal(harness.topic.incarnation, request)
        data: bytes = pubsub.PublishRequest.FromString(hidden).messages[0].data
        return data

    process = harness.processes["proxy"].process
    hidden = [await process.start(sealed(text)) for text in (b"first", b"second")]
    stream = await harness.stream()
    assert await stream.data() == [b"s1"]
    one.send(*hidden)
    assert await stream.data() == [b"first", b"second"]
    proxy.sealer.keys._known.clear()
    proxy.sealer.keys.ciphers.clear()
    harness.processes["proxy"].store.cut = True
    one.send(hidden[0])
    receiving = asyncio.ensure_future(stream.data())
    await asyncio.sleep(5)
    assert not receiving.done()  # without the keys the client waits
    harness.processes["proxy"].store.cut = False
    assert await receiving == [b"first"]
    proxy.sealer.keys._known.clear()
    proxy.sealer.keys.ciphers.clear()
    harness.store.txn([], [Delete(item.key) for item in harness.store.range("keys/data/").items])
    one.send(hidden[0])
    one.send(b"not sealed")
    receiving = asyncio.ensure_future(stream.data())
    while (got := await receiving) == []:
        receiving = asyncio.ensure_future(stream.data())
    assert got == [b"not sealed"], "where a key is gone, the others go on"


@pytest.mark.parametrize("seed", range(15))
def test_whatever_happens_every_stream_goes_on(seed: int) -> None:
    async def work(harness: ProxyHarness) -> None:
        proxy = await cluster(harness, 3, share=["s1", "s2"])
        streams = [await harness.stream() for _ in range(5)]
        got = [0] * len(streams)

        async def client(number: int) -> None:
            while await streams[number].next() is not None:
                got[number] += 1

        clients = [asyncio.ensure_future(client(number)) for number in range(len(streams))]
        for _ in range(12):
            name = f"s{harness.random.randrange(1, 4)}"
            victim = forwarder(harness, name)
            what = harness.random.randrange(0, 3)
            if what == 0:
                victim.crash()
                await asyncio.sleep(harness.random.random() * 3)
                await harness.start(SubscribeProcess, name)
            elif what == 1:
                victim.process.hang()
                await asyncio.sleep(harness.random.random() * 6)
                victim.process.go_on()
            else:
                order = ["s1", "s2", "s3"]
                harness.share(order[harness.random.randrange(0, 3) :], epoch=2 + harness.random.randrange(0, 50))
            await asyncio.sleep(harness.random.random() * 3)
        await asyncio.sleep(10)
        before = list(got)
        for name in ("s1", "s2", "s3"):
            forwarder(harness, name).send(b"at last")
        await asyncio.sleep(1)
        assert not any(one.done() for one in clients)
        assert [now - then for now, then in zip(got, before, strict=True)] == [1] * len(streams)
        assert sum(len(forwarder(harness, name).open_sessions) for name in ("s1", "s2", "s3")) == len(streams)
        assert len(proxy.streams.open_streams) == len(streams)
        for one in clients:
            one.cancel()

    run(work, seed)


@in_harness()
async def test_pings_follow_the_stream(harness: ProxyHarness) -> None:
    await cluster(harness)
    stream = await harness.stream(protocol_version=1)
    await stream.next()
    forwarder(harness, "s1").process.hang()
    for _ in range(40):
        await stream.send()
        await asyncio.sleep(0.1)
    (session,) = forwarder(harness, "s2").sessions
    assert session.first.protocol_version == 1
    assert len(session.later) >= 10
    assert SUBSCRIBER
