"""Topics: what is accepted, what is refused, what comes back."""

from __future__ import annotations

from typing import Any

import pytest

from syncpoint.base.model.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Unavailable,
)
from syncpoint.base.model.limits import PAGE_BYTES_MAX
from syncpoint.front.api import pages
from syncpoint.front.api.admin_handlers import CatalogService
from syncpoint.wire.protobuf.messages import pubsub, well_known

from .conftest import Service

T = "projects/p/topics/t-1"


def seconds(value: int, nanos: int = 0) -> Any:
    return well_known.Duration(seconds=value, nanos=nanos)


def test_create_and_get(service: Any, plane: Any) -> None:
    asked = pubsub.Topic(
        name=T,
        labels={"team": "a-1"},
        message_storage_policy={"allowed_persistence_regions": ["europe-west1"], "enforce_in_transit": True},
        message_retention_duration=seconds(600),
        satisfies_pzs=True,
        tags={"1/env": "x"},
    )
    made = service.create_topic(asked)
    expected = pubsub.Topic()
    expected.CopyFrom(asked)
    expected.ClearField("tags")
    expected.satisfies_pzs = False
    expected.state = pubsub.Topic.ACTIVE
    assert made == expected
    assert service.get_topic(pubsub.GetTopicRequest(topic=T)) == expected
    record = plane.catalog.topic(T)
    assert (record.incarnation, record.retention_s, record.created_ns) == (1, 600, plane.clock.time_ns())
    assert [change.record for change in plane.commits.log] == [record]


def test_fields_of_a_newer_interface_survive(service: Any) -> None:
    newer = pubsub.Topic.FromString(pubsub.Topic(name=T).SerializeToString() + b"\xfa\x7f\x03new")
    service.create_topic(newer)
    wanted = {"name": T, "labels": {"a": "b"}}
    service.update_topic(pubsub.UpdateTopicRequest(topic=wanted, update_mask={"paths": ["labels"]}))
    assert b"\xfa\x7f\x03new" in service.get_topic(pubsub.GetTopicRequest(topic=T)).SerializeToString()


