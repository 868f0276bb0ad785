"""The publish forwarder alone: admission, answers, failing disks, recovery, checkpoints, retention."""

from typing import Any

import pytest

from syncpoint.kernel.acks import encode_runs
from syncpoint.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.model.errors import InvalidArgument, NotFound, ResourceExhausted, Unavailable
from syncpoint.model.flow import FlowLimit
from syncpoint.publish import records
from syncpoint.publish.retention import forget_empty_sources, is_needed
from syncpoint.storage.errors import StorageDamaged
from syncpoint.storage.record import Entry, EntryKind
from syncpoint.testing.forwarder_harness import SUB, TOPIC, ForwarderHarness, HarnessCaller, Subscriber
from syncpoint.wire.messages import pubsub

DAY = 86_400


def request(**fields: object) -> bytes:
    encoded: bytes = pubsub.PublishRequest(topic=TOPIC, **fields).SerializeToString()
    return encoded


def test_bad_requests_name_the_field_and_store_nothing() -> None:
    world = ForwarderHarness()
    before = len(world.store.entries)
    for bad, text in (
        (request(), "No messages to publish"),
        (request(messages=[pubsub.PubsubMessage()]), "Some messages are empty"),
        (request(messages=[pubsub.PubsubMessage(data=b"x", attributes={"k" * 257: "v"})]), "attributes"),
        (b"\xff\xff", "not a PublishRequest"),
    ):
        with pytest.raises(InvalidArgument, match=text):
            world.publish.publish_request(HarnessCaller(), bad)
    with pytest.raises(NotFound):
        world.send("x", topic="projects/p/topics/nowhere")
    world.settle()
    assert not [entry for entry in world.store.entries[before:] if entry.kind == EntryKind.MESSAGES]
    assert world.publish.admission.system.messages == 0


def test_flow_control_refuses_before_anything_is_queued_and_recovers() -> None:
    world = ForwarderHarness()
    world.publish.admission.limits.topic = FlowLimit(0, 3000)
    callers = [world.send("x" * 1000, settle=False) for _ in range(2)]
    with pytest.raises(ResourceExhausted, match="topic projects"):
        world.send("x" * 1000, settle=False)
    world.publish.admission.limits.topic = FlowLimit()
    world.publish.admission.limits.system = FlowLimit(2, 0)
    with pytest.raises(ResourceExhausted, match="system"):
        world.send("x", settle=False)
    world.settle()
    assert all(caller.ids for caller in callers)
    assert world.send("x").ids


def test_a_lost_quorum_leaves_outcomes_unknown_and_refuses_what_is_new() -> None:
    world = ForwarderHarness()
    caller = world.send("x", settle=False)
    told: list[bool] = []
    world.publish.commit.on_failed = lambda: told.append(True)
    world.store.fail(OSError("no disk left"))
    assert told == [True]
    assert isinstance(caller.error, Unavailable)
    assert "outcome is unknown" in str(caller.error)
    with pytest.raises(Unavailable):
        world.send("y")


