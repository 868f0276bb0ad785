"""Where topics and subscriptions may be assigned at all, by class, location and rules; computed once for each kind.

Place: under the planner. Pure; made for one cluster state and thrown away with it.
Promise: where a chain could not acknowledge without disks of drained processes, others take what it had, if there are
any. A rule that shuts some clients out of a forwarder keeps what all clients share away from it, as long as there
is a forwarder that more of them may use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from syncpoint.base.model.cluster import SUBSCRIBE, ChainRecord, Member
from syncpoint.broker.router.cluster_state import ClusterState
from syncpoint.broker.router.location import DEFAULT_CLASS, durability_class, may_pass, storing_regions
from syncpoint.catalog.metadata.records import Topic

_Thing = TypeVar("_Thing")


class Eligibility:
    """`pools`: (region, class) -> its chains; `ready`: region -> the subscribe forwarders there that take more."""

    def __init__(self, cluster_state: ClusterState) -> None:
        self._cluster_state = cluster_state
        self.pools: dict[tuple[str, str], list[ChainRecord]] = {}
        for _, chain in sorted(cluster_state.chains.items()):
            if chain.region in cluster_state.serving_regions:
                self.pools.setdefault((chain.region, chain.klass or DEFAULT_CLASS), []).append(chain)
        self.ready: dict[str, list[Member]] = {}
        for member in cluster_state.with_role(SUBSCRIBE):
            if cluster_state.takes_new(member):
                self.ready.setdefault(member.region, []).append(member)
        self._chains: dict[object, dict[str, tuple[str, ...]]] = {}
        self._members: dict[object, dict[str, tuple[str, ...]]] = {}

    def chains(self, topic: Topic) -> dict[str, tuple[str, ...]]:
        """Region -> the numbers of the chains there that may take a topic, as text."""
        kind = (self._cluster_state.policy.topic_kind(topic), durability_class(topic))
        found = self._chains.get(kind)
        if found is None:
            found = self._chains[kind] = self._chains_of(topic)
        return found

    def members(self, topic: Topic | None) -> dict[str, tuple[str, ...]]:
        """Region -> the subscribe forwarders there that may serve a topic. None: one that is deleted; nothing
        restricts what is left of it."""
        kind = None if topic is None else self._cluster_state.policy.topic_kind(topic)
        found = self._members.get(kind)
        if found is None:
            found = self._members[kind] = self._members_of(topic)
        return found

    def _chains_of(self, topic: Topic) -> dict[str, tuple[str, ...]]:
        found = {}
        for region in storing_regions(topic, (region for region, _ in self.pools)):
            chains = self._cluster_state.fitting(topic, self.pools.get((region, durability_class(topic)), ()))
            chains = _for_most(
                self._clients(topic), chains, lambda client, chain: self._cluster_state.permitted(client, chain, topic)
            )
            if chains:
                found[region] = tuple(str(chain.number) for chain in self._cluster_state.steady(chains))
        return found

    def _members_of(self, topic: Topic | None) -> dict[str, tuple[str, ...]]:
        found = {}
        for region, members in self.ready.items():
            permitted: Sequence[Member] = members
            if topic is not None:
                permitted = self._permitted(topic, members) if may_pass(topic, region) else ()
            if permitted:
                found[region] = tuple(member.name for member in permitted)
        return found

    def _permitted(self, topic: Topic, members: Sequence[Member]) -> list[Member]:
        policy = self._cluster_state.policy
        return _for_most(
            self._clients(topic), members, lambda client, member: policy.permits(client, member, topic.name)
        )

    def _clients(self, topic: Topic) -> list[Member | None]:
        return [one for one in self._cluster_state.proxies if may_pass(topic, one.region)] or [None]


def _for_most(
    clients: Sequence[Member | None], things: Sequence[_Thing], permits: Callable[[Member | None, _Thing], bool]
) -> list[_Thing]:
    """Those of the things that all clients may use or, where there are none, that most may."""
    counts = [sum(permits(client, thing) for client in clients) for thing in things]
    most = max(counts, default=0)
    return [thing for thing, count in zip(things, counts, strict=True) if count == most > 0]
