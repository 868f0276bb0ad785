"""The control plane of a cluster: several processes change the catalog, and every chain confirms."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, MetadataSilent, NotFound, SyncpointError, Unavailable
from syncpoint.broker.router.assignment import TopicAssignment
from syncpoint.catalog.metadata.contract import Put
from syncpoint.catalog.metadata.layout import ASSIGNED_TOPICS
from syncpoint.catalog.metadata.records import ACTIVE, CREATING
from tests.kit.catalog import SNAP, SUB, TOPIC, FakeLender, PlaneHarness, planned

pytestmark = pytest.mark.shows("sync-point", "ownership")

OTHER = f"{TOPIC}-other"


async def outcomes(*waiting) -> list[str]:
    found = await asyncio.gather(*waiting, return_exceptions=True)
    return sorted(one.code.name if isinstance(one, SyncpointError) else "OK" for one in found)


async def with_topic(harness: PlaneHarness) -> int:
    """A topic that both chains hold something of."""
    await harness.proxies[0].call("CreateTopic", name=TOPIC)
    topic = harness.proxies[0].control.catalog.topic(TOPIC)
    assert topic is not None
    for owner in harness.owners.values():
        await owner.shared.at(1)
        await owner.publish(topic.incarnation)
    return topic.incarnation


@planned()
async def test_of_creates_racing_in_two_processes_one_wins(harness: PlaneHarness) -> None:
    for number in range(5):
        creates = [proxy.call("CreateTopic", name=f"{TOPIC}{number}") for proxy in harness.proxies * 3]
        assert await outcomes(*creates) == ["ALREADY_EXISTS"] * 5 + ["OK"]
    topic = f"{TOPIC}0"
    creates = [proxy.call("CreateSubscription", name=SUB, topic=topic) for proxy in harness.proxies * 3]
    assert (await outcomes(*creates)).count("OK") == 1


@planned()
async def test_changes_of_different_things_do_not_stand_in_each_others_way(harness: PlaneHarness) -> None:
    creates = [
        proxy.call("CreateTopic", name=f"{TOPIC}{n}{p}") for n in range(20) for p, proxy in enumerate(harness.proxies)
    ]
    assert await outcomes(*creates) == ["OK"] * 40


@planned()
async def test_what_one_process_was_answered_another_knows(harness: PlaneHarness) -> None:
    one, other = harness.proxies
    await one.call("CreateTopic", name=TOPIC)
    assert (await other.call("GetTopic", topic=TOPIC)).name == TOPIC
    await other.call("DeleteTopic", topic=TOPIC)
    with pytest.raises(SyncpointError, match="not found"):
        await one.call("GetTopic", topic=TOPIC)


@planned()
async def test_a_process_without_the_metadata_reads_what_it_knows_and_says_of_nothing_that_it_is_or_is_not(
    harness: PlaneHarness,
) -> None:
    one, other = harness.proxies
    await one.call("CreateTopic", name=TOPIC)
    await one.call("CreateTopic", name=f"{TOPIC}2")
    await other.call("GetTopic", topic=f"{TOPIC}2")
    other.store.cut = True
    await one.call("DeleteTopic", topic=TOPIC)
    await one.call("CreateTopic", name=f"{TOPIC}3")
    assert (await other.call("GetTopic", topic=f"{TOPIC}2")).name == f"{TOPIC}2"
    for method, asked in (
        ("CreateTopic", {"name": TOPIC}),
        ("GetTopic", {"topic": f"{TOPIC}3"}),
        ("CreateSubscription", {"name": SUB, "topic": f"{TOPIC}3"}),
    ):
        with pytest.raises(MetadataSilent):
            await other.call(method, **asked)
    other.store.cut = False
    await other.insist("CreateTopic", name=TOPIC)
    await other.call("CreateSubscription", name=SUB, topic=f"{TOPIC}3")


@planned()
async def test_a_subscription_is_active_when_every_chain_has_confirmed(harness: PlaneHarness) -> None:
    topic = await with_topic(harness)
    proxy = harness.proxies[0]
    await proxy.call("CreateSubscription", name=SUB, topic=TOPIC)
    record = proxy.control.catalog.subscription(SUB)
    assert (record.state, record.created_revision) == (ACTIVE, 2)
    for owner in harness.owners.values():
        assert owner.confirmed == [(topic, 2)]
        assert owner.start_of(record) == 1


@planned()
async def test_a_chain_that_does_not_confirm_keeps_it_creating_and_a_retry_finishes(harness: PlaneHarness) -> None:
    await with_topic(harness)
    one, other = harness.proxies
    harness.owners[2].deaf = True
    with pytest.raises(SyncpointError, match="Chain 2 did not confirm") as caught:
        await one.call("CreateSubscription", name=SUB, topic=TOPIC)
    assert caught.value.code is Code.UNAVAILABLE
    assert one.control.catalog.subscription(SUB).state == CREATING
    with pytest.raises(SyncpointError) as caught:
        await other.call("CreateSubscription", name=SUB, topic=TOPIC, ack_deadline_seconds=77)
    assert caught.value.code is Code.ALREADY_EXISTS
    incarnation = one.control.catalog.subscription(SUB).incarnation
    harness.owners[2].deaf = False
    await other.call("CreateSubscription", name=SUB, topic=TOPIC)
    assert other.control.catalog.subscription(SUB).incarnation == incarnation
    assert other.control.catalog.subscription(SUB).state == ACTIVE
    with pytest.raises(SyncpointError) as caught:
        await one.call("CreateSubscription", name=SUB, topic=TOPIC)
    assert caught.value.code is Code.ALREADY_EXISTS


@planned()
async def test_one_that_is_still_creating_can_be_deleted(harness: PlaneHarness) -> None:
    await with_topic(harness)
    proxy = harness.proxies[0]
    harness.owners[2].deaf = True
    assert await outcomes(proxy.call("CreateSubscription", name=SUB, topic=TOPIC)) == ["UNAVAILABLE"]
    await proxy.call("DeleteSubscription", subscription=SUB)
    assert proxy.control.catalog.subscription(SUB) is None


@planned()
async def test_ownership_moves_while_a_chain_is_asked(harness: PlaneHarness) -> None:
    await with_topic(harness)
    harness.owners[2].deaf = True
    creating = asyncio.create_task(harness.proxies[0].call("CreateSubscription", name=SUB, topic=TOPIC))
    await asyncio.sleep(0.5)
    harness.disown(2)
    await asyncio.sleep(0.5)
    assert not creating.done()
    harness.owners[1].own(2)
    await creating


@planned()
async def test_a_chain_without_an_owner_is_waited_for(harness: PlaneHarness) -> None:
    await with_topic(harness)
    harness.disown(1)
    creating = asyncio.create_task(harness.proxies[0].call("CreateSubscription", name=SUB, topic=TOPIC))
    await asyncio.sleep(2)
    harness.owners[1].own()
    await creating
    harness.disown(1)
    with pytest.raises(SyncpointError, match="it has no owner"):
        await harness.proxies[0].call("CreateSubscription", name=SUB + "2", topic=TOPIC)


@planned()
async def test_a_seek_makes_a_generation_and_every_chain_confirms_it(harness: PlaneHarness) -> None:
    await with_topic(harness)
    one, other = harness.proxies
    await one.call("CreateSubscription", name=SUB, topic=TOPIC)
    await one.call("CreateSnapshot", name=SNAP, subscription=SUB)
    await asyncio.gather(
        one.call("Seek", subscription=SUB, time={"seconds": 5}), other.call("Seek", subscription=SUB, snapshot=SNAP)
    )
    await one.control.refresh()
    record, snapshot = one.control.catalog.subscription(SUB), one.control.catalog.snapshot(SNAP)
    assert record.generation == 2
    assert record.target in ((5 * 10**9, None), (None, snapshot.incarnation))
    for owner in harness.owners.values():
        assert max(owner.confirmed)[1] == one.control.catalog.revision


@planned()
async def test_a_snapshot_names_its_subscription_and_an_unfinished_one_gives_way(harness: PlaneHarness) -> None:
    await with_topic(harness)
    one, other = harness.proxies
    await one.call("CreateSubscription", name=SUB, topic=TOPIC)
    harness.owners[1].deaf = True
    assert await outcomes(one.call("CreateSnapshot", name=SNAP, subscription=SUB)) == ["UNAVAILABLE"]
    first = one.control.catalog.snapshot(SNAP)
    assert (first.status, first.subscription) == (CREATING, one.control.catalog.subscription(SUB).incarnation)
    with pytest.raises(SyncpointError) as caught:
        await one.call("Seek", subscription=SUB, snapshot=SNAP)
    assert caught.value.code is Code.NOT_FOUND
    harness.owners[1].deaf = False
    await other.call("CreateSnapshot", name=SNAP, subscription=SUB)
    second = other.control.catalog.snapshot(SNAP)
    assert second.status == ACTIVE
    assert second.incarnation != first.incarnation
    assert await outcomes(one.call("CreateSnapshot", name=SNAP, subscription=SUB)) == ["ALREADY_EXISTS"]


@planned()
async def test_changes_of_retention_and_schema_are_confirmed_a_label_is_not(harness: PlaneHarness) -> None:
    await with_topic(harness)
    proxy = harness.proxies[0]
    await proxy.call("CreateSubscription", name=SUB, topic=TOPIC)
    harness.owners[1].deaf = True
    label = {"name": SUB, "labels": {"a": "b"}}
    await proxy.call("UpdateSubscription", subscription=label, update_mask={"paths": ["labels"]})
    retain = {"name": SUB, "retain_acked_messages": True}
    change = proxy.call("UpdateSubscription", subscription=retain, update_mask={"paths": ["retain_acked_messages"]})
    assert await outcomes(change) == ["UNAVAILABLE"]
    schema = {"type": "AVRO", "definition": '"string"', "name": "projects/p/schemas/order"}
    await proxy.call("CreateSchema", parent="projects/p", schema=schema)
    fits = {"name": TOPIC, "schema_settings": {"schema": "projects/p/schemas/order", "encoding": "JSON"}}
    change = proxy.call("UpdateTopic", topic=fits, update_mask={"paths": ["schema_settings"]})
    assert await outcomes(change) == ["UNAVAILABLE"], "a chain may not ask for it yet"
    harness.owners[1].deaf = False
    longer = {"name": TOPIC, "message_retention_duration": {"seconds": 700}}
    await proxy.call("UpdateTopic", topic=longer, update_mask={"paths": ["message_retention_duration"]})
    await proxy.call("DetachSubscription", subscription=SUB)
    assert max(harness.owners[1].confirmed)[1] == proxy.control.catalog.revision


@planned(chains=3)
async def test_before_keys_move_all_other_chains_have_sealed(harness: PlaneHarness) -> None:
    topic = await with_topic(harness)
    barrier = harness.proxies[0].barrier
    with pytest.raises(Unavailable, match="epoch None"):
        await barrier.sealed(topic, 1, 2)
    harness.store.txn([], [Put(ASSIGNED_TOPICS.key(topic), TopicAssignment(2, (2,)).encode())])
    with pytest.raises(Unavailable, match="epoch 2, not in 1"):
        await barrier.sealed(topic, 1, 2)
    await barrier.sealed(topic, 2, 2)
    assert [owner.sealed for owner in harness.owners.values()] == [[(topic, 2)], [], [(topic, 2)]]
    harness.owners[3].deaf = True
    with pytest.raises(Unavailable, match="Chain 3 did not confirm"):
        await barrier.sealed(topic, 2, 2)


@planned()
async def test_the_oldest_message_is_that_of_all_chains_or_of_none(harness: PlaneHarness) -> None:
    await with_topic(harness)
    proxy = harness.proxies[0]
    await proxy.call("CreateSubscription", name=SUB, topic=TOPIC)
    record = proxy.control.catalog.subscription(SUB)
    assert await proxy.control.oldest_age_s(record) == 0
    for chain, owner in harness.owners.items():
        owner.described.oldest_age_s = 10.0 * chain
    assert await proxy.control.oldest_age_s(record) == 20.0
    harness.owners[1].described.unreadable = "its disks do not answer in time"
    with pytest.raises(Unavailable, match="chain 1: its disks"):
        await proxy.control.oldest_age_s(record)
    harness.owners[1].described.unreadable = ""
    harness.disown(2)
    with pytest.raises(Unavailable, match="chain 2: no process"):
        await proxy.control.oldest_age_s(record)


@planned()
async def test_without_metadata_nothing_changes_and_everything_can_be_read(harness: PlaneHarness) -> None:
    proxy = harness.proxies[0]
    await proxy.call("CreateTopic", name=TOPIC)
    proxy.store.cut = True
    assert (await proxy.call("GetTopic", topic=TOPIC)).name == TOPIC
    with pytest.raises(SyncpointError, match="nothing was changed") as caught:
        await proxy.call("CreateTopic", name=TOPIC + "2")
    assert caught.value.code is Code.UNAVAILABLE
    assert await outcomes(proxy.call("CreateSubscription", name=SUB, topic=TOPIC)) == ["UNAVAILABLE"]
    proxy.store.cut = False
    await proxy.call("CreateSubscription", name=SUB, topic=TOPIC)


@planned()
async def test_deleting_does_not_wait_for_a_dead_chain_for_ever(harness: PlaneHarness) -> None:
    await with_topic(harness)
    proxy = harness.proxies[0]
    harness.disown(1)
    before = harness.loop.time()
    await proxy.call("DeleteTopic", topic=TOPIC)
    assert harness.loop.time() - before < 4
    with pytest.raises(NotFound):
        await proxy.call("DeleteTopic", topic=TOPIC)


@pytest.mark.parametrize("seed", range(20))
def test_sync_point_races(seed: int) -> None:
    """Publishers on four chains, most of them opening the topic just now, against creations in two processes."""

    @planned(seed, chains=4)
    async def run(harness: PlaneHarness) -> None:
        proxy, names = harness.proxies[0], [f"{TOPIC}{number}" for number in range(8)]
        for name in names:
            await proxy.call("CreateTopic", name=name)
        messages: list[tuple[float, int, int, int]] = []  # (when its publish began, topic, chain, offset)
        created: list[tuple[float, str]] = []

        async def publish(chain: int, name: str) -> None:
            topic = proxy.control.catalog.topic(name).incarnation
            await asyncio.sleep(harness.random.random())
            for _ in range(8):
                begun = harness.loop.time()
                messages.append((begun, topic, *await harness.owners[chain].publish(topic)))
                await asyncio.sleep(harness.random.random() * 0.2)

        async def create(number: int) -> None:
            await asyncio.sleep(harness.random.random())
            name = f"{SUB}{number}"
            topic = names[number % len(names)]
            await harness.proxies[number % 3 % 2].insist("CreateSubscription", name=name, topic=topic)
            created.append((harness.loop.time(), name))

        harness.network.break_chance = 0.02 if seed % 2 else 0.0
        publishing = [publish(chain, name) for chain in harness.owners for name in names]
        await asyncio.gather(*publishing, *(create(number) for number in range(32)))
        await proxy.control.refresh()
        assert len(created) == 32
        for at, name in created:
            record = proxy.control.catalog.subscription(name)
            for begun, topic, chain, offset in messages:
                if topic == record.topic_incarnation and begun > at:
                    assert offset >= harness.owners[chain].start_of(record)

    run()


def changed(of: str, path: str, value: Any) -> tuple[str, dict[str, Any]]:
    name = {"topic": TOPIC, "subscription": SUB}[of]
    fields = {of: {"name": name, path: value}, "update_mask": {"paths": [path]}}
    return f"Update{of.title()}", fields


def options(of: str, path: str, value: Any) -> tuple[str, dict[str, Any]]:
    name = {"topic": TOPIC, "subscription": SUB}[of]
    return f"Update{of.title()}Options", {"options": {of: name, path: value}, "update_mask": {"paths": [path]}}


CHANGES = [
    changed("subscription", "retain_acked_messages", True),
    changed("subscription", "message_retention_duration", {"seconds": 700}),
    changed("topic", "message_retention_duration", {"seconds": 700}),
    changed("topic", "message_storage_policy", {"enforce_in_transit": True, "allowed_persistence_regions": ["r1"]}),
    ("DetachSubscription", {"subscription": SUB}),
    ("Seek", {"subscription": SUB, "time": {"seconds": 1}}),
    ("CreateSnapshot", {"name": SNAP, "subscription": SUB}),
    ("CreateSubscription", {"name": SUB + "2", "topic": TOPIC}),
    changed("subscription", "enable_exactly_once_delivery", True),
    changed("subscription", "dead_letter_policy", {"dead_letter_topic": OTHER, "max_delivery_attempts": 5}),
    options("topic", "default_ttl", {"seconds": 700}),
    options("topic", "duplicate_detection_window", {"seconds": 700}),
    options("topic", "send_suspended", True),
    options("topic", "durability_class", "default"),
    options("subscription", "ttl", {"seconds": 700}),
    options("subscription", "forward_to", OTHER),
    ("CreateRule", {"subscription": SUB, "rule": {"name": "new", "sql": "a = 1"}}),
    ("CreateRule", {"subscription": SUB, "rule": {"name": "all", "sql": "a = 1"}, "scope": "ALL_MESSAGES"}),
    ("UpdateRule", {"subscription": SUB, "rule": {"name": "r", "sql": "a = 2"}}),
    ("DeleteRule", {"subscription": SUB, "name": "r"}),
]
DONE_BEFORE = {"CreateRule": "ALREADY_EXISTS", "DeleteRule": "NOT_FOUND"}  # of who tries again
AT_ONCE = [
    ("UpdateSnapshot", {"snapshot": {"name": SNAP, "labels": {"a": "b"}}, "update_mask": {"paths": ["labels"]}}, "OK"),
    ("DeleteSnapshot", {"snapshot": SNAP}, "NOT_FOUND"),
    ("CreateTopic", {"name": TOPIC + "2"}, "ALREADY_EXISTS"),
    ("DeleteSubscription", {"subscription": SUB}, "NOT_FOUND"),
    ("DeleteTopic", {"topic": TOPIC}, "NOT_FOUND"),
]
"""What promises nothing of any chain: what is deleted is gone whatever they know, and who pushes reads the catalog."""


@pytest.mark.parametrize("again", [0, 1])
@pytest.mark.parametrize(("method", "fields"), CHANGES)
@planned()
async def test_an_answer_means_that_every_chain_has_confirmed(
    harness: PlaneHarness, *, method: str, fields: dict[str, Any], again: int
) -> None:
    """Also where the change was found in the catalog, by whichever process is asked again."""
    await with_topic(harness)
    one, other = harness.proxies[0], harness.proxies[again]
    await one.call("CreateTopic", name=OTHER)
    await one.call("CreateSubscription", name=SUB, topic=TOPIC)
    await one.call("CreateRule", subscription=SUB, rule={"name": "r", "sql": "a = 1"})
    harness.owners[1].deaf = True
    for proxy in (one, other, one):
        assert await outcomes(proxy.call(method, **fields)) == ["UNAVAILABLE"]
    harness.owners[1].deaf = False
    before, revision = len(harness.owners[1].confirmed), one.control.catalog.revision
    assert await outcomes(other.call(method, **fields)) == [DONE_BEFORE.get(method, "OK")]
    assert len(harness.owners[1].confirmed) > before
    assert max(harness.owners[1].confirmed)[1] >= revision


@pytest.mark.parametrize(("method", "fields", "then"), AT_ONCE)
@planned()
async def test_what_promises_nothing_of_chains_is_answered_whatever_they_know(
    harness: PlaneHarness, *, method: str, fields: dict[str, Any], then: str
) -> None:
    await with_topic(harness)
    one, other = harness.proxies
    await one.call("CreateSubscription", name=SUB, topic=TOPIC)
    await one.call("CreateSnapshot", name=SNAP, subscription=SUB)
    harness.owners[1].deaf = True
    assert await outcomes(one.call(method, **fields)) == ["OK"]
    for proxy in (one, other):
        assert await outcomes(proxy.call(method, **fields)) == [then]


@planned()
async def test_what_concerns_no_chain_waits_for_none_once_the_others_have_confirmed(harness: PlaneHarness) -> None:
    await with_topic(harness)
    proxy = harness.proxies[0]
    await proxy.call("CreateSubscription", name=SUB, topic=TOPIC)
    harness.owners[1].deaf = True
    for of in ("topic", "subscription"):
        for value in ({"a": "b"}, {}):
            method, fields = changed(of, "labels", value)
            assert await outcomes(proxy.call(method, **fields)) == ["OK"]


def pushed_to(url: str) -> dict[str, Any]:
    return {"subscription": SUB, "push_config": {"push_endpoint": url}}


REDIRECTIONS = [
    ("ModifyPushConfig", pushed_to("https://b.example/")),
    ("ModifyPushConfig", pushed_to("")),
    changed("subscription", "cloud_storage_config", {"bucket": "archive"}),
    options("subscription", "forward_to", OTHER),
    options("subscription", "receive_suspended", True),
]


@pytest.mark.parametrize(("method", "fields"), REDIRECTIONS)
@planned()
async def test_after_the_answer_no_forwarder_lends_by_what_was_before(
    harness: PlaneHarness, *, method: str, fields: dict[str, Any]
) -> None:
    """Also where the change was found in the catalog, by whichever process is asked again."""
    await with_topic(harness)
    lender = FakeLender(harness)
    await lender.started
    one, other = harness.proxies
    await one.call("CreateTopic", name=OTHER)
    await one.call("CreateSubscription", name=SUB, topic=TOPIC)
    if method == "ModifyPushConfig":
        await one.call("ModifyPushConfig", **pushed_to("https://a.example/"))
    lender.deaf = True
    for proxy in (one, other, one):
        assert await outcomes(proxy.call(method, **fields)) == ["UNAVAILABLE"]
    lender.deaf = False
    revision = one.control.catalog.revision
    assert await outcomes(other.call(method, **fields)) == ["OK"]
    assert max(lender.asked) >= revision


@planned()
async def test_a_change_that_leads_no_message_elsewhere_waits_for_no_forwarder(harness: PlaneHarness) -> None:
    await with_topic(harness)
    lender = FakeLender(harness)
    await lender.started
    proxy = harness.proxies[0]
    await proxy.call("CreateSubscription", name=SUB, topic=TOPIC)
    lender.deaf = True
    method, fields = changed("subscription", "labels", {"a": "b"})
    assert await outcomes(proxy.call(method, **fields)) == ["OK"]
    assert not lender.asked
