"""Upkeep of logs: checkpoints are written, what nobody needs is deleted, disks are watched.

Place: `LogUpkeep` is the work on one log; `Rounds` steps it for all logs of a process, a node or a host of chains, with
what else is done by the clock there. Everything happens in small steps on the event loop, so no step delays a publish
for long. A checkpoint is taken after so many bytes of log or so much time with new facts, whichever comes first;
recovery replays at most that much.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.base.runtime.ticks import Ticks
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.publish.keep.retention import forget_empty_sources, is_needed
from syncpoint.log.storage.store import CheckpointWriter, Store

log = logging.getLogger(__name__)

TICK_S = 0.1
REST_S = 0.5  # between two ticks while nothing happens
REST_AFTER_S = 1.0  # without news
QUICK_S = 0.02  # between two steps of deletion, while there is something to gain
DISKS_S = 1.0
CHECKPOINT_S = 30.0
CHECKPOINT_ENTRIES = 20_000
CHECKPOINT_BYTES = 128 << 20
QUICK_STEPS = 50  # of deletion: at the start and after a checkpoint there is the most to delete
UNCOVERED_LOGS_MAX = 3  # short lives in succession that may leave a start without its own checkpoint
EARLIER_LOGS_MAX = 32  # logs that may leave something to clean up later


class LogUpkeep:
    """The periodic work on one log. `parts` draws a checkpoint's parts; `name` begins its messages to operators."""

    def __init__(
        self,
        store: Store,
        publish: PublishForwarder,
        parts: Callable[[], Iterator[bytes]],
        now: float,
        *,
        begin_with_checkpoint: bool = True,
        name: str = "",
    ) -> None:
        """`begin_with_checkpoint`: something was read at the start that no checkpoint holds."""
        self.store, self.publish = store, publish
        self._parts, self._name = parts, name
        self.checkpoint: CheckpointWriter | None = None  # the one being written
        self.overdue = begin_with_checkpoint
        self._checkpointed = 0  # position of the last checkpoint's end
        self._checkpointed_bytes = 0
        self._checkpointed_at = now
        self._not_before = now  # a checkpoint that broke is not begun anew at once: what there was of it is in the log
        self._more_to_collect = False
        self._quick_steps = QUICK_STEPS
        self._news_at, self._news = now, -1
        self._disk_states: dict[str, str] = {}
        self._damages: dict[str, set[str]] = {}

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def is_busy(self, now: float) -> bool:
        """Whether something is going on in the log, or was a moment ago."""
        if self.store.appended != self._news:
            self._news, self._news_at = self.store.appended, now
        return self.checkpoint is not None or self.in_a_hurry or now < self._news_at + REST_AFTER_S

    def advance_checkpoint(self, now: float) -> None:
        """Begin a checkpoint when there is enough to forget, or go on with the one being written."""
        if self.publish.commit.failed is not None:
            return
        if self.checkpoint is None or self.checkpoint.broken:
            news = self.store.appended - self._checkpointed
            due = (
                news >= CHECKPOINT_ENTRIES
                or self.store.appended_bytes - self._checkpointed_bytes >= CHECKPOINT_BYTES
                or (news and now - self._checkpointed_at >= CHECKPOINT_S)
            )
            if not (self.overdue or due) or now < self._not_before:
                return
            self._not_before = now + CHECKPOINT_S
            self.checkpoint = self.store.checkpoint(self._parts())
        self.publish.commit.append_pending()  # what a checkpoint has about messages stands after them
        if self.checkpoint.step():
            self._checkpoint_ended(now)
        self.publish.commit.flush_soon()

    def _checkpoint_ended(self, now: float) -> None:
        self._not_before = now
        self.publish.ends_written()
        self.overdue, self._quick_steps = False, QUICK_STEPS
        self._checkpointed, self._checkpointed_at, self.checkpoint = self.store.appended, now, None
        self._checkpointed_bytes = self.store.appended_bytes

    def last_checkpoint(self) -> None:
        """Write a whole checkpoint now: the next start replays nothing else."""
        if self.publish.commit.failed is None:
            self.publish.commit.append_pending()
            begun = self.checkpoint
            checkpoint = self.store.checkpoint(self._parts()) if begun is None or begun.broken else begun
            while not checkpoint.step():
                pass
            self._checkpoint_ended(self.publish.clock.monotonic())
            self.store.flush()

    # -- what lives too short for it have left -----------------------------------------------------------------------

    @property
    def behind(self) -> bool:
        """Whether lives that ended too soon have left so much that the next start would take longer for it. A lasting
        backlog does not count: it is of few logs, for what little is left of others is copied forward.
        """
        return self.store.uncovered_logs > UNCOVERED_LOGS_MAX or self.store.earlier_logs > EARLIER_LOGS_MAX

    def catch_up(self) -> None:
        """A step for the time before anybody is served: a whole checkpoint, then deletion."""
        if self.overdue:
            self.last_checkpoint()
        self.collect()

    # -- deletion ----------------------------------------------------------------------------------------------------

    @property
    def in_a_hurry(self) -> bool:
        """Whether there is something to gain by the next step of deletion."""
        return self._more_to_collect or self._quick_steps > 0

    def collect(self) -> None:
        """One step of deletion, of a millisecond or two."""
        self._more_to_collect = False
        if self.publish.commit.failed is None:
            # What is judged by has its place in the log: storage waits until that is synced.
            self.publish.commit.flush()
            publish = self.publish
            report = self.store.collect(partial(is_needed, publish), publish.needs.version, publish.needed_since)
            self._more_to_collect = report.busy or bool(report.removed)
            if report.removed:
                forget_empty_sources(self.publish)
            # Something is being moved, or a life too short for slow steps has to get round all segments once.
            self._quick_steps = QUICK_STEPS if report.busy else max(0, self._quick_steps - 1)

    # -- disks -------------------------------------------------------------------------------------------------------

    def watch_disks(self) -> None:
        """What becomes of a disk is reported where an operator looks first: in the server's output."""
        status, name = self.store.status(), self._name
        for disk in status.disks:
            state = f"{disk.state}: {disk.reason}" if disk.reason else disk.state
            if self._disk_states.setdefault(disk.path, "ok") != state:
                self._disk_states[disk.path] = state
                level = logging.INFO if disk.state == "ok" else logging.WARNING
                log.log(level, "%sdisk %s is %s (identity %s)", name, disk.path, state, disk.incarnation or "none")
            for damage in set(disk.damaged) - self._damages.get(disk.path, set()):
                if len(status.disks) > 1:
                    log.warning("%sdisk %s is damaged, the others are read instead: %s", name, disk.path, damage)
                else:
                    log.error(
                        "%sdisk %s is damaged, what is lost there cannot be delivered: %s", name, disk.path, damage
                    )
            self._damages[disk.path] = set(disk.damaged)
        refused = "the disks are full" if status.full else "too few disks work" if status.too_few else ""
        if self._disk_states.setdefault("", "") != refused:
            self._disk_states[""] = refused
            if refused:
                log.warning("%s%s: publishing is refused", name, refused)
            else:
                log.warning("%sthere are disks enough that work and have room: publishing is resumed", name)


