"""A pattern: which keys a kind of task has, and which links it comes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from syncpoint.base.model.documents import check_document
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.spec import Federation, Task, schema


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
        check_document(task.keys, whole, task.place)
