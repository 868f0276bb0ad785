"""topology.yaml: what it may say, and how mistakes are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.topology.topology_file import load, parse

pytestmark = pytest.mark.shows("topologies")

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "topology" / "two_tenants.yaml"


def parsed(text: str, project: str | None = "p") -> Any:
    return parse(yaml.safe_load(text), project)


def test_names_are_short_in_their_project_and_durations_are_peoples() -> None:
    found = parsed("""
        topics: {orders: {message_retention_duration: 1h30m, default_ttl: 7d, labels: {a: b}}}
        subscriptions:
          onwards:
            topic: orders
            forward_to: projects/q/topics/archive
            expiration_policy: never
            dead_letter_policy: {dead_letter_topic: dead}
            retry_policy: {minimum_backoff: 500ms}
            rules: {eu: "region = 'eu'", big: {filter: total > @n, action: SET big = 1, parameters: {n: 5}}}
    """)
    topic = found.topics["projects/p/topics/orders"]
    assert topic.message.message_retention_duration.seconds == 5_400
    assert topic.options.default_ttl.seconds == 7 * 86_400
    assert (topic.fields, topic.option_fields) == (("message_retention_duration", "labels"), ("default_ttl",))
    one = found.subscriptions["projects/p/subscriptions/onwards"]
    assert one.message.topic == "projects/p/topics/orders"
    assert one.message.dead_letter_policy.dead_letter_topic == "projects/p/topics/dead"
    assert one.message.retry_policy.minimum_backoff.nanos == 500_000_000
    assert one.message.HasField("expiration_policy")
    assert not one.message.expiration_policy.HasField("ttl")
    assert one.options.forward_to == "projects/q/topics/archive"
    assert one.rules["eu"].sql == "region = 'eu'"
    assert one.rules["big"].parameters["n"].integer == 5


def test_what_a_topic_is_recorded_into_may_be_short_and_may_be_nothing() -> None:
    found = parsed("""
        topics: {one: {records_topic: records}, two: {records_topic: ''}}
        queues: {six: {records_topic: r77}}
    """)
    assert {name.rpartition("/")[2]: one.options.records_topic for name, one in found.topics.items()} == {
        "one": "projects/p/topics/records", "two": "", "six": "projects/p/topics/r77",
    }  # fmt: skip
    assert found.topics["projects/p/topics/two"].option_fields == ("records_topic",)


def test_a_queue_is_a_topic_and_a_subscription() -> None:
    found = parsed("queues: {jobs: {ack_deadline_seconds: 60, send_suspended: true, topic: {labels: {a: b}}}}")
    topic, own = found.topics["projects/p/topics/jobs"], found.subscriptions["projects/p/subscriptions/jobs"]
    assert topic.queue
    assert own.queue
    assert topic.options.send_suspended
    assert dict(topic.message.labels) == {"a": "b"}
    assert own.message.ack_deadline_seconds == 60
    assert own.message.topic == topic.name


def test_grants_name_members_of_roles() -> None:
    found = parsed("grants: {topics/orders: {roles/pubsub.publisher: ['user:a@b.c', 'user:a@b.c']}, project: {r: []}}")
    assert [tuple(vars_of(one)) for one in found.grants] == [
        ("projects/p/topics/orders", "roles/pubsub.publisher", ("user:a@b.c",)),
        ("projects/p", "r", ()),
    ]


def vars_of(grant: Any) -> tuple[Any, ...]:
    return grant.resource, grant.role, grant.members


def test_sections_of_projects_stand_beside_each_other() -> None:
    found = parsed("projects: {one: {topics: {abc: }}, two: {topics: {abc: {}}}}", None)
    assert list(found.topics) == ["projects/one/topics/abc", "projects/two/topics/abc"]
    assert found.projects == ("one", "two")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("[]", "the file", "a mapping"),
        ("topic: {}", "topic", "choose from grants, project, projects, queues"),
        ("topics: {abc: {retention: 1d}}", "topics.abc.retention", "message_retention_duration"),
        ("topics: {abc: {default_ttl: soon}}", "topics.abc.default_ttl", "is not a duration"),
        ("topics: {abc: {labels: 5}}", "topics.abc.labels", ""),
        ("topics: {abc: {labels: }}", "topics.abc.labels", "has no value"),
        ("topics: {a: {}}", "topics.a", "Invalid"),
        ("topics: {abc: {records_topic: a}}", "topics.abc.records_topic", "Invalid"),
        ("subscriptions: {sub: {topic: ''}}", "subscriptions.sub.topic", "Invalid"),
        ("topics: {abc: {queue: true}}", "topics.abc.queue", "unknown key"),
        ("subscriptions: {sub: {}}", "subscriptions.sub.topic", "set the topic"),
        ("subscriptions: {sub: {topic: abc, state: ACTIVE}}", "subscriptions.sub.state", "unknown key"),
        (
            "subscriptions: {sub: {topic: abc, retry_policy: {pause: 1s}}}",
            "subscriptions.sub.retry_policy.pause",
            "maxi",
        ),
        ("subscriptions: {sub: {topic: abc, rules: {x: {sql: a}}}}", "subscriptions.sub.rules.x.sql", "filter"),
        (
            "subscriptions: {sub: {topic: abc, rules: {x: {filter: a, correlation: {}}}}}",
            "subscriptions.sub.rules.x",
            "exactly one",
        ),
        ("queues: {jobs: {filter: x}}", "queues.jobs.filter", "receives every message"),
        ("queues: {jobs: {}}\ntopics: {jobs: {}}", "queues.jobs", "already defined at topics.jobs"),
        ("grants: {orders: {}}", "grants.orders", "topics/NAME"),
        ("grants: {project: {r: user}}", "grants.project.r", "a list of members"),
        ("projects: {one: {project: x}}", "projects.one.project", "unknown key"),
    ],
)
def test_mistakes_are_named_by_their_place(text: str, place: str, words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parsed(text)
    assert caught.value.field == place
    assert words in caught.value.problem


def test_without_a_project_short_names_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="set `project`"):
        parsed("topics: {abc: {}}", None)


def test_the_example_is_read() -> None:
    found = load(EXAMPLE, None)
    assert found.projects == ("hub", "factory", "lab")
    assert len(found.grants) == 10
