"""Duplicates by id: against a plain model, over lost turns, restarts and checkpoints; and what forwards may rely on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base.model.errors import GivenUp, InvalidArgument
from syncpoint.base.model.identity import parse_message_id
from syncpoint.base.model.reserved import derive_identity
from syncpoint.broker.publish.facts.message_ids import FIRED, FORWARDED, PUBLISHED
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.publish.intake.scheduled_calls import cancel_scheduled
from syncpoint.broker.publish.keep.upkeep import LogUpkeep
from syncpoint.log.storage.record import EntryKind
from syncpoint.testing.rigs.forwarder_harness import TOPIC, ForwarderHarness, HarnessCaller, Subscriber
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.examples import examples
from tests.kit.identified import WINDOW_S, delivered, harness_with, ids_of, send

pytestmark = pytest.mark.shows("duplicates")


def test_a_duplicate_is_answered_with_the_first_ones_id_and_not_stored() -> None:
    harness = harness_with()
    first = send(harness, "a", "b", None)
    harness.quiesce()
    again = send(harness, "b", "c", None, "a", "c")
    harness.quiesce()
    one, two, three = ids_of(first)
    b, c, plain, a, c_again = ids_of(again)
    assert (b, a, c_again) == (two, one, c)
    assert len({one, two, three, c, plain}) == 5
    assert sorted(delivered(harness)) == sorted([one, two, three, c, plain])


def test_a_duplicate_of_what_is_not_persisted_waits_for_it() -> None:
    harness = harness_with()
    first, again = send(harness, "a"), send(harness, "a", "a")
    assert first.ids is None
    assert again.ids is None
    harness.quiesce()
    assert ids_of(again) == ids_of(first) * 2


def test_what_was_lost_with_its_log_is_no_duplicate() -> None:
    harness = harness_with()
    lost = send(harness, "a")
    again = send(harness, "a")
    harness.soon.popleft()()  # the turn is written, and the disks fail
    harness.store.fail(OSError("gone"))
    assert isinstance(lost.error, GivenUp)
    assert isinstance(again.error, GivenUp)
    harness.restart()
    stored = send(harness, "a")
    harness.quiesce()
    assert delivered(harness) == ids_of(stored)


@pytest.mark.parametrize("window_s", [20, 3_600])
def test_the_window_counts_from_the_publish_time(window_s: int) -> None:
    harness = harness_with(window_s)
    first = send(harness, "a")
    harness.quiesce()
    harness.clock.advance(window_s)
    inside = send(harness, "a")
    harness.quiesce()
    assert inside.ids == first.ids
    harness.clock.advance(1)
    outside = send(harness, "a")
    harness.quiesce()
    assert outside.ids != first.ids
    harness.clock.advance(window_s - 1)
    again = send(harness, "a")
    harness.quiesce()
    assert again.ids == outside.ids


def test_a_window_is_no_shorter_where_its_message_came_late_in_a_second() -> None:
    harness = harness_with(20)
    harness.clock.advance(0.9)
    first = send(harness, "a")
    harness.quiesce()
    harness.clock.advance(19.5)
    again = send(harness, "a")
    harness.quiesce()
    assert ids_of(again) == ids_of(first)


def test_other_topics_and_no_window_know_no_duplicates() -> None:
    harness = ForwarderHarness()
    first, second = send(harness, "a"), send(harness, "a")
    harness.quiesce()
    assert first.ids != second.ids
    assert len(harness.publish.ids) == 0


def test_ids_are_bounded() -> None:
    harness = harness_with()
    with pytest.raises(InvalidArgument, match=r"sys.MessageId must not be longer than 128"):
        send(harness, "a", "x" * 129)
    caller = send(harness, "x" * 128, "")
    harness.quiesce()
    assert len(ids_of(caller)) == 2


def schedule(harness: ForwarderHarness, seconds: int, *ids: str | None, **more: str) -> list[str]:
    due, caller, request = harness.ahead(seconds), HarnessCaller(), pubsub.PublishRequest(topic=TOPIC)
    for one in ids:
        named = {} if one is None else {PUBLISHED: one}
        request.messages.add(data=b"later", attributes={"sys.ScheduledEnqueueTimeUtc": due, **named, **more})
    harness.publish.intake.publish_request(caller, request.SerializeToString())
    harness.quiesce()
    return ids_of(caller)


def fire(harness: ForwarderHarness, seconds: float) -> None:
    harness.advance(seconds)
    for _ in range(5):
        harness.firing.tick()
        harness.quiesce()


def sent(harness: ForwarderHarness) -> int:
    return sum(source.end for source in harness.publish.sources.of_topic(1))


def test_what_is_cancelled_leaves_no_id() -> None:
    harness = harness_with(3_600)
    (first,) = schedule(harness, 600, "a")
    place = parse_message_id(first)
    cancel_scheduled(harness.publish, 1, place.source, place.offset, lambda error: None)
    (second,) = schedule(harness, 3, "a")
    assert second != first
    fire(harness, 4)
    assert sent(harness) == 1
    again = send(harness, "a")
    harness.quiesce()
    assert sent(harness) == 1
    assert len(ids_of(again)) == 1


@pytest.mark.parametrize("crashes", [False, True])
def test_an_id_counts_from_when_its_message_is_due(crashes: bool) -> None:
    harness = harness_with(20)
    schedule(harness, 28, "a", None)
    harness.advance(22)
    schedule(harness, 6, "a", "b", "a", None)
    at_once = send(harness, "b")
    harness.quiesce()
    assert sent(harness) == 1, "nothing of it was sent yet"
    if crashes:
        harness.restart()
    fire(harness, 7)
    assert len(harness.publish.scheduled) == 0
    assert sent(harness) == 4, "of a one, b before, and two without an id"
    again = send(harness, "a", "b")
    harness.quiesce()
    assert sent(harness) == 4
    assert ids_of(again)[1:] == ids_of(at_once)
    fire(harness, 30)
    schedule(harness, 1, "a")
    fire(harness, 2)
    assert sent(harness) == 5, "the window of the first is over"


@pytest.mark.parametrize("lost", range(4))
def test_where_power_is_lost_as_duplicates_are_due_one_is_sent(lost: int) -> None:
    harness = harness_with(60)
    schedule(harness, 5, "a", "a", None)
    harness.clock.advance(6)
    before = len(harness.store.entries)
    harness.firing.tick()
    while harness.soon:
        harness.soon.popleft()()
    assert len(harness.store.entries) - before >= 3, "facts, messages, and what waits no more"
    del harness.store.entries[len(harness.store.entries) - lost :]
    harness.store.persist()
    harness.restart()
    fire(harness, 1)
    assert sent(harness) == 2
    assert len(harness.publish.scheduled) == 0
    assert len(delivered(harness)) == 2


def test_a_forward_that_waited_is_sent_whatever_its_publisher_named_it() -> None:
    harness = harness_with()
    send(harness, "a")
    schedule(harness, 2, "a", **{FORWARDED: "7/1/1"})
    fire(harness, 3)
    assert sent(harness) == 2


def test_a_forward_that_waits_is_known_when_it_is_published_again() -> None:
    harness = harness_with(0)
    topic = harness.publish.catalog.topic(TOPIC)
    assert topic is not None
    due = datetime.fromtimestamp(harness.clock.time_ns() // 1_000_000_000 + 2, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    request = pubsub.PublishRequest(topic=TOPIC)
    request.messages.add(data=b"x", attributes={"sys.ScheduledEnqueueTimeUtc": due, FORWARDED: "7/1/1"})

    def forwarded() -> list[str]:
        caller = HarnessCaller()
        harness.publish.intake.publish(caller, topic, request.SerializeToString(), PublishOrigin.FORWARD)
        harness.quiesce()
        return ids_of(caller)

    first = forwarded()
    assert forwarded() == first
    fire(harness, 3)
    assert forwarded() == first, "also once it has been sent"
    fire(harness, 3)
    assert sent(harness) == 1


@dataclass
class Seen:
    message_id: str
    second: float


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=4)),
        st.tuples(st.sampled_from(["persist", "crash", "checkpoint", "wait"]), st.integers(1, 40)),
    ),
    max_size=30,
)


@settings(max_examples=examples(120), deadline=None)
@given(steps)
def test_of_each_id_one_message_is_stored_within_its_window(taken: list[tuple[str, Any]]) -> None:
    """What was answered stays: of two answers for an id within the window both name the same message, and every
    message that was answered is delivered once.
    """
    harness = harness_with()
    known: dict[str, Seen] = {}
    answered: set[str] = set()
    waiting: list[tuple[list[str | None], HarnessCaller, float]] = []

    def complete() -> None:
        for ids, caller, now in waiting:
            assert caller.error is None
            for one, message_id in zip(ids, ids_of(caller), strict=True):
                seen = known.get(one) if one is not None else None
                if seen is not None and now - seen.second < WINDOW_S - 1:
                    assert message_id == seen.message_id
                elif one is not None and (seen is None or message_id != seen.message_id):
                    known[one] = Seen(message_id, now)
                answered.add(message_id)
        waiting.clear()

    for what, how in taken:
        if what == "send":
            waiting.append((how, send(harness, *how), harness.clock.monotonic()))
        elif what == "persist":
            harness.quiesce()
            complete()
        elif what == "wait":
            harness.quiesce()
            complete()
            harness.clock.advance(how)
        elif what == "checkpoint":
            harness.quiesce()
            complete()
            harness.checkpoint()
        else:
            if how % 2:  # the turn was handed to the disks, which kept some of it
                while harness.soon:
                    harness.soon.popleft()()
            waiting.clear()
            harness.restart()
    harness.quiesce()
    complete()
    got = delivered(harness)
    assert len(got) == len(set(got))
    assert answered <= set(got)


def test_a_forward_is_stored_once_whatever_the_topic_says() -> None:
    harness = ForwarderHarness()
    first = send(harness, "9/1/5", "9/1/6", name=FORWARDED, origin=PublishOrigin.SERVICE)
    harness.quiesce()
    harness.restart()
    again = send(harness, "9/1/6", "9/1/7", name=FORWARDED, origin=PublishOrigin.SERVICE)
    harness.quiesce()
    assert ids_of(again)[0] == ids_of(first)[1]
    assert len(delivered(harness)) == 3
    public = send(harness, "9/1/5", name=FORWARDED)
    harness.quiesce()
    assert ids_of(public) != ids_of(first)[:1], "of publishers it means nothing"


@pytest.mark.parametrize("origin", [PublishOrigin.FORWARD, PublishOrigin.SERVICE])
def test_what_is_published_again_is_a_duplicate_of_itself_alone(origin: PublishOrigin) -> None:
    """The id that its publisher gave it says nothing: it was accepted before."""
    harness = harness_with()
    first = send(harness, "a")
    harness.quiesce()
    request = pubsub.PublishRequest(topic=TOPIC)
    for number, one in enumerate(("a", "b", "b")):
        request.messages.add(data=b"x", attributes={PUBLISHED: one, FORWARDED: f"9/1/{number}"})
    topic = harness.publish.catalog.topic(TOPIC)
    assert topic is not None
    answers = []
    for _ in range(2):
        caller = HarnessCaller()
        harness.publish.intake.publish(caller, topic, request.SerializeToString(), origin)
        harness.quiesce()
        answers.append(ids_of(caller))
    assert answers[0] == answers[1]
    stored = [*ids_of(first), *answers[0]]
    assert len(set(stored)) == 4
    assert sorted(delivered(harness)) == sorted(stored), "what is answered is stored"
    again = send(harness, "a")
    harness.quiesce()
    assert ids_of(again) == ids_of(first), "a publisher's repetition is a duplicate as before"


@pytest.mark.parametrize("origins", [(0, 1), (1, 0)])
def test_what_two_sites_derive_of_one_message_is_stored_once(origins: tuple[int, int]) -> None:
    """Its own letter, and the copy of the other site's, which a gateway brings: whichever comes first."""
    harness = harness_with()
    attributes = {PUBLISHED: "gw-5"}
    derive_identity(attributes, "dead", "projects/p/subscriptions/s", 0)
    answers = []
    for origin in origins:
        request = pubsub.PublishRequest(topic=TOPIC)
        request.messages.add(data=b"x", attributes={**attributes, FORWARDED: f"dead/9/{origin}"})
        topic, caller = harness.publish.catalog.topic(TOPIC), HarnessCaller()
        assert topic is not None
        kind = (PublishOrigin.CLIENT, PublishOrigin.SERVICE)[origin]
        harness.publish.intake.publish(caller, topic, request.SerializeToString(), kind)
        harness.quiesce()
        answers += ids_of(caller)
        harness.restart()
    assert answers[0] == answers[1]
    assert delivered(harness) == answers[:1]


