"""What the declared classes of projects demand of a federation: which links there must be, and which must not.

Place: a machine under `syncpoint federation plan --classes`; what is declared, the servers are asked.
Promise: a project is where its class is declared; sites that disagree are named, and never guessed about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from syncpoint.base.model.names import short_id
from syncpoint.catalog.access.disaster_classes import BILLING, LINKED
from syncpoint.programs.federation.flow_plan import FederationLink


class Declared(NamedTuple):
    """A class at one site, and which site takes publishes."""

    name: str
    writer: str = ""


@dataclass(slots=True)
class ClassPlan:
    """`needed`: links by project, as pairs of sites; `acks`: projects whose acknowledgements are exchanged; `amiss`: in
    words.
    """

    needed: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    acks: set[str] = field(default_factory=set)
    amiss: list[str] = field(default_factory=list)

    def namespaces(self) -> dict[str, Any]:
        """As a federation's file has them."""
        made: dict[str, Any] = {}
        for project, pairs in sorted(self.needed.items()):
            clusters = sorted({site for pair in pairs for site in pair})
            one: dict[str, Any] = {"clusters": clusters}
            made[short_id(project)] = one
            if len(pairs) < len(clusters) * (len(clusters) - 1):
                one["links"] = [list(pair) for pair in pairs]
            if project in self.acks:
                one["acks"] = True
        return made


def plan_classes(declared: Mapping[str, Mapping[str, Declared]], links: Iterable[FederationLink]) -> ClassPlan:
    """Compare what is declared, by project and site, with the links that there are."""
    plan, whole = ClassPlan(), list(links)
    for project, sites in sorted(declared.items()):
        _plan_project(plan, project, sites, [one for one in whole if f"projects/{one.source_project}" == project])
    return plan


def _plan_project(plan: ClassPlan, project: str, sites: Mapping[str, Declared], links: list[FederationLink]) -> None:
    names = sorted({one.name for one in sites.values()})
    if len(names) > 1:
        each = ", ".join(f"{site}: {one.name}" for site, one in sorted(sites.items()))
        plan.amiss.append(f"{project}: its sites declare different classes: {each}")
        return
    if names[0] not in LINKED:
        return
    if len(sites) < 2:
        plan.amiss.append(
            f"{project}: {names[0]} is declared at {next(iter(sites))} alone; declare it at a second site"
        )
        return
    writers = sorted(site for site, one in sites.items() if one.writer in ("here", "recovering"))
    if names[0] == BILLING and len(writers) != 1:
        plan.amiss.append(f"{project}: exactly one site must take publishes, not {', '.join(writers) or 'none'}")
        return
    sources = writers if names[0] == BILLING else sorted(sites)
    pairs = [(one, other) for one in sources for other in sorted(sites) if one != other]
    plan.needed[project] = pairs
    if names[0] == "geo-acks":
        plan.acks.add(project)
    _compare(plan, project, pairs, links)


def _compare(plan: ClassPlan, project: str, pairs: list[tuple[str, str]], links: list[FederationLink]) -> None:
    whole = [one for one in links if one.unchanged and one.topics == ("*",) and one.rename == "{topic}"]
    there = {(one.source.name, one.target.name): one for one in whole}
    reached = _reached(there)
    for pair in pairs:
        if pair not in reached:
            plan.amiss.append(f"{project}: no link brings every message unchanged from {pair[0]} to {pair[1]}")
        elif project in plan.acks and pair in there and not there[pair].acks:
            plan.amiss.append(f"{project}: the link {there[pair].name} does not exchange acknowledgements")
    writers = {source for source, _ in pairs}
    for one in links:
        back = one.target.name in writers and one.target.name not in {target for _, target in pairs}
        if back and one.target_project == one.source_project:
            plan.amiss.append(f"{project}: the link {one.name} would be a second writer at {one.target.name}")


def _reached(there: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Pairs of sites between which messages travel, over others, too."""
    found = set(there)
    while True:
        further = {(one, last) for one, middle in found for other, last in found if other == middle and one != last}
        if further <= found:
            return found
        found |= further
