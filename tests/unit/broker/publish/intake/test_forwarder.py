"""The publish forwarder alone: admission, answers, failing disks, recovery, checkpoints, retention."""

from typing import Any

import pytest

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.model.errors import InvalidArgument, NotFound, ResourceExhausted, Unavailable
from syncpoint.base.model.flow import FlowLimit
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.dedup import BatchFact
from syncpoint.broker.publish.facts.ledger import Ledger
from syncpoint.broker.publish.keep.retention import forget_empty_sources, is_needed
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.log.storage.errors import StorageDamaged
from syncpoint.log.storage.record import Entry, EntryKind
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC, ForwarderHarness, HarnessCaller, Subscriber
from syncpoint.wire.protobuf.messages import pubsub

DAY = 86_400


def request(**fields: object) -> bytes:
    encoded: bytes = pubsub.PublishRequest(topic=TOPIC, **fields).SerializeToString()
    return encoded


def test_bad_requests_name_the_field_and_store_nothing() -> None:
    harness = ForwarderHarness()
    before = len(harness.store.entries)
    for bad, text in (
        (request(), "No messages to publish"),
        (request(messages=[pubsub.PubsubMessage()]), "Some messages are empty"),
        (request(messages=[pubsub.PubsubMessage(data=b"x", attributes={"k" * 257: "v"})]), "attributes"),
        (b"\xff\xff", "not a valid PublishRequest"),
    ):
        with pytest.raises(InvalidArgument, match=text):
            harness.publish.intake.publish_request(HarnessCaller(), bad)
    with pytest.raises(NotFound):
        harness.send("x", topic="projects/p/topics/nowhere")
    harness.quiesce()
    assert not [entry for entry in harness.store.entries[before:] if entry.kind == EntryKind.MESSAGES]
    assert harness.publish.admission.system.messages == 0


def test_flow_control_refuses_before_anything_is_queued_and_recovers() -> None:
    harness = ForwarderHarness()
    harness.publish.admission.limits.topic = FlowLimit(0, 3000)
    callers = [harness.send("x" * 1000, quiesce=False) for _ in range(2)]
    with pytest.raises(ResourceExhausted, match="topic projects"):
        harness.send("x" * 1000, quiesce=False)
    harness.publish.admission.limits.topic = FlowLimit()
    harness.publish.admission.limits.system = FlowLimit(2, 0)
    with pytest.raises(ResourceExhausted, match="system"):
        harness.send("x", quiesce=False)
    harness.quiesce()
    assert all(caller.ids for caller in callers)
    assert harness.send("x").ids


def test_all_publishers_of_a_commit_are_answered_before_anybody_learns_of_its_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = ForwarderHarness()
    other = "projects/p/topics/other"
    for change in harness.publish.catalog.assign([CatalogChange.put(Topic(3, other))]):
        harness.publish.catalog.apply(change)
    happened: list[str] = []
    monkeypatch.setattr(HarnessCaller, "reply", lambda caller, message: happened.append("answer"))
    notify = harness.publish.commit.on_visible
    monkeypatch.setattr(
        harness.publish.commit, "on_visible", lambda source: (happened.append("data"), notify(source))[1]
    )
    subscriber = Subscriber(harness)
    for number in range(3):
        harness.send(f"a{number}", quiesce=False)
        harness.send(f"b{number}", topic=other, quiesce=False)
    harness.quiesce()
    assert happened == ["answer"] * 6 + ["data"] * 2
    assert subscriber.data == ["a0", "a1", "a2"]


def test_a_lost_quorum_leaves_outcomes_unknown_and_refuses_what_is_new() -> None:
    harness = ForwarderHarness()
    caller = harness.send("x", quiesce=False)
    reported: list[bool] = []
    harness.publish.commit.on_failed = lambda: reported.append(True)
    harness.store.fail(OSError("no disk left"))
    assert reported == [True]
    assert isinstance(caller.error, Unavailable)
    assert "outcome is unknown" in str(caller.error)
    with pytest.raises(Unavailable):
        harness.send("y")


