"""Dispatch: messages and acknowledgements of one chain, between its forwarder and the subscribe forwarders.

Place: `service` brings what came over the streams; the forwarder is listened to once per subscription, whoever serves
it. Who may have what is `holders`' matter.
Promise: messages are handed out only under a current grant; an exactly-once acknowledgement counts only under one,
and the grant was in the log before it. A holder whose last fetch came back empty is notified of the next
message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from syncpoint.base.model.delivery import Batch, SourceView
from syncpoint.base.model.errors import FailedPrecondition, SyncpointError, Unavailable
from syncpoint.base.model.lanes import in_lane, lane_of, place_in
from syncpoint.base.model.times import GRANT_S
from syncpoint.broker.publish.grants.grants import Grants
from syncpoint.broker.publish.grants.holders import SourceHolders, is_whole
from syncpoint.broker.publish.grants.sessions import Session
from syncpoint.broker.publish.intake.envelope import acknowledged_message, data_message, fetched_message
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.wire.protobuf.messages import internal

FETCH_BYTES_MAX = 8 << 20  # of one answer, whatever is asked for


class SourceDispatcher:
    """Serve a chain's sources to subscribe forwarders. `rank`, `epoch` and `obeyed_at` as for `SourceHolders`."""

    def __init__(
        self,
        chain: int,
        forwarder: PublishForwarder,
        grants: Grants,
        rank: Callable[[int], int],
        epoch: Callable[[int], int],
        obeyed_at: Callable[[], float],
    ) -> None:
        listener = partial(_ForwarderListener, self)
        self.holders = SourceHolders(chain, forwarder, grants, rank, epoch, obeyed_at, listener)
        self.chain, self.forwarder, self.grants = chain, forwarder, grants
        self.progress = self.holders.progress
        self.refused_acks = 0

    # -- from the forwarder -------------------------------------------------------------------------------------------

    def on_sources(self, subscription: int, views: Sequence[SourceView]) -> None:
        """The forwarder names sources: new ones, sealed ones, or all."""
        known = self.grants.open_sources(subscription)
        before = dict(known)
        alive = []
        for view in views:
            source = self.forwarder.sources.by_number[view.source]
            if view.sealed and self.holders.is_done(subscription, source, view.begin):
                if view.source in known:
                    self.holders.send_sources(subscription, [source])
                self.holders.done(subscription, view.source)
            else:
                alive.append((view.source, view.sealed))
        effects = self.grants.sources(subscription, alive, self.forwarder.clock.monotonic())
        self.holders.perform(effects)
        notified = {effect.source for effect in effects}
        sealed_now = [
            self.forwarder.sources.by_number[source]
            for source, sealed in alive
            if sealed and before.get(source) is False and source not in notified
        ]
        self.holders.send_sources(subscription, sealed_now)

    def on_data(self, subscription: int, source: int) -> None:
        """Messages of a source were persisted."""
        found = self.forwarder.sources.by_number.get(source)
        if found is not None and is_whole(found):
            self.holders.send_sources(subscription, [found])  # until now it might have ended before these
        key = (subscription, source)
        if not self.progress.is_waiting(key):
            self.progress.data_came(key)
            return
        session = self.holders.session_of(subscription, source)
        if session is not None:  # otherwise the wish stays: there is nobody to notify yet
            self.progress.notified(key)
            session.send(data_message(subscription, source))

    def on_reset(self, subscription: int) -> None:
        """The subscription was reset by a seek: what was done may be there again."""
        self.progress.forget_fetches(subscription)
        message = internal.FromChains(
            reset=internal.Reset(
                subscription=subscription, generation=self.forwarder.server.generation(subscription), chain=self.chain
            )
        ).SerializeToString()
        for session in self.holders.sessions(subscription):
            session.send(message)
        self.holders.listen_again(subscription)

    def on_removed(self, subscription: int) -> None:
        """The subscription was deleted or detached."""
        message = internal.FromChains(
            removed=internal.Removed(subscription=subscription, chain=self.chain)
        ).SerializeToString()
        for session in self.holders.sessions(subscription):
            session.send(message)
        self.holders.on_removed(subscription)

    # -- messages and acknowledgements -------------------------------------------------------------------------------

    def fetch(self, session: Session, request: internal.Fetch) -> None:
        """Hand out messages of a granted source. `request`: internal.Fetch."""
        number, subscription, source = request.id, request.subscription, request.source
        key = (subscription, source)
        if self.forwarder.server.generation(subscription) != request.generation:
            _refuse_fetch(
                session, number, FailedPrecondition("The subscription was reset by a seek while this call ran.")
            )
            return
        if self.grants.grant_of(subscription, source, session.incarnation) != (request.grant or -1):
            _refuse_fetch(session, number, FailedPrecondition("The source is not granted to this forwarder."))
            return
        if self.grants.is_strict(subscription) and self.holders.owned_age_ms() >= 1000 * GRANT_S:
            _refuse_fetch(session, number, Unavailable("Whether this chain has another owner by now is not known."))
            return
        news = self.progress.news(key)

        def reply(batches: Sequence[Batch] | Exception) -> None:
            if isinstance(batches, Exception):
                _refuse_fetch(session, number, _as_refusal(batches))
            elif self._rests_on_fresh_acks(request, batches):
                # A holder that is notified now that others have acknowledged something reads on after it, and would
                # not look back where that is lost with this log.
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
            # A holder that asks from there on has had what lies before it, of an earlier owner of the chain perhaps.
            end = batches[-1].end if batches else request.begin
            self.progress.hand_out(key, place_in(end)[1])
            if batches:
                return
            if self.progress.news(key) != news:
                session.send(data_message(subscription, source))
            else:
                self.progress.wait(key)

        self.forwarder.server.fetch(subscription, source, request.begin, min(request.max_bytes, FETCH_BYTES_MAX), reply)

    def _rests_on_fresh_acks(self, request: internal.Fetch, batches: Sequence[Batch]) -> bool:
        """Whether an answer leaves something out because of acknowledgements that are not persisted."""
        fresh = self.forwarder.commit.acks.unpersisted(request.subscription, request.source)
        if fresh is None or not self.forwarder.server.is_reset_persisted(request.subscription):
            return False
        source = self.forwarder.sources.by_number.get(request.source)
        last = 0 if source is None else in_lane(lane_of(request.begin), source.end)
        end = batches[-1].end if batches else last
        return end > request.begin and fresh.count(request.begin, end) > 0

    def acknowledge(self, session: Session, request: internal.Acknowledge) -> None:
        """Record acknowledged offsets. `request`: internal.Acknowledge."""
        number, subscription, source, grant = request.id, request.subscription, request.source, request.grant
        record = self.forwarder.catalog.subscription_by_incarnation(subscription)
        # Also where nothing is left of the source: its last holder acknowledged it, and nobody else did.
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


class _ForwarderListener:
    """What the forwarder reports about one subscription."""

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


def _as_refusal(error: Exception) -> SyncpointError:
    """What another process may be sent."""
    return error if isinstance(error, SyncpointError) else Unavailable(str(error))


def _refuse_fetch(session: Session, number: int, error: SyncpointError) -> None:
    answer = internal.Fetched(id=number, error=error.message, code=error.code)
    session.send(internal.FromChains(fetched=answer).SerializeToString())


def _refuse_acknowledge(session: Session, number: int, error: SyncpointError) -> None:
    answer = internal.Acknowledged(id=number, error=error.message, code=error.code)
    session.send(internal.FromChains(acknowledged=answer).SerializeToString())
