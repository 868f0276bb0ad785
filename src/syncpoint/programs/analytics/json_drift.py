"""How the fields of JSON payloads change over a topic's life: which there are, of which types, from when to when.

Place: `topic_profile` gives it a sample of messages, in any order. Pure.
Promise: a field is reported as new or gone only where the sample has messages enough before, or after,
to show it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

DEPTH_MAX: Final = 6
FIELDS_MAX: Final = 500
"""Paths that are followed; payloads whose keys are data would have one for each message."""
WITNESSES: Final = 20
"""Messages without a field, before its first or after its last occurrence, needed to report it as new or gone."""

TYPES: Final = {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}


@dataclass(slots=True)
class JsonField:
    """What was seen at one path. Times in nanoseconds since 1970; `types`: how many messages have which."""

    path: str
    messages: int = 0
    types: dict[str, int] = field(default_factory=dict)
    first_ns: int = 0
    last_ns: int = 0
    changes: tuple[str, ...] = ()

    def note(self, kinds: set[str], time_ns: int) -> None:
        """One more message has it."""
        self.first_ns = min(self.first_ns or time_ns, time_ns)
        self.last_ns = max(self.last_ns, time_ns)
        self.messages += 1
        for kind in kinds:
            self.types[kind] = self.types.get(kind, 0) + 1


@dataclass(frozen=True, slots=True)
class JsonDrift:
    """Fields of JSON payloads in a sample, most frequent first, with the number of messages that are JSON objects."""

    sampled: int
    objects: int
    fields: tuple[JsonField, ...]
    left_out: int  # paths beyond the bound


def json_drift(sample: Iterable[tuple[int, bytes]]) -> JsonDrift:
    """Profile the JSON fields of messages given as (publish time in nanoseconds, data)."""
    found: dict[str, JsonField] = {}
    beyond: set[str] = set()
    times: list[int] = []
    sampled = 0
    for time_ns, data in sample:
        sampled += 1
        value = _object(data)
        if value is None:
            continue
        times.append(time_ns)
        kinds: dict[str, set[str]] = {}
        for path, kind in _paths(value, "", 0):
            kinds.setdefault(path, set()).add(kind)
        for path, seen in kinds.items():
            if path in found or len(found) < FIELDS_MAX:
                found.setdefault(path, JsonField(path)).note(seen, time_ns)
            elif len(beyond) < FIELDS_MAX:
                beyond.add(path)
    times.sort()
    for one in found.values():
        one.changes = tuple(_changes(one, times))
    ordered = sorted(found.values(), key=lambda one: (-one.messages, one.path))
    return JsonDrift(sampled, len(times), tuple(ordered), len(beyond))


def _changes(one: JsonField, times: list[int]) -> Iterator[str]:
    types = sorted(kind for kind in one.types if kind != "null")
    if len(types) > 1:
        yield f"is {' and '.join(types)}"
    if sum(time < one.first_ns for time in times) >= WITNESSES:
        yield "appeared"
    if sum(time > one.last_ns for time in times) >= WITNESSES:
        yield "went"


def _object(data: bytes) -> dict[str, Any] | None:
    if data.lstrip()[:1] != b"{":
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _paths(value: dict[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    """All paths below an object with the types of what is there; elements of lists have one path, `name[]`."""
    for key, content in value.items():
        yield from _path(content, f"{prefix}{key}", depth)


def _path(content: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(content, dict):
        yield path, "object"
        if depth < DEPTH_MAX:
            yield from _paths(content, f"{path}.", depth + 1)
    elif isinstance(content, list):
        yield path, "array"
        if depth < DEPTH_MAX:
            for element in content:
                yield from _path(element, f"{path}[]", depth + 1)
    else:
        yield path, TYPES[type(content)]
