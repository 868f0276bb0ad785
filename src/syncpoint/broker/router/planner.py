"""The planner: what topics and subscriptions should be assigned to now, given what is there and what is measured.

Place: in every router; one of them writes its plans, the others answer and stand by. A machine: a cluster state and a
time come in, changes come out. It keeps nothing but smoothed loads, so a router that has just started decides as well
as another a few seconds later.
Promise: the keys of a topic are spread over chains of one region. They move only when a chain may not be used any more,
when the topic grows or shrinks, or when a chain is above the bound; of the latter two, a few topics at a time. A
forwarder that dies moves no key: its chains are adopted whole. Neither does a region whose forwarders are all gone:
what was not sealed there could not be distinguished from what is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

from syncpoint.broker.router.assign import E, Item, assign
from syncpoint.broker.router.assignment import SubscriptionAssignment, TopicAssignment
from syncpoint.broker.router.cluster_state import ClusterState
from syncpoint.broker.router.eligibility import Eligibility
from syncpoint.broker.router.load_scaling import FORGOTTEN, Scaler, ScalingSettings
from syncpoint.broker.router.location import durability_class
from syncpoint.broker.router.rendezvous import order
from syncpoint.catalog.metadata.records import Subscription, Topic

MOVES_MAX = 32  # topics, and subscriptions, that one plan moves for nothing but balance
STABLE_S = 30.0  # how long a subscription stays where it was put, before it is moved for nothing but balance
SLACK = 1_000.0  # messages and KiB per second that a forwarder may carry above the average: nothing moves for less
IDLE = 1.0  # the load that one without any counts as, so that many of them spread as well

_Made = TypeVar("_Made", TopicAssignment, SubscriptionAssignment)


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """`balance`: no forwarder above (1 + balance) times the average."""

    balance: float = E
    scaling: ScalingSettings = field(default_factory=ScalingSettings)


class Loads(NamedTuple):
    """Measured now, in `load_scaling.units`: region -> incarnation -> load."""

    topics: Mapping[str, Mapping[int, float]]
    subscriptions: Mapping[str, Mapping[int, float]]


class State(NamedTuple):
    """What there is to assign, and what it is assigned to; by incarnation."""

    topics: Mapping[int, Topic]
    subscriptions: Mapping[int, Subscription]
    topic_homes: Mapping[int, TopicAssignment]
    subscription_homes: Mapping[int, SubscriptionAssignment]


class Changes(NamedTuple):
    """New assignments by incarnation."""

    topics: dict[int, TopicAssignment]
    subscriptions: dict[int, SubscriptionAssignment]


class Planner:
    """Plan the assignment of topics and subscriptions to forwarders."""

    def __init__(self, settings: PlannerSettings | None = None) -> None:
        self.settings = settings or PlannerSettings()
        self._topics = _Scalers(self.settings.scaling)
        self._subscriptions = _Scalers(self.settings.scaling)
        self._quiet_since: float | None = None
        self._put: dict[int, tuple[int, float]] = {}  # subscription -> (epoch of its assignment, seen since)

    def observe(self, now: float, loads: Loads) -> None:
        """Take measured loads in."""
        self._topics.observe(now, loads.topics)
        self._subscriptions.observe(now, loads.subscriptions)
        if self._quiet_since is None or self._topics.total() + self._subscriptions.total() > FORGOTTEN:
            self._quiet_since = now

    def at_rest(self, now: float) -> bool:
        """Whether there has been no load for so long that nothing is left to be joined or balanced."""
        return self._quiet_since is not None and now - self._quiet_since > 8 * self.settings.scaling.shrink_after_s

    def plan(self, cluster_state: ClusterState, state: State, now: float, *, only_new: bool = False) -> Changes:
        """What should change. `only_new`: assign what is assigned to nothing, and leave the rest."""
        choices = Eligibility(cluster_state)
        return Changes(
            self._plan_topics(cluster_state, choices, state, now, only_new),
            self._plan_subscriptions(choices, state, now, only_new),
        )

    def _stable(self, state: State, now: float) -> frozenset[int]:
        """Subscriptions that have been where they are for a while: their first subscribers are not torn away at once
        when, as at every start, one forwarder was there before the others.
        """
        put = self._put
        self._put = {
            number: put[number] if number in put and put[number][0] == home.epoch else (home.epoch, now)
            for number, home in state.subscription_homes.items()
        }
        return frozenset(number for number, (_, since) in self._put.items() if now - since >= STABLE_S)

    # -- topics ------------------------------------------------------------------------------------------------------

    def _plan_topics(
        self, cluster_state: ClusterState, choices: Eligibility, state: State, now: float, only_new: bool
    ) -> dict[int, TopicAssignment]:
        wanted: dict[tuple[str, str], list[_Wanted]] = {pool: [] for pool in choices.pools}
        owned = frozenset(str(number) for number in cluster_state.chains if cluster_state.owner(number) is not None)
        homes: dict[int, str] = {}
        for topic in state.topics.values():
            assigned = state.topic_homes.get(topic.incarnation)
            if only_new and assigned is not None:
                continue
            allowed = choices.chains(topic)
            home = self._home(topic, allowed, cluster_state, assigned)
            if not home:
                continue  # nothing can be done
            homes[topic.incarnation] = home
            for region, names in allowed.items():
                known = _known(assigned, names, region)
                # A chain that nobody has open at the moment keeps what it has, and gets nothing.
                usable = names
                if not owned.issuperset(names):
                    usable = tuple(name for name in names if name in owned or name in known) or names
                alone = bool(topic.options.duplicate_window_s)
                wanted[region, durability_class(topic)].append(_Wanted(topic.incarnation, usable, known, alone))
        found: dict[int, dict[str, tuple[int, ...]]] = {number: {} for number in homes}
        base = self._topic_base(cluster_state, state) if only_new else None
        for (region, klass), topics in wanted.items():
            bins = {str(chain.number): chain.weight for chain in choices.pools[region, klass]}
            for number, names in self._place(self._topics.of(region), topics, bins, now, base).items():
                found[number][region] = tuple(map(int, names))
        needed: dict[int, TopicAssignment] = {}
        wished = _Wished[TopicAssignment]()
        for number, by_region in found.items():
            assigned, chains = state.topic_homes.get(number), by_region.pop(homes[number], None)
            if assigned is None:
                needed[number] = TopicAssignment(1, chains or (), by_region)
                continue
            by_region |= {one: kept for one, kept in assigned.elsewhere.items() if one in cluster_state.dark_regions}
            if chains is None or set(chains) == set(assigned.chains):
                if by_region != assigned.elsewhere:
                    needed[number] = replace(assigned, elsewhere=by_region)
                continue
            made = TopicAssignment(assigned.epoch + 1, chains, by_region)
            stay = choices.chains(state.topics[number])[homes[number]]
            if all(str(chain) in stay for chain in assigned.chains):
                wished.add(number, self._topics.of(homes[number]).load(number), made)
            else:
                needed[number] = made
        return needed | wished.heaviest()

    def _home(
        self, topic: Topic, allowed: Mapping[str, object], cluster_state: ClusterState, assigned: TopicAssignment | None
    ) -> str:
        """The region of a topic's keys: where they are, else where it is stored most, else where most proxies are."""
        if assigned is not None:
            for region in sorted(
                {cluster_state.chains[chain].region for chain in assigned.chains if chain in cluster_state.chains}
            ):
                if region in allowed or region in cluster_state.dark_regions:
                    return region
        proxies = Counter(proxy.region for proxy in cluster_state.proxies)
        ordered = topic.regions or order(topic.incarnation, sorted(allowed))

        def value(region: str) -> tuple[float, int, int]:
            return self._topics.of(region).load(topic.incarnation), proxies[region], -ordered.index(region)

        return max(allowed, key=value, default="")

    # -- subscriptions -----------------------------------------------------------------------------------------------

    def _plan_subscriptions(
        self, choices: Eligibility, state: State, now: float, only_new: bool
    ) -> dict[int, SubscriptionAssignment]:
        wanted: dict[str, list[_Wanted]] = {region: [] for region in choices.ready}
        for record in state.subscriptions.values():
            assigned = state.subscription_homes.get(record.incarnation)
            if only_new and assigned is not None:
                continue
            for region, names in choices.members(state.topics.get(record.topic_incarnation)).items():
                known = tuple(name for name in assigned.members if name in names) if assigned is not None else ()
                wanted[region].append(_Wanted(record.incarnation, names, known))
        found: dict[int, list[str]] = {}
        base = self._subscription_base(choices, state) if only_new else None
        for region, subscriptions in sorted(wanted.items()):
            bins = {member.name: member.weight for member in choices.ready[region]}
            placed = self._place(self._subscriptions.of(region), subscriptions, bins, now, base)
            for number, names in placed.items():
                found.setdefault(number, []).extend(names)
        ready = {member.name for members in choices.ready.values() for member in members}
        needed: dict[int, SubscriptionAssignment] = {}
        wished = _Wished[SubscriptionAssignment]()
        stable = self._stable(state, now)
        for number, members in found.items():
            assigned = state.subscription_homes.get(number)
            if assigned is None:
                needed[number] = SubscriptionAssignment(1, tuple(members))
            elif set(assigned.members) != set(members):
                made = SubscriptionAssignment(assigned.epoch + 1, tuple(members))
                if not ready.issuperset(assigned.members):
                    needed[number] = made
                elif number in stable or len(members) != len(assigned.members):
                    wished.add(number, self._subscriptions.load(number), made)
        return needed | wished.heaviest()

    # -- both --------------------------------------------------------------------------------------------------------

    def _place(
        self,
        scaler: Scaler,
        wanted: Iterable[_Wanted],
        bins: Mapping[str, float],
        now: float,
        base: Mapping[str, float] | None,
    ) -> dict[int, tuple[str, ...]]:
        total = scaler.total()
        average = total / max(1, len(bins))
        weighed = total > SLACK  # else all of it is nearly idle, and spread by number
        items, current = [], {}
        for number, names, known, alone in wanted:
            parts = 1 if alone else scaler.parts(number, now, len(known), average, len(names))
            items.append(Item(number, IDLE + (scaler.load(number) if weighed else 0.0), parts, names))
            current[number] = known
        slack = SLACK if weighed else 0.0
        return assign(items, bins, current, e=self.settings.balance, base=base, slack=slack).homes

    def _topic_base(self, cluster_state: ClusterState, state: State) -> dict[str, float]:
        """What every chain carries now."""
        base: dict[str, float] = {}
        for number, assigned in state.topic_homes.items():
            for chains in (assigned.chains, *assigned.elsewhere.values()):
                for chain in chains:
                    if chain in cluster_state.chains:
                        load = self._topics.of(cluster_state.chains[chain].region).load(number) + IDLE
                        base[str(chain)] = base.get(str(chain), 0.0) + load / len(chains)
        return base

    def _subscription_base(self, choices: Eligibility, state: State) -> dict[str, float]:
        """What every subscribe forwarder carries now."""
        base: dict[str, float] = {}
        regions = {member.name: region for region, members in choices.ready.items() for member in members}
        for number, assigned in state.subscription_homes.items():
            shared = Counter(regions[name] for name in assigned.members if name in regions)
            for name in assigned.members:
                if name in regions:
                    load = self._subscriptions.of(regions[name]).load(number) + IDLE
                    base[name] = base.get(name, 0.0) + load / shared[regions[name]]
        return base


