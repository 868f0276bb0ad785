"""Drives the monitor: a look every ten seconds, at once where that is too late, notifications with bounded retries,
answers to questions.

Place: one for a node, a server with workers, a cluster, or the targets of `syncpoint monitor`.
Promise: whatever takes longer than a turn of the event loop happens in one thread of the monitor's; a process that
does not answer in time is passed over, and that is a condition of its own. A look that fails is logged, and the next
one follows.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.random import Random
from syncpoint.watch.monitor.alert_machine import Notification
from syncpoint.watch.monitor.history_file import HistoryFile
from syncpoint.watch.monitor.monitor_core import LOOK_S, MonitorCore, ProcessText
from syncpoint.watch.monitor.monitor_file import MonitorFile
from syncpoint.watch.monitor.monitor_settings import MonitorSettings
from syncpoint.watch.monitor.notifiers import PAUSES_S, NotNotified, content_of, grouped, notify

FILE: Final = "monitor.sqlite"
ANSWER_S: Final = 5.0
FIRST_S: Final = 1.0  # until the first look: a start has enough to do
GLANCE_S: Final = 1.0
_T = TypeVar("_T")

log = logging.getLogger(__name__)


class LookedAt(Protocol):
    """A process whose metrics are read. `fresh`: it begins with the monitor."""

    name: str
    labels: dict[str, str]
    fresh: bool
    url: str

    async def text(self) -> bytes:
        """Its metrics now; whatever it raises means that it does not answer."""
        ...


class Monitor:
    """Drive the monitor: read metrics, evaluate them, and send notifications.

    `processes`: whose metrics are read, asked at each look; `folder`: where the file is; `urgent`: asked every second,
    how much there is that must not wait for the next look.
    """

    def __init__(
        self,
        settings: MonitorSettings,
        folder: Path,
        processes: Callable[[], Sequence[LookedAt]],
        clock: Clock,
        random: Random,
        *,
        look_s: float = LOOK_S,
        pauses_s: Sequence[float] = PAUSES_S,
        urgent: Callable[[], int] | None = None,
    ) -> None:
        self.settings, self.folder, self._processes = settings, folder, processes
        self._clock, self._random, self._look_s, self._pauses_s = clock, random, look_s, pauses_s
        self._urgent, self._urgent_before = urgent, 0
        self._thread = ThreadPoolExecutor(1, "monitor")
        self._core: MonitorCore | None = None
        self._looking: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._silent: set[str] = set()  # processes that did not answer at the newest look

    @property
    def now_s(self) -> float:
        """Seconds since 1970."""
        return self._clock.time_ns() / 1e9

    async def start(self) -> None:
        """Open the file, and begin. Raises `InvalidArgument` for a gap, SQLite's errors, `OSError`."""
        await self._in_thread(self._open)
        self._looking = asyncio.get_running_loop().create_task(self._look_on())

    async def stop(self) -> None:
        """No more looks; what is being sent is given up, and sent at the next start."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        if self._core is not None:
            await self._in_thread(self._close)
        self._thread.shutdown()

    async def ask(self, question: Callable[[MonitorCore], _T]) -> _T:
        """Ask in the monitor's thread; what the question raises."""
        core = self._core
        assert core is not None
        return await self._in_thread(lambda: question(core))

    async def probers(self) -> list[tuple[str, str]]:
        """Prober programs: what each is called, and the address of its metrics."""
        known = await self.ask(lambda core: core.probers())
        return [(one.name, one.url) for one in self._processes() if one.name in known and one.url]

    async def look(self) -> None:
        """Read all processes once."""
        texts = await asyncio.gather(*map(self._answer, self._processes()))
        now_s = self.now_s
        self._send(await self.ask(lambda core: core.look(list(texts), now_s)))

    # -- inside ------------------------------------------------------------------------------------------------------

    async def _look_on(self) -> None:
        loop = asyncio.get_running_loop()
        self._send(await self.ask(lambda core: core.machine.unsent()))
        await asyncio.sleep(FIRST_S)
        while True:
            next_s = loop.time() + self._look_s
            try:
                await self.look()
            except Exception:
                log.exception("the monitor could not check; it will try again")
            await self._pause(next_s)

    async def _pause(self, until_s: float) -> None:
        """Until the next look is due, or more is urgent than a second ago."""
        loop = asyncio.get_running_loop()
        while (left_s := until_s - loop.time()) > 0:
            await asyncio.sleep(left_s if self._urgent is None else min(left_s, GLANCE_S))
            before, self._urgent_before = self._urgent_before, 0 if self._urgent is None else self._urgent()
            if self._urgent_before > before:
                return

    async def _answer(self, process: LookedAt) -> ProcessText:
        text: bytes | None = None
        try:
            async with asyncio.timeout(ANSWER_S):
                text = await process.text()
        except Exception as error:  # whatever the way to it raises; that it does not answer is what is reported
            if process.name not in self._silent:
                reason = str(error) or type(error).__name__
                log.warning("the metrics of %s cannot be read; trying again at each check: %s", process.name, reason)
            self._silent.add(process.name)
        else:
            if process.name in self._silent:
                log.info("the metrics of %s can be read again", process.name)
            self._silent.discard(process.name)
        return ProcessText(process.name, process.labels, text, process.fresh)

    def _send(self, notifications: Sequence[Notification]) -> None:
        for group in grouped(notifications):
            task = asyncio.get_running_loop().create_task(self._sent(group))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _sent(self, group: Sequence[Notification]) -> None:
        person, reason = group[0].person, ""
        content = content_of(group, self.settings)
        for pause_s in (*self._pauses_s, None):
            try:
                await asyncio.to_thread(notify, person, content, self.settings)
            except NotNotified as error:
                reason = str(error)
                log.warning("%s could not be notified of %s: %s", person.name, content["rule"], reason)
            else:
                await self.ask(partial(_noted, group=group, reason="", now_s=self.now_s))
                break
            if pause_s is None:
                await self.ask(partial(_noted, group=group, reason=reason, now_s=self.now_s))
            else:
                await asyncio.sleep(pause_s)
        await self.ask(lambda core: core.keep())

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / FILE
        try:
            file = MonitorFile(HistoryFile(path))
        except sqlite3.OperationalError:  # locked, or no room: it may be well
            raise
        except sqlite3.DatabaseError as error:
            aside = path.with_suffix(".damaged")
            log.error("%s is damaged (%s): it was renamed to %s, and a new history begins", path, error, aside)
            path.replace(aside)
            for more in ("-wal", "-shm"):
                path.with_name(FILE + more).unlink(missing_ok=True)
            file = MonitorFile(HistoryFile(path))
        self._core = MonitorCore(self.settings, file, lambda: self._random.token(6).hex(), self.now_s)

    def _close(self) -> None:
        core, self._core = self._core, None
        assert core is not None
        core.keep()
        core.file.flush()
        core.file.history.close()

    async def _in_thread(self, function: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)


def _noted(core: MonitorCore, group: Sequence[Notification], reason: str, now_s: float) -> None:
    """Each alert knows that somebody was notified of it, or for which reason that failed."""
    for alert, person, why in group:
        if reason:
            core.machine.not_sent(alert, person.name, why, reason, now_s)
        else:
            core.machine.sent(alert, person.name, why, now_s)
