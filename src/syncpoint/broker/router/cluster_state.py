"""The part of the metadata that routing uses.

Place: what planner and lists decide by. Values of one moment; nothing here changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

from syncpoint.base.model.cluster import PROXY, PUBLISH, STORAGE, ChainOwner, ChainRecord, Member
from syncpoint.broker.router.location import fits
from syncpoint.broker.router.routing_rules import Policy
from syncpoint.catalog.metadata.records import Topic
from syncpoint.log.storage.quorum import AckRule


@dataclass(frozen=True)
class ClusterState:
    """`members`: the living, by name; `spanning`: durability classes whose disks may lie in several regions."""

    members: Mapping[str, Member] = field(default_factory=dict)
    chains: Mapping[int, ChainRecord] = field(default_factory=dict)
    owners: Mapping[int, ChainOwner] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    spanning: Set[str] = frozenset()

    def with_role(self, role: str) -> list[Member]:
        """Living members of a role, by name."""
        return [member for _, member in sorted(self.members.items()) if role in member.roles]

    def takes_new(self, member: Member) -> bool:
        """Whether a living member may be given more."""
        return not member.draining and not self.policy.drained(member)

    def owner(self, chain: int) -> Member | None:
        """The living member that has a chain open."""
        owner = self.owners.get(chain)
        member = None if owner is None else self.members.get(owner.member)
        return member if member is not None and owner is not None and member.incarnation == owner.incarnation else None

    def responsible(self, chain: ChainRecord) -> Member | None:
        """Who has a chain open or, while nobody has, the member it was made for."""
        return self.owner(chain.number) or self.members.get(chain.home)

    @cached_property
    def region_of(self) -> dict[str, str]:
        """The regions of living storage processes."""
        return {member.name: member.region for member in self.with_role(STORAGE)}

    @cached_property
    def serving_regions(self) -> frozenset[str]:
        """Regions with a publish forwarder that takes new work: chains elsewhere cannot be kept open."""
        return frozenset(member.region for member in self.with_role(PUBLISH) if self.takes_new(member))

    @cached_property
    def dark_regions(self) -> frozenset[str]:
        """Regions with chains but without a forwarder that serves them, by accident and not because of a drain."""
        drained = {one.region for one in self.with_role(PUBLISH) if self.policy.drained(one)}
        return frozenset(chain.region for chain in self.chains.values()) - self.serving_regions - drained

    @cached_property
    def proxies(self) -> list[Member]:
        """Living proxies that take requests."""
        return [member for member in self.with_role(PROXY) if self.takes_new(member)]

    def fitting(self, topic: Topic, chains: Iterable[ChainRecord] | None = None) -> list[ChainRecord]:
        """Chains that may take messages of a topic by class and location, in order of their number."""
        given = self.chains.values() if chains is None else chains
        found = [chain for chain in given if fits(topic, chain, self.region_of, self.spanning)]
        return sorted(found, key=lambda chain: chain.number)

    def steady(self, chains: Sequence[ChainRecord]) -> list[ChainRecord]:
        """Those that could acknowledge without the disks of drained processes; all, where there are none."""
        return [chain for chain in chains if self._is_steady(chain)] or list(chains)

    def _is_steady(self, chain: ChainRecord) -> bool:
        kept = [slot for slot, place in enumerate(chain.places) if place.process not in self._drained_storage]
        return len(kept) == len(chain.places) or AckRule.from_values(chain.rule).can_acknowledge(kept)

    @cached_property
    def _drained_storage(self) -> frozenset[str]:
        return frozenset(member.name for member in self.with_role(STORAGE) if self.policy.drained(member))

    def permitted(self, client: Member | None, chain: ChainRecord, topic: Topic) -> bool:
        """Whether rules let a client publish to a chain where it is now."""
        member = self.responsible(chain)
        return member is None or self.policy.permits(client, member, topic.name)
