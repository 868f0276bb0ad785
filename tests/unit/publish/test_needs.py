"""What may be needed that was not is said in the same turn: judgements of deletion made before do not count then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from syncpoint.metadata.records import CatalogChange, Setting, Subscription, Topic
from syncpoint.publish.needs import TOPICS_MAX, Needs
from syncpoint.publish.seek import seek_to_time
from syncpoint.testing.forwarder_harness import TOPIC, ForwarderHarness

DAY = 86_400


def topic_of(world: ForwarderHarness) -> Topic:
    topic = world.publish.catalog.topic(TOPIC)
    assert topic is not None
    return topic


def seek(world: ForwarderHarness) -> None:
    seek_to_time(world.publish, world.record, 0, None)


def keep_longer(world: ForwarderHarness) -> None:
    world.commit(CatalogChange.put(replace(topic_of(world), retention_s=DAY)))


def keep_longer_for_a_subscription(world: ForwarderHarness) -> None:
    world.commit(CatalogChange.put(replace(world.record, retention_s=30 * DAY)))


def keep_acknowledged(world: ForwarderHarness) -> None:
    world.commit(CatalogChange.put(replace(world.record, retain_acked=True)))


def snapshot(world: ForwarderHarness) -> None:
    world.take_snapshot()


def setting(world: ForwarderHarness) -> None:
    world.commit(CatalogChange.put(Setting("lost", b"1")))


KINDS = [seek, keep_longer, keep_longer_for_a_subscription, keep_acknowledged, snapshot, setting]


@pytest.mark.parametrize("more", KINDS)
def test_what_may_need_more_says_so(more: Callable[[ForwarderHarness], None]) -> None:
    world = ForwarderHarness()
    world.send("a")
    world.commit(CatalogChange.put(topic_of(world)))  # as it was
    world.commit(CatalogChange.put(world.record))
    world.commit(CatalogChange.put(Topic(40, "projects/p/topics/beside")))
    world.send("a", topic="projects/p/topics/beside")
    before = world.publish.needs.version
    more(world)
    assert world.publish.needs.version > before
    sources = None if more is setting else [one.number for one in world.publish.sources.of_topic(1)]
    assert world.publish.needed_since(before) == sources, "nothing is needed of the other topic that was not"
    assert not world.publish.needed_since(world.publish.needs.version)


def test_of_more_topics_than_are_remembered_anything_may_be_needed() -> None:
    needs = Needs()
    for topic in range(TOPICS_MAX):
        needs.more(topic)
    assert needs.since(TOPICS_MAX - 2) == [TOPICS_MAX - 2, TOPICS_MAX - 1]
    needs.more(TOPICS_MAX)
    assert needs.since(TOPICS_MAX) is None
    needs.more(3)
    assert needs.since(needs.version - 1) == [3]


def test_what_needs_less_or_nothing_of_before_changes_nothing() -> None:
    world = ForwarderHarness()
    world.commit(CatalogChange.put(replace(topic_of(world), retention_s=DAY)))  # nothing of it is stored
    world.send("a")
    for kept in (DAY, DAY / 2):
        world.commit(CatalogChange.put(replace(topic_of(world), retention_s=int(kept))))
    before = world.publish.needs.version
    made = Subscription(
        5, "projects/p/subscriptions/new", 1, TOPIC, created_revision=world.publish.catalog.revision + 1
    )
    world.commit(CatalogChange.put(made))
    world.commit(CatalogChange.put(replace(made, retention_s=60)))
    world.commit(CatalogChange.put(replace(topic_of(world), retention_s=60)))
    world.commit(CatalogChange.delete(made))
    world.commit(CatalogChange.put(Topic(30, "projects/p/topics/other")))
    assert world.publish.needs.version == before
    assert made.incarnation not in world.publish.needs._kept
