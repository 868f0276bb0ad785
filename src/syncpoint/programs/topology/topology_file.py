"""topology.yaml: which schemas, topics, queues, subscriptions, rules and grants there are to be.

Place: read by `syncpoint apply` and `diff`; `topology_plan` holds it against what there is.
Promise: keys are the fields of google.pubsub.v1 and of the options of syncpoint.admin.v1, with durations as people
write them and names that may be short. A mistake is refused with its place in the file and what would be right; what
the file does not say is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from syncpoint.base.model.durations import parse_duration
from syncpoint.base.model.errors import InvalidArgument, SyncpointError
from syncpoint.base.model.names import parse_schema, parse_subscription, parse_topic
from syncpoint.base.model.yaml_text import load_yaml_file
from syncpoint.wire.protobuf.messages import POOL, admin, pubsub

SECTIONS = ("schemas", "topics", "queues", "subscriptions", "grants")
_NAMES = {
    "topic": "topics", "dead_letter_topic": "topics", "forward_to": "topics", "records_topic": "topics",
    "schema": "schemas",
}  # fmt: skip
_MAY_BE_NONE = {"forward_to", "records_topic"}  # given as ''
_PARSERS = {"topics": parse_topic, "subscriptions": parse_subscription, "schemas": parse_schema}
_NOT_GIVEN = {
    "google.pubsub.v1.Topic": {"name", "state", "satisfies_pzs"},
    "google.pubsub.v1.Subscription": {
        "name", "state", "detached", "topic_message_retention_duration", "analytics_hub_subscription_info",
    },
    "google.pubsub.v1.Schema": {"name", "revision_id", "revision_create_time"},
    "syncpoint.admin.v1.TopicOptions": {"topic", "queue"},
    "syncpoint.admin.v1.SubscriptionOptions": {"subscription"},
}  # fmt: skip
_DURATION = "google.protobuf.Duration"


@dataclass(frozen=True, slots=True)
class WantedEntity:
    """A schema, topic or subscription. `message` and `options` (None: a schema has none) have the fields that are
    given, whose names are in `fields` and `option_fields`; `rules`: by name, None: not given. `queue`: it is part of
    one. `place`: where it stands in the file."""

    name: str
    message: Any
    options: Any
    fields: tuple[str, ...]
    option_fields: tuple[str, ...]
    place: str
    queue: bool = False
    rules: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class WantedGrant:
    """Who is to have a role on a resource, and nobody else."""

    resource: str
    role: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WantedTopology:
    """The whole file. Topics and subscriptions of queues are among the others."""

    projects: tuple[str, ...]
    schemas: Mapping[str, WantedEntity] = field(default_factory=dict)
    topics: Mapping[str, WantedEntity] = field(default_factory=dict)
    subscriptions: Mapping[str, WantedEntity] = field(default_factory=dict)
    grants: tuple[WantedGrant, ...] = ()


def load(path: Path, project: str | None) -> WantedTopology:
    """Read a file. Raises `InvalidArgument` naming the key, `OSError` when it cannot be read."""
    return parse(load_yaml_file(path), project)


def parse(content: Any, project: str | None) -> WantedTopology:
    """The file's content. `project`: of short names outside of `projects`. Raises `InvalidArgument`."""
    top = _mapping(content, "")
    _only(top, (*SECTIONS, "project", "projects"), "")
    parts: list[_Section] = []
    project = top.get("project", project)
    here = {key: value for key, value in top.items() if key in SECTIONS}
    if here:
        if not isinstance(project, str) or not project:
            raise InvalidArgument("project", "set `project`, or give --project, to resolve short names")
        parts.append(_Section(here, project, ""))
    for name, section in _mapping(top.get("projects") or {}, "projects").items():
        place = f"projects.{name}"
        _only(_mapping(section or {}, place), SECTIONS, place)
        parts.append(_Section(section or {}, str(name), f"{place}."))
    schemas, topics, subscriptions = dict[str, WantedEntity](), dict[str, WantedEntity](), dict[str, WantedEntity]()
    grants: list[WantedGrant] = []
    for part in parts:
        for found, into in (
            (part.schemas(), schemas),
            (part.topics(), topics),
            (part.subscriptions(), subscriptions),
        ):
            for entity in found:
                if entity.name in into:
                    raise InvalidArgument(
                        entity.place, f"{entity.name} is already defined at {into[entity.name].place}"
                    )
                into[entity.name] = entity
        for pair in part.queues():
            for entity, into in zip(pair, (topics, subscriptions), strict=True):
                if entity.name in into:
                    raise InvalidArgument(
                        entity.place, f"{entity.name} is already defined at {into[entity.name].place}"
                    )
                into[entity.name] = entity
        grants += part.grants()
    named = dict.fromkeys(part.project for part in parts)
    return WantedTopology(tuple(named), schemas, topics, subscriptions, tuple(grants))