def test_a_name_is_taken_once(service: Any) -> None:
    service.create_topic(pubsub.Topic(name=T))
    with pytest.raises(AlreadyExists, match="Resource already exists in the project"):
        service.create_topic(pubsub.Topic(name=T))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": "projects/p/topics/ab"}, r"Invalid \[topics\] name: \(name=projects/p/topics/ab\)"),
        ({"name": ""}, r"Invalid \[topics\] name"),
        ({"message_retention_duration": seconds(599)}, "message_retention_duration is too small. You passed 599s"),
        ({"message_retention_duration": seconds(0)}, "message_retention_duration is too small"),
        ({"message_retention_duration": seconds(-700)}, "message_retention_duration is too small"),
        ({"message_retention_duration": seconds(31 * 86_400, 1)}, "too large. .* maximum value is 2678400s"),
        ({"message_retention_duration": seconds(700, -1)}, "not a valid duration"),
        ({"labels": {"Upper": "x"}}, "Invalid label key: 'Upper'"),
        ({"labels": {"": "x"}}, "Invalid label key"),
        ({"labels": {"1a": "x"}}, "Invalid label key"),
        ({"labels": {"a" * 64: "x"}}, "Invalid label key"),
        ({"labels": {"a": "b c"}}, "Invalid value of label 'a'"),
        ({"labels": {"a": "b" * 64}}, "Invalid value of label 'a'"),
        ({"labels": {f"k{i}": "" for i in range(65)}}, "Too many labels"),
        ({"message_storage_policy": {"allowed_persistence_regions": ["x" * 200_000]}}, "The Topic is too large"),
    ],
)
def test_illegal_topics(service: Any, plane: Any, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        service.create_topic(pubsub.Topic(**{"name": T, **fields}))
    assert plane.commits.log == []


def test_legal_edges(service: Any) -> None:
    labels = {f"k{i}_-é中": "b" * 63 for i in range(64)}
    service.create_topic(pubsub.Topic(name=T, labels=labels, message_retention_duration=seconds(31 * 86_400)))
    assert dict(service.get_topic(pubsub.GetTopicRequest(topic=T)).labels) == labels


def test_what_this_deployment_cannot_honour_is_refused(plane: Any) -> None:
    regions = ["r1", "r2"]
    service = Service(plane)
    service.asynchronous = CatalogService(plane, regions=lambda: regions)

    def policy(*allowed: str) -> Any:
        return {"name": T, "message_storage_policy": {"allowed_persistence_regions": allowed}}

    for field, fields in (("kms_key_name", {"name": T, "kms_key_name": "k"}), ("r3", policy("r3"))):
        with pytest.raises(FailedPrecondition, match=field):
            service.create_topic(pubsub.Topic(**fields))
    service.create_topic(pubsub.Topic(**policy("r2", "r3")))
    for field, fields in (("kms_key_name", {"name": T, "kms_key_name": "k"}), ("message_storage_policy", policy("r3"))):
        with pytest.raises(FailedPrecondition, match=field):
            service.update_topic(pubsub.UpdateTopicRequest(topic=fields, update_mask={"paths": [field]}))
    regions.clear()
    change = pubsub.UpdateTopicRequest(topic={"name": T, "labels": {"a": "b"}}, update_mask={"paths": ["labels"]})
    assert service.update_topic(change).labels["a"] == "b", "other things may change while nothing is there"


def test_empty_messages_ask_for_nothing(service: Any) -> None:
    service.create_topic(pubsub.Topic(name=T, schema_settings={}, ingestion_data_source_settings={}))


def test_update(service: Any) -> None:
    service.create_topic(pubsub.Topic(name=T, labels={"a": "1"}, message_retention_duration=seconds(600)))
    changed = service.update_topic(
        pubsub.UpdateTopicRequest(
            topic={
                "name": T,
                "labels": {"b": "2"},
                "message_storage_policy": {"allowed_persistence_regions": ["r"], "enforce_in_transit": True},
            },
            update_mask={"paths": ["labels", "message_storage_policy.allowed_persistence_regions"]},
        )
    )
    assert dict(changed.labels) == {"b": "2"}
    assert changed.message_storage_policy == pubsub.MessageStoragePolicy(allowed_persistence_regions=["r"])
    assert changed.message_retention_duration == seconds(600)
    cleared = service.update_topic(
        pubsub.UpdateTopicRequest(topic={"name": T}, update_mask={"paths": ["message_retention_duration"]})
    )
    assert not cleared.HasField("message_retention_duration")
    assert service.get_topic(pubsub.GetTopicRequest(topic=T)) == cleared


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        ([], "The update_mask in the UpdateTopicRequest must be set, and must contain a non-empty paths list."),
        (["nope"], "'nope' is not a known Topic field"),
        (["labels"] * 1001, "has 1001 paths; the maximum is 1000"),
        (["messageRetentionDuration"], "is not a known Topic field"),
        (["labels.a"], "is not a known Topic field"),
        (["*"], "is not a known Topic field"),
        (["labels", "name"], "the 'name' field in the Topic is not mutable"),
        (["state"], "the 'state' field in the Topic is not mutable"),
        (["tags"], "the 'tags' field in the Topic is not mutable"),
    ],
)
def test_illegal_masks(service: Any, plane: Any, paths: list[str], text: str) -> None:
    service.create_topic(pubsub.Topic(name=T))
    with pytest.raises(InvalidArgument, match=text):
        service.update_topic(pubsub.UpdateTopicRequest(topic={"name": T}, update_mask={"paths": paths}))
    assert len(plane.commits.log) == 1


