"""Chain peers: which processes own the chains of which topics, and the peers that stand for them.

Machine below `gather` and `served_subscriptions`, above `peers`. Messages about a source go to whoever owns its
chain now.
"""

from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import Protocol

from syncpoint.base.runtime.clock import Clock
from syncpoint.broker.subscribe.peers import Peer, PeerTransport, Visitor
from syncpoint.broker.subscribe.step_guard import StepGuard
from syncpoint.broker.subscribe.subscription_view import SubscriptionView


class ChainDirectory(Protocol):
    """Where chains are; the node keeps it from the metadata, and calls `Gatherer.changed` when it has changed."""

    def owners(self) -> Mapping[int, str]:
        """Chain -> address of the process that has it open. Chains nobody owns are missing."""

    def chains_of(self, topic: int) -> Collection[int]:
        """Chains registered for a topic, as far as it is known here."""

    def read_chains(self, topic: int, reply: Callable[[Collection[int] | None], None]) -> None:
        """Read them anew: whatever was registered before this call is in the answer; None: it cannot be read now."""


class ChainPeers:
    """Connect a subscribe forwarder to the owners of chains.

    `connect(address, peer)` opens a transport (`link.ServeLink`); `visitor` is notified of all peers. `registered`: the
    revision at which this process became a member, which orders its incarnations; None: not yet a member, so no
    connection is opened.
    """

    def __init__(
        self,
        member: str,
        incarnation: int,
        directory: ChainDirectory,
        clock: Clock,
        guard: StepGuard,
        visitor: Visitor,
        connect: Callable[[str, Peer], PeerTransport],
        registered: int | None,
    ) -> None:
        self.directory = directory
        self.by_address: dict[str, Peer] = {}
        self.owners: dict[int, str] = {}
        self.registered = registered
        self._member, self._incarnation, self._clock = member, incarnation, clock
        self._guard, self._visitor, self._connect = guard, visitor, connect
        self._streams = count(1)

    def refresh(self) -> Mapping[int, str]:
        """Open and close peers according to the directory; returns who owned which chain before."""
        before, self.owners = self.owners, dict(self.directory.owners())
        addresses = set(self.owners.values())
        for address in sorted(addresses - set(self.by_address)):
            self.by_address[address] = Peer(
                address, self._member, self._incarnation, self._clock, self._visitor, self._connect,
                registered=self.registered or 0, streams=self._streams, guard=self._guard,
            )  # fmt: skip
        for address in sorted(set(self.by_address) - addresses):
            self.by_address.pop(address).close()
        return before

    def close(self) -> None:
        """All of them, for good."""
        for address in list(self.by_address):
            self.by_address.pop(address).close()

    def owner_of(self, chain: int) -> Peer | None:
        """Who owns a chain, and is up."""
        peer = self.by_address.get(self.owners.get(chain, ""))
        return peer if peer is not None and peer.up else None

    def chains_at(self, address: str) -> set[int]:
        """Chains that a process owns."""
        return {chain for chain, owner in self.owners.items() if owner == address}

    def chains_of(self, served: SubscriptionView) -> set[int]:
        """Chains of the topic, and those of whose sources something is known: a chain that has let go of the topic
        since then reports that they are done, and nobody else does.
        """
        chains = {view.chain for view in served.sources.values()}
        return chains.union(self.directory.chains_of(served.topic), served.registered or ())

    def serving(self, served: SubscriptionView) -> list[Peer]:
        """Who owns such chains, and is up."""
        chains = self.chains_of(served)
        return [
            peer
            for address in sorted({self.owners[chain] for chain in chains if chain in self.owners})
            if (peer := self.by_address.get(address)) is not None and peer.up
        ]