class _Wanted(NamedTuple):
    """Something to be assigned: its incarnation, where it may be, where it is. `alone`: to one place only."""

    number: int
    names: tuple[str, ...]
    known: tuple[str, ...]
    alone: bool = False


class _Wished(Generic[_Made]):
    """Changes that can wait, by load."""

    def __init__(self) -> None:
        self._all: list[tuple[float, int, _Made]] = []

    def add(self, number: int, load: float, made: _Made) -> None:
        self._all.append((-load, number, made))

    def heaviest(self) -> dict[int, _Made]:
        self._all.sort(key=lambda one: one[:2])
        return {number: made for _, number, made in self._all[:MOVES_MAX]}


class _Scalers:
    """One scaler for each region."""

    def __init__(self, settings: ScalingSettings) -> None:
        self._settings = settings
        self._by_region: dict[str, Scaler] = {}

    def of(self, region: str) -> Scaler:
        found = self._by_region.get(region)
        if found is None:
            found = self._by_region[region] = Scaler(self._settings)
        return found

    def observe(self, now: float, loads: Mapping[str, Mapping[int, float]]) -> None:
        for region in loads.keys() | self._by_region.keys():
            self.of(region).observe(now, loads.get(region, {}))

    def total(self) -> float:
        return sum(scaler.total() for scaler in self._by_region.values())

    def load(self, number: int) -> float:
        return sum(scaler.load(number) for scaler in self._by_region.values())


def _known(assigned: TopicAssignment | None, names: Sequence[str], region: str) -> tuple[str, ...]:
    """Where a topic is in a region, as far as it may stay."""
    if assigned is None:
        return ()
    listed = {str(chain) for chain in (*assigned.chains, *assigned.elsewhere.get(region, ()))}
    return tuple(name for name in names if name in listed)
