"""Delivery: one subscription on its way to its subscribers.

Place: between the publish side and consumers. It takes what happens around it: sources that are granted, revoked or
reset by a seek, consumers that come and go, time. `source_reader` and `redelivery` read, `pump` shares what came among
the consumers that have room, `lease_batches` leases it. All of these are made anew after a seek.
"""

from collections.abc import Callable, Sequence

from syncpoint.base.kernel.leases import LeaseTable
from syncpoint.base.model.delivery import PublishSide, SourceView
from syncpoint.broker.recording.recorder import Recorder
from syncpoint.broker.subscribe.confirm import Unsure
from syncpoint.broker.subscribe.consumer import Consumer
from syncpoint.broker.subscribe.delivery_counts import DeliveryCounts
from syncpoint.broker.subscribe.key_reader import KeyReader
from syncpoint.broker.subscribe.lease import LeaseManager
from syncpoint.broker.subscribe.lease_batches import BatchLeasing
from syncpoint.broker.subscribe.pump import Pump
from syncpoint.broker.subscribe.redelivery import RedeliveryReader
from syncpoint.broker.subscribe.rule_work import RuleWork
from syncpoint.broker.subscribe.shared_state import Reason, SharedState, WhenOver
from syncpoint.broker.subscribe.source_reader import SourceReader
from syncpoint.catalog.metadata.entity_options import lanes_before, lanes_of, was_drained
from syncpoint.catalog.metadata.records import Subscription

WANTED_FULL_S = 10.0  # how long a subscription stays wanted although its subscribers can take nothing,
WANTED_IDLE_S = 1.0  # and how long when the last one was a pull: another may follow,
WANTED_GONE_S = 0.5  # and how long when it was a stream: it may have gone to another forwarder
WANTED_OUT_S = 15.0  # and how long while something is lent that nobody else may deliver in the meantime
LOOK_AGAIN_S = 1.0  # how often it is asked how far others are, while keys wait for them


