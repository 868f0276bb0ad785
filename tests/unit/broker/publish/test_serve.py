"""Chains/Serve as subscribe forwarders meet it: sources, data, grants that move, acknowledgements that count or not."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.model.errors import Code, Unavailable
from syncpoint.base.model.times import BEAT_S, GRANT_S, HOLD_S
from syncpoint.catalog.metadata.records import CatalogChange, Subscription
from syncpoint.wire.protobuf.messages import internal
from tests.kit.chain import SUB, SUB_NUMBER, TOPIC, TOPIC_NUMBER, ChainHarness, simulated
from tests.kit.chain_subscriber import Subscriber


@simulated
async def test_every_chain_answers_an_attach_and_names_what_comes_later(harness: ChainHarness) -> None:
    process = await harness.opened("f1", 1)
    await process.open(2)
    await harness.subscribe()
    await process.publish("a", chain=1)
    subscriber = await Subscriber(process, 11).attached()
    answers = [what for kind, what in subscriber.received if kind == "sources"]
    assert sorted((one.chain, len(one.sources), one.all) for one in answers) == [(1, 1, True), (2, 0, True)]
    await process.publish("b", chain=2)
    await asyncio.sleep(0.1)
    assert sorted(source.chain for source in subscriber.sources.values()) == [1, 2]
    assert await subscriber.read_all() == ["a", "b"]
    await process.open(3)
    await asyncio.sleep(0.1)
    assert subscriber.owned == [1, 2, 3]
    assert subscriber.received[-1][0] == "owned"
    assert (subscriber.received[-2][1].chain, subscriber.received[-2][1].all) == (3, True)


@simulated
async def test_data_is_reported_once_to_whoever_waits_for_it(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("a")
    subscriber = await Subscriber(process, 11).attached()
    (source,) = subscriber.granted
    assert await subscriber.read(source) == ["a"]  # the last answer was empty
    subscriber.data.clear()
    for data in "bcd":
        await process.publish(data)
    await asyncio.sleep(0.1)
    assert subscriber.data == [source]
    assert await subscriber.read(source, 1) == ["b", "c", "d"]


@simulated
async def test_a_source_has_its_end_only_when_what_was_under_way_can_be_read(harness: ChainHarness) -> None:
    """The keys move while a message waits for the disks: who reads in the meantime must not be through
    with the source.
    """
    harness.assign(1)
    process = await harness.subscribed()
    await process.publish("a")
    subscriber = await Subscriber(process, 11).attached()
    (source,) = subscriber.granted
    process.paused = True
    publishing = asyncio.get_running_loop().create_task(process.publish("b"))
    await asyncio.sleep(0.1)
    harness.assign(1)
    await asyncio.sleep(0.1)
    assert not subscriber.sources[source].sealed
    assert await subscriber.read(source) == ["a"]
    process.paused = False
    await publishing
    await asyncio.sleep(0.1)
    assert subscriber.sources[source].sealed
    assert await subscriber.read(source, 1) == ["b"]


@simulated
async def test_two_forwarders_share_and_one_takes_over_what_the_other_leaves(harness: ChainHarness) -> None:
    process = harness.process()
    for chain in (1, 2, 3, 4):
        await process.open(chain)
        await process.publish(str(chain), chain=chain)
    await harness.subscribe()
    for chain in (1, 2, 3, 4):
        await process.publish(str(chain), chain=chain)
    one, other = await Subscriber(process, 11).start(), await Subscriber(process, 12).start()
    await one.attach()
    await other.attach()
    assert (len(one.granted), len(other.granted)) == (2, 2)
    assert not set(one.granted) & set(other.granted)
    stranger = next(iter(other.granted))
    refused = await one.fetch(stranger, grant=other.granted[stranger])
    assert refused.code == Code.FAILED_PRECONDITION
    one.lose()
    await asyncio.sleep(2)
    assert len(other.granted) == 4
    assert sorted(await other.read_all()) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("lost", [False, True])
@simulated
async def test_nobody_reads_on_behind_acknowledgements_of_others_that_may_be_lost(
    harness: ChainHarness, *, lost: bool
) -> None:
    first = await harness.subscribed()
    await first.publish("a", "b", "c")
    one, other = await Subscriber(first, 11).start(), await Subscriber(first, 12).start()
    await one.attach()
    await other.attach()
    holder, heir = (one, other) if one.granted else (other, one)
    ((source, _),) = holder.granted.items()
    assert await holder.read_all() == ["a", "b", "c"]
    first.paused = True
    acknowledging = asyncio.get_running_loop().create_task(holder.ack(source, (0, 2)))
    await asyncio.sleep(0.1)
    await holder.send_message(detach=internal.Detach(subscription=SUB_NUMBER))
    await asyncio.sleep(0.1)
    assert heir.sources[source].begin == 0, "where it begins to read"
    reading = asyncio.get_running_loop().create_task(heir.fetch(source))
    await asyncio.sleep(1)
    assert not acknowledging.done()
    assert not reading.done()
    if not lost:
        first.paused = False
        assert not (await acknowledging).error
        assert [batch.begin for batch in (await reading).batches] == [2]
        assert await heir.read(source) == ["c"]
        return
    grant = heir.granted[source]
    reading.cancel()
    acknowledging.cancel()
    second = await harness.succeeded(first)
    again = await Subscriber(second, heir.incarnation).attached(**{str(source): grant})
    await asyncio.sleep(GRANT_S + 1)
    assert await again.read_all() == ["a", "b", "c"]


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("options", [{"exactly_once": True}, {"ordered": True}])
@simulated
async def test_nobody_learns_of_a_strict_grant_that_a_later_owner_may_not_find(
    harness: ChainHarness, *, lost: bool, options: dict[str, bool]
) -> None:
    """It would deliver what an acknowledgement under the grant before it is under way for, which counts there."""
    first = await harness.subscribed(**options)
    await first.publish("a", "b", "c")
    holder = await Subscriber(first, 11).attached()
    ((source, grant),) = holder.granted.items()
    heir = await Subscriber(first, 12).attached()
    first.paused = True
    acknowledging = asyncio.get_running_loop().create_task(holder.ack(source, (0, 2)))
    await asyncio.sleep(0.1)
    await holder.send_message(detach=internal.Detach(subscription=SUB_NUMBER))
    await asyncio.sleep(1)
    await heir.attach()  # to be named all there is changes nothing
    assert not heir.granted
    if not lost:
        first.paused = False
        assert not (await acknowledging).error
        await asyncio.sleep(0.1)
        assert heir.sources[source].begin == 2
        assert await heir.read_all() == ["c"]
        return
    acknowledging.cancel()
    second = await harness.succeeded(first)
    late = await Subscriber(second, 12).attached()
    again = await Subscriber(second, 11).attached(**{str(source): grant})
    assert not (await again.ack(source, (0, 2))).error
    again.lose()
    await asyncio.sleep(GRANT_S + 1)
    assert await late.read_all() == ["c"]


@simulated
async def test_acknowledgements_of_a_log_that_has_failed_stay_what_nobody_may_rely_on(harness: ChainHarness) -> None:
    first = await harness.subscribed()
    await first.publish("a", "b", "c")
    one = await Subscriber(first, 11).attached()
    ((source, _),) = one.granted.items()
    assert await one.read_all() == ["a", "b", "c"]
    first.paused = True
    acknowledging = asyncio.get_running_loop().create_task(one.ack(source, (0, 2)))
    await asyncio.sleep(0.1)
    forwarder = first.host.chains[1].forwarder
    forwarder.commit.give_up(
        Unavailable("the disks are gone")
    )  # a fetch that is being read from a disk is answered later
    fresh = forwarder.commit.acks.unpersisted(SUB_NUMBER, source)
    assert fresh is not None
    assert fresh.count(0, 3) == 2
    acknowledging.cancel()


@simulated
async def test_a_source_is_done_only_once_its_acknowledgements_are_persisted(harness: ChainHarness) -> None:
    """A later owner that does not find them would have nobody who reads what they are about."""
    harness.assign(1)
    first = await harness.subscribed()
    await first.publish("a")
    one = await Subscriber(first, 11).attached()
    (source,) = one.granted
    assert await one.read_all() == ["a"]
    harness.assign(1)
    await asyncio.sleep(0.1)
    assert one.sources[source].sealed
    grants = first.host.chains[1].holders.grants
    first.paused = True
    acknowledging = asyncio.get_running_loop().create_task(one.ack(source, (0, 1)))
    await asyncio.sleep(2)
    other = await Subscriber(first, 12).attached()
    assert source in other.sources
    assert source in grants.open_sources(SUB_NUMBER)
    first.paused = False
    await acknowledging
    await asyncio.sleep(2)
    assert source not in grants.open_sources(SUB_NUMBER)
    assert source not in (await Subscriber(first, 13).attached()).sources


@simulated
async def test_whoever_reads_on_does_not_wait_for_its_own_acknowledgements(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("a")
    await process.publish("b")
    subscriber = await Subscriber(process, 11).attached()
    (source,) = subscriber.granted
    process.paused = True
    acknowledging = asyncio.get_running_loop().create_task(subscriber.ack(source, (0, 1)))
    await asyncio.sleep(0.1)
    assert [batch.begin for batch in (await subscriber.fetch(source, 1)).batches] == [1]
    assert not acknowledging.done()
    process.paused = False
    await acknowledging


@simulated
async def test_an_exactly_once_acknowledgement_counts_only_under_the_current_grant(harness: ChainHarness) -> None:
    process = await harness.subscribed(exactly_once=True)
    await process.publish("a", "b")
    one, other = await Subscriber(process, 11).start(), await Subscriber(process, 12).start()
    await one.attach()
    await other.attach()
    (source,) = one.granted
    assert other.granted == {}
    grant = one.granted[source]
    assert not (await one.ack(source, (0, 1))).error
    one.releasing = False
    await one.send_message(wants=_wants(False))
    await asyncio.sleep(1)
    assert one.revoked == [(source, grant)]
    assert other.granted == {}
    assert not (await one.ack(source, (1, 1), grant=grant)).error  # it has not let go yet
    await asyncio.sleep(5)
    assert list(other.granted) == [source]
    late = await one.ack(source, (1, 1), grant=grant)
    assert late.code == Code.FAILED_PRECONDITION
    assert process.host.chains[1].dispatcher.refused_acks == 1
    assert await other.read_all() == []


@simulated
async def test_an_adopter_lets_the_holder_go_on_and_others_wait(harness: ChainHarness) -> None:
    first = await harness.subscribed(exactly_once=True)
    await first.publish("a", "b")
    holder = await Subscriber(first, 11).attached()
    (source,) = holder.granted
    grant = holder.granted[source]
    await holder.ack(source, (0, 1))
    second = await harness.succeeded(first)
    other = await Subscriber(second, 12).attached()
    await asyncio.sleep(3)
    assert other.granted == {}
    again = await Subscriber(second, 11).attached(**{str(source): grant})
    assert again.granted[source] == grant
    assert not (await again.ack(source, (1, 1))).error
    again.lose()
    await asyncio.sleep(7)
    await second.publish("c")
    await asyncio.sleep(0.1)
    assert await other.read_all() == ["c"]


@pytest.mark.parametrize("options", [{"exactly_once": True}, {"ordered": True}, {}])
@simulated
async def test_an_owner_whose_disks_do_not_answer_says_so_and_hands_out_nothing_strict(
    harness: ChainHarness, *, options: dict[str, bool]
) -> None:
    process = await harness.subscribed(**options)
    await process.publish("a")
    subscriber = await Subscriber(process, 11).attached()
    (source,) = subscriber.granted
    await asyncio.sleep(3)
    assert max(age for _, age in _ages(subscriber)) < 1000 * (HOLD_S - BEAT_S)
    assert not (await subscriber.fetch(source)).error
    process.paused = True
    await asyncio.sleep(GRANT_S + 2)
    assert _ages(subscriber)[-1][1] > 1000 * GRANT_S
    answer = await subscriber.fetch(source)
    assert answer.code == (Code.UNAVAILABLE if options else 0)
    process.paused = False
    await asyncio.sleep(3)
    assert _ages(subscriber)[-1][1] < 1000 * HOLD_S
    assert not (await subscriber.fetch(source)).error


def _ages(subscriber: Subscriber) -> list[tuple[int, int]]:
    beats = [what for kind, what in subscriber.received if kind == "heartbeat"]
    return [(one.chain, one.age_ms) for beat in beats for one in beat.chains]


@simulated
async def test_an_adopter_of_an_ordered_subscription_waits_for_its_holder_too(harness: ChainHarness) -> None:
    first = await harness.subscribed(ordered=True)
    await first.publish("a", "b")
    holder = await Subscriber(first, 11).attached()
    (source,) = holder.granted
    second = await harness.succeeded(first)
    other = await Subscriber(second, 12).attached()
    await asyncio.sleep(GRANT_S - 1)
    assert other.granted == {}, "it may still deliver what it has read"
    await asyncio.sleep(2)
    assert list(other.granted) == [source]


@pytest.mark.parametrize("options", [{"exactly_once": True}, {"ordered": True}])
@simulated
async def test_an_adopter_waits_for_a_holder_also_when_everybody_else_has_gone(
    harness: ChainHarness, *, options: dict[str, bool]
) -> None:
    first = await harness.subscribed(**options)
    await first.publish("a")
    holder = await Subscriber(first, 11).attached()
    ((source, grant),) = holder.granted.items()
    second = await harness.succeeded(first)
    passing = await Subscriber(second, 12).attached()
    await passing.send_message(detach=internal.Detach(subscription=SUB_NUMBER))
    other = await Subscriber(second, 13).attached()
    await asyncio.sleep(1)
    assert other.granted == {}, "it may still deliver what it has read"
    again = await Subscriber(second, 11).attached(**{str(source): grant})
    assert again.granted == {source: grant}
    again.lose()
    await asyncio.sleep(GRANT_S + 1)
    assert list(other.granted) == [source]


@simulated
async def test_a_restarted_forwarder_leaves_its_grants_at_once(harness: ChainHarness) -> None:
    process = await harness.subscribed(exactly_once=True)
    await process.publish("a")
    await Subscriber(process, 11, "s").attached()
    after = await Subscriber(process, 12, "s").attached()
    assert await after.read_all() == ["a"]


@simulated
async def test_a_lost_stream_comes_back_to_its_grants(harness: ChainHarness) -> None:
    process = await harness.subscribed(exactly_once=True)
    await process.publish("a")
    before = await Subscriber(process, 11).attached()
    await before.read_all()
    before.lose()
    await process.publish("b")
    after = await Subscriber(process, 11).attached()
    assert after.granted == before.granted
    assert after.data  # what was reported on the lost stream is notified again
    assert await after.read_all() == ["a", "b"]
    after.beating = False
    await asyncio.sleep(40)
    late = await Subscriber(process, 12).attached()
    assert await late.read_all() == ["a", "b"]


@simulated
async def test_a_subscription_may_be_asked_for_before_it_is_known_here(harness: ChainHarness) -> None:
    process = await harness.opened()
    await process.publish("a")
    process.shared.held = True
    revision = harness.commit(CatalogChange.put(Subscription(SUB_NUMBER, SUB, TOPIC_NUMBER, TOPIC)))
    subscriber = await Subscriber(process, 11).attached()
    assert subscriber.granted == {}
    process.shared.held = False
    process.shared.catch_up()
    await harness.confirm(revision)
    await process.publish("b")
    await asyncio.sleep(0.1)
    assert await subscriber.read_all() == ["b"]


@simulated
async def test_whoever_serves_a_deleted_subscription_is_reported(harness: ChainHarness) -> None:
    process = await harness.opened()
    record = await harness.subscribe(exactly_once=True)
    await process.publish("a")
    subscriber = await Subscriber(process, 11).attached()
    harness.commit(CatalogChange.delete(record))
    await asyncio.sleep(0.1)
    assert subscriber.received[-1][0] == "removed"
    chain = process.host.chains[1]
    assert chain.forwarder.ledgers == {}
    assert chain.forwarder.memory.grants == {}


@simulated
async def test_a_stream_begins_with_hello_and_says_it_once(harness: ChainHarness) -> None:
    process = await harness.opened()
    silent = Subscriber(process, 11)
    await silent.attach()
    refused = False
    try:
        await silent.stream.receive()
    except Exception as error:
        refused = getattr(error, "code", None) is Code.FAILED_PRECONDITION
    assert refused
    polite = await Subscriber(process, 11).start()
    await asyncio.sleep(3)
    assert [kind for kind, _ in polite.received].count("heartbeat") >= 2


@simulated
async def test_becoming_exactly_once_and_back(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("a", "b", "c")
    subscriber = await Subscriber(process, 11).attached()
    (source,) = subscriber.granted
    assert not (await subscriber.ack(source, (0, 1), grant=1)).error
    harness.update(exactly_once=True)
    assert (await subscriber.ack(source, (1, 1), grant=1)).code == Code.FAILED_PRECONDITION
    assert not (await subscriber.ack(source, (1, 1))).error
    assert len(process.host.chains[1].forwarder.memory.grants) == 1
    harness.update(exactly_once=False)
    assert not process.host.chains[1].forwarder.memory.grants
    assert not (await subscriber.ack(source, (2, 1), grant=1)).error
    assert await subscriber.read_all() == []


def _wants(wanted: bool) -> object:
    from syncpoint.wire.protobuf.messages import internal

    return internal.Wants(subscription=SUB_NUMBER, wanted=wanted)


@simulated
async def test_whoever_serves_an_ordered_subscription_learns_of_all_sources_once_an_epoch_has_ended(
    harness: ChainHarness,
) -> None:
    harness.assign(1)
    process = await harness.opened("f1", 1)
    await harness.subscribe(ordered=True)
    holder = await Subscriber(process, 11).attached()
    other = await Subscriber(process, 12).attached()
    await process.publish("a", key="k", epoch=1)
    await asyncio.sleep(0.1)
    (source,) = holder.granted
    assert other.sources == {}
    process.deaf = True
    harness.assign(2)
    await other.attach()
    assert [what.epoch for kind, what in other.received if kind == "sources" and what.all] == [1, 1]
    process.deaf = False
    process.on_assignments()
    await asyncio.sleep(0.1)
    kind, last = other.received[-1]
    assert (kind, last.all, last.epoch) == ("sources", True, 2)
    assert [(one.number, one.grant, one.sealed, one.done) for one in last.sources] == [(source, 0, True, False)]
    await holder.ack(source, (0, 1))
    await other.attach()
    assert other.sources == {}
