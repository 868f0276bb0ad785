"""Looking up a subscription and the forwarders that serve it, for the relays of unary calls and of streams.

Place: under `unary_relay` and `pull_relays`, above `route_cache`.
Promise: a subscription that was created a moment ago, by another proxy, is found. What is refused is refused with the
texts of one node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from syncpoint.base.model.cluster import SUBSCRIBE, Member
from syncpoint.base.model.errors import NotFound, detached
from syncpoint.base.model.names import parse_subscription
from syncpoint.broker.router.location import check_passing
from syncpoint.broker.subscribe.lease_holder import lender_of
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.front.proxy.route_cache import RouteCache
from syncpoint.front.proxy.route_client import RouteClient


class SubscriptionRouting:
    """Lookups of one proxy. `refresh`: let the copy of the catalog catch up."""

    def __init__(
        self, catalog: Catalog, routes: RouteCache, route_client: RouteClient, refresh: Callable[[], Awaitable[None]]
    ) -> None:
        self.catalog, self.routes, self.route_client, self.refresh = catalog, routes, route_client, refresh
        self._lease_holders: dict[int, list[Member]] | None = None
        routes.view.on_change.append(self._changed)

    async def find(self, name: str) -> Subscription:
        """The subscription of that name, fit to be pulled from. Raises `NotFound`, `FailedPrecondition`, and
        `InvalidArgument` for a text that is no name.
        """
        record = self.catalog.subscription(name)
        if record is None:
            parse_subscription(name)
            await self.refresh()
            record = self.catalog.subscription(name)
            if record is None:
                raise NotFound(name)
        if record.detached:
            raise detached(name)
        topic = self.catalog.topic_of(record)
        if topic is not None:
            check_passing(topic, self.routes.region)
        if self.route_client.unknown_subscription(record.incarnation):
            await self.route_client.subscription(record.incarnation)
        elif record.incarnation in self.route_client.stale_subscriptions:
            self.route_client.renew(subscription=record.incarnation)
        return record

    def known(self, record: Subscription) -> bool:
        """Whether a subscription still exists, as far as this proxy knows."""
        return self.catalog.subscription_by_incarnation(record.incarnation) is not None

    def current(self, record: Subscription) -> Subscription:
        """A subscription as this proxy knows it now."""
        return self.catalog.subscription_by_incarnation(record.incarnation) or record

    def members(self, record: Subscription, spread: int) -> list[Member]:
        """Subscribe forwarders for it, the one to be used first; see `RouteCache.serving`."""
        if record.incarnation in self.route_client.stale_subscriptions:
            self.route_client.renew(subscription=record.incarnation)
        return self.routes.serving(record.incarnation, self.catalog.topic_of(record), spread)

    def lease_holders(self, number: int) -> list[Member]:
        """Living subscribe forwarders whose ack ids carry this number; hardly ever more than one."""
        if self._lease_holders is None:
            self._lease_holders = {}
            for member in self.routes.view.with_role(SUBSCRIBE):
                self._lease_holders.setdefault(lender_of(member.name, member.incarnation), []).append(member)
        return self._lease_holders.get(number, [])

    def _changed(self) -> None:
        self._lease_holders = None
