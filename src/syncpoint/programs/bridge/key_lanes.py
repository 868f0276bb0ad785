"""One message of a key at a time: what is handed to a target now, what waits for an earlier message of its key.

Place: under `outgoing_bridge` for all messages, and under `incoming_bridge` for topics that refuse some of theirs. No
clock, no network; its owner holds a lock.
Promise: a message of a key is handed out only after the one before it was confirmed, also when it is handed out again
after a lost connection or a refusal that passes. Messages without a key do not wait for each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class QueuedWork(Generic[T]):
    """One message to hand out. `lane`: what it is ordered with; None: with nothing."""

    token: Hashable
    lane: Hashable | None
    value: T


class KeyLanes(Generic[T]):
    """All messages that wait, or are handed out and not confirmed."""

    def __init__(self) -> None:
        self._ready: deque[QueuedWork[T]] = deque()
        self._out: dict[Hashable, QueuedWork[T]] = {}  # in the order in which they were handed out
        self._later: list[QueuedWork[T]] = []
        self._lanes: dict[Hashable, deque[QueuedWork[T]]] = {}  # after the one that is ready, handed out or put off

    def __len__(self) -> int:
        return len(self._ready) + len(self._out) + len(self._later) + sum(map(len, self._lanes.values()))

    def offer(self, work: QueuedWork[T]) -> None:
        """Add a message, after all earlier ones of its lane."""
        if work.lane is None:
            self._ready.append(work)
        elif work.lane in self._lanes:
            self._lanes[work.lane].append(work)
        else:
            self._lanes[work.lane] = deque()
            self._ready.append(work)

    def due(self) -> list[QueuedWork[T]]:
        """Take what is to be handed out now."""
        found = list(self._ready)
        self._ready.clear()
        self._out.update((one.token, one) for one in found)
        return found

    def done(self, token: Hashable) -> QueuedWork[T] | None:
        """A message is confirmed, or given up. None: it was not handed out, as when it is confirmed twice."""
        work = self._out.pop(token, None)
        if work is not None and work.lane is not None:
            waiting = self._lanes[work.lane]
            if waiting:
                self._ready.append(waiting.popleft())
            else:
                del self._lanes[work.lane]
        return work

    def out(self, token: Hashable) -> QueuedWork[T] | None:
        """What was handed out under this token."""
        return self._out.get(token)

    def again(self, token: Hashable) -> None:
        """A message was not taken, for now: it is handed out again after `retry`."""
        work = self._out.pop(token, None)
        if work is not None:
            self._later.append(work)

    def retry(self) -> None:
        """Time has passed since `again`."""
        self._ready.extendleft(reversed(self._later))
        self._later.clear()

    def reconnect(self, keeps: Callable[[T], bool]) -> None:
        """What was handed out over the old connection is handed out again, but for what the new one `keeps`."""
        again = [one for one in self._out.values() if not keeps(one.value)]
        for one in again:
            del self._out[one.token]
        self._ready.extendleft(reversed(again))

    def give_up(self, lane: Hashable) -> list[QueuedWork[T]]:
        """Forget what waits in a lane after the one that is out, and return it."""
        found = list(self._lanes.get(lane, ()))
        if found:
            self._lanes[lane].clear()
        return found
