"""Append: from the requests of one event-loop turn to entries of the log.

Place: between `forwarder` and the store. Each publish is checked and framed by the kernel at the moment it is read from
its connection; everything that arrived in one turn for one topic becomes one entry, and everything of the turn one
group commit. The answers wait in log order until storage says their position is persisted; only then does a publisher
hear its ids. If the disks fail, the outcome of what waits is unknown and said to be so.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from syncpoint.model.delivery import Done
from syncpoint.model.errors import GivenUp, SyncpointError
from syncpoint.publish.source import Source

ENTRY_BYTES_MAX = 64 << 10  # requests of this size stay entries of their own: nothing is joined, nothing is copied
ENTRY_MESSAGES_MAX = 4096


class PublishCaller(Protocol):
    """Somebody waiting for the answer to a publish: an RPC, or the service itself."""

    def reply(self, message: bytes) -> None: ...

    def fail(self, error: SyncpointError) -> None: ...


class PendingEntry:
    """Messages of one source that arrived in this turn, and who waits for them."""

    __slots__ = ("bytes", "callers", "count", "first_offset", "payloads", "source", "time_ns")

    def __init__(self, source: Source, first_offset: int, time_ns: int) -> None:
        self.source = source
        self.first_offset = first_offset
        self.time_ns = time_ns
        self.count = 0
        self.bytes = 0
        self.payloads: list[bytes] = []
        self.callers: list[tuple[PublishCaller, bytes]] = []

    @property
    def full(self) -> bool:
        return self.bytes >= ENTRY_BYTES_MAX or self.count >= ENTRY_MESSAGES_MAX

    def add(self, count: int, payload: bytes, caller: PublishCaller, response: bytes) -> None:
        self.count += count
        self.bytes += len(payload)
        self.callers.append((caller, response))
        self.payloads.append(payload)


class CommitWaiters:
    """Who waits for which position of the log, in log order."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, PendingEntry | Done]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, position: int, waiter: PendingEntry | Done) -> None:
        """`waiter` is settled once `position` is persisted. Positions come in rising order."""
        self._waiting.append((position, waiter))

    def on_persisted(self, position: int) -> list[PendingEntry | Done]:
        """Everything waiting for positions up to this one leaves the room."""
        waiting, out = self._waiting, []
        while waiting and waiting[0][0] <= position:
            out.append(waiting.popleft()[1])
        return out

    def on_failed(self) -> Sequence[PendingEntry | Done]:
        """Everything leaves: the log cannot be written any more."""
        out = [waiter for _, waiter in self._waiting]
        self._waiting.clear()
        return out


def outcome_unknown(cause: Exception) -> GivenUp:
    """What to tell somebody whose entry was handed to disks that then failed."""
    return GivenUp(f"the outcome is unknown: {cause}; retry, which may store the message twice")
