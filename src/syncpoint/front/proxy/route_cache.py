"""Known routes: which chain takes a publish, and which subscribe forwarder serves a subscription.

Place: asked by every publish and every relayed call of the proxy. What routers answered is kept here; where they
answered nothing, or nobody they named can be used, the proxy makes its own list, by the same rules. So clients are
served with all routers down.
Promise: what location or rules forbid is never named, not even if a router names it; who is suspected, or drains, comes
last.
Leaves to `route_client`: asking. Leaves to `failure_detector`: who is suspected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple, TypeVar

from syncpoint.base.model.cluster import PUBLISH, SUBSCRIBE, Member
from syncpoint.broker.router.assignment import SubscriptionAssignment, TopicAssignment
from syncpoint.broker.router.candidate_lists import CandidateLists, Nearest
from syncpoint.broker.router.cluster_state import ClusterState
from syncpoint.broker.router.location import fits, may_pass, may_store
from syncpoint.broker.router.rendezvous import pick_chain
from syncpoint.broker.router.routing_rules import Policy, RoutingRule
from syncpoint.catalog.metadata.records import Topic
from syncpoint.catalog.metadata.view import ClusterView, View

ROUTES_MAX = 200_000

_Value = TypeVar("_Value")
_NOWHERE: Mapping[str, tuple[int, ...]] = {}


class TopicRoute(NamedTuple):
    """What a topic is assigned to: its keys are spread over `chains`. From a router: `nearest` share what has no key,
    `alternatives` take it when none of these answers. From the metadata: `elsewhere`, as it stands there.
    """

    epoch: int
    chains: tuple[int, ...]
    nearest: tuple[int, ...] = ()
    alternatives: tuple[int, ...] = ()
    elsewhere: Mapping[str, tuple[int, ...]] = _NOWHERE


class SubscriptionRoute(NamedTuple):
    """The subscribe forwarders that share a subscription; `others`, in order, when none of them answers."""

    epoch: int
    members: tuple[str, ...]
    others: tuple[str, ...] = ()


class RouteTarget(NamedTuple):
    """A chain that is open somewhere."""

    chain: int
    address: str


class Choice(NamedTuple):
    """Where messages without a key may go: any of `first`, and if that fails `others`, in order."""

    first: tuple[RouteTarget, ...]
    others: tuple[RouteTarget, ...]


class RouteCache:
    """What is known to the proxy `me`. `rules`: the routing constraints; `nearest` puts regions in order; `spanning`:
    durability classes whose disks may lie in several regions.
    """

    def __init__(
        self,
        view: ClusterView,
        me: Member,
        nearest: Nearest,
        *,
        rules: View[RoutingRule] | None = None,
        spanning: Set[str] = frozenset(),
    ) -> None:
        self.view, self.me, self.nearest, self.rules, self.spanning = view, me, nearest, rules, spanning
        self.topics: dict[int, TopicRoute] = {}
        self.subscriptions: dict[int, SubscriptionRoute] = {}
        self.suspects: set[str] = set()  # addresses
        self._choices: dict[int, tuple[Topic, Choice]] = {}
        self._serving: dict[int, tuple[Topic | None, list[Member]]] = {}
        self._lists: CandidateLists | None = None
        view.on_change.append(self.changed)
        if rules is not None:
            rules.listeners.append(lambda keys: self.changed())

    @property
    def region(self) -> str:
        """Where this proxy is."""
        return self.me.region

    # -- what routers say --------------------------------------------------------------------------------------------

    def put_topic(self, topic: int, route: TopicRoute) -> None:
        """Keep an answer, unless a newer one came first."""
        known = self.topics.get(topic)
        if known is None or known.epoch <= route.epoch:
            _bounded(self.topics)[topic] = route
            self._choices.pop(topic, None)

    def put_subscription(self, subscription: int, route: SubscriptionRoute) -> None:
        """Keep an answer, unless a newer one came first."""
        known = self.subscriptions.get(subscription)
        if known is None or known.epoch <= route.epoch:
            _bounded(self.subscriptions)[subscription] = route
            self._serving.pop(subscription, None)

    def changed(self) -> None:
        """Something in the view, or who is suspected, or a distance, is not what it was."""
        self._choices.clear()
        self._serving.clear()
        self._lists = None

    def suspect(self, address: str, suspected: bool) -> None:
        """Somebody is silent, or answers again."""
        if suspected:
            self.suspects.add(address)
        else:
            self.suspects.discard(address)
        self.changed()

    @property
    def lists(self) -> CandidateLists:
        """Lists of our own, in the cluster as it is now."""
        if self._lists is None:
            view = self.view
            rules = () if self.rules is None else (seen.value for seen in self.rules.items.values())
            self._lists = CandidateLists(
                ClusterState(
                    {name: seen.value for name, seen in view.members.items.items()},
                    {int(key): seen.value for key, seen in view.chains.items.items()},
                    {int(key): seen.value for key, seen in view.owners.items.items()},
                    Policy(rules, view.drains.items),
                    self.spanning,
                )
            )
        return self._lists

    # -- publishing --------------------------------------------------------------------------------------------------

    def keyed(self, topic: Topic, key: bytes) -> tuple[int, int] | None:
        """(chain, epoch of the assignment) for an ordering key; None while no assignment is known."""
        route = self.topics.get(topic.incarnation)
        if route is None or not route.chains:
            return None
        return pick_chain(topic.incarnation, key, route.chains), route.epoch

    def assigned(self, topic: Topic) -> bool:
        """Whether it is known which chains take the ordering keys of a topic."""
        route = self.topics.get(topic.incarnation)
        return route is not None and bool(route.chains)

    def open_at(self, chain: int) -> str | None:
        """The address at which a chain is open; None while nobody has it."""
        owner = self.view.owner(chain)
        return None if owner is None else owner.address

    def allowed(self, chain: int, topic: Topic) -> bool:
        """Whether location and rules let this proxy give messages of the topic to a chain."""
        record, cluster_state = self.view.chain(chain), self.lists.cluster_state
        return (
            record is not None
            and fits(topic, record, cluster_state.region_of, self.spanning)
            and cluster_state.permitted(self.me, record, topic)
        )

    def has_region(self, topic: Topic) -> bool:
        """Whether a publish forwarder lives in a region that may store the topic."""
        return bool(self.takers(topic))

    def takers(self, topic: Topic) -> list[Member]:
        """Publish forwarders of all regions that may store a topic."""
        members = self.lists.cluster_state.members.values()
        return [one for one in members if PUBLISH in one.roles and may_store(topic, one.region)]

    def keyless(self, topic: Topic) -> Choice:
        """Where messages without a key may go."""
        known = self._choices.get(topic.incarnation)
        if known is not None and known[0] is topic:
            return known[1]
        choice = self._choose(topic)
        _bounded(self._choices)[topic.incarnation] = (topic, choice)
        return choice

    def candidates(self, topic: Topic) -> list[int]:
        """Chains for a topic that is assigned to none, the best first."""
        own = self.lists.topic(topic, None, self.me, self.nearest)
        return sorted((*own.nearest, *own.alternatives), key=self._last_choice)

    def _choose(self, topic: Topic) -> Choice:
        route = self.topics.get(topic.incarnation)
        assigned = None if route is None else TopicAssignment(route.epoch, route.chains, route.elsewhere)
        own = self.lists.topic(topic, assigned, self.me, self.nearest)
        best = own.nearest if route is None or not route.nearest else route.nearest
        rest = () if route is None else route.alternatives
        named = [
            one
            for one in dict.fromkeys((*best, *rest, *own.nearest, *own.alternatives))
            if self.open_at(one) is not None and self.allowed(one, topic)
        ]
        late = [one for one in named if self._last_choice(one)]  # it may be alive all the same
        first = [one for one in named if one in best and one not in late]
        others = [one for one in named if one not in first and one not in late] + late
        if not first:
            first, others = others[:1], others[1:]
        return Choice(self._targets(first), self._targets(others))

    def _targets(self, chains: Iterable[int]) -> tuple[RouteTarget, ...]:
        return tuple(RouteTarget(one, address) for one in chains if (address := self.open_at(one)) is not None)

    def _last_choice(self, chain: int) -> bool:
        """Whether a chain's owner is suspected, drains, or is gone."""
        owner = self.lists.cluster_state.owner(chain)
        return owner is None or owner.address in self.suspects or not self.lists.cluster_state.takes_new(owner)

    # -- subscribing -------------------------------------------------------------------------------------------------

    def serving(self, subscription: int, topic: Topic | None, spread: int = 0) -> list[Member]:
        """Subscribe forwarders for a subscription of a topic (None: it is deleted), the one to be used first.

        Some share it: `spread`, a number of the caller's, decides between those that are equally near. Behind them come
        the others, for when none of these lives.
        """
        known = self._serving.get(subscription)
        if known is None or known[0] is not topic:
            known = _bounded(self._serving)[subscription] = (topic, self._servers(subscription, topic))
        ordered = known[1]
        route = self.subscriptions.get(subscription)
        if route is None or len(route.members) < 2 or not ordered:
            return ordered
        near = [
            one
            for one in ordered
            if one.name in route.members and one.region == ordered[0].region and not self._is_late(one)
        ]
        if len(near) < 2 or near[0] is not ordered[0]:
            return ordered
        at = spread % len(near)
        return [*near[at:], *near[:at], *(one for one in ordered if one not in near)]

    def _servers(self, subscription: int, topic: Topic | None) -> list[Member]:
        route, cluster_state = self.subscriptions.get(subscription), self.lists.cluster_state
        assigned = None if route is None else SubscriptionAssignment(route.epoch, route.members)
        own = self.lists.subscription(subscription, topic, assigned, self.me, self.nearest)
        answered = () if route is None or not route.others else (*route.members, *route.others)
        names = dict.fromkeys((*answered, *own.members, *own.others))
        members = [cluster_state.members[name] for name in names if name in cluster_state.members]
        usable = [one for one in members if SUBSCRIBE in one.roles and self._may_serve(one, topic)]
        return sorted(usable, key=lambda one: (one.address in self.suspects, not cluster_state.takes_new(one)))

    def _may_serve(self, member: Member, topic: Topic | None) -> bool:
        if topic is None:
            return True
        passing = may_pass(topic, member.region) and may_pass(topic, self.region)
        return passing and self.lists.cluster_state.policy.permits(self.me, member, topic.name)

    def _is_late(self, member: Member) -> bool:
        return member.address in self.suspects or not self.lists.cluster_state.takes_new(member)

    def sharing(self, subscription: int) -> bool:
        """Whether several forwarders share a subscription."""
        route = self.subscriptions.get(subscription)
        return route is not None and len(route.members) > 1


def _bounded(table: dict[int, _Value]) -> dict[int, _Value]:
    if len(table) >= ROUTES_MAX:
        del table[next(iter(table))]
    return table
