"""What a router watches, turned into the values that planner and lists decide by.

Place: between the views of the metadata and the machines. Promise: a cluster state is made once per change and shared
until the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

from syncpoint.base.model.cluster import PUBLISH, SUBSCRIBE
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.broker.router.assignment import SubscriptionAssignment, TopicAssignment
from syncpoint.broker.router.cluster_state import ClusterState
from syncpoint.broker.router.load_scaling import units
from syncpoint.broker.router.planner import Loads, State
from syncpoint.broker.router.routing_rules import Policy, RoutingRule
from syncpoint.catalog.metadata.catalog import Catalog, CatalogCopy
from syncpoint.catalog.metadata.layout import ASSIGNED_SUBSCRIPTIONS, ASSIGNED_TOPICS, CONSTRAINTS
from syncpoint.catalog.metadata.store_client import SharedStore
from syncpoint.catalog.metadata.view import ClusterView, View


class ClusterInputs:
    """`cluster` is started and closed by its owner; the other views here by `start` and `close`.

    `on_cluster_state`: something changed that lists depend on, other than which process has which chain open.
    `on_owners`: a chain has another owner.
    """

    def __init__(self, store: SharedStore, cluster: ClusterView, catalog: CatalogCopy, spanning: Set[str]) -> None:
        self.store, self.cluster, self.shared_catalog, self._spanning = store, cluster, catalog, spanning
        self.rules = View(store, CONSTRAINTS, decode_rule)
        self.topics = View(store, ASSIGNED_TOPICS, TopicAssignment.decode)
        self.subscriptions = View(store, ASSIGNED_SUBSCRIPTIONS, SubscriptionAssignment.decode)
        self.on_cluster_state: list[Callable[[], None]] = []
        self.on_owners: list[Callable[[], None]] = []
        self._cluster_state: ClusterState | None = None
        self._policy: Policy | None = None

    async def start(self) -> None:
        """Return when everything has been read. Raises `StoreUnavailable`."""
        for view in (self.rules, self.topics, self.subscriptions):
            await view.start()
        for changed in (self.rules, self.cluster.drains, self.cluster.members, self.cluster.chains):
            changed.listeners.append(self._changed)
        self.cluster.owners.listeners.append(self._owners_changed)

    async def close(self) -> None:
        """No more changes."""
        for changed in (self.rules, self.cluster.drains, self.cluster.members, self.cluster.chains):
            changed.listeners.remove(self._changed)
        self.cluster.owners.listeners.remove(self._owners_changed)
        for view in (self.rules, self.topics, self.subscriptions):
            await view.close()

    @property
    def catalog(self) -> Catalog:
        return self.shared_catalog.catalog

    @property
    def cluster_state(self) -> ClusterState:
        """The cluster's state now."""
        if self._cluster_state is None:
            cluster = self.cluster
            if self._policy is None:
                self._policy = Policy((seen.value for seen in self.rules.items.values()), cluster.drains.items)
            self._cluster_state = ClusterState(
                {name: seen.value for name, seen in cluster.members.items.items()},
                {int(key): seen.value for key, seen in cluster.chains.items.items()},
                {int(key): seen.value for key, seen in cluster.owners.items.items()},
                self._policy,
                self._spanning,
            )
        return self._cluster_state

    def state(self) -> State:
        """What there is to assign, and where it is."""
        return State(
            {topic.incarnation: topic for topic in self.catalog.topics()},
            {one.incarnation: one for one in self.catalog.subscriptions() if not one.detached},
            {int(key): seen.value for key, seen in self.topics.items.items()},
            {int(key): seen.value for key, seen in self.subscriptions.items.items()},
        )

    def loads(self) -> Loads:
        """What was measured last. Where nobody reports subscriptions, each carries what is published to its topic."""
        topics: dict[str, dict[int, float]] = {}
        subscriptions: dict[str, dict[int, float]] = {one.region: {} for one in self.cluster_state.with_role(SUBSCRIBE)}
        reported = False
        for name, seen in self.cluster.loads.items.items():
            member = self.cluster_state.members.get(name)
            if member is None:
                continue
            if PUBLISH in member.roles:
                _add(topics.setdefault(member.region, {}), seen.value.get("topics"))
            if SUBSCRIBE in member.roles:
                reported |= "subscriptions" in seen.value
                _add(subscriptions[member.region], seen.value.get("subscriptions"))
        if not reported and subscriptions:
            for number in {number for by_topic in topics.values() for number in by_topic}:
                load = sum(by_topic.get(number, 0.0) for by_topic in topics.values()) / len(subscriptions)
                for one in self.catalog.subscriptions_of(number):
                    for region in subscriptions.values():
                        region[one.incarnation] = load
        return Loads(topics, subscriptions)

    def distances_from(self, region: str, client: str) -> Mapping[str, float] | None:
        """What the client, or anybody else in its region, has measured."""
        loads = self.cluster.loads.items
        names = [client, *(name for name, one in sorted(self.cluster_state.members.items()) if one.region == region)]
        for name in names:
            found = loads[name].value.get("distances") if name in loads else None
            if isinstance(found, Mapping) and found:
                return found
        return None

    def _changed(self, keys: set[str]) -> None:
        self._cluster_state = self._policy = None
        for listener in list(self.on_cluster_state):
            listener()

    def _owners_changed(self, keys: set[str]) -> None:
        self._cluster_state = None
        for listener in list(self.on_owners):
            listener()


def decode_rule(data: bytes) -> RoutingRule:
    """A stored rule that may be used. Raises `ValueError`, so that a view passes over one of a newer kind."""
    rule = RoutingRule.decode(data)
    try:
        rule.check()
    except InvalidArgument as error:
        raise ValueError(error.message) from error
    return rule


def _add(sums: dict[int, float], reported: Any) -> None:
    """Rates as they stand in a load report: {incarnation: [messages_s, bytes_s]}."""
    if isinstance(reported, Mapping):
        for key, (messages_s, bytes_s) in reported.items():
            number = int(key)
            sums[number] = sums.get(number, 0.0) + units(float(messages_s), float(bytes_s))
