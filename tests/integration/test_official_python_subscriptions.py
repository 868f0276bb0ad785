"""Subscriptions as the official client sees them: defaults, limits, update rules, lists, and the texts of refusals."""

from __future__ import annotations

import pytest

from syncpoint.testing.rigs.official import refused

pytestmark = pytest.mark.shows("clients-python")


def wanted(space, topic=None, **fields):
    """A CreateSubscription request for a fresh topic."""
    return {"name": space.path("subscriptions", "sub"), "topic": topic or space.topic(), **fields}


def test_a_subscription_gets_the_documented_defaults(space):
    got = space.api.create_subscription(wanted(space))
    assert got.ack_deadline_seconds == 10
    assert got.message_retention_duration.total_seconds() == 7 * 86400
    assert got.expiration_policy.ttl.total_seconds() == 31 * 86400
    assert not got.retain_acked_messages
    assert not got.enable_message_ordering
    assert not got.enable_exactly_once_delivery
    assert got.state.name == "ACTIVE"
    assert space.api.get_subscription({"subscription": got.name}) == got


def test_everything_set_is_read_back(space):
    topic, dead = space.topic(message_retention_duration={"seconds": 900}), space.topic("dead")
    request = wanted(
        space,
        topic,
        ack_deadline_seconds=77,
        retain_acked_messages=True,
        message_retention_duration={"seconds": 1800},
        labels={"a": "b"},
        enable_message_ordering=True,
        expiration_policy={"ttl": {"seconds": 86400}},
        filter='attributes.k = "v"',
        dead_letter_policy={"dead_letter_topic": dead, "max_delivery_attempts": 7},
        retry_policy={"minimum_backoff": {"seconds": 1}, "maximum_backoff": {"seconds": 2, "nanos": 500_000_000}},
        enable_exactly_once_delivery=True,
    )
    space.api.create_subscription(request)
    got = space.api.get_subscription({"subscription": request["name"]})
    assert got.topic == topic
    assert got.ack_deadline_seconds == 77
    assert got.retain_acked_messages
    assert got.enable_message_ordering
    assert got.enable_exactly_once_delivery
    assert dict(got.labels) == {"a": "b"}
    assert got.expiration_policy.ttl.total_seconds() == 86400
    assert got.filter == 'attributes.k = "v"'
    assert got.dead_letter_policy.dead_letter_topic == dead
    assert got.dead_letter_policy.max_delivery_attempts == 7
    assert got.retry_policy.minimum_backoff.total_seconds() == 1
    assert got.retry_policy.maximum_backoff.total_seconds() == 2.5
    assert got.topic_message_retention_duration.total_seconds() == 900


def test_an_empty_expiration_policy_means_never(space):
    request = wanted(space, expiration_policy={})
    space.api.create_subscription(request)
    got = space.api.get_subscription({"subscription": request["name"]})
    assert got._pb.HasField("expiration_policy")
    assert not got._pb.expiration_policy.HasField("ttl")


def test_a_subscription_is_created_once(space):
    topic, name = space.pair()
    with refused("ALREADY_EXISTS", f"Resource already exists in the project (resource={name})."):
        space.api.create_subscription({"name": name, "topic": topic})


def test_a_subscription_needs_its_topic(space):
    with refused("NOT_FOUND", "Resource not found", "nowhere"):
        space.api.create_subscription(wanted(space, space.path("topics", "nowhere")))


def test_a_missing_subscription_is_not_found_for_every_method(space):
    name = space.path("subscriptions", "missing")
    calls = {
        "get_subscription": {"subscription": name},
        "delete_subscription": {"subscription": name},
        "pull": {"subscription": name, "max_messages": 1},
        "acknowledge": {"subscription": name, "ack_ids": ["x"]},
        "modify_ack_deadline": {"subscription": name, "ack_ids": ["x"], "ack_deadline_seconds": 10},
        "seek": {"subscription": name, "time": {"seconds": 1}},
        "modify_push_config": {"subscription": name, "push_config": {}},
        "detach_subscription": {"subscription": name},
        "create_snapshot": {"name": space.path("snapshots", "snap"), "subscription": name},
        "update_subscription": {"subscription": {"name": name}, "update_mask": {"paths": ["labels"]}},
    }
    for method, request in calls.items():
        with refused("NOT_FOUND", "Resource not found", "missing"):
            getattr(space.api, method)(request)


def test_a_deleted_subscription_can_be_made_again_and_starts_empty(space):
    topic, name = space.pair()
    space.publish(topic, b"old")
    space.api.delete_subscription({"subscription": name})
    with refused("NOT_FOUND"):
        space.api.get_subscription({"subscription": name})
    space.subscription(topic)
    space.publish(topic, b"new")
    assert [one.message.data for one in space.pull(name)] == [b"new"]


