"""Messages of topics that were lost with the metadata: kept, listed, and read again once somebody has adopted them."""

from __future__ import annotations

import asyncio
from typing import Any

from syncpoint.broker.publish.keep.retention import orphans
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.catalog.metadata.restored_topics import LostTopicDecision, LostTopics, lost_of
from tests.kit.chain import SUB, SUB_NUMBER, TOPIC, TOPIC_NUMBER, ChainHarness, simulated
from tests.kit.chain_subscriber import Subscriber

BODY = "x" * 10_000
MANY = 60  # messages of that size: more than a segment
WHILE_S = 20.0  # long enough for deletion to look at everything


async def filled(harness: ChainHarness) -> Any:
    """A chain with several segments of a topic, opened anew so that all of them are sealed."""
    await harness.subscribe(9, "projects/p/subscriptions/old")
    first = await harness.opened("f1")
    for number in range(MANY):
        await first.publish(f"{number}-{BODY}")
    await first.host.close(1)
    return await harness.process("f2").open()


def forget(harness: ChainHarness) -> None:
    """Neither topic nor subscription are in the metadata any more."""
    harness.commit(*(CatalogChange.delete(one) for one in (*harness.master.subscriptions(), *harness.master.topics())))


def lose(harness: ChainHarness, *known: int) -> None:
    """A restore: what came until now is unknown, but for these topics."""
    harness.commit(CatalogChange.put(LostTopics().with_gap(0, harness.master.revision + 1, known).setting()))


def stored(chain: Any) -> int:
    """Messages of the topic that are on the disks."""
    bounds = (chain.store.bounds(source.number) for source in chain.forwarder.sources.of_topic(TOPIC_NUMBER))
    return sum(end - begin for begin, end in filter(None, bounds))


@simulated
async def test_what_is_left_of_a_deleted_topic_is_collected(harness: ChainHarness) -> None:
    chain = await filled(harness)
    assert stored(chain) == MANY
    forget(harness)
    assert orphans(chain.forwarder) == []
    await asyncio.sleep(WHILE_S)
    assert stored(chain) == 0


@simulated
async def test_what_was_lost_is_kept_and_listed_until_somebody_deletes_it(harness: ChainHarness) -> None:
    chain = await filled(harness)
    lose(harness)
    forget(harness)
    await asyncio.sleep(WHILE_S)
    assert stored(chain) == MANY
    listed = chain.status()["orphans"]
    assert [(one["topic"], one["messages"]) for one in listed] == [(TOPIC_NUMBER, MANY)]
    await chain.context.shared.at(harness.master.revision)
    decision = LostTopicDecision(TOPIC_NUMBER, "deleted", "", MANY, "me", "here", 1)
    harness.commit(CatalogChange.put(lost_of(harness.master).decided(decision).setting()))
    assert chain.status()["orphans"] == []
    await asyncio.sleep(WHILE_S)
    assert stored(chain) == 0


@simulated
async def test_a_topic_that_the_backup_knew_and_that_is_deleted_later_is_no_orphan(harness: ChainHarness) -> None:
    chain = await filled(harness)
    lose(harness, TOPIC_NUMBER)
    forget(harness)
    assert chain.status()["orphans"] == []
    await asyncio.sleep(WHILE_S)
    assert stored(chain) == 0


@simulated
async def test_an_adopted_topic_is_read_from_its_first_message_on(harness: ChainHarness) -> None:
    chain = await filled(harness)
    lose(harness)
    forget(harness)
    await asyncio.sleep(WHILE_S)
    decision = LostTopicDecision(TOPIC_NUMBER, "adopted", TOPIC, MANY, "me", "here", 1)
    harness.commit(
        CatalogChange.put(Topic(TOPIC_NUMBER, TOPIC)),
        CatalogChange.put(Subscription(SUB_NUMBER, SUB, TOPIC_NUMBER, TOPIC, created_revision=1)),
        CatalogChange.put(lost_of(harness.master).decided(decision).setting()),
    )
    assert chain.status()["orphans"] == []
    await asyncio.sleep(WHILE_S)
    assert stored(chain) == MANY
    process = harness.owner(1)
    await process.publish("new")
    subscriber = await Subscriber(process, 11).attached()
    found = [one.partition("-")[0] for one in await subscriber.read_all()]
    assert found == [*map(str, range(MANY)), "new"]
    # Once it is deleted as any other topic is, it goes as they do.
    forget(harness)
    assert chain.status()["orphans"] == []
    await asyncio.sleep(WHILE_S)
    assert stored(chain) <= 1  # in the segment that is being written


@simulated
async def test_a_chain_opened_after_the_adoption_has_everything_too(harness: ChainHarness) -> None:
    await filled(harness)
    lose(harness)
    forget(harness)
    await harness.owner(1).host.close(1)
    harness.commit(
        CatalogChange.put(Topic(TOPIC_NUMBER, TOPIC)),
        CatalogChange.put(Subscription(SUB_NUMBER, SUB, TOPIC_NUMBER, TOPIC, created_revision=1)),
    )
    process = await harness.opened("f3")
    subscriber = await Subscriber(process, 11).attached()
    assert len(await subscriber.read_all()) == MANY