def test_what_the_service_publishes_without_a_name_is_never_taken_for_a_duplicate() -> None:
    harness = harness_with()
    send(harness, "a")
    harness.quiesce()
    record = send(harness, "a", origin=PublishOrigin.SERVICE)
    harness.quiesce()
    assert len(delivered(harness)) == 2
    assert record.ids


def test_a_request_without_messages_is_refused_here_as_elsewhere() -> None:
    with pytest.raises(InvalidArgument):
        send(harness_with())


@pytest.mark.parametrize("lost", range(4))
def test_an_id_whose_message_was_lost_is_free_again_for_good(lost: int) -> None:
    """Of a turn's entries (source, ids, messages, messages) the last ones are not on the disks when the server
    dies.
    """
    harness = harness_with()
    send(harness, "a", data=b"1" * 100_000)  # an entry of its own
    send(harness, "b")
    while harness.soon:
        harness.soon.popleft()()
    kinds = [one.kind for one in harness.store.entries[-4:]]
    assert kinds == [EntryKind.LEDGER, EntryKind.LEDGER, EntryKind.MESSAGES, EntryKind.MESSAGES]
    del harness.store.entries[len(harness.store.entries) - lost :]
    harness.store.persist()
    for _ in range(2):
        harness.restart()
        harness.quiesce()
    again = send(harness, "a", "b")
    harness.quiesce()
    assert len(set(ids_of(again))) == 2
    assert sorted(delivered(harness)) == sorted(ids_of(again))


