"""Harnesses for the tests of planner and lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from syncpoint.base.model.cluster import PROXY, PUBLISH, STORAGE, SUBSCRIBE, ChainOwner, ChainRecord, DiskPlace, Member
from syncpoint.broker.router.cluster_state import ClusterState
from syncpoint.broker.router.planner import Changes, State
from syncpoint.broker.router.routing_rules import Policy, RoutingRule
from syncpoint.catalog.metadata.records import Subscription, Topic


def topic(number: int, **more: object) -> Topic:
    return Topic(number, f"projects/p/topics/t{number}", **more)  # type: ignore[arg-type]


def subscription(number: int, of: int) -> Subscription:
    return Subscription(number, f"projects/p/subscriptions/s{number}", of, f"projects/p/topics/t{of}")


class Site:
    """Regions with forwarders, one chain at home at each publish forwarder; parts may be taken away and put back."""

    def __init__(self, regions: Sequence[str] = ("eu",), forwarders: int = 4, proxies: int = 1) -> None:
        self.members: dict[str, Member] = {}
        self.chains: dict[int, ChainRecord] = {}
        self.owners: dict[int, ChainOwner] = {}
        self.rules: list[RoutingRule] = []
        self.drains: list[str] = []
        for region in regions:
            self._add(f"storage-{region}", STORAGE, region)
            for number in range(1, forwarders + 1):
                self.add_publisher(region, f"publish-{region}-{number}")
                self._add(f"subscribe-{region}-{number}", SUBSCRIBE, region)
            for number in range(1, proxies + 1):
                self._add(f"proxy-{region}-{number}", PROXY, region)

    def _add(self, name: str, role: str, region: str) -> None:
        self.members[name] = Member(name, (role,), f"{name}:1", 1, region)

    def add_publisher(self, region: str, name: str, klass: str = "default") -> None:
        self._add(name, PUBLISH, region)
        number = len(self.chains) + 1
        place = DiskPlace("c1", "d1", f"storage-{region}")
        self.chains[number] = ChainRecord(number, name, klass, region, name, (place,))
        self.owners[number] = ChainOwner(name, 1, 1, f"{name}:1")

    def lose(self, name: str) -> None:
        """A process dies; nobody has taken over yet."""
        del self.members[name]
        self.owners = {chain: owner for chain, owner in self.owners.items() if owner.member != name}

    def adopt(self, chain: int, name: str) -> None:
        self.owners[chain] = ChainOwner(name, 1, 2, f"{name}:1")

    def in_region(self, region: str) -> set[int]:
        return {number for number, chain in self.chains.items() if chain.region == region}

    @property
    def cluster_state(self) -> ClusterState:
        policy = Policy(self.rules, self.drains)
        return ClusterState(dict(self.members), dict(self.chains), dict(self.owners), policy)


def state(topics: Iterable[Topic], subscriptions: Iterable[Subscription] = ()) -> State:
    return State(
        {one.incarnation: one for one in topics}, {one.incarnation: one for one in subscriptions}, {}, {}
    )  # fmt: skip


def after(before: State, changes: Changes) -> State:
    """The state once changes are written."""
    return before._replace(
        topic_homes={**before.topic_homes, **changes.topics},
        subscription_homes={**before.subscription_homes, **changes.subscriptions},
    )
