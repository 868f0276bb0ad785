"""All patterns by name, and the links that the tasks of a federation come to.

To add one: a module here with a `Pattern`, and its place in PATTERNS. Everything else, reading, changing and
writing, is the same for all.
"""

from __future__ import annotations

from difflib import get_close_matches

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.patterns import (
    active_passive,
    all_active,
    by_message,
    consolidate,
    normalise,
    queue_to_stream,
    replicate,
    spillover,
    stream_to_queue,
)
from syncpoint.programs.federation.spec import Federation

_ALL = (
    replicate.PATTERN,
    all_active.PATTERN,
    *by_message.PATTERNS.values(),
    normalise.PATTERN,
    consolidate.PATTERN,
    active_passive.PATTERN,
    spillover.PATTERN,
    stream_to_queue.PATTERN,
    queue_to_stream.PATTERN,
)
PATTERNS = {one.name: one for one in _ALL}


def links_of(federation: Federation) -> list[FederationLink]:
    """The links of all tasks, in the order of the file. Raises `InvalidArgument`."""
    found: list[FederationLink] = []
    for task in federation.tasks:
        pattern = PATTERNS.get(task.pattern)
        if pattern is None:
            close = get_close_matches(task.pattern, PATTERNS, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(PATTERNS)}"
            raise InvalidArgument(f"{task.place}.pattern", f"unknown pattern {task.pattern!r}; {hint}")
        found += pattern.links(task, federation)
    return found
