"""Topics as the official client sees them: life, names, masks, lists, limits, and the texts of refusals."""

from __future__ import annotations

import pytest

from syncpoint.testing.rigs.official import eventually, refused


def test_create_get_and_delete_a_topic(space):
    name = space.path("topics", "orders")
    created = space.api.create_topic(
        {"name": name, "labels": {"team": "a"}, "message_retention_duration": {"seconds": 3600}}
    )
    assert created.name == name
    assert dict(created.labels) == {"team": "a"}
    got = space.api.get_topic({"topic": name})
    assert got == created
    assert got.message_retention_duration.total_seconds() == 3600
    space.api.delete_topic({"topic": name})
    with refused("NOT_FOUND", f"Resource not found (resource={name})."):
        space.api.get_topic({"topic": name})


def test_a_topic_is_created_once(space):
    name = space.topic()
    with refused("ALREADY_EXISTS", "Resource already exists in the project", "topic"):
        space.api.create_topic({"name": name})


def test_a_missing_topic_is_not_found_for_every_method(space):
    name = space.path("topics", "missing")
    calls = {
        "get_topic": {"topic": name},
        "delete_topic": {"topic": name},
        "publish": {"topic": name, "messages": [{"data": b"x"}]},
        "list_topic_subscriptions": {"topic": name},
        "update_topic": {"topic": {"name": name, "labels": {"a": "b"}}, "update_mask": {"paths": ["labels"]}},
    }
    for method, request in calls.items():
        with refused("NOT_FOUND", "Resource not found", "missing"):
            getattr(space.api, method)(request)


@pytest.mark.parametrize(
    "short",
    ["ab", "1abc", "-abc", "google-topic", "goog", "has space", "sla/sh", "x" * 256, "", "naïve", "a*b", "_deleted_"],
)
def test_a_bad_topic_name_is_refused_and_named(space, short):
    name = space.path("topics", short)
    with refused("INVALID_ARGUMENT", "Invalid [topics] name", f"(name={name})" if short.isascii() else "Invalid"):
        space.api.create_topic({"name": name})


@pytest.mark.parametrize(
    "name", ["", "topic", "projects/p", "projects//topics/abc", "topics/abc", "projects/p/subscriptions/abc"]
)
def test_a_name_that_is_not_a_topic_name_is_refused(space, name):
    with refused("INVALID_ARGUMENT"):
        space.api.create_topic({"name": name})


@pytest.mark.parametrize("short", ["abc", "A-b_c.d~e+f%20", "x" * 255, "ago", "goo"])
def test_a_good_topic_name_is_accepted(space, short):
    assert space.topic(short).endswith(f"/{short}")


def test_names_are_case_sensitive(space):
    assert space.topic("abc") != space.topic("ABC")


def test_update_changes_only_what_the_mask_names(space):
    name = space.topic(labels={"a": "1"}, message_retention_duration={"seconds": 600})
    updated = space.api.update_topic(
        {
            "topic": {"name": name, "labels": {"b": "2"}, "message_retention_duration": {"seconds": 1200}},
            "update_mask": {"paths": ["labels"]},
        }
    )
    assert dict(updated.labels) == {"b": "2"}
    assert updated.message_retention_duration.total_seconds() == 600
    assert space.api.get_topic({"topic": name}) == updated


def test_a_masked_field_left_out_is_cleared(space):
    name = space.topic(labels={"a": "1"}, message_retention_duration={"seconds": 600})
    updated = space.api.update_topic(
        {"topic": {"name": name}, "update_mask": {"paths": ["labels", "message_retention_duration"]}}
    )
    assert not updated.labels
    assert not updated._pb.HasField("message_retention_duration")


@pytest.mark.parametrize("paths", [[], ["no_such_field"], ["messageRetentionDuration"], ["name"], ["labels", "bogus"]])
def test_a_bad_update_mask_is_refused_and_changes_nothing(space, paths):
    name = space.topic(labels={"a": "1"})
    with refused("INVALID_ARGUMENT"):
        space.api.update_topic({"topic": {"name": name, "labels": {"b": "2"}}, "update_mask": {"paths": paths}})
    assert dict(space.api.get_topic({"topic": name}).labels) == {"a": "1"}


def test_an_empty_mask_is_named(space):
    name = space.topic()
    with refused("INVALID_ARGUMENT", "update_mask", "must be set", "non-empty paths"):
        space.api.update_topic({"topic": {"name": name}})


@pytest.mark.parametrize(("seconds", "good"), [(599, False), (600, True), (31 * 86400, True), (31 * 86400 + 1, False)])
def test_topic_retention_is_ten_minutes_to_31_days(space, seconds, good):
    request = {"name": space.path("topics", "kept"), "message_retention_duration": {"seconds": seconds}}
    if good:
        assert space.api.create_topic(request).message_retention_duration.total_seconds() == seconds
    else:
        with refused("INVALID_ARGUMENT", "message_retention_duration"):
            space.api.create_topic(request)


