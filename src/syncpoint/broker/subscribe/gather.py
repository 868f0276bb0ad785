"""Gather: one subscription from the chains of many publish forwarders.

The publish side as a subscribe forwarder in a cluster sees it: every process that owns a chain with sources of the
topic is a `peer`; messages about a source go to the current owner of its chain. Sources are announced to the
delivery with their grants. A subscription whose messages must not be with two forwarders at once (ordered or
exactly-once: *strict*) delivers nothing from a source while its grant is in doubt; what was lent stays lent, and
counts if the same grant comes back. Everything here runs on the loop's thread; time comes by `tick`, ten times a
second. A new owner of a chain is informed which grants we believe to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from syncpoint.base.model.delivery import AttemptRun, Batch, Done, Listener, Reply, SourceView
from syncpoint.base.model.errors import FailedPrecondition, NotFound, Unavailable
from syncpoint.base.runtime.clock import Clock
from syncpoint.broker.subscribe.chain_peers import ChainDirectory
from syncpoint.broker.subscribe.peers import Peer, PeerTransport
from syncpoint.broker.subscribe.served_subscriptions import ServedSubscriptions
from syncpoint.broker.subscribe.subscription_view import SubscriptionView
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.wire.protobuf.messages import internal

AGAIN_S = 1.0  # between two attempts to learn the same thing
PublishFunction = Callable[[str, bytes, Callable[[bytes | Exception], None]], None]


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
        self._served = ServedSubscriptions(member, incarnation, catalog, directory, clock, connect, registered)
        self._chains, self.guard = self._served.peers, self._served.guard
        self.peers = self._chains.by_address
        self._refused: list[tuple[int, Callable[[], None]]] = []  # answers, each about a subscription
        self._again_at = 0.0
        self.changed()

    # -- PublishSide ---------------------------------------------------------------------------------------------------

    def attach(self, subscription: int, listener: Listener) -> None:
        record = self.catalog.subscription_by_incarnation(subscription)
        if record is None:
            raise NotFound(str(subscription))
        served = self._served.views.get(subscription)
        if served is None:
            served = self._served.views[subscription] = SubscriptionView(record, listener)
        served.listener = listener
        if served.sources or self._served.complete(served):
            listener.on_sources(list(served.sources.values()), self._served.complete(served))
        for peer in self._chains.serving(served):
            self._served.ask_sources(served, peer)
        self._served.read_registered(served)

    def detach(self, subscription: int) -> None:
        if self._served.views.pop(subscription, None) is None:
            return
        for peer in self.peers.values():
            if subscription in peer.attached:
                peer.attached.discard(subscription)
                peer.send_message(detach=internal.Detach(subscription=subscription))

    def set_demand(self, subscription: int, wanted: bool) -> None:
        served = self._served.views.get(subscription)
        if served is None or served.wanted == wanted:
            return
        served.wanted = wanted
        for peer in self.peers.values():
            if peer.up and subscription in peer.attached:
                peer.send_message(wants=internal.Wants(subscription=subscription, wanted=wanted))

    def fetch(self, subscription: int, source: int, begin: int, max_bytes: int, reply: Reply) -> None:
        served = self._served.views.get(subscription)
        view = served.sources.get(source) if served is not None else None
        peer = self._chains.owner_of(view.chain) if view is not None and view.held else None
        if served is None or view is None or peer is None:
            self._later(
                subscription, lambda: reply(Unavailable("the publish forwarder of the message is unreachable now"))
            )
            return

        def answered(batches: Sequence[Batch] | Exception) -> None:
            if isinstance(batches, FailedPrecondition) and served is not None:
                self._served.again.add((subscription, peer.address))  # our grant is not what we believe
            reply(batches)

        peer.fetch(
            answered, max_bytes,
            subscription=subscription, source=source, begin=begin, grant=view.grant, generation=served.generation,
        )  # fmt: skip

    def check_grants(self, subscription: int) -> None:
        served = self._served.views.get(subscription)
        if served is not None and served.strict:
            now = self.clock.monotonic()
            for peer in list(self.peers.values()):
                if peer.up and peer.silent(now):
                    self._served.peer_down(peer)  # before it is noticed at the next tick
                    for one in self._served.views:  # it may be received before that
                        self._served.again.add((one, peer.address))
            self._served.doubt_unowned(served, now)

    def check_writable(self) -> None:
        if self.peers and not any(peer.up for peer in self.peers.values()):
            raise Unavailable("No publish forwarder is reachable. Try again.")

    def acknowledge(
        self, subscription: int, generation: int, source: int, runs: bytes, done: Done, *, urgent: bool
    ) -> None:
        served = self._served.views.get(subscription)
        view = served.acknowledging(source) if served is not None else None
        if served is None or generation != served.generation:
            record = self.catalog.subscription_by_incarnation(subscription)
            if record is None or record.detached or (served is not None and generation < served.generation):
                why = FailedPrecondition("The subscription was reset by a seek or detached while this call ran.")
                self._later(subscription, lambda: done(why))
            else:  # it is not attached to at this moment, or a seek has come to others first
                self._later(
                    subscription, lambda: done(Unavailable("the publish forwarder of the message is unreachable now"))
                )
            return
        once = served.record.exactly_once
        peer = None if view is None else self._chains.owner_of(view.chain)
        if view is None and not once and served.answered and self._served.complete(served):
            self._later(subscription, lambda: done(None))  # a source of which nothing is left
        elif once and (view is None or not view.grant):
            refused = FailedPrecondition("The source is granted to somebody else.")
            self._later(subscription, lambda: done(refused))
        elif view is None or peer is None or (once and self._is_in_doubt(served, view)):
            self._later(
                subscription, lambda: done(Unavailable("the publish forwarder of the message is unreachable now"))
            )
        else:
            peer.acknowledge(
                done, runs, urgent=urgent,
                subscription=subscription, generation=generation, source=source, grant=view.grant,
            )  # fmt: skip

    def note_attempts(self, subscription: int, generation: int, source: int, runs: Sequence[AttemptRun]) -> None:
        served = self._served.views.get(subscription)
        view = served.sources.get(source) if served is not None else None
        peer = self._chains.owner_of(view.chain) if view is not None and view.held else None
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
        served = self._served.views.get(subscription)
        record = self.catalog.subscription_by_incarnation(subscription)
        return max(served.generation if served is not None else 0, record.generation if record is not None else 0)

    # -- around it -----------------------------------------------------------------------------------------------------

    def join(self, registered: int) -> None:
        """This process is a member, since that revision."""
        self._chains.registered = registered
        self.changed()

    def changed(self) -> None:
        """The directory has changed: chains have other owners, or topics other chains."""
        if self._chains.registered is None:
            return
        before = self._chains.refresh()
        moved = {chain for chain, address in self._chains.owners.items() if before.get(chain) != address}

        def move(served: SubscriptionView) -> None:
            chains, owners = self._chains.chains_of(served), self._chains.owners
            self._served.doubt(served, {chain for chain in chains if before.get(chain) != owners.get(chain)})
            for peer in self._chains.serving(served):
                new_here = any(owners[chain] == peer.address for chain in chains & moved)
                if new_here or served.subscription not in peer.attached:
                    self._served.ask_sources(served, peer)

        self._served.each(move)

    def tick(self) -> None:
        """Ten times a second: heartbeats, what was refused, what has to be asked again."""
        now = self.clock.monotonic()
        refused, self._refused = self._refused, []
        for peer in list(self.peers.values()):
            self.guard.run(partial(peer.tick, now))
        for subscription, answer in refused:
            self.guard.run(answer, subscription)
        self._served.each(lambda served: self._review(served, now))
        if now >= self._again_at:
            self._again_at = now + AGAIN_S
            again, self._served.again = self._served.again, set()
            self._served.each(lambda served: self._ask_again(served, again))

    @property
    def at_rest(self) -> bool:
        """Whether nothing is served here, and nobody waits for an answer."""
        return not (self._served.views or self._refused or self._served.again)

    def _review(self, served: SubscriptionView, now: float) -> None:
        record = self.catalog.subscription_by_incarnation(served.subscription)
        if record is not None:
            served.record = record
            if record.generation > served.generation:
                self._served.renew(served, record.generation)
        self._served.doubt_unowned(served, now)

    def _ask_again(self, served: SubscriptionView, again: Collection[tuple[int, str]]) -> None:
        lacking = self._served.lacking(served) if served.record.ordered else []
        late = {self._chains.owners.get(chain) for chain in lacking}
        for peer in self.peers.values():
            if (served.subscription, peer.address) in again or peer.address in late:
                self._served.ask_sources(served, peer)
        self._served.read_registered(served)

    def close(self) -> None:
        """Let go of everything: grants are free for others at once."""
        for subscription in list(self._served.views):
            self.detach(subscription)
        self._chains.close()

    def status(self) -> dict[str, Any]:
        """For the process's status: peers, and what is served from them."""
        return {
            "peers": {peer.address: {"up": peer.up, "chains": sorted(peer.chains)} for peer in self.peers.values()},
            "subscriptions": len(self._served.views),
            "failed_steps": self.guard.failures,
            "sources": sum(view.held for served in self._served.views.values() for view in served.sources.values()),
        }

    # -- inside --------------------------------------------------------------------------------------------------------

    def _later(self, subscription: int, answer: Callable[[], None]) -> None:
        """Not at once: who is refused asks again, and must not do so without end in one turn."""
        self._refused.append((subscription, answer))
