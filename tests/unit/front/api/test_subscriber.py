"""Pull, Acknowledge, ModifyAckDeadline: answers, deadlines, limits and every refusal."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, Unavailable
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.status import PERMANENT_INVALID_ACK_ID, TRANSIENT_INVALID_ACK_ID, unpacked
from tests.kit.errors import failing

GONE = "projects/p/subscriptions/gone"


def ids(received) -> list[str]:
    return [one.ack_id for one in received]


# -- pull --------------------------------------------------------------------------------------------------------------


@simulated()
async def test_a_pull_takes_at_most_what_it_asks_for(harness: ServicerHarness) -> None:
    for begin in (0, 600):
        await harness.put(*map(str, range(begin, begin + 600)))
    first = await harness.pull(3)
    assert [one.message.data for one in first] == [b"0", b"1", b"2"]
    assert len(await harness.pull(5000)) == 1000  # more is never given at once
    assert len(await harness.pull(5000)) == 197


@simulated()
async def test_a_pull_that_waits_is_answered_by_the_next_publish(harness: ServicerHarness) -> None:
    pulling = asyncio.create_task(harness.pull(timeout=None))
    await asyncio.sleep(5)
    assert not pulling.done()
    (sent,) = await harness.put("x")
    assert [one.message.message_id for one in await pulling] == [sent]


@pytest.mark.parametrize(("timeout", "waits"), [(None, 25.0), (60.0, 25.0), (8.0, 7.0), (1.0, 0.5), (0.2, 0.1)])
@simulated()
async def test_an_empty_answer_comes_before_the_callers_deadline(
    harness: ServicerHarness, *, timeout: float | None, waits: float
) -> None:
    begin = harness.clock.monotonic()
    assert await harness.pull(timeout=timeout) == []
    assert harness.clock.monotonic() - begin == pytest.approx(waits, abs=0.01)
    await asyncio.sleep(0.2)
    assert not harness.subscribe.deliveries  # nobody waits, nothing is lent


@simulated()
async def test_return_immediately_looks_once(harness: ServicerHarness) -> None:
    begin = harness.clock.monotonic()
    answer = await harness.call("Pull", subscription=SUB, max_messages=1, return_immediately=True)
    assert not answer.received_messages
    assert harness.clock.monotonic() - begin < 0.2
    await harness.put("x")
    answer = await harness.call("Pull", subscription=SUB, max_messages=1, return_immediately=True)
    assert len(answer.received_messages) == 1


@simulated()
async def test_return_immediately_waits_for_what_is_being_read(harness: ServicerHarness) -> None:
    publish, loop = harness.subscribe.publish, asyncio.get_running_loop()
    fetch = publish.fetch

    def slow(*asked: Any) -> None:
        fetch(*asked[:-1], lambda found: loop.call_later(0.7, asked[-1], found))

    publish.fetch = slow  # type: ignore[method-assign]
    begin = harness.clock.monotonic()
    answer = await harness.call("Pull", subscription=SUB, max_messages=1, return_immediately=True)
    assert not answer.received_messages
    assert harness.clock.monotonic() - begin < 0.9, "no longer than until it is known"
    await harness.put("x")
    await asyncio.sleep(60)
    answer = await harness.call("Pull", subscription=SUB, max_messages=1, return_immediately=True)
    assert [one.message.data for one in answer.received_messages] == [b"x"]


@simulated()
async def test_pulls_are_refused_in_words(harness: ServicerHarness) -> None:
    for fields, code, words in (
        ({"subscription": GONE, "max_messages": 1}, Code.NOT_FOUND, f"Resource not found (resource={GONE})."),
        ({"subscription": SUB}, Code.INVALID_ARGUMENT, "No max_messages specified"),
        ({"subscription": SUB, "max_messages": -1}, Code.INVALID_ARGUMENT, "No max_messages specified"),
    ):
        error = await failing(harness.call("Pull", **fields))
        assert error.code is code
        assert words in error.message
    for method in ("Pull", "Acknowledge", "ModifyAckDeadline"):
        error = await failing(harness.channel.unary(f"/google.pubsub.v1.Subscriber/{method}", b"\xff"))
        assert (error.code, error.message) == (
            Code.INVALID_ARGUMENT,
            f"The request is not a valid {method}Request.",
        )


@simulated()
async def test_a_pull_ends_when_the_subscription_is_deleted_or_detached(harness: ServicerHarness) -> None:
    pulling = asyncio.create_task(harness.pull(timeout=None))
    await asyncio.sleep(1)
    await harness.call("DetachSubscription", subscription=SUB)
    assert (await failing(pulling)).code is Code.FAILED_PRECONDITION
    for method, fields in (
        ("Pull", {"max_messages": 1}),
        ("Acknowledge", {"ack_ids": ["x"]}),
        ("ModifyAckDeadline", {"ack_ids": ["x"]}),
    ):
        error = await failing(harness.call(method, subscription=SUB, **fields))
        assert (error.code, error.message) == (
            Code.FAILED_PRECONDITION,
            f"The subscription is detached from its topic (resource={SUB}). Create another one to receive messages.",
        )
    await harness.call("CreateSubscription", name=GONE, topic=TOPIC)
    pulling = asyncio.create_task(harness.pull(subscription=GONE, timeout=None))
    await asyncio.sleep(1)
    await harness.call("DeleteSubscription", subscription=GONE)
    assert (await failing(pulling)).code is Code.NOT_FOUND


@simulated()
async def test_a_detached_subscription_leaves_the_memory_of_this_room(harness: ServicerHarness) -> None:
    await harness.put("x", "y")
    await harness.pull(1)
    await harness.call("DetachSubscription", subscription=SUB)
    await asyncio.sleep(0.2)
    assert not harness.subscribe.deliveries
    await asyncio.sleep(30)
    assert not harness.subscribe.deliveries


@simulated()
async def test_who_hangs_up_is_given_nothing(harness: ServicerHarness) -> None:
    call = harness.channel.stream("/google.pubsub.v1.Subscriber/Pull")
    await call.send(pubsub.PullRequest(subscription=SUB, max_messages=1).SerializeToString())
    await asyncio.sleep(0.01)
    call.cancel()
    await asyncio.sleep(0.01)
    await harness.put("x")
    assert harness.subscribe.deliveries[2].table.total() == (0, 0)
    assert len(await harness.pull()) == 1


@simulated()
async def test_one_answer_stays_below_a_mebibyte_or_holds_one_message(harness: ServicerHarness) -> None:
    await harness.put(*["x" * 300_000] * 5)
    await harness.put("y" * 3_000_000)
    counts = [len(await harness.pull()) for _ in range(3)]
    assert counts == [3, 2, 1]


# -- acknowledge and modify --------------------------------------------------------------------------------------------


@simulated()
async def test_acknowledged_messages_stay_away_also_after_a_crash(harness: ServicerHarness) -> None:
    await harness.put("a", "b")
    got = await harness.pull()
    await harness.call("Acknowledge", subscription=SUB, ack_ids=ids(got[:1]))
    await harness.crash()
    assert [one.message.data for one in await harness.pull()] == [b"b"]


@simulated()
async def test_an_ack_is_answered_when_it_is_persisted(harness: ServicerHarness) -> None:
    await harness.put("a")
    got = await harness.pull()
    harness.disks_rest = True
    acking = asyncio.create_task(harness.call("Acknowledge", subscription=SUB, ack_ids=ids(got)))
    await asyncio.sleep(60)
    assert not acking.done()
    harness.persist()
    await acking


@pytest.mark.parametrize(
    ("method", "fields"), [("Acknowledge", {}), ("ModifyAckDeadline", {"ack_deadline_seconds": 9})]
)
@simulated()
async def test_ids_that_are_none_are_refused_and_change_nothing(
    harness: ServicerHarness, *, method: str, fields: dict[str, int]
) -> None:
    await harness.put("a", "b")
    got = await harness.pull()
    error = await failing(harness.call(method, subscription=SUB, ack_ids=[got[0].ack_id, "nonsense"], **fields))
    assert (error.code, error.message) == (Code.INVALID_ARGUMENT, "Invalid ack id (ack_id=nonsense)")
    assert harness.subscribe.deliveries[2].table.total()[0] == 2
    error = await failing(harness.call(method, subscription=SUB, **fields))
    assert error.message == "No ack ids specified."
    error = await failing(harness.call(method, subscription=GONE, ack_ids=["x"], **fields))
    assert error.code is Code.NOT_FOUND
    error = await failing(harness.call(method, subscription=SUB, ack_ids=ids(got) * 6000, **fields))
    assert error.message == "ack_ids: The request must not be larger than 524288 bytes. Split it."
    await harness.call("CreateSubscription", name=GONE, topic=TOPIC)
    error = await failing(harness.call(method, subscription=GONE, ack_ids=ids(got), **fields))
    assert "Invalid ack id" in error.message  # another subscription's


@simulated()
async def test_deadlines_are_bounded(harness: ServicerHarness) -> None:
    await harness.put("a")
    got = await harness.pull()
    for seconds, words in (
        (-1, "Ack deadline cannot be negative"),
        (601, "ack_deadline_seconds: must be between 0 and 600 seconds, not 601"),
    ):
        error = await failing(
            harness.call("ModifyAckDeadline", subscription=SUB, ack_ids=ids(got), ack_deadline_seconds=seconds)
        )
        assert (error.code, error.message) == (Code.INVALID_ARGUMENT, words)
    await harness.call("ModifyAckDeadline", subscription=SUB, ack_ids=ids(got), ack_deadline_seconds=600)
    await asyncio.sleep(590)
    assert not await harness.pull(timeout=4.0)
    assert len(await harness.pull(timeout=None)) == 1


@simulated(ack_deadline_s=20)
async def test_a_lease_runs_as_long_as_the_subscription_says(harness: ServicerHarness) -> None:
    await harness.put("a")
    begin = harness.clock.monotonic()
    await harness.pull()
    assert len(await harness.pull(timeout=None)) == 1
    assert harness.clock.monotonic() - begin == pytest.approx(20, abs=0.3)


@simulated()
async def test_a_nack_brings_the_message_back_at_once(harness: ServicerHarness) -> None:
    await harness.put("a")
    got = await harness.pull()
    await harness.call("ModifyAckDeadline", subscription=SUB, ack_ids=ids(got), ack_deadline_seconds=0)
    begin = harness.clock.monotonic()
    again = await harness.pull()
    assert harness.clock.monotonic() - begin < 0.2
    assert again[0].ack_id != got[0].ack_id
    await harness.call("Acknowledge", subscription=SUB, ack_ids=ids(got))  # a late ack still counts
    await asyncio.sleep(30)
    assert not await harness.pull(timeout=4.0)


@simulated(exactly_once=True)
async def test_exactly_once_names_the_ids_that_failed(harness: ServicerHarness) -> None:
    await harness.put("a", "b")
    got = await harness.pull()
    await harness.call("Acknowledge", subscription=SUB, ack_ids=ids(got[:1]))
    for method, fields in (("Acknowledge", {}), ("ModifyAckDeadline", {"ack_deadline_seconds": 20})):
        error = await failing(harness.call(method, subscription=SUB, ack_ids=ids(got), **fields))
        assert error.code is Code.INVALID_ARGUMENT
        (detail,) = unpacked(error.details)
        assert dict(detail.metadata) == {got[0].ack_id: PERMANENT_INVALID_ACK_ID}
        if method == "Acknowledge":
            await harness.put("b")
            got = [got[0], *await harness.pull()]  # the other one of the request was acknowledged
    assert harness.subscribe.deliveries[2].table.total()[0] == 1


@simulated()
async def test_a_change_of_the_subscription_holds_for_the_next_call(harness: ServicerHarness) -> None:
    await harness.put("a")
    (got,) = await harness.pull()
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[got.ack_id])
    harness.commit(CatalogChange.put(replace(harness.record, exactly_once=True)))
    assert (await failing(harness.call("Acknowledge", subscription=SUB, ack_ids=[got.ack_id]))).details


@pytest.mark.parametrize(
    "config",
    [{"push_config": {"push_endpoint": "https://e.example/"}}, {"bigquery_config": {"table": "p.d.t"}}, {}],
    ids=["pushed", "exported", "pulled"],
)
@simulated()
async def test_a_deadline_is_a_use_by_those_who_pull_alone(harness: ServicerHarness, *, config: dict[str, Any]) -> None:
    await harness.put("a")
    (got,) = await harness.pull()
    changed = pubsub.Subscription(**config).SerializeToString()
    harness.commit(CatalogChange.put(replace(harness.record, config=changed)))
    harness.subscribe.used.clear()
    await harness.call("ModifyAckDeadline", subscription=SUB, ack_ids=[got.ack_id], ack_deadline_seconds=20)
    assert bool(harness.subscribe.used) == (not config)
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[got.ack_id])
    assert harness.subscribe.used


def out_of_reach(harness: ServicerHarness) -> None:
    """Acknowledgements arrive nowhere, until `back`."""
    harness.publish.server.acknowledge = (  # type: ignore[method-assign]
        lambda subscription, generation, source, runs, done, *, urgent: done(Unavailable("lost"))
    )


def back(harness: ServicerHarness) -> None:
    del harness.publish.server.acknowledge  # type: ignore[method-assign]


@simulated(exactly_once=True)
async def test_exactly_once_acks_of_unknown_outcome_can_be_tried_again(harness: ServicerHarness) -> None:
    await harness.put("a", "b")
    a, b = ids(await harness.pull())
    out_of_reach(harness)
    error = await failing(harness.call("Acknowledge", subscription=SUB, ack_ids=[a, b]))
    (info,) = unpacked(error.details)
    assert dict(info.metadata) == dict.fromkeys((a, b), TRANSIENT_INVALID_ACK_ID)
    error = await failing(harness.call("Acknowledge", subscription=SUB, ack_ids=[b]))
    (info,) = unpacked(error.details)
    assert dict(info.metadata) == {b: TRANSIENT_INVALID_ACK_ID}
    back(harness)
    await asyncio.sleep(1)
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[a, b])
    await asyncio.sleep(700)  # nobody tries it again after so long
    error = await failing(harness.call("Acknowledge", subscription=SUB, ack_ids=[a]))
    (info,) = unpacked(error.details)
    assert dict(info.metadata) == {a: PERMANENT_INVALID_ACK_ID}


@simulated()
async def test_acks_of_unknown_outcome_are_unavailable(harness: ServicerHarness) -> None:
    await harness.put("a")
    (a,) = ids(await harness.pull())
    out_of_reach(harness)
    error = await failing(harness.call("Acknowledge", subscription=SUB, ack_ids=[a]))
    assert error.code is Code.UNAVAILABLE
    back(harness)
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[a])


@pytest.mark.parametrize("exactly_once", [False, True])
def test_acks_under_way_when_the_disks_fail_are_answered_at_once(exactly_once: bool) -> None:
    @simulated(exactly_once=exactly_once)
    async def run(harness: ServicerHarness) -> None:
        await harness.put("a", "b")
        a, b = ids(await harness.pull())
        harness.disks_rest = True
        calls = [
            asyncio.create_task(failing(harness.call("Acknowledge", subscription=SUB, ack_ids=[one]))) for one in (a, b)
        ]
        await asyncio.sleep(0.01)
        began = harness.clock.monotonic()
        harness.store.fail(OSError("no disk left"))
        for one, call in zip((a, b), calls, strict=True):
            error = await call
            if exactly_once:
                (info,) = unpacked(error.details)
                assert dict(info.metadata) == {one: TRANSIENT_INVALID_ACK_ID}
            else:
                assert error.code is Code.UNAVAILABLE
                assert "no disk left" in error.message
        error = await failing(harness.call("Acknowledge", subscription=SUB, ack_ids=[a]))
        assert error.code is Code.UNAVAILABLE
        assert "no disk left" in error.message
        assert harness.clock.monotonic() == began, "nobody waited, on a clock that only waiting moves"

    run()
