"""Serves the sources of one log to subscribe forwarders: `model.delivery.PublishSide`.

Place: subscribe forwarders of the same process, and `dispatch` for those of other processes, attach a listener per
subscription, fetch messages and acknowledge them. What is written goes through `commit`.
Promise: a listener is notified of messages only when they are persisted, unless its subscription asked for early
delivery. Nothing is served from a seek before that is persisted. An acknowledgement is confirmed when it is persisted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from syncpoint.base.kernel.acks import decode_runs
from syncpoint.base.model.delivery import (
    AttemptRun,
    Done,
    Fetched,
    Listener,
    Reply,
    SourceView,
    UpToEnd,
    expired_of,
    freshness_of,
)
from syncpoint.base.model.errors import FailedPrecondition, NotFound, SyncpointError, Unavailable
from syncpoint.base.model.lanes import LANE_SIZE, in_lane, lane_of
from syncpoint.broker.publish.commit.append import FunctionCaller, PublishCaller, outcome_unknown
from syncpoint.broker.publish.commit.commit import GroupCommit
from syncpoint.broker.publish.facts.attempts import DeliveryAttempts
from syncpoint.broker.publish.facts.ledger import Ledger
from syncpoint.broker.publish.facts.ledgers import AckVerdict, Ledgers
from syncpoint.broker.publish.facts.source import Source, SourceTable
from syncpoint.broker.publish.facts.time_to_live import ExpiryIndex
from syncpoint.broker.publish.intake.deliverable import deliverable, expired_at
from syncpoint.broker.recording.record_kinds import EXPIRED
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.entity_options import was_drained
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.log.storage.errors import StorageDamaged
from syncpoint.log.storage.store import StoredBatch

log = logging.getLogger(__name__)


class _PlacesAsked(NamedTuple):
    """What a listener asks for: places `[begin, end)` of a source, of which those from `visible` on are not persisted;
    `base` is where its lane begins, and `passed` what could not be read of it.
    """

    ledger: Ledger
    generation: int
    source: int
    begin: int
    end: int
    visible: int
    base: int
    max_bytes: int
    early: bool
    passed: tuple[tuple[int, int], ...]
    reply: Reply


class SourceServer:
    """Serve the sources of one log to subscribe forwarders.

    `publish_request` takes a message that the service itself sends.
    """

    def __init__(
        self,
        commit: GroupCommit,
        catalog: Catalog,
        sources: SourceTable,
        ledgers: Ledgers,
        attempts: DeliveryAttempts,
        expiry: ExpiryIndex,
        publish_request: Callable[[PublishCaller, bytes], None],
    ) -> None:
        self.commit, self.catalog, self.sources, self.ledgers = commit, catalog, sources, ledgers
        self.attempts, self.expiry, self._publish_request = attempts, expiry, publish_request
        self.early: set[int] = set()  # attached subscriptions that take messages before they are persisted
        self._listeners: dict[int, Listener] = {}  # by subscription
        self._audience: dict[int, list[int]] = {}  # topic -> subscriptions with a listener
        self._resets: dict[int, Ledger] = {}  # moved to this state, which is not persisted: nobody is served yet
        self._lanes: dict[int, int] = {}  # changes of a subscription's lanes that are not persisted
        commit.on_visible = self._notify

    # -- listeners ---------------------------------------------------------------------------------------------------

    def attach(self, subscription: int, listener: Listener) -> None:
        record = self.catalog.subscription_by_incarnation(subscription)
        ledger = self.ledgers.get(subscription)
        if record is None or ledger is None:
            raise NotFound(str(subscription))
        self._listeners[subscription] = listener
        audience = self._audience.setdefault(record.topic_incarnation, [])
        if subscription not in audience:
            audience.append(subscription)
        self.set_early_delivery(record)
        self._name(subscription, self.sources.of_topic(record.topic_incarnation))

    def detach(self, subscription: int) -> None:
        if self._listeners.pop(subscription, None) is None:
            return
        self._end_early(subscription)
        for topic, audience in list(self._audience.items()):
            if subscription in audience:
                audience.remove(subscription)
                if not audience:
                    del self._audience[topic]

    def name_source(self, source: Source) -> None:
        """Notify the listeners of its topic that a source was opened, or sealed."""
        for subscription in tuple(self._audience.get(source.topic, ())):
            self._name(subscription, (source,))

    def _name(self, subscription: int, sources: Sequence[Source]) -> None:
        """Name sources to a listener. All there are, are here: nobody else grants any."""
        if not self.is_reset_persisted(subscription):
            return  # they are named when the listener is notified of the seek
        ledger = self.ledgers[subscription]
        views = [SourceView(one.number, ledger.begin_of(one.number), one.sealed, one.epoch) for one in sources]
        self._listeners[subscription].on_sources(views, complete=True)

    def _notify(self, source: Source) -> None:
        for subscription in self._audience.get(source.topic, ()):
            self._listeners[subscription].on_data(source.number)

    def set_demand(self, subscription: int, wanted: bool) -> None:
        """Do nothing: no other forwarder could receive the messages."""

    def check_grants(self, subscription: int) -> None:
        """Do nothing: no other process could own the log."""

    def on_removed(self, subscription: int) -> None:
        """The subscription was deleted or detached."""
        listener = self._listeners.get(subscription)
        self.detach(subscription)
        if listener is not None:
            try:
                listener.on_removed()
            except Exception:
                log.exception("the listener of a subscription fails on its removal")

    # -- early delivery ----------------------------------------------------------------------------------------------

    def set_early_delivery(self, record: Subscription) -> None:
        """Let an attached subscription have messages before they are persisted, or no longer. What it may have had by
        now can be asked for again, so it goes on having them until that is persisted.
        """
        subscription = record.incarnation
        if record.early_delivery and subscription in self._listeners:
            self.early.add(subscription)
            self.commit.on_appended = self._notify_early
        elif subscription in self.early and self.commit.failed is None:
            self.commit.when_appended_persisted(lambda error: self._on_early_persisted(subscription, error))

    def _on_early_persisted(self, subscription: int, error: Exception | None) -> None:
        record = self.catalog.subscription_by_incarnation(subscription)
        if error is None and (record is None or not record.early_delivery):
            self._end_early(subscription)

    def _end_early(self, subscription: int) -> None:
        self.early.discard(subscription)
        if not self.early:
            self.commit.on_appended = None

    def _notify_early(self, source: Source) -> None:
        for subscription in self._audience.get(source.topic, ()):
            if subscription in self.early:
                self._listeners[subscription].on_data(source.number)

    # -- seeks -------------------------------------------------------------------------------------------------------

    def begin_reset(self, state: Ledger) -> None:
        """A subscription was moved to this state: nobody is served from it before it is persisted."""
        self._resets[state.subscription] = state

    def on_reset_persisted(self, state: Ledger) -> None:
        """The state is persisted. Where it is still the newest one, the listener is served from it now."""
        subscription = state.subscription
        if self._resets.get(subscription) is state:
            del self._resets[subscription]
            listener = self._listeners.get(subscription)
            if listener is not None:
                listener.on_reset()

    def is_reset_persisted(self, subscription: int) -> bool:
        """Whether what the subscription was moved to last is persisted."""
        return subscription not in self._resets

    # -- lanes -------------------------------------------------------------------------------------------------------

    def begin_lanes(self, subscription: int) -> None:
        """Its lanes have changed: nothing is served before that is persisted. An owner that did not find it would draw
        their ends elsewhere.
        """
        self._lanes[subscription] = self._lanes.get(subscription, 0) + 1

    def on_lanes_persisted(self, subscription: int) -> None:
        """A change of its lanes is persisted."""
        self._lanes[subscription] -= 1
        if not self._lanes[subscription]:
            del self._lanes[subscription]

    def _lane_unknown(self, ledger: Ledger, lane: int) -> bool:
        """Whether a lane is not followed here yet. One that is not there any more has nothing."""
        record = self.catalog.subscription_by_incarnation(ledger.subscription)
        return record is not None and lane >= record.options.next_lane

    def generation(self, subscription: int) -> int:
        """The seek generation ack ids of the subscription must carry."""
        ledger = self.ledgers.get(subscription)
        return ledger.generation if ledger else 0

    # -- messages ----------------------------------------------------------------------------------------------------

    def publish(self, topic: str, request: bytes, done: Callable[[bytes | Exception], None]) -> None:
        """Publish a message from the service itself, such as a dead letter."""
        try:
            self._publish_request(FunctionCaller(done, done), request)
        except SyncpointError as refused:
            done(refused)

    def fetch(self, subscription: int, source: int, begin: int, max_bytes: int, reply: Reply) -> None:
        ledger, found = self.ledgers.get(subscription), self.sources.by_number.get(source)
        if ledger is None or found is None or subscription in self._resets:
            reply([])  # the listener is notified of a seek once it is persisted, and asks again
            return
        if subscription in self._lanes:
            reply(Unavailable("The rules of the subscription have changed, and that is not persisted yet."))
            return
        store, early = self.commit.store, subscription in self.early
        visible = found.visible
        end = self.commit.appended_end(found) if early else visible
        base = 0
        if ledger.lanes or begin >= LANE_SIZE:
            lane, stop = lane_of(begin), ledger.stop_of(source, lane_of(begin))
            if not ledger.has_lane(lane):
                unknown = Unavailable("The rules of the subscription have changed, and that is not known here yet.")
                reply(unknown if self._lane_unknown(ledger, lane) else [])
                return
            base = in_lane(lane, 0)
            visible, end = base + visible, base + (end if stop is None else min(end, stop))
        begin = ledger.first_gap(source, begin)
        if begin >= end:
            reply([])
            return
        asked = _PlacesAsked(ledger, ledger.generation, source, begin, end, visible, base, max_bytes, early, (), reply)
        store.read(source, begin - base, max_bytes, partial(self._answer, asked), early=early)

    def _answer(self, asked: _PlacesAsked, stored: Sequence[StoredBatch] | Exception) -> None:
        ledger, generation, source, begin, end, visible, base, max_bytes, early, passed, reply = asked
        subscription = ledger.subscription
        if isinstance(stored, StorageDamaged) and stored.resume_offset is not None:
            # Logged as an error, never acknowledged, so never deleted: what follows it is delivered all the
            # same. The subscribe side is notified, too: it may be readable again some day.
            log.error("messages %d to %d of source %d: %s", begin, stored.resume_offset - 1, source, stored)
            resume = max(begin + 1, base + stored.resume_offset)
            asked = asked._replace(begin=resume, passed=(*passed, (begin, resume)))
            self.commit.store.read(source, resume - base, max_bytes, partial(self._answer, asked), early=early)
        elif isinstance(stored, Exception):
            reply(stored)
        elif ledger.generation != generation:
            reply([])  # a seek came between: the listener was notified and asks again
        elif not stored and not passed and begin >= visible:
            reply(Unavailable("It is not persisted yet, and not in memory any more."))  # it may have been had early
        else:
            expired = expired_at(self.catalog, ledger, self.commit.clock.sure_ns())
            recorder = self.commit.recorder
            ran_out: list[tuple[int, int]] | None = [] if recorder.topics else None
            found = deliverable(self.ledgers, ledger, begin, end, stored, expired, self.expiry, ran_out)
            if ran_out:
                recorder.note_of(subscription, EXPIRED, source, partial(list, ran_out), generation=generation)
            known: Sequence[AttemptRun] = ()
            if found and self.attempts.known:
                known = self.attempts.of(subscription, source, found[0].begin, found[-1].end)
            freshness = freshness_of(found)
            if passed or known or freshness is not None:
                reply(Fetched(found, passed, known, expired_of(found), freshness))
            else:
                reply(UpToEnd(found) if found and found[-1].end == end and not early else found)

    # -- acknowledgements --------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        self.commit.check_writable()

    def acknowledge(
        self, subscription: int, generation: int, source: int, runs: bytes, done: Done, *, urgent: bool
    ) -> None:
        if self.commit.failed is not None:
            done(outcome_unknown(self.commit.failed))
            return
        if source not in self.sources.by_number:
            done(None)  # nothing of it is left
            return
        verdict = self.ledgers.acknowledge(subscription, generation, source, runs)
        if verdict is AckVerdict.COUNTS:
            self.commit.acknowledge(subscription, generation, source, runs, done, urgent=urgent)
        elif verdict is AckVerdict.NO_LANE and self._were_drained(subscription, runs):
            done(None)  # a repetition: it was persisted before its lane was removed
        else:
            done(self._not_counted(subscription, verdict))

    def _were_drained(self, subscription: int, runs: bytes) -> bool:
        """Whether all of these copies are of lanes that were empty when they were removed."""
        record = self.catalog.subscription_by_incarnation(subscription)
        lanes = {lane_of(place) for begin, length in decode_runs(runs) for place in (begin, begin + length - 1)}
        return record is not None and all(was_drained(record.options, lane) for lane in lanes)

    def _not_counted(self, subscription: int, verdict: AckVerdict) -> SyncpointError:
        """Why an acknowledgement is not recorded. What the end of a generation or of a subscription decides may be lost
        with this log, and others may not know of it yet: until then they deliver what is not recorded. So a caller that
        must not take it for acknowledged receives an error.
        """
        if verdict is AckVerdict.OLD:
            return FailedPrecondition("The subscription was reset by a seek while this call ran.")
        if verdict is AckVerdict.NO_LANE:
            return FailedPrecondition("The rules that made these copies were deleted while this call ran.")
        record = self.catalog.subscription_by_incarnation(subscription)
        if verdict is AckVerdict.NO_LEDGER and (record is None or record.detached):
            return FailedPrecondition("The subscription was deleted or detached while this call ran.")
        return Unavailable("What the subscription was moved to is not known here yet.")

    def note_attempts(self, subscription: int, generation: int, source: int, runs: Sequence[AttemptRun]) -> None:
        self.attempts.came_back(subscription, generation, source, runs)