@pytest.mark.parametrize("failing", [EntryKind.LEDGER, EntryKind.MESSAGES, EntryKind.ACKS])
def test_a_turn_that_is_written_by_half_ends_the_log(failing: EntryKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may follow what was taken in memory and never came into the log: it would look stored, by its place."""
    world = ForwarderHarness()
    subscriber = Subscriber(world)
    world.send("first")
    ends: list[bool] = []
    world.publish.commit.on_failed = lambda: ends.append(True)
    source = world.publish.sources.of_topic(1)[0]
    confirmed: list[Exception | None] = []
    caller = world.send("x", settle=False)
    world.publish.commit.batches.append(records.BatchFact(1, 1, source.number, source.end - 1, 1))
    world.publish.server.acknowledge(2, 0, source.number, encode_runs([(0, 1)]), confirmed.append, urgent=True)
    append = world.store.append

    def out_of_memory(kind: EntryKind, *args: Any, **fields: Any) -> int:
        if kind == failing:
            raise MemoryError("not now")
        return append(kind, *args, **fields)

    with monkeypatch.context() as patched:
        patched.setattr(world.store, "append", out_of_memory)
        with pytest.raises(MemoryError):
            world.publish.commit.flush()
    assert ends == [True]
    assert caller.ids is None
    assert "outcome is unknown" in str(caller.error)
    assert [isinstance(one, Unavailable) for one in confirmed] == [True]
    with pytest.raises(Unavailable):
        world.send("y")
    world.settle()
    assert subscriber.data == ["first"]
    assert world.publish.admission.system.messages == 0


def test_publish_times_never_go_back() -> None:
    world = ForwarderHarness()
    subscriber = Subscriber(world)
    world.send("a")
    world.clock.set_time_ns(world.clock.time_ns() - 10**10)
    world.send("b")
    times = [message.message.publish_time.ToNanoseconds() for message in subscriber.received]
    assert times == sorted(times)


def test_a_restart_opens_a_new_source_and_keeps_the_old_one_until_it_is_empty() -> None:
    world = ForwarderHarness()
    world.send("a")
    world.restart()
    world.send("b")
    old, new = world.publish.sources.of_topic(1)
    assert (old.sealed, new.sealed) == (True, False)
    assert old.number < new.number
    subscriber = Subscriber(world)
    world.settle()
    assert subscriber.data == ["a", "b"]
    subscriber.ack()
    world.store.entries = [entry for entry in world.store.entries if entry.source != old.number]
    assert forget_empty_sources(world.publish) == 1
    assert world.publish.sources.of_topic(1) == [new]
    assert old.number not in world.publish.ledgers[world.record.incarnation].acks


def with_checkpoint(world: ForwarderHarness, between: list[bytes] | None = None) -> None:
    """Write a checkpoint as the node does, with facts appended between its parts."""
    parts = list(world.follower.checkpoint_parts())
    world.store.append(EntryKind.CHECKPOINT_BEGIN, b"")
    begin = len(world.store.entries)
    for part in parts:
        world.store.append(EntryKind.CHECKPOINT_PART, part)
    world.store.append(EntryKind.CHECKPOINT_END, b"")
    world.settle()
    kept = world.store.entries
    messages = [entry for entry in kept[: begin - 1] if entry.kind == EntryKind.MESSAGES]
    chosen = [entry for entry in kept[begin - 1 :] if entry.kind == EntryKind.CHECKPOINT_PART]
    later = [entry for entry in kept[begin - 1 :] if entry.kind != EntryKind.CHECKPOINT_PART]

    def replay() -> list[Entry]:
        return [*chosen, *later]

    reopened = world.store.reopened()
    reopened.replay = replay  # type: ignore[assignment, method-assign]
    assert messages
    world.soon.clear()
    world._build(reopened)


def test_a_sealed_source_whose_messages_are_on_their_way_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ForwarderHarness()
    caller = world.send("x", settle=False)
    (source,) = world.publish.sources.by_number.values()
    world.publish.seal_source(source)
    with monkeypatch.context() as patched:
        patched.setattr(world.store, "bounds", lambda number: None)  # what is not persisted is not stored yet
        assert forget_empty_sources(world.publish) == 0
    world.settle()
    assert caller.ids
    subscriber = Subscriber(world)
    world.settle()
    assert subscriber.data == ["x"]


def test_a_checkpoint_holds_everything_but_the_messages() -> None:
    world = ForwarderHarness()
    subscriber = Subscriber(world)
    world.send("a", "b", "c")
    by_data = {data: ack_id for ack_id, data in subscriber.held.items()}
    subscriber.ack(by_data["b"])
    world.take_snapshot(50)
    with_checkpoint(world)
    again = Subscriber(world)
    world.settle()
    assert again.data == ["a", "c"]
    assert list(world.publish.snapshots) == [50]


def needed(world: ForwarderHarness, age_s: float = 0.0) -> bool:
    (source,) = world.publish.sources.of_topic(1)
    return is_needed(world.publish, source.number, 0, 1, world.clock.time_ns() - int(age_s * 1e9))


def test_a_message_is_needed_until_every_subscription_has_it() -> None:
    world = ForwarderHarness()
    other = Subscription(20, "projects/p/subscriptions/other", 1, TOPIC)
    world.commit(CatalogChange.put(other))
    world.send("a")
    subscriber = Subscriber(world)
    world.settle()
    subscriber.ack()
    assert needed(world)
    world.commit(CatalogChange.delete(other))
    assert not needed(world)


def test_retention_ends_a_backlog_and_keeps_what_a_seek_may_want() -> None:
    world = ForwarderHarness(retention_s=DAY)
    world.send("a")
    assert needed(world, DAY - 1)
    assert not needed(world, DAY + 1)
    world.commit(CatalogChange.put(Topic(1, TOPIC, retention_s=3 * DAY)))
    assert needed(world, 3 * DAY - 1)
    world = ForwarderHarness(retention_s=DAY, retain_acked=True)
    subscriber = Subscriber(world)
    world.send("a")
    subscriber.ack()
    assert needed(world, DAY - 1)
    assert not needed(world, DAY + 1)


def test_a_snapshot_keeps_what_it_has_not_acknowledged() -> None:
    world = ForwarderHarness()
    subscriber = Subscriber(world)
    world.send("a")
    world.take_snapshot(expire_ns=world.clock.time_ns() + 10**9)
    subscriber.ack()
    assert needed(world)
    world.clock.advance(2)
    assert not needed(world)


def test_a_source_nobody_knows_is_not_deleted() -> None:
    world = ForwarderHarness()
    assert is_needed(world.publish, 12345, 0, 1, 0)


def test_a_deleted_topic_leaves_its_backlog_to_its_subscriptions() -> None:
    world = ForwarderHarness()
    world.send("a")
    topic = world.publish.catalog.topic(TOPIC)
    assert topic is not None
    world.commit(CatalogChange.delete(topic))
    with pytest.raises(NotFound):
        world.send("b")
    subscriber = Subscriber(world)
    world.settle()
    assert subscriber.data == ["a"]
    assert world.publish.catalog.subscription(SUB) is not None


def test_a_checkpoint_bundles_what_there_is_of_every_topic() -> None:
    """A thousand topics with a source and a ledger each are a few entries, and all come back."""
    world = ForwarderHarness()
    for number in range(10, 1010):
        name = f"projects/p/topics/topic-{number}"
        subscription = f"projects/p/subscriptions/sub-{number}"
        world.commit(
            CatalogChange.put(Topic(number, name)),
            CatalogChange.put(Subscription(number + 5000, subscription, number, name)),
        )
        world.send("x", topic=name, settle=False)
    world.settle()
    before = len(world.store.entries)
    checkpoint = world.store.checkpoint(world.follower.checkpoint_parts())
    while not checkpoint.step():
        pass
    world.settle()
    assert len(world.store.entries) - before < 20
    old = world.publish
    world.restart()
    assert world.memory.checkpointed
    assert world.memory.facts == 0
    assert set(world.publish.sources.by_number) == set(old.sources.by_number)
    assert set(world.publish.ledgers) == set(old.ledgers)
    assert world.publish.catalog.records() == old.catalog.records()


def test_facts_of_older_checkpoints_that_were_not_bundled_are_read() -> None:
    world = ForwarderHarness()
    world.send("a", "b")
    subscriber = Subscriber(world)
    world.settle()
    subscriber.ack(next(iter(subscriber.held)))
    catalog, facts = [], []
    for part in world.follower.checkpoint_parts():
        if part[0] == records.FactKind.BUNDLE:
            facts += records.unbundled(part)
        else:
            catalog.append(part)
    checkpoint = world.store.checkpoint(iter([*catalog, *facts]))
    while not checkpoint.step():
        pass
    world.settle()
    world.restart()
    assert world.memory.facts == 0
    again = Subscriber(world)
    world.settle()
    assert again.data == ["b"]


def test_a_damaged_entry_is_skipped_loudly_and_stays_unacknowledged(caplog: pytest.LogCaptureFixture) -> None:
    world = ForwarderHarness()
    for data in ("a", "b", "c"):
        world.send(data)
    read = world.store.read

    def damaged(source: int, begin: int, max_bytes: int, reply: Any, *, early: bool = False) -> None:
        if begin <= 1:
            if begin == 1:
                reply(StorageDamaged("entry 2 is on no disk in good order", resume_offset=2))
            else:
                read(source, begin, 1, reply, early=early)
        else:
            read(source, begin, max_bytes, reply, early=early)

    world.store.read = damaged  # type: ignore[method-assign]
    subscriber = Subscriber(world)
    world.settle()
    assert subscriber.data == ["a", "c"]
    assert "on no disk in good order" in caplog.text
    subscriber.ack()
    (source,) = world.publish.sources.of_topic(1)
    assert is_needed(world.publish, source.number, 1, 1, world.clock.time_ns())