def test_what_is_missing_is_not_found(service: Any) -> None:
    for call, request in (
        (service.get_topic, pubsub.GetTopicRequest(topic=T)),
        (service.delete_topic, pubsub.DeleteTopicRequest(topic=T)),
        (service.update_topic, pubsub.UpdateTopicRequest(topic={"name": T}, update_mask={"paths": ["labels"]})),
        (service.list_topic_subscriptions, pubsub.ListTopicSubscriptionsRequest(topic=T)),
        (service.list_topic_snapshots, pubsub.ListTopicSnapshotsRequest(topic=T)),
    ):
        with pytest.raises(NotFound, match="Resource not found"):
            call(request)


def test_delete_and_create_again(service: Any, plane: Any) -> None:
    service.create_topic(pubsub.Topic(name=T))
    service.delete_topic(pubsub.DeleteTopicRequest(topic=T))
    service.create_topic(pubsub.Topic(name=T))
    assert plane.catalog.topic(T).incarnation == 2


def test_listing_by_pages(service: Any) -> None:
    names = [f"projects/p/topics/t{i:02d}" for i in range(7)]
    for name in reversed(names):
        service.create_topic(pubsub.Topic(name=name))
    service.create_topic(pubsub.Topic(name="projects/p2/topics/other"))
    found: list[str] = []
    token = ""
    while True:
        page = service.list_topics(pubsub.ListTopicsRequest(project="projects/p", page_size=3, page_token=token))
        assert len(page.topics) <= 3
        found += [topic.name for topic in page.topics]
        token = page.next_page_token
        if not token:
            break
    assert found == names
    whole = service.list_topics(pubsub.ListTopicsRequest(project="projects/p"))
    assert [topic.name for topic in whole.topics] == names
    assert whole.next_page_token == ""
    exact = service.list_topics(pubsub.ListTopicsRequest(project="projects/p", page_size=7))
    assert exact.next_page_token == ""


def test_a_page_of_large_topics_is_shorter(service: Any) -> None:
    labels = {f"k{number}{'y' * 60}": "v" * 63 for number in range(60)}  # some 8 KB
    names = [f"projects/p/topics/t{number:03d}" for number in range(100)]
    for name in names:
        service.create_topic(pubsub.Topic(name=name, labels=labels))
    found: list[str] = []
    token, sizes = "", []
    while not found or token:
        page = service.list_topics(pubsub.ListTopicsRequest(project="projects/p", page_size=1000, page_token=token))
        found += [topic.name for topic in page.topics]
        sizes.append(page.ByteSize())
        token = page.next_page_token
    assert found == names
    assert len(sizes) > 2
    assert 200_000 < max(sizes) < 300_000


def test_an_item_larger_than_a_page_is_a_page() -> None:
    found = ["a" * PAGE_BYTES_MAX * 2, "b" * PAGE_BYTES_MAX * 2, "c"]
    items, token = pages.cut(found, pages.Asked(10, None), "x", str, len)
    assert (list(items), token != "") == (found[:1], True)


def test_illegal_pages(service: Any) -> None:
    for i in range(3):
        service.create_topic(pubsub.Topic(name=f"projects/p/topics/t{i:02d}"))
    token = service.list_topics(pubsub.ListTopicsRequest(project="projects/p", page_size=1)).next_page_token
    for fields in (
        {"project": "projects/q", "page_token": token},
        {"project": "projects/p", "page_token": "x"},
        {"project": "projects/p", "page_token": token[:-3] + "é"},
        {"project": "projects/p", "page_size": -1},
        {"project": "foo"},
        {"project": ""},
    ):
        with pytest.raises(InvalidArgument):
            service.list_topics(pubsub.ListTopicsRequest(**fields))


def test_a_failed_commit_is_reported(service: Any, plane: Any) -> None:
    plane.commits.failure = Unavailable("the disks are gone")
    with pytest.raises(Unavailable):
        service.create_topic(pubsub.Topic(name=T))
