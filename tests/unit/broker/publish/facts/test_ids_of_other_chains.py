"""Ids that other chains know, and ids that are let go of."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

import pytest

from syncpoint.base.model.identity import parse_message_id
from syncpoint.broker.publish.facts import message_ids
from syncpoint.broker.publish.facts.message_ids import FIRED, FORWARDED, PUBLISHED, IdRow, MessageIds
from syncpoint.broker.publish.facts.origin import Publication, PublishOrigin, SentBatch
from syncpoint.broker.publish.facts.source import MessagePlace
from syncpoint.catalog.metadata.entity_options import TopicOptions
from syncpoint.catalog.metadata.records import CatalogChange, Topic
from syncpoint.testing.rigs.forwarder_harness import TOPIC, ForwarderHarness, HarnessCaller
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.identified import WINDOW_S, delivered, harness_with, ids_of, send

pytestmark = pytest.mark.shows("duplicates")


def test_what_is_due_in_another_chain_is_judged_by_itself_and_by_its_id() -> None:
    harness = harness_with()
    first = send(harness, "a")
    harness.quiesce()
    topic = harness.publish.catalog.topic(TOPIC)
    assert topic is not None
    request = pubsub.PublishRequest(topic=TOPIC)
    for number, one in enumerate(("a", "b", "b")):
        request.messages.add(data=b"x", attributes={PUBLISHED: one, FIRED: f"9/1/{number}"})
    answers = []
    for _ in range(2):
        caller = HarnessCaller()
        harness.publish.intake.publish(caller, topic, request.SerializeToString(), PublishOrigin.FIRING)
        harness.quiesce()
        answers.append(ids_of(caller))
    a, b, again = answers[0]
    assert (a, again) == (ids_of(first)[0], b)
    assert answers[1] == answers[0], "it may be tried as often as one likes"
    assert sorted(delivered(harness)) == sorted([a, b])


def test_ids_of_another_chain_are_taken_once() -> None:
    there, here = harness_with(), harness_with()
    first = send(there, "a", "b")
    there.quiesce()
    fact, end = there.publish.ids.rows_of(1, False, 0)
    assert there.publish.ids.rows_of(1, False, end) == (b"", end)
    assert here.publish.ids.take(fact)
    assert not here.publish.ids.take(fact)
    again = send(here, "b")
    here.quiesce()
    assert ids_of(again) == ids_of(first)[1:]
    assert not delivered(here)


def test_messages_that_an_older_version_noted_by_their_batch_are_known_when_it_is_sent_again() -> None:
    harness = harness_with()
    topic = harness.publish.catalog.topic(TOPIC)
    assert topic is not None
    first = send(harness, None)
    harness.quiesce()
    hashed = blake2b(b"b7/1/0", digest_size=16, key=b"1").digest()
    second = harness.clock.time_ns() // 1_000_000_000
    place = MessagePlace(*parse_message_id(ids_of(first)[0])[1:])
    assert harness.publish.ids.take(MessageIds.body([((1, False), [IdRow(*place, second, hashed)])]))
    request = pubsub.PublishRequest(topic=TOPIC, messages=[{"data": b"x"}]).SerializeToString()
    callers = [HarnessCaller() for _ in range(3)]
    for caller, batch in zip(
        callers, (SentBatch(7, 1, True), SentBatch(7, 1, False), SentBatch(7, 2, True)), strict=True
    ):
        harness.publish.intake.publish_staged(caller, Publication(topic, request, batch=batch))
        harness.quiesce()
    assert [one.ids == first.ids for one in callers] == [True, False, False]
    assert len(delivered(harness)) == 3


def test_a_table_is_forgotten_with_its_topic_or_its_window() -> None:
    harness = harness_with()
    send(harness, "a")
    harness.quiesce()
    assert list(harness.publish.ids.facts())
    harness.commit(CatalogChange.put(Topic(1, TOPIC)))
    assert not list(harness.publish.ids.facts())
    assert not harness.publish.ids.knows(1)


def test_ids_that_count_no_more_are_let_go_of_also_where_nothing_is_published() -> None:
    harness = harness_with()
    send(harness, "a", "b")
    send(harness, "c", name=FORWARDED, origin=PublishOrigin.SERVICE)
    harness.quiesce()
    ids = harness.publish.ids
    harness.clock.advance(WINDOW_S + 59)
    assert ids.knows(1)
    assert len(ids) == 3
    harness.clock.advance(3)
    assert ids.knows(1)
    assert len(ids) == 1, "that of the forward"
    harness.clock.advance(3_600)
    assert len(list(ids.facts())) == 0
    assert not ids.knows(1)
    send(harness, "a")
    harness.quiesce()
    assert len(delivered(harness)) == 4


def test_ids_of_a_topic_that_is_gone_are_let_go_of() -> None:
    harness = harness_with()
    send(harness, "a")
    harness.quiesce()
    topic = harness.publish.catalog.topic(TOPIC)
    assert topic is not None
    harness.commit(CatalogChange.put(replace(topic, options=TopicOptions())))
    assert not harness.publish.ids.knows(1)


def moved(source: ForwarderHarness, target: ForwarderHarness, forwarded: bool = False) -> None:
    """The topic's keys go to another chain, which takes over the ids."""
    at = 0
    while True:
        fact, at = source.publish.ids.rows_of(1, forwarded, at)
        if not fact:
            break
        target.publish.take_ids(fact)
    target.quiesce()


@pytest.mark.parametrize("restarts", [False, True])
def test_an_id_that_was_known_long_ago_hides_no_newer_one_of_another_chain(restarts: bool) -> None:
    one, other = harness_with(), harness_with()
    send(one, "a")
    one.quiesce()
    moved(one, other)
    for harness in (one, other):
        harness.clock.advance(WINDOW_S + 2)
    send(other, "a")
    other.quiesce()
    moved(other, one)
    moved(other, one)  # asked twice, nothing becomes older by that
    if restarts:
        one.restart()
    for harness in (one, other):
        harness.clock.advance(8)
    again = send(one, "a")
    one.quiesce()
    assert sum(source.end for source in one.publish.sources.by_number.values()) == 1
    assert len(ids_of(again)) == 1


def test_only_ids_of_what_is_persisted_are_handed_to_other_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_ids, "PART", 2)
    one, other = harness_with(), harness_with()
    send(one, "a", "b", "c")
    one.quiesce()
    send(one, "d", "e")  # on its way to the disks, and lost with them
    moved(one, other)
    again = send(other, "a", "d", "e")
    other.quiesce()
    assert sum(source.end for source in other.publish.sources.by_number.values()) == 2
    assert len(ids_of(again)) == 3
    one.quiesce()
    assert len(one.publish.ids.rows_of(1, False, 4)[0]) > 0, "now they are persisted"
