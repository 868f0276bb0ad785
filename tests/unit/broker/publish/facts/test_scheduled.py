"""Messages that wait for their time: published once, never early, cancelled or not, whatever crashes in between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from syncpoint.base.kernel.frames import message_at
from syncpoint.base.model.errors import InvalidArgument, NotFound, ResourceExhausted, Unavailable
from syncpoint.base.model.identity import parse_message_id
from syncpoint.base.model.reserved import SCHEDULED_ID
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.broker.publish.facts.message_facts import FactLog
from syncpoint.broker.publish.facts.scheduled import Scheduled, ScheduledMessages
from syncpoint.broker.publish.facts.source import WAITING_TOPIC, Source
from syncpoint.broker.publish.intake import firing
from syncpoint.broker.publish.intake.scheduled_calls import cancel_scheduled
from syncpoint.broker.publish.keep.retention import is_needed
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.log.storage.record import EntryKind
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC, ForwarderHarness, HarnessCaller, Subscriber
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.examples import examples

pytestmark = pytest.mark.shows("schedules")

AT = "sys.ScheduledEnqueueTimeUtc"
ID = "sys.ScheduledMessageId"
OTHER, OTHER_SUB = "projects/p/topics/other", "projects/p/subscriptions/other"


def schedule(harness: ForwarderHarness, seconds: float, *data: str, **rest: Any) -> list[str]:
    caller = harness.send(*data, **{AT: harness.ahead(seconds)}, **rest)
    assert caller.error is None
    assert caller.ids is not None
    return caller.ids


def mixed(harness: ForwarderHarness, *messages: tuple[str, float | None]) -> HarnessCaller:
    """One request, of (data, seconds ahead or None)."""
    caller = HarnessCaller()
    request = pubsub.PublishRequest(topic=TOPIC)
    for data, ahead in messages:
        request.messages.add(data=data.encode(), attributes={} if ahead is None else {AT: harness.ahead(ahead)})
    harness.publish.intake.publish_request(caller, request.SerializeToString())
    harness.quiesce()
    return caller


def cancel(harness: ForwarderHarness, message_id: str) -> None:
    _, source, offset = parse_message_id(message_id)
    outcome: list[Exception | None] = []
    cancel_scheduled(harness.publish, 1, source, offset, outcome.append)
    harness.quiesce()
    assert outcome == [None]


def kept_waiting(harness: ForwarderHarness) -> int:
    """Entries of the waiting source that may not be deleted, once a checkpoint states where it ends."""
    harness.checkpoint()
    sources = {one.number for one in harness.publish.sources.of_topic(WAITING_TOPIC)}
    found = [e for e in harness.store.entries if e.kind == EntryKind.MESSAGES and e.source in sources]
    return sum(is_needed(harness.publish, e.source, e.first_offset, e.count, e.time_ns) for e in found)


def test_a_message_is_published_when_its_time_has_come_as_if_it_were_published_then() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    (name,) = schedule(harness, 5.0, "later")
    harness.send("now")
    harness.advance(4.8)
    assert subscriber.data == ["now"]
    harness.advance(0.3)
    assert subscriber.data == ["now", "later"]
    message = subscriber.received[1].message
    assert message.attributes[ID] == name != message.message_id
    assert (
        parse_message_id(message.message_id).source
        == parse_message_id(subscriber.received[0].message.message_id).source
    )
    due = datetime.fromisoformat(message.attributes[AT])
    late = message.publish_time.ToDatetime(tzinfo=UTC) - due
    assert timedelta(0) <= late <= timedelta(seconds=0.2)
    subscriber.ack()
    harness.advance(60)
    assert len(subscriber.data) == 2
    assert kept_waiting(harness) == 0
    assert not len(harness.publish.scheduled)


@pytest.mark.parametrize("when", [-100.0, 0.0])
def test_a_time_that_is_over_is_now(when: float) -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    schedule(harness, when, "x")
    harness.advance(0.1)
    assert subscriber.data == ["x"]


def test_ids_come_in_the_order_of_a_request_that_is_divided() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    caller = mixed(harness, ("a", None), ("b", 3.0), ("c", None), ("d", 1.0), ("e", None))
    assert caller.ids is not None
    assert len(set(caller.ids)) == 5
    assert subscriber.data == ["a", "c", "e"]
    assert [one.message.message_id for one in subscriber.received] == [caller.ids[i] for i in (0, 2, 4)]
    harness.advance(5)
    assert subscriber.data == ["a", "c", "e", "d", "b"]
    assert [one.message.attributes[ID] for one in subscriber.received[3:]] == [caller.ids[3], caller.ids[1]]


@pytest.mark.parametrize("text", ["", "soon", "2026-11-23", "2026-11-23T18:00:00", "2026-02-30T00:00:00Z", "5m"])
def test_what_is_no_time_is_refused_by_name(text: str) -> None:
    harness = ForwarderHarness()
    with pytest.raises(InvalidArgument, match=r"sys\.ScheduledEnqueueTimeUtc must be an RFC 3339 time"):
        harness.send("x", **{AT: text})
    assert not len(harness.publish.scheduled)


def test_times_too_far_ahead_are_refused_and_nothing_of_the_request_is_stored() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    with pytest.raises(InvalidArgument, match=r"messages\[1\].*366 days"):
        mixed(harness, ("a", None), ("b", 367 * 86_400.0))
    harness.quiesce()
    assert subscriber.data == []
    schedule(harness, 365 * 86_400.0, "ok")


def test_no_more_wait_than_memory_is_meant_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncpoint.broker.publish.facts.scheduled.WAITING_MAX", 2)
    harness = ForwarderHarness()
    schedule(harness, 5, "a", "b")
    with pytest.raises(ResourceExhausted, match="scheduled messages are already waiting"):
        schedule(harness, 5, "c")


def test_no_project_takes_the_room_of_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncpoint.broker.publish.facts.scheduled.WAITING_MAX", 100)
    waiting = ScheduledMessages(FactLog(lambda *entry: None))
    names = {1: "projects/evil/topics/a", 2: "projects/evil/topics/b", 3: "projects/good/topics/a"}
    taken = 0

    def schedules(topic: int, count: int) -> bool:
        nonlocal taken
        try:
            waiting.check_room(names[topic], count, lambda one: names.get(one, ""))
        except ResourceExhausted:
            return False
        waiting.note(*(Scheduled(10, 1, taken + at, topic) for at in range(count)))
        taken += count
        return True

    while schedules(1, 5) or schedules(2, 5):
        pass
    assert len(waiting) == 50
    assert schedules(3, 20)
    assert not schedules(1, 1)
    assert not schedules(2, 1)
    assert schedules(3, 5)
    waiting.cancel(waiting.of_topic(1, None, 40))
    assert schedules(2, 1)


def test_a_cancelled_message_is_not_published_also_after_a_crash() -> None:
    harness = ForwarderHarness()
    kept, dropped = schedule(harness, 5, "kept", "dropped")
    cancel(harness, dropped)
    with pytest.raises(NotFound):
        cancel(harness, dropped)
    harness.restart()
    with pytest.raises(NotFound):
        cancel(harness, dropped)
    subscriber = Subscriber(harness)
    harness.advance(6)
    assert subscriber.data == ["kept"]
    with pytest.raises(NotFound):
        cancel(harness, kept)


def test_of_another_topic_nothing_is_cancelled() -> None:
    harness = ForwarderHarness()
    (name,) = schedule(harness, 5, "x")
    _, source, offset = parse_message_id(name)
    with pytest.raises(NotFound):
        cancel_scheduled(harness.publish, 2, source, offset, lambda error: None)


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_what_waits_outlives_crashes_and_fires_once(with_checkpoint: bool) -> None:
    harness = ForwarderHarness()
    schedule(harness, 1, "a")
    schedule(harness, 30, "b", "c")
    harness.advance(2)
    for _ in range(3):
        if with_checkpoint:
            harness.checkpoint()
        harness.restart()
        assert len(harness.publish.scheduled) == 2
        assert kept_waiting(harness) == 1
    harness.advance(40)
    subscriber = Subscriber(harness)
    harness.advance(0.1)
    assert subscriber.data == ["a", "b", "c"]
    for _ in range(2):
        harness.restart()
        assert not len(harness.publish.scheduled)
        assert kept_waiting(harness) == 0


@pytest.mark.parametrize("persisted", range(8))
def test_a_crash_in_the_turn_that_fires_loses_nothing_and_doubles_nothing(persisted: int) -> None:
    """The log ends behind each entry of that turn."""
    harness = ForwarderHarness()
    harness.commit(CatalogChange.put(Topic(5, OTHER)), CatalogChange.put(Subscription(6, OTHER_SUB, 5, OTHER)))
    harness.send("plain")
    harness.send("plain", topic=OTHER)
    schedule(harness, 1, "a")
    schedule(harness, 1, "b", topic=OTHER)
    before = harness.store.appended
    harness.clock.advance(2)
    harness.firing.tick()
    while harness.soon:
        harness.soon.popleft()()
    written = harness.store.appended - before
    assert written >= 3  # the fact, two entries of messages
    harness.store._persisted = len(harness.store.entries) - written + min(persisted, written)
    harness.restart()
    harness.advance(1)
    harness.restart()  # and what was decided then stays decided
    harness.advance(1)
    stored = [
        bytes(message_at(entry.payload, index))
        for entry in harness.store.entries
        if entry.kind == EntryKind.MESSAGES
        for index in range(entry.count)
        if harness.publish.sources.by_number[entry.source].topic != WAITING_TOPIC
    ]
    assert sorted(pubsub.PubsubMessage.FromString(one).data for one in stored) == [b"a", b"b", b"plain", b"plain"]


def test_what_was_not_persisted_does_not_wait() -> None:
    harness = ForwarderHarness()
    harness.send("x")
    harness.send("lost", **{AT: harness.ahead(1)}, quiesce=False)
    while harness.soon:
        harness.soon.popleft()()
    harness.store._persisted = len(harness.store.entries) - 1  # the fact is there, its message is not
    harness.restart()
    assert not len(harness.publish.scheduled)
    subscriber = Subscriber(harness)
    schedule(harness, 1, "new")
    harness.advance(3)
    assert subscriber.data == ["x", "new"]


def test_firings_are_judged_alike_when_their_messages_are_deleted() -> None:
    """A start decides by what is stored; what it has decided stands before anything is deleted."""
    harness = ForwarderHarness()
    schedule(harness, 1, "a")
    subscriber = Subscriber(harness)
    harness.advance(2)
    subscriber.ack()
    harness.restart()
    position = next(e.position for e in harness.store.entries if e.kind == EntryKind.MESSAGES and e.source !=
                    next(iter(harness.publish.sources.of_topic(WAITING_TOPIC))).number)  # fmt: skip
    harness.quiesce()
    harness.store._deleted.add(position)
    harness.restart()
    assert not len(harness.publish.scheduled)


def test_a_wall_clock_that_runs_ahead_fires_nothing_early() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    schedule(harness, 60, "x")
    harness.clock.set_time_ns(harness.clock.time_ns() + 3_600_000_000_000)
    harness.advance(30)
    assert subscriber.data == []
    harness.advance(31)
    assert subscriber.data == ["x"]


def test_planted_firing_by_the_wall_clock_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrustedClock, "sure_ns", TrustedClock.time_ns)
    with pytest.raises(AssertionError):
        test_a_wall_clock_that_runs_ahead_fires_nothing_early()


def test_planted_forgetting_at_a_checkpoint_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScheduledMessages, "facts", lambda self: iter(()))
    with pytest.raises(AssertionError):
        test_what_waits_outlives_crashes_and_fires_once(True)


def test_planted_firing_again_by_the_next_owner_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ScheduledMessages.reconcile
    monkeypatch.setattr(ScheduledMessages, "reconcile", lambda self, fired, *rest: right(self, (), *rest))
    with pytest.raises(AssertionError):
        test_what_waits_outlives_crashes_and_fires_once(False)


def test_planted_believing_every_firing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ScheduledMessages.reconcile
    monkeypatch.setattr(
        ScheduledMessages, "reconcile", lambda self, fired, unsure, *rest: right(self, fired, (), *rest)
    )
    with pytest.raises(AssertionError):
        test_a_crash_in_the_turn_that_fires_loses_nothing_and_doubles_nothing(1)


def test_with_its_topic_goes_what_waits_for_it() -> None:
    harness = ForwarderHarness()
    schedule(harness, 5, "x")
    harness.commit(CatalogChange.delete(harness.record), CatalogChange.delete(Topic(1, TOPIC)))
    assert not len(harness.publish.scheduled)
    assert kept_waiting(harness) == 0
    harness.advance(10)
    assert harness.firing.fired == 0


def test_keys_come_in_the_order_of_their_times_then_of_scheduling() -> None:
    harness = ForwarderHarness(ordered=True)
    subscriber = Subscriber(harness)
    schedule(harness, 3, "3a", key="k")
    schedule(harness, 2, "2a", key="k")
    schedule(harness, 3, "3b", key="k")
    schedule(harness, 2, "2b", key="k")
    harness.clock.advance(5)  # all of it is late
    for _ in range(4):
        harness.advance(0.1)
        subscriber.ack()
    assert subscriber.data == ["2a", "2b", "3a", "3b"]


def test_time_to_live_counts_from_firing() -> None:
    harness = ForwarderHarness()
    schedule(harness, 60, "x", **{"sys.TimeToLive": "0:0:5"})
    schedule(harness, 60, "y", **{"sys.TimeToLive": "0:1:0"})
    harness.advance(61)
    harness.advance(10)
    subscriber = Subscriber(harness)
    harness.advance(0.1)
    assert subscriber.data == ["y"]


def test_what_cannot_be_read_is_tried_again_and_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    schedule(harness, 1, "bad")
    harness.store.damaged = {harness.store.entries[-1].position}
    schedule(harness, 1, "good")
    harness.advance(2)
    assert subscriber.data == ["good"]
    subscriber.ack()
    assert not [one for one in caplog.records if one.levelname == "ERROR"], "behind a kill it is soon there"
    harness.advance(firing.LASTS_NS / 1e9 + 1)
    errors = [one.message for one in caplog.records if one.levelname == "ERROR"]
    assert errors
    assert all("cannot be read" in one for one in errors)
    harness.store.damaged = set()
    harness.advance(2)
    assert subscriber.data == ["good", "bad"]


def test_topics_that_nothing_can_be_published_to_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was lost with the catalog, one that is not admitted, one of which no source can be opened."""
    monkeypatch.setattr(firing, "TURN_MESSAGES", 5)
    harness = ForwarderHarness()
    names = {number: f"projects/p/topics/t{number}" for number in (11, 12, 13)}
    for number, name in names.items():
        harness.commit(CatalogChange.put(Topic(number, name)))
    for number, name in names.items():
        for _ in range(9):
            schedule(harness, number, "waits", topic=name)
    mine = schedule(harness, 20, "mine")
    home, catalog = harness.firing._home, harness.publish.catalog
    lost, open_source = catalog.topic_by_incarnation, home.open_source
    without = SimpleNamespace(topic_by_incarnation=lambda topic: None if topic == 11 else lost(topic))
    monkeypatch.setattr(harness.publish, "catalog", without)
    monkeypatch.setattr(home, "admits", lambda topic: topic != 12)

    def opened(topic: int) -> Source:
        if topic == 13:
            raise Unavailable("not now")
        return open_source(topic)

    monkeypatch.setattr(home, "open_source", opened)
    harness.advance(21)
    for _ in range(5):
        harness.firing.tick()
        harness.quiesce()
    assert harness.firing.fired == len(mine)
    monkeypatch.undo()
    harness.advance(firing.AGAIN_NS / 1e9)
    for _ in range(50):
        harness.firing.tick()
        harness.quiesce()
    assert harness.firing.fired == 28


