"""Failure domains: what vanishes with a name, alone and together."""

from __future__ import annotations

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.cluster.control.failure_domains import DomainKind, FailureDomains, PlacedDisk, PlacedProcess

DOMAINS = FailureDomains(
    [
        PlacedDisk("s1/d1", "/c1/d1", "s1", "c1", "za", "r"),
        PlacedDisk("s1/d2", "/c1/d2", "s1", "c1", "za", "r"),
        PlacedDisk("s2/d1", "/c2/d1", "s2", "c2", "zb", "r"),
    ],
    [PlacedProcess("s1", "c1", "za", "r"), PlacedProcess("p1", "", "za", "r"), PlacedProcess("p2", "", "zb", "r")],
)


def test_every_domain_by_itself_but_the_only_region() -> None:
    found = {(one.kind, one.name) for one in DOMAINS.single()}
    assert {kind for kind, _ in found} == {DomainKind.DISK, DomainKind.PROCESS, DomainKind.CLUSTER, DomainKind.ZONE}
    assert {name for kind, name in found if kind is DomainKind.PROCESS} == {"s1", "s2", "p1", "p2"}
    region = DOMAINS.together({DomainKind.REGION: ["r"]})
    assert (len(region.gone), region.processes) == (3, {"s1", "p1", "p2"})


def test_a_killed_process_leaves_its_disks_and_a_lost_zone_does_not() -> None:
    killed = DOMAINS.together({DomainKind.PROCESS: ["s1"]})
    assert (killed.gone, killed.silent) == (frozenset(), {"/c1/d1", "/c1/d2"})
    zone = DOMAINS.together({DomainKind.ZONE: ["za"]})
    assert (zone.gone, zone.silent, zone.processes) == ({"/c1/d1", "/c1/d2"}, frozenset(), {"s1", "p1"})
    both = DOMAINS.together({DomainKind.PROCESS: ["s1"], DomainKind.DISK: ["s1/d1"]})
    assert (both.kind, both.gone, both.silent) == (DomainKind.SEVERAL, {"/c1/d1"}, {"/c1/d2"})


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidArgument, match="clusters: Unknown cluster c9; use c1, c2"):
        DOMAINS.together({DomainKind.CLUSTER: ["c9"]})
