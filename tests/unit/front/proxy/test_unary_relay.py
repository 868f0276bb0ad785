"""Pulls and acknowledgements through a proxy."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from syncpoint.base.model.errors import Code, InvalidArgument, NotFound, Unavailable
from syncpoint.catalog.transforms.message_transforms import Outcome
from syncpoint.front.proxy.unary_relay import merged
from syncpoint.wire.protobuf.messages import internal, pubsub
from syncpoint.wire.protobuf.status import TRANSIENT_INVALID_ACK_ID, ack_failure, unpacked
from tests.kit.errors import failing
from tests.kit.proxy import SUBSCRIPTION, ProxyHarness, ProxyProcess, in_harness
from tests.kit.proxy_processes import SUBSCRIBER, SubscribeProcess
from tests.kit.transforming import PlayedTransformer


async def cluster(harness: ProxyHarness, share: list[str] | None = None, **options: Any) -> tuple[Any, Any, Any]:
    one = await harness.start(SubscribeProcess, "s1")
    two = await harness.start(SubscribeProcess, "s2")
    harness.share(share or ["s1"])
    proxy = await harness.start(ProxyProcess, "proxy", **options)
    await asyncio.sleep(0.1)
    return proxy.proxy, one, two


async def pull(harness: ProxyHarness, timeout: float | None = None, name: str = SUBSCRIPTION) -> Any:
    request = pubsub.PullRequest(subscription=name, max_messages=10)
    answer = await harness.call(SUBSCRIBER + "Pull", request, timeout=timeout)
    return pubsub.PullResponse.FromString(answer).received_messages


async def acknowledge(harness: ProxyHarness, *ack_ids: str, timeout: float | None = None) -> None:
    request = pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=ack_ids)
    assert await harness.call(SUBSCRIBER + "Acknowledge", request, timeout=timeout) == b""


@in_harness()
async def test_the_forwarder_that_serves_the_subscription_answers(harness: ProxyHarness) -> None:
    _, one, two = await cluster(harness)
    (received,) = await pull(harness)
    assert received.message.data == b"s1"
    await acknowledge(harness, received.ack_id)
    request = pubsub.ModifyAckDeadlineRequest(subscription=SUBSCRIPTION, ack_ids=["a"], ack_deadline_seconds=30)
    assert await harness.call(SUBSCRIBER + "ModifyAckDeadline", request) == b""
    assert [type(call).__name__ for call in one.calls] == [
        "PullRequest",
        "AcknowledgeRequest",
        "ModifyAckDeadlineRequest",
    ]
    assert one.calls[2] == request
    assert not two.calls


@in_harness()
async def test_another_one_answers_when_it_has_died_or_hangs(harness: ProxyHarness) -> None:
    proxy, one, two = await cluster(harness)
    one.process.hang()
    (received,) = await pull(harness, timeout=10)
    assert received.message.data == b"s2"
    one.crash()
    await acknowledge(harness, "a")
    assert len(two.calls) == 2
    assert proxy.relay.retried >= 1


@in_harness()
async def test_refusals_pass_with_their_details(harness: ProxyHarness) -> None:
    _, one, _ = await cluster(harness)
    one.refuse = InvalidArgument("", "No max_messages specified")
    error = await failing(pull(harness))
    assert (error.code, error.message) == (Code.INVALID_ARGUMENT, "No max_messages specified")
    one.refuse_acks = ack_failure(["a"])
    error = await failing(acknowledge(harness, "a"))
    assert unpacked(error.details)[0].metadata == {"a": "PERMANENT_FAILURE_INVALID_ACK_ID"}


@in_harness()
async def test_unknown_subscriptions_are_refused_here(harness: ProxyHarness) -> None:
    _, one, _ = await cluster(harness)
    name = "projects/p/subscriptions/nobody"
    error = await failing(pull(harness, name=name))
    assert (error.code, error.message) == (Code.NOT_FOUND, f"Resource not found (resource={name}).")
    assert not one.calls
    assert (await failing(harness.call(SUBSCRIBER + "Pull", b"\x0a\x05x"))).code is Code.INVALID_ARGUMENT


@in_harness()
async def test_a_copy_that_lags_behind_is_given_time(harness: ProxyHarness) -> None:
    _, one, _ = await cluster(harness)
    one.refuse = NotFound(SUBSCRIPTION)
    harness.loop.call_later(1, setattr, one, "refuse", None)
    assert len(await pull(harness)) == 1
    one.refuse = NotFound(SUBSCRIPTION)
    assert (await failing(pull(harness))).code is Code.NOT_FOUND


@in_harness()
async def test_ack_ids_go_to_who_lent_the_message(harness: ProxyHarness) -> None:
    _, one, two = await cluster(harness, share=["s1", "s2"])
    mine = [one.message(b"").ack_id for _ in range(3)]
    theirs = [two.message(b"").ack_id for _ in range(3)]
    foreign = "not an ack id"
    await acknowledge(harness, mine[0], theirs[0], theirs[1], mine[1], foreign)
    acked_at = {process.name: [list(call.ack_ids) for call in process.calls] for process in (one, two)}
    assert sorted([*acked_at["s1"], *acked_at["s2"]]) == sorted([mine[:2], theirs[:2], [foreign]])
    assert mine[:2] in acked_at["s1"]
    assert theirs[:2] in acked_at["s2"]
    one.crash()
    one.lease_ends()
    await asyncio.sleep(0.1)
    await acknowledge(harness, mine[2], theirs[2])  # who serves the subscription now decides about them
    assert sorted(ack_id for call in two.calls[-2:] for ack_id in call.ack_ids) == sorted([mine[2], theirs[2]])


@in_harness()
async def test_ack_ids_go_to_who_lent_the_message_also_when_another_one_serves_now(harness: ProxyHarness) -> None:
    _, one, two = await cluster(harness, share=["s1"])
    lent_before = two.message(b"").ack_id
    lent_now = one.message(b"").ack_id
    await acknowledge(harness, lent_before, lent_now)
    assert [list(call.ack_ids) for call in two.calls] == [[lent_before]]
    assert [list(call.ack_ids) for call in one.calls] == [[lent_now]]


@in_harness()
async def test_failures_of_several_forwarders_are_one(harness: ProxyHarness) -> None:
    _, one, two = await cluster(harness, share=["s1", "s2"])
    mine, theirs = one.message(b"").ack_id, two.message(b"").ack_id
    one.refuse_acks, two.refuse_acks = ack_failure([mine]), ack_failure([], unknown=[theirs])
    error = await failing(acknowledge(harness, mine, theirs))
    assert error.code is Code.INVALID_ARGUMENT
    (info,) = unpacked(error.details)
    assert info.metadata == {mine: "PERMANENT_FAILURE_INVALID_ACK_ID", theirs: TRANSIENT_INVALID_ACK_ID}
    two.refuse_acks = InvalidArgument("", "Invalid ack id (ack_id=x)")
    assert (await failing(acknowledge(harness, mine, theirs))).message == "Invalid ack id (ack_id=x)"


@in_harness()
async def test_what_one_of_several_forwarders_did_not_answer_is_unknown_of_its_ids_alone(harness: ProxyHarness) -> None:
    name = "projects/p/subscriptions/once"
    harness.subscription = harness.add_subscription(name, harness.topic, exactly_once=True)
    _, one, two = await cluster(harness, share=["s1", "s2"])
    mine, theirs = one.message(b"").ack_id, two.message(b"").ack_id
    two.process.hang()
    request = pubsub.AcknowledgeRequest(subscription=name, ack_ids=[mine, theirs])
    harness.loop.call_later(0.5, setattr, one, "refuse_acks", Unavailable("lost"))  # it is asked in the other's stead
    error = await failing(harness.call(SUBSCRIBER + "Acknowledge", request, timeout=60))
    assert error.code is Code.INVALID_ARGUMENT
    (info,) = unpacked(error.details)
    assert info.metadata == {theirs: TRANSIENT_INVALID_ACK_ID}


@in_harness()
async def test_an_empty_pull_comes_before_the_deadline(harness: ProxyHarness) -> None:
    _, one, _ = await cluster(harness)
    acked_at: list[float] = []

    def wait(call: Any, request: bytes) -> None:
        acked_at.append(call.deadline - harness.loop.time())
        harness.loop.call_later(acked_at[-1] - 1, call.reply, b"")

    one.__class__ = type("Waiting", (SubscribeProcess,), {"_pull": staticmethod(wait)})
    harness.network._listening["s1:1"][1][b"/google.pubsub.v1.Subscriber/Pull"] = type(  # type: ignore[index]
        harness.network._listening["s1:1"][1][b"/google.pubsub.v1.Subscriber/Pull"]
    )(wait)
    for timeout in (8.0, 2.45):
        assert len(await pull(harness, timeout=timeout)) == 0
        assert timeout - 0.2 < acked_at.pop() <= timeout


@in_harness()
async def test_pulls_that_wait_are_answered_when_the_proxy_stops(harness: ProxyHarness) -> None:
    proxy, one, _ = await cluster(harness)
    one.process.hang()
    pulling = asyncio.ensure_future(pull(harness))
    await asyncio.sleep(0.1)

    async def drain() -> None:
        proxy.drain()

    await harness.processes["proxy"].process.start(drain())
    assert len(await pulling) == 0


@in_harness()
async def test_a_caller_that_leaves_ends_the_pull(harness: ProxyHarness) -> None:
    proxy, one, _ = await cluster(harness)
    one.process.hang()
    pulling = asyncio.ensure_future(pull(harness))
    await asyncio.sleep(0.1)
    pulling.cancel()
    await asyncio.sleep(0.1)
    assert not proxy.calls.underway


@in_harness()
async def test_nobody_answers(harness: ProxyHarness) -> None:
    _, one, two = await cluster(harness)
    for process in (one, two):
        process.crash()
    began = harness.loop.time()
    assert (await failing(acknowledge(harness, "a"))).code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
    assert 14 < harness.loop.time() - began < 17


def test_merging() -> None:
    assert merged([]) is None
    other = Unavailable("x")
    assert merged([ack_failure(["a"]), other]) is other


class _Slow(PlayedTransformer):
    """Takes a minute."""

    async def play(self, transforms: Any, messages: Any) -> list[Outcome]:
        await asyncio.sleep(60.0)
        return list(messages)


@in_harness()
async def test_what_a_caller_did_not_wait_for_to_be_transformed_is_given_back(harness: ProxyHarness) -> None:
    proxy, one, _ = await cluster(harness)
    transforms = pubsub.Subscription(message_transforms=[pubsub.MessageTransform()])
    harness.put(replace(harness.subscription, config=transforms.SerializeToString()))
    proxy.relay.transformer = _Slow.of({})
    await failing(pull(harness, timeout=2.0))
    await asyncio.sleep(1.0)
    (given_back,) = [call for call in one.calls if isinstance(call, internal.TakeBackRequest)]
    assert len(given_back.ack_ids) == 1
