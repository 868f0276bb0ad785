"""The catalog: lookups, listings, replay by revision, checkpoints, and how much memory it takes."""

from __future__ import annotations

import dataclasses
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.catalog.metadata.catalog import Catalog, listening
from syncpoint.catalog.metadata.entity_options import SubscriptionOptions, TopicOptions
from syncpoint.catalog.metadata.records import (
    ACTIVE,
    CREATING,
    Author,
    CatalogChange,
    ChangeOp,
    DeadLetter,
    Feature,
    Record,
    Retry,
    SeekTarget,
    Setting,
    Snapshot,
    Subscription,
    Topic,
    TopicSchema,
    decode_changes,
    decode_record,
    encode_changes,
    encode_record,
)
from syncpoint.wire.protobuf.messages import pubsub

T = "projects/p/topics/t"


def applied(catalog: Catalog, *changes: CatalogChange) -> Catalog:
    for change in catalog.assign(changes):
        assert catalog.apply(change)
    return catalog


def sample() -> Catalog:
    return applied(
        Catalog(),
        CatalogChange.put(Topic(1, T)),
        CatalogChange.put(Subscription(2, "projects/p/subscriptions/s", 1, T)),
        CatalogChange.put(Snapshot(3, "projects/p/snapshots/n", 1, T)),
        CatalogChange.put(Setting("limits", b"v")),
    )


def test_projects_and_settings_are_listed_in_order() -> None:
    catalog = Catalog()
    named = ["a", "a-b", "a.b", "ab", "b", "z"]
    for number, project in enumerate(reversed(named), 1):
        topic = f"projects/{project}/topics/t"
        applied(catalog, CatalogChange.put(Topic(number, topic)), CatalogChange.put(Topic(100 + number, topic + "2")))
    applied(catalog, CatalogChange.put(Subscription(200, "projects/q/subscriptions/s", 1, T)))
    assert catalog.projects() == sorted(f"projects/{one}" for one in [*named, "q"])
    for name in ("key:b", "key", "key:", "other", "key:a", "kez"):
        applied(catalog, CatalogChange.put(Setting(name, b"1")), CatalogChange.put(Setting(name, b"2")))
    assert catalog.settings_named("key:") == ["key:", "key:a", "key:b"]
    applied(catalog, CatalogChange.delete(Setting("key:a")), CatalogChange.delete(Setting("gone")))
    assert catalog.settings_named("key") == ["key", "key:", "key:b"]
    assert Catalog.from_parts(catalog.encode_parts()).settings_named("") == ["key", "key:", "key:b", "kez", "other"]


def test_lookups() -> None:
    catalog = sample()
    topic, subscription = catalog.topic(T), catalog.subscription_by_incarnation(2)
    snapshot = catalog.snapshot_by_incarnation(3)
    assert topic is not None
    assert subscription is not None
    assert snapshot is not None
    assert catalog.topic_by_incarnation(1) is topic
    assert catalog.subscription("projects/p/subscriptions/s") is subscription
    assert catalog.snapshot("projects/p/snapshots/n") is snapshot
    assert catalog.topic_of(subscription) is topic
    assert catalog.subscriptions_of(1) == [subscription]
    assert catalog.subscription_count_of(1) == 1
    assert catalog.snapshots_of(1) == [snapshot]
    assert catalog.setting("limits") == b"v"
    assert catalog.counts() == (1, 1, 1)
    assert catalog.next_incarnation() == 4


def test_a_subscription_outlives_its_topic_and_never_meets_the_next_one() -> None:
    catalog = sample()
    subscription = catalog.subscription_by_incarnation(2)
    assert subscription is not None
    applied(catalog, CatalogChange.delete(Topic(1, T)), CatalogChange.put(Topic(catalog.next_incarnation(), T)))
    assert catalog.topic_of(subscription) is None
    assert catalog.subscriptions_of(1) == [subscription]
    assert catalog.subscriptions_of(4) == []
    assert catalog.snapshots_of(1)


