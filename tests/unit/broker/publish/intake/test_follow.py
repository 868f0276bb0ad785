"""What a chain does because the catalog says so stands after every opening: starts, seeks, snapshots, deletion."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.model.errors import Code, FailedPrecondition, SyncpointError
from syncpoint.base.model.times import GRANT_S
from syncpoint.catalog.metadata.records import CREATING, CatalogChange, SeekTarget, Snapshot
from syncpoint.wire.protobuf.messages import internal
from tests.kit.chain import SUB_NUMBER, TOPIC, TOPIC_NUMBER, ChainHarness, Process, simulated
from tests.kit.chain_subscriber import Subscriber

pytestmark = pytest.mark.shows("deletion")

DAY = 86_400


async def unacknowledged(process: Process, incarnation: int = 11, subscription: int = SUB_NUMBER) -> list[str]:
    subscriber = await Subscriber(process, incarnation).attached(subscription)
    return await subscriber.read_all(subscription)


async def acknowledge(chain: Any, source: int, *runs: tuple[int, int], subscription: int = SUB_NUMBER) -> None:
    """Persisted on return. Raises what it is refused with."""
    done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    generation = chain.forwarder.server.generation(subscription)
    chain.forwarder.server.acknowledge(
        subscription, generation, source, encode_runs(runs), done.set_result, urgent=True
    )
    if (error := await done) is not None:
        raise error


async def hand_over(harness: ChainHarness, first: Process, how: str = "crash") -> Process:
    """The next owner, not opened yet."""
    if how == "close":
        await first.host.close(1)
    elif how == "checkpoint":
        first.host.chains[1].upkeep.last_checkpoint()
        await first.host.chains[1].confirm()
    await first.crash()
    return harness.process(first.name + "+")


def snapshot_of(subscription: int = SUB_NUMBER, number: int = 50, generation: int | None = None) -> Snapshot:
    name = f"projects/p/snapshots/n{number}"
    return Snapshot(
        number, name, TOPIC_NUMBER, TOPIC, expire_ns=1 << 62, status=CREATING, subscription=subscription,
        generation=generation,
    )  # fmt: skip


async def until_forgotten(chain: Any) -> None:
    for _ in range(500):
        await asyncio.sleep(0.02)
        if not chain.forwarder.sources.by_number:
            return
    raise AssertionError("the chain still has sources")


@pytest.mark.parametrize("how", ["close", "checkpoint", "crash"])
@pytest.mark.parametrize("to", ["time", "snapshot"])
@simulated
async def test_a_seek_to_before_a_subscriptions_start_stands_after_the_next_opening(
    harness: ChainHarness, *, to: str, how: str
) -> None:
    topic = harness.master.topic(TOPIC)
    assert topic is not None
    harness.commit(CatalogChange.put(replace(topic, retention_s=DAY)))
    first = await harness.subscribed(77, "projects/p/subscriptions/older")
    await first.publish("a", "b", "c")
    await harness.confirm(harness.commit(CatalogChange.put(snapshot_of(77))))
    await harness.subscribe()  # its sync point is behind c
    await first.publish("d")
    target = SeekTarget(time_ns=0) if to == "time" else SeekTarget(snapshot=50)
    await harness.confirm(harness.update(generation=1, target=target))
    assert await unacknowledged(first) == ["a", "b", "c", "d"]
    second = await hand_over(harness, first, how)
    await second.open()
    assert await unacknowledged(second, 12) == ["a", "b", "c", "d"]


@simulated
async def test_a_seek_while_nothing_of_the_topic_is_there_is_followed(harness: ChainHarness) -> None:
    first = await harness.subscribed()
    await first.publish("a", "b")
    second = await hand_over(harness, first, "close")
    chain = await second.open()
    (source,) = chain.forwarder.sources.by_number
    await acknowledge(chain, source, (0, 2))
    await until_forgotten(chain)
    assert SUB_NUMBER in chain.forwarder.ledgers  # until the chain is tidied
    await harness.confirm(harness.update(generation=1, target=SeekTarget(time_ns=0)))
    await second.publish("c", "d")
    assert chain.forwarder.server.generation(SUB_NUMBER) == 1
    assert await unacknowledged(second) == ["c", "d"]
    third = await hand_over(harness, second)
    assert (await third.open()).forwarder.server.generation(SUB_NUMBER) == 1
    assert await unacknowledged(third, 12) == ["c", "d"]


@simulated
async def test_a_subscription_made_and_reset_while_the_chain_has_no_owner(harness: ChainHarness) -> None:
    topic = harness.master.topic(TOPIC)
    assert topic is not None
    harness.commit(CatalogChange.put(replace(topic, retention_s=DAY)))
    first = await harness.opened("f1")
    await first.publish("a", "b")
    second = await hand_over(harness, first)
    harness.registered.clear()  # nobody waits for the chain
    await harness.subscribe()
    harness.update(generation=1, target=SeekTarget(time_ns=0))
    await second.open()
    assert await unacknowledged(second) == ["a", "b"]


@pytest.mark.parametrize(("later", "left"), [(0, ["a"]), (1, [])])
@simulated
async def test_where_a_subscription_begins(harness: ChainHarness, *, later: int, left: list[str]) -> None:
    process = harness.process("f1")
    chain, record = await process.open(), await harness.subscribe()
    await process.publish("a")
    chain.forwarder.ledgers.drop(SUB_NUMBER)  # as if the log had nothing of it
    (source,) = chain.forwarder.sources.by_number.values()
    chain.follower._begin(replace(record, created_revision=source.revision + later))
    assert await unacknowledged(process) == left


@simulated
async def test_an_acknowledgement_of_a_seek_that_was_not_followed_is_not_confirmed(harness: ChainHarness) -> None:
    process = harness.process("f1")
    chain = await process.open()
    await harness.subscribe()
    await process.publish("a")
    (source,) = chain.forwarder.sources.by_number
    process.shared.held = True  # its copy of the catalog is late
    harness.update(generation=1, target=SeekTarget(time_ns=0))
    reported: list[Any] = []
    chain.forwarder.server.acknowledge(SUB_NUMBER, 1, source, encode_runs([(0, 1)]), reported.append, urgent=True)
    assert isinstance(reported[0], SyncpointError)
    assert reported[0].code is Code.UNAVAILABLE
    process.shared.held = False
    process.shared.catch_up()
    chain.forwarder.server.acknowledge(SUB_NUMBER, 0, source, encode_runs([(0, 1)]), reported.append, urgent=True)
    assert isinstance(reported[1], FailedPrecondition)  # of before the seek, which may yet be lost with this log
    assert await unacknowledged(process) == ["a"]
    await acknowledge(chain, source, (0, 1))
    assert await unacknowledged(process, 12) == []


@pytest.mark.parametrize("generation", [0, 1])
@simulated
async def test_a_snapshot_is_of_the_seek_it_was_taken_after(harness: ChainHarness, *, generation: int) -> None:
    """Both while the chain has no owner: the seek goes to the end, so it decides what the snapshot holds."""
    first = await harness.subscribed()
    await harness.subscribe(77, "projects/p/subscriptions/other")
    await first.publish("a", "b")
    second = await hand_over(harness, first)
    harness.update(generation=1, target=SeekTarget(time_ns=1 << 62))
    harness.commit(CatalogChange.put(snapshot_of(generation=generation)))
    await second.open()
    harness.update(77, generation=1, target=SeekTarget(snapshot=50))
    left = await unacknowledged(second, subscription=77)
    assert left == (["a", "b"] if generation == 0 else [])


@simulated
async def test_a_snapshot_of_a_subscription_that_is_gone_when_the_chain_opens(harness: ChainHarness) -> None:
    first = harness.process("f1")
    chain = await first.open()
    record = await harness.subscribe()
    await harness.subscribe(77, "projects/p/subscriptions/other")
    await first.publish("a", "b", "c")
    (source,) = chain.forwarder.sources.by_number
    await acknowledge(chain, source, (1, 1))
    second = await hand_over(harness, first)
    harness.commit(CatalogChange.put(snapshot_of()))
    harness.commit(CatalogChange.delete(record))
    await second.open()
    harness.update(77, generation=1, target=SeekTarget(snapshot=50))
    assert await unacknowledged(second, subscription=77) == ["a", "c"]


@simulated
async def test_what_can_not_be_followed_ends_the_chain(harness: ChainHarness) -> None:
    process = harness.process("f1")
    chain = await process.open()
    await harness.subscribe()
    await process.publish("a", "b")

    def broken(source: int, time_ns: int) -> int:
        raise IndexError("a page of the index that nobody expected")

    chain.store.offset_at = broken
    harness.update(generation=1, target=SeekTarget(time_ns=5))
    assert [number for number, _ in process.ended] == [1]
    await process.host.close(1)
    second = harness.process("f2")
    await process.crash()
    await second.open()
    assert second.host.chains[1].forwarder.server.generation(SUB_NUMBER) == 1


@pytest.mark.parametrize("checkpoint", [False, True])
@simulated
async def test_what_was_forgotten_and_is_still_stored_does_not_come_back(
    harness: ChainHarness, *, checkpoint: bool
) -> None:
    first = await harness.subscribed()
    await first.publish(*["x" * 900] * 100, batch=5)
    await asyncio.sleep(1)
    second = await hand_over(harness, first, "close")
    chain = await second.open()
    await asyncio.sleep(1)
    second.maintainers_rest = True
    (source,) = chain.forwarder.sources.by_number
    await acknowledge(chain, source, (0, 100))
    await until_forgotten(chain)
    if checkpoint:
        chain.upkeep.last_checkpoint()
        await chain.confirm()
    third = await hand_over(harness, second)  # before the maintainers had their turn
    chain = await third.open()
    assert source in set(chain.store.sources())
    assert await unacknowledged(third) == []
    for _ in range(100):
        await asyncio.sleep(0.5)
        if not set(chain.store.sources()):
            break
    assert not set(chain.store.sources())


@simulated
async def test_a_source_that_nobody_can_explain_is_kept(harness: ChainHarness) -> None:
    """Whatever made it unknown, no checkpoint of a later owner says that it was deleted."""
    first = harness.process("f1")
    chain = await first.open()
    await harness.subscribe()
    await first.publish(*["x" * 900] * 100)
    (source,) = chain.forwarder.sources.by_number.values()
    await asyncio.sleep(1)
    del chain.forwarder.sources.by_number[source.number]
    chain.forwarder.sources._by_topic.clear()
    chain.upkeep.last_checkpoint = lambda: None  # what is lost is not explained away by its owner
    await first.host.close(1)
    await first.crash()
    for name in ("f2", "f3", "f4"):
        process = harness.process(name)
        process.shared.catch_up()
        chain = await process.open()
        if name == "f2":
            chain.forwarder.sources.remove(chain.forwarder.sources.by_number[source.number])
            chain.forwarder.sources.unknown |= {source.number}
        assert source.number in chain.forwarder.sources.unknown
        await asyncio.sleep(40)
        assert set(chain.store.sources()) == {source.number}
        await process.host.close(1)
        await process.crash()


@simulated
async def test_whoever_did_not_learn_of_its_acknowledgement_learns_of_it_from_a_later_owner_that_has_nothing_left(
    harness: ChainHarness,
) -> None:
    first = await harness.subscribed(exactly_once=True)
    await first.publish("a", "b")
    second = await hand_over(harness, first)
    chain = await second.open()
    holder = await Subscriber(second, 11).attached()
    ((source, grant),) = holder.granted.items()
    assert not (await holder.ack(source, (0, 2))).error  # it does not arrive, say
    await until_forgotten(chain)
    third = await hand_over(harness, second)
    await third.open()
    again, other = await Subscriber(third, 11).start(), await Subscriber(third, 12).start()
    await again.attach(**{str(source): grant})
    assert not (await again.ack(source, (0, 2), grant=grant)).error
    assert (await other.ack(source, (0, 2), grant=grant - 1)).code == Code.FAILED_PRECONDITION
    assert (await again.ack(source + 1, (0, 2), grant=grant)).code == Code.UNAVAILABLE, "nobody knows of this one"


@simulated
async def test_whoever_reads_a_source_of_which_nothing_is_left_is_notified_that_nothing_is_there(
    harness: ChainHarness,
) -> None:
    first = await harness.subscribed(ordered=True)
    await first.publish("a", "b")
    second = await hand_over(harness, first)
    chain = await second.open()
    holder = await Subscriber(second, 11).attached()
    ((source, _),) = holder.granted.items()
    await acknowledge(chain, source, (0, 2))  # by somebody else, who had it before
    await until_forgotten(chain)
    answer = await holder.fetch(source)
    assert (answer.error, list(answer.batches)) == ("", []), "or its key would wait for these for ever"
    assert (await holder.fetch(source + 1)).code == Code.UNAVAILABLE, "nobody knows of this one"


@simulated
async def test_an_acknowledgement_of_before_a_seek_is_refused_while_the_seek_may_be_lost(harness: ChainHarness) -> None:
    first = await harness.subscribed(exactly_once=True)
    await first.publish("a")
    holder = await Subscriber(first, 11).attached()
    ((source, grant),) = holder.granted.items()
    first.paused = True
    harness.update(generation=1, target=SeekTarget(time_ns=5))
    assert (await holder.ack(source, (0, 1), grant=grant)).code == Code.FAILED_PRECONDITION
    second = await hand_over(harness, first)
    await second.open()
    await asyncio.sleep(GRANT_S + 1)
    assert await unacknowledged(second, 12) == ["a"]


@simulated
async def test_an_acknowledgement_of_a_deleted_subscription_is_refused(harness: ChainHarness) -> None:
    process = harness.process("f1")
    chain = await process.open()
    record = await harness.subscribe(exactly_once=True)
    await process.publish("a")
    (source,) = chain.forwarder.sources.by_number
    harness.commit(CatalogChange.delete(record))
    reported: list[Any] = []
    chain.forwarder.server.acknowledge(SUB_NUMBER, 0, source, encode_runs([(0, 1)]), reported.append, urgent=True)
    assert isinstance(reported[0], FailedPrecondition)


@simulated
async def test_a_batch_whose_messages_were_deleted_is_not_stored_again(harness: ChainHarness) -> None:
    """Two failovers: its sender never received its ids, others have had and acknowledged its messages."""
    first = await harness.subscribed()
    ids = await first.publish("a", "b", batch=901)
    second = await hand_over(harness, first)
    chain = await second.open()
    (source,) = chain.forwarder.sources.by_number
    await acknowledge(chain, source, (0, 2))
    await until_forgotten(chain)
    third = await hand_over(harness, second)
    await third.open()
    assert await third.publish("a", "b", batch=901, resent=True) == ids
    fourth = await hand_over(harness, third, "close")
    await fourth.open()
    assert await fourth.publish("a", "b", batch=901, resent=True) == ids
    assert await unacknowledged(fourth) == []


@simulated
async def test_what_a_seek_came_to_is_served_once_it_is_persisted(harness: ChainHarness) -> None:
    """It stands on acknowledgements that are as little persisted: the next owner may come to other sets, and who had
    read on by the first ones would pass a message over.
    """
    first = harness.process("f1")
    chain = await first.open()
    await harness.subscribe()
    await first.publish("a", "b")
    subscriber = await Subscriber(first, 11).attached()
    (source,) = subscriber.granted
    first.paused = True
    acknowledging = asyncio.get_running_loop().create_task(subscriber.ack(source, (0, 1)))
    await asyncio.sleep(0.1)
    harness.update(generation=1, target=SeekTarget(time_ns=5))  # keeps what is acknowledged, the topic keeps nothing
    await asyncio.sleep(0.1)
    other = await Subscriber(first, 12).start()
    for one in (subscriber, other):
        await one.attach()
        one.generation = 1
        assert (await one.fetch(source, grant=subscriber.granted[source])).batches == []
        one.generation = 0
    chain.forwarder.seal_source(chain.forwarder.sources.by_number[source])
    chain.holders.sweep()
    await asyncio.sleep(1)
    assert [what for one in (subscriber, other) for _, what in one.received if getattr(what, "generation", 0)] == []
    assert not acknowledging.done()
    second = harness.process("f2")
    await first.crash()  # with what it had not persisted
    acknowledging.cancel()
    await second.open()
    assert await unacknowledged(second, 13) == ["a", "b"]


@simulated
async def test_a_source_that_is_granted_while_a_seek_is_on_its_way_is_named_behind_it(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("a", "b")
    one, other = await Subscriber(process, 11).attached(), await Subscriber(process, 12).attached()
    holder, heir = (one, other) if one.granted else (other, one)
    (source,) = holder.granted
    await holder.ack(source, (0, 1))
    process.paused = True
    harness.update(generation=1, target=SeekTarget(time_ns=5))
    await asyncio.sleep(0.1)
    await holder.send_message(detach=internal.Detach(subscription=SUB_NUMBER))
    await asyncio.sleep(1)
    assert not heir.granted
    assert heir.generation == 0
    process.paused = False
    await asyncio.sleep(0.5)
    await heir.attach()
    assert heir.generation == 1
    assert await heir.read_all() == ["b"]


@simulated
async def test_who_waits_for_a_seek_learns_of_it_when_it_is_persisted(harness: ChainHarness) -> None:
    process = harness.process("f1")
    chain = await process.open()
    await harness.subscribe()
    await process.publish("a", "b")
    (source,) = chain.forwarder.sources.by_number
    await acknowledge(chain, source, (0, 1))
    early = await Subscriber(process, 11).attached()
    process.paused = True
    harness.update(generation=1, target=SeekTarget(time_ns=5))
    late = await Subscriber(process, 12).attached()
    harness.update(generation=2, target=SeekTarget(time_ns=6))
    await asyncio.sleep(0.1)
    process.paused = False
    await asyncio.sleep(0.5)
    for one in (early, late):
        assert [what.generation for kind, what in one.received if kind == "reset"] == [2]
        await one.attach()
    reader = early if early.granted else late
    assert await reader.read_all() == ["b"]


@simulated
async def test_a_source_forgotten_before_a_seek_stays_so_after_a_crash(harness: ChainHarness) -> None:
    first = await harness.subscribed()
    await first.publish(*["x" * 900] * 100)
    await asyncio.sleep(1)
    second = await hand_over(harness, first, "close")
    chain = await second.open()
    await asyncio.sleep(1)
    second.maintainers_rest = True
    (source,) = chain.forwarder.sources.by_number
    await acknowledge(chain, source, (0, 100))
    await second.publish("y")
    for _ in range(500):
        await asyncio.sleep(0.02)
        if source not in chain.forwarder.sources.by_number:
            break
    chain.upkeep.advance_checkpoint = lambda now: None  # facts alone say what was forgotten
    await harness.confirm(harness.update(generation=1, target=SeekTarget(time_ns=0)))  # leaves it out
    third = await hand_over(harness, second)
    chain = await third.open()
    assert source in set(chain.store.sources())
    assert source not in chain.forwarder.sources.by_number
    assert await unacknowledged(third) == ["y"]


@simulated
async def test_what_is_about_to_be_deleted_stays_for_a_seek_to_what_is_kept_now(harness: ChainHarness) -> None:
    first = await harness.subscribed()
    await first.publish(*["x" * 900] * 100)
    await asyncio.sleep(1)
    second = await hand_over(harness, first, "close")
    chain = await second.open()
    await asyncio.sleep(1)
    (source,) = chain.forwarder.sources.by_number
    second.paused = True  # what is judged now is deleted once these acknowledgements are persisted
    acknowledging = asyncio.get_running_loop().create_task(acknowledge(chain, source, (0, 100)))
    await asyncio.sleep(1)
    assert chain.store._deletion.trim._dying
    topic = harness.master.topic(TOPIC)
    assert topic is not None
    harness.commit(CatalogChange.put(replace(topic, retention_s=DAY)))
    harness.update(generation=1, target=SeekTarget(time_ns=0))
    second.paused = False
    await acknowledging
    await asyncio.sleep(3)
    assert len(await unacknowledged(second)) == 100


@simulated
async def test_a_snapshots_messages_are_there_when_it_is_reset_however_short_the_retention_is(
    harness: ChainHarness,
) -> None:
    first = harness.process("f1")
    chain = await first.open()
    await harness.subscribe(retention_s=600)
    await first.publish("a", "b")
    (source,) = chain.forwarder.sources.by_number
    await acknowledge(chain, source, (1, 1))
    await harness.confirm(harness.commit(CatalogChange.put(snapshot_of(generation=0))))
    await acknowledge(chain, source, (0, 1))
    harness.clock.advance(DAY)
    await first.publish("c")
    await harness.confirm(harness.update(generation=1, target=SeekTarget(snapshot=50)))
    assert await unacknowledged(first) == ["a", "c"]
    second = await hand_over(harness, first)
    await second.open()
    assert await unacknowledged(second, 12) == ["a", "c"]
    harness.clock.advance(700)
    assert await unacknowledged(second, 13) == []
