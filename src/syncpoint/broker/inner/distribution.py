"""Which process of a cluster pushes which subscription.

Place: pure functions over members, and `Distribution`, which the pushes of a process ask.
Promise: every process that knows the same members computes the same. One that comes, leaves, drains or dies moves the
subscriptions it gets or had, and no others. Two that disagree for a while push the same subscription, never the same
message at a time: both are its subscribers, and a message is lent to one. Messages that may not pass through a region
are not pushed from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from syncpoint.base.model.cluster import PROXY, Member
from syncpoint.broker.router import rendezvous
from syncpoint.broker.router.location import may_pass
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Topic
from syncpoint.catalog.metadata.view import ClusterView


def pushers(members: Iterable[Member]) -> list[Member]:
    """Who may push: the proxies that do not drain; if all drain, all. By name: a process that was restarted
    gets what it had.
    """
    able = {one.name: one for one in sorted(members, key=lambda one: one.incarnation) if PROXY in one.roles}
    staying = [one for one in able.values() if not one.draining]
    return sorted(staying or able.values(), key=lambda one: one.name)


def pusher_of(subscription: int, able: Sequence[Member]) -> Member | None:
    """Who of `pushers` pushes a subscription; None if there is nobody."""
    weights = {one.name: one.weight for one in able}
    order = rendezvous.order(subscription, list(weights), weights)
    return next((one for one in able if order and one.name == order[0]), None)


class Distribution:
    """As the process `name` sees it."""

    def __init__(self, name: str, view: ClusterView, catalog: Catalog) -> None:
        self._name, self._view, self._catalog = name, view, catalog
        self._able: dict[Collection[str], list[Member]] = {}  # by the regions that messages may pass through
        self._mine: dict[tuple[int, Collection[str]], bool] = {}
        view.on_change.append(self._changed)

    def mine(self, incarnation: int) -> bool:
        """Whether this process pushes a subscription."""
        record = self._catalog.subscription_by_incarnation(incarnation)
        if record is None:
            return False
        topic = self._catalog.topic_of(record)
        regions = frozenset(topic.regions) if topic is not None and topic.enforce_in_transit else frozenset()
        known = self._mine.get((incarnation, regions))
        if known is None:
            known = self._mine[incarnation, regions] = self._first(incarnation, topic, regions)
        return known

    def _first(self, incarnation: int, topic: Topic | None, regions: Collection[str]) -> bool:
        able = self._able.get(regions)
        if able is None:
            members = [
                replace(seen.value, draining=self._view.draining(seen.value))
                for seen in self._view.members.items.values()
                if topic is None or may_pass(topic, seen.value.region)
            ]
            able = self._able[regions] = pushers(members)
        pusher = pusher_of(incarnation, able)
        return pusher is not None and pusher.name == self._name

    def _changed(self) -> None:
        self._able.clear()
        self._mine.clear()
