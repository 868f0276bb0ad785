"""What a publisher does with its messages: which wait, which are sent together, and which are sent again.

Place: the decisions of `publish_driver`; pure, time and chance come in. A *lane* is the messages of one topic and
ordering key. An *entry* is what one call of `publish` or one piece of `publish_many` gave, and is never divided.
Promises: entries of a lane are sent in the order in which they were added. A lane with an ordering key has one request
under way, and the next one is not sent before that one is stored, so that their order survives every retry. Where it
fails for good, the lane is paused: all that waits in it fails as well, and nothing more is taken until `resume`.
At most REQUESTS_MAX requests are under way, and no more than BYTES_MAX of several. What is added leaves with its
answer, or with an error; nothing is dropped.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from syncpoint.base.model.errors import SyncpointError
from syncpoint.client.client_errors import PausedOrderingKeyError
from syncpoint.client.client_options import PASSING, REQUEST_BYTES_MAX, REQUEST_MESSAGES_MAX, BatchSettings, ClientRetry
from syncpoint.client.message_encoding import TOPIC_BYTES_MAX, topic_field

REQUESTS_MAX: Final = 100
BYTES_MAX: Final = 8_000_000
"""Under way at once. Many small requests hide the way to a server far away; a few large ones keep a near one busy."""


@dataclass(slots=True, eq=False)
class PublishEntry:
    """Encoded messages that stay together. `outcome`: whose result is known later; not used here."""

    encoded: bytes
    count: int
    outcome: Any
    single: bool = False
    at_s: float = 0.0


@dataclass(slots=True, eq=False)
class PublishLane:
    """The messages of a topic and key that wait."""

    topic: str
    ordering_key: str
    waiting: deque[PublishEntry] = field(default_factory=deque)
    messages: int = 0
    nbytes: int = 0
    under_way: bool = False  # of a lane with a key: one request is sent, or waits to be sent again
    paused: bool = False
    queued: bool = False
    timer_s: float = -1.0


@dataclass(slots=True, eq=False)
class OutgoingRequest:
    """Entries that are sent together."""

    lane: PublishLane
    entries: list[PublishEntry]
    messages: int
    nbytes: int
    begun_s: float
    pause_s: float
    attempts: int = 0

    def encoded(self) -> bytes:
        """The bytes of the Publish request."""
        return b"".join([topic_field(self.lane.topic), *(entry.encoded for entry in self.entries)])


class PublishQueue:
    """All that one publisher has not stored yet. `messages`, `nbytes`: how much that is."""

    def __init__(self, batch: BatchSettings, retry: ClientRetry, chance: Callable[[], float]) -> None:
        self._batch, self._retry, self._chance = batch, retry, chance
        self._lanes: dict[tuple[str, str], PublishLane] = {}
        self._ready: deque[PublishLane] = deque()
        self._timers: list[tuple[float, int, PublishLane]] = []
        self._again: list[tuple[float, int, OutgoingRequest]] = []
        self._serial = 0
        self._under_way: set[OutgoingRequest] = set()
        self._bytes_under_way = 0
        self.messages = self.nbytes = 0

    def add(self, topic: str, ordering_key: str, entry: PublishEntry, now_s: float) -> bool:
        """Take an entry; returns whether `due` should be asked now, or has an earlier `wake_s`. Raises
        `PausedOrderingKeyError`.
        """
        lane = self._lanes.get((topic, ordering_key))
        if lane is None:
            lane = self._lanes[topic, ordering_key] = PublishLane(topic, ordering_key)
        elif lane.paused:
            raise PausedOrderingKeyError(topic, ordering_key)
        entry.at_s = now_s
        lane.waiting.append(entry)
        lane.messages += entry.count
        lane.nbytes += len(entry.encoded)
        self.messages += entry.count
        self.nbytes += len(entry.encoded)
        return self._consider(lane, now_s)

    def due(self, now_s: float) -> list[OutgoingRequest]:
        """What is to be sent now: each is reported by `answered` or `failed` later."""
        while self._timers and self._timers[0][0] <= now_s:
            lane = heapq.heappop(self._timers)[2]
            lane.timer_s = -1.0
            self._consider(lane, now_s)
        found = []
        while self._again and self._again[0][0] <= now_s and self._has_room:
            found.append(self._sent(heapq.heappop(self._again)[2]))
        while self._ready and self._has_room:
            lane = self._ready.popleft()
            lane.queued = False
            if lane.waiting:  # they may have failed
                found.append(self._sent(self._request(lane, now_s)))
                self._consider(lane, now_s)
        return found

    @property
    def wake_s(self) -> float | None:
        """When `due` has something next, unless something else happens before; None: never."""
        times = [heap[0][0] for heap in (self._timers, self._again) if heap]
        return min(times) if times and self._has_room else None

    @property
    def _has_room(self) -> bool:
        return len(self._under_way) < REQUESTS_MAX and self._bytes_under_way < BYTES_MAX

    def answered(self, request: OutgoingRequest, now_s: float) -> None:
        """All of a request is stored."""
        self._ended(request)
        self._left(request.entries)
        self._over(request.lane, now_s)

    def failed(self, request: OutgoingRequest, error: SyncpointError, now_s: float) -> list[PublishEntry]:
        """A request is not known to be stored. Returns the entries that fail with this error, which may be more than
        it had; none where it is sent again.
        """
        self._ended(request)
        pause_s = request.pause_s * (1 - self._chance() / 2)
        request.pause_s = min(request.pause_s * self._retry.multiplier, self._retry.maximum)
        lane = request.lane
        if error.code in PASSING and now_s + pause_s <= request.begun_s + self._retry.deadline:
            self._push(self._again, now_s + pause_s, request)
            return []
        failed = list(request.entries)
        if lane.ordering_key:
            failed += lane.waiting
            lane.waiting.clear()
            lane.messages = lane.nbytes = 0
            lane.paused = True
        self._left(failed)
        self._over(lane, now_s)
        return failed

    def flush(self, now_s: float) -> None:
        """Let what is here now not wait for requests to become full."""
        for lane in self._lanes.values():
            for entry in lane.waiting:
                entry.at_s = now_s - self._batch.max_latency
            self._consider(lane, now_s)

    def give_up(self) -> list[PublishEntry]:
        """Everything that is not stored, which is forgotten here. Nothing may be under way any more."""
        left = [entry for lane in self._lanes.values() for entry in lane.waiting]
        left += [entry for _, _, request in self._again for entry in request.entries]
        left += [entry for request in self._under_way for entry in request.entries]
        self._again.clear()
        self._under_way.clear()
        self._lanes.clear()
        self.messages = self.nbytes = self._bytes_under_way = 0
        return left

    def resume(self, topic: str, ordering_key: str) -> None:
        """Take messages of a paused key again."""
        lane = self._lanes.get((topic, ordering_key))
        if lane is not None and lane.paused:
            del self._lanes[topic, ordering_key]

    def _consider(self, lane: PublishLane, now_s: float) -> bool:
        """Let a lane be sent, or considered when it is due; returns whether this changed what is known of it."""
        if lane.queued or lane.under_way or not lane.waiting:
            return False
        due_s = lane.waiting[0].at_s + self._batch.max_latency
        full = lane.messages >= self._batch.max_messages or lane.nbytes >= self._batch.max_bytes
        if full or due_s <= now_s:
            lane.queued = True
            self._ready.append(lane)
            return True
        if lane.timer_s < 0:
            lane.timer_s = due_s
            self._push(self._timers, due_s, lane)
            return True
        return False

    def _request(self, lane: PublishLane, now_s: float) -> OutgoingRequest:
        entries = [lane.waiting.popleft()]
        messages, nbytes = entries[0].count, len(entries[0].encoded)
        messages_max = min(self._batch.max_messages, REQUEST_MESSAGES_MAX)
        bytes_max = min(self._batch.max_bytes, REQUEST_BYTES_MAX - TOPIC_BYTES_MAX)
        while lane.waiting:
            entry = lane.waiting[0]
            if messages + entry.count > messages_max or nbytes + len(entry.encoded) > bytes_max:
                break
            entries.append(lane.waiting.popleft())
            messages += entry.count
            nbytes += len(entry.encoded)
        lane.messages -= messages
        lane.nbytes -= nbytes
        lane.under_way = bool(lane.ordering_key)
        return OutgoingRequest(lane, entries, messages, nbytes, now_s, self._retry.initial)

    def _sent(self, request: OutgoingRequest) -> OutgoingRequest:
        request.attempts += 1
        self._under_way.add(request)
        self._bytes_under_way += request.nbytes
        return request

    def _ended(self, request: OutgoingRequest) -> None:
        self._under_way.discard(request)
        self._bytes_under_way -= request.nbytes

    def _left(self, entries: list[PublishEntry]) -> None:
        for entry in entries:
            self.messages -= entry.count
            self.nbytes -= len(entry.encoded)

    def _over(self, lane: PublishLane, now_s: float) -> None:
        lane.under_way = False
        if lane.waiting:
            self._consider(lane, now_s)
        elif lane.ordering_key and not lane.paused:
            self._lanes.pop((lane.topic, lane.ordering_key), None)

    def _push(self, heap: list[tuple[float, int, Any]], at_s: float, what: Any) -> None:
        self._serial += 1
        heapq.heappush(heap, (at_s, self._serial, what))
