"""federation.yaml: which servers there are, which messages move between them, and what runs the movement.

Place: read by every command of `syncpoint federation` and by the job on Spark; `flow_plan` makes links of it.
Promise: the file is held against `schema.json` and against itself; a mistake is refused with its place and what would
be right. Secrets are referred to, by a file or a variable of the environment, and never read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from syncpoint.base.model.documents import check_document, load_document, schema_of
from syncpoint.base.model.durations import in_seconds
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.names import parse_federation
from syncpoint.programs.federation.flow_rules import FlowRule, compiled
from syncpoint.programs.federation.streams.stream_ends import FileStream, KafkaStream, stream_of

MAX_ROWS, MAX_BYTES = 200_000, 256 << 20
"""Maximum of one flow in one batch, by default."""


@dataclass(frozen=True, slots=True)
class FederatedCluster:
    """A server of one process, or a proxy of a cluster, under the name that copies carry as their origin; or, where
    `stream`: an end that is no server of ours.
    """

    name: str
    endpoint: str
    tls: Mapping[str, str] | None = None  # ca, cert, key: files
    token: Mapping[str, str] | None = None  # file, env or command: where the token is
    stream: KafkaStream | FileStream | None = None


@dataclass(frozen=True, slots=True)
class FieldChange:
    """What happens to messages on their way. `start`: earliest, latest or a time; `loss`: fail or accept;
    `rule_failure`: stop or drop.
    """

    where: str = ""
    select: Mapping[str, str] = field(default_factory=dict)
    python: str = ""
    start: str = "earliest"
    loss: str = "fail"
    rules: tuple[FlowRule, ...] = ()
    rule_failure: str = "stop"

    @property
    def unchanged(self) -> bool:
        """Whether messages stay as they are."""
        return not (self.rules or self.where or self.select or self.python)


@dataclass(frozen=True, slots=True)
class Task:
    """One entry: its name, the pattern it follows, and the pattern's own keys."""

    name: str
    pattern: str
    keys: Mapping[str, Any]
    change: FieldChange
    section: str = "tasks"  # of the file

    @property
    def place(self) -> str:
        """Where it stands in the file."""
        return f"{self.section}.{self.name}"


@dataclass(frozen=True, slots=True)
class Runtime:
    """What runs the links. Times in seconds."""

    state: Path
    master: str = "local[*]"
    trigger_s: float = 0.2
    max_rows: int = MAX_ROWS
    max_bytes: int = MAX_BYTES
    executors_min: int = 0
    executors_max: int = 1
    rows_each: int = 200_000
    idle_s: float = 60.0
    warm: bool = False
    metrics: str = ""
    shared: str = ""  # projects/P/federations/F: other programs may run it, too
    python_path: tuple[Path, ...] = ()
    spark: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Federation:
    """The whole file."""

    clusters: Mapping[str, FederatedCluster]
    tasks: tuple[Task, ...]
    runtime: Runtime
    base: Path = Path()  # where relative paths start
    streams: Mapping[str, FederatedCluster] = field(default_factory=dict)

    def cluster(self, name: str, where: str) -> FederatedCluster:
        """A cluster of the file. Raises `InvalidArgument` naming the place that asked for it."""
        found = self.clusters.get(name)
        if found is None:
            raise InvalidArgument(where, f"unknown cluster {name!r}; choose from {', '.join(sorted(self.clusters))}")
        return found

    def stream(self, name: str, where: str) -> FederatedCluster:
        """A stream of the file. Raises `InvalidArgument` naming the place that asked for it."""
        found = self.streams.get(name)
        if found is None:
            raise InvalidArgument(
                where, f"unknown stream {name!r}; choose from {', '.join(sorted(self.streams)) or 'none'}"
            )
        return found


schema = partial(schema_of, "syncpoint.programs.federation")


def parse(content: Any, base: Path) -> Federation:
    """The file's content; relative paths start at `base`. Raises `InvalidArgument`."""
    check_document(content, schema(), "the file", within="{path}")
    clusters = {name: _cluster(name, keys, base) for name, keys in content["clusters"].items()}
    streams = {name: _stream(name, keys, base) for name, keys in content.get("streams", {}).items()}
    if both := sorted(clusters.keys() & streams.keys()):
        raise InvalidArgument(f"streams.{both[0]}", "a cluster already has this name")
    tasks = [
        Task(name, "all-active", {**keys, "project": name}, change_of(keys), "namespaces")
        for name, keys in content.get("namespaces", {}).items()
    ]
    for name, keys in content.get("tasks", {}).items():
        if any(name == other.name for other in tasks):
            raise InvalidArgument(f"tasks.{name}", "a namespace already has this name")
        tasks.append(Task(name, keys["pattern"], keys, change_of(keys)))
    for task in tasks:
        if task.change.rules:
            compiled(task.change.rules, f"{task.place}.rules")
    runtime = _runtime(content.get("runtime", {}), base)
    files = [one.name for one in streams.values() if isinstance(one.stream, FileStream)]
    if runtime.shared and files:
        raise InvalidArgument(
            "runtime.shared", f"{files[0]} is a folder of files: only the state folder has how far they are copied"
        )
    return Federation(clusters, tuple(tasks), runtime, base, streams)


load = partial(load_document, parse)


def change_of(keys: Mapping[str, Any]) -> FieldChange:
    """Changes of messages on their way, by an entry."""
    named = ("where", "select", "python", "start", "loss", "rule_failure")
    rules = tuple(FlowRule(**one) for one in keys.get("rules", ()))
    return FieldChange(rules=rules, **{name: keys[name] for name in named if name in keys})


def _cluster(name: str, keys: Mapping[str, Any], base: Path) -> FederatedCluster:
    tls = keys.get("tls")
    token = keys.get("token")
    if token is not None and "file" in token:
        token = {"file": str(base / token["file"])}
    return FederatedCluster(
        name, keys["endpoint"], None if tls is None else {one: str(base / path) for one, path in tls.items()}, token
    )


def _stream(name: str, keys: Mapping[str, Any], base: Path) -> FederatedCluster:
    stream = stream_of(keys, base, f"streams.{name}")
    return FederatedCluster(name, stream.place, stream=stream)


def _runtime(keys: Mapping[str, Any], base: Path) -> Runtime:
    executors = keys.get("executors", {})
    made = Runtime(
        state=base / keys.get("state", "federation-state"),
        master=keys.get("master", "local[*]"),
        trigger_s=in_seconds(keys.get("trigger", "200ms")),
        max_rows=keys.get("max_rows", MAX_ROWS),
        max_bytes=keys.get("max_bytes", MAX_BYTES),
        executors_min=executors.get("min", 0),
        executors_max=executors.get("max", max(1, executors.get("min", 1))),
        rows_each=executors.get("rows_each", 200_000),
        idle_s=in_seconds(keys.get("idle", "60s")),
        warm=keys.get("warm", False),
        metrics=keys.get("metrics", ""),
        shared=keys.get("shared", ""),
        python_path=tuple(base / one for one in keys.get("python_path", [])),
        spark={name: _as_text(value) for name, value in keys.get("spark", {}).items()},
    )
    if made.executors_min > made.executors_max:
        raise InvalidArgument("runtime.executors", "`min` must not exceed `max`")
    if made.executors_max > 1 and made.master != "managed":
        raise InvalidArgument(
            "runtime.executors.max", f"only `master: managed` supports more than one executor, not {made.master}"
        )
    if made.shared:
        try:
            parse_federation(made.shared)
        except InvalidArgument as error:
            raise InvalidArgument("runtime.shared", error.message) from None
    return made


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
