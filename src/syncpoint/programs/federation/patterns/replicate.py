"""replicate: one way, from topics of one cluster to another cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.names import NAME_RULE, parse_topic
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.patterns.pattern import Pattern
from syncpoint.programs.federation.spec import Federation, Task

_FROM = {
    "type": "object",
    "required": ["cluster"],
    "additionalProperties": False,
    "properties": {
        "cluster": {"$ref": "#/$defs/name"},
        "topic": {"type": "string"},
        "project": {"type": "string"},
        "topics": {"$ref": "#/$defs/patterns"},
    },
    "oneOf": [{"required": ["topic"]}, {"required": ["project"]}],
}
_TO = {
    "type": "object",
    "required": ["cluster"],
    "additionalProperties": False,
    "properties": {
        "cluster": {"$ref": "#/$defs/name"},
        "topic": {"type": "string", "description": "Full name; {topic} is replaced by the id at the source."},
        "project": {"type": "string"},
    },
}


def links(task: Task, federation: Federation) -> list[FederationLink]:
    """The one link of the task."""
    PATTERN.check(task)
    return links_of(task, federation)


def links_of(task: Task, federation: Federation) -> list[FederationLink]:
    """Return the links of a task whose further keys were already checked."""
    place = task.place
    source, target = task.keys["from"], task.keys["to"]
    project, topics = _read_from(source, f"{place}.from")
    to_project, rename = project, "{topic}"
    if "topic" in target:
        to_project, rename = split_topic(target["topic"], f"{place}.to.topic")
    elif "project" in target:
        to_project = target["project"]
    made = FederationLink(
        name=task.name,
        pattern=task.pattern,
        source=federation.cluster(source["cluster"], f"{place}.from.cluster"),
        target=federation.cluster(target["cluster"], f"{place}.to.cluster"),
        source_project=project,
        target_project=to_project,
        topics=topics,
        rename=rename,
        change=task.change,
        acks=task.keys.get("acks", False),
    )
    same_server = made.source.endpoint == made.target.endpoint
    if same_server and made.source_project == made.target_project and made.rename == "{topic}":
        raise InvalidArgument(f"{place}.to", "must differ from the source; choose another cluster or topic")
    if "{topic}" not in made.rename and (len(topics) > 1 or any(mark in topics[0] for mark in "*?[")):
        raise InvalidArgument(f"{place}.to.topic", "several topics would be merged into one; use {topic} in the name")
    return [made]


def _read_from(keys: Mapping[str, Any], place: str) -> tuple[str, tuple[str, ...]]:
    if "topic" in keys:
        if "topics" in keys:
            raise InvalidArgument(place, "set `topic`, or `project` and `topics`")
        project, short = split_topic(keys["topic"], f"{place}.topic")
        return project, (short,)
    return keys["project"], tuple(keys.get("topics", ["*"]))


def check_topic(name: str, place: str, example: str = "") -> None:
    """Raise `InvalidArgument`, saying what would be right, for what is no topic's full name. `example`: a name that
    is checked in its stead.
    """
    try:
        parse_topic(example or name)
    except InvalidArgument:
        full = "projects/PROJECT/topics/"
        if "/" not in name:
            why = f"must be a full name, such as {full}{name or 'NAME'}"
            raise InvalidArgument(place, f"{name!r} is not a topic name: {why}") from None
        raise InvalidArgument(place, f"{name!r} is not a topic name. {NAME_RULE}; in full: {full}NAME.") from None


def split_topic(name: str, place: str) -> tuple[str, str]:
    """(project, id) of a topic's full name, in which {topic} may stand. Raises `InvalidArgument`."""
    check_topic(name, place, name.replace("{topic}", "topic"))
    _, project, _, short = name.split("/")
    return project, short


PATTERN = Pattern("replicate", {"from": _FROM, "to": _TO, "acks": {"$ref": "#/$defs/acks"}}, ("from", "to"), links)
