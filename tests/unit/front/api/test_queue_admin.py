"""Queues and suspension: what is made and kept together, what is refused, and what a suspended entity goes on doing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, SyncpointError
from syncpoint.catalog.metadata.records import CREATING
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.catalog import FakeOwner, PlaneHarness, planned

pytestmark = pytest.mark.shows("queues")

QUEUE, MINE = "projects/p/topics/jobs", "projects/p/subscriptions/jobs"


async def suspend(harness: ServicerHarness, *, send: bool | None = None, receive: bool | None = None) -> None:
    if send is not None:
        options: dict[str, Any] = {"topic": TOPIC, "send_suspended": send}
        await harness.call("UpdateTopicOptions", options=options, update_mask={"paths": ["send_suspended"]})
    if receive is not None:
        options = {"subscription": SUB, "receive_suspended": receive}
        await harness.call("UpdateSubscriptionOptions", options=options, update_mask={"paths": ["receive_suspended"]})


# -- queues ------------------------------------------------------------------------------------------------------------


@simulated()
async def test_a_queue_is_a_topic_and_its_subscription(harness: ServicerHarness) -> None:
    wanted = {"ack_deadline_seconds": 33, "enable_message_ordering": True}
    made = await harness.call("CreateQueue", topic={"name": QUEUE, "labels": {"a": "b"}}, subscription=wanted)
    assert made.topic.labels == {"a": "b"}
    assert (made.subscription.name, made.subscription.topic) == (MINE, QUEUE)
    assert made.subscription.ack_deadline_seconds == 33
    assert not made.subscription.expiration_policy.HasField("ttl"), "it never expires"
    assert (await harness.call("GetQueue", topic=QUEUE)) == made
    assert (await harness.call("GetTopicOptions", topic=QUEUE)).queue
    assert not (await harness.call("GetTopicOptions", topic=TOPIC)).queue
    await harness.crash()
    assert (await harness.call("GetQueue", topic=QUEUE)) == made
    await harness.call("DeleteQueue", topic=QUEUE)
    for method, field, name in (("GetTopic", "topic", QUEUE), ("GetSubscription", "subscription", MINE)):
        with pytest.raises(NotFound):
            await harness.call(method, **{field: name})
    with pytest.raises(NotFound, match="Queue not found"):
        await harness.call("DeleteQueue", topic=TOPIC)


@simulated()
async def test_the_parts_of_a_queue_stay_together(harness: ServicerHarness) -> None:
    await harness.call("CreateQueue", topic={"name": QUEUE})
    refusals: list[tuple[str, dict[str, Any]]] = [
        ("CreateSubscription", {"name": SUB + "2", "topic": QUEUE}),
        ("DeleteSubscription", {"subscription": MINE}),
        ("DeleteTopic", {"topic": QUEUE}),
        ("DetachSubscription", {"subscription": MINE}),
        (
            "UpdateSubscription",
            {
                "subscription": {"name": MINE, "expiration_policy": {"ttl": {"seconds": 9 * 86_400}}},
                "update_mask": {"paths": ["expiration_policy"]},
            },
        ),
        (
            "CreateQueue",
            {
                "topic": {"name": QUEUE + "2"},
                "subscription": {"expiration_policy": {"ttl": {"seconds": 9 * 86_400}}},
            },
        ),
    ]
    for method, fields in refusals:
        with pytest.raises(FailedPrecondition, match="is a queue"):
            await harness.call(method, **fields)
    changed = await harness.call(
        "UpdateSubscription",
        subscription={"name": MINE, "ack_deadline_seconds": 99},
        update_mask={"paths": ["ack_deadline_seconds"]},
    )
    assert changed.ack_deadline_seconds == 99


@simulated()
async def test_what_is_no_queue_is_refused(harness: ServicerHarness) -> None:
    for subscription in ({"name": SUB}, {"topic": TOPIC}):
        with pytest.raises(InvalidArgument, match="must be empty or"):
            await harness.call("CreateQueue", topic={"name": QUEUE}, subscription=subscription)
    with pytest.raises(InvalidArgument, match="must not have a filter"):
        await harness.call("CreateQueue", topic={"name": QUEUE}, subscription={"filter": "attributes:a"})
    with pytest.raises(InvalidArgument):
        await harness.call("CreateQueue", topic={"name": "jobs"})
    with pytest.raises(AlreadyExists):
        await harness.call("CreateQueue", topic={"name": TOPIC})
    await harness.call("CreateSubscription", name=MINE, topic=TOPIC)
    with pytest.raises(AlreadyExists):
        await harness.call("CreateQueue", topic={"name": QUEUE})
    with pytest.raises(NotFound):
        await harness.call("GetTopic", topic=QUEUE)


@simulated()
async def test_queues_are_listed_by_pages(harness: ServicerHarness) -> None:
    for number in range(7):
        await harness.call("CreateTopic", name=f"{TOPIC}-{number}")
        await harness.call("CreateQueue", topic={"name": f"{QUEUE}-{number}"})
    names, token = [], ""
    while True:
        page = await harness.call("ListQueues", project="projects/p", page_size=2, page_token=token)
        names += [one.topic.name for one in page.queues]
        token = page.next_page_token
        if not token:
            break
    assert names == [f"{QUEUE}-{number}" for number in range(7)]
    assert not (await harness.call("ListQueues", project="projects/q")).queues


@planned(chains=2)
async def test_of_two_who_create_at_once_one_does(harness: PlaneHarness) -> None:
    """Also of two proxies of a cluster; and nothing that is published right afterwards is missed."""
    first, second = harness.proxies
    both = (one.insist("CreateQueue", topic={"name": QUEUE}) for one in (first, second))
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    assert sorted(isinstance(one, AlreadyExists) for one in outcomes) == [False, True]
    catalog = second.control.catalog
    await second.control.refresh()
    topic, subscription = catalog.topic(QUEUE), catalog.subscription(MINE)
    assert topic is not None
    assert subscription is not None
    assert subscription.state != CREATING
    owner: FakeOwner = harness.owners[1]
    await owner.publish(topic.incarnation)
    assert owner.start_of(subscription) == 0
    racers = (one.insist("CreateSubscription", name=f"{MINE}-2", topic=QUEUE) for one in (first, second))
    assert all(isinstance(one, FailedPrecondition) for one in await asyncio.gather(*racers, return_exceptions=True))
    assert catalog.subscriptions_of(topic.incarnation) == [subscription]


@planned(chains=2)
async def test_when_a_suspension_is_answered_every_chain_of_the_topic_knows_it(harness: PlaneHarness) -> None:
    proxy, _ = harness.proxies
    await proxy.insist("CreateTopic", name=TOPIC)
    topic = proxy.control.catalog.topic(TOPIC)
    assert topic is not None
    await asyncio.gather(*(owner.publish(topic.incarnation) for owner in harness.owners.values()))
    options: dict[str, Any] = {"topic": TOPIC, "send_suspended": True}
    await proxy.insist("UpdateTopicOptions", options=options, update_mask={"paths": ["send_suspended"]})
    for owner in harness.owners.values():
        known = owner.shared.catalog.topic(TOPIC)
        assert known is not None
        assert known.options.send_suspended
        assert (topic.incarnation, proxy.control.catalog.revision) in owner.confirmed


# -- suspension --------------------------------------------------------------------------------------------------------


@simulated()
async def test_a_topic_suspended_for_sending_refuses_publishes(harness: ServicerHarness) -> None:
    await harness.put("before")
    await suspend(harness, send=True)
    assert (await harness.call("GetTopicOptions", topic=TOPIC)).send_suspended
    with pytest.raises(FailedPrecondition, match="suspended for sending"):
        await harness.put("refused")
    assert [one.message.data for one in await harness.pull()] == [b"before"]
    await harness.crash()
    with pytest.raises(FailedPrecondition, match="suspended for sending"):
        await harness.put("refused")
    await suspend(harness, send=False)
    await harness.put("after")


@simulated()
async def test_a_subscription_suspended_for_receiving_hands_nothing_out(harness: ServicerHarness) -> None:
    await harness.put("a", "b")
    (out,) = await harness.pull(1)
    await suspend(harness, receive=True)
    assert (await harness.call("GetSubscriptionOptions", subscription=SUB)).receive_suspended
    assert await harness.pull() == []
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[out.ack_id])
    state = await harness.call("GetSubscriptionState", subscription=SUB)
    assert (state.backlog_messages, state.options.receive_suspended) == (1, True)
    waiting = asyncio.create_task(harness.call("Pull", subscription=SUB, max_messages=10))
    await asyncio.sleep(5)
    assert not waiting.done(), "a pull stays open"
    await suspend(harness, receive=False)
    assert len((await waiting).received_messages) == 1


@simulated()
async def test_leases_of_a_suspended_subscription_run(harness: ServicerHarness) -> None:
    await harness.put("a")
    (out,) = await harness.pull()
    await suspend(harness, receive=True)
    await asyncio.sleep(20)
    state = await harness.call("GetSubscriptionState", subscription=SUB)
    assert (state.backlog_messages, state.outstanding_messages) == (1, 0)
    await suspend(harness, receive=False)
    (again,) = await harness.pull()
    assert again.message.message_id == out.message.message_id


@simulated()
async def test_letters_go_to_a_suspended_topic(harness: ServicerHarness) -> None:
    """They were accepted before: refused there, they would be delivered again and again."""
    request = pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=b"x")]).SerializeToString()
    await suspend(harness, send=True)

    class Caller:
        answer: Any = None

        def reply(self, response: bytes) -> None:
            self.answer = response

        def fail(self, error: SyncpointError) -> None:
            self.answer = error

    caller = Caller()
    harness.publish.intake.letter(caller, request)  # type: ignore[arg-type]
    await asyncio.sleep(1)
    assert isinstance(caller.answer, bytes)