class Delivery:
    """The subscribe forwarder's state for one subscription with subscribers (or with leases left from them)."""

    def __init__(
        self,
        record: Subscription,
        publish: PublishSide,
        *,
        table: LeaseTable,
        program: bytes,
        now: Callable[[], float],
        soon: Callable[[Callable[[], None]], object],
        dead_letter: Callable[["Delivery", int, int, int, Reason | None, WhenOver | None], None],
        doubted: Callable[[], bool],
        ours: Callable[[int], bool],
        counting: DeliveryCounts,
        recorder: Recorder,
        work: RuleWork | None = None,
    ) -> None:
        """`doubted()`, `ours(epoch)`: see `SharedState`."""
        self.publish, self.table, self.now = publish, table, now
        self.state = SharedState(
            record,
            publish,
            table=table,
            program=program,
            now=now,
            wake=self.wake,
            made_room=self._made_room,
            doubted=doubted,
            dead_letter=lambda source, offset, attempts, reason, when_over=None: dead_letter(
                self, source, offset, attempts, reason, when_over
            ),
            ours=ours,
            counting=counting,
            recorder=recorder,
            soon=soon,
            work=work,
        )
        self.consumers = self.state.consumers
        self._soon = soon
        self._grants: dict[int, int] = {}  # of the sources that are, or were last, delivered here
        self._behind: set[int] = set()  # sources to begin anew, after one that was voided
        self._wanted = False
        self._could_take = -WANTED_OUT_S  # when somebody here last could take a message
        self._pulled = False  # whether the last one to come was a pull, after which another may follow
        self._looked = now()
        self._scheduled = self._woken = False
        self._is_other = False  # its rules have changed so that it has to begin anew
        self._make_parts(None)

    def _make_parts(self, unsure: Unsure | None) -> None:
        """All that a seek makes void."""
        state = self.state
        self.leases = leases = LeaseManager(state, self.publish.generation(state.record.incarnation), unsure)
        self.reader = reader = SourceReader(state, leases)
        self.redeliveries = RedeliveryReader(state, leases, reader)
        leasing = BatchLeasing(state, leases, reader)
        self._keys = None if leases.order is None else KeyReader(state, leases, leases.order, reader, leasing)
        self._pump = Pump(state, leases, reader, self.redeliveries, leasing, self._keys)

    @property
    def record(self) -> Subscription:
        """The subscription as it was last known here."""
        return self.state.record

    @record.setter
    def record(self, record: Subscription) -> None:
        before = self.state.record
        self.state.take_record(record)
        if record is not before and record != before:
            if record.options.lanes != before.options.lanes:
                self._change_rules(record, before)
            if before.options.receive_suspended and not record.options.receive_suspended:
                self._read_again()
            if record.options.keys_elsewhere != before.options.keys_elsewhere:
                self._read_again()
                self.reader.take_keys()
            for consumer in list(self.consumers):
                consumer.changed()
            self.wake()  # it may be received from again

    def _read_again(self) -> None:
        """What waits to be lent is read again, since other sites delivered, or will."""
        self.redeliveries.put_back()
        self.reader.read_again()

    def _change_rules(self, record: Subscription, before: Subscription) -> None:
        """Lanes that are new are read beside the others, and those that were removed because all of them is done, no
        more. Where one was given up, or is for other messages than it was, what was read and lent counts no more.
        """
        state = self.state
        state.take_rules(before)
        kept = {lane.number: lane.rules for lane in lanes_of(record.options) if not lane.dropped}
        had = {lane.number: lane.rules for lane in lanes_of(before.options) if not lane.dropped}
        if all(kept.get(one) == rules or was_drained(record.options, one) for one, rules in had.items()):
            self.reader.sources.set_lanes(tuple(kept), lanes_before(record.options))
            self.wake()
        else:
            self._is_other = True

    def __repr__(self) -> str:
        messages, nbytes = self.table.total()
        return (
            f"<Delivery {self.record.name} consumers={len(self.consumers)} outstanding={messages} ({nbytes} B) "
            f"redeliver={len(self.leases.redelivery)}>"
        )

    # -- what happens around it --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Ask for the sources of the topic."""
        self._looked = self.now()
        self.publish.attach(self.record.incarnation, self)

    def on_sources(self, views: Sequence[SourceView], complete: bool) -> None:
        for view in views:
            if view.done:
                self._grants.pop(view.source, None)
                self.redeliveries.forget(view.source)
                self.reader.passed.forget_source(view.source)
                self.leases.finish(view.source)
            elif view.held:
                if self.state.strict and self._grants.get(view.source, view.grant) != view.grant:
                    self._void(view.source)  # somebody else may have delivered from it in the meantime
                    self.reader.sources.forget(view.source)
                self._grants[view.source] = view.grant
            elif view.source in self._grants:
                self.redeliveries.put_back_of(view.source)
            self.reader.sources.named(view)
        self.reader.sources.complete = self.reader.sources.known = complete
        self._go_back()
        self.wake()

    def on_data(self, source: int) -> None:
        self.reader.sources.data_came(source)
        self.wake()

    def on_revoked(self, source: int) -> None:
        self._void(source)
        self.reader.sources.forget(source)
        self._go_back()
        self.wake()

    def on_reset(self) -> None:
        """A seek: every lease and cursor is void, everything unacknowledged is read anew."""
        self._renew(by_seek=True)

    def _renew(self, *, by_seek: bool) -> None:
        for source in self._grants:
            self.leases.note_revoked(source)
        self.reader.close()
        self.redeliveries.close()
        self._behind.clear()
        self._grants.clear()
        before = self.leases
        self._make_parts(before.unsure)
        before.close(None if by_seek else self.leases)
        self.table.reset(self.leases.generation)
        self.start()
        self.wake()

    def begin_anew(self) -> None:
        """A step failed in its middle, and what it has left undone nobody knows. Let go of all sources, so that they
        are granted anew, and read again whatever is not acknowledged; what is lent counts no more.
        """
        self.publish.detach(self.record.incarnation)
        self._wanted = False  # a forwarder we attach to anew does not know it
        self._scheduled = False  # perhaps it is not
        self._renew(by_seek=False)

    def _void(self, source: int) -> None:
        """The grant of a source ended: what was read and lent of it is nobody's business here any more. What was lent
        of later sources is delivered again, after it: a key's later messages follow its earlier ones.
        """
        self._behind.update(self.reader.sources.after(source))
        self._grants.pop(source, None)
        self.redeliveries.forget(source)
        self.reader.forget(source)
        self.leases.void(source)

    def _go_back(self) -> None:
        """Begin anew what follows a source that was voided."""
        if self._behind:
            behind, self._behind = self._behind, set()
            for source in sorted(behind):
                self.redeliveries.forget(source)
                self.reader.passed.forget_source(source)
                self.leases.void(source, behind=True)
                self.reader.sources.begin_again(source)
            self.start()

    def on_removed(self) -> None:
        """The subscription was deleted or detached: end what its consumers wait for."""
        consumers = list(self.consumers)
        self.consumers.clear()
        for consumer in consumers:
            consumer.closed = True
            consumer.gone()
        self.leases.close()

    def add(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        self._could_take, self._pulled = self.now(), consumer.single
        self._want(True)
        self.wake()

    def look_again(self) -> None:
        """Something could not be read, or recorded, some time ago."""
        self.state.stalled = False
        if self._keys is not None:
            self._keys.look_again()
        self.leases.resend()
        self.wake()

    def review(self, now: float) -> None:
        """Every tick: whether sources are wanted here, and how far others are where keys wait for them."""
        if self._is_other:
            self._is_other = False
            self.begin_anew()
        if self._pump.has_room():
            self._could_take = now
        out = self.state.strict and self.leases.is_out
        if self.consumers:
            wanted = out or now - self._could_take < WANTED_FULL_S
        elif out:  # acknowledged it may still be, but whoever has subscribers does not wait for that without end
            wanted = now - self._could_take < WANTED_OUT_S
        else:
            linger_s = WANTED_IDLE_S if self._pulled else 0.0 if self.state.strict else WANTED_GONE_S
            wanted = now - self._could_take < linger_s
        self._want(wanted)
        if now >= self.reader.aging.due:
            self.reader.aging.begin()
            self.reader.grow_old()
            self.redeliveries.grow_old()
            self.wake()
        self.leases.examine(self.reader.sources.holds, self.reader.fetch, now)
        if self.consumers:
            self.redeliveries.read_passed(now)
        if self.reader.sources.waits and now - self._looked >= LOOK_AGAIN_S:
            self.start()

    def _want(self, wanted: bool) -> None:
        if wanted != self._wanted:
            self._wanted = wanted
            self.publish.set_demand(self.record.incarnation, wanted)

    def wake(self) -> None:
        """Something changed: look at everything once, at the end of this turn."""
        self._woken = True
        if not self._scheduled and self.consumers:
            self._scheduled = True
            self._soon(self._look)

    def _made_room(self) -> None:
        """More can be lent: look if something waits for that."""
        if self._may_find:
            self.wake()

    @property
    def _may_find(self) -> bool:
        """Whether a look does anything, however much room there is."""
        return self.state.strict or not self._pump.quiet

    def _look(self) -> None:
        self._woken = False
        try:
            if self.state.strict:
                if self.state.doubted():
                    return
                self.publish.check_grants(self.record.incarnation)
            self._pump.run()
        finally:
            self._scheduled = False
        if self._woken and self._may_find:  # what changed in the middle of it was perhaps not seen
            self.wake()

    @property
    def leaving(self) -> int:
        """Messages that no other site may be given yet: lent before keys, or all of them, last went there, and not
        known to be acknowledged, or to be back.
        """
        if self.record.options.receive_suspended:
            return self.table.total()[0] + len(self.leases.unrecorded())
        return 0 if self.reader.keys is None else self.reader.keys.leaving()

    @property
    def looking(self) -> bool:
        """Whether it is not known yet what waits for who comes now."""
        return self._scheduled or self.reader.sources.looking

    def is_calm(self, until: float) -> bool:
        """Whether ticks have nothing to do until then, unless something happens."""
        reader = self.reader
        waits = (
            self._wanted != bool(self.consumers)
            or self.state.stalled
            or self._is_other
            or bool(reader.passed)
            or reader.sources.waits
        )
        still = self.redeliveries.at_rest and self.leases.at_rest and reader.rules.at_rest
        return still and not waits and reader.aging.due > until

    @property
    def at_rest(self) -> bool:
        """Nobody listens and nothing is lent: it may be forgotten, the ledger knows all that matters."""
        idle = not self.consumers and self.redeliveries.at_rest and self.leases.at_rest
        return idle and self.reader.rules.at_rest
