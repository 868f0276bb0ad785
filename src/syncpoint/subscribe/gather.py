"""Gather: one subscription from the chains of many publish forwarders.

The publish side as a subscribe forwarder in a cluster sees it: every process that owns a chain with sources of the
topic is a `peer`; what is said about a source goes to whoever owns its chain now. Sources are announced to the
delivery with their grants. A subscription whose messages must not be with two forwarders at once (ordered or
exactly-once: *strict*) delivers nothing from a source while its grant is in doubt; what was lent stays lent, and
counts if the same grant comes back. Everything here runs on the loop's thread; time comes by `tick`, ten times a
second. A new owner of a chain is informed which grants we believe to hold.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Protocol

from syncpoint.metadata.catalog import Catalog
from syncpoint.model.delivery import AttemptRun, Batch, Done, Listener, Reply, SourceView
from syncpoint.model.errors import FailedPrecondition, NotFound, Unavailable
from syncpoint.runtime.clock import Clock
from syncpoint.subscribe.peers import Peer, PeerTransport
from syncpoint.subscribe.step_guard import StepGuard
from syncpoint.subscribe.subscription_view import SubscriptionView
from syncpoint.wire.messages import internal

AGAIN_S = 1.0  # between two attempts to learn the same thing
PublishFunction = Callable[[str, bytes, Callable[[bytes | Exception], None]], None]


class ChainDirectory(Protocol):
    """Where chains are; the node keeps it from the metadata, and calls `Gatherer.changed` when it has changed."""

    def owners(self) -> Mapping[int, str]:
        """Chain -> address of the process that has it open. Chains nobody owns are missing."""

    def chains_of(self, topic: int) -> Collection[int]:
        """Chains registered for a topic, as far as it is known here."""

    def look(self, topic: int, reply: Callable[[Collection[int] | None], None]) -> None:
        """Read them anew: whatever was registered before this call is in the answer; None: it cannot be read now."""


class Gatherer:
    """A `PublishSide` over many processes. `connect(address, peer)` opens the way to one, see `link.ServeLink`."""

    def __init__(
        self,
        member: str,
        incarnation: int,
        catalog: Catalog,
        directory: ChainDirectory,
        clock: Clock,
        *,
        connect: Callable[[str, Peer], PeerTransport],
        publish: PublishFunction,
        registered: int | None = 0,
    ) -> None:
        """`registered`: the revision at which this process became a member, which orders its lives; None: it is not one
        yet, and speaks to nobody before `join`.
        """
        self.catalog, self.directory, self.clock = catalog, directory, clock
        self.publish = publish
        self.peers: dict[str, Peer] = {}
        self._member, self._incarnation, self._connect = member, incarnation, connect
        self._served: dict[int, SubscriptionView] = {}
        self._owners: dict[int, str] = {}
        self._refused: list[tuple[int, Callable[[], None]]] = []  # answers, each about a subscription
        self._again: set[tuple[int, str]] = set()  # (subscription, address): name your sources again, at the next beat
        self._again_at = 0.0
        self.guard = StepGuard()
        self._registered, self._streams = registered, count(1)
        self.changed()

    # -- PublishSide ---------------------------------------------------------------------------------------------------

    def attach(self, subscription: int, listener: Listener) -> None:
        record = self.catalog.subscription_by_incarnation(subscription)
        if record is None:
            raise NotFound(str(subscription))
        served = self._served.get(subscription)
        if served is None:
            served = self._served[subscription] = SubscriptionView(record, listener)
        served.listener = listener
        if served.sources:
            listener.on_sources(list(served.sources.values()), self._complete(served))
        for peer in self._peers_of(served):
            self._attach(served, peer)
        self._look(served)

    def detach(self, subscription: int) -> None:
        if self._served.pop(subscription, None) is None:
            return
        for peer in self.peers.values():
            if subscription in peer.attached:
                peer.attached.discard(subscription)
                peer.send_message(detach=internal.Detach(subscription=subscription))

    def set_demand(self, subscription: int, wanted: bool) -> None:
        served = self._served.get(subscription)
        if served is None or served.wanted == wanted:
            return
        served.wanted = wanted
        for peer in self.peers.values():
            if peer.up and subscription in peer.attached:
                peer.send_message(wants=internal.Wants(subscription=subscription, wanted=wanted))

    def fetch(self, subscription: int, source: int, begin: int, max_bytes: int, reply: Reply) -> None:
        served = self._served.get(subscription)
        view = served.sources.get(source) if served is not None else None
        peer = self._peer_of(view.chain) if view is not None and view.held else None
        if served is None or view is None or peer is None:
            self._later(subscription, lambda: reply(Unavailable("the source is unreachable now")))
            return

        def answered(batches: Sequence[Batch] | Exception) -> None:
            if isinstance(batches, FailedPrecondition) and served is not None:
                self._again.add((subscription, peer.address))  # our grant is not what we believe
            reply(batches)

        peer.fetch(
            answered, max_bytes,
            subscription=subscription, source=source, begin=begin, grant=view.grant, generation=served.generation,
        )  # fmt: skip

    def check_grants(self, subscription: int) -> None:
        served = self._served.get(subscription)
        if served is not None and served.strict:
            now = self.clock.monotonic()
            for peer in list(self.peers.values()):
                if peer.up and peer.silent(now):
                    self.peer_down(peer)  # before it is noticed at the next tick
                    self._again.update((one, peer.address) for one in self._served)  # it may be received before that
            self._doubt_unowned(served, now)

    def check_writable(self) -> None:
        if self.peers and not any(peer.up for peer in self.peers.values()):
            raise Unavailable("No publish forwarder is reachable. Try again.")

    def acknowledge(
        self, subscription: int, generation: int, source: int, runs: bytes, done: Done, *, urgent: bool
    ) -> None:
        served = self._served.get(subscription)
        view = served.acknowledging(source) if served is not None else None
        if served is None or generation != served.generation:
            record = self.catalog.subscription_by_incarnation(subscription)
            if record is None or record.detached or (served is not None and generation < served.generation):
                why = FailedPrecondition("The subscription was reset by a seek or detached while this call ran.")
                self._later(subscription, lambda: done(why))
            else:  # it is not attached to at this moment, or a seek has come to others first
                self._later(subscription, lambda: done(Unavailable("the source is unreachable now")))
            return
        once = served.record.exactly_once
        if view is None and not once and served.answered and self._complete(served):
            self._later(subscription, lambda: done(None))  # a source of which nothing is left
        elif once and (view is None or not view.grant):
            refused = FailedPrecondition("The source is granted to somebody else.")
            self._later(subscription, lambda: done(refused))
        elif view is None or (peer := self._peer_of(view.chain)) is None or (once and self._is_in_doubt(served, view)):
            self._later(subscription, lambda: done(Unavailable("the source is unreachable now")))
        else:
            peer.acknowledge(
                done, runs, urgent=urgent,
                subscription=subscription, generation=generation, source=source, grant=view.grant,
            )  # fmt: skip

    def note_attempts(self, subscription: int, generation: int, source: int, runs: Sequence[AttemptRun]) -> None:
        served = self._served.get(subscription)
        view = served.sources.get(source) if served is not None else None
        peer = self._peer_of(view.chain) if view is not None and view.held else None
        if peer is not None:
            peer.send_message(
                note_attempts=internal.NoteAttempts(
                    subscription=subscription,
                    generation=generation,
                    source=source,
                    runs=[internal.Attempts(**one._asdict()) for one in runs],
                )
            )

    @staticmethod
    def _is_in_doubt(served: SubscriptionView, view: SourceView) -> bool:
        """Whether we will learn more of its grant. Of a done source there is nothing more to learn: its
        owner decides.
        """
        return view.source in served.sources and not view.held

    def generation(self, subscription: int) -> int:
        served = self._served.get(subscription)
        record = self.catalog.subscription_by_incarnation(subscription)
        return max(served.generation if served is not None else 0, record.generation if record is not None else 0)

    # -- around it -----------------------------------------------------------------------------------------------------

    def join(self, registered: int) -> None:
        """This process is a member, since that revision."""
        self._registered = registered
        self.changed()

    def changed(self) -> None:
        """The directory has changed: chains have other owners, or topics other chains."""
        if self._registered is None:
            return
        before, self._owners = self._owners, dict(self.directory.owners())
        addresses = set(self._owners.values())
        for address in sorted(addresses - set(self.peers)):
            self._open(address)
        for address in sorted(set(self.peers) - addresses):
            self.peers.pop(address).close()
        moved = {chain for chain, address in self._owners.items() if before.get(chain) != address}

        def move(served: SubscriptionView) -> None:
            chains = self._chains_of(served)
            self._doubt(served, {chain for chain in chains if before.get(chain) != self._owners.get(chain)})
            for peer in self._peers_of(served):
                new_here = any(self._owners[chain] == peer.address for chain in chains & moved)
                if new_here or served.subscription not in peer.attached:
                    self._attach(served, peer)

        self._each(move)

    def tick(self) -> None:
        """Ten times a second: heartbeats, what was refused, what has to be asked again."""
        now = self.clock.monotonic()
        refused, self._refused = self._refused, []
        for peer in list(self.peers.values()):
            self.guard.run(partial(peer.tick, now))
        for subscription, answer in refused:
            self.guard.run(answer, subscription)
        self._each(lambda served: self._review(served, now))
        if now >= self._again_at:
            self._again_at = now + AGAIN_S
            again, self._again = self._again, set()
            self._each(lambda served: self._ask_again(served, again))

    def _review(self, served: SubscriptionView, now: float) -> None:
        record = self.catalog.subscription_by_incarnation(served.subscription)
        if record is not None:
            served.record = record
            if record.generation > served.generation:
                self._renew(served, record.generation)
        self._doubt_unowned(served, now)

    def _ask_again(self, served: SubscriptionView, again: Collection[tuple[int, str]]) -> None:
        late = {self._owners.get(chain) for chain in self._lacking(served)} if served.record.ordered else set()
        for peer in self.peers.values():
            if (served.subscription, peer.address) in again or peer.address in late:
                self._attach(served, peer)
        self._look(served)

    def close(self) -> None:
        """Let go of everything: grants are free for others at once."""
        for subscription in list(self._served):
            self.detach(subscription)
        for address in list(self.peers):
            self.peers.pop(address).close()

    def status(self) -> dict[str, Any]:
        """For the process's status: peers, and what is served from them."""
        return {
            "peers": {peer.address: {"up": peer.up, "chains": sorted(peer.chains)} for peer in self.peers.values()},
            "subscriptions": len(self._served),
            "failed_steps": self.guard.failures,
            "sources": sum(view.held for served in self._served.values() for view in served.sources.values()),
        }

    # -- what peers say ------------------------------------------------------------------------------------------------

    def peer_up(self, peer: Peer) -> None:
        self._each(lambda served: self._attach(served, peer) if peer in self._peers_of(served) else None)
        peer.send_message(serves=internal.Serves(subscriptions=list(self._served)))

    def peer_down(self, peer: Peer) -> None:
        mine = {chain for chain, address in self._owners.items() if address == peer.address}
        self._each(lambda served: self._doubt(served, mine))

    def peer_said(self, peer: Peer, kind: str, what: Any) -> None:
        if kind == "owned":
            opened = set(what.chains) - peer.chains
            gone = {chain for chain in peer.chains - set(what.chains) if self._owners.get(chain) == peer.address}

            def own(served: SubscriptionView) -> None:
                self._doubt(served, gone)
                if not opened.isdisjoint(self._chains_of(served)):
                    self._attach(served, peer)

            self._each(own)
            return
        served = self._served.get(what.subscription)
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
                self._renew(served, what.generation)
            elif what.generation == served.generation:
                self._attach(served, peer)  # now its sources are of this generation
        elif kind == "removed":
            if self.catalog.subscription_by_incarnation(served.subscription) is None:
                served.listener.on_removed()
            else:
                self._again.add((served.subscription, peer.address))  # it does not know it yet, or knew it longer

    def _named(self, served: SubscriptionView, peer: Peer, what: Any) -> None:
        owner = self._owners.get(what.chain)
        if owner is not None and owner != peer.address:
            return  # it is the owner no longer, or we will learn that it is and ask again
        if what.generation > served.generation:
            self._renew(served, what.generation)
        elif what.generation < served.generation:
            self._again.add((served.subscription, peer.address))  # it has not seen the seek yet
            return
        if served.strict and what.chain in peer.unowned(self.clock.monotonic()):
            self._again.add((served.subscription, peer.address))
            return
        views, lost, newer = served.named(what)
        for source in lost:
            served.listener.on_revoked(source)
        if newer:
            served.registered = None
            self._look(served)
        served.listener.on_sources(views, self._complete(served))

    def _revoked(self, served: SubscriptionView, peer: Peer, what: Any) -> None:
        if served.revoked(what.source, what.grant):
            served.listener.on_revoked(what.source)
        self._released(peer, what)

    def _released(self, peer: Peer, what: Any) -> None:
        peer.send_message(
            released=internal.Released(subscription=what.subscription, source=what.source, grant=what.grant)
        )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _doubt(self, served: SubscriptionView, chains: Collection[int]) -> None:
        """Nobody knows whether what these chains granted still stands: a strict subscription lends nothing of it."""
        if served.strict:
            views = served.doubt(chains)
            if views:
                served.listener.on_sources(views, self._complete(served))

    def _doubt_unowned(self, served: SubscriptionView, now: float) -> None:
        """The same of chains whose owners do not know lately that they still are. They are asked again."""
        if not served.strict:
            return
        for peer in self.peers.values():
            # A process that is known to have lost a chain says nothing about grants of its new owner, and is not asked
            # about them again: they would stay in doubt for ever.
            late = peer.unowned(now) if peer.up else ()
            unowned = {chain for chain in late if self._owners.get(chain, peer.address) == peer.address}
            if unowned and any(view.held and view.chain in unowned for view in served.sources.values()):
                self._again.add((served.subscription, peer.address))
                self._doubt(served, unowned)

    def _renew(self, served: SubscriptionView, generation: int) -> None:
        """A seek: nothing of before counts."""
        served.renew(generation)
        served.listener.on_reset()

    def _look(self, served: SubscriptionView) -> None:
        """For the order of keys: which chains hold sources of the topic, with nothing missing."""
        if not served.record.ordered or served.registered is not None or served.looking:
            return
        epoch = served.newest_epoch
        served.looking = True

        def found(chains: Collection[int] | None) -> None:
            served.looking = False
            if chains is not None and epoch == served.newest_epoch and self._served.get(served.subscription) is served:
                served.registered = frozenset(chains)
                served.listener.on_sources((), self._complete(served))

        self.directory.look(served.topic, self.guard.answer(found, served.subscription))

    def _complete(self, served: SubscriptionView) -> bool:
        looked = served.registered is not None or not served.record.ordered
        return looked and not self._lacking(served)

    def _lacking(self, served: SubscriptionView) -> list[int]:
        """Chains that have not named their sources; for the order of keys all of those before the newest epoch."""
        known = set(self.directory.chains_of(served.topic)) | (served.registered or frozenset())
        epoch = served.newest_epoch if served.record.ordered else 0
        return [chain for chain in known if served.answered.get(chain, -1) < epoch]

    def _each(self, step: Callable[[SubscriptionView], None]) -> None:
        """Do it for all that is served, each in a step of its own."""
        for served in list(self._served.values()):
            self.guard.run(partial(step, served), served.subscription)

    def _later(self, subscription: int, answer: Callable[[], None]) -> None:
        """Not at once: who is refused asks again, and must not do so without end in one turn."""
        self._refused.append((subscription, answer))

    def _open(self, address: str) -> Peer:
        peer = self.peers[address] = Peer(
            address, self._member, self._incarnation, self.clock, self, self._connect,
            registered=self._registered or 0, streams=self._streams, guard=self.guard,
        )  # fmt: skip
        return peer

    def _peer_of(self, chain: int) -> Peer | None:
        peer = self.peers.get(self._owners.get(chain, ""))
        return peer if peer is not None and peer.up else None

    def _chains_of(self, served: SubscriptionView) -> set[int]:
        """Chains of the topic, and those of whose sources something is known: a chain that has let go of the topic
        since then says that they are done, and nobody else does.
        """
        chains = {view.chain for view in served.sources.values()}
        return chains.union(self.directory.chains_of(served.topic), served.registered or ())

    def _peers_of(self, served: SubscriptionView) -> list[Peer]:
        """Who owns such chains, and is up."""
        chains = self._chains_of(served)
        return [
            peer
            for address in sorted({self._owners[chain] for chain in chains if chain in self._owners})
            if (peer := self.peers.get(address)) is not None and peer.up
        ]

    def _attach(self, served: SubscriptionView, peer: Peer) -> None:
        if not peer.up:
            return
        peer.attached.add(served.subscription)
        mine = {chain for chain, address in self._owners.items() if address == peer.address}
        peer.send_message(
            attach=internal.Attach(
                subscription=served.subscription,
                wanted=served.wanted,
                grants=[internal.Grant(source=s, grant=g) for s, g in served.grants_of(mine)],
            )
        )
