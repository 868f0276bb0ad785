"""active-passive: only the primary is used; the secondary has copies, for as long as a failover may take, twice.

One link, one way, of what was published at the primary. Copies carry the attribute `replicated`; a rule on the
secondary's subscriptions, which `syncpoint federation standby` makes, gives them a time to live and leaves what is
published there during an outage alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncpoint.base.model.durations import in_seconds
from syncpoint.base.model.errors import InvalidArgument, NotFound
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.patterns.pattern import Pattern
from syncpoint.programs.federation.spec import FederatedCluster, Federation, Task
from syncpoint.programs.federation.steps.labelling import Label
from syncpoint.programs.federation.steps.step import StepChain

REPLICATED = "replicated"
LOCAL_RULE, COPIES_RULE = "local", "copies"
_NAME = {"$ref": "#/$defs/name"}


@dataclass(frozen=True, slots=True)
class ActivePassive:
    """A task as the runbook needs it. `ttl_s`: of copies, twice the time that a failover may take."""

    task: str
    primary: FederatedCluster
    secondary: FederatedCluster
    project: str
    topics: tuple[str, ...]
    ttl_s: float

    @property
    def ttl(self) -> str:
        """As rules say it: hours:minutes:seconds."""
        minutes, left_s = divmod(max(1, round(self.ttl_s)), 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        return f"{days}.{hours}:{minutes}:{left_s}" if days else f"{hours}:{minutes}:{left_s}"


def links(task: Task, federation: Federation) -> list[FederationLink]:
    """The one link."""
    PATTERN.check(task)
    found = read(task, federation)
    return [
        FederationLink(
            name=task.name,
            pattern=task.pattern,
            source=found.primary,
            target=found.secondary,
            source_project=found.project,
            target_project=found.project,
            topics=found.topics,
            origins=("",),
            change=task.change,
            steps=StepChain((Label(REPLICATED, "1"),)),
        )
    ]


def read(task: Task, federation: Federation) -> ActivePassive:
    """The task's keys. Raises `InvalidArgument`."""
    keys, place = task.keys, task.place
    if keys["primary"] == keys["secondary"]:
        raise InvalidArgument(f"{place}.secondary", "must be a cluster other than the primary")
    return ActivePassive(
        task.name,
        federation.cluster(keys["primary"], f"{place}.primary"),
        federation.cluster(keys["secondary"], f"{place}.secondary"),
        keys["project"],
        tuple(keys.get("topics", ["*"])),
        2 * in_seconds(keys["failover"]),
    )


def task_named(federation: Federation, name: str) -> ActivePassive:
    """A task of the file. Raises `NotFound`."""
    known = [task for task in federation.tasks if task.pattern == PATTERN.name]
    for task in known:
        if task.name == name:
            return read(task, federation)
    there = ", ".join(task.name for task in known) or "none"
    raise NotFound(name, f"The file has no task {name!r} of the pattern {PATTERN.name}; there is {there}.")


PATTERN = Pattern(
    "active-passive",
    {
        "primary": _NAME,
        "secondary": _NAME,
        "project": {"type": "string"},
        "topics": {"$ref": "#/$defs/patterns"},
        "failover": {
            "$ref": "#/$defs/duration",
            "description": "Maximum duration of a failover; copies are kept twice as long.",
        },
    },
    ("primary", "secondary", "project", "failover"),
    links,
)