def test_topic_lists_are_sorted_and_paged_without_loss(space):
    names = sorted(space.topic(f"topic-{number:02}") for number in range(7))
    whole = space.api.list_topics({"project": f"projects/{space.project}"})
    assert [topic.name for topic in whole.topics] == names
    assert whole.next_page_token == ""
    for size in (1, 3, 7):
        seen, token = [], ""
        while True:
            page = space.api.list_topics(
                {"project": f"projects/{space.project}", "page_size": size, "page_token": token}
            )
            assert len(page.topics) <= size
            seen += [topic.name for topic in page.topics]
            token = page.next_page_token
            if not token:
                break
        assert seen == names, f"page size {size}"


def test_a_page_token_stays_good_while_topics_come_and_go(space):
    for number in range(6):
        space.topic(f"topic-{number}")
    project = f"projects/{space.project}"
    first = space.api.list_topics({"project": project, "page_size": 3})
    space.api.delete_topic({"topic": first.topics[-1].name})
    space.topic("topic-0a")
    rest = space.api.list_topics({"project": project, "page_size": 10, "page_token": first.next_page_token})
    assert [topic.name.rsplit("/", 1)[1] for topic in rest.topics] == ["topic-3", "topic-4", "topic-5"]


@pytest.mark.parametrize("request_fields", [{"page_token": "rubbish"}, {"page_size": -1}])
def test_a_bad_page_request_is_refused(space, request_fields):
    space.topic()
    with refused("INVALID_ARGUMENT", next(iter(request_fields))):
        space.api.list_topics({"project": f"projects/{space.project}", **request_fields})


def test_a_bad_project_is_a_bad_argument_not_an_unknown_error(space):
    """UNKNOWN would make clients retry for ten minutes."""
    with refused("INVALID_ARGUMENT", "foo"):
        space.api.list_topics({"project": "foo"})


def test_projects_do_not_see_each_other(space):
    space.topic()
    assert not space.api.list_topics({"project": "projects/another-project-altogether"}).topics


def test_a_topic_lists_its_subscriptions_by_name(space):
    topic, other = space.topic(), space.topic("other")
    names = sorted(space.subscription(topic, f"sub-{number}") for number in range(5))
    space.subscription(other, "elsewhere")
    first = space.api.list_topic_subscriptions({"topic": topic, "page_size": 2})
    assert list(first.subscriptions) == names[:2]
    rest = space.api.list_topic_subscriptions({"topic": topic, "page_token": first.next_page_token})
    assert list(rest.subscriptions) == names[2:]
    assert rest.next_page_token == ""


def test_a_deleted_topic_leaves_its_subscription_and_backlog(space):
    topic, subscription = space.pair()
    ids = space.publish(topic, b"before", b"the end")
    space.api.delete_topic({"topic": topic})
    assert space.api.get_subscription({"subscription": subscription}).topic == "_deleted-topic_"
    assert [message.message.message_id for message in space.pull(subscription, 2, ack=True)] == ids


def test_a_topic_made_again_is_another_topic(space):
    topic, old = space.pair()
    space.publish(topic, b"old")
    space.api.delete_topic({"topic": topic})
    space.topic()
    fresh = space.subscription(topic, "fresh")
    assert list(space.api.list_topic_subscriptions({"topic": topic}).subscriptions) == [fresh]
    space.publish(topic, b"new")
    assert [one.message.data for one in space.pull(fresh)] == [b"new"]
    assert [one.message.data for one in space.pull(old)] == [b"old"]
    assert space.api.get_subscription({"subscription": old}).topic == "_deleted-topic_"


def test_what_cannot_be_honoured_is_refused(space):
    with refused("FAILED_PRECONDITION", "allowed_persistence_regions: no server is in europe-west1"):
        space.topic(message_storage_policy={"allowed_persistence_regions": ["europe-west1"]})
    with refused("FAILED_PRECONDITION", "kms_key_name"):
        space.topic(kms_key_name="projects/p/locations/l/keyRings/r/cryptoKeys/k")


def test_labels_may_be_changed_many_times_and_read_back(space):
    name = space.topic()
    for number in range(20):
        request = {"topic": {"name": name, "labels": {"n": str(number)}}, "update_mask": {"paths": ["labels"]}}
        space.api.update_topic(request)
        assert dict(space.api.get_topic({"topic": name}).labels) == {"n": str(number)}


def test_detach_drops_the_backlog_and_ends_pulls(space):
    topic, subscription = space.pair()
    space.publish(topic, b"x")
    stream = space.stream(subscription)
    stream.wait(1)
    space.api.detach_subscription({"subscription": subscription})
    assert space.api.get_subscription({"subscription": subscription}).detached
    assert stream.ended() == "FAILED_PRECONDITION"
    with refused("FAILED_PRECONDITION"):
        space.api.pull({"subscription": subscription, "max_messages": 1})
    eventually(lambda: not space.api.list_topic_subscriptions({"topic": topic}).subscriptions)
