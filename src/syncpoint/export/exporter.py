"""One export subscription: which messages go into which file, when a file is closed, and what becomes of its messages.

Place: between a subscriber of the subscribe forwarder (messages come lent, under ack ids) and a bucket. A plain
machine: events in, effects out in the order in which they are to be done; time is an argument.
Promise: a message is acknowledged only once the file that holds it is stored whole. A file is closed as soon as one of
its limits is reached; files are stored one after the other, in the order in which their messages were lent, so those of
an ordering key are in order. A large one is written in pieces while it grows. A file that cannot be stored is refused
whole, which counts as a delivery of each of its messages, and exporting pauses; what was lent behind it is given back,
uncounted. Leases are extended for as long as a message waits or its file is being stored. At most about twice
`held_max` bytes of messages are in memory, and `WRITTEN_MAX` ids of what is written already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from syncpoint.push.pace import Pace
from syncpoint.push.pusher import Acknowledged, Extended, GivenBack, Lent, Nacked, Reported, Room
from syncpoint.subscribe.confirm import CopyId

HELD_MAX = 32 << 20  # bytes of messages in memory; a piece of a file has half of it
WRITTEN_MAX = 200_000  # messages of a file, each of which is leased until it is stored: it is closed early then
MESSAGE_BYTES = 1_024  # what a message costs in memory beside its data
AHEAD_MAX = 1_000  # messages asked for beside those that are held
_MEAN_FIRST = 10_000


@dataclass(frozen=True, slots=True)
class FileLimits:
    """When a file is closed; 0: this limit is not set."""

    duration_s: float
    max_bytes: int = 0
    max_messages: int = 0


@dataclass(slots=True, eq=False)
class ExportFile:
    """Messages of one file. `begun`, `extended`: when, by the machine's time."""

    begun: float
    extended: float
    lent: dict[CopyId, str] = field(default_factory=dict)  # ack ids of all its messages
    nbytes: int = 0  # of all of them
    waiting: list[Lent] = field(default_factory=list)  # those that are not written yet, in order
    memory: int = 0  # what these take
    in_pieces: bool = False  # some are written

    @property
    def ack_ids(self) -> tuple[str, ...]:
        return tuple(self.lent.values())

    def take(self) -> list[Lent]:
        """What is to be written next: all that waits."""
        taken, self.waiting = self.waiting, []
        return taken


@dataclass(frozen=True, slots=True)
class StoreFile:
    """Write these messages into the file; it is whole then if they are its `last`. `stored` or `failed` is to be called
    when that has ended."""

    file: ExportFile
    messages: Sequence[Lent]
    last: bool


@dataclass(frozen=True, slots=True)
class DiscardFile:
    """Nothing of what is written of this file shall remain."""

    file: ExportFile


Effect = StoreFile | DiscardFile | Reported


