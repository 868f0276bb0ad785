"""Firing: what waits is published when its time has come.

Place: driven by the host of chains, ten times a second; `scheduled` knows what is due, the store has the messages, the
forwarder publishes them. Messages are read first, some at a time; then all of them are published in one turn, those of
a topic in the order in which they are due. Where other chains may take ordering keys, `keyed_firing` has those of keys.
Promise: nothing is published before a time that has surely been reached (`TrustedClock.sure_ns`), so a wrong
wall clock makes it late rather than early. What was cancelled while it was read is not published. A message that cannot
be read now is tried again, and holds nobody up but those with an ordering key, which may be its own.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from syncpoint.base.kernel import schedules
from syncpoint.base.model.errors import ResourceExhausted, SyncpointError
from syncpoint.base.model.identity import format_message_id
from syncpoint.base.model.reserved import SCHEDULED_ID
from syncpoint.broker.publish.facts.scheduled import Scheduled
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.publish.intake.keyed_firing import KeyedFiring, field_of, key_of
from syncpoint.log.storage.store import StoredBatch

log = logging.getLogger(__name__)
TURN_MESSAGES = 500
TURN_BYTES = 1 << 20
READ_BYTES = 256 << 10
AGAIN_NS = 1_000_000_000  # until a message is read again that could not be, a topic published to that could not be
LASTS_NS = 10_000_000_000  # how long a start or an absent disk may delay it before operators are notified

Soon = Callable[[Callable[[], None]], object]


class PublishedHere(Protocol):
    """What a log must know of what is around it."""

    def admits(self, topic: int) -> bool:
        """Whether messages of a topic may be taken now; if not, what it takes is begun."""
        ...

    def open_source(self, topic: int) -> Source:
        """The open source of a topic that is admitted. Raises `SyncpointError`."""
        ...

    def note_load(self, topic: int, messages: int, nbytes: int) -> None:
        """Count what was published."""
        ...


class ScheduledFiring:
    """Publish scheduled messages when they are due.

    `soon(fn)` runs fn at the end of the loop's turn. `keyed`: None if every key is published here.
    """

    def __init__(
        self, publish: PublishForwarder, home: PublishedHere, soon: Soon, keyed: KeyedFiring | None = None
    ) -> None:
        self._publish, self._home, self._soon, self._keyed = publish, home, soon, keyed
        self._scheduled, self._clock = publish.scheduled, publish.clock
        self._due: deque[Scheduled] = deque()  # still to be read
        self._ready: list[tuple[Scheduled, bytes]] = []  # read, framed
        self._bodies: dict[tuple[int, int], bytes] = {}  # read ahead, by place
        self._answers: list[Sequence[StoredBatch] | Exception] = []
        self._busy = self._asking = self._closed = False
        self._unreadable: dict[tuple[int, int], int] = {}  # by place: when to try again
        self._failed_ns: dict[tuple[int, int], int] = {}  # and when that was found first
        self._refused: dict[int, int] = {}  # when to try a topic again
        self._fired = 0

    @property
    def fired(self) -> int:
        """How many messages were published."""
        return self._fired + (0 if self._keyed is None else self._keyed.fired)

    def tick(self) -> None:
        """Publish what is due. Costs a comparison where nothing is."""
        if self._closed or self._scheduled.first_ns > self._clock.sure_ns() or self._publish.commit.failed is not None:
            return
        held: Collection[tuple[int, int]] = ()
        if self._keyed is not None:
            self._keyed.go_on()
            held = self._keyed.places
        if self._busy or (self._keyed is not None and self._keyed.full):
            return
        now_ns = self._clock.sure_ns()
        self._unreadable = {place: again for place, again in self._unreadable.items() if again > now_ns}
        self._failed_ns = {
            place: at for place, at in self._failed_ns.items() if self._scheduled.find(*place) is not None
        }
        skip = {*self._unreadable, *held} if held else self._unreadable
        self._refused = {topic: again for topic, again in self._refused.items() if again > now_ns}
        self._due = deque(self._scheduled.due(now_ns, TURN_MESSAGES, skip, self._is_next))
        if self._due:
            self._busy = True
            self._read()

    def close(self) -> None:
        """Publish nothing more."""
        self._closed = True
        if self._keyed is not None:
            self._keyed.close()

    def _admits(self, topic: int) -> bool:
        """A topic that the catalog does not know is one that was lost with it: what waits for it goes on waiting."""
        return self._publish.catalog.topic_by_incarnation(topic) is not None and self._home.admits(topic)

    def _is_next(self, topic: int) -> bool:
        """Whether more of a topic should be read. What is not has no part in the bound of what is read at once."""
        held_up = topic in self._refused or (self._keyed is not None and self._keyed.is_full_of(topic))
        return not held_up and self._admits(topic)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read what is due, in order, as far as one turn goes; then publish it."""
        size = sum(len(body) for _, body in self._ready)
        while self._due and size < TURN_BYTES:
            one = self._due[0]
            body = self._bodies.pop((one.source, one.offset), None)
            if body is not None:
                self._ready.append((one, body))
                self._due.popleft()
                size += len(body)
                continue
            self._asking = True
            self._publish.store.read(one.source, one.offset, READ_BYTES, self._answered)
            self._asking = False
            if not self._answers:
                return
            self._take(self._answers.pop())
        ready, self._ready = self._ready, []
        self._due.clear()
        self._bodies.clear()
        self._busy = False
        if not self._closed and self._publish.commit.failed is None:
            self._fire(ready)

    def _answered(self, answer: Sequence[StoredBatch] | Exception) -> None:
        if self._asking:
            self._answers.append(answer)
        elif not self._closed:
            self._take(answer)
            self._read()

    def _take(self, answer: Sequence[StoredBatch] | Exception) -> None:
        """Keep what was read of what is due. The first, which was asked for, is left out where it is not there."""
        batches = [] if isinstance(answer, Exception) else answer
        for one in self._due:
            for batch in batches:
                index = one.offset - batch.first_offset
                if batch.source == one.source and 0 <= index < batch.count:
                    self._bodies[one.source, one.offset] = self._framed(one, bytes(batch.payload), index)
                    break
        first = self._due[0]
        place = first.source, first.offset
        if place in self._bodies:
            self._failed_ns.pop(place, None)
            return
        self._due.popleft()
        if self._scheduled.find(*place) is not None:  # it was not cancelled in the meantime
            why = answer if isinstance(answer, Exception) else "no disk has it"
            now_ns = self._clock.sure_ns()
            lasts = now_ns - self._failed_ns.setdefault(place, now_ns) >= LASTS_NS
            level = logging.ERROR if lasts else logging.INFO  # behind a start its disks may not be there yet
            log.log(level, "scheduled message %d/%d cannot be read, which is tried again: %s", *place, why)
            self._unreadable[place] = now_ns + AGAIN_NS

    def _framed(self, one: Scheduled, payload: bytes, index: int) -> bytes:
        """A message with the id under which it was scheduled, and without one of its own."""
        name = format_message_id(self._publish.sources.universe, one.source, one.offset).encode()
        entry = field_of(1, SCHEDULED_ID.encode()) + field_of(2, name)
        return schedules.unstamped(payload, index, field_of(2, entry))

    # -- publishing --------------------------------------------------------------------------------------------------

    def _fire(self, ready: Sequence[tuple[Scheduled, bytes]]) -> None:
        by_topic: dict[int, list[tuple[Scheduled, bytes]]] = {}
        unread = [found for place in self._unreadable if (found := self._scheduled.find(*place)) is not None]
        for one, body in ready:
            if self._scheduled.find(one.source, one.offset) is not one or not self._admits(one.topic):
                continue
            if any(before.topic == one.topic and before < one for before in unread) and key_of(body):
                continue
            if self._keyed is None or not self._keyed.takes(one, body):
                by_topic.setdefault(one.topic, []).append((one, body))
        for topic, messages in by_topic.items():
            framed = [body for _, body in messages]
            nbytes = sum(map(len, framed))
            try:
                self._publish.store.admit(nbytes)
                source = self._home.open_source(topic)
                self._publish.intake.publish_due(source, [one for one, _ in messages], framed, self._persisted)
            except ResourceExhausted:
                continue  # the disks are full: tried again at the next tick
            except SyncpointError as error:
                log.info("messages of topic %d that are due wait: %s", topic, error)
                self._refused[topic] = self._clock.sure_ns() + AGAIN_NS
                continue
            self._busy = True
            self._home.note_load(topic, len(messages), nbytes)
            self._fired += len(messages)
        if self._keyed is not None:
            self._keyed.go_on()

    def _persisted(self, error: Exception | None) -> None:
        """What is due besides waits for the disks, so that memory is bounded."""
        if self._busy:
            self._busy = False
            if error is None:
                self._soon(self.tick)
