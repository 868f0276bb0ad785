"""What a drill does: one failure, for how long, and what bounds it; read from options or a YAML file.

Place: a machine under `syncpoint drill`; `drill_failures` makes the failure, `drill_driver` runs the whole.
Promise: a plan that cannot be undone by itself is refused before anything is done.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from syncpoint.base.model.durations import in_seconds
from syncpoint.base.model.errors import InvalidArgument

KINDS: Final = {
    "kill": (("cluster", "process"), ("pid", "restart")),
    "hang": (("cluster", "process"), ("pid",)),
    "pause-link": (("federation", "flow"),),
    "move-home": (("federation", "subscription", "site"),),
    "cut-network": (("port",),),
    "fill-disk": (("folder",), ("folder", "leave")),
}
"""Kinds, and for each the keys that name what fails: one of these sets."""
LIMIT_S: Final = 3600.0
_KEYS: Final = (
    "kind",
    "cluster",
    "process",
    "pid",
    "restart",
    "federation",
    "flow",
    "subscription",
    "site",
    "port",
    "folder",
    "leave",
    "for",
    "limit",
    "topic",
)


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """`lasts_s`: for how long the failure stands; `limit_s`: after which everything is rolled back, whatever happens;
    `topic`: a real topic, in which the drill's own messages are marked; "": a shadow topic.
    """

    kind: str
    target: Mapping[str, str]
    lasts_s: float = 10.0
    limit_s: float = 120.0
    topic: str = ""

    @property
    def shown(self) -> str:
        """What fails, in words."""
        return ", ".join(f"{key} {value}" for key, value in self.target.items() if key != "restart")


def parse_plan(given: Mapping[str, Any]) -> DrillPlan:
    """A plan from keys as the file has them. Raises `InvalidArgument`, naming the key."""
    for key in given:
        if key not in _KEYS:
            raise InvalidArgument(key, f"unknown key; known are {', '.join(_KEYS)}")
    kind = str(given.get("kind", ""))
    if kind not in KINDS:
        raise InvalidArgument("kind", f"must be {', '.join(KINDS)}, not {kind!r}")
    present = {key for key in given if key not in ("kind", "for", "limit", "topic")}
    if not any(present == set(keys) for keys in KINDS[kind]):
        wanted = " or ".join(" and ".join(keys) for keys in KINDS[kind])
        raise InvalidArgument(kind, f"needs {wanted}, and nothing else, not {', '.join(sorted(present)) or 'nothing'}")
    target = {key: str(given[key]) for keys in KINDS[kind] for key in keys if key in given}
    lasts_s, limit_s = (
        in_seconds(str(given.get(key, default))) for key, default in (("for", "10s"), ("limit", "120s"))
    )
    if not 0 < lasts_s < limit_s <= LIMIT_S:
        raise InvalidArgument("limit", f"must be longer than `for` ({lasts_s:g} s), and at most {LIMIT_S:g} s")
    if "pid" in target and not target["pid"].isdigit():
        raise InvalidArgument("pid", "must be the id of a process")
    if "port" in target and not (target["port"].isdecimal() and 0 < int(target["port"]) < 65_536):
        raise InvalidArgument("port", "must be a TCP port of this machine, from 1 to 65535")
    if not target.get("leave", "0").isdecimal():
        raise InvalidArgument("leave", "must be a number of bytes")
    if not _words(target.get("restart", "x")):
        raise InvalidArgument("restart", f"must be a command, with quotes that end, not {target['restart']!r}")
    for key in ("cluster", "federation", "folder"):
        if key in target and not Path(target[key]).exists():
            raise InvalidArgument(key, f"{target[key]} does not exist")
    return DrillPlan(kind, target, lasts_s, limit_s, str(given.get("topic", "")))


def _words(command: str) -> list[str]:
    """A command as it is run; empty for one that cannot be."""
    try:
        return shlex.split(command)
    except ValueError:
        return []
