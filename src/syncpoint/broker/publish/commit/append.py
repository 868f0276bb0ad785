"""Append: from the requests and acknowledgements of one event-loop turn to entries of the log.

Place: used by `commit`. Each publish is checked and framed by the kernel at the moment it is read from its connection;
everything that arrived in one turn for one topic becomes one entry, and everything of the turn one group commit. The
answers wait in log order until storage reports their position as persisted; only then does a publisher receive its ids.
If the disks fail, the outcome of what waits is unknown and reported as such.
Acknowledgements become one entry. Ledgers hold them from the moment they come; until they are persisted, nobody may be
asked to read past them, since the next owner of the log may not know them.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from syncpoint.base.kernel.acks import AckSet
from syncpoint.base.model.delivery import Done
from syncpoint.base.model.errors import GivenUp, SyncpointError
from syncpoint.broker.publish.facts.records import Acks
from syncpoint.broker.publish.facts.source import Source

log = logging.getLogger(__name__)
_NEVER = 1 << 62  # the position of an entry that did not get one


class PublishCaller(Protocol):
    """Receives the answer to a publish: an RPC, or the service itself."""

    @property
    def reply(self) -> Callable[[bytes], object]:
        """Called with a serialised PublishResponse once the messages are persisted."""
        ...

    @property
    def fail(self) -> Callable[[SyncpointError], object]:
        """Called where they are not, or nobody knows."""
        ...


class FunctionCaller:
    """A caller made of two functions: the service itself, or one that changes the answer for another caller."""

    __slots__ = ("fail", "reply")

    def __init__(self, reply: Callable[[bytes], object], fail: Callable[[SyncpointError], object]) -> None:
        self.reply, self.fail = reply, fail


def completion(done: Done) -> FunctionCaller:
    """A caller that has to know when its messages are persisted, and not which ids they have."""
    return FunctionCaller(lambda response: done(None), done)


class PendingEntry:
    """Messages of one source that arrived in this turn, with the callers that wait for them."""

    __slots__ = ("bytes", "callers", "count", "first_offset", "payloads", "requests", "source", "time_ns")

    def __init__(self, source: Source, first_offset: int, time_ns: int) -> None:
        self.source = source
        self.first_offset = first_offset
        self.time_ns = time_ns
        self.count = 0
        self.bytes = 0
        self.requests = 0
        self.payloads: list[bytes] = []
        self.callers: list[tuple[PublishCaller, bytes]] = []

    def add(self, count: int, payload: bytes, caller: PublishCaller, response: bytes, requests: int = 1) -> None:
        """Add `count` framed messages that came in `requests` requests."""
        self.count += count
        self.requests += requests
        self.bytes += len(payload)
        self.callers.append((caller, response))
        self.payloads.append(payload)


class AckBatch:
    """The acknowledgements of the next entry, what waits for it, and all that are not persisted yet."""

    def __init__(self) -> None:
        self.waiting: list[Acks] = []  # for the next entry
        self._done: list[Done] = []
        self._unpersisted: dict[tuple[int, int], deque[bytes]] = {}  # runs by (subscription, source)

    def add(self, entry: Acks, done: Done) -> None:
        """Write an acknowledgement with the next entry; `done` when that is persisted."""
        self._done.append(done)
        key = (entry.subscription, entry.source)
        unpersisted = self._unpersisted.get(key)
        if unpersisted is None:
            unpersisted = self._unpersisted[key] = deque()
        unpersisted.append(entry.runs)
        self.waiting.append(entry)

    def wait(self, done: Done) -> None:
        """Call `done` when the next entry is persisted."""
        self._done.append(done)

    def is_last(self, done: Done) -> bool:
        """Whether this one was added last, and is answered with the next entry."""
        return bool(self._done) and self._done[-1] is done

    def take(self) -> tuple[list[Acks], list[Done]]:
        """What the next entry holds, and what waits for it; another one begins."""
        taken = self.waiting, self._done
        self.waiting, self._done = [], []
        return taken

    def on_persisted(self, acks: Iterable[Acks]) -> None:
        """An entry is persisted. Entries come in the order in which they were taken."""
        for one in acks:
            key = (one.subscription, one.source)
            unpersisted = self._unpersisted[key]
            first = unpersisted.popleft()
            assert first is one.runs, key
            if not unpersisted:
                del self._unpersisted[key]

    def on_failed(self) -> list[Done]:
        """Remove and return what waits: the next entry is never written."""
        waiting, self._done = self._done, []
        return waiting

    def is_unpersisted(self, subscription: int, source: int) -> bool:
        """Whether anything acknowledged of a source is not persisted."""
        return (subscription, source) in self._unpersisted

    def all_unpersisted(self) -> dict[tuple[int, int], list[bytes]]:
        """Runs of all that is not persisted, by subscription and source."""
        return {key: list(runs) for key, runs in self._unpersisted.items()}

    def unpersisted(self, subscription: int, source: int) -> AckSet | None:
        """What was acknowledged and is not persisted: if this log is lost, it may have to be delivered again."""
        runs = self._unpersisted.get((subscription, source))
        if runs is None:
            return None
        acks = AckSet()
        for one in runs:
            acks.add_runs(one)
        return acks


class CommitWaiters:
    """Entries and callbacks that wait for positions of the log, in log order."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, PendingEntry | Done]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, position: int, waiter: PendingEntry | Done) -> None:
        """Complete `waiter` once `position` is persisted. Positions never fall."""
        waiting = self._waiting
        assert not waiting or waiting[-1][0] <= position, (waiting[-1][0], position)
        waiting.append((position, waiter))

    def add_unwritten(self, entry: PendingEntry) -> None:
        """Let an entry that did not get a position wait for the end of the log."""
        self._waiting.append((_NEVER, entry))

    def on_persisted(self, position: int) -> list[PendingEntry | Done]:
        """Remove and return the waiters whose position is persisted."""
        waiting, out = self._waiting, []
        while waiting and waiting[0][0] <= position:
            out.append(waiting.popleft()[1])
        return out

    def on_failed(self) -> list[PendingEntry | Done]:
        """Remove and return all waiters: the log cannot be written any more."""
        out = [waiter for _, waiter in self._waiting]
        self._waiting.clear()
        return out


def outcome_unknown(cause: Exception) -> GivenUp:
    """The answer for a caller whose entry was handed to disks that then failed."""
    return GivenUp(f"the outcome is unknown: {cause}; retry, which may store the message twice")


def notify_all(waiting: Iterable[Callable[[Any], object]], error: Any) -> None:
    """Notify all of them, also where one fails."""
    for done in waiting:
        try:
            done(error)
        except Exception:
            log.exception("a waiter for the disks fails on its answer; the others are notified")
