"""Failure domains: what may vanish at once: disks, processes, storage clusters, zones, regions. Pure.

Place: `api.at_risk_admin` names them, `cluster_queries` and `mitigation` read them from the metadata's view.
Promise: a disk that a chain lies on is in them, whether its process lives or not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from syncpoint.base.model.cluster import STORAGE, ChainRecord
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.wire.protobuf.messages import internal


class DomainKind(StrEnum):
    """What vanishes."""

    DISK = "disk"
    PROCESS = "process"
    CLUSTER = "cluster"
    ZONE = "zone"
    REGION = "region"
    SEVERAL = "several"


class PlacedDisk(NamedTuple):
    """`name`: for operators; `folder`: as chains know it; `process`: which serves it, "" where owners write it."""

    name: str
    folder: str
    process: str = ""
    cluster: str = ""
    zone: str = ""
    region: str = ""


class PlacedProcess(NamedTuple):
    """A living member."""

    name: str
    cluster: str = ""
    zone: str = ""
    region: str = ""


class DomainFailure(NamedTuple):
    """Disks that are gone with all they hold, disks that are out of reach until their process is back, by folder, and
    processes that are killed.
    """

    kind: DomainKind
    name: str
    gone: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    processes: frozenset[str] = frozenset()


class FailureDomains(NamedTuple):
    """All there is of an installation."""

    disks: Sequence[PlacedDisk]
    processes: Sequence[PlacedProcess]

    def single(self) -> list[DomainFailure]:
        """Each disk, process, storage cluster, zone and region by itself. What has no name is no domain, and neither is
        the only cluster, zone or region there is: with it goes everything.
        """
        places = (DomainKind.CLUSTER, DomainKind.ZONE, DomainKind.REGION)
        only = {kind for kind in places if len(self._names(kind)) == 1}
        return [one for one in self._each() if one.kind not in only]

    def _each(self) -> list[DomainFailure]:
        found = [DomainFailure(DomainKind.DISK, one.name, frozenset((one.folder,))) for one in self.disks]
        names = {one.name for one in self.processes} | {one.process for one in self.disks if one.process}
        found += [self._killed(name) for name in sorted(names)]
        for kind in (DomainKind.CLUSTER, DomainKind.ZONE, DomainKind.REGION):
            found += [self._burnt(kind, name) for name in sorted(self._names(kind))]
        return found

    def together(self, named: Mapping[DomainKind, Collection[str]]) -> DomainFailure:
        """All of these at once. Raises `InvalidArgument` for a name that there is not."""
        parts = [self._named(kind, name) for kind, names in named.items() for name in names]
        gone = frozenset[str]().union(*(one.gone for one in parts))
        return DomainFailure(
            parts[0].kind if len(parts) == 1 else DomainKind.SEVERAL,
            ", ".join(one.name for one in parts),
            gone,
            frozenset[str]().union(*(one.silent for one in parts)) - gone,
            frozenset[str]().union(*(one.processes for one in parts)),
        )

    def _named(self, kind: DomainKind, name: str) -> DomainFailure:
        found = next((one for one in self._each() if one.kind is kind and one.name == name), None)
        if found is None:
            known = sorted(one.name for one in self._each() if one.kind is kind)
            field = {DomainKind.PROCESS: "processes"}.get(kind, f"{kind}s")
            there = f"use {', '.join(known)}" if known else "there are none here"
            raise InvalidArgument(field, f"Unknown {kind} {name}; {there}.")
        return found

    def _names(self, kind: DomainKind) -> set[str]:
        every: Iterable[PlacedDisk | PlacedProcess] = [*self.disks, *self.processes]
        return {name for one in every if (name := getattr(one, kind.value))}

    def _killed(self, process: str) -> DomainFailure:
        silent = frozenset(one.folder for one in self.disks if one.process == process)
        return DomainFailure(DomainKind.PROCESS, process, silent=silent, processes=frozenset((process,)))

    def _burnt(self, kind: DomainKind, name: str) -> DomainFailure:
        gone = frozenset(one.folder for one in self.disks if getattr(one, kind.value) == name)
        killed = frozenset(one.name for one in self.processes if getattr(one, kind.value) == name)
        return DomainFailure(kind, name, gone, processes=killed)


class ForeseenRisks(NamedTuple):
    """Effects of failures: by chain, messages leased by each process, and the processes that did not answer."""

    chains: Sequence[internal.ChainRisk]
    lent: Mapping[str, Sequence[internal.RiskSum]]
    unknown: Sequence[str]


def domains_of_chain(record: ChainRecord, owner: str) -> FailureDomains:
    """Those that one chain can tell of without others: its disks with what they stand in, and the process that writes
    it. Processes that serve disks are among them where the disks are served by others.
    """
    disks = [
        PlacedDisk(
            f"{place.process}/{place.disk}",
            f"/{place.cluster}/{place.disk}",
            "" if place.process == owner else place.process,
            place.cluster,
            place.zone,
            record.region,
        )
        for place in record.places
    ]
    return FailureDomains(disks, [PlacedProcess(owner)])


def domains_of(view: ClusterView) -> FailureDomains:
    """Those of a cluster: disks that chains lie on, and living members."""
    members = {seen.value.name: seen.value for seen in view.members.items.values()}
    disks: dict[str, PlacedDisk] = {}
    for seen in view.chains.items.values():
        for place in seen.value.places:
            folder = f"/{place.cluster}/{place.disk}"
            member = members.get(place.process)
            served = member is None or STORAGE in member.roles
            disks[folder] = PlacedDisk(
                f"{place.process}/{place.disk}" if served else place.disk,
                folder,
                place.process if served else "",
                place.cluster,
                place.zone or (member.zone if member is not None else ""),
                (member.region if member is not None else "") or seen.value.region,
            )
    processes = [PlacedProcess(one.name, one.cluster, one.zone, one.region) for _, one in sorted(members.items())]
    return FailureDomains(sorted(disks.values()), processes)
