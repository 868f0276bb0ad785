"""Shared state: what the parts of one subscription's delivery have in common.

Place: made by `delivery`, given to `lease`, `source_reader`, `redelivery`, `lease_batches`, `key_reader` and `pump`.
What is set here outlives a seek; the parts do not, they are made anew.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from syncpoint.base.kernel.leases import LeaseTable
from syncpoint.base.model.delivery import PublishSide
from syncpoint.base.model.lanes import lane_of
from syncpoint.base.model.names import project_of
from syncpoint.broker.recording.recorder import Recorder, Runs
from syncpoint.broker.subscribe.consumer import Consumer
from syncpoint.broker.subscribe.delivery_counts import DeliveryCounts
from syncpoint.broker.subscribe.lane_rules import NOTHING, LaneRules, compiled, is_unread
from syncpoint.broker.subscribe.rule_work import RuleWork
from syncpoint.catalog.metadata.records import Subscription


class Reason(NamedTuple):
    """Why a message is given up, for its dead letter."""

    name: str
    description: str


WhenOver = Callable[[Exception | None], None]
"""Called once: the letter of a message is persisted, or why there is none; the message is offered again then."""


class GivesUp(Protocol):
    """A message (source, offset, attempts) is given up; `reason` None: it was delivered too often."""

    def __call__(
        self, source: int, offset: int, attempts: int, reason: Reason | None, when_over: WhenOver | None = None, /
    ) -> None: ...


class SharedState:
    """`wake()`: something changed, look at everything once at the end of this turn. `made_room()`: nothing but that
    more can be lent. `doubted()`: something failed in its middle, and it is not begun anew yet. `dead_letter`: see
    `GivesUp`. `soon(step)`: in another turn of the loop. `work`: judges by dear rules elsewhere; None: it is all done
    here. `ours(epoch)`: whether lease tables of this process had that epoch.
    """

    __slots__ = ("consumers", "counting", "counts", "dead_letter", "delivered", "doubted", "made_room", "now", "ours",
                 "program", "publish", "record", "recorder", "rules", "soon", "stalled", "strict", "table", "wake",
                 "work")  # fmt: skip

    def __init__(
        self,
        record: Subscription,
        publish: PublishSide,
        *,
        table: LeaseTable,
        program: bytes,
        now: Callable[[], float],
        wake: Callable[[], None],
        made_room: Callable[[], None],
        doubted: Callable[[], bool],
        dead_letter: GivesUp,
        ours: Callable[[int], bool],
        counting: DeliveryCounts,
        recorder: Recorder,
        soon: Callable[[Callable[[], None]], object],
        work: RuleWork | None,
    ) -> None:
        self.soon, self.work = soon, work
        self.recorder = recorder
        self.take_record(record)
        self.counting, self.counts = counting, counting.of_subscription(record.incarnation)
        self.publish = publish
        self.table = table
        self.program = program  # of the filter
        self.rules: dict[int, LaneRules] | None = None  # of each lane; None: there are none
        self.take_rules(None)
        self.now = now
        self.wake = wake
        self.made_room = made_room
        self.doubted = doubted
        self.dead_letter = dead_letter
        self.ours = ours
        self.consumers: deque[Consumer] = deque()  # in the order of their turns
        self.delivered = 0
        self.stalled = False  # something could not be read, or recorded: it is tried again at the next tick

    def take_record(self, record: Subscription) -> None:
        """The subscription is this from now on. `strict`: what was lent under one grant means nothing under another."""
        self.record = record
        self.strict = record.exactly_once or record.ordered

    def take_rules(self, before: Subscription | None) -> None:
        """Judge by the rules of the record; `before`: the record that those of now are of."""
        had, work = self.rules or {}, self.work
        self.rules = compiled(self.record, self.program, before, had, lazy=work is not None)
        for number, lane in (self.rules or {}).items():
            if work is not None and lane.work is not None and is_unread(lane) and had.get(number) is not lane:
                work.prepare(project_of(self.record.name), lane.work, partial(self._take_program, number, lane))

    def _take_program(self, number: int, lane: LaneRules, program: bytes) -> None:
        """Let the kernel judge what it can from now on."""
        if self.rules is not None and self.rules.get(number) is lane:
            self.rules = {**self.rules, number: LaneRules(program)}

    def program_of(self, place: int) -> bytes:
        """What the kernel judges by, of messages in the lane of a place."""
        return self.program if self.rules is None else self.rules.get(lane_of(place), NOTHING).program

    def note(self, kind: str, generation: int, source: int, runs: Runs, **more: int | str) -> None:
        """Something happened to messages just now, where their topic is recorded."""
        record = self.record
        if record.topic_incarnation in self.recorder.topics:
            self.recorder.note(record.topic_incarnation, kind, source, runs, record.name, generation=generation, **more)

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer, which receives no more messages."""
        consumer.closed = True
        if consumer in self.consumers:
            self.consumers.remove(consumer)