@pytest.mark.parametrize("last", [False, True])
def test_a_checkpoint_says_nothing_of_messages_that_are_not_in_front_of_it(last: bool) -> None:
    harness = harness_with()
    send(harness, "a")
    harness.quiesce()
    upkeep = LogUpkeep(harness.store, harness.publish, harness.follower.checkpoint_parts, 0.0)  # type: ignore[arg-type]
    send(harness, "b")  # in this turn
    upkeep.last_checkpoint() if last else upkeep.advance_checkpoint(0.0)
    ends = [at for at, one in enumerate(harness.store.entries) if one.kind == EntryKind.CHECKPOINT_END]
    del harness.store.entries[ends[-1] + 1 :]  # power is lost
    harness.store.persist()
    harness.restart()
    again = send(harness, "b")
    harness.quiesce()
    assert len(ids_of(again)) == 1
    assert sum(source.end for source in harness.publish.sources.by_number.values()) == 2, "it is stored"
    assert len(delivered(harness)) == 2


@pytest.mark.parametrize("name", [FORWARDED, FIRED])
def test_what_only_the_service_names_counts_for_nothing_from_a_client(name: str) -> None:
    """Nobody can have a message of others dropped by saying beforehand where it will have come from."""
    harness = harness_with()
    send(harness, "4.0/16777216/0", name=name)
    send(harness, "4.0/16777216/0", name=name)
    harness.quiesce()
    assert sent(harness) == 2
    send(harness, "4.0/16777216/0", name=FORWARDED, origin=PublishOrigin.FORWARD)
    send(harness, "4.0/16777216/0", name=FORWARDED, origin=PublishOrigin.FORWARD)
    harness.quiesce()
    assert sent(harness) == 3


def test_the_id_under_which_a_message_was_scheduled_is_not_its_publishers_to_say() -> None:
    harness = harness_with()
    scheduled = schedule(harness, 2, "a", "b", **{FIRED: "mine"})
    fire(harness, 3)
    subscriber = Subscriber(harness)
    harness.quiesce()
    assert [one.message.attributes[FIRED] for one in subscriber.received] == scheduled
