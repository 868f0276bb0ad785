"""One export subscription: which messages go into which file, when a file is closed, and what becomes of its messages.

Place: between a subscriber of the subscribe forwarder (messages come lent, under ack ids) and a bucket. A plain
machine: events in, effects out in the order in which they are to be done; time is an argument.
Promise: a message is acknowledged only once the file that holds it is stored whole. A file is closed as soon as one of
its limits is reached; files are stored one after the other, in the order in which their messages were lent, so those of
an ordering key are in order. A file that cannot be stored is refused whole, which counts as a delivery of each of its
messages, and exporting pauses; what was lent behind it is given back, uncounted. Leases are extended for as long as a
message waits or its file is being stored. At most about twice `held_max` bytes are in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from syncpoint.push.pace import Pace
from syncpoint.push.pusher import Acknowledged, Extended, GivenBack, Lent, Nacked, Reported, Room

HELD_MAX = 32 << 20  # of one file in memory: it is closed early before it is exceeded
MESSAGE_BYTES = 1_024  # what a message costs in memory beside its data
AHEAD_MAX = 1_000  # messages asked for beside those that are held
_MEAN_FIRST = 10_000


@dataclass(frozen=True, slots=True)
class FileLimits:
    """When a file is closed; 0: this limit is not set."""

    duration_s: float
    max_bytes: int = 0
    max_messages: int = 0


@dataclass(slots=True)
class ExportFile:
    """Messages of one file, in order. `begun`, `extended`: when, by the machine's time."""

    begun: float
    extended: float
    lent: dict[str, Lent] = field(default_factory=dict)  # by message id
    nbytes: int = 0

    @property
    def ack_ids(self) -> tuple[str, ...]:
        return tuple(one.ack_id for one in self.lent.values())

    @property
    def memory(self) -> int:
        return self.nbytes + MESSAGE_BYTES * len(self.lent)


@dataclass(frozen=True, slots=True)
class StoreFile:
    """Store this file. `stored` or `failed` is to be called when that has ended."""

    file: ExportFile


Effect = StoreFile | Reported


