"""An environment as its cluster.yaml describes it, and what each of its processes is to run, before and with a release.

Place: between the manifest and the plan. A release's settings are laid over the environment's file; what comes out is a
file of its own beside it, named by its content, so that a process that reports the content's digest runs just that.
Promise: a release whose settings a cluster.yaml may not have is refused before anything is written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from syncpoint.base.model.errors import InvalidArgument, NotFound
from syncpoint.base.model.yaml_text import load_yaml
from syncpoint.node.cluster.settings import WEIGHT_MAX, ProcessSettings, load, parse, source_of
from syncpoint.programs.rollout.rollout_file import Release, RolloutEnvironment
from syncpoint.wire.transport.network import join_address, split_address

WEIGHED: Final = ("publish-forwarder", "subscribe-forwarder")
_WILDCARDS: Final = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Assigned:
    """What one process is to run."""

    version: str
    program: tuple[str, ...]
    settings: Path
    source: str  # of the file's bytes


class Fleet:
    """One environment. Raises `NotFound`, `InvalidArgument` for its file, and `OSError`."""

    def __init__(self, environment: RolloutEnvironment) -> None:
        self.environment, self.name = environment, environment.name
        try:
            self._data = environment.cluster.read_bytes()
        except FileNotFoundError:
            raise NotFound(f"environments.{self.name}.cluster: {environment.cluster}") from None
        self.processes: Mapping[str, ProcessSettings] = load(environment.cluster).processes
        self._files: dict[Path, bytes] = {}
        for one in self.processes.values():
            if not one.metrics:
                raise InvalidArgument(
                    f"environments.{self.name}.cluster",
                    f"process {one.name} has no key `metrics`; a rollout needs the metrics of every process",
                )

    @property
    def source(self) -> str:
        """Return the text of the environment's own file."""
        return source_of(self._data)

    def of_role(self, role: str) -> list[str]:
        """The processes of a role, in the order of the file."""
        return [one.name for one in self.processes.values() if role in one.roles]

    def assigned(self, release: Release, weights: Mapping[str, float] | None = None) -> Assigned:
        """What a process is to run with a release. Raises `InvalidArgument` for settings that do not fit."""
        path, data = self.environment.cluster, self._data
        if release.settings or weights:
            content = _laid_over(load_yaml(self._data), release.settings)
            for name, weight in (weights or {}).items():
                content["processes"][name]["weight"] = weight
            try:
                parse(content, path.parent)
            except InvalidArgument as error:
                raise InvalidArgument("settings", f"in {self.name}: {error.message}") from None
            data = yaml.safe_dump(content, sort_keys=False).encode()
            path = path.with_name(f"{path.stem}.{source_of(data)}.yaml")
            self._files[path] = data
        return Assigned(release.version, release.program, path, source_of(data))

    def write(self) -> None:
        """Write the files that `assigned` has named. They stay: processes that run with them are started with them."""
        for path, data in self._files.items():
            if path.exists() and path.read_bytes() == data:
                continue
            fresh = path.with_name(f".{path.name}.{os.getpid()}")
            fresh.write_bytes(data)
            fresh.replace(path)

    def weights(self, chosen: set[str], share: float) -> dict[str, float]:
        """Weights with which the chosen forwarders get this share of their role's topics and subscriptions."""
        found = {}
        for role in WEIGHED:
            mine = [name for name in self.of_role(role) if name in chosen]
            others = sum(self.processes[name].weight for name in self.of_role(role) if name not in chosen)
            for name in mine:
                found[name] = min(WEIGHT_MAX, max(0.001, round(share / (1 - share) * others / len(mine), 3)))
        return found

    def metrics_address(self, name: str) -> str:
        """Where a process shows its metrics, as somebody elsewhere calls it."""
        one = self.processes[name]
        host, port = split_address(one.metrics)
        return join_address(split_address(one.listen)[0] if host in _WILDCARDS else host, port)

    def host(self, name: str) -> str:
        """Where a process runs, as others call it."""
        return split_address(self.processes[name].listen)[0]


def _laid_over(content: Any, settings: Mapping[str, Any]) -> Any:
    """Mappings are merged, everything else is replaced."""
    made = dict(content)
    for key, value in settings.items():
        old = made.get(key)
        made[key] = _laid_over(old, value) if isinstance(value, Mapping) and isinstance(old, dict) else value
    return made
