"""Whether two environments run the same: versions and settings as their processes report them, by role.

Place: asked before anything is changed, before the canary, and by `syncpoint rollout check`.
Promise: files do not count, reports of running processes do; a silent process is a difference, as
nobody knows what it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """The report of one running process. `source`: of the bytes of its cluster.yaml; `given`: its settings."""

    name: str
    roles: tuple[str, ...]
    version: str
    source: str
    given: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(status: Mapping[str, Any]) -> ProcessReport:
        """Parse a process's status. Versions that do not report settings have none here."""
        return ProcessReport(
            str(status["name"]),
            tuple(status["roles"]),
            str(status.get("version", "")),
            str(status.get("settings_file", "")),
            status.get("settings_given") or {},
        )


Reports = Mapping[str, ProcessReport | None]
"""By process; None: it does not answer."""


def silent(name: str, reports: Reports) -> list[str]:
    """What an environment does not say, as sentences."""
    found = []
    for process, one in reports.items():
        if one is None:
            found.append(f"{name}: {process} does not answer, so its version is unknown")
        elif not one.given:
            found.append(f"{name}: {process} (version {one.version or 'unknown'}) does not report its settings")
    return found


def differences(
    first: str,
    ours: Reports,
    second: str,
    theirs: Reports,
    *,
    may_differ: Sequence[str] = (),
    of_both: bool = False,
) -> list[str]:
    """What differs between two environments, as sentences. `may_differ`: keys of settings, or what they begin with;
    `of_both`: a role that runs in one of them alone is no difference.
    """
    found = [*silent(first, ours), *silent(second, theirs)]
    mine, other = _by_role(ours), _by_role(theirs)
    for role in sorted(mine.keys() | other.keys()):
        if role not in mine or role not in other:
            here, there = (first, second) if role in mine else (second, first)
            if not of_both:
                found.append(f"{role}: runs in {here} but not in {there}")
            continue
        for key in sorted(mine[role].keys() | other[role].keys()):
            if any(key == allowed or key.startswith(f"{allowed}.") for allowed in may_differ):
                continue
            here_values, there_values = mine[role].get(key, {}), other[role].get(key, {})
            if here_values.keys() != there_values.keys():
                found.append(f"{role}: {key} is {_said(here_values)} in {first} and {_said(there_values)} in {second}")
            elif len(here_values) > 1:
                found.append(f"{role}: {key} has several values: {_said(here_values)}, in both")
    return found


def _by_role(reports: Reports) -> dict[str, dict[str, dict[str, str]]]:
    """Role -> key -> value as text -> a process that has it."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for one in reports.values():
        if one is None:
            continue
        values = {"version": one.version, **dict(flat(one.given))}
        for role in one.roles:
            of_role = found.setdefault(role, {})
            for key, value in values.items():
                of_role.setdefault(key, {}).setdefault(str(value), one.name)
    return found


def _said(values: Mapping[str, str]) -> str:
    if not values:
        return "missing"
    if len(values) == 1:
        return next(iter(values)) or "empty"
    return ", ".join(f"{value or 'empty'} ({name})" for value, name in sorted(values.items()))


def flat(values: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """Nested keys as `storage.cache_bytes`, each with its value."""
    for key, value in values.items():
        path = f"{place}.{key}" if place else str(key)
        if isinstance(value, Mapping):
            yield from flat(value, path)
        else:
            yield path, value
