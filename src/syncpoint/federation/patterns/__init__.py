"""Patterns: what kinds of tasks there are. Each says which keys it has and which links it comes to.

To add one: a module here with a `Pattern`, and a line in REGISTRY. Everything behind it, reading, changing and writing,
is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from syncpoint.federation.flow_plan import FederationLink
from syncpoint.federation.spec import Federation, Task, check, schema
from syncpoint.model.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Pattern:
    """`keys`: JSON schema of the task's own keys beside those of every flow; `links`: what it comes to."""

    name: str
    keys: Mapping[str, Any]
    required: tuple[str, ...]
    links: Callable[[Task, Federation], list[FederationLink]]

    def check(self, task: Task) -> None:
        """Raise `InvalidArgument` when a task of this pattern has keys it should not have, or lacks some."""
        whole = {
            "$defs": schema()["$defs"],
            "allOf": [{"$ref": "#/$defs/flow"}],
            "properties": {"pattern": {"const": self.name}, **self.keys},
            "required": list(self.required),
            "unevaluatedProperties": False,
        }
        check(task.keys, whole, task.place)


def registry() -> dict[str, Pattern]:
    """All patterns by name."""
    from syncpoint.federation.patterns import all_active, replicate

    return {one.name: one for one in (replicate.PATTERN, all_active.PATTERN)}


def links_of(federation: Federation) -> list[FederationLink]:
    """The links of all tasks, in the order of the file. Raises `InvalidArgument`."""
    known, found = registry(), []
    for task in federation.tasks:
        pattern = known.get(task.pattern)
        if pattern is None:
            close = get_close_matches(task.pattern, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            raise InvalidArgument(f"{task.place}.pattern", f"there is no pattern {task.pattern!r}; {hint}")
        found += pattern.links(task, federation)
    return found
