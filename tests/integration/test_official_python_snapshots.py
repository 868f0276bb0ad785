"""Snapshots as named things: life, names, lists, labels. What a seek to one does: test_semantics_seek.py."""

from __future__ import annotations

import datetime

import pytest

from syncpoint.testing.rigs.official import refused

pytestmark = pytest.mark.shows("seek")

DAY = datetime.timedelta(days=1)


def now():
    return datetime.datetime.now(datetime.UTC)


def snapshot(space, subscription, short="snap", **fields):
    request = {"name": space.path("snapshots", short), "subscription": subscription, **fields}
    return space.api.create_snapshot(request)


def test_create_get_list_and_delete_a_snapshot(space):
    topic, subscription = space.pair()
    made = snapshot(space, subscription, labels={"a": "1"})
    assert made.name == space.path("snapshots", "snap")
    assert made.topic == topic
    assert dict(made.labels) == {"a": "1"}
    assert 6.9 * DAY < made.expire_time - now() <= 7 * DAY
    assert space.api.get_snapshot({"snapshot": made.name}) == made
    listed = space.api.list_snapshots({"project": f"projects/{space.project}"}).snapshots
    assert [one.name for one in listed] == [made.name]
    assert list(space.api.list_topic_snapshots({"topic": topic}).snapshots) == [made.name]
    space.api.delete_snapshot({"snapshot": made.name})
    with refused("NOT_FOUND", f"Resource not found (resource={made.name})."):
        space.api.get_snapshot({"snapshot": made.name})
    assert not space.api.list_topic_snapshots({"topic": topic}).snapshots


def test_a_snapshot_is_created_once(space):
    _, subscription = space.pair()
    made = snapshot(space, subscription)
    with refused("ALREADY_EXISTS", f"Resource already exists in the project (resource={made.name})."):
        snapshot(space, subscription)


@pytest.mark.parametrize("short", ["ab", "9snap", "goog-snap", "x" * 256])
def test_a_bad_snapshot_name_is_refused_and_named(space, short):
    _, subscription = space.pair()
    with refused("INVALID_ARGUMENT", "Invalid [snapshots] name"):
        snapshot(space, subscription, short)


def test_a_snapshot_without_a_name_gets_one(space):
    _, subscription = space.pair()
    made = space.api.create_snapshot({"subscription": subscription})
    assert made.name.startswith(f"projects/{space.project}/snapshots/")
    assert space.api.get_snapshot({"snapshot": made.name}) == made


def test_snapshots_are_paged_in_order(space):
    _, subscription = space.pair()
    names = sorted(snapshot(space, subscription, f"snap-{number}").name for number in range(5))
    seen, token = [], ""
    while True:
        request = {"project": f"projects/{space.project}", "page_size": 2, "page_token": token}
        page = space.api.list_snapshots(request)
        assert len(page.snapshots) <= 2
        seen += [one.name for one in page.snapshots]
        token = page.next_page_token
        if not token:
            break
    assert seen == names


def test_the_labels_of_a_snapshot_can_be_changed(space):
    _, subscription = space.pair()
    made = snapshot(space, subscription)
    request = {"snapshot": {"name": made.name, "labels": {"k": "v"}}, "update_mask": {"paths": ["labels"]}}
    changed = space.api.update_snapshot(request)
    assert dict(changed.labels) == {"k": "v"}
    assert changed.expire_time == made.expire_time
    assert space.api.get_snapshot({"snapshot": made.name}) == changed


@pytest.mark.parametrize("paths", [[], ["topic"], ["name"], ["bogus"]])
def test_a_bad_mask_for_a_snapshot_is_refused(space, paths):
    _, subscription = space.pair()
    made = snapshot(space, subscription)
    with refused("INVALID_ARGUMENT"):
        space.api.update_snapshot({"snapshot": {"name": made.name}, "update_mask": {"paths": paths}})


def test_a_snapshot_outlives_its_subscription(space):
    topic, subscription = space.pair()
    made = snapshot(space, subscription)
    space.api.delete_subscription({"subscription": subscription})
    assert space.api.get_snapshot({"snapshot": made.name}).topic == topic


def test_a_snapshot_of_a_missing_subscription_is_not_found(space):
    with refused("NOT_FOUND", "missing"):
        snapshot(space, space.path("subscriptions", "missing"))


def test_seek_to_a_missing_snapshot_is_not_found(space):
    _, subscription = space.pair()
    with refused("NOT_FOUND", "missing"):
        space.api.seek({"subscription": subscription, "snapshot": space.path("snapshots", "missing")})
