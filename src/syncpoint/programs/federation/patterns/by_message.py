"""validate, reduce, enrich, route: one way, as `replicate`, and something is done to each message.

The four have the same keys and differ in what they require, so a task that enriches may validate first and route after
it. Whatever the order in the file, a message is validated, then enriched, then reduced, then routed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from syncpoint.base.model.durations import in_seconds
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.patterns import replicate
from syncpoint.programs.federation.patterns.pattern import Pattern
from syncpoint.programs.federation.spec import Federation, Task
from syncpoint.programs.federation.steps import enriching, reducing, validating
from syncpoint.programs.federation.steps.references import Reference
from syncpoint.programs.federation.steps.routing import RouteByCondition
from syncpoint.programs.federation.steps.step import DROP, FrameStep, StepChain

_TOPIC = {"type": "string", "description": "Full name of a topic at the target."}
INVALID: dict[str, Any] = {
    "description": "Destination of messages that a step refuses: `drop`, or a topic at the target.",
    "oneOf": [
        {"const": DROP},
        {"type": "object", "required": ["topic"], "additionalProperties": False, "properties": {"topic": _TOPIC}},
    ],
}
STEP_KEYS: dict[str, Any] = {
    "schema": validating.KEYS,
    "lookups": enriching.KEYS,
    **reducing.KEYS,
    "routes": {
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "required": ["when", "topic"],
            "additionalProperties": False,
            "properties": {"when": {"type": "string", "minLength": 1}, "topic": _TOPIC},
        },
    },
    "otherwise": {**INVALID, "description": "Destination of messages that match no condition."},
    "invalid": INVALID,
}
_KEYS: dict[str, Any] = {**replicate.PATTERN.keys, **STEP_KEYS}
_REFUSING = ("schema", "lookups", "omit", "keep")


def links(task: Task, federation: Federation) -> list[FederationLink]:
    """The link of `replicate` with the steps that the task names."""
    PATTERNS[task.pattern].check(task)
    steps = steps_of(task, federation)
    if not steps:
        raise InvalidArgument(task.place, f"{task.pattern} needs at least one of {', '.join(_REFUSING)}")
    (link,) = replicate.links_of(task, federation)
    return [replace(link, steps=steps)]


def steps_of(task: Task, federation: Federation) -> StepChain:
    """The steps that a task names, in their order, whichever pattern it is of. Raises `InvalidArgument`."""
    refusing = [name for name in _REFUSING if name in task.keys]
    if refusing and "invalid" not in task.keys:
        raise InvalidArgument(
            f"{task.place}.invalid",
            f"required for messages that `{refusing[0]}` refuses: `drop`, or `{{topic: projects/P/topics/T}}`",
        )
    steps = [*_validation(task, federation), *_enrichment(task, federation), *_reduction(task), *_routes(task)]
    return StepChain(tuple(steps), topic_of(task.keys.get("invalid", DROP), f"{task.place}.invalid"))


def _validation(task: Task, federation: Federation) -> list[FrameStep]:
    keys = task.keys.get("schema")
    if keys is None:
        return []
    return [validating.Validate(keys["file"], validating.read_schema(keys, federation.base, f"{task.place}.schema"))]


def _enrichment(task: Task, federation: Federation) -> list[FrameStep]:
    found, taken = [], set[str]()
    for number, keys in enumerate(task.keys.get("lookups", ())):
        for name in keys["take"].values():
            if name in taken:
                raise InvalidArgument(f"{task.place}.lookups.{number}.take", f"the field {name} appears twice")
            taken.add(name)
        for name in (*keys["take"].values(), *keys.get("match", {}).values()):
            if "'" in name and '"' in name:
                raise InvalidArgument(f"{task.place}.lookups.{number}", f"Spark does not support the field name {name}")
        path = federation.base / keys["table"]
        if not path.exists():
            raise InvalidArgument(f"{task.place}.lookups.{number}.table", f"there is no {path}")
        fields, attributes = keys.get("match", {}), keys.get("match_attributes", {})
        columns = (*fields, *attributes)
        refresh_s, types = in_seconds(keys.get("refresh", "10m")), tuple(keys.get("types", {}).items())
        reference = Reference(path, keys["format"], columns, tuple(keys["take"]), refresh_s, types)
        found.append(enriching.Lookup(reference, fields, attributes, keys["take"], keys.get("missing") == "refuse"))
    return [enriching.Enrich(tuple(found))] if found else []


def _reduction(task: Task) -> list[FrameStep]:
    given = {name: tuple(task.keys[name]) for name in reducing.KEYS if name in task.keys}
    return [reducing.Reduce(**given)] if given else []


def _routes(task: Task) -> list[FrameStep]:
    if "routes" not in task.keys:
        if "otherwise" in task.keys:
            raise InvalidArgument(f"{task.place}.otherwise", "`routes` must not be empty")
        return []
    routes = tuple(
        (one["when"], topic_of(one, f"{task.place}.routes.{number}")) for number, one in enumerate(task.keys["routes"])
    )
    otherwise = task.keys.get("otherwise", "")
    return [
        RouteByCondition(routes, otherwise and topic_of(otherwise, f"{task.place}.otherwise"), f"{task.place}.routes")
    ]


def topic_of(keys: str | Mapping[str, Any], place: str) -> str:
    """DROP, or a topic's full name. Raises `InvalidArgument`."""
    if isinstance(keys, str):
        return keys
    topic: str = keys["topic"]
    replicate.check_topic(topic, f"{place}.topic")
    return topic


PATTERNS = {
    name: Pattern(name, _KEYS, ("from", "to", *required), links)
    for name, required in {"validate": ("schema",), "reduce": (), "enrich": ("lookups",), "route": ("routes",)}.items()
}