class _Section:
    """The part of the file about one project."""

    def __init__(self, keys: Mapping[str, Any], project: str, place: str) -> None:
        self.keys, self.project, self.place = keys, project, place

    def _entities(self, section: str) -> Iterator[tuple[str, dict[str, Any], str]]:
        for name, keys in _mapping(self.keys.get(section) or {}, f"{self.place}{section}").items():
            place = f"{self.place}{section}.{name}"
            yield str(name), dict(_mapping(keys or {}, place)), place

    def schemas(self) -> Iterator[WantedEntity]:
        for name, keys, place in self._entities("schemas"):
            yield self._entity("schemas", name, keys, place, pubsub.Schema, None)

    def topics(self) -> Iterator[WantedEntity]:
        for name, keys, place in self._entities("topics"):
            yield self._entity("topics", name, keys, place, pubsub.Topic, admin.TopicOptions)

    def subscriptions(self) -> Iterator[WantedEntity]:
        for name, keys, place in self._entities("subscriptions"):
            if "topic" not in keys:
                raise InvalidArgument(f"{place}.topic", "set the topic")
            yield self._subscription(name, keys, place)

    def queues(self) -> Iterator[tuple[WantedEntity, WantedEntity]]:
        for name, keys, place in self._entities("queues"):
            for key in ("filter", "expiration_policy"):
                if key in keys:
                    raise InvalidArgument(
                        f"{place}.{key}", "is not allowed: a queue receives every message and never expires"
                    )
            topic_keys = dict(_mapping(keys.pop("topic", None) or {}, f"{place}.topic"))
            for option in _fields(admin.TopicOptions):
                if option in keys:
                    topic_keys[option] = keys.pop(option)
            topic = self._entity("topics", name, topic_keys, place, pubsub.Topic, admin.TopicOptions, queue=True)
            own = self._subscription(name, {**keys, "topic": topic.name}, place, queue=True)
            yield topic, own

    def grants(self) -> Iterator[WantedGrant]:
        for given, roles, place in self._entities("grants"):
            kind, slash, name = given.partition("/")
            if given.startswith("projects/") or given == "server":
                resource = given
            elif given == "project":
                resource = f"projects/{self.project}"
            elif slash and kind in _PARSERS:
                resource = self._name(kind, name, place)
            else:
                raise InvalidArgument(place, "write topics/NAME, subscriptions/NAME, schemas/NAME, project or server")
            for role, members in roles.items():
                if not isinstance(members, list) or not all(isinstance(one, str) for one in members):
                    raise InvalidArgument(
                        f"{place}.{role}", "must be a list of members, such as [serviceAccount:a@b.c]"
                    )
                yield WantedGrant(resource, str(role), tuple(dict.fromkeys(members)))

    def _subscription(self, name: str, keys: dict[str, Any], place: str, *, queue: bool = False) -> WantedEntity:
        rules = keys.pop("rules", None)
        entity = self._entity(
            "subscriptions", name, keys, place, pubsub.Subscription, admin.SubscriptionOptions, queue=queue
        )
        if rules is None:
            return entity
        found = {
            str(rule): _rule(str(rule), content, f"{place}.rules.{rule}")
            for rule, content in _mapping(rules, f"{place}.rules").items()
        }
        return WantedEntity(
            entity.name, entity.message, entity.options, entity.fields, entity.option_fields, place, queue, found
        )

    def _entity(
        self, collection: str, name: str, keys: Mapping[str, Any], place: str, kind: Any, options: Any, *,
        queue: bool = False,
    ) -> WantedEntity:  # fmt: skip
        full = self._name(collection, name, place)
        fields, more = _fields(kind), () if options is None else _fields(options)
        _only(keys, (*fields, *more, *(("rules",) if kind is pubsub.Subscription else ())), place)
        message, chosen = kind(name=full), None if options is None else options()
        for key, value in keys.items():
            self._fill(message if key in fields else chosen, key, value, place)
        given, given_options = (tuple(key for key in keys if key in one) for one in (fields, more))
        return WantedEntity(full, message, chosen, given, given_options, place, queue)

    def _fill(self, message: Any, key: str, value: Any, place: str) -> None:
        if value is None:
            raise InvalidArgument(f"{place}.{key}", "has no value; set one, or remove the key")
        try:
            written = self._written(message.DESCRIPTOR.fields_by_name[key], value, f"{place}.{key}")
            json_format.ParseDict({key: written}, message, descriptor_pool=POOL)
        except (json_format.ParseError, ValueError) as error:
            raise InvalidArgument(f"{place}.{key}", str(error)) from None

    def _written(self, described: Any, value: Any, place: str) -> Any:
        """A value as Protocol Buffers read it from JSON. Raises `ValueError`, `InvalidArgument`."""
        if isinstance(value, list):
            return [self._written(described, one, place) for one in value]
        kind = described.message_type
        if kind is None:
            collection = _NAMES.get(described.name)
            if collection is None or (value == "" and described.name in _MAY_BE_NONE):
                return value
            return self._name(collection, str(value), place)
        if kind.full_name == _DURATION:
            seconds, nanos = parse_duration(str(value))
            return f"{seconds}.{nanos:09d}s"
        if described.name == "expiration_policy" and value == "never":
            return {}
        if isinstance(value, dict) and not kind.GetOptions().map_entry:
            for key in value:
                if key not in kind.fields_by_name:
                    raise InvalidArgument(f"{place}.{key}", f"unknown key; choose from {_list(kind.fields_by_name)}")
            return {key: self._written(kind.fields_by_name[key], one, f"{place}.{key}") for key, one in value.items()}
        return value

    def _name(self, collection: str, given: str, place: str) -> str:
        full = given if given.startswith("projects/") else f"projects/{self.project}/{collection}/{given}"
        try:
            return _PARSERS[collection](full)
        except SyncpointError as error:
            raise InvalidArgument(place, error.message) from None


