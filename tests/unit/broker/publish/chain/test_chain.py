"""Chains over nine disks each: publishing, adoption, what the catalog makes a chain do, resends."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.model.errors import Code, OtherSchema, StaleEpoch, Unavailable
from syncpoint.base.model.identity import SOURCE_INDEX_END, parse_message_id
from syncpoint.base.runtime.files import DiskFenced
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.publish.intake.envelope import PublishBatch, write_publish
from syncpoint.broker.publish.intake.follow import Follower
from syncpoint.catalog.metadata.records import CatalogChange, Topic, TopicSchema
from syncpoint.log.storage.errors import DisksMissing
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub
from tests.kit.chain import SUB_NUMBER, TOPIC, TOPIC_NUMBER, ChainHarness, simulated
from tests.kit.chain_subscriber import Subscriber
from tests.kit.errors import failing


@simulated
async def test_messages_go_in_and_come_out(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    ids = await process.publish("a", "b")
    assert [parse_message_id(one).offset for one in ids] == [0, 1]
    subscriber = await Subscriber(process, 11).attached()
    assert subscriber.owned == [1]
    assert await subscriber.read_all() == ["a", "b"]
    (source,) = subscriber.granted
    assert not (await subscriber.ack(source, (0, 1))).error
    assert await subscriber.read_all() == ["b"]
    await process.open(2)
    one, two = await process.host.describe(TOPIC_NUMBER, SUB_NUMBER, 10)
    assert (one.chain, one.backlog_messages, one.unreadable, two.chain, list(two.sources)) == (1, 1, "", 2, [])
    assert one.backlog_bytes > 0
    (shown,) = one.sources
    assert (shown.source, shown.first_offset, shown.next_offset) == (source, 0, 2)
    assert (shown.first_unacked_offset, shown.acked_messages, list(shown.acked)) == (1, 1, [0, 1])
    harness.clock.advance(7)
    request = internal.DescribeRequest(topic=TOPIC_NUMBER, subscription=SUB_NUMBER).SerializeToString()
    answer = internal.DescribeResponse.FromString(await process.channel.unary(methods.CHAINS.Describe, request))
    assert answer.chains[0].oldest_age_s >= 7
    assert (list(answer.chains[0].sources[0].acked), answer.chains[0].sources[0].ranges_total) == ([], 1)
    (alone, _) = await process.host.describe(TOPIC_NUMBER, 0, 10)
    assert (alone.backlog_messages, alone.sources[0].acked_messages) == (0, 0)
    disks = process.host.status()["disks"]["1"]
    assert len(disks) == 9
    assert all(disk["position"] > 0 for disk in disks.values())
    assert len({disk["incarnation"] for disk in disks.values()} - {""}) == 9


@simulated
async def test_requests_for_what_is_not_here_store_nothing(harness: ChainHarness) -> None:
    process = harness.process()
    assert (await failing(process.publish("a"))).code is Code.UNAVAILABLE
    await process.open()
    harness.commit(CatalogChange.delete(Topic(TOPIC_NUMBER, TOPIC)))
    assert (await failing(process.publish("a"))).code is Code.NOT_FOUND
    assert harness.registered == set()


@simulated
async def test_a_batch_for_another_topic_of_the_same_name_is_refused(harness: ChainHarness) -> None:
    process = harness.process()
    chain = await process.open()
    old = harness.master.topic(TOPIC)
    assert old is not None
    request = pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=b"x")]).SerializeToString()

    async def publish(topic: int) -> bytes:
        batch = PublishBatch(1, 0, False, 7, topic, False, request, topic)
        answer: bytes = await process.channel.unary(methods.CHAINS.Publish, write_publish(batch), timeout=5.0)
        return answer

    assert await publish(old.incarnation)
    harness.commit(CatalogChange.delete(old))
    harness.commit(CatalogChange.put(Topic(99, TOPIC)))
    refused = await failing(publish(old.incarnation))
    assert (refused.code, refused.message) == (
        Code.FAILED_PRECONDITION,
        f"{TOPIC} is topic 99 here, not {old.incarnation}.",
    )
    assert chain.forwarder.sources.of_topic(99) == []
    assert await publish(99)


@simulated
async def test_a_batch_is_taken_when_it_was_checked_by_the_schema_settings_that_hold(harness: ChainHarness) -> None:
    process = harness.process()
    await process.open()
    settings = TopicSchema("projects/p/schemas/s", 7, 1)
    attributes = {f"k{number}": "v" for number in range(107)}

    def by(schema: TopicSchema) -> int:
        return Topic(TOPIC_NUMBER, TOPIC, schema=schema).stamp

    async def publish(
        number: int, schema: int, *, origin: PublishOrigin = PublishOrigin.CLIENT, kept: int = 1
    ) -> bytes:
        message = pubsub.PubsubMessage(data=b"x", attributes=dict(list(attributes.items())[:kept]))
        request = pubsub.PublishRequest(topic=TOPIC, messages=[message]).SerializeToString()
        batch = PublishBatch(1, 0, False, 7, number, False, request, TOPIC_NUMBER, schema, origin)
        answer: bytes = await process.channel.unary(methods.CHAINS.Publish, write_publish(batch), timeout=5.0)
        return answer

    assert type(await failing(publish(1, by(settings)))) is OtherSchema
    assert await publish(2, 0, kept=100)
    assert (await failing(publish(3, 0, kept=101))).code is Code.INVALID_ARGUMENT
    harness.commit(CatalogChange.put(Topic(TOPIC_NUMBER, TOPIC, schema=settings)))
    assert type(await failing(publish(4, 0))) is OtherSchema
    assert type(await failing(publish(5, by(settings._replace(first=2))))) is OtherSchema
    assert await publish(6, by(settings), kept=103)
    assert (await failing(publish(7, by(settings), kept=104))).code is Code.INVALID_ARGUMENT
    assert await publish(8, 0, origin=PublishOrigin.SERVICE, kept=107), "a dead letter keeps all that it had"


@simulated
async def test_a_chain_registers_before_its_first_message_and_only_then(harness: ChainHarness) -> None:
    process = await harness.opened()
    many = await asyncio.gather(*(process.publish(str(number)) for number in range(20)))
    assert len({one for ids in many for one in ids}) == 20
    assert harness.registered == {(TOPIC_NUMBER, 1)}
    assert harness.registrations == 1
    await process.publish("more")
    assert harness.registrations == 1


@simulated
async def test_without_registration_publishes_are_turned_away(harness: ChainHarness) -> None:
    process = await harness.opened()
    harness.metadata_down = True
    error = await failing(process.publish("a"))
    assert error.code is Code.UNAVAILABLE
    harness.metadata_down = False
    assert await process.publish("a")


@simulated
async def test_a_crash_loses_nothing_and_the_next_owner_goes_on(harness: ChainHarness) -> None:
    first = await harness.subscribed()
    ids = await first.publish("a", "b", "c")
    subscriber = await Subscriber(first, 11).attached()
    (source,) = subscriber.granted
    await subscriber.ack(source, (1, 1))
    second = await harness.succeeded(first)
    ids += await second.publish("d")
    assert len(set(ids)) == 4
    again = await Subscriber(second, 11).attached()
    assert await again.read_all() == ["a", "c", "d"]
    old, new = sorted(again.sources.values(), key=lambda one: one.number)
    assert (old.sealed, new.sealed) == (True, False)


@simulated
async def test_acknowledged_messages_survive_the_loss_of_a_cluster_and_a_disk(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("a")
    await process.crash()
    for gone in ("/c0-d0", "/c0-d1", "/c0-d2", "/c1-d1", "/c2-d2"):
        harness.disks[1].files.wipe(gone)
    second = await harness.opened()
    subscriber = await Subscriber(second, 11).attached()
    assert await subscriber.read_all() == ["a"]


@simulated
async def test_disks_that_were_all_wiped_do_not_pass_for_new_ones(harness: ChainHarness) -> None:
    process = await harness.opened()
    await process.publish("a")
    await process.crash()
    for disk in range(9):
        harness.disks[1].files.wipe(f"/c{disk // 3}-d{disk % 3}")
    with pytest.raises(DisksMissing, match="disks of this store are missing"):
        await harness.process().open()


@simulated
async def test_a_disk_that_changes_while_a_chain_is_opened_is_decided_anew_under_another_counter(
    harness: ChainHarness,
) -> None:
    first = await harness.opened()
    assert await first.publish("a")
    await first.crash()
    files = harness.disks[1].files

    def restart(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith("/marks.json") and not files.restarted:
            files.restarted[path.rpartition("/")[0]] = 1

    files.faults.append(restart)
    logs = harness.logs
    chain = await harness.process("f2").open()
    assert files.restarted, "the schedule is not the one that is meant"
    assert harness.logs == logs + 2, "the first counter is used up"
    assert chain.store.log_counter == harness.logs


@simulated
async def test_a_log_that_fails_while_what_recovery_found_is_followed_is_reported_and_opened_again(
    harness: ChainHarness,
) -> None:
    process = await harness.opened()
    await process.publish("a")
    await process.crash()
    process = harness.process("f2")

    def fails(follower: Follower) -> None:
        follower.forwarder.commit.give_up(Unavailable("too few disks are left"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Follower, "reconcile", fails)
        error = await failing(process.open())
    assert error.code is Code.UNAVAILABLE
    assert "too few disks are left" in error.message
    assert (process.ended, process.host.chains) == ([], {}), "it was never served"
    await process.open()
    assert await process.publish("b")


@simulated
async def test_a_log_that_fails_as_the_last_thing_before_it_is_served_is_reported_and_opened_again(
    harness: ChainHarness,
) -> None:
    """While the chain waits for what it is registered for, after all that is written in an opening."""
    process = harness.process()

    async def registered(chain: int) -> set[int]:
        process.host.entered[0].forwarder.commit.give_up(Unavailable("too few disks are left"))
        return set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "registered", registered)
        error = await failing(process.open())
    assert "too few disks are left" in error.message
    assert (process.ended, process.host.chains, process.host.entered) == ([], {}, []), "it was never served"
    await process.open()
    assert await process.publish("b")


@simulated
async def test_a_lower_epoch_is_shut_out_and_says_so(harness: ChainHarness) -> None:
    first = await harness.opened("f1")
    await first.publish("a")
    second = await harness.opened("f2")
    assert (await failing(first.publish("b"))).code is Code.UNAVAILABLE
    await asyncio.sleep(1)
    assert [(number, type(error)) for number, error in first.ended] == [(1, DiskFenced)]
    assert 1 not in first.host.chains
    await first.host.close(1)
    assert await second.publish("c")
    with pytest.raises(DiskFenced):
        await first.host.open(second.host.chains[1].record, 1)


@simulated
async def test_a_chain_that_is_closed_has_a_checkpoint_and_can_be_opened_elsewhere(harness: ChainHarness) -> None:
    first, second = harness.process("f1"), harness.process("f2")
    await first.open()
    await harness.subscribe()
    await first.publish("a", "b")
    subscriber = await Subscriber(first, 11).attached()
    (source,) = subscriber.granted
    await subscriber.ack(source, (0, 1))
    await first.host.close(1)
    await asyncio.sleep(0.1)
    assert subscriber.owned == []
    chain = await second.open()
    assert chain.forwarder.memory.facts <= 1
    again = await Subscriber(second, 11).attached()
    assert await again.read_all() == ["b"]


@simulated
async def test_a_subscription_gets_what_is_published_after_its_creation_and_nothing_before(
    harness: ChainHarness,
) -> None:
    process = await harness.opened()
    await process.publish("before")
    await harness.subscribe()
    await process.publish("after")
    second = await harness.succeeded(process)
    subscriber = await Subscriber(second, 11).attached()
    assert await subscriber.read_all() == ["after"]


@simulated
async def test_a_chain_that_opens_a_topic_later_gives_its_subscriptions_everything(harness: ChainHarness) -> None:
    process = await harness.opened("f1", 1)
    await process.open(2)
    await process.publish("a", chain=1)
    await harness.subscribe()
    await process.publish("b", chain=2)
    await process.crash()
    second = await harness.opened("f1", 1)
    await second.open(2)
    subscriber = await Subscriber(second, 11).attached()
    assert await subscriber.read_all() == ["b"]


@simulated
async def test_confirm_waits_for_the_catalog_and_for_the_disks(harness: ChainHarness) -> None:
    process = await harness.opened()
    await process.publish("before")
    process.shared.held = True
    creating = asyncio.ensure_future(harness.subscribe())
    await asyncio.sleep(0.5)
    assert not creating.done()
    await process.publish("meanwhile")
    process.paused = True
    process.shared.held = False
    process.shared.catch_up()
    await asyncio.sleep(0.5)
    assert not creating.done()
    process.paused = False
    await creating
    await process.publish("after")
    subscriber = await Subscriber(process, 11).attached()
    assert await subscriber.read_all() == ["after"]


@simulated
async def test_a_subscription_whose_creation_never_returned_begins_where_recovery_found_the_end(
    harness: ChainHarness,
) -> None:
    first = await harness.opened("f1")
    await first.publish("a")
    first.shared.held = True  # it receives nothing any more
    creating = asyncio.ensure_future(harness.subscribe())
    await asyncio.sleep(0.1)
    await first.publish("b")
    second = await harness.succeeded(first)
    creating.cancel()
    await second.publish("c")
    third = await harness.succeeded(second, "f3")
    subscriber = await Subscriber(third, 11).attached()
    assert await subscriber.read_all() == ["c"]


@simulated
async def test_a_chain_is_not_judged_by_a_catalog_older_than_its_log(harness: ChainHarness) -> None:
    first = await harness.subscribed()
    await first.publish("a")
    second = harness.process("f2")
    second.shared.held = True
    harness.update(retention_s=1000)
    await harness.confirm(harness.master.revision)
    await first.crash()
    opening = asyncio.ensure_future(second.open())
    await asyncio.sleep(1)
    assert not opening.done()
    second.shared.held = False
    second.shared.catch_up()
    await opening


@simulated
async def test_keys_are_taken_in_the_current_epoch_alone(harness: ChainHarness) -> None:
    process = await harness.opened("f1", 1)
    await process.open(2)
    for epoch in (0, 1):
        error = await failing(process.publish("a", key="k", epoch=epoch))
        assert isinstance(error, StaleEpoch)
    harness.assign(1)
    await process.publish("a", key="k", epoch=1)
    assert (await failing(process.publish("b", key="k", epoch=1, chain=2))).code is Code.FAILED_PRECONDITION
    harness.assign(2)
    assert (await failing(process.publish("b", key="k", epoch=1))).code is Code.FAILED_PRECONDITION
    await process.publish("b", key="k", epoch=2, chain=2)
    await process.publish("keyless", chain=1)
    old = process.host.chains[1].forwarder.sources.of_topic(TOPIC_NUMBER)
    new = process.host.chains[2].forwarder.sources.of_topic(TOPIC_NUMBER)
    assert [(one.epoch, one.sealed) for one in old] == [(1, True), (2, False)]
    assert [(one.epoch, one.keyed) for one in new] == [(2, True)]


@simulated
async def test_a_successor_waits_for_a_forwarder_that_has_not_learned_of_the_new_epoch(harness: ChainHarness) -> None:
    one, two = harness.process("f1"), harness.process("f2")
    await one.open(1)
    await two.open(2)
    harness.assign(1)
    await one.publish("k1", key="k", epoch=1)
    one.deaf = True
    harness.assign(2)
    early = asyncio.ensure_future(two.publish("k3", key="k", epoch=2, chain=2))
    await asyncio.sleep(1)
    assert not early.done()
    assert await two.publish("keyless", chain=2)  # these do not wait
    await one.publish("k2", key="k", epoch=1)
    one.deaf = False
    one.on_assignments()
    await early
    sources = one.host.chains[1].forwarder.sources.of_topic(TOPIC_NUMBER)
    assert [source.sealed for source in sources] == [True]


@simulated
async def test_an_adopter_that_knows_an_old_epoch_takes_no_keys_in_it(harness: ChainHarness) -> None:
    one, two = harness.process("f1"), harness.process("f2")
    await one.open(1)
    await two.open(2)
    harness.assign(1)
    await one.publish("k1", key="k", epoch=1)
    late = harness.process("f3")
    late.deaf = True
    harness.assign(2)
    await two.publish("k2", key="k", epoch=2, chain=2)
    await one.crash()
    await late.open(1)
    error = await failing(late.publish("k3", key="k", epoch=1))
    assert error.code is Code.UNAVAILABLE
    assert "epoch" in error.message


@simulated
async def test_a_log_that_has_opened_nearly_all_its_sources_is_followed_by_the_next_one(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    chain = process.host.chains[1]
    await process.publish("a")
    chain.forwarder.sources._next_index = SOURCE_INDEX_END - 1
    for number in (77, 78):
        harness.commit(CatalogChange.put(Topic(number, f"projects/p/topics/t{number}")))
    await process.publish("last", topic="projects/p/topics/t77")
    error = await failing(process.publish("one too many", topic="projects/p/topics/t78"))
    assert isinstance(error, Unavailable)
    chain.upkeep.last_checkpoint()
    await process.publish("b")
    async with asyncio.timeout(100):
        while not process.ended:
            await asyncio.sleep(1)
    assert not process.host.chains, "whoever wants to publish learns of the next owner"
    await process.host.close(1)
    await process.open()
    await process.publish("c")
    await process.publish("one more", topic="projects/p/topics/t78")
    subscriber = await Subscriber(process, 11).attached()
    assert await subscriber.read_all() == ["a", "b", "c"]