class Exporter:
    """See the module. `lease_s`: for how long messages are lent. `pace`: of a window of 1, for its pauses."""

    def __init__(self, pace: Pace, limits: FileLimits, *, lease_s: float, held_max: int = HELD_MAX) -> None:
        self.pace, self.limits, self.lease_s, self.held_max = pace, limits, lease_s, held_max
        self.counts: dict[str, int] = {"acknowledged": 0, "refused": 0, "given_back": 0, "files": 0}
        self.stopped = False
        self._open: ExportFile | None = None
        self._closed: deque[ExportFile] = deque()
        self._storing: ExportFile | None = None  # of which a piece, or the rest, is being written
        self._last = False  # it is the rest
        self._writing = 0  # bytes of memory that this takes
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
        """Bytes that what is not written yet takes."""
        return self._writing + sum(file.memory for file in self._files())

    @property
    def free(self) -> int:
        """Bytes that may come."""
        return max(0, 2 * self.held_max - self.memory)

    @property
    def at_rest(self) -> bool:
        """Whether time changes nothing."""
        return not any(True for _ in self._files()) and self._room == AHEAD_MAX

    def received(self, lent: Sequence[Lent], now: float) -> list[Effect]:
        """Messages were lent to this subscriber."""
        if self.stopped or self.pace.paused_until(now) is not None:
            return self._give_back([one.ack_id for one in lent])
        for one in lent:
            known = next((file for file in self._files() if one.copy in file.lent), None)
            if known is not None:  # lent anew, after a lost grant: the earlier ack id is void
                known.lent[one.copy] = one.ack_id
            else:
                self._add(one, now)
        return self._go_on(now)

    def stored(self, file: ExportFile, unfit: Collection[CopyId], now: float) -> list[Effect]:
        """What was to be written is, but for these, which fit no file. If it was the rest, the
        file is stored whole."""
        last = self._end_of(file)
        bad = tuple(file.lent.pop(copy) for copy in unfit)
        self.counts["refused"] += len(bad)
        effects: list[Effect] = [Nacked(bad)] if bad else []
        if bad and file is self._open:
            self._close()  # they may fit the next one, which is written by a newer revision of the schema
        if last:
            self.pace.on_acknowledged(now - self._storing_since, 1)
            self.counts["files"] += bool(file.lent)
            self.counts["acknowledged"] += len(file.lent)
            if file.lent:
                effects.insert(0, Acknowledged(file.ack_ids))
        elif file is not self._open and file not in self._closed:  # what waited was given back
            effects += [DiscardFile(file), *self._give_back(file.ack_ids)]
        return effects + self._go_on(now)

    def failed(self, file: ExportFile, now: float) -> list[Effect]:
        """Nobody knows of the file being stored, or of a piece of it being written."""
        self._end_of(file)
        self._remove(file)
        self.counts["refused"] += len(file.lent)
        self.pace.on_failed(now - self._storing_since, self._storing_since, now)
        discarded: list[Effect] = [DiscardFile(file)] if file.in_pieces else []
        return [*discarded, Nacked(file.ack_ids), *self._go_on(now)]

    def close_file(self, now: float) -> list[Effect]:
        """Nothing more of the ordering keys in the file comes before it is stored: it is not kept open for them."""
        self._close()
        return self._go_on(now)

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
        if self._storing is not None and self._storing is not self._open and self._storing not in self._closed:
            yield self._storing
        yield from self._closed
        if self._open is not None:
            yield self._open

    def _add(self, one: Lent, now: float) -> None:
        size = one.message.ByteSize()
        self._mean += 0.05 * (size + MESSAGE_BYTES - self._mean)
        file, limits = self._open, self.limits
        if file is not None and limits.max_bytes and file.nbytes + size > limits.max_bytes:
            self._close()
        if self._open is None:
            self._open = ExportFile(now, now)
        file = self._open
        file.lent[one.copy] = one.ack_id
        file.waiting.append(one)
        file.nbytes += size
        file.memory += size + MESSAGE_BYTES
        if len(file.lent) >= min(limits.max_messages or WRITTEN_MAX, WRITTEN_MAX):
            self._close()

    def _close(self) -> None:
        if self._open is not None:
            self._closed.append(self._open)
            self._open = None

    def _end_of(self, file: ExportFile) -> bool:
        """What was being written has ended; whether it was the rest of the file."""
        assert file is self._storing
        self._storing, self._writing = None, 0
        return self._last

    def _remove(self, file: ExportFile) -> None:
        if file is self._open:
            self._open = None
        elif file in self._closed:
            self._closed.remove(file)

    def _write(self, file: ExportFile, now: float, *, last: bool) -> StoreFile:
        file.in_pieces |= not last
        self._storing, self._last, self._writing, file.memory = file, last, file.memory, 0
        self._storing_since = now
        return StoreFile(file, file.take(), last)

    def _go_on(self, now: float) -> list[Effect]:
        """Store what may be stored; then say how much may come."""
        if self.stopped:
            return []
        if self.pace.paused_until(now) is not None:
            return [*self._drop(), *self._set_room(0)]
        file = self._open
        if file is not None and now >= file.begun + self.limits.duration_s:
            self._close()
        effects: list[Effect] = []
        if self._storing is None and self._closed:
            effects.append(self._write(self._closed.popleft(), now, last=True))
        elif self._storing is None and self._open is not None and 2 * self._open.memory >= self.held_max:
            effects.append(self._write(self._open, now, last=False))
        ahead = min(AHEAD_MAX, max(1, int(self.free / self._mean))) if self.free else 0
        return effects + self._set_room(self.held + ahead)

    def _drop(self) -> list[Effect]:
        waiting = [*self._closed, *([] if self._open is None else [self._open])]
        self._closed.clear()
        self._open = None
        waiting = [file for file in waiting if file is not self._storing]  # that one when its piece has ended
        discarded: list[Effect] = [DiscardFile(file) for file in waiting if file.in_pieces]
        return discarded + self._give_back([ack_id for file in waiting for ack_id in file.ack_ids])

    def _give_back(self, ack_ids: Sequence[str]) -> list[Effect]:
        self.counts["given_back"] += len(ack_ids)
        return [GivenBack(tuple(ack_ids))] if ack_ids else []

    def _set_room(self, messages: int) -> list[Effect]:
        if messages == self._room:
            return []
        self._room = messages
        return [Room(messages)]
