"""Ordered lists: whom a client should try for a topic or a subscription, the best first.

Place: what routers answer, and what a proxy computes for itself when no router answers. Pure.
Promise: what rules or location forbid is never named. The nearest region that may store the topic comes first; inside
it those the topic is assigned to, then the others in rendezvous order. A process that drains, or a chain that nobody
has open, comes last; a drained forwarder is left out unless there is no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from syncpoint.base.model.cluster import SUBSCRIBE, ChainRecord, Member
from syncpoint.broker.router.assignment import SubscriptionAssignment, TopicAssignment
from syncpoint.broker.router.cluster_state import ClusterState
from syncpoint.broker.router.location import durability_class, may_pass
from syncpoint.broker.router.rendezvous import order
from syncpoint.catalog.metadata.records import Topic

LISTED_MAX = 16  # nobody tries more

Nearest = Callable[[Iterable[str]], Sequence[str]]


class TopicList(NamedTuple):
    """`chains`: the ordering keys are spread over these. `nearest` share the messages without a key of this client;
    `alternatives`, in order, take them when none of those answers."""

    epoch: int
    chains: tuple[int, ...]
    nearest: tuple[int, ...]
    alternatives: tuple[int, ...]


class SubscriptionList(NamedTuple):
    """`members` share the clients of the subscription, nearest first; `others`, in order, stand by."""

    epoch: int
    members: tuple[str, ...]
    others: tuple[str, ...]


class CandidateLists:
    """Makes lists for one state of the cluster. What is alike for many topics is computed once."""

    def __init__(self, cluster_state: ClusterState) -> None:
        self.cluster_state = cluster_state
        self._chains: dict[object, _Usable] = {}
        self._members: dict[object, _ServingForwarders] = {}

    def topic(
        self, topic: Topic, assigned: TopicAssignment | None, client: Member | None, nearest: Nearest
    ) -> TopicList:
        """The list of a client for a topic. `nearest` puts regions in order, the nearest to the client first."""
        epoch, keyed = (0, ()) if assigned is None else (assigned.epoch, assigned.chains)
        if client is not None and not may_pass(topic, client.region):
            return TopicList(epoch, (), (), ())
        usable = self._usable(topic, client)
        first: list[int] = []
        rest: list[int] = []
        for region in nearest(usable.by_region):
            ordered = _in_order(topic.incarnation, usable.by_region[region])
            sharing = _assigned_in(region, assigned)
            shared = [number for number in ordered if number in sharing]
            if not first:
                first = shared or ordered[:1]
                rest += [number for number in ordered if number not in first]
            else:
                rest += shared + [number for number in ordered if number not in sharing]
        rest += _in_order(topic.incarnation, usable.last)
        if not first:
            first, rest = rest[:1], rest[1:]
        return TopicList(epoch, keyed, tuple(first), tuple(rest[:LISTED_MAX]))

    def subscription(
        self,
        subscription: int,
        topic: Topic | None,
        assigned: SubscriptionAssignment | None,
        client: Member | None,
        nearest: Nearest,
    ) -> SubscriptionList:
        """The list of a client for a subscription of a topic (None: the topic is deleted)."""
        epoch, sharing = (0, ()) if assigned is None else (assigned.epoch, assigned.members)
        if client is not None and topic is not None and not may_pass(topic, client.region):
            return SubscriptionList(epoch, (), ())
        serving = self._serving(topic, client)
        members: list[str] = []
        others: list[str] = []
        for region in nearest(serving.by_region):
            ordered = order(subscription, serving.by_region[region])
            shared = [name for name in ordered if name in sharing]
            members += shared
            others += [name for name in ordered if name not in shared]
        others += order(subscription, serving.last)
        if not members:
            members, others = others[:1], others[1:]
        return SubscriptionList(epoch, tuple(members), tuple(others[:LISTED_MAX]))

    def _usable(self, topic: Topic, client: Member | None) -> _Usable:
        policy = self.cluster_state.policy
        kind = (policy.topic_kind(topic), durability_class(topic), client and policy.client_kind(client))
        found = self._chains.get(kind)
        if found is None:
            found = self._chains[kind] = _usable(self.cluster_state, topic, client)
        return found

    def _serving(self, topic: Topic | None, client: Member | None) -> _ServingForwarders:
        policy = self.cluster_state.policy
        kind = (topic and policy.topic_kind(topic), client and policy.client_kind(client))
        found = self._members.get(kind)
        if found is None:
            found = self._members[kind] = _serving(self.cluster_state, topic, client)
        return found


class _Usable(NamedTuple):
    """Chains that take more now, by region, and those that may be tried in need."""

    by_region: dict[str, list[ChainRecord]]
    last: list[ChainRecord]


class _ServingForwarders(NamedTuple):
    """Candidate subscribe forwarders, by region and overall."""

    by_region: dict[str, list[str]]
    last: list[str]


def _usable(cluster_state: ClusterState, topic: Topic, client: Member | None) -> _Usable:
    found = _Usable({}, [])
    drained = []
    for chain in cluster_state.fitting(topic):
        if not cluster_state.permitted(client, chain, topic):
            continue
        owner = cluster_state.owner(chain.number)
        if owner is not None and cluster_state.takes_new(owner):
            found.by_region.setdefault(chain.region, []).append(chain)
        elif owner is not None and cluster_state.policy.drained(owner):
            drained.append(chain)
        else:
            found.last.append(chain)
    return found if found.by_region or found.last else _Usable({}, drained)


def _serving(cluster_state: ClusterState, topic: Topic | None, client: Member | None) -> _ServingForwarders:
    found = _ServingForwarders({}, [])
    drained = []
    for one in cluster_state.with_role(SUBSCRIBE):
        if topic is not None and not (
            may_pass(topic, one.region) and cluster_state.policy.permits(client, one, topic.name)
        ):
            continue
        if cluster_state.takes_new(one):
            found.by_region.setdefault(one.region, []).append(one.name)
        elif cluster_state.policy.drained(one):
            drained.append(one.name)
        else:
            found.last.append(one.name)
    return found if found.by_region or found.last else _ServingForwarders({}, drained)


def _assigned_in(region: str, assigned: TopicAssignment | None) -> set[int]:
    if assigned is None:
        return set()
    return {*assigned.chains, *assigned.elsewhere.get(region, ())}


def _in_order(key: int, chains: Sequence[ChainRecord]) -> list[int]:
    return [int(name) for name in order(key, [str(chain.number) for chain in chains])]
