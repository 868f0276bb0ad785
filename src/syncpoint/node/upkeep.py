"""Upkeep: what a node does by the clock. Leases expire, checkpoints are written, what nobody needs is deleted.

Everything runs in small steps on the event loop, so no step delays a publish for long. A checkpoint is taken after so
many bytes of log or so much time with new facts, whichever comes first; recovery replays at most that much.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from syncpoint.metadata.records import Change
from syncpoint.node.control import ControlPlane
from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.publish.retention import forget_empty_sources, is_needed
from syncpoint.runtime.clock import Clock
from syncpoint.storage.store import Checkpoint, Store
from syncpoint.subscribe.forwarder import TICK_S, SubscribeForwarder

log = logging.getLogger(__name__)

SLOWLY_S = 0.5
EXPIRE_S = 60.0
CHECKPOINT_S = 30.0
CHECKPOINT_ENTRIES = 20_000
CHECKPOINT_BYTES = 128 << 20
DISKS_S = 1.0
QUICK_STEPS = 50  # of deletion, `QUICK_S` apart: at the start and behind a checkpoint there is the most to delete
QUICK_S = 0.02


class Upkeep:
    """The periodic work of one node."""

    def __init__(
        self,
        store: Store,
        publish: PublishForwarder,
        subscribe: SubscribeForwarder,
        control: ControlPlane,
        clock: Clock,
        *,
        begin_with_checkpoint: bool = True,
    ) -> None:
        """`begin_with_checkpoint`: something was read at the start that no checkpoint holds."""
        self.store, self.publish, self.subscribe, self.control, self.clock = store, publish, subscribe, control, clock
        self._tasks: list[asyncio.Task[None]] = []
        self._began = clock.monotonic()
        self._checkpoint: Checkpoint | None = None
        self._overdue = begin_with_checkpoint
        self._checkpointed = 0  # position of the last checkpoint's end
        self._checkpointed_bytes = 0
        self._more_to_collect = False
        self._quick_steps = QUICK_STEPS
        self._disk_states: dict[str, str] = {}
        self._damages: dict[str, set[str]] = {}
        self._checkpointed_at = self._began
        self._background: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run()), loop.create_task(self._run_collection())]

    async def stop(self) -> None:
        """End the periodic work; what a step was doing is finished."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._background, return_exceptions=True)

    async def _run(self) -> None:
        slowly_at = expire_at = disks_at = 0.0
        while True:
            await asyncio.sleep(TICK_S)
            now = self.clock.monotonic()
            self._guard(self.subscribe.tick)
            self._guard(partial(self._advance_checkpoint, now))
            if now >= slowly_at:
                slowly_at = now + SLOWLY_S
                self._guard(self.control.mirror.flush)
            if now >= disks_at:
                disks_at = now + DISKS_S
                self._guard(self._watch_disks)
            if now >= expire_at:
                expire_at = now + EXPIRE_S
                self._guard(self._expire)

    async def _run_collection(self) -> None:
        """Deletion in steps of a millisecond or two: often while there is something to gain, else at leisure."""
        while True:
            await asyncio.sleep(QUICK_S if self._more_to_collect or self._quick_steps else TICK_S)
            self._more_to_collect = False
            self._guard(self._collect)

    def _guard(self, step: Callable[[], object]) -> None:
        """A failing step is a fault to be seen, and no reason to stop the others."""
        try:
            step()
        except Exception:
            log.exception("upkeep step failed; it will be tried again")

    def _advance_checkpoint(self, now: float) -> None:
        """Begin a checkpoint when there is enough to forget, or go on with the one being written."""
        if self.publish.failed is not None:
            return
        if self._checkpoint is None:
            news = self.store.appended - self._checkpointed
            due = (
                news >= CHECKPOINT_ENTRIES
                or self.store.appended_bytes - self._checkpointed_bytes >= CHECKPOINT_BYTES
                or (news and now - self._checkpointed_at >= CHECKPOINT_S)
            )
            if not (self._overdue or due):
                return
            self._checkpoint = self.store.checkpoint(self.publish.checkpoint_parts())
        if self._checkpoint.step():
            self._overdue, self._quick_steps = False, QUICK_STEPS
            self._checkpointed, self._checkpointed_at, self._checkpoint = self.store.appended, now, None
            self._checkpointed_bytes = self.store.appended_bytes
        self.publish.flush_soon()

    def last_checkpoint(self) -> None:
        """Write a whole checkpoint now: the next start replays nothing else."""
        if self.publish.failed is None:
            checkpoint = self._checkpoint or self.store.checkpoint(self.publish.checkpoint_parts())
            while not checkpoint.step():
                pass
            self.store.flush()

    def _collect(self) -> None:
        if self.publish.failed is None:
            report = self.store.collect(partial(is_needed, self.publish))
            self._more_to_collect = report.busy or bool(report.removed)
            if report.removed:
                forget_empty_sources(self.publish)
            # Something is being moved, or a life too short for slow steps has to get round all segments once.
            self._quick_steps = QUICK_STEPS if report.busy else max(0, self._quick_steps - 1)

    def _watch_disks(self) -> None:
        """What becomes of a disk is told where an operator looks first: in the server's output."""
        status = self.store.status()
        for disk in status.disks:
            state = f"{disk.state}: {disk.reason}" if disk.reason else disk.state
            if self._disk_states.setdefault(disk.path, "ok") != state:
                self._disk_states[disk.path] = state
                level = logging.INFO if disk.state == "ok" else logging.WARNING
                log.log(level, "disk %s is %s (identity %s)", disk.path, state, disk.incarnation or "none")
            for damage in set(disk.damaged) - self._damages.get(disk.path, set()):
                if len(status.disks) > 1:
                    log.warning("disk %s is damaged, the others are read instead: %s", disk.path, damage)
                else:
                    log.error("disk %s is damaged, what is lost there can not be delivered: %s", disk.path, damage)
            self._damages[disk.path] = set(disk.damaged)
        full = "full" if status.full else "not full"
        if self._disk_states.setdefault("", "not full") != full:
            self._disk_states[""] = full
            log.warning("the disks are %s: publishing is %s", full, "refused" if status.full else "resumed")

    def _expire(self) -> None:
        """Snapshots past their time, and subscriptions nobody used for as long as their policy says, are deleted."""
        if self.publish.failed is not None:
            return
        catalog, now_ns = self.control.catalog, self.clock.time_ns()
        gone: list[Change] = [Change.delete(record) for record in catalog.snapshots() if record.expire_ns <= now_ns]
        now, used_at = self.clock.monotonic(), self.subscribe.used
        for incarnation in [one for one in used_at if catalog.subscription_by_incarnation(one) is None]:
            del used_at[incarnation]
        for record in catalog.subscriptions():
            used = used_at.get(record.incarnation, self._began)
            idle_s = min(now - used, (now_ns - record.created_ns) / 1e9)
            if record.expiration_s is not None and idle_s > record.expiration_s:
                gone.append(Change.delete(record))
        if gone:
            log.info("deleting %d expired snapshots and subscriptions", len(gone))
            task = asyncio.get_running_loop().create_task(self.control.commit(gone))
            self._background.add(task)
            task.add_done_callback(self._background.discard)
