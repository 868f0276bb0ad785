"""Served subscriptions: those that a subscribe forwarder gathers from many chains, and what the chains say of them.

Machine below `gather`, which asks; here is what is answered, and what is not known: sources are announced to the
delivery with their grants, or that those are in doubt. Each subscription's part is a step of its own: one that fails
ends no other.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from syncpoint.base.runtime.clock import Clock
from syncpoint.broker.subscribe.chain_peers import ChainDirectory, ChainPeers
from syncpoint.broker.subscribe.peers import Peer, PeerTransport
from syncpoint.broker.subscribe.step_guard import StepGuard
from syncpoint.broker.subscribe.subscription_view import SubscriptionView
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.wire.protobuf.messages import internal


class ServedSubscriptions:
    """A `peers.Visitor`. The parameters are those of `ChainPeers`."""

    def __init__(
        self,
        member: str,
        incarnation: int,
        catalog: Catalog,
        directory: ChainDirectory,
        clock: Clock,
        connect: Callable[[str, Peer], PeerTransport],
        registered: int | None,
    ) -> None:
        self.catalog, self.clock, self.guard = catalog, clock, StepGuard()
        self.views: dict[int, SubscriptionView] = {}
        self.again: set[tuple[int, str]] = set()  # (subscription, address): name your sources again, at the next beat
        self.peers = ChainPeers(member, incarnation, directory, clock, self.guard, self, connect, registered)

    # -- what peers say ------------------------------------------------------------------------------------------------

    def peer_up(self, peer: Peer) -> None:
        self.each(lambda served: self.ask_sources(served, peer) if peer in self.peers.serving(served) else None)
        peer.send_message(serves=internal.Serves(subscriptions=list(self.views)))

    def peer_down(self, peer: Peer) -> None:
        mine = self.peers.chains_at(peer.address)
        self.each(lambda served: self.doubt(served, mine))

    def peer_said(self, peer: Peer, kind: str, what: Any) -> None:
        if kind == "owned":
            opened = set(what.chains) - peer.chains
            gone = {chain for chain in peer.chains - set(what.chains) if self.peers.owners.get(chain) == peer.address}

            def own(served: SubscriptionView) -> None:
                self.doubt(served, gone)
                if not opened.isdisjoint(self.peers.chains_of(served)):
                    self.ask_sources(served, peer)

            self.each(own)
            return
        served = self.views.get(what.subscription)
        if served is not None:
            self.guard.run(partial(self._said, served, peer, kind, what), served.subscription)
        elif kind == "revoke":
            self._released(peer, what)

    def _said(self, served: SubscriptionView, peer: Peer, kind: str, what: Any) -> None:
        """About one subscription."""
        if kind == "sources":
            self._named(served, peer, what)
        elif kind == "data":
            if served.holds(what.source):
                served.listener.on_data(what.source)
        elif kind == "revoke":
            self._revoked(served, peer, what)
        elif kind == "reset":
            if what.generation > served.generation:
                self.renew(served, what.generation)
            elif what.generation == served.generation:
                self.ask_sources(served, peer)  # now its sources are of this generation
        elif kind == "removed":
            if self.catalog.subscription_by_incarnation(served.subscription) is None:
                served.listener.on_removed()
            else:
                self.again.add((served.subscription, peer.address))  # it does not know it yet, or knew it longer

    def _named(self, served: SubscriptionView, peer: Peer, what: Any) -> None:
        owner = self.peers.owners.get(what.chain)
        if owner is not None and owner != peer.address:
            return  # it is the owner no longer, or we will learn that it is and ask again
        if what.generation > served.generation:
            self.renew(served, what.generation)
        elif what.generation < served.generation:
            self.again.add((served.subscription, peer.address))  # it has not seen the seek yet
            return
        if served.strict and what.chain in peer.unowned(self.clock.monotonic()):
            self.again.add((served.subscription, peer.address))
            return
        views, lost, newer = served.named(what)
        for source in lost:
            served.listener.on_revoked(source)
        if newer:
            served.registered = None
            self.read_registered(served)
        served.listener.on_sources(views, self.complete(served))

    def _revoked(self, served: SubscriptionView, peer: Peer, what: Any) -> None:
        if served.revoked(what.source, what.grant):
            served.listener.on_revoked(what.source)
        self._released(peer, what)

    def _released(self, peer: Peer, what: Any) -> None:
        peer.send_message(
            released=internal.Released(subscription=what.subscription, source=what.source, grant=what.grant)
        )

    # -- what is not known ---------------------------------------------------------------------------------------------

    def doubt(self, served: SubscriptionView, chains: Collection[int]) -> None:
        """Nobody knows whether what these chains granted still stands: a strict subscription lends nothing of it."""
        if served.strict:
            views = served.doubt(chains)
            if views:
                served.listener.on_sources(views, self.complete(served))

    def doubt_unowned(self, served: SubscriptionView, now: float) -> None:
        """Doubt grants of chains whose owners have not confirmed ownership recently, and ask those owners again."""
        if not served.strict:
            return
        for peer in self.peers.by_address.values():
            # A process that is known to have lost a chain does not decide about grants of its new owner, and is not
            # asked about them again: they would stay in doubt for ever.
            late = peer.unowned(now) if peer.up else ()
            unowned = {chain for chain in late if self.peers.owners.get(chain, peer.address) == peer.address}
            if unowned and any(view.held and view.chain in unowned for view in served.sources.values()):
                self.again.add((served.subscription, peer.address))
                self.doubt(served, unowned)

    def renew(self, served: SubscriptionView, generation: int) -> None:
        """A seek: nothing of before counts."""
        served.renew(generation)
        served.listener.on_reset()

    def read_registered(self, served: SubscriptionView) -> None:
        """For the order of keys: which chains hold sources of the topic, with nothing missing."""
        if not served.record.ordered or served.registered is not None or served.reading:
            return
        epoch = served.newest_epoch
        served.reading = True

        def found(chains: Collection[int] | None) -> None:
            served.reading = False
            if chains is not None and epoch == served.newest_epoch and self.views.get(served.subscription) is served:
                served.registered = frozenset(chains)
                served.listener.on_sources((), self.complete(served))

        self.peers.directory.read_chains(served.topic, self.guard.answer(found, served.subscription))

    def complete(self, served: SubscriptionView) -> bool:
        looked = served.registered is not None or not served.record.ordered
        return looked and not self.lacking(served)

    def lacking(self, served: SubscriptionView) -> list[int]:
        """Chains that have not named their sources; for the order of keys all of those before the newest epoch."""
        known = set(self.peers.directory.chains_of(served.topic)) | (served.registered or frozenset())
        epoch = served.newest_epoch if served.record.ordered else 0
        return [chain for chain in known if served.answered.get(chain, -1) < epoch]

    def each(self, step: Callable[[SubscriptionView], None]) -> None:
        """Do it for all that is served, each in a step of its own."""
        for served in list(self.views.values()):
            self.guard.run(partial(step, served), served.subscription)

    def ask_sources(self, served: SubscriptionView, peer: Peer) -> None:
        """Have a process name its sources of a subscription; it does so whenever they change from then on."""
        if not peer.up:
            return
        peer.attached.add(served.subscription)
        mine = self.peers.chains_at(peer.address)
        peer.send_message(
            attach=internal.Attach(
                subscription=served.subscription,
                wanted=served.wanted,
                grants=[internal.Grant(source=s, grant=g) for s, g in served.grants_of(mine)],
            )
        )
