"""What a server would refuse of a file is found before anything is changed."""

from __future__ import annotations

import pytest
import yaml

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.topology.topology_checks import check
from syncpoint.programs.topology.topology_file import WantedTopology, parse
from syncpoint.programs.topology.topology_plan import LiveTopology
from syncpoint.wire.protobuf.messages import pubsub

GOOD = """
topics: {meters: {default_ttl: 1h, duplicate_detection_window: 1m}, dead: {}}
queues: {jobs: {}}
subscriptions:
  large:
    topic: meters
    filter: attributes:kwh
    forward_to: dead
    ttl: 7d
    dead_letter_policy: {dead_letter_topic: dead, max_delivery_attempts: 5}
    rules: {large: {filter: kwh > @limit, action: SET size = 'l', parameters: {limit: 10}}}
"""


def wanted_of(text: str) -> WantedTopology:
    return parse(yaml.safe_load(text), "p")


def test_what_a_server_takes_passes() -> None:
    wanted = wanted_of(GOOD)
    check(wanted, LiveTopology())
    check(wanted, LiveTopology(subscriptions={one.name: one.message for one in wanted.subscriptions.values()}))


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("rules: {large: 'kwh >'}", "rules.large"),
        ("rules: {large: 'sys.Nothing = 1'}", "rules.large"),
        ("rules: {large: {filter: 'a = 1', action: 'SET = 1'}}", "rules.large"),
        ("rules: {large: {filter: 'a = 1', action: 'SET [sys.ForwardHops] = 0'}}", "rules.large"),
        ("rules: {large: {filter: 'a = @limit', parameters: {limits: 1}}}", "rules.large"),
        ("filter: 'attributes.a = '", ""),
        ("forward_to: nowhere", "forward_to"),
        ("dead_letter_policy: {dead_letter_topic: nowhere, max_delivery_attempts: 5}", "dead_letter_policy"),
        ("dead_letter_policy: {dead_letter_topic: meters, max_delivery_attempts: 2}", ""),
        ("ack_deadline_seconds: 5", ""),
        ("ttl: 10ms", ""),
        ("retry_policy: {minimum_backoff: 700s}", ""),
    ],
)
def test_a_mistake_of_a_subscription_is_named_by_its_place(line: str, place: str) -> None:
    wanted = wanted_of(f"topics: {{meters: {{}}}}\nsubscriptions:\n  large:\n    topic: meters\n    {line}\n")
    with pytest.raises(InvalidArgument) as caught:
        check(wanted, LiveTopology())
    assert caught.value.field.startswith(f"subscriptions.large.{place}".rstrip("."))


@pytest.mark.parametrize("line", ["default_ttl: 1ms", "duplicate_detection_window: 1s", "records_topic: nowhere"])
def test_a_mistake_of_a_topic_is_named_by_its_place(line: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check(wanted_of(f"topics: {{meters: {{{line}}}}}"), LiveTopology())
    assert caught.value.field.startswith("topics.meters")


def test_a_target_may_be_on_the_server_and_in_a_project_that_the_file_does_not_speak_of() -> None:
    text = "topics: {meters: {}}\nsubscriptions: {sub: {topic: meters, forward_to: %s}}"
    live = LiveTopology(topics={"projects/p/topics/there": pubsub.Topic(name="projects/p/topics/there")})
    check(wanted_of(text % "there"), live)
    check(wanted_of(text % "projects/other/topics/unknown"), live)
    with pytest.raises(InvalidArgument, match="topic projects/p/topics/missing does not exist"):
        check(wanted_of(text % "missing"), live)
