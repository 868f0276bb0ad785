"""Call queues: calls to one disk after the other, each waited for as long as the disk is alive and no longer.

Place: `copy_reader` reads through them where a segment has several copies, so that a disk which hangs holds up nobody
for longer than a patience, once; later calls fail immediately, until the call has returned.
Threads: one per queue, begun with its first call; callers are any threads.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.files import DiskUnreachable

Result = TypeVar("Result")
_LOOK_S = 0.05  # how often a caller sees whether the call before its own hangs


class CallQueue(Protocol):
    """The way to one disk."""

    def run(self, call: Callable[[], Result], patience_s: float) -> Result:
        """What `call` returns or raises; `DiskUnreachable` when one call takes the disk longer than `patience_s`."""
        ...

    def hangs(self, patience_s: float) -> bool: ...

    def stop(self) -> None: ...


class InlineCalls:
    """For those who want no threads."""

    def run(self, call: Callable[[], Result], patience_s: float) -> Result:
        return call()

    def hangs(self, patience_s: float) -> bool:
        return False

    def stop(self) -> None:
        """There is nothing to stop."""


class _QueuedCall(Generic[Result]):
    __slots__ = ("act", "answer", "done", "error", "left")

    def __init__(self, act: Callable[[], Result]) -> None:
        self.act = act
        self.answer: Result | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()
        self.left = False  # nobody waits for it any more


class ThreadedCalls:
    """A thread for one disk."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._calls: SimpleQueue[_QueuedCall[object] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._began: float | None = None
        self._ended = False
        self._thread: threading.Thread | None = None

    def hangs(self, patience_s: float) -> bool:
        began = self._began
        return began is not None and self._clock.monotonic() - began > patience_s

    def run(self, call: Callable[[], Result], patience_s: float) -> Result:
        made: _QueuedCall[Result] = _QueuedCall(call)
        if self.hangs(patience_s) or self._ended:
            raise self._no_answer(patience_s)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
        self._calls.put(made)  # type: ignore[arg-type]
        while not made.done.wait(min(patience_s, _LOOK_S)):
            if self.hangs(patience_s) or self._ended:
                made.left = True
                raise self._no_answer(patience_s)
        if made.error is not None:
            raise made.error
        return made.answer  # type: ignore[return-value]

    def _no_answer(self, patience_s: float) -> DiskUnreachable:
        return DiskUnreachable(errno.ETIMEDOUT, f"a read has taken longer than {patience_s} s")

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if call.left:
                continue
            self._began = self._clock.monotonic()
            try:
                call.answer = call.act()
            except BaseException as error:  # handed to the one who asked
                call.error = error
            self._began = None
            call.done.set()

    def stop(self) -> None:
        """End once what is under way has ended; nobody waits for that."""
        self._ended = True
        self._calls.put(None)
