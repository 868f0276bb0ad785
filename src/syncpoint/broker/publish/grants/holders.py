"""Holders: the subscribe forwarders that serve subscriptions from one chain, and what each of them is granted.

Place: beside `dispatch`. `host` brings sessions that come, go and ask; `grants` decides; what follows is written to the
log, where it must be, and to the holder's session.
Promise: a strict grant is persisted before its holder learns of it. Whoever is named its sources is named all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from syncpoint.base.model.delivery import Listener
from syncpoint.base.model.lanes import place_in
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.grants.fetch_progress import FetchProgress
from syncpoint.broker.publish.grants.grants import Effect, Granted, Grants, Revoked
from syncpoint.broker.publish.grants.sessions import Session
from syncpoint.broker.publish.intake.envelope import data_message
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.catalog.metadata.reader_holds import hold_of
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.log.storage.record import EntryKind
from syncpoint.wire.protobuf.messages import internal

AGE_MS_MAX = 1 << 31


class SourceHolders:
    """Manage the subscribe forwarders that hold a chain's sources.

    `rank(topic)`: the chain's place among those of the topic; `epoch(topic)`: no source of a lower epoch is open in the
    chain, or will be opened; `obeyed_at()`: as of when it is known that no later owner had begun;
    `listener(subscription)`: the object that the forwarder notifies of what happens to a subscription.
    """

    def __init__(
        self,
        chain: int,
        forwarder: PublishForwarder,
        grants: Grants,
        rank: Callable[[int], int],
        epoch: Callable[[int], int],
        obeyed_at: Callable[[], float],
        listener: Callable[[int], Listener],
    ) -> None:
        self.chain, self.forwarder, self.grants = chain, forwarder, grants
        self.catalog, self._clock = forwarder.catalog, forwarder.clock
        self.progress = FetchProgress()
        self._rank, self._epoch, self._obeyed_at, self._listener = rank, epoch, obeyed_at, listener
        self._sessions: dict[int, Session] = {}
        self._unpersisted: dict[tuple[int, int], int] = {}  # (subscription, source) -> strict grant nobody learns yet
        self._registered: set[int] = set()  # subscriptions the forwarder reports to us
        self._to_sweep: list[int] = []

    def attach(self, session: Session, subscription: int, wanted: bool, claims: Mapping[int, int]) -> bool:
        """Serve a subscription; False when the catalog here does not know it (yet), or one reader has it alone."""
        record = self.catalog.subscription_by_incarnation(subscription)
        if record is None or record.detached:
            return False
        now = self._clock.monotonic()
        known = session.incarnation in self.grants.attached(subscription)
        if not known and hold_of(self.catalog, subscription, self.forwarder.clock.time_ns()) is not None:
            return False
        self._sessions[session.incarnation] = session
        effects = self._share(record, now)
        self.register(subscription)
        effects += self.grants.attach(subscription, session.incarnation, wanted, claims, now)
        self.perform(effects, named=session.incarnation)
        self._name_all(session, record)
        return True

    def detach(self, holder: int, subscription: int) -> None:
        """Remove a holder that no longer serves the subscription."""
        self.perform(self.grants.detach(subscription, holder, self._clock.monotonic()))
        if not self.grants.attached(subscription):
            self._forget(subscription, gone=False)

    def set_demand(self, holder: int, subscription: int, wanted: bool) -> None:
        """Whether it can take messages."""
        self.perform(self.grants.set_demand(subscription, holder, wanted, self._clock.monotonic()))

    def on_released(self, subscription: int, source: int, grant: int) -> None:
        """Note that a holder released a revoked grant."""
        self.perform(self.grants.on_released(subscription, source, grant, self._clock.monotonic()))

    def on_connected(self, session: Session) -> None:
        """A forwarder has a new stream; what is asked to it goes there from now on."""
        self._sessions[session.incarnation] = session
        self.on_heartbeat(session)

    def on_heartbeat(self, session: Session) -> None:
        """Note that a holder is alive."""
        self.grants.on_heartbeat(session.incarnation, self._clock.monotonic())

    def on_disconnected(self, session: Session) -> None:
        """Its stream broke."""
        if self._sessions.get(session.incarnation) is session:
            del self._sessions[session.incarnation]
            self.grants.on_disconnected(session.incarnation, self._clock.monotonic())

    def on_ended(self, holder: int) -> None:
        """The process is gone for good."""
        self._sessions.pop(holder, None)
        self.perform(self.grants.on_ended(holder, self._clock.monotonic()))
        for subscription in self.grants.subscriptions():
            if not self.grants.attached(subscription):
                self._forget(subscription, gone=False)

    def tick(self) -> None:
        """Time passes."""
        self.perform(self.grants.tick(self._clock.monotonic()))

    def sweep(self, at_most: int = 300) -> None:
        """Sources of which everything was acknowledged are out of the way: a step, some subscriptions further."""
        if not self._to_sweep:
            self._to_sweep = self.grants.subscriptions()
        now, self._to_sweep = self._to_sweep[:at_most], self._to_sweep[at_most:]
        for subscription in now:
            if not self.forwarder.server.is_reset_persisted(subscription):
                continue
            ledger = self.forwarder.ledgers.get(subscription)
            for number, sealed in list(self.grants.open_sources(subscription).items()):
                source = self.forwarder.sources.by_number.get(number)
                if source is None:
                    self.done(subscription, number)
                    self.grants.on_source_gone(subscription, number)
                elif sealed and (ledger is None or self.is_done(subscription, source, ledger.begin_of(number))):
                    self.done(subscription, number)

    def forget_gone(self) -> None:
        """Forget the holders of sources without stored messages; such sources come and go without end."""
        stored, grants = self.forwarder.sources.by_number, self.forwarder.memory.grants
        for key in [key for key in grants if key[1] not in stored]:
            del grants[key]
        self.grants.only_sources(stored)

    # -- subscriptions ----------------------------------------------------------------------------------------------

    def register(self, subscription: int) -> None:
        """Learn of a shared subscription, once the chain holds something of its topic."""
        known = subscription in self.forwarder.ledgers and self.grants.is_shared(subscription)
        if known and subscription not in self._registered:
            self._registered.add(subscription)
            self.forwarder.server.attach(subscription, self._listener(subscription))

    def listen_again(self, subscription: int) -> None:
        """After a seek all is named anew."""
        self.forwarder.server.attach(subscription, self._listener(subscription))

    def unregister(self, subscription: int) -> None:
        """Nothing of its topic is left in the chain."""
        if subscription in self._registered:
            self._registered.discard(subscription)
            self.forwarder.server.detach(subscription)

    def on_subscription_changed(self, record: Subscription) -> None:
        """The record of a subscription has changed."""
        subscription = record.incarnation
        if not is_strict(record) and self.grants.is_strict(subscription):
            self._forget_grants(subscription)
        if self.grants.is_shared(subscription):
            became_strict = is_strict(record) and not self.grants.is_strict(subscription)
            effects = self._share(record, self._clock.monotonic())
            for held in self.grants.held(subscription) if became_strict else ():
                self._remember(held, new=False)
            self.perform(effects)

    def on_ranks_changed(self, topic: int) -> None:
        """The set of the topic's chains has. A process that delivers keys of the new epoch has to know what is left of
        the earlier ones, of sources that are granted to others, too.
        """
        for record in self.catalog.subscriptions_of(topic):
            self.on_subscription_changed(record)
            if record.ordered and not record.detached:
                for session in self.sessions(record.incarnation):
                    self._name_all(session, record)

    def on_removed(self, subscription: int) -> None:
        """The subscription was deleted or detached."""
        self._registered.discard(subscription)
        self._forget(subscription, gone=True)
        self._forget_grants(subscription)

    # -- what is known and sent --------------------------------------------------------------------------------------

    def session_of(self, subscription: int, source: int) -> Session | None:
        """The stream of who holds a source, where that is here."""
        holder = self.grants.holder(subscription, source)
        return self._sessions.get(holder) if holder is not None else None

    def sessions(self, subscription: int) -> list[Session]:
        """Return the sessions of all forwarders that serve a subscription."""
        return [self._sessions[one] for one in self.grants.attached(subscription) if one in self._sessions]

    def done(self, subscription: int, source: int) -> None:
        """Nothing of a source is left to deliver."""
        self.grants.on_source_done(subscription, source)
        self.progress.done((subscription, source))

    def is_done(self, subscription: int, source: Source, begin: int) -> bool:
        """Whether all of a sealed source is acknowledged, up to `begin`, and that is persisted."""
        fresh = self.forwarder.commit.acks.is_unpersisted(subscription, source.number)
        return begin >= source.visible == source.end and not fresh

    def perform(self, effects: Iterable[Effect], named: int | None = None) -> None:
        """Carry effects out; `named` is notified of all its sources anyway."""
        granted: dict[tuple[int, int], list[Source]] = {}
        for effect in effects:
            session = self._sessions.get(effect.holder)
            if isinstance(effect, Revoked):
                if session is not None:
                    session.send(_revoke(effect))
                continue
            self.progress.granted(effect[:2])
            self._remember(effect, new=True)
            source = self.forwarder.sources.by_number.get(effect.source)
            notified = (
                session is not None
                and effect.holder != named
                and self._shown_grant(*effect[:2], effect.holder)
                and self.forwarder.server.is_reset_persisted(effect.subscription)
            )
            if source is not None and notified:
                granted.setdefault((effect.holder, effect.subscription), []).append(source)
        for (holder, subscription), sources in granted.items():
            session = self._sessions[holder]
            session.send(self._sources(subscription, sources, holder))

    def send_sources(self, subscription: int, sources: Sequence[Source]) -> None:
        """Something has changed about these: their holders are notified."""
        if not self.forwarder.server.is_reset_persisted(subscription):
            return
        for source in sources:
            session = self.session_of(subscription, source.number)
            if session is not None:
                session.send(self._sources(subscription, [source], session.incarnation))

    def owned_age_ms(self) -> int:
        """How long ago the disks of the chain were known to obey this owner. A later one waits for GRANT_S from its
        beginning before it grants anew what was granted of strict subscriptions.
        """
        return max(0, min(AGE_MS_MAX, math.ceil(1000 * (self._clock.monotonic() - self._obeyed_at()))))

    def _share(self, record: Subscription, now: float) -> list[Effect]:
        return self.grants.share(
            record.incarnation,
            ordered=record.ordered,
            exactly_once=record.exactly_once,
            rank=self._rank(record.topic_incarnation),
            now=now,
        )

    def _forget(self, subscription: int, *, gone: bool) -> None:
        """Nobody serves it any more; see `Grants.drop`."""
        self.unregister(subscription)
        self.grants.drop(subscription, gone=gone)
        self.progress.forget(subscription)

    def _forget_grants(self, subscription: int) -> None:
        grants = self.forwarder.memory.grants
        for key in [key for key in grants if key[0] == subscription]:
            del grants[key]

    def _remember(self, effect: Granted, *, new: bool) -> None:
        """A strict grant is in the log before any acknowledgement under it, so that a later owner waits for its end.
        Who is given a new one learns of it once it is persisted: a later owner that did not find it would let what is
        under way under the grant before it count, although the message was delivered again since.
        """
        record = self.catalog.subscription_by_incarnation(effect.subscription)
        if record is None or not is_strict(record):
            return
        if new:
            self._unpersisted[effect[:2]] = effect.grant
        if self.forwarder.commit.failed is None:
            fact = records.GrantFact(effect.subscription, effect.source, effect.grant, effect.holder)
            self.forwarder.memory.grants[effect.subscription, effect.source] = fact
            done = partial(self._on_persisted, effect) if new else None
            self.forwarder.commit.append_fact(EntryKind.LEDGER, records.encode_grant(fact), done)

    def _on_persisted(self, effect: Granted, error: Exception | None) -> None:
        if error is None and self._unpersisted.get(effect[:2]) == effect.grant:
            del self._unpersisted[effect[:2]]
            source = self.forwarder.sources.by_number.get(effect.source)
            if source is not None and self._shown_grant(*effect[:2], effect.holder) == effect.grant:
                self.send_sources(effect.subscription, [source])

    def _shown_grant(self, subscription: int, source: int, holder: int) -> int:
        """The grant of a source as this forwarder is to see it now: 0 when it has none, or that is not persisted."""
        grant = self.grants.grant_of(subscription, source, holder)
        return 0 if self._unpersisted.get((subscription, source)) == grant else grant

    def _name_all(self, session: Session, record: Subscription) -> None:
        subscription = record.incarnation
        if not self.forwarder.server.is_reset_persisted(subscription):
            return  # it learns of the seek once that is persisted, and asks again
        alive = self.grants.open_sources(subscription)
        found = [one for one in self.forwarder.sources.of_topic(record.topic_incarnation) if one.number in alive]
        epoch = self._epoch(record.topic_incarnation)
        session.send(self._sources(subscription, found, session.incarnation, all_below=epoch))
        for source in found:
            # Earlier messages may have been lost with a stream: let it ask.
            if self._shown_grant(subscription, source.number, session.incarnation):
                self.progress.notified((subscription, source.number))
                session.send(data_message(subscription, source.number))

    def _sources(
        self, subscription: int, sources: Sequence[Source], holder: int, *, all_below: int | None = None
    ) -> bytes:
        """`all_below`: these are all there are, and all there will be of lower epochs."""
        ledger = self.forwarder.ledgers.get(subscription)
        message = internal.Sources(
            subscription=subscription,
            generation=ledger.generation if ledger else 0,
            chain=self.chain,
            all=all_below is not None,
            epoch=all_below,
            age_ms=self.owned_age_ms(),
        )
        if ledger is None:
            record = self.catalog.subscription_by_incarnation(subscription)
            message.generation = record.generation if record is not None else 0
        for source in sources:
            begin = ledger.begin_of(source.number) if ledger is not None else 0
            fresh = self.forwarder.commit.acks.unpersisted(subscription, source.number)
            message.sources.add(
                number=source.number,
                begin=begin if fresh is None else min([begin, *(place_in(first)[1] for first, _ in fresh.runs())]),
                sealed=is_whole(source),
                epoch=source.epoch,
                chain=self.chain,
                grant=self._shown_grant(subscription, source.number, holder),
                done=source.sealed and self.is_done(subscription, source, begin),
            )
        encoded: bytes = internal.FromChains(sources=message).SerializeToString()
        return encoded


def is_strict(record: Subscription) -> bool:
    """Whether no message of it may be with two holders."""
    return record.exactly_once or record.ordered


def is_whole(source: Source) -> bool:
    """Whether a source is sealed and all of it can be read: who reads to the end of such a one is through with it."""
    return source.sealed and source.visible == source.end


def _revoke(effect: Revoked) -> bytes:
    encoded: bytes = internal.FromChains(
        revoke=internal.Revoke(subscription=effect.subscription, source=effect.source, grant=effect.grant)
    ).SerializeToString()
    return encoded