@pytest.mark.parametrize("failing", [EntryKind.LEDGER, EntryKind.MESSAGES, EntryKind.ACKS])
def test_a_turn_that_is_written_by_half_ends_the_log(failing: EntryKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may follow what was taken in memory and never came into the log: it would look stored, by its place."""
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("first")
    ends: list[bool] = []
    harness.publish.commit.on_failed = lambda: ends.append(True)
    source = harness.publish.sources.of_topic(1)[0]
    confirmed: list[Exception | None] = []
    caller = harness.send("x", quiesce=False)
    harness.publish.recent_batches.note(BatchFact(1, 1, source.number, source.end - 1, 1))
    harness.publish.server.acknowledge(2, 0, source.number, encode_runs([(0, 1)]), confirmed.append, urgent=True)
    append = harness.store.append

    def out_of_memory(kind: EntryKind, *args: Any, **fields: Any) -> int:
        if kind == failing:
            raise MemoryError("not now")
        return append(kind, *args, **fields)

    with monkeypatch.context() as patched:
        patched.setattr(harness.store, "append", out_of_memory)
        with pytest.raises(MemoryError):
            harness.publish.commit.flush()
    assert ends == [True]
    assert caller.ids is None
    assert "outcome is unknown" in str(caller.error)
    assert [isinstance(one, Unavailable) for one in confirmed] == [True]
    with pytest.raises(Unavailable):
        harness.send("y")
    harness.quiesce()
    assert subscriber.data == ["first"]
    assert harness.publish.admission.system.messages == 0


def test_publish_times_never_go_back() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a")
    harness.clock.set_time_ns(harness.clock.time_ns() - 10**10)
    harness.send("b")
    times = [message.message.publish_time.ToNanoseconds() for message in subscriber.received]
    assert times == sorted(times)


def test_a_restart_opens_a_new_source_and_keeps_the_old_one_until_it_is_empty() -> None:
    harness = ForwarderHarness()
    harness.send("a")
    harness.restart()
    harness.send("b")
    old, new = harness.publish.sources.of_topic(1)
    assert (old.sealed, new.sealed) == (True, False)
    assert old.number < new.number
    subscriber = Subscriber(harness)
    harness.quiesce()
    assert subscriber.data == ["a", "b"]
    subscriber.ack()
    harness.store.entries = [entry for entry in harness.store.entries if entry.source != old.number]
    assert forget_empty_sources(harness.publish) == 1
    assert harness.publish.sources.of_topic(1) == [new]
    assert old.number not in harness.publish.ledgers[harness.record.incarnation].acks


def with_checkpoint(harness: ForwarderHarness, between: list[bytes] | None = None) -> None:
    """Write a checkpoint as the node does, with facts appended between its parts."""
    parts = list(harness.follower.checkpoint_parts())
    harness.store.append(EntryKind.CHECKPOINT_BEGIN, b"")
    begin = len(harness.store.entries)
    for part in parts:
        harness.store.append(EntryKind.CHECKPOINT_PART, part)
    harness.store.append(EntryKind.CHECKPOINT_END, b"")
    harness.quiesce()
    kept = harness.store.entries
    messages = [entry for entry in kept[: begin - 1] if entry.kind == EntryKind.MESSAGES]
    chosen = [entry for entry in kept[begin - 1 :] if entry.kind == EntryKind.CHECKPOINT_PART]
    later = [entry for entry in kept[begin - 1 :] if entry.kind != EntryKind.CHECKPOINT_PART]

    def replay() -> list[Entry]:
        return [*chosen, *later]

    reopened = harness.store.reopened()
    reopened.replay = replay  # type: ignore[assignment, method-assign]
    assert messages
    harness.soon.clear()
    harness._build(reopened)


def test_a_sealed_source_whose_messages_are_on_their_way_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ForwarderHarness()
    caller = harness.send("x", quiesce=False)
    (source,) = harness.publish.sources.by_number.values()
    harness.publish.seal_source(source)
    with monkeypatch.context() as patched:
        patched.setattr(harness.store, "bounds", lambda number: None)  # what is not persisted is not stored yet
        assert forget_empty_sources(harness.publish) == 0
    harness.quiesce()
    assert caller.ids
    subscriber = Subscriber(harness)
    harness.quiesce()
    assert subscriber.data == ["x"]


def test_a_checkpoint_holds_everything_but_the_messages() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a", "b", "c")
    by_data = {data: ack_id for ack_id, data in subscriber.held.items()}
    subscriber.ack(by_data["b"])
    harness.take_snapshot(50)
    with_checkpoint(harness)
    again = Subscriber(harness)
    harness.quiesce()
    assert again.data == ["a", "c"]
    assert list(harness.publish.snapshots) == [50]


def needed(harness: ForwarderHarness, age_s: float = 0.0) -> bool:
    harness.checkpoint()  # it states where the source ends
    (source,) = harness.publish.sources.of_topic(1)
    return is_needed(harness.publish, source.number, 0, 1, harness.clock.time_ns() - int(age_s * 1e9))


def test_a_message_is_needed_until_every_subscription_has_it() -> None:
    harness = ForwarderHarness()
    other = Subscription(20, "projects/p/subscriptions/other", 1, TOPIC)
    harness.commit(CatalogChange.put(other))
    harness.send("a")
    subscriber = Subscriber(harness)
    harness.quiesce()
    subscriber.ack()
    assert needed(harness)
    harness.publish.ledgers.drop(20)
    assert needed(harness), "what the other has acknowledged is not known here"
    harness.commit(CatalogChange.delete(other))
    assert not needed(harness)


def test_retention_ends_a_backlog_and_keeps_what_a_seek_may_want() -> None:
    harness = ForwarderHarness(retention_s=DAY)
    harness.send("a")
    assert needed(harness, DAY - 1)
    assert not needed(harness, DAY + 1)
    harness.publish.replace_acks(2, {}, None, renewed_ns=harness.clock.time_ns())
    assert needed(harness, DAY + 1)
    harness.clock.advance(DAY)
    assert not needed(harness, DAY + 1)
    harness.commit(CatalogChange.put(Topic(1, TOPIC, retention_s=3 * DAY)))
    assert needed(harness, 3 * DAY - 1)
    harness = ForwarderHarness(retention_s=DAY, retain_acked=True)
    subscriber = Subscriber(harness)
    harness.send("a")
    subscriber.ack()
    assert needed(harness, DAY - 1)
    assert not needed(harness, DAY + 1)


def test_a_snapshot_keeps_what_it_has_not_acknowledged() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a")
    harness.take_snapshot(expire_ns=harness.clock.time_ns() + 10**9)
    subscriber.ack()
    assert needed(harness)
    harness.publish.ledgers.drop_snapshot(*harness.publish.snapshots)
    assert needed(harness), "what it has acknowledged is not known here"
    harness.clock.advance(2)
    assert not needed(harness)


def test_a_source_nobody_knows_is_not_deleted() -> None:
    harness = ForwarderHarness()
    assert is_needed(harness.publish, 12345, 0, 1, 0)


def test_a_deleted_topic_leaves_its_backlog_to_its_subscriptions() -> None:
    harness = ForwarderHarness()
    harness.send("a")
    topic = harness.publish.catalog.topic(TOPIC)
    assert topic is not None
    harness.commit(CatalogChange.delete(topic))
    with pytest.raises(NotFound):
        harness.send("b")
    subscriber = Subscriber(harness)
    harness.quiesce()
    assert subscriber.data == ["a"]
    assert harness.publish.catalog.subscription(SUB) is not None


def test_a_checkpoint_bundles_what_there_is_of_every_topic() -> None:
    """A thousand topics with a source and a ledger each are a few entries, and all come back."""
    harness = ForwarderHarness()
    for number in range(10, 1010):
        name = f"projects/p/topics/topic-{number}"
        subscription = f"projects/p/subscriptions/sub-{number}"
        harness.commit(
            CatalogChange.put(Topic(number, name)),
            CatalogChange.put(Subscription(number + 5000, subscription, number, name)),
        )
        harness.send("x", topic=name, quiesce=False)
    harness.quiesce()
    before = len(harness.store.entries)
    harness.checkpoint()
    assert len(harness.store.entries) - before < 20
    old = harness.publish
    harness.restart()
    assert harness.memory.checkpointed
    assert harness.memory.facts == 0
    assert set(harness.publish.sources.by_number) == set(old.sources.by_number)
    assert set(harness.publish.ledgers) == set(old.ledgers)
    assert harness.publish.catalog.records() == old.catalog.records()


def test_facts_of_older_checkpoints_that_were_not_bundled_are_read() -> None:
    harness = ForwarderHarness()
    harness.send("a", "b")
    subscriber = Subscriber(harness)
    harness.quiesce()
    subscriber.ack(next(iter(subscriber.held)))
    catalog, facts = [], []
    for part in harness.follower.checkpoint_parts():
        if part[0] == records.FactKind.BUNDLE:
            facts += records.unbundled(part)
        else:
            catalog.append(part)
    checkpoint = harness.store.checkpoint(iter([*catalog, *facts]))
    while not checkpoint.step():
        pass
    harness.quiesce()
    harness.restart()
    assert harness.memory.facts == 0
    again = Subscriber(harness)
    harness.quiesce()
    assert again.data == ["b"]


def test_a_damaged_entry_is_skipped_loudly_and_stays_unacknowledged(caplog: pytest.LogCaptureFixture) -> None:
    harness = ForwarderHarness()
    for data in ("a", "b", "c"):
        harness.send(data)
    read = harness.store.read

    def damaged(source: int, begin: int, max_bytes: int, reply: Any, *, early: bool = False) -> None:
        if begin <= 1:
            if begin == 1:
                reply(StorageDamaged("entry 2 is no good copy on any disk", resume_offset=2))
            else:
                read(source, begin, 1, reply, early=early)
        else:
            read(source, begin, max_bytes, reply, early=early)

    harness.store.read = damaged  # type: ignore[method-assign]
    subscriber = Subscriber(harness)
    harness.quiesce()
    assert subscriber.data == ["a", "c"]
    assert "no good copy on any disk" in caplog.text
    subscriber.ack()
    (source,) = harness.publish.sources.of_topic(1)
    assert is_needed(harness.publish, source.number, 1, 1, harness.clock.time_ns())


def test_an_older_seek_that_is_persisted_does_not_release_what_a_newer_one_holds() -> None:
    harness = ForwarderHarness()
    harness.send("a")
    harness.advance(1)
    (source,) = harness.publish.sources.of_topic(1)
    server = harness.publish.server
    served: list[Any] = []
    older, newer = Ledger(2), Ledger(2)
    server.begin_reset(older)
    server.begin_reset(newer)
    server.on_reset_persisted(older)
    assert not server.is_reset_persisted(2)
    server.fetch(2, source.number, 0, 1000, served.append)
    assert served == [[]]
    server.on_reset_persisted(newer)
    assert server.is_reset_persisted(2)
    server.fetch(2, source.number, 0, 1000, served.append)
    assert len(served[1]) == 1
