"""The sites of one subscription: over which links it is exchanged, and what it is called at each.

Place: under `home_move` and `owned_keys`. A file may have several tasks whose projects have subscriptions of one id:
they are different subscriptions, with sites of their own, and a command about one leaves the others alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from syncpoint.base.model.errors import Code, FailedPrecondition, NotFound, SyncpointError
from syncpoint.programs.federation.acks.snapshot_pair import SiteEnd
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.servers import SERVER_IS_GONE, Servers
from syncpoint.programs.federation.spec import FederatedCluster
from syncpoint.wire.protobuf.messages import pipeline

Ends = dict[str, tuple[FederatedCluster, SiteEnd]]
"""By the site's name."""


def parts_of(links: Iterable[FederationLink]) -> list[list[FederationLink]]:
    """Links that exchange acknowledgements, in parts that have no project of a cluster in common."""
    parts: list[tuple[set[tuple[str, str]], list[FederationLink]]] = []
    for link in links:
        if link.acks:
            ends = {(link.source.name, link.source_project), (link.target.name, link.target_project)}
            near = [part for part in parts if not part[0].isdisjoint(ends)]
            parts = [part for part in parts if part not in near]
            parts.append((ends.union(*(one for one, _ in near)), [*(one for _, some in near for one in some), link]))
    return [some for _, some in parts]


def named_at(part: Sequence[FederationLink], short: str) -> str:
    """The full name of a subscription at the first site of its part."""
    return f"projects/{part[0].source_project}/subscriptions/{short}"


def ends_of(part: Iterable[FederationLink], short: str) -> Ends:
    """What the subscription is called at each site."""
    found: Ends = {}
    for link in part:
        for cluster, project in ((link.source, link.source_project), (link.target, link.target_project)):
            end = SiteEnd(cluster.name, f"projects/{project}/subscriptions/{short}")
            found.setdefault(cluster.name, (cluster, end))
    return found


def check_site(ends: Ends, site: str) -> None:
    """Raises `NotFound` for a site that no link with `acks` has."""
    if site not in ends:
        known = ", ".join(sorted(ends)) or "none"
        raise NotFound(site, f"No task with `acks: true` has a site {site!r}; there is {known}.")


def homes_at(ends: Ends, servers: Servers) -> tuple[dict[str, pipeline.AckChangesResponse], dict[str, str]]:
    """What each site knows about homes, and why others do not answer. Raises `SyncpointError` where a site refuses."""
    known: dict[str, pipeline.AckChangesResponse] = {}
    silent: dict[str, str] = {}
    for name, (cluster, end) in ends.items():
        asked = pipeline.AckChangesRequest(subscription=end.subscription, homes_only=True)
        try:
            known[name] = servers.call(cluster, "AckExchange.AckChanges", asked)
        except SyncpointError as error:
            if error.code not in SERVER_IS_GONE:
                raise
            silent[name] = error.message
    return known, silent


def part_with(links: Iterable[FederationLink], servers: Servers, subscription: str) -> tuple[list[FederationLink], str]:
    """The links of a subscription, by its id or its full name at a site, and its id; no links: there is none. Servers
    are asked where more than one part may have it. Raises `FailedPrecondition` where several do.
    """
    project, _, short = subscription.rpartition("/subscriptions/")
    project = project.removeprefix("projects/")
    parts = [
        part
        for part in parts_of(links)
        if not project or any(project in (one.source_project, one.target_project) for one in part)
    ]
    if len(parts) > 1:
        having = [part for part in parts if _may_have(servers, ends_of(part, short))]
        if len(having) > 1:
            names = " or ".join(sorted(named_at(part, short) for part in having))
            raise FailedPrecondition(f"There are several subscriptions {short!r}: give the full name, {names}.")
        parts = having or parts
    return (parts[0] if parts else []), short


def _may_have(servers: Servers, ends: Ends) -> bool:
    """Whether a site has the subscription, or none denies it."""
    found = []
    for cluster, end in ends.values():
        asked = pipeline.AckChangesRequest(subscription=end.subscription, homes_only=True)
        try:
            servers.call(cluster, "AckExchange.AckChanges", asked)
        except SyncpointError as error:
            found.append(error.code)
        else:
            return True
    return Code.NOT_FOUND not in found