def test_deleting_forgets_every_index() -> None:
    catalog = sample()
    applied(catalog, *(CatalogChange.delete(record) for record in catalog.records()))
    assert catalog.records() == []
    assert catalog.counts() == (0, 0, 0)
    assert catalog.subscriptions_of(1) == catalog.snapshots_of(1) == []
    assert catalog.topics_in("projects/p", None, 10) == []
    assert catalog.next_incarnation() == 4  # never reused


def test_changes_apply_once_and_in_order() -> None:
    catalog = sample()
    revision = catalog.revision
    assert not catalog.apply(CatalogChange(revision, ChangeOp.DELETE, Topic(1, T)))
    assert catalog.topic(T) is not None
    with pytest.raises(ValueError, match="was given change"):
        catalog.apply(CatalogChange(revision + 2, ChangeOp.DELETE, Topic(1, T)))


def test_broken_promises_are_noticed() -> None:
    catalog = sample()
    with pytest.raises(ValueError, match="taken"):
        catalog.apply(CatalogChange(5, ChangeOp.PUT, Topic(9, T)))
    with pytest.raises(ValueError, match="changed its name"):
        catalog.apply(CatalogChange(5, ChangeOp.PUT, Topic(1, T + "x")))
    assert catalog.revision == 4
    assert catalog.records() == sample().records()


def test_listing_is_sorted_by_project_and_stable_under_inserts() -> None:
    catalog = Catalog()
    names = [f"projects/{p}/topics/{t}" for p in ("p", "p-2", "q") for t in ("ccc", "aaa", "Zzz", "bbb")]
    for number, name in enumerate(names, 1):
        applied(catalog, CatalogChange.put(Topic(number, name)))
    first = catalog.topics_in("projects/p", None, 2)
    assert [topic.name for topic in first] == ["projects/p/topics/Zzz", "projects/p/topics/aaa"]
    applied(catalog, CatalogChange.put(Topic(90, "projects/p/topics/AAA")), CatalogChange.delete(first[1]))
    rest = catalog.topics_in("projects/p", first[1].name, 10)
    assert [topic.name for topic in rest] == ["projects/p/topics/bbb", "projects/p/topics/ccc"]
    assert catalog.topics_in("projects/none", None, 10) == []
    assert catalog.topics_in("projects/p", "projects/p/topics/zzz", 10) == []


numbers = st.integers(1, 2**63 - 1)
names = st.text(min_size=1, max_size=20)
topics = st.builds(Topic, numbers, names, st.binary(max_size=30), st.integers(0, 10**7), st.integers(0, 2**62))
subscriptions = st.builds(
    Subscription,
    numbers,
    names,
    numbers,
    names,
    config=st.binary(max_size=30),
    ack_deadline_s=st.integers(10, 600),
    retention_s=st.integers(0, 10**7),
    retain_acked=st.booleans(),
    ordered=st.booleans(),
    exactly_once=st.booleans(),
    filter_text=names,
    dead_letter=st.none() | st.builds(DeadLetter, names, st.integers(5, 100)),
    retry=st.none() | st.builds(Retry, st.floats(0, 600), st.floats(0, 600)),
    detached=st.booleans(),
    generation=st.integers(0, 2**32),
    early_delivery=st.booleans(),
    expiration_s=st.none() | st.integers(86_400, 10**9),
)
snapshots = st.builds(Snapshot, numbers, names, numbers, names, config=st.binary(max_size=2_000), expire_ns=numbers)
records = st.one_of(topics, subscriptions, snapshots, st.builds(Setting, names, st.binary(max_size=10)))


@given(st.lists(st.builds(CatalogChange, st.integers(0, 2**40), st.sampled_from(ChangeOp), records), max_size=4))
def test_changes_survive_the_log(changes: list[CatalogChange]) -> None:
    assert decode_changes(encode_changes(changes)) == changes