@pytest.mark.parametrize("short", ["ab", "1abc", "google-sub", "has space", "x" * 256, ""])
def test_a_bad_subscription_name_is_refused_and_named(space, short):
    name = space.path("subscriptions", short)
    with refused("INVALID_ARGUMENT", "Invalid [subscriptions] name", f"(name={name})"):
        space.api.create_subscription({"name": name, "topic": space.topic()})


def test_a_subscription_without_a_name_gets_one(space):
    topic = space.topic()
    first = space.api.create_subscription({"topic": topic}).name
    second = space.api.create_subscription({"topic": topic}).name
    assert first != second
    assert first.startswith(f"projects/{space.project}/subscriptions/")
    assert space.api.get_subscription({"subscription": first}).topic == topic


GOOD = [
    {"ack_deadline_seconds": 10},
    {"ack_deadline_seconds": 600},
    {"message_retention_duration": {"seconds": 600}},
    {"message_retention_duration": {"seconds": 31 * 86400}},
    {"retry_policy": {"minimum_backoff": {"seconds": 0}, "maximum_backoff": {"seconds": 600}}},
    {"retry_policy": {}},
    {"expiration_policy": {"ttl": {"seconds": 86400}}, "message_retention_duration": {"seconds": 86400}},
    {"expiration_policy": {"ttl": {"seconds": 7 * 86400}}},
]
BAD = [
    ({"ack_deadline_seconds": 9}, "ack_deadline_seconds"),
    ({"ack_deadline_seconds": 601}, "ack_deadline_seconds"),
    ({"ack_deadline_seconds": -1}, "ack_deadline_seconds"),
    ({"message_retention_duration": {"seconds": 599}}, "message_retention_duration"),
    ({"message_retention_duration": {"seconds": 31 * 86400 + 1}}, "message_retention_duration"),
    ({"retry_policy": {"minimum_backoff": {"seconds": 601}}}, "minimum_backoff"),
    ({"retry_policy": {"maximum_backoff": {"seconds": 601}}}, "maximum_backoff"),
    ({"retry_policy": {"minimum_backoff": {"seconds": 100}, "maximum_backoff": {"seconds": 50}}}, "maximum_backoff"),
    ({"retry_policy": {"minimum_backoff": {"seconds": -1}}}, "minimum_backoff"),
    ({"expiration_policy": {"ttl": {"seconds": 86399}}, "message_retention_duration": {"seconds": 600}}, "ttl"),
    ({"expiration_policy": {"ttl": {"seconds": 7 * 86400 - 1}}}, "ttl"),
    ({"filter": "attributes.k ="}, "filter"),
    ({"filter": 'attributes.k = "v" AND attributes.l = "v" OR attributes.m = "v"'}, "filter"),
    ({"filter": 'attributes.k = "' + "v" * 256 + '"'}, "filter"),
]


@pytest.mark.parametrize("fields", GOOD, ids=str)
def test_settings_at_the_limit_are_accepted(space, fields):
    space.api.create_subscription(wanted(space, **fields))


@pytest.mark.parametrize(("fields", "field"), BAD, ids=lambda value: str(value)[:60])
def test_settings_beyond_the_limit_are_refused_and_named(space, fields, field):
    request = wanted(space, **fields)
    with refused("INVALID_ARGUMENT", field):
        space.api.create_subscription(request)
    with refused("NOT_FOUND"):
        space.api.get_subscription({"subscription": request["name"]})


def test_the_text_for_a_small_maximum_backoff(space):
    policy = {"minimum_backoff": {"seconds": 100}, "maximum_backoff": {"seconds": 50}}
    text = "The value for maximum_backoff is too small. You passed 50s in the request, but the minimum value is 100s."
    with refused("INVALID_ARGUMENT", text):
        space.api.create_subscription(wanted(space, retry_policy=policy))


@pytest.mark.parametrize(("attempts", "stored"), [(0, 5), (5, 5), (100, 100), (4, None), (101, None), (-1, None)])
def test_dead_letter_attempts_are_5_to_100(space, attempts, stored):
    policy = {"dead_letter_topic": space.topic("dead"), "max_delivery_attempts": attempts}
    request = wanted(space, dead_letter_policy=policy)
    if stored is None:
        with pytest.raises(Exception, match="max_delivery_attempts") as caught:
            space.api.create_subscription(request)
        assert caught.value.code().name in ("INVALID_ARGUMENT", "OUT_OF_RANGE")
    else:
        assert space.api.create_subscription(request).dead_letter_policy.max_delivery_attempts == stored


def test_a_dead_letter_topic_must_exist(space):
    policy = {"dead_letter_topic": space.path("topics", "nowhere"), "max_delivery_attempts": 5}
    with refused("NOT_FOUND"):
        space.api.create_subscription(wanted(space, dead_letter_policy=policy))


