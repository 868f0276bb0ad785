"""The hub of one chain: between its forwarder and the subscribe forwarders that serve subscriptions from it.

Place: `service` brings what came over the streams; `grants` decides; the forwarder is heard once per subscription,
whoever serves it. What leaves is written to the holder's session.
Promise: messages are handed out only under a current grant; an exactly-once acknowledgement counts only under one,
and the grant was in the log before it. A holder that was told of nothing more to come hears of the next message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from syncpoint.metadata.reader_holds import hold_of
from syncpoint.metadata.records import Subscription
from syncpoint.model.delivery import Batch, SourceView
from syncpoint.model.errors import FailedPrecondition, SyncpointError, Unavailable
from syncpoint.model.times import GRANT_S
from syncpoint.publish import records
from syncpoint.publish.envelope import acknowledged_message, data_message, fetched_message
from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.publish.grants import Effect, Granted, Grants, Revoked
from syncpoint.publish.sessions import Session
from syncpoint.publish.source import Source
from syncpoint.storage.record import EntryKind
from syncpoint.wire.messages import internal

FETCH_BYTES_MAX = 8 << 20  # of one answer, whatever is asked for
AGE_MS_MAX = 1 << 31


class SourceDispatcher:
    """See the module. `rank(topic)`: the chain's place among those of the topic; `epoch(topic)`: no source of a lower
    epoch is open in the chain, or will be opened; `obeyed_at()`: as of when it is known that no later owner had begun.
    """

    def __init__(
        self,
        chain: int,
        forwarder: PublishForwarder,
        grants: Grants,
        rank: Callable[[int], int],
        epoch: Callable[[int], int],
        obeyed_at: Callable[[], float],
    ) -> None:
        self.chain, self.forwarder, self.grants = chain, forwarder, grants
        self.catalog = forwarder.catalog
        self._rank, self._epoch, self._obeyed_at = rank, epoch, obeyed_at
        self._sessions: dict[int, Session] = {}
        self._registered: set[int] = set()  # subscriptions the forwarder tells us about
        self._waiting_fetches: set[tuple[int, int]] = set()  # (subscription, source): its holder waits for Data
        self._data_since_fetch: dict[
            tuple[int, int], int
        ] = {}  # how often something came that its holder was not told of
        self._handed_out: dict[tuple[int, int], int] = {}  # (subscription, source): handed out up to there
        self._to_sweep: list[int] = []
        self.refused_acks = 0

    # -- sessions ----------------------------------------------------------------------------------------------------

    def attach(self, session: Session, subscription: int, wanted: bool, claims: Mapping[int, int]) -> bool:
        """Serve a subscription; False when the catalog here does not know it (yet), or one reader has it alone."""
        record = self.catalog.subscription_by_incarnation(subscription)
        if record is None or record.detached:
            return False
        now = self._now()
        known = session.incarnation in self.grants.attached(subscription)
        if not known and hold_of(self.catalog, subscription, self.forwarder.clock.time_ns()) is not None:
            return False
        self._sessions[session.incarnation] = session
        effects = self._share(record, now)
        self.register(subscription)
        effects += self.grants.attach(subscription, session.incarnation, wanted, claims, now)
        self._perform(effects, named=session.incarnation)
        self._name_all(session, record)
        return True

    def detach(self, holder: int, subscription: int) -> None:
        """It serves the subscription no more."""
        self._perform(self.grants.detach(subscription, holder, self._now()))
        if not self.grants.attached(subscription):
            self._forget(subscription)

    def set_demand(self, holder: int, subscription: int, wanted: bool) -> None:
        """Whether it can take messages."""
        self._perform(self.grants.set_demand(subscription, holder, wanted, self._now()))

    def on_released(self, subscription: int, source: int, grant: int) -> None:
        """It let go of what was revoked."""
        self._perform(self.grants.on_released(subscription, source, grant, self._now()))

    def on_connected(self, session: Session) -> None:
        """A forwarder has a new stream; what is told to it goes there from now on."""
        self._sessions[session.incarnation] = session
        self.on_heartbeat(session)

    def on_heartbeat(self, session: Session) -> None:
        """It lives."""
        self.grants.on_heartbeat(session.incarnation, self._now())

    def on_disconnected(self, session: Session) -> None:
        """Its stream broke."""
        if self._sessions.get(session.incarnation) is session:
            del self._sessions[session.incarnation]
            self.grants.on_disconnected(session.incarnation, self._now())

    def on_ended(self, holder: int) -> None:
        """The process is gone for good."""
        self._sessions.pop(holder, None)
        self._perform(self.grants.on_ended(holder, self._now()))
        for subscription in self.grants.subscriptions():
            if not self.grants.attached(subscription):
                self._forget(subscription)

    def tick(self) -> None:
        """Time passes."""
        self._perform(self.grants.tick(self._now()))

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
                    self._done(subscription, number)
                    self.grants.on_source_gone(subscription, number)
                elif sealed and (ledger is None or self._is_done(subscription, source, ledger.first_gap(number, 0))):
                    self._done(subscription, number)

    def forget_gone(self) -> None:
        """Of sources of which nothing is stored nobody has to know who held them: they come and go without end."""
        stored, grants = self.forwarder.sources.by_number, self.forwarder.memory.grants
        for key in [key for key in grants if key[1] not in stored]:
            del grants[key]
        self.grants.only_sources(stored)

    # -- what the forwarder says -------------------------------------------------------------------------------------

    def register(self, subscription: int) -> None:
        """Hear of a shared subscription, once the chain holds something of its topic."""
        known = subscription in self.forwarder.ledgers and self.grants.is_shared(subscription)
        if known and subscription not in self._registered:
            self._registered.add(subscription)
            self.forwarder.server.attach(subscription, _ForwarderListener(self, subscription))

    def unregister(self, subscription: int) -> None:
        """Nothing of its topic is left in the chain."""
        if subscription in self._registered:
            self._registered.discard(subscription)
            self.forwarder.server.detach(subscription)

    def on_subscription_changed(self, record: Subscription) -> None:
        """The record of a subscription has changed."""
        subscription = record.incarnation
        if not _is_strict(record) and self.grants.is_strict(subscription):
            self._forget_grants(subscription)
        if self.grants.is_shared(subscription):
            became_strict = _is_strict(record) and not self.grants.is_strict(subscription)
            effects = self._share(record, self._now())
            for held in self.grants.held(subscription) if became_strict else ():
                self._remember(held)
            self._perform(effects)

    def on_ranks_changed(self, topic: int) -> None:
        """The set of the topic's chains has. Whoever delivers keys of the new epoch has to know what is left of the
        earlier ones, of sources that are granted to others, too.
        """
        for record in self.catalog.subscriptions_of(topic):
            self.on_subscription_changed(record)
            if record.ordered and not record.detached:
                for session in self._attached(record.incarnation):
                    self._name_all(session, record)

    def on_sources(self, subscription: int, views: Sequence[SourceView]) -> None:
        """The forwarder names sources: new ones, sealed ones, or all."""
        known = self.grants.open_sources(subscription)
        before = dict(known)
        alive = []
        for view in views:
            source = self.forwarder.sources.by_number[view.source]
            if view.sealed and self._is_done(subscription, source, view.begin):
                if view.source in known:
                    self._send_sources(subscription, [source])
                self._done(subscription, view.source)
            else:
                alive.append((view.source, view.sealed))
        effects = self.grants.sources(subscription, alive, self._now())
        self._perform(effects)
        told = {effect.source for effect in effects}
        sealed_now = [
            self.forwarder.sources.by_number[source]
            for source, sealed in alive
            if sealed and before.get(source) is False and source not in told
        ]
        self._send_sources(subscription, sealed_now)

    def on_data(self, subscription: int, source: int) -> None:
        """Messages of a source were persisted."""
        found = self.forwarder.sources.by_number.get(source)
        if found is not None and _is_whole(found):
            self._send_sources(subscription, [found])  # until now it might have ended before these
        key = (subscription, source)
        if key not in self._waiting_fetches:
            self._data_since_fetch[key] = (
                self._data_since_fetch.get(key, 0) + 1
            )  # whoever is being answered just now may have to look again
            return
        holder = self.grants.holder(subscription, source)
        session = self._sessions.get(holder) if holder is not None else None
        if session is not None:  # otherwise the wish stays: there is nobody to tell yet
            self._waiting_fetches.discard(key)
            session.send(data_message(subscription, source))

    def on_reset(self, subscription: int) -> None:
        """The subscription was sought: what was done may be there again."""
        self._forget_waiting(subscription)
        message = internal.FromChains(
            reset=internal.Reset(
                subscription=subscription, generation=self.forwarder.server.generation(subscription), chain=self.chain
            )
        ).SerializeToString()
        for session in self._attached(subscription):
            session.send(message)
        self.forwarder.server.attach(subscription, _ForwarderListener(self, subscription))

    def on_removed(self, subscription: int) -> None:
        """The subscription was deleted or detached."""
        message = internal.FromChains(
            removed=internal.Removed(subscription=subscription, chain=self.chain)
        ).SerializeToString()
        for session in self._attached(subscription):
            session.send(message)
        self._registered.discard(subscription)
        self._forget(subscription)
        self._forget_grants(subscription)

    # -- messages and acknowledgements -------------------------------------------------------------------------------

    def fetch(self, session: Session, request: internal.Fetch) -> None:
        """Hand out messages of a granted source. `request`: internal.Fetch."""
        number, subscription, source = request.id, request.subscription, request.source
        key = (subscription, source)
        if self.forwarder.server.generation(subscription) != request.generation:
            _refuse_fetch(session, number, FailedPrecondition("The subscription was sought meanwhile."))
            return
        if self.grants.grant_of(subscription, source, session.incarnation) != (request.grant or -1):
            _refuse_fetch(session, number, FailedPrecondition("The source is not granted to this forwarder."))
            return
        if self.grants.is_strict(subscription) and self.owned_age_ms() >= 1000 * GRANT_S:
            _refuse_fetch(session, number, Unavailable("Whether this chain has another owner by now is not known."))
            return
        news = self._data_since_fetch.get(key)

        def reply(batches: Sequence[Batch] | Exception) -> None:
            if isinstance(batches, Exception):
                _refuse_fetch(session, number, _as_refusal(batches))
            elif self._rests_on_fresh_acks(request, batches):
                # Who is told now that others have acknowledged something reads on behind it, and would not look back
                # where that is lost with this log.
                self.forwarder.commit.when_acks_persisted(partial(answer, batches))
            else:
                answer(batches, None)

        def answer(batches: Sequence[Batch], error: Exception | None) -> None:
            if error is not None:
                _refuse_fetch(session, number, _as_refusal(error))
                return
            if self.grants.grant_of(subscription, source, session.incarnation) != (request.grant or -1):
                _refuse_fetch(session, number, FailedPrecondition("The source is granted to this forwarder no more."))
                return
            session.send(fetched_message(number, batches))
            # Whoever asks from there on has had what lies before it, of an earlier owner of the chain perhaps.
            end = batches[-1].end if batches else request.begin
            self._handed_out[key] = max(end, self._handed_out.get(key, 0))
            if batches:
                return
            if self._data_since_fetch.get(key) != news:
                session.send(data_message(subscription, source))
            else:
                self._data_since_fetch.pop(key, None)
                self._waiting_fetches.add(key)

        self.forwarder.server.fetch(subscription, source, request.begin, min(request.max_bytes, FETCH_BYTES_MAX), reply)

    def _rests_on_fresh_acks(self, request: internal.Fetch, batches: Sequence[Batch]) -> bool:
        """Whether an answer leaves something out because of acknowledgements that are not persisted."""
        fresh = self.forwarder.commit.acks.unpersisted(request.subscription, request.source)
        if fresh is None or not self.forwarder.server.is_reset_persisted(request.subscription):
            return False
        source = self.forwarder.sources.by_number.get(request.source)
        end = batches[-1].end if batches else 0 if source is None else source.end
        return end > request.begin and fresh.count(request.begin, end) > 0

    def acknowledge(self, session: Session, request: internal.Acknowledge) -> None:
        """Record acknowledged offsets. `request`: internal.Acknowledge."""
        number, subscription, source, grant = request.id, request.subscription, request.source, request.grant
        record = self.catalog.subscription_by_incarnation(subscription)
        # Also where nothing is left of the source: whoever had it last acknowledged it, and nobody else did.
        if record is not None and record.exactly_once and not self.grants.may_acknowledge(subscription, source, grant):
            self.refused_acks += 1
            _refuse_acknowledge(session, number, FailedPrecondition("The source is granted to somebody else."))
            return

        def done(error: Exception | None) -> None:
            if error is None:
                session.send(acknowledged_message(number))
            else:
                _refuse_acknowledge(session, number, _as_refusal(error))

        self.forwarder.server.acknowledge(
            subscription, request.generation, source, request.runs, done, urgent=request.urgent
        )

    def owned_age_ms(self) -> int:
        """How long ago the disks of the chain were known to obey this owner. A later one waits for GRANT_S from its
        beginning before it grants anew what was granted of strict subscriptions.
        """
        return max(0, min(AGE_MS_MAX, math.ceil(1000 * (self._now() - self._obeyed_at()))))

    def handed_out(self, subscription: int, source: int) -> int:
        """The offset up to which messages have left for a holder; 0 also when that is not known any more."""
        return self._handed_out.get((subscription, source), 0)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self.forwarder.clock.monotonic()

    def _attached(self, subscription: int) -> list[Session]:
        return [self._sessions[one] for one in self.grants.attached(subscription) if one in self._sessions]

    def _share(self, record: Subscription, now: float) -> list[Effect]:
        return self.grants.share(
            record.incarnation,
            ordered=record.ordered,
            exactly_once=record.exactly_once,
            rank=self._rank(record.topic_incarnation),
            now=now,
        )

    def _forget(self, subscription: int) -> None:
        """Nobody serves it any more."""
        self.unregister(subscription)
        self.grants.drop(subscription)
        self._forget_waiting(subscription)
        for key in [key for key in self._handed_out if key[0] == subscription]:
            del self._handed_out[key]

    def _forget_grants(self, subscription: int) -> None:
        grants = self.forwarder.memory.grants
        for key in [key for key in grants if key[0] == subscription]:
            del grants[key]

    def _forget_waiting(self, subscription: int) -> None:
        for key in [key for key in (*self._waiting_fetches, *self._data_since_fetch) if key[0] == subscription]:
            self._waiting_fetches.discard(key)
            self._data_since_fetch.pop(key, None)

    def _done(self, subscription: int, source: int) -> None:
        self.grants.on_source_done(subscription, source)
        self._waiting_fetches.discard((subscription, source))
        self._data_since_fetch.pop((subscription, source), None)
        self._handed_out.pop((subscription, source), None)

    def _perform(self, effects: Iterable[Effect], named: int | None = None) -> None:
        """Carry effects out; `named` is told of all its sources anyway."""
        granted: dict[tuple[int, int], list[Source]] = {}
        for effect in effects:
            session = self._sessions.get(effect.holder)
            if isinstance(effect, Revoked):
                if session is not None:
                    session.send(_revoke(effect))
                continue
            self._waiting_fetches.discard(effect[:2])
            self._data_since_fetch.pop(effect[:2], None)
            self._remember(effect)
            source = self.forwarder.sources.by_number.get(effect.source)
            told = (
                session is not None
                and effect.holder != named
                and self.forwarder.server.is_reset_persisted(effect.subscription)
            )
            if source is not None and told:
                granted.setdefault((effect.holder, effect.subscription), []).append(source)
        for (holder, subscription), sources in granted.items():
            session = self._sessions[holder]
            session.send(self._sources(subscription, sources, holder))

    def _remember(self, effect: Granted) -> None:
        """A strict grant is in the log before any acknowledgement under it, so that a later owner waits for its end."""
        record = self.catalog.subscription_by_incarnation(effect.subscription)
        if record is not None and _is_strict(record) and self.forwarder.commit.failed is None:
            fact = records.GrantFact(effect.subscription, effect.source, effect.grant, effect.holder)
            self.forwarder.memory.grants[effect.subscription, effect.source] = fact
            self.forwarder.commit.append_fact(EntryKind.LEDGER, records.encode_grant(fact))

    def _name_all(self, session: Session, record: Subscription) -> None:
        subscription = record.incarnation
        if not self.forwarder.server.is_reset_persisted(subscription):
            return  # it hears of the seek once that is persisted, and asks again
        alive = self.grants.open_sources(subscription)
        found = [one for one in self.forwarder.sources.of_topic(record.topic_incarnation) if one.number in alive]
        epoch = self._epoch(record.topic_incarnation)
        session.send(self._sources(subscription, found, session.incarnation, all_below=epoch))
        for source in found:
            # Whatever was said before may have been lost with a stream: let it ask.
            if self.grants.grant_of(subscription, source.number, session.incarnation):
                self._waiting_fetches.discard((subscription, source.number))
                session.send(data_message(subscription, source.number))

    def _is_done(self, subscription: int, source: Source, begin: int) -> bool:
        """Whether all of a sealed source is acknowledged, up to `begin`, and that is persisted."""
        fresh = self.forwarder.commit.acks.is_unpersisted(subscription, source.number)
        return begin >= source.visible == source.end and not fresh

    def _send_sources(self, subscription: int, sources: Sequence[Source]) -> None:
        """Something has changed about these: their holders are told."""
        if not self.forwarder.server.is_reset_persisted(subscription):
            return
        for source in sources:
            holder = self.grants.holder(subscription, source.number)
            session = self._sessions.get(holder) if holder is not None else None
            if session is not None:
                session.send(self._sources(subscription, [source], session.incarnation))

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
            begin = ledger.first_gap(source.number, 0) if ledger is not None else 0
            fresh = self.forwarder.commit.acks.unpersisted(subscription, source.number)
            message.sources.add(
                number=source.number,
                begin=begin if fresh is None else min([begin, *(first for first, _ in fresh.runs())]),
                sealed=_is_whole(source),
                epoch=source.epoch,
                chain=self.chain,
                grant=self.grants.grant_of(subscription, source.number, holder),
                done=source.sealed and self._is_done(subscription, source, begin),
            )
        encoded: bytes = internal.FromChains(sources=message).SerializeToString()
        return encoded


class _ForwarderListener:
    """What the forwarder tells about one subscription."""

    def __init__(self, dispatcher: SourceDispatcher, subscription: int) -> None:
        self._dispatcher, self._subscription = dispatcher, subscription

    def on_sources(self, views: Sequence[SourceView], complete: bool) -> None:
        self._dispatcher.on_sources(self._subscription, views)

    def on_data(self, source: int) -> None:
        self._dispatcher.on_data(self._subscription, source)

    def on_revoked(self, source: int) -> None:
        """The forwarder itself revokes nothing."""

    def on_reset(self) -> None:
        self._dispatcher.on_reset(self._subscription)

    def on_removed(self) -> None:
        self._dispatcher.on_removed(self._subscription)


def _is_strict(record: Subscription) -> bool:
    """Whether no message of it may be with two holders."""
    return record.exactly_once or record.ordered


def _is_whole(source: Source) -> bool:
    """Whether a source is sealed and all of it can be read: who reads to the end of such a one is through with it."""
    return source.sealed and source.visible == source.end


def _revoke(effect: Revoked) -> bytes:
    encoded: bytes = internal.FromChains(
        revoke=internal.Revoke(subscription=effect.subscription, source=effect.source, grant=effect.grant)
    ).SerializeToString()
    return encoded


def _as_refusal(error: Exception) -> SyncpointError:
    """What another process may be told."""
    return error if isinstance(error, SyncpointError) else Unavailable(str(error))


def _refuse_fetch(session: Session, number: int, error: SyncpointError) -> None:
    answer = internal.Fetched(id=number, error=error.message, code=error.code)
    session.send(internal.FromChains(fetched=answer).SerializeToString())


def _refuse_acknowledge(session: Session, number: int, error: SyncpointError) -> None:
    answer = internal.Acknowledged(id=number, error=error.message, code=error.code)
    session.send(internal.FromChains(acknowledged=answer).SerializeToString())
