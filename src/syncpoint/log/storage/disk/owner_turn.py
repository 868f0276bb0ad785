"""Whose turn it is to change the log: the owner's, or that of whichever thread is closing the disks.

Place: held by `disk_set`; everything that disks report to the owner comes through `notify`.
Promise: what is reported while the disks are being closed runs on the closing thread; before and after, on the owner's;
nothing is lost in between, and never do two run at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from syncpoint.base.runtime.step_workers import Notify


class OwnerTurn:
    """`closed`: nothing new is taken, and until `finish` the closing thread alone changes the log."""

    def __init__(self, notify: Notify) -> None:
        self.closed = False
        self._notify = notify
        self._lock = threading.RLock()  # held by whatever changes the log for the threads
        self._finished = False
        self._deferred: list[Callable[[], None]] = []  # what came while the disks were being closed

    def close(self, last: Callable[[], None]) -> None:
        """From now on the closing thread alone changes the log; `last` is the owner's last change. Idempotent."""
        with self._lock:
            if not self.closed:
                self.closed = True
                last()

    def notify(self, act: Callable[[], None]) -> None:
        """Run `act` on the owner's thread, or on the one that is closing the disks; any thread."""
        with self._lock:
            if self._is_closing:
                self._deferred.append(act)
                return
        self._notify(partial(self._act, act))

    def run_deferred(self) -> None:
        """Run what was reported so far; the closing thread."""
        while self._deferred:
            self._deferred.pop(0)()

    def finish(self) -> None:
        """Run what is left and let the owner have the turn again; the closing thread."""
        while not self._finished:
            self.run_deferred()
            with self._lock:
                self._finished = not self._deferred

    @property
    def _is_closing(self) -> bool:
        return self.closed and not self._finished

    def _act(self, act: Callable[[], None]) -> None:
        with self._lock:
            if self._is_closing:
                self._deferred.append(act)
            else:
                act()
