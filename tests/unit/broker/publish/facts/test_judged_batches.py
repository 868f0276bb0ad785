"""Batches that were judged by ids, and are sent again: stored once, however late, whoever has chain or topic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from syncpoint.broker.publish.facts import judged_batches
from syncpoint.broker.publish.facts.judged_batches import HANDED_S, JudgedBatches, batch_of
from syncpoint.broker.publish.facts.message_facts import FactLog
from syncpoint.broker.publish.facts.message_ids import PUBLISHED
from syncpoint.broker.publish.facts.origin import Publication, SentBatch
from syncpoint.broker.publish.facts.source import WAITING_TOPIC, MessagePlace, SourceTable
from syncpoint.broker.publish.intake.envelope import PublishBatch, write_publish
from syncpoint.catalog.metadata.entity_options import NO_TOPIC_OPTIONS, TopicOptions
from syncpoint.catalog.metadata.records import CatalogChange, Topic
from syncpoint.testing.rigs.forwarder_harness import ForwarderHarness, HarnessCaller
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.chain import TOPIC, TOPIC_NUMBER, ChainHarness, Process, run, simulated
from tests.kit.chain_subscriber import Subscriber

WINDOW_S = 20
LATE_S = 25.0
Later = Callable[[ChainHarness, Process], Awaitable[tuple[Process, int]]]


async def same_owner(harness: ChainHarness, process: Process) -> tuple[Process, int]:
    return process, 1


async def next_owner(harness: ChainHarness, process: Process) -> tuple[Process, int]:
    return await harness.succeeded(process), 1


async def owner_by_a_checkpoint(harness: ChainHarness, process: Process) -> tuple[Process, int]:
    await process.host.close(1)
    harness.processes.remove(process)
    second = await harness.opened("f2")
    await second.host.close(1)
    harness.processes.remove(second)
    return await harness.opened("f3"), 1


async def another_chain(harness: ChainHarness, process: Process) -> tuple[Process, int]:
    other = await harness.opened("f2", 2)
    harness.assign(2)
    return other, 2


async def other_chain_and_next_owner(harness: ChainHarness, process: Process) -> tuple[Process, int]:
    other, chain = await another_chain(harness, process)
    await send(harness, other, chain, 99, {"name": "of somebody else"})  # it takes the topic over
    await other.crash()
    other = harness.process("f3")
    await other.open(chain)
    return other, chain


def drop_duplicates(harness: ChainHarness, window_s: int) -> None:
    record = harness.master.topic(TOPIC)
    assert record is not None
    options = TopicOptions(duplicate_window_s=window_s) if window_s else NO_TOPIC_OPTIONS
    harness.commit(CatalogChange.put(replace(record, options=options)))


async def send(
    harness: ChainHarness, process: Process, chain: int, batch: int, *messages: dict[str, str], resent: bool = False
) -> list[str]:
    request = pubsub.PublishRequest(topic=TOPIC)
    for attributes in messages:
        own = {PUBLISHED if key == "id" else key: value for key, value in attributes.items()}
        request.messages.add(data=b"x", attributes=own, ordering_key="k")
    epoch = harness.assignments[TOPIC_NUMBER].epoch
    sent = PublishBatch(chain, epoch, True, 7, batch, resent, request.SerializeToString(), TOPIC_NUMBER)
    answer = await process.channel.unary(methods.CHAINS.Publish, write_publish(sent), timeout=20.0)
    return list(pubsub.PublishResponse.FromString(answer).message_ids)


def stored(harness: ChainHarness) -> int:
    """Messages of the topic in all chains."""
    chains = [one for process in harness.processes for one in process.host.chains.values()]
    return sum(source.end for chain in chains for source in chain.forwarder.sources.of_topic(TOPIC_NUMBER))


MESSAGES = (({},), ({"id": "a"},), ({"id": "a"}, {}, {"id": "old"}, {"id": "a"}, {"id": "b"}))


@pytest.mark.parametrize(
    "later", [same_owner, next_owner, owner_by_a_checkpoint, another_chain, other_chain_and_next_owner]
)
@pytest.mark.parametrize("messages", MESSAGES)
def test_sent_again_behind_the_window_a_batch_is_stored_once(
    later: Later, messages: tuple[dict[str, str], ...]
) -> None:
    async def work(harness: ChainHarness) -> None:
        first = await harness.subscribed()
        drop_duplicates(harness, WINDOW_S)
        harness.assign(1)
        await send(harness, first, 1, 4, {"id": "old"})
        ids = await send(harness, first, 1, 5, *messages)
        owner, chain = await later(harness, first)
        await asyncio.sleep(LATE_S)
        before = stored(harness)
        for _ in range(2):
            assert await send(harness, owner, chain, 5, *messages, resent=True) == ids
        assert stored(harness) == before
        assert len(set(await send(harness, owner, chain, 6, *messages, resent=True)) & set(ids)) == 0
        assert stored(harness) > before, "another batch is another one"

    run(work)


@simulated
async def test_a_batch_is_known_whatever_the_topic_says_by_then(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    drop_duplicates(harness, WINDOW_S)
    harness.assign(1)
    ids = await send(harness, process, 1, 5, {"id": "a"}, {})
    for window_s in (600, 0):
        drop_duplicates(harness, window_s)
        await asyncio.sleep(LATE_S)
        assert await send(harness, process, 1, 5, {"id": "a"}, {}, resent=True) == ids


@simulated
async def test_what_another_chain_answered_by_what_is_here_is_not_void(harness: ChainHarness) -> None:
    """A sender that knew nothing of duplicates believes that both have stored it, and this is the only copy."""
    process = await harness.subscribed()
    drop_duplicates(harness, WINDOW_S)
    harness.assign(1)
    await send(harness, process, 1, 5, {"id": "a"}, {})
    assert (await process.void(5)).messages == 0
    subscriber = await Subscriber(process, 11).attached()
    assert len(await subscriber.read_all()) == 2


@simulated
async def test_a_chain_stays_registered_while_others_may_ask_for_its_batches(harness: ChainHarness) -> None:
    process = await harness.opened()
    drop_duplicates(harness, WINDOW_S)
    harness.assign(1)
    await send(harness, process, 1, 5, {})  # nobody is subscribed: nothing is kept of it
    for _ in range(60):
        await asyncio.sleep(HANDED_S / 100)
        assert (TOPIC_NUMBER, 1) in harness.registered
    second = await harness.succeeded(process)
    harness.registered.clear()  # as at an import, or where older metadata was restored
    await second.host.close(1)
    await second.open()
    assert (TOPIC_NUMBER, 1) in harness.registered, "whoever takes the topic asks"
    for _ in range(200):
        await asyncio.sleep(HANDED_S / 100)
    assert not harness.registered


@simulated
async def test_a_chain_that_has_nothing_left_but_ids_is_registered_when_it_is_opened(harness: ChainHarness) -> None:
    process = await harness.opened()
    drop_duplicates(harness, 3600)
    harness.assign(1)
    ids = await send(harness, process, 1, 5, {"id": "a"})
    await asyncio.sleep(HANDED_S * 2)  # the batch counts no more
    assert not process.host.chains[1].forwarder.batches.knows(TOPIC_NUMBER)
    harness.registered.clear()
    await process.host.close(1)
    harness.processes.remove(process)
    await harness.opened("f2")
    assert (TOPIC_NUMBER, 1) in harness.registered
    other = harness.process("f3")
    await other.open(2)
    harness.assign(2)
    assert await send(harness, other, 2, 6, {"id": "a"}) == ids


def table() -> tuple[JudgedBatches, SourceTable]:
    sources = SourceTable(10**12, 3)
    return JudgedBatches(FactLog(lambda *entry: None), sources, lambda topic: True, lambda: 0.0), sources


def test_a_batch_is_remembered_where_each_of_its_messages_is() -> None:
    """In one source or several, one behind the other or not, the same one twice."""
    for offsets in ([(5, 0), (5, 1), (5, 2)], [(5, 0), (6, 1), (6, 2), (5, 3)], [(5, 4), (5, 4)], [(5, 7), (5, 5)]):
        places = [MessagePlace(*one) for one in offsets]
        assert batch_of(1, 7, 9, places).places() == places
    assert len(batch_of(1, 7, 9, [MessagePlace(5, number) for number in range(1000)]).runs) < 40


def test_a_topic_is_known_while_it_is_there_and_others_may_ask() -> None:
    topics, now = {1, 2}, [0.0]
    batches = JudgedBatches(FactLog(lambda *entry: None), SourceTable(10**12, 3), topics.__contains__, lambda: now[0])
    for topic in (1, 2):
        batches.note(batch_of(topic, 7, topic, [MessagePlace(5, topic)]))
    assert batches.topics() == [1, 2]
    assert not batches.knows(3)
    topics.remove(1)
    assert not batches.knows(1)
    assert batches.topics() == [2]
    topics.add(1)
    assert batches.topics() == [2], "what was deleted is asked about by nobody"
    now[0] = HANDED_S - 1
    assert batches.knows(2)
    now[0] = HANDED_S
    assert not batches.knows(2)
    assert batches.find(7, 2), "who has it sends it again here"


def test_batches_are_bounded_by_number_and_by_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged_batches, "BATCHES_MAX", 3)
    batches, _ = table()
    for number in range(5):
        batches.note(batch_of(1, 7, number, [MessagePlace(5, number)]))
    assert [number for number in range(5) if batches.find(7, number)] == [2, 3, 4]
    monkeypatch.setattr(judged_batches, "RUNS_BYTES_MAX", 100)  # five pieces
    batches.note(batch_of(1, 7, 9, [MessagePlace(5, 2 * number) for number in range(4)]))
    assert [number for number in range(10) if batches.find(7, number)] == [4, 9]
    batches.note(batch_of(1, 7, 9, [MessagePlace(5, 1)]))  # the rest of it came
    batches.note(batch_of(1, 7, 5, [MessagePlace(5, 1)]))
    assert [number for number in range(10) if batches.find(7, number)] == [4, 5, 9]


def test_batches_are_handed_out_page_by_page_as_far_as_they_are_persisted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged_batches, "PART", 2)
    batches, sources = table()
    source, _ = sources.open_for(1)
    source.end, source.visible = 9, 5
    for number in range(7):
        places = [MessagePlace(source.number, number), MessagePlace(8, 3)]
        batches.note(batch_of(1 if number != 3 else 2, 7, number, places))
    taken, _ = table()
    at = 0
    while (page := batches.rows_of(1, at))[0]:
        fact, at = page
        assert taken.take(fact)
        assert not taken.take(fact), "once"
    stored = [[place is not None for place in taken.find(7, number)] for number in range(7)]
    assert stored == [[True, True]] * 3 + [[]] + [[True, True]] + [[False, True]] * 2


def test_a_batch_of_which_some_was_lost_is_known_as_far_as_it_is_there() -> None:
    """Whatever is lost of a turn: each message is stored once, long behind the window."""
    written, lost = 1, 0
    while lost < written:
        harness = ForwarderHarness()
        options = TopicOptions(duplicate_window_s=WINDOW_S)
        harness.commit(CatalogChange.put(Topic(TOPIC_NUMBER, TOPIC, options=options)))
        due = harness.ahead(3600)
        request = pubsub.PublishRequest(topic=TOPIC)
        for name in ("a", "", "later", "b", "a"):
            attributes = {PUBLISHED: name} if name else {}
            if name in ("", "later"):
                attributes["sys.ScheduledEnqueueTimeUtc"] = due
            request.messages.add(data=name.encode() or b"none", attributes=attributes)

        def publish(resent: bool, request: pubsub.PublishRequest = request, harness: ForwarderHarness = harness) -> Any:
            caller, topic = HarnessCaller(), harness.publish.catalog.topic(TOPIC)
            known = harness.publish.batches.find(7, 5) if resent else ()
            sent = SentBatch(7, 5, resent, known)
            harness.publish.intake.publish_staged(caller, Publication(topic, request.SerializeToString(), batch=sent))
            return caller

        before = len(harness.store.entries)
        publish(resent=False)
        while harness.soon:
            harness.soon.popleft()()
        written = len(harness.store.entries) - before
        del harness.store.entries[len(harness.store.entries) - lost :]
        harness.store.persist()
        for _ in range(2):
            harness.restart()
            harness.advance(LATE_S)
            caller = publish(resent=True)
            harness.quiesce()
            ids = caller.ids
            assert len(ids) == 5
            assert len(set(ids)) == 4, "two have one id"
        sources = harness.publish.sources
        assert sum(one.end for one in sources.of_topic(TOPIC_NUMBER)) == 2, f"without the last {lost} entries"
        assert sum(one.end for one in sources.of_topic(WAITING_TOPIC)) == 2
        assert publish(resent=True).ids == ids
        lost += 1
    assert written > 3