def _rule(name: str, content: Any, place: str) -> Any:
    """The admin.v1.Rule of an entry: an SQL filter, or a mapping."""
    if isinstance(content, str):
        content = {"filter": content}
    keys = _mapping(content or {}, place)
    _only(keys, ("filter", "correlation", "action", "parameters"), place)
    if "filter" in keys and "correlation" in keys:
        raise InvalidArgument(place, "must have exactly one of `filter` and `correlation`")
    rule = admin.Rule(name=name, action=str(keys.get("action", "")))
    if "correlation" in keys:
        pairs = _mapping(keys["correlation"], f"{place}.correlation")
        rule.correlation.properties.update({str(key): str(value) for key, value in pairs.items()})
    else:
        rule.sql = str(keys.get("filter", "1=1"))
    for key, value in _mapping(keys.get("parameters") or {}, f"{place}.parameters").items():
        parameter = rule.parameters[str(key)]
        match value:
            case None:
                pass
            case bool():
                parameter.truth = value
            case int() if -(1 << 63) <= value < 1 << 63:
                parameter.integer = value
            case float():
                parameter.number = value
            case str():
                parameter.text = value
            case _:
                raise InvalidArgument(f"{place}.parameters.{key}", "must be a string, a number, a boolean or null")
    return rule


def _fields(kind: type[Message]) -> tuple[str, ...]:
    """The fields of a message that a file may give."""
    left_out = _NOT_GIVEN[kind.DESCRIPTOR.full_name]
    return tuple(one.name for one in kind.DESCRIPTOR.fields if one.name not in left_out)


def _mapping(value: Any, place: str) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise InvalidArgument(place or "the file", "must be a mapping with names as keys")
    return value


def _only(keys: Mapping[Any, Any], known: Iterable[str], place: str) -> None:
    for key in keys:
        if key not in known:
            raise InvalidArgument(f"{place}.{key}".lstrip("."), f"unknown key; choose from {_list(known)}")


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