class Exporter:
    """See the module. `lease_s`: for how long messages are lent. `pace`: of a window of 1, for its pauses."""

    def __init__(self, pace: Pace, limits: FileLimits, *, lease_s: float, held_max: int = HELD_MAX) -> None:
        self.pace, self.limits, self.lease_s, self.held_max = pace, limits, lease_s, held_max
        self.counts: dict[str, int] = {"acknowledged": 0, "refused": 0, "given_back": 0, "files": 0}
        self.stopped = False
        self._open: ExportFile | None = None
        self._closed: deque[ExportFile] = deque()
        self._storing: ExportFile | None = None
        self._storing_since = 0.0
        self._mean = float(_MEAN_FIRST)  # bytes of a message, in memory
        self._room: int | None = None

    def __repr__(self) -> str:
        return f"<Exporter held={self.held} closed={len(self._closed)} storing={self._storing is not None}>"

    @property
    def held(self) -> int:
        """How many messages are in files that are not stored yet."""
        return sum(len(file.lent) for file in self._files())

    @property
    def memory(self) -> int:
        """Bytes that they take."""
        return sum(file.memory for file in self._files())

    @property
    def at_rest(self) -> bool:
        """Whether time changes nothing."""
        return not any(True for _ in self._files()) and self._room == AHEAD_MAX

    def received(self, lent: Sequence[Lent], now: float) -> list[Effect]:
        """Messages were lent to this subscriber."""
        if self.stopped or self.pace.paused_until(now) is not None:
            return self._give_back([one.ack_id for one in lent])
        files = list(self._files())
        for one in lent:
            known = next((file for file in files if one.message.message_id in file.lent), None)
            if known is None and self._open is not None and one.message.message_id in self._open.lent:
                known = self._open
            if known is not None:  # lent anew, after a seek or a lost grant: the earlier ack id is void
                known.lent[one.message.message_id] = one
            else:
                self._add(one, now)
        return self._go_on(now)

    def stored(self, file: ExportFile, unfit: Collection[str], now: float) -> list[Effect]:
        """The file is stored whole, but for the messages with these ids, which fit no file."""
        self._end_of(file)
        self.pace.on_acknowledged(now - self._storing_since, 1)
        good = tuple(one.ack_id for name, one in file.lent.items() if name not in unfit)
        bad = tuple(one.ack_id for name, one in file.lent.items() if name in unfit)
        self.counts["files"] += bool(good)
        self.counts["acknowledged"] += len(good)
        self.counts["refused"] += len(bad)
        effects: list[Effect] = [Acknowledged(good)] if good else []
        if bad:
            effects.append(Nacked(bad))
        return effects + self._go_on(now)

    def failed(self, file: ExportFile, now: float) -> list[Effect]:
        """Nobody knows of the file being stored."""
        self._end_of(file)
        self.counts["refused"] += len(file.lent)
        self.pace.on_failed(now - self._storing_since, self._storing_since, now)
        return [Nacked(file.ack_ids), *self._go_on(now)]

    def tick(self, now: float) -> list[Effect]:
        """Time has passed: a file may be due, a pause over, leases may need more of it."""
        effects = self._go_on(now)
        for file in self._files():
            if now - file.extended >= self.lease_s / 2:
                file.extended = now
                effects.append(Extended(file.ack_ids))
        return effects

    def stop(self) -> list[Effect]:
        """Nothing more is stored from here. A file that is being stored still ends."""
        self.stopped = True
        return [*self._drop(), *self._set_room(0)]

    def _files(self) -> Iterable[ExportFile]:
        if self._storing is not None:
            yield self._storing
        yield from self._closed
        if self._open is not None:
            yield self._open

    def _add(self, one: Lent, now: float) -> None:
        size = one.message.ByteSize()
        self._mean += 0.05 * (size + MESSAGE_BYTES - self._mean)
        file, limits = self._open, self.limits
        if file is not None and (
            (limits.max_bytes and file.nbytes + size > limits.max_bytes)
            or file.memory + size + MESSAGE_BYTES > self.held_max
        ):
            self._close()
        if self._open is None:
            self._open = ExportFile(now, now)
        self._open.lent[one.message.message_id] = one
        self._open.nbytes += size
        if limits.max_messages and len(self._open.lent) >= limits.max_messages:
            self._close()

    def _close(self) -> None:
        if self._open is not None:
            self._closed.append(self._open)
            self._open = None

    def _end_of(self, file: ExportFile) -> None:
        assert file is self._storing
        self._storing = None

    def _go_on(self, now: float) -> list[Effect]:
        """Store what may be stored; then say how much may come."""
        if self.stopped:
            return []
        if self.pace.paused_until(now) is not None:
            return [*self._drop(), *self._set_room(0)]
        file = self._open
        if file is not None and (now >= file.begun + self.limits.duration_s or file.memory >= self.held_max):
            self._close()
        effects: list[Effect] = []
        if self._storing is None and self._closed:
            self._storing, self._storing_since = self._closed.popleft(), now
            effects.append(StoreFile(self._storing))
        free = 2 * self.held_max - self.memory
        ahead = 0 if free <= 0 else min(AHEAD_MAX, max(1, int(free / self._mean)))
        return effects + self._set_room(self.held + ahead)

    def _drop(self) -> list[Effect]:
        waiting = [*self._closed, *([] if self._open is None else [self._open])]
        self._closed.clear()
        self._open = None
        return self._give_back([ack_id for file in waiting for ack_id in file.ack_ids])

    def _give_back(self, ack_ids: Sequence[str]) -> list[Effect]:
        self.counts["given_back"] += len(ack_ids)
        return [GivenBack(tuple(ack_ids))] if ack_ids else []

    def _set_room(self, messages: int) -> list[Effect]:
        if messages == self._room:
            return []
        self._room = messages
        return [Room(messages)]
