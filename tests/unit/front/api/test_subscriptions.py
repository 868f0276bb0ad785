"""Subscriptions and snapshots: defaults, bounds, masks, what happens around deleted topics, and races."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
)
from syncpoint.base.model.names import parse_snapshot, parse_subscription
from syncpoint.catalog.metadata.records import DeadLetter, Retry
from syncpoint.wire.protobuf.messages import pubsub, well_known

T, D = "projects/p/topics/t-1", "projects/p/topics/dead"
S, N = "projects/p/subscriptions/s-1", "projects/p/snapshots/n-1"
DAY = 86_400


def seconds(value: int, nanos: int = 0) -> Any:
    return well_known.Duration(seconds=value, nanos=nanos)


@pytest.fixture(autouse=True)
def topics(service: Any) -> None:
    service.create_topic(pubsub.Topic(name=T))
    service.create_topic(pubsub.Topic(name=D))


def create(service: Any, **fields: Any) -> Any:
    return service.create_subscription(pubsub.Subscription(**{"name": S, "topic": T, **fields}))


def update(service: Any, paths: list[str], **fields: Any) -> Any:
    request = pubsub.UpdateSubscriptionRequest(subscription={"name": S, **fields}, update_mask={"paths": paths})
    return service.update_subscription(request)


def get(service: Any) -> Any:
    return service.get_subscription(pubsub.GetSubscriptionRequest(subscription=S))


def test_defaults(service: Any, plane: Any) -> None:
    made = create(service)
    expected = pubsub.Subscription(
        name=S,
        topic=T,
        push_config={},
        ack_deadline_seconds=10,
        message_retention_duration=seconds(7 * DAY),
        expiration_policy={"ttl": seconds(31 * DAY)},
        state=pubsub.Subscription.ACTIVE,
    )
    assert made == expected
    assert get(service) == expected
    record = plane.catalog.subscription(S)
    assert (record.ack_deadline_s, record.retention_s, record.expiration_s) == (10, 7 * DAY, 31 * DAY)
    assert (record.topic_incarnation, record.incarnation) == (1, 3)
    assert (record.dead_letter, record.retry, record.filter_text) == (None, None, "")


def test_everything_set(service: Any, plane: Any) -> None:
    given: dict[str, Any] = {
        "ack_deadline_seconds": 600,
        "retain_acked_messages": True,
        "message_retention_duration": seconds(31 * DAY),
        "labels": {"a": "b"},
        "enable_message_ordering": True,
        "expiration_policy": {"ttl": seconds(31 * DAY)},
        "filter": 'attributes.a = "b"',
        "dead_letter_policy": {"dead_letter_topic": D, "max_delivery_attempts": 100},
        "retry_policy": {"minimum_backoff": seconds(0, 500_000_000), "maximum_backoff": seconds(600)},
        "enable_exactly_once_delivery": True,
    }
    made = create(service, **given)
    assert made == pubsub.Subscription(name=S, topic=T, state=pubsub.Subscription.ACTIVE, push_config={}, **given)
    record = plane.catalog.subscription(S)
    assert record.dead_letter == DeadLetter(D, 100)
    assert record.retry == Retry(0.5, 600.0)
    assert (record.ordered, record.exactly_once, record.retain_acked) == (True, True, True)
    assert (record.filter_text, record.expiration_s) == (given["filter"], 31 * DAY)


def test_partial_policies_get_their_defaults(service: Any, plane: Any) -> None:
    made = create(service, retry_policy={}, dead_letter_policy={"dead_letter_topic": D}, expiration_policy={})
    assert made.retry_policy == pubsub.RetryPolicy(minimum_backoff=seconds(10), maximum_backoff=seconds(600))
    assert made.dead_letter_policy.max_delivery_attempts == 5
    assert made.HasField("expiration_policy")
    assert not made.expiration_policy.HasField("ttl")
    assert plane.catalog.subscription(S).expiration_s is None


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": "projects/p/subscriptions/ab"}, r"Invalid \[subscriptions\] name"),
        ({"topic": ""}, r"Invalid \[topics\] name"),
        ({"topic": "_deleted-topic_"}, r"Invalid \[topics\] name"),
        ({"ack_deadline_seconds": 9}, "ack_deadline_seconds is too small. You passed 9s .* minimum value is 10s"),
        ({"ack_deadline_seconds": 601}, "ack_deadline_seconds is too large"),
        ({"ack_deadline_seconds": -1}, "ack_deadline_seconds is too small"),
        ({"message_retention_duration": seconds(599)}, "message_retention_duration is too small"),
        ({"message_retention_duration": seconds(31 * DAY + 1)}, "message_retention_duration is too large"),
        ({"expiration_policy": {"ttl": seconds(DAY - 1)}}, "ttl is too small"),
        ({"expiration_policy": {"ttl": seconds(7 * DAY - 1)}}, "ttl is too small"),  # than what is retained
        ({"filter": "attributes"}, "filter: .* at character"),
        ({"filter": 'attributes.a = "' + "x" * 250 + '"'}, "256 bytes"),
        ({"dead_letter_policy": {"max_delivery_attempts": 5}}, "must name a dead_letter_topic"),
        ({"dead_letter_policy": {"dead_letter_topic": "x"}}, r"Invalid \[topics\] name"),
        ({"dead_letter_policy": {"dead_letter_topic": D, "max_delivery_attempts": 4}}, "attempts is too small"),
        ({"dead_letter_policy": {"dead_letter_topic": D, "max_delivery_attempts": 101}}, "attempts is too large"),
        (
            {"retry_policy": {"minimum_backoff": seconds(100), "maximum_backoff": seconds(50)}},
            "The value for maximum_backoff is too small. You passed 50s in the request, but the minimum value is 100s.",
        ),
        ({"retry_policy": {"maximum_backoff": seconds(601)}}, "maximum_backoff is too large"),
        ({"retry_policy": {"minimum_backoff": seconds(-1)}}, "minimum_backoff is too small"),
        ({"labels": {"A": "b"}}, "Invalid label key"),
    ],
)
def test_illegal_subscriptions(service: Any, plane: Any, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        create(service, **fields)
    assert plane.catalog.counts()[1] == 0


def test_missing_topics(service: Any) -> None:
    with pytest.raises(NotFound, match=r"Resource not found \(resource=projects/p/topics/none\)"):
        create(service, topic="projects/p/topics/none")
    with pytest.raises(NotFound, match="Dead letter topic not found"):
        create(service, dead_letter_policy={"dead_letter_topic": "projects/p/topics/none"})


def test_a_subscription_is_no_dead_letter_subscription_of_itself(service: Any, plane: Any) -> None:
    with pytest.raises(InvalidArgument, match="dead_letter_topic must not be the subscription's own topic") as caught:
        create(service, dead_letter_policy={"dead_letter_topic": T})
    assert caught.value.field == "dead_letter_policy.dead_letter_topic"
    create(service)
    with pytest.raises(InvalidArgument, match="dead_letter_topic must not be the subscription's own topic"):
        update(service, ["dead_letter_policy"], dead_letter_policy={"dead_letter_topic": T})
    assert plane.catalog.subscription(S).dead_letter is None


def test_a_name_is_taken_once(service: Any) -> None:
    create(service)
    with pytest.raises(AlreadyExists):
        create(service)
    with pytest.raises(AlreadyExists):
        create(service, topic="projects/p/topics/none")


def test_the_server_gives_names(service: Any) -> None:
    one, two = create(service, name=""), create(service, name="")
    assert one.name != two.name
    assert parse_subscription(one.name).startswith("projects/p/subscriptions/")


def test_a_push_config_is_kept_changed_and_taken_away(service: Any) -> None:
    def modify(**config: Any) -> None:
        service.modify_push_config(pubsub.ModifyPushConfigRequest(subscription=S, push_config=config))

    pushed = pubsub.PushConfig(push_endpoint="https://e.example/a", attributes={"x-goog-version": "v1beta1"})
    assert create(service, push_config=pushed).push_config == get(service).push_config == pushed
    modify(push_endpoint="https://e.example/b")
    assert get(service).push_config.push_endpoint == "https://e.example/b"
    assert get(service).push_config.attributes["x-goog-version"] == "v1beta1"  # not named, so not changed
    update(service, ["push_config"], push_config={"push_endpoint": "https://e.example/c"})
    assert get(service).push_config.attributes["x-goog-version"] == "v1"
    update(service, ["push_config.no_wrapper"], push_config={"no_wrapper": {"write_metadata": True}})
    assert get(service).push_config.no_wrapper.write_metadata
    modify()
    assert get(service).push_config == pubsub.PushConfig()
    update(service, ["ack_deadline_seconds"], ack_deadline_seconds=20)
    assert get(service).push_config == pubsub.PushConfig()


@pytest.mark.parametrize("url", ["http://e.example/", "https://127.0.0.1/", "https://user@e.example/", "x"])
def test_endpoints_that_are_none_are_refused_and_change_nothing(service: Any, url: str) -> None:
    config = {"push_endpoint": url}
    with pytest.raises(InvalidArgument, match="Invalid push endpoint given"):
        create(service, push_config=config)
    create(service)
    with pytest.raises(InvalidArgument, match="Invalid push endpoint given"):
        update(service, ["push_config"], push_config=config)
    with pytest.raises(InvalidArgument, match="Invalid push endpoint given"):
        service.modify_push_config(pubsub.ModifyPushConfigRequest(subscription=S, push_config=config))
    assert get(service).push_config == pubsub.PushConfig()


def test_exactly_once_delivery_and_pushes_exclude_each_other(service: Any) -> None:
    pushed = pubsub.PushConfig(push_endpoint="https://e.example/")
    with pytest.raises(InvalidArgument, match="not supported for push subscriptions"):
        create(service, push_config=pushed, enable_exactly_once_delivery=True)
    create(service, push_config=pushed)
    with pytest.raises(InvalidArgument, match="not supported for push subscriptions"):
        update(service, ["enable_exactly_once_delivery"], enable_exactly_once_delivery=True)
    service.modify_push_config(pubsub.ModifyPushConfigRequest(subscription=S))
    update(service, ["enable_exactly_once_delivery"], enable_exactly_once_delivery=True)
    with pytest.raises(InvalidArgument, match="not supported for push subscriptions"):
        service.modify_push_config(pubsub.ModifyPushConfigRequest(subscription=S, push_config=pushed))


def test_output_only_fields_are_ignored_in_requests(service: Any, plane: Any) -> None:
    made = create(
        service,
        detached=True,
        state=pubsub.Subscription.RESOURCE_ERROR,
        topic_message_retention_duration=seconds(5),
        analytics_hub_subscription_info={"listing": "x"},
        tags={"a": "b"},
    )
    assert (made.detached, made.state) == (False, pubsub.Subscription.ACTIVE)
    assert not made.HasField("topic_message_retention_duration")
    assert not made.HasField("analytics_hub_subscription_info")
    assert not made.tags
    assert not plane.catalog.subscription(S).detached


def test_the_retention_of_the_topic_shows(service: Any) -> None:
    create(service)
    service.update_topic(
        pubsub.UpdateTopicRequest(
            topic={"name": T, "message_retention_duration": seconds(DAY)},
            update_mask={"paths": ["message_retention_duration"]},
        )
    )
    assert get(service).topic_message_retention_duration == seconds(DAY)


def test_update(service: Any, plane: Any) -> None:
    before = create(service, labels={"a": "1"}, filter="attributes:x", retry_policy={"minimum_backoff": seconds(20)})
    after = update(
        service,
        ["ack_deadline_seconds", "labels", "retry_policy.maximum_backoff", "enable_exactly_once_delivery"],
        ack_deadline_seconds=77,
        retry_policy={"maximum_backoff": seconds(30)},
        enable_exactly_once_delivery=True,
        retain_acked_messages=True,
    )
    before.ack_deadline_seconds = 77
    before.ClearField("labels")
    before.retry_policy.maximum_backoff.CopyFrom(seconds(30))
    before.enable_exactly_once_delivery = True
    assert after == before == get(service)
    record = plane.catalog.subscription(S)
    assert (record.ack_deadline_s, record.retry, record.exactly_once) == (77, Retry(20, 30), True)
    assert record.filter_text == "attributes:x"


def test_clearing_a_field_brings_its_default_back(service: Any, plane: Any) -> None:
    create(
        service,
        ack_deadline_seconds=99,
        message_retention_duration=seconds(DAY),
        expiration_policy={},
        retry_policy={},
        dead_letter_policy={"dead_letter_topic": D},
    )
    update(service, ["ack_deadline_seconds", "message_retention_duration", "expiration_policy"])
    update(service, ["retry_policy", "dead_letter_policy"])
    record = plane.catalog.subscription(S)
    assert (record.ack_deadline_s, record.retention_s, record.expiration_s) == (10, 7 * DAY, 31 * DAY)
    assert record.retry is record.dead_letter is None


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        ([], "The update_mask in the UpdateSubscriptionRequest must be set, and must contain a non-empty paths list."),
        (["ackDeadlineSeconds"], "'ackDeadlineSeconds' is not a known Subscription field"),
        *(([field], f"'{field}' field in the Subscription is not mutable")
          for field in ("name", "topic", "filter", "enable_message_ordering", "detached", "state", "tags")),
    ],
)  # fmt: skip
def test_illegal_masks(service: Any, paths: list[str], text: str) -> None:
    before = create(service)
    with pytest.raises(InvalidArgument, match=text):
        update(service, paths, filter="attributes:x", enable_message_ordering=True)
    assert get(service) == before


def test_updates_are_checked_as_a_whole(service: Any) -> None:
    create(service)
    for paths, fields, error in (
        (["ack_deadline_seconds"], {"ack_deadline_seconds": 5}, InvalidArgument),
        (["dead_letter_policy"], {"dead_letter_policy": {"dead_letter_topic": "projects/p/topics/none"}}, NotFound),
        (["retry_policy.minimum_backoff"], {"retry_policy": {"minimum_backoff": seconds(700)}}, InvalidArgument),
    ):
        with pytest.raises(error):
            update(service, paths, **fields)


def test_deleting_the_topic(service: Any, plane: Any) -> None:
    create(service, dead_letter_policy={"dead_letter_topic": D})
    service.delete_topic(pubsub.DeleteTopicRequest(topic=T))
    service.delete_topic(pubsub.DeleteTopicRequest(topic=D))
    service.create_topic(pubsub.Topic(name=T))  # another topic of the same name changes nothing
    found = get(service)
    assert found.topic == "_deleted-topic_"
    assert found.dead_letter_policy.dead_letter_topic == "_deleted-topic_"
    listed = service.list_subscriptions(pubsub.ListSubscriptionsRequest(project="projects/p"))
    assert [subscription.topic for subscription in listed.subscriptions] == ["_deleted-topic_"]
    assert not service.list_topic_subscriptions(pubsub.ListTopicSubscriptionsRequest(topic=T)).subscriptions
    update(service, ["ack_deadline_seconds"], ack_deadline_seconds=30)
    update(service, ["dead_letter_policy.max_delivery_attempts"], dead_letter_policy={"max_delivery_attempts": 9})
    assert plane.catalog.subscription(S).dead_letter == DeadLetter(D, 9)


def test_delete(service: Any) -> None:
    create(service)
    service.delete_subscription(pubsub.DeleteSubscriptionRequest(subscription=S))
    with pytest.raises(NotFound):
        get(service)
    with pytest.raises(NotFound):
        service.delete_subscription(pubsub.DeleteSubscriptionRequest(subscription=S))
    create(service)


def test_detach(service: Any, plane: Any) -> None:
    create(service)
    for _ in range(2):
        service.detach_subscription(pubsub.DetachSubscriptionRequest(subscription=S))
    assert get(service).detached
    assert get(service).topic == T
    assert len(plane.commits.log) == 5
    assert plane.commits.log[-1].record == plane.commits.log[-2].record  # once more, for logs that had not confirmed it
    assert not service.list_topic_subscriptions(pubsub.ListTopicSubscriptionsRequest(topic=T)).subscriptions
    with pytest.raises(FailedPrecondition):
        service.create_snapshot(pubsub.CreateSnapshotRequest(name=N, subscription=S))


def test_listing_the_subscriptions_of_a_topic(service: Any) -> None:
    names = [f"projects/q{i % 2}/subscriptions/s{i:02d}" for i in range(7)]
    for name in names:
        create(service, name=name)
    create(service, name="projects/p/subscriptions/other", topic=D)
    found: list[str] = []
    token = ""
    while True:
        request = pubsub.ListTopicSubscriptionsRequest(topic=T, page_size=2, page_token=token)
        page = service.list_topic_subscriptions(request)
        found += page.subscriptions
        token = page.next_page_token
        if not token:
            break
    assert found == sorted(names)
    other = service.list_topic_subscriptions(pubsub.ListTopicSubscriptionsRequest(topic=T, page_size=1))
    token = other.next_page_token
    with pytest.raises(InvalidArgument, match="page_token"):
        service.list_topic_subscriptions(pubsub.ListTopicSubscriptionsRequest(topic=D, page_token=token))


def test_racing_creates_have_one_winner(service: Any, plane: Any) -> None:
    async def race() -> list[Any]:
        method = service.asynchronous.create_subscription
        requests = [pubsub.Subscription(name=S, topic=T) for _ in range(3)]
        return await asyncio.gather(*map(method, requests), return_exceptions=True)

    outcomes = asyncio.run(race())
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyExists", "AlreadyExists", "Subscription"]
    assert plane.catalog.counts()[1] == 1


# -- snapshots ---------------------------------------------------------------------------------------------------------


def snap(service: Any, **fields: Any) -> Any:
    return service.create_snapshot(pubsub.CreateSnapshotRequest(**{"name": N, "subscription": S, **fields}))


def test_create_snapshot(service: Any, plane: Any) -> None:
    create(service)
    plane.commits.oldest_s = 3_600.0
    made = snap(service, labels={"a": "b"}, tags={"x": "y"})
    assert (made.name, made.topic, dict(made.labels)) == (N, T, {"a": "b"})
    assert made.expire_time.ToNanoseconds() == plane.clock.time_ns() + (7 * DAY - 3_600) * 10**9
    assert service.get_snapshot(pubsub.GetSnapshotRequest(snapshot=N)) == made
    service.delete_subscription(pubsub.DeleteSubscriptionRequest(subscription=S))
    service.delete_topic(pubsub.DeleteTopicRequest(topic=T))
    assert service.get_snapshot(pubsub.GetSnapshotRequest(snapshot=N)).topic == "_deleted-topic_"


def test_a_snapshot_that_would_expire_soon_is_refused(service: Any, plane: Any) -> None:
    create(service)
    plane.commits.oldest_s = 7 * DAY - 3_599.0
    with pytest.raises(FailedPrecondition, match="less than an hour"):
        snap(service)
    plane.commits.oldest_s = 7 * DAY - 3_600.0
    snap(service)


def test_snapshot_names(service: Any) -> None:
    with pytest.raises(NotFound):
        snap(service)
    create(service)
    snap(service)
    with pytest.raises(AlreadyExists):
        snap(service)
    with pytest.raises(InvalidArgument, match=r"Invalid \[snapshots\] name"):
        snap(service, name="projects/p/snapshots/1")
    assert parse_snapshot(snap(service, name="").name)


def test_racing_snapshots_have_one_winner(service: Any, plane: Any) -> None:
    create(service)

    async def race() -> list[Any]:
        requests = [pubsub.CreateSnapshotRequest(name=N, subscription=S) for _ in range(2)]
        return await asyncio.gather(*map(service.asynchronous.create_snapshot, requests), return_exceptions=True)

    assert sorted(type(outcome).__name__ for outcome in asyncio.run(race())) == ["AlreadyExists", "Snapshot"]


def test_a_snapshot_of_a_subscription_deleted_meanwhile(service: Any) -> None:
    create(service)

    async def race() -> list[Any]:
        made = service.asynchronous.create_snapshot(pubsub.CreateSnapshotRequest(name=N, subscription=S))
        gone = service.asynchronous.delete_subscription(pubsub.DeleteSubscriptionRequest(subscription=S))
        return await asyncio.gather(made, gone, return_exceptions=True)

    assert isinstance(asyncio.run(race())[0], NotFound)


def test_update_list_and_delete_snapshots(service: Any) -> None:
    create(service)
    snap(service)
    wanted = {"name": N, "labels": {"k": "v"}}
    request = pubsub.UpdateSnapshotRequest(snapshot=wanted, update_mask={"paths": ["labels"]})
    changed = service.update_snapshot(request)
    assert dict(changed.labels) == {"k": "v"}
    request.update_mask.paths[:] = ["topic"]
    with pytest.raises(InvalidArgument, match="not mutable"):
        service.update_snapshot(request)
    assert list(service.list_snapshots(pubsub.ListSnapshotsRequest(project="projects/p")).snapshots) == [changed]
    assert list(service.list_topic_snapshots(pubsub.ListTopicSnapshotsRequest(topic=T)).snapshots) == [N]
    service.delete_snapshot(pubsub.DeleteSnapshotRequest(snapshot=N))
    with pytest.raises(NotFound):
        service.delete_snapshot(pubsub.DeleteSnapshotRequest(snapshot=N))
    assert not service.list_snapshots(pubsub.ListSnapshotsRequest(project="projects/p")).snapshots
