"""Homes that move between simulated sites: the shipped move and the shipped SetHome, over the logs of `sim_site`.

Place: beside `site_runs`. `SiteServers` is what a move asks of sites, in place of connections; while a move waits, the
life of the sites goes on in its `sleep`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from syncpoint.base.model.errors import Unavailable
from syncpoint.broker.pipeline.writing import persisted
from syncpoint.catalog.metadata.records import CatalogChange, Snapshot
from syncpoint.front.api import home_request, snapshot_request
from syncpoint.programs.federation.acks.home_move import HomeMove, MovedHome
from syncpoint.programs.federation.flow_plan import FederationLink, Flow
from syncpoint.programs.federation.owned_keys.key_shares import KeyPolicy
from syncpoint.programs.federation.spec import FederatedCluster
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.sim_site import SUBSCRIPTION, TOPIC, SimSite
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pipeline, pubsub
from syncpoint.wire.transport.calls import Methods

SHORT = SUBSCRIPTION.rpartition("/")[2]


class SiteControl:
    """The part of a control plane that SetHome uses, over the catalog of a site."""

    def __init__(self, site: SimSite) -> None:
        self._site = site

    @property
    def catalog(self) -> Any:
        return self._site.publish.catalog

    async def commit(self, changes: Sequence[CatalogChange]) -> None:
        """Change the catalog; it is persisted before the call is answered."""
        self._site.apply(*changes)
        await persisted(self._site.publish)
        self._site.changed()

    async def confirm(self, *record: Any) -> None:
        """Nothing is served elsewhere."""

    @property
    def commits(self) -> SiteControl:
        """Which confirms."""
        return self

    @property
    def clock(self) -> Any:
        return self._site.clock

    def next_incarnation(self) -> int:
        """A number for a new record."""
        found: int = self.catalog.incarnation + 1
        return found

    async def begin_copy(self, record: Snapshot, together: Sequence[CatalogChange]) -> None:
        """As the control plane of a node."""
        known = self.catalog.snapshot(record.name)
        gone = [] if known is None else [CatalogChange.delete(known)]
        await self.commit([*gone, *together, CatalogChange.put(record)])


def home_methods(site: SimSite) -> Methods:
    """The shipped methods, whose caller is not judged here."""
    table: dict[bytes, Any] = {}
    for room, made in ((home_request, "home_methods"), (snapshot_request, "snapshot_copy_methods")):
        with patched(room, checked_again=lambda control, function: function):
            table.update(getattr(room, made)(SiteControl(site)))
    return table


class SiteServers:
    """What moves ask. `away`: sites that do not answer; `keys`: see `FederationLink`; `state_of`: what a site reports
    of its subscription.
    """

    def __init__(self, sites: Mapping[str, SimSite]) -> None:
        self.sites = sites
        self.away: set[str] = set()
        self.keys: KeyPolicy | None = None
        self.state_of: Callable[[SimSite], Any] = lambda site: admin.SubscriptionState(
            outstanding_messages=len(site.lent)
        )

    def links(self) -> list[FederationLink]:
        """A link each way."""
        clusters = {name: FederatedCluster(name, name) for name in self.sites}
        return [
            FederationLink(one + other, "mirror", clusters[one], clusters[other], "p", "p", acks=True, keys=self.keys)
            for one in clusters
            for other in clusters
            if one != other
        ]

    def flows(self, links: Sequence[FederationLink]) -> list[Flow]:
        return [flow for link in links for flow in link.flows([TOPIC])]

    def reported_flows(self, links: Sequence[FederationLink]) -> tuple[list[Flow], dict[str, str]]:
        silent = dict.fromkeys(self.away, "away")
        return [one for one in self.flows(links) if one.link.source.name not in silent], silent

    def call(self, cluster: FederatedCluster, method: str, asked: Any) -> Any:
        site = self.sites[cluster.name]
        if cluster.name in self.away:
            raise Unavailable("away")
        match method:
            case "Subscriber.ListSubscriptions":
                return pubsub.ListSubscriptionsResponse(subscriptions=[{"name": SUBSCRIPTION, "topic": TOPIC}])
            case "Subscriber.GetSubscription":
                return pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC)
            case "Admin.GetSubscriptionState":
                return self.state_of(site)
        return site.call(methods.ACK_EXCHANGE[method.partition(".")[2]], asked)

    def positions_of(self, flow: Flow) -> Any:
        ends = [{"source": one, "begin": begin, "end": end} for one, begin, end in self._source(flow).extents()]
        return pipeline.Positions(sources=ends)

    def cursor(self, flow: Flow) -> None:
        """A link's record is all that there is."""

    def link_of(self, flow: Flow) -> Any:
        link = self.sites[flow.link.target.name].writer.state.links.get(flow.name)
        if link is None:
            return None
        ends = [{"source": one, "begin": at.begin, "end": at.end} for one, at in link.intervals.items()]
        return pipeline.Link(committed=ends)

    def _source(self, flow: Flow) -> SimSite:
        return self.sites[flow.link.source.name]

    def move(
        self, home: str, clock: Callable[[], float], sleep: Callable[[float], None], *, drain_s: float
    ) -> MovedHome:
        """Move the subscription. Raises `SyncpointError`."""
        moved = HomeMove(self.links(), self, SHORT, home, clock, sleep)  # type: ignore[arg-type]
        return moved.move(drain_s)
