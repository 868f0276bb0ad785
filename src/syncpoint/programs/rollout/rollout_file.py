"""rollout.yaml: which release goes to which environments, in which steps, and what makes it come back.

Place: read by every command of `syncpoint rollout`; `rollout_plan` makes steps of it.
Promise: the file is held against `schema.json` and against itself; a mistake is refused with its place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from syncpoint.base.model.documents import check_document, load_document, schema_of
from syncpoint.base.model.durations import in_seconds
from syncpoint.base.model.errors import InvalidArgument

TEST, STAGING, PRODUCTION = "test", "staging", "production"
ENVIRONMENTS: Final = (TEST, STAGING, PRODUCTION)
ORDER: Final = ("router", "storage", "publish-forwarder", "subscribe-forwarder", "proxy")
PLACEHOLDERS: Final = ("process", "roles", "host", "version", "settings", "program")


@dataclass(frozen=True, slots=True)
class Release:
    """A version with its settings. `program`: how it is called on this machine; none: as this program."""

    version: str
    commit: str = ""
    program: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)  # laid over each environment's cluster.yaml


@dataclass(frozen=True, slots=True)
class RolloutEnvironment:
    """`restart`: the operator's command for one process; none: `cluster up` started them on this machine."""

    name: str
    cluster: Path
    restart: tuple[str, ...] = ()
    may_differ: tuple[str, ...] = ()  # test alone: settings that need not be as in staging


@dataclass(frozen=True, slots=True)
class RolloutStage:
    """`share` of the processes of each role have the release; then `watch_s` go by."""

    share: float
    watch_s: float


@dataclass(frozen=True, slots=True)
class Canary:
    """Which processes have the release first; none named: the last of each role that has several.

    `share`: of the traffic, what weights give to forwarders among them; None: their own weights. Above `share_max`,
    measured, the release goes back: too many would meet it.
    """

    processes: tuple[str, ...] = ()
    share: float | None = None
    share_max: float = 0.5
    watch_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a release goes back; see `analysis` for how each is judged."""

    calls_min: int = 200
    errors_ratio_max: float = 0.001
    p99_ratio_max: float = 1.5
    p99_above_s: float = 0.01
    redeliveries_ratio_max: float = 0.01
    availability: float = 0.999
    burn_max: float = 2.0
    window_s: float = 300.0


@dataclass(frozen=True, slots=True)
class RolloutManifest:
    """The whole file."""

    name: str
    release: Release
    before: Release
    result: Path  # of the tests
    environments: Mapping[str, RolloutEnvironment]
    stages: tuple[RolloutStage, ...]
    canary: Canary = field(default_factory=Canary)
    soak_s: float = 172_800.0
    soak_calls_min: int = 1_000
    order: tuple[str, ...] = ORDER
    thresholds: Thresholds = field(default_factory=Thresholds)
    look_s: float = 10.0
    restart_within_s: float = 120.0


def parse(content: Any, base: Path) -> RolloutManifest:
    """The file's content; relative paths start at `base`. Raises `InvalidArgument`."""
    check_document(content, schema_of("syncpoint.programs.rollout"), "rollout.yaml", within="{path}")
    stages = tuple(RolloutStage(one["share"], in_seconds(one.get("watch", "1h"))) for one in content["stages"])
    shares = [one.share for one in stages]
    if shares != sorted(set(shares)) or shares[-1] != 1:
        raise InvalidArgument(
            "stages", f"shares must increase and end with 1, not {', '.join(f'{one:g}' for one in shares)}"
        )
    named = content["environments"]
    clusters = [str((base / named[name]["cluster"]).resolve()) for name in ENVIRONMENTS]
    if len(set(clusters)) < len(clusters):
        raise InvalidArgument("environments", "two environments have the same cluster.yaml")
    order = tuple(content.get("order", ORDER))
    limits, soak, canary = content.get("thresholds", {}), content.get("soak", {}), content.get("canary", {})
    usual = Thresholds()
    return RolloutManifest(
        name=content["name"],
        release=_release(content["release"]),
        before=_release(content["before"]),
        result=base / content["tests"]["result"],
        environments={name: _environment(name, named[name], base) for name in ENVIRONMENTS},
        stages=stages,
        canary=Canary(
            tuple(canary.get("processes", ())),
            canary.get("share"),
            canary.get("share_max", Canary().share_max),
            in_seconds(canary.get("watch", "1h")),
        ),
        soak_s=in_seconds(soak.get("watch", "2d")),
        soak_calls_min=soak.get("calls_min", 1_000),
        order=order + tuple(role for role in ORDER if role not in order),
        thresholds=Thresholds(
            calls_min=limits.get("calls_min", usual.calls_min),
            errors_ratio_max=limits.get("errors_ratio_max", usual.errors_ratio_max),
            p99_ratio_max=limits.get("p99_ratio_max", usual.p99_ratio_max),
            p99_above_s=in_seconds(limits.get("p99_above", "10ms")),
            redeliveries_ratio_max=limits.get("redeliveries_ratio_max", usual.redeliveries_ratio_max),
            availability=limits.get("availability", usual.availability),
            burn_max=limits.get("burn_max", usual.burn_max),
            window_s=in_seconds(limits.get("window", "5m")),
        ),
        look_s=in_seconds(content.get("look", "10s")),
        restart_within_s=in_seconds(content.get("restart_within", "2m")),
    )


load = partial(load_document, parse)


def _release(keys: Mapping[str, Any]) -> Release:
    return Release(
        keys["version"], keys.get("commit", ""), tuple(keys.get("program", ())), dict(keys.get("settings", {}))
    )


def _environment(name: str, keys: Mapping[str, Any], base: Path) -> RolloutEnvironment:
    command = () if keys["restart"] == "local" else tuple(keys["restart"])
    for part in command:
        unknown = set(re.findall(r"\{(\w*)\}", part)) - set(PLACEHOLDERS)
        if unknown:
            known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
            raise InvalidArgument(
                f"environments.{name}.restart", f"{{{sorted(unknown)[0]}}} is unknown; use one of {known}"
            )
    return RolloutEnvironment(name, (base / keys["cluster"]).resolve(), command, tuple(keys.get("may_differ", ())))
