"""Routes: which chain takes a publish, and which subscribe forwarder serves a subscription.

Place: asked by every publish and every relayed call of the proxy. What routers said is kept here; where they said
nothing, or nobody they named lives, the proxy makes its own list: nearest region first, in it by rendezvous. So clients
are served with all routers down.
Promise: a chain outside the allowed regions is never named; who is suspected, or drains, comes last.
Leaves to `routers`: asking. Leaves to `pulse`: who is suspected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from syncpoint.control.view import ClusterView
from syncpoint.metadata.records import Topic
from syncpoint.model.cluster import STORAGE, SUBSCRIBE, ChainRecord, Member
from syncpoint.router.location import durability_class, fits
from syncpoint.router.rendezvous import order, pick_chain

LISTED_MAX = 8  # chains in a list of our own: nobody tries more
ROUTES_MAX = 200_000

_Value = TypeVar("_Value")


class TopicRoute(NamedTuple):
    """What a topic is assigned to: `chains` share it, and its keys are spread over them; `alternatives` may take
    messages without a key when none of these answers.
    """

    epoch: int
    chains: tuple[int, ...]
    alternatives: tuple[int, ...] = ()


class SubscriptionRoute(NamedTuple):
    """The subscribe forwarders that share a subscription."""

    epoch: int
    members: tuple[str, ...]


class Target(NamedTuple):
    """A chain that is open somewhere."""

    chain: int
    address: str


class Choice(NamedTuple):
    """Where messages without a key may go: any of `first`, and if that fails `others`, in order."""

    first: tuple[Target, ...]
    others: tuple[Target, ...]


class Routes:
    """What is known. `distance` orders regions; our own is 0."""

    def __init__(self, view: ClusterView, *, region: str, distance: Callable[[str], float] | None = None) -> None:
        self.view, self.region = view, region
        self.topics: dict[int, TopicRoute] = {}
        self.subscriptions: dict[int, SubscriptionRoute] = {}
        self.suspects: set[str] = set()  # addresses
        self.distance = distance or (lambda other: 0.0 if other == region else 1.0)
        self._choices: dict[int, tuple[Topic, Choice]] = {}
        self._computed: dict[tuple[str, tuple[str, ...]], list[ChainRecord]] = {}
        self._regions: Mapping[str, str] | None = None
        view.on_change.append(self.changed)

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

    def forget(self, *, topic: int | None = None, subscription: int | None = None) -> None:
        """It was deleted."""
        if topic is not None:
            self.topics.pop(topic, None)
            self._choices.pop(topic, None)
        if subscription is not None:
            self.subscriptions.pop(subscription, None)

    def changed(self) -> None:
        """Something in the view, or who is suspected, or a distance, is not what it was."""
        self._choices.clear()
        self._computed.clear()
        self._regions = None

    def suspect(self, address: str, suspected: bool) -> None:
        """Somebody is silent, or answers again."""
        if suspected:
            self.suspects.add(address)
        else:
            self.suspects.discard(address)
        self.changed()

    # -- publishing --------------------------------------------------------------------------------------------------

    def keyed(self, topic: Topic, key: bytes) -> tuple[int, int] | None:
        """(chain, epoch of the assignment) for an ordering key; None while no assignment is known."""
        route = self.topics.get(topic.incarnation)
        if route is None or not route.chains:
            return None
        return pick_chain(topic.incarnation, key, route.chains), route.epoch

    def open_at(self, chain: int) -> str | None:
        """The address at which a chain is open; None while nobody has it."""
        owner = self.view.owner(chain)
        return None if owner is None else owner.address

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
        return [record.number for record in self._in_order(topic.incarnation, self._listed(topic))]

    def _choose(self, topic: Topic) -> Choice:
        route = self.topics.get(topic.incarnation) or TopicRoute(0, ())
        shared = [one for one in route.chains if self._usable(one, topic)]
        nearby = [one for one in route.alternatives if self._usable(one, topic) and one not in shared]
        nearest = min((self._distance_of(one) for one in (*shared, *nearby)), default=0.0)
        first = [one for one in shared if self._distance_of(one) == nearest]
        first = first or [one for one in nearby if self._distance_of(one) == nearest]
        own = self.candidates(topic)
        late = [one for one in route.chains if self.allowed(one, topic)]  # suspected, perhaps alive
        rest = [one for one in dict.fromkeys((*shared, *nearby, *own, *late)) if one not in first]
        if not first:
            first, rest = rest[:1], rest[1:]
        return Choice(self._targets(first), self._targets(rest))

    def _targets(self, chains: Iterable[int]) -> tuple[Target, ...]:
        return tuple(Target(one, address) for one in chains if (address := self.open_at(one)) is not None)

    def _usable(self, chain: int, topic: Topic) -> bool:
        return self.allowed(chain, topic) and not self._last_choice(chain)

    def allowed(self, chain: int, topic: Topic) -> bool:
        """Whether a chain may take messages of the topic at all."""
        record = self.view.chain(chain)
        return record is not None and fits(topic, record, self._storage_regions())

    def _last_choice(self, chain: int) -> bool:
        """Whether a chain is not open, or its owner is suspected or drains."""
        owner = self.view.owner(chain)
        if owner is None or owner.address in self.suspects:
            return True
        member = self.view.members.get(owner.member)
        return member is None or self.view.draining(member)

    def _distance_of(self, chain: int) -> float:
        record = self.view.chain(chain)
        return self.distance(record.region) if record is not None else 0.0

    def _listed(self, topic: Topic) -> list[ChainRecord]:
        """Open chains of the topic's class in its regions."""
        kind = durability_class(topic), topic.regions
        known = self._computed.get(kind)
        if known is None:
            regions = self._storage_regions()
            records = [seen.value for seen in self.view.chains.items.values()]
            known = self._computed[kind] = [
                one for one in records if fits(topic, one, regions) and self.view.owner(one.number) is not None
            ]
        return known

    def _storage_regions(self) -> Mapping[str, str]:
        """Where the processes that serve disks are."""
        if self._regions is None:
            self._regions = {one.name: one.region for one in self.view.with_role(STORAGE)}
        return self._regions

    def _in_order(self, topic: int, records: Sequence[ChainRecord]) -> list[ChainRecord]:
        ranks = {name: rank for rank, name in enumerate(order(topic, [str(one.number) for one in records]))}

        def place(record: ChainRecord) -> tuple[bool, float, int]:
            return self._last_choice(record.number), self.distance(record.region), ranks[str(record.number)]

        return sorted(records, key=place)[:LISTED_MAX]

    # -- subscribing -------------------------------------------------------------------------------------------------

    def serving(self, subscription: int, regions: Sequence[str] = (), spread: int = 0) -> list[Member]:
        """Subscribe forwarders for a subscription, the one to be used first.

        Those it is assigned to share it: `spread`, a number of the caller's, decides between those that are equally
        near. Behind them come the others, for when none of these lives. `regions`: only there, unless empty.
        """
        living = [one for one in self.view.with_role(SUBSCRIBE) if not regions or one.region in regions]
        assigned = self.subscriptions.get(subscription) or SubscriptionRoute(0, ())
        turn = {name: (at - spread) % len(assigned.members) for at, name in enumerate(assigned.members)}
        ranks = {name: rank for rank, name in enumerate(order(subscription, [one.name for one in living]))}

        def place(member: Member) -> tuple[bool, bool, bool, float, int]:
            shares = member.name in turn
            return (
                member.address in self.suspects,
                self.view.draining(member),
                not shares,
                self.distance(member.region),
                turn[member.name] if shares else ranks[member.name],
            )

        return sorted(living, key=place)

    def sharing(self, subscription: int) -> bool:
        """Whether several forwarders share a subscription."""
        route = self.subscriptions.get(subscription)
        return route is not None and len(route.members) > 1


def _bounded(table: dict[int, _Value]) -> dict[int, _Value]:
    if len(table) >= ROUTES_MAX:
        del table[next(iter(table))]
    return table
