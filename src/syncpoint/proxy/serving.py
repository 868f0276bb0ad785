"""Who serves a subscription: what both relays, of unary calls and of streams, ask before they pass anything on.

Place: under `relay` and `streams`, above `routes`.
Promise: a subscription that was created a moment ago, by another proxy, is found. What is refused is refused with the
texts of one node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from syncpoint.metadata.catalog import Catalog
from syncpoint.metadata.records import Subscription
from syncpoint.model.cluster import SUBSCRIBE, Member
from syncpoint.model.errors import FailedPrecondition, NotFound
from syncpoint.proxy.routers import RouteFinder
from syncpoint.proxy.routes import Routes
from syncpoint.router.location import may_pass
from syncpoint.subscribe.lenders import lender_of


class Serving:
    """Lookups of one proxy. `refresh`: let the copy of the catalog catch up."""

    def __init__(
        self, catalog: Catalog, routes: Routes, finder: RouteFinder, refresh: Callable[[], Awaitable[None]]
    ) -> None:
        self.catalog, self.routes, self.finder, self.refresh = catalog, routes, finder, refresh
        self._lenders: dict[int, list[Member]] | None = None
        routes.view.on_change.append(self._changed)

    async def find(self, name: str) -> Subscription:
        """The subscription of that name, fit to be pulled from. Raises `NotFound`, `FailedPrecondition`."""
        record = self.catalog.subscription(name)
        if record is None:
            await self.refresh()
            record = self.catalog.subscription(name)
            if record is None:
                raise NotFound(name)
        if record.detached:
            raise FailedPrecondition(f"The subscription is detached from its topic: (resource={name}).")
        topic = self.catalog.topic_of(record)
        if topic is not None and not may_pass(topic, self.routes.region):
            raise FailedPrecondition(f"Messages of {topic.name} may not pass through region {self.routes.region}.")
        if self.finder.unknown_subscription(record.incarnation):
            await self.finder.subscription(record.incarnation)
        elif record.incarnation in self.finder.stale_subscriptions:
            self.finder.renew(subscription=record.incarnation)
        return record

    def known(self, record: Subscription) -> bool:
        """Whether a subscription still exists, as far as this proxy knows."""
        return self.catalog.subscription_by_incarnation(record.incarnation) is not None

    def members(self, record: Subscription, spread: int) -> list[Member]:
        """Subscribe forwarders for it, the one to be used first; see `Routes.serving`."""
        if record.incarnation in self.finder.stale_subscriptions:
            self.finder.renew(subscription=record.incarnation)
        return self.routes.serving(record.incarnation, self.catalog.topic_of(record), spread)

    def lenders(self, number: int) -> list[Member]:
        """Living subscribe forwarders whose ack ids carry this number; hardly ever more than one."""
        if self._lenders is None:
            self._lenders = {}
            for member in self.routes.view.with_role(SUBSCRIBE):
                self._lenders.setdefault(lender_of(member.name, member.incarnation), []).append(member)
        return self._lenders.get(number, [])

    def _changed(self) -> None:
        self._lenders = None
