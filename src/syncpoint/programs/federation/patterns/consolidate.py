"""consolidate: the topics of several regions become one of a central cluster; each region's messages are evaluated
first.

A link for each region, with the region's name in an attribute. The keys of the task about messages (`where`, `select`,
`python`) is done for each region by itself, by the region's own flow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.patterns import replicate
from syncpoint.programs.federation.patterns.pattern import Pattern
from syncpoint.programs.federation.spec import Federation, Task
from syncpoint.programs.federation.steps.labelling import Label
from syncpoint.programs.federation.steps.step import StepChain

REGION = "region"
_FROM: dict[str, Any] = {
    "type": "object",
    "required": ["clusters", "topic"],
    "additionalProperties": False,
    "properties": {
        "clusters": {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"$ref": "#/$defs/name"}},
        "topic": {"type": "string"},
    },
}
_KEYS: dict[str, Any] = {
    "from": _FROM,
    "to": {
        "type": "object",
        "required": ["cluster", "topic"],
        "additionalProperties": False,
        "properties": {"cluster": {"$ref": "#/$defs/name"}, "topic": {"type": "string"}},
    },
    "attribute": {
        "type": "string",
        "minLength": 1,
        "description": "Attribute for the name of the region; default region.",
    },
}


def links(task: Task, federation: Federation) -> list[FederationLink]:
    """One from each region."""
    PATTERN.check(task)
    attribute = task.keys.get("attribute", REGION)
    found = []
    for cluster in task.keys["from"]["clusters"]:
        if cluster == task.keys["to"]["cluster"] and task.keys["from"]["topic"] == task.keys["to"]["topic"]:
            raise InvalidArgument(
                f"{task.place}.to.topic", f"{cluster} has this topic as a region; choose another topic"
            )
        keys = {**task.keys, "from": {"cluster": cluster, "topic": task.keys["from"]["topic"]}}
        (link,) = replicate.links_of(replace(task, keys=keys), federation)
        steps = StepChain((Label(attribute, cluster),))
        found.append(replace(link, name=f"{task.name}.{cluster}", steps=steps))
    return found


PATTERN = Pattern("consolidate", _KEYS, ("from", "to"), links)