def test_letters_and_what_was_accepted_before_wait_for_nothing() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    caller = HarnessCaller()
    message = pubsub.PubsubMessage(data=b"letter", attributes={AT: harness.ahead(60)})
    harness.publish.intake.letter(caller, pubsub.PublishRequest(topic=TOPIC, messages=[message]).SerializeToString())
    harness.quiesce()
    assert subscriber.data == ["letter"]


def test_many_due_at_once_come_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "TURN_MESSAGES", 7)
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    for at_once in range(10):
        schedule(harness, 5 - at_once * 0.01, *(f"{at_once}.{one}" for one in range(10)))
    harness.advance(6)
    assert len(subscriber.data) == len(set(subscriber.data)) == 100
    assert subscriber.data[0] == "9.0"
    assert harness.firing.fired == 100


steps = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), st.integers(0, 40)),
        st.tuples(st.just("plain"), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("pass"), st.integers(1, 15)),
        st.tuples(st.just("crash"), st.integers(0, 4)),
        st.tuples(st.just("checkpoint"), st.just(0)),
        st.tuples(st.just("collect"), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_against_a_plain_model(plan: list[tuple[str, int]]) -> None:
    """`crash`: with the last so many entries not on the disks, of a tick that may have fired something."""
    harness = ForwarderHarness(retention_s=86_400)
    waiting: dict[str, tuple[int, str]] = {}  # id -> due, data
    cancelled: set[str] = set()
    expected: set[str] = set()
    dues: dict[str, int] = {}
    for number, (step, value) in enumerate(plan):
        if step == "schedule":
            (name,) = schedule(harness, value, f"m{number}")
            dues[name] = harness.clock.time_ns() + value * 1_000_000_000
            waiting[name] = dues[name], f"m{number}"
        elif step == "plain":
            harness.send(f"m{number}")
            expected.add(f"m{number}")
        elif step == "cancel" and waiting:
            name = sorted(waiting)[value % len(waiting)]
            _, data = waiting.pop(name)
            try:
                cancel(harness, name)
                cancelled.add(data)
            except NotFound:
                assert dues[name] <= harness.clock.time_ns()
                expected.add(data)
        elif step == "pass":
            harness.advance(value)
        elif step == "crash":
            before = len(harness.store.entries)
            harness.clock.advance(value)
            harness.firing.tick()
            while harness.soon:
                harness.soon.popleft()()
            written = len(harness.store.entries) - before
            harness.store._persisted = max(before, before + written - value)
            harness.restart()
        elif step == "checkpoint":
            harness.checkpoint()
        elif step == "collect":
            harness.store.collect(lambda *entry: is_needed(harness.publish, *entry))
    harness.advance(60)
    subscriber = Subscriber(harness, max_messages=10_000)
    harness.advance(1)
    expected |= {data for _, data in waiting.values()}
    assert sorted(subscriber.data) == sorted(expected)
    assert not cancelled & set(subscriber.data)
    for one in subscriber.received:
        name = one.message.attributes.get(ID)
        if name:
            assert one.message.publish_time.ToNanoseconds() >= dues[name] - 1000


def test_names_that_tests_use_are_the_products() -> None:
    assert ID == SCHEDULED_ID
    assert ScheduledMessages.head == bytes((11, 60))
    assert SUB