@given(records)
def test_records_survive_the_store(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


def test_every_field_is_stored() -> None:
    """A new attribute that the stored form forgets would come back as its default."""
    full = Subscription(
        7, "n", 8, "t", b"c", 1, 20, 30, True, True, True, "f", DeadLetter("d", 6), Retry(1.5, 2.5), True, 3, True, 99,
        CREATING, 5, SeekTarget(time_ns=0), 6, SubscriptionOptions(receive_suspended=True),
        Author("user:a@b"), Author("serviceAccount:c@d?uid=1", ("group:g@b",)), Author("user:e@f"),
    )  # fmt: skip
    for field in dataclasses.fields(Subscription):
        if field.init and field.default is not dataclasses.MISSING:
            assert getattr(full, field.name) != field.default, field.name
    others = [
        Topic(
            7,
            "n",
            b"c",
            20,
            1,
            "bulk",
            ("eu", "us"),
            True,
            TopicSchema("s", 2**64 - 1, 2, 3, 4),
            TopicOptions(True),
            Author("user:a@b"),
            Author("user:e@f"),
        ),
        Snapshot(7, "n", 8, "t", b"c", 1, 2, CREATING, 9, 0),
    ]
    for record in others:
        for field in dataclasses.fields(record):
            if field.init and field.default is not dataclasses.MISSING:
                assert getattr(record, field.name) != field.default, field.name
    by_snapshot = dataclasses.replace(full, target=SeekTarget(snapshot=4))
    for stored in (full, by_snapshot, *others):
        assert decode_record(encode_record(stored)) == stored


def test_what_a_node_stored_before_there_were_clusters_is_read() -> None:
    """Bytes as one node always wrote them: what is usual for a cluster's fields takes no room."""
    topic = Topic(1, "t", b"c", 600, 7)
    assert encode_record(topic) == bytes.fromhex("0a0d08011201741a016320d8042807")
    assert decode_record(encode_record(topic)) == topic
    subscription = Subscription(2, "s", 1, "t")
    assert encode_record(subscription) == bytes.fromhex("121008021201731801220174380a4080f524")
    assert decode_record(encode_record(subscription)) == subscription
    assert (subscription.state, subscription.target) == (ACTIVE, None)


histories = st.lists(
    st.tuples(st.sampled_from(["topic", "subscription", "snapshot", "setting", "delete"]), st.integers(0, 5)),
    max_size=25,
)


def history(steps: list[tuple[str, int]]) -> list[CatalogChange]:
    """Legal changes made of arbitrary steps."""
    catalog, changes = Catalog(), []
    for kind, number in steps:
        record: Record
        if kind == "delete":
            found = catalog.records()
            if not found:
                continue
            change = CatalogChange.delete(found[number % len(found)])
        else:
            topic = next(catalog.topics(), Topic(1, "projects/p/topics/gone"))
            name = f"projects/p/{kind}s/{number}"
            known = {r.name: r for r in catalog.records()}.get(name)
            if isinstance(known, Subscription):
                record = dataclasses.replace(known, generation=known.generation + 1)
            elif known is not None:
                record = known
            elif kind == "topic":
                record = Topic(catalog.next_incarnation(), name)
            elif kind == "subscription":
                record = Subscription(catalog.next_incarnation(), name, topic.incarnation, topic.name)
            elif kind == "snapshot":
                record = Snapshot(catalog.next_incarnation(), name, topic.incarnation, topic.name, config=bytes(number))
            else:
                record = Setting(name, bytes([number]))
            change = CatalogChange.put(record)
        (change,) = catalog.assign([change])
        catalog.apply(change)
        changes.append(change)
    return changes


@given(histories, st.integers(0, 25), st.integers(0, 25), st.integers(1, 64))
@settings(deadline=None)
def test_replay_over_any_checkpoint_gives_the_same_catalog(
    steps: list[tuple[str, int]], cut: int, overlap: int, size: int
) -> None:
    changes = history(steps)
    whole = Catalog()
    for change in changes:
        whole.apply(change)
    half = Catalog()
    for change in changes[:cut]:
        half.apply(change)
    parts = list(half.encode_parts(size))
    assert all(len(part) <= size for part in parts)
    again = Catalog.from_parts(parts)
    assert (again.revision, again.records()) == (half.revision, half.records())
    for change in changes[max(0, cut - overlap) :]:  # a log is replayed from somewhere before the checkpoint
        again.apply(change)
    assert (again.revision, again.records()) == (whole.revision, whole.records())
    assert again.next_incarnation() == whole.next_incarnation()
    for topic in range(1, 10):
        assert {s.name for s in again.subscriptions_of(topic)} == {s.name for s in whole.subscriptions_of(topic)}


def test_a_checkpoint_does_not_see_later_changes() -> None:
    catalog = sample()
    parts = catalog.encode_parts()
    applied(catalog, CatalogChange.delete(Topic(1, T)))
    assert Catalog.from_parts(parts).topic(T) is not None


@pytest.mark.parametrize("damage", ["first", "last", "cut", "all"])
def test_incomplete_checkpoints_are_refused(damage: str) -> None:
    parts = list(sample().encode_parts(20))
    broken = {"first": parts[1:], "last": parts[:-1], "cut": [*parts[:-1], parts[-1][:-1]], "all": []}[damage]
    with pytest.raises(Exception, match=r"."):
        Catalog.from_parts(broken)


def test_memory_per_topic_with_a_subscription() -> None:
    count = 10_000
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        catalog = Catalog()
        for number in range(1, count + 1):
            topic = Topic(catalog.next_incarnation(), f"projects/some-project-name/topics/topic-{number}", b"c" * 60)
            subscription = Subscription(
                catalog.next_incarnation(), f"projects/some-project-name/subscriptions/sub-{number}", topic.incarnation,
                topic.name, b"c" * 100, created_ns=number << 40,
            )  # fmt: skip
            for change in catalog.assign([CatalogChange.put(topic), CatalogChange.put(subscription)]):
                catalog.apply(change)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / count < 2_048


def test_listeners_are_called_for_what_uses_their_feature_or_did() -> None:
    """Others change without them; what ends its use, or is deleted, is theirs to learn of."""
    config = pubsub.Subscription(push_config={"push_endpoint": "https://a.example/"}).SerializeToString()
    forwarding = SubscriptionOptions(forward_to=T)
    plain = Subscription(5, "projects/p/subscriptions/s", 1, T, config=pubsub.Subscription().SerializeToString())
    pushed, forwarded = dataclasses.replace(plain, config=config), dataclasses.replace(plain, options=forwarding)
    assert (plain.features, pushed.features, forwarded.features) == (Feature(0), Feature.PUSH, Feature.FORWARD)
    both = dataclasses.replace(pushed, options=forwarding._replace(dead_letter_expired=True))
    assert both.features == Feature.PUSH | Feature.FORWARD | Feature.LETTERS
    received: list[CatalogChange] = []
    known: dict[int, str] = {}
    changed = listening(received.append, Subscription, Feature.PUSH, known)
    for record in (Topic(1, T), Setting("s", b""), plain, forwarded):
        changed(CatalogChange.put(record))
        changed(CatalogChange.delete(record))
    assert received == []
    changed(CatalogChange.put(pushed))
    changed(CatalogChange.delete(pushed))
    known[5] = "consumed"
    changed(CatalogChange.put(plain))
    changed(CatalogChange.delete(plain))
    assert [one.record for one in received] == [pushed, pushed, plain, plain]
    topics: list[CatalogChange] = []
    listening(topics.append, Topic)(CatalogChange.put(plain))
    listening(topics.append, Topic)(CatalogChange.put(Topic(1, T)))
    assert [one.record for one in topics] == [Topic(1, T)]
