"""Facts in front of their messages: whatever a turn is given, and wherever the log ends."""

from __future__ import annotations

import random

import pytest

from syncpoint.broker.publish.commit import commit
from syncpoint.broker.publish.facts import message_facts
from syncpoint.broker.publish.facts.source import WAITING_TOPIC
from syncpoint.catalog.metadata.entity_options import TopicOptions
from syncpoint.catalog.metadata.records import CatalogChange, Topic
from syncpoint.testing.rigs.facts_in_front import complaints
from syncpoint.testing.rigs.forwarder_harness import TOPIC, ForwarderHarness, HarnessCaller
from syncpoint.wire.protobuf.messages import pubsub

IDS = "sys.MessageId"


def requests(chance: random.Random, harness: ForwarderHarness) -> list[pubsub.PublishRequest]:
    """Those of one turn: plain, scheduled and with times to live, mixed, under ids, small and large."""
    due = harness.ahead(60)
    names = (f"id {number}" for number in range(1000))
    made = []
    for _ in range(chance.randrange(2, 8)):
        request = pubsub.PublishRequest(topic=TOPIC)
        for _ in range(chance.randrange(1, 5)):
            name = next(names)
            attributes = {IDS: name}
            if chance.random() < 0.4:
                attributes["sys.ScheduledEnqueueTimeUtc"] = due
            if chance.random() < 0.3:
                attributes["sys.TimeToLive"] = "2:0:0"
            request.messages.add(data=name.encode().ljust(chance.choice((10, 400))), attributes=attributes)
        made.append(request)
    return made


def publish(harness: ForwarderHarness, request: pubsub.PublishRequest) -> HarnessCaller:
    caller, topic = HarnessCaller(), harness.publish.catalog.topic(TOPIC)
    assert topic is not None
    harness.publish.intake.publish(caller, topic, request.SerializeToString())
    return caller


@pytest.mark.parametrize("seed", range(12))
def test_wherever_the_log_ends_what_is_found_is_known_and_what_is_sent_again_is_stored_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "ENTRY_BYTES_MAX", 300)
    monkeypatch.setattr(message_facts, "ENTRY_FACTS", 2)
    written, lost = 1, 0
    while lost < written:
        chance, harness = random.Random(seed), ForwarderHarness()
        harness.commit(CatalogChange.put(Topic(1, TOPIC, options=TopicOptions(duplicate_window_s=7200))))
        made = requests(chance, harness)
        before = len(harness.store.entries)
        for request in made:
            publish(harness, request)
        while harness.soon:
            harness.soon.popleft()()
        written = len(harness.store.entries) - before
        del harness.store.entries[len(harness.store.entries) - lost :]
        topics = {number: source.topic for number, source in harness.publish.sources.by_number.items()}
        entries = [(one.kind, one.source, one.first_offset, one.count, one.payload) for one in harness.store.entries]
        assert complaints(entries, topics, harness.store.log_counter) == []
        harness.store.persist()
        harness.restart()
        waiting = sum(one.end for one in harness.publish.sources.of_topic(WAITING_TOPIC))
        assert len(harness.publish.scheduled) == waiting, "what waits is known, and nothing else"
        assert len(harness.publish.ids) == sum(one.end for one in harness.publish.sources.of_topic(1))
        callers = [publish(harness, request) for request in made]
        harness.quiesce()
        assert all(one.ids is not None for one in callers)
        harness.advance(61)
        while len(harness.publish.scheduled):
            harness.firing.tick()
            harness.quiesce()
        ends = sum(one.end for one in harness.publish.sources.of_topic(1))
        assert ends == sum(len(request.messages) for request in made), f"with the last {lost} entries of the turn lost"
        lost += 1
    assert written > 3
