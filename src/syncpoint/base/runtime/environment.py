"""What a process is given of its machine, as one value: clock, randomness, files, threads, and the way back from them.

Place: handed down to whatever touches any of it; a simulation hands in its own. What is wider than one room (network,
certificates, locks) a process adds in `node.node_environment`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from syncpoint.base.runtime.clock import Clock, SystemClock
from syncpoint.base.runtime.files import Files
from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.base.runtime.own_threads import in_own_thread
from syncpoint.base.runtime.random import Random, SystemRandom
from syncpoint.base.runtime.step_workers import Notify, ThreadWorkers, Workers, notifier


@dataclass(frozen=True)
class Environment:
    """`make_workers`: the threads of one store. `notify`: has something done on the owner's thread; None: in the event
    loop that runs when `notifier` is asked for. `blocking` runs what waits for disks, `outside` what waits for services
    of others.
    """

    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=SystemRandom)
    files: Files = field(default_factory=OsFiles)
    make_workers: Callable[[], Workers] = ThreadWorkers
    notify: Notify | None = None
    blocking: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]] = asyncio.to_thread
    outside: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]] = in_own_thread
    measures_itself: bool = True  # how late its event loop is

    def notifier(self) -> Notify:
        """The way back to the owner."""
        return self.notify or notifier(asyncio.get_running_loop())
