"""What may be needed that was not is said in the same turn: judgements of deletion made before do not count then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from syncpoint.broker.publish.facts.needs import TOPICS_MAX, Needs
from syncpoint.broker.publish.intake.seek import seek_to_time
from syncpoint.catalog.metadata.records import CatalogChange, Setting, Subscription, Topic
from syncpoint.testing.rigs.forwarder_harness import TOPIC, ForwarderHarness

pytestmark = pytest.mark.shows("deletion")

DAY = 86_400


def topic_of(harness: ForwarderHarness) -> Topic:
    topic = harness.publish.catalog.topic(TOPIC)
    assert topic is not None
    return topic


def seek(harness: ForwarderHarness) -> None:
    seek_to_time(harness.publish, harness.record, 0, None)


def keep_longer(harness: ForwarderHarness) -> None:
    harness.commit(CatalogChange.put(replace(topic_of(harness), retention_s=DAY)))


def keep_longer_for_a_subscription(harness: ForwarderHarness) -> None:
    harness.commit(CatalogChange.put(replace(harness.record, retention_s=30 * DAY)))


def keep_acknowledged(harness: ForwarderHarness) -> None:
    harness.commit(CatalogChange.put(replace(harness.record, retain_acked=True)))


def snapshot(harness: ForwarderHarness) -> None:
    harness.take_snapshot()


def setting(harness: ForwarderHarness) -> None:
    harness.commit(CatalogChange.put(Setting("lost", b"1")))


KINDS = [seek, keep_longer, keep_longer_for_a_subscription, keep_acknowledged, snapshot, setting]


@pytest.mark.parametrize("more", KINDS)
def test_what_may_need_more_says_so(more: Callable[[ForwarderHarness], None]) -> None:
    harness = ForwarderHarness()
    harness.send("a")
    harness.commit(CatalogChange.put(topic_of(harness)))  # as it was
    harness.commit(CatalogChange.put(harness.record))
    harness.commit(CatalogChange.put(Topic(40, "projects/p/topics/beside")))
    harness.send("a", topic="projects/p/topics/beside")
    before = harness.publish.needs.version
    more(harness)
    assert harness.publish.needs.version > before
    sources = None if more is setting else [one.number for one in harness.publish.sources.of_topic(1)]
    assert harness.publish.needed_since(before) == sources, "nothing is needed of the other topic that was not"
    assert not harness.publish.needed_since(harness.publish.needs.version)


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
    harness = ForwarderHarness()
    harness.commit(CatalogChange.put(replace(topic_of(harness), retention_s=DAY)))  # nothing of it is stored
    harness.send("a")
    for kept in (DAY, DAY / 2):
        harness.commit(CatalogChange.put(replace(topic_of(harness), retention_s=int(kept))))
    before = harness.publish.needs.version
    made = Subscription(
        5, "projects/p/subscriptions/new", 1, TOPIC, created_revision=harness.publish.catalog.revision + 1
    )
    harness.commit(CatalogChange.put(made))
    harness.commit(CatalogChange.put(replace(made, retention_s=60)))
    harness.commit(CatalogChange.put(replace(topic_of(harness), retention_s=60)))
    harness.commit(CatalogChange.delete(made))
    harness.commit(CatalogChange.put(Topic(30, "projects/p/topics/other")))
    assert harness.publish.needs.version == before
    assert made.incarnation not in harness.publish.needs._kept
