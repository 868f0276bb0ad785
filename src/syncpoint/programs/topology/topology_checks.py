"""What a server would refuse of a file, found before anything is changed.

Place: between `topology_live` and `topology_plan`, for commands that show or carry out a plan. The checks are those of
the server's own API, on the messages that the plan would send.
Promise: rules, filters, bounds and names of targets that a server of this version refuses raise here, with their place
in the file. What only a server knows is left to it: where pushes may go, quotas, rights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from syncpoint.base.model.errors import InvalidArgument, SyncpointError
from syncpoint.base.model.names import project_of
from syncpoint.front.api.options_admin import duplicate_window_s, time_to_live_s
from syncpoint.front.api.rule_admin import checked
from syncpoint.front.api.subscriptions import new_subscription
from syncpoint.front.api.topics import new_topic
from syncpoint.programs.topology.topology_file import WantedEntity, WantedTopology
from syncpoint.programs.topology.topology_plan import LiveTopology, laid_over


def check(wanted: WantedTopology, live: LiveTopology) -> None:
    """Raise `InvalidArgument` for the first thing in the file that a server would refuse, naming its place."""
    known = {*wanted.topics, *live.topics}
    projects = {project_of(name) for part in (wanted.topics, wanted.subscriptions) for name in part}
    for topic in wanted.topics.values():
        _check_topic(topic, live)
    for subscription in wanted.subscriptions.values():
        _check_subscription(subscription, live)
    for entity in (*wanted.topics.values(), *wanted.subscriptions.values()):
        for field, name in _targets(entity):
            if project_of(name) in projects and name not in known:
                raise InvalidArgument(
                    f"{entity.place}.{field}", f"topic {name} does not exist, neither here nor on the server"
                )


def _check_topic(wanted: WantedEntity, live: LiveTopology) -> None:
    there = live.topics.get(wanted.name)
    message = wanted.message if there is None else laid_over(there, wanted.message, wanted.fields)
    with _placed(wanted.place):
        new_topic(message, 0)
        time_to_live_s(wanted.options, "default_ttl")
        duplicate_window_s(wanted.options, "duplicate_detection_window")


def _check_subscription(wanted: WantedEntity, live: LiveTopology) -> None:
    there = live.subscriptions.get(wanted.name)
    message = laid_over(wanted.message if there is None else there, wanted.message, wanted.fields)
    message.ClearField("push_config")  # the server alone knows where it may push
    with _placed(wanted.place):
        new_subscription(message, None, 0)
        time_to_live_s(wanted.options, "ttl")
    for name, rule in (wanted.rules or {}).items():
        with _placed(f"{wanted.place}.rules.{name}"):
            checked(rule)


def _targets(entity: WantedEntity) -> Iterator[tuple[str, str]]:
    """Fields that name topics, with the names."""
    if entity.message.DESCRIPTOR.name == "Topic":
        found = [("records_topic", entity.options.records_topic)]
    else:
        letters = entity.message.dead_letter_policy.dead_letter_topic
        found = [("topic", entity.message.topic), ("dead_letter_policy.dead_letter_topic", letters)]
        found.append(("forward_to", entity.options.forward_to))
    return ((field, name) for field, name in found if name)


@contextmanager
def _placed(place: str) -> Iterator[None]:
    """Name the place in the file in front of what is wrong."""
    try:
        yield
    except SyncpointError as error:
        raise InvalidArgument(place, error.message) from None
