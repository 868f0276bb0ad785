"""An event loop in a thread of its own, for those who do not have one.

Place: under the blocking publisher and subscriber; their work is the same as that of the asyncio ones.
Promise: the thread ends with `stop`, at the end of the program at the latest, and keeps no program from ending.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


class LoopThread:
    """Runs coroutines from other threads."""

    def __init__(self, name: str) -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._process = os.getpid()
        self._stopped = False
        self._lock = threading.Lock()  # nothing is given to a loop that is about to end
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine there and wait for it. Raises what it raises, and as `check` does."""
        try:
            self.check(waits=True)
            with self._lock:
                if self._stopped:
                    raise RuntimeError("the client is closed")
                future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            work.close()
            raise
        return future.result(timeout_s)

    def check(self, *, waits: bool = False) -> None:
        """Raises `RuntimeError` in a process that was forked since, which has no such thread, and for a call that
        `waits` on that thread itself, which would wait for ever.
        """
        if self.forked:
            raise RuntimeError("the client was made before this process was forked: make one in each process")
        if waits and threading.current_thread() is self._thread:
            raise RuntimeError("this call waits, and must not be made in a callback of the client's own thread")

    @property
    def forked(self) -> bool:
        """Whether this process was forked since."""
        return os.getpid() != self._process

    def stop(self) -> None:
        """End the thread; what still runs there is cancelled."""
        with self._lock:
            stopped, self._stopped = self._stopped, True
        if not stopped:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self.loop.close()
