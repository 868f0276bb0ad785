"""What the next home of a subscription lacks of other sites' messages: counted to where their topics end at a moment.

Place: under `home_move`. Publishers may go on elsewhere, so that a lag never reaches zero; what was published before
the subscription was held everywhere does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syncpoint.programs.federation.acks.snapshot_pair import SiteEnd
from syncpoint.programs.federation.flow_plan import FederationLink, Flow
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import FederatedCluster
from syncpoint.wire.protobuf.messages import pubsub

Heads = Mapping[tuple[str, int], int]
"""By flow and source of its topic, the offset after the last message."""


class CopiedTail:
    """Flows into the topic of a subscription at its next home. `links`: from sites that answer."""

    def __init__(
        self, servers: Servers, links: Sequence[FederationLink], home: tuple[FederatedCluster, SiteEnd]
    ) -> None:
        """Raises `SyncpointError`."""
        self._servers = servers
        cluster, end = home
        asked = pubsub.GetSubscriptionRequest(subscription=end.subscription)
        topic = servers.call(cluster, "Subscriber.GetSubscription", asked).topic
        here = [link for link in links if link.target.name == cluster.name]
        self._flows: list[Flow] = [one for one in servers.flows(here) if one.target_topic == topic]

    def heads(self) -> Heads:
        """Where the topics of all flows end now. Raises `SyncpointError`."""
        return {
            (flow.name, one.source): one.end for flow in self._flows for one in self._servers.positions_of(flow).sources
        }

    def left(self, heads: Heads) -> int:
        """Messages before these heads that are not copied yet. Raises `SyncpointError`."""
        found = 0
        for flow in self._flows if heads else ():
            cursor, link = self._servers.cursor(flow), self._servers.link_of(flow)
            unread = self._servers.positions_of(flow).sources if cursor is None else cursor.ranges
            copied = {} if link is None else {one.source: one.end for one in link.committed}  # the cursor comes later
            for one in unread:
                begin = max(one.begin, copied.get(one.source, 0))
                found += max(0, heads.get((flow.name, one.source), 0) - begin)
        return found