@pytest.mark.parametrize(
    ("path", "change", "read"),
    [
        ("ack_deadline_seconds", {"ack_deadline_seconds": 33}, lambda got: got.ack_deadline_seconds == 33),
        ("labels", {"labels": {"x": "y"}}, lambda got: dict(got.labels) == {"x": "y"}),
        ("retain_acked_messages", {"retain_acked_messages": True}, lambda got: got.retain_acked_messages),
        (
            "message_retention_duration",
            {"message_retention_duration": {"seconds": 1234}},
            lambda got: got.message_retention_duration.total_seconds() == 1234,
        ),
        (
            "retry_policy",
            {"retry_policy": {"minimum_backoff": {"seconds": 3}, "maximum_backoff": {"seconds": 4}}},
            lambda got: got.retry_policy.minimum_backoff.total_seconds() == 3,
        ),
        (
            "expiration_policy",
            {"expiration_policy": {"ttl": {"seconds": 8 * 86400}}},
            lambda got: got.expiration_policy.ttl.total_seconds() == 8 * 86400,
        ),
        (
            "enable_exactly_once_delivery",
            {"enable_exactly_once_delivery": True},
            lambda got: got.enable_exactly_once_delivery,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_update_changes_what_may_change(space, path, change, read):
    topic, name = space.pair(ack_deadline_seconds=20)
    request = {"subscription": {"name": name, "topic": topic, **change}, "update_mask": {"paths": [path]}}
    assert read(space.api.update_subscription(request))
    got = space.api.get_subscription({"subscription": name})
    assert read(got)
    assert got.topic == topic
    assert path == "ack_deadline_seconds" or got.ack_deadline_seconds == 20


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("topic", {"topic": "projects/p/topics/other"}),
        ("name", {}),
        ("enable_message_ordering", {"enable_message_ordering": True}),
        ("filter", {"filter": "attributes:k"}),
        ("no_such_field", {}),
        ("ackDeadlineSeconds", {"ack_deadline_seconds": 33}),
    ],
)
def test_update_refuses_what_may_not_change(space, path, change):
    topic, name = space.pair(ack_deadline_seconds=20)
    before = space.api.get_subscription({"subscription": name})
    fields = {"name": name, "topic": topic, "ack_deadline_seconds": 44, **change}
    with refused("INVALID_ARGUMENT", path):
        request = {"subscription": fields, "update_mask": {"paths": ["ack_deadline_seconds", path]}}
        space.api.update_subscription(request)
    assert space.api.get_subscription({"subscription": name}) == before


def test_update_needs_a_mask(space):
    _, name = space.pair()
    text = "The update_mask in the UpdateSubscriptionRequest must be set, and must contain a non-empty paths list."
    with refused("INVALID_ARGUMENT", text):
        space.api.update_subscription({"subscription": {"name": name, "labels": {"a": "b"}}})


def test_update_checks_limits_like_create(space):
    _, name = space.pair()
    for fields, field in BAD[:10]:
        path = next(iter(fields))
        with refused("INVALID_ARGUMENT", field):
            space.api.update_subscription({"subscription": {"name": name, **fields}, "update_mask": {"paths": [path]}})


def test_a_dead_letter_policy_can_be_added_and_taken_away(space):
    _, name = space.pair()
    dead = space.topic("dead")
    mask = {"paths": ["dead_letter_policy"]}
    policy = {"dead_letter_topic": dead, "max_delivery_attempts": 6}
    space.api.update_subscription({"subscription": {"name": name, "dead_letter_policy": policy}, "update_mask": mask})
    assert space.api.get_subscription({"subscription": name}).dead_letter_policy.max_delivery_attempts == 6
    space.api.update_subscription({"subscription": {"name": name}, "update_mask": mask})
    assert not space.api.get_subscription({"subscription": name})._pb.HasField("dead_letter_policy")


def test_subscription_lists_are_sorted_and_paged(space):
    topic = space.topic()
    names = sorted(space.subscription(topic, f"sub-{number}") for number in range(5))
    seen, token = [], ""
    while True:
        page = space.api.list_subscriptions(
            {"project": f"projects/{space.project}", "page_size": 2, "page_token": token}
        )
        assert len(page.subscriptions) <= 2
        seen += [subscription.name for subscription in page.subscriptions]
        token = page.next_page_token
        if not token:
            break
    assert seen == names


def test_a_subscription_may_live_in_another_project(space, enter):
    other = enter(space.endpoint)
    topic = space.topic()
    subscription = other.subscription(topic)
    space.publish(topic, b"across")
    assert [one.message.data for one in other.pull(subscription)] == [b"across"]
    assert list(space.api.list_topic_subscriptions({"topic": topic}).subscriptions) == [subscription]