class Rounds:
    """What a process does by the clock. `logs`: those that are open; `served`: those of them that may delete. `busy`:
    functions that return whether something is to be done in time, besides what the logs are busy with.
    """

    def __init__(
        self, clock: Clock, logs: Callable[[], Iterable[LogUpkeep]], served: Callable[[], Iterable[LogUpkeep]]
    ) -> None:
        self._clock, self._logs, self._served = clock, logs, served
        self._steps: list[tuple[float, Callable[[], object]]] = [(DISKS_S, self._watch_disks)]
        self.busy: list[Callable[[], bool]] = []
        self._ticks, self._leisure = Ticks(clock, TICK_S, REST_S), Ticks(clock, TICK_S, REST_S)
        self.tasks = Tasks()

    def every(self, seconds: float, step: Callable[[], object]) -> None:
        """Call `step` about that often, every `TICK_S` at most, and every `REST_S` at rest."""
        self._steps.append((seconds, step))

    def start(self) -> None:
        """Begin."""
        self.tasks.start(self._run())
        self.tasks.start(self._run_collection())

    async def stop(self) -> None:
        """End; what a step was doing is finished. Idempotent."""
        await self.tasks.stop()

    def stir(self) -> None:
        """Something has begun of which `busy` knows."""
        self._ticks.stir()

    def guard(self, step: Callable[[], object]) -> None:
        """A failing step is a fault to be seen, and no reason to stop the others."""
        try:
            step()
        except Exception:
            log.exception("upkeep step failed; it will be tried again")

    async def _run(self) -> None:
        due = [0.0] * len(self._steps)
        while True:
            await self._ticks.pause(busy=self._is_busy())
            now = self._clock.monotonic()
            for one in list(self._logs()):
                self.guard(partial(one.advance_checkpoint, now))
            for number, (seconds, step) in enumerate(self._steps):
                if now >= due[number]:
                    due[number] = now + seconds - TICK_S / 2 if seconds > TICK_S else 0.0
                    self.guard(step)

    async def _run_collection(self) -> None:
        """Deletion in steps of a millisecond or two: often while there is something to gain, else at leisure."""
        while True:
            logs = list(self._served())
            hurry = any(one.in_a_hurry for one in logs)
            if hurry:
                await asyncio.sleep(QUICK_S)
            else:
                await self._leisure.pause(busy=self._is_busy())
            for one in logs:
                if one.in_a_hurry or not hurry:
                    self.guard(one.collect)
                    await asyncio.sleep(0)

    def _is_busy(self) -> bool:
        now = self._clock.monotonic()
        return any(one.is_busy(now) for one in self._logs()) or any(busy() for busy in self.busy)

    def _watch_disks(self) -> None:
        for one in list(self._logs()):
            self.guard(one.watch_disks)
