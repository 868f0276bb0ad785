"""Upkeep: what a node does by the clock. Leases expire, checkpoints are written, what nobody needs is deleted.

Everything runs in small steps on the event loop, so no step delays a publish for long. What concerns the log alone is
in `publish/upkeep`.
"""

import asyncio
import logging

from syncpoint.control.plane import ControlPlane
from syncpoint.metadata.mirror import CatalogMirror
from syncpoint.metadata.records import Change
from syncpoint.model.errors import SyncpointError
from syncpoint.node.uses import Uses
from syncpoint.publish.upkeep import TICK_S, LogUpkeep, Rounds
from syncpoint.runtime.clock import Clock
from syncpoint.runtime.tasks import Tasks
from syncpoint.subscribe.subscribe_forwarder import SubscribeForwarder

log = logging.getLogger(__name__)

SLOWLY_S = 0.5
EXPIRE_S = 60.0
LAST_S = 5.0  # for changes of the catalog that are under way at an orderly end
CATCH_UP_S = 0.5  # for what has to be gained before anybody is served
CATCH_UP_STEPS = 10  # ... or so many steps, where a machine has no time
CATCH_UP_PAUSE_S = 0.002  # between two of them: the disks sync


class Upkeep:
    """The periodic work of one node."""

    def __init__(
        self,
        log: LogUpkeep,
        rounds: Rounds,
        subscribe: SubscribeForwarder,
        control: ControlPlane,
        mirror: CatalogMirror,
        clock: Clock,
    ) -> None:
        publish = log.publish
        self.publish, self.subscribe, self.control, self.clock = publish, subscribe, control, clock
        self.log, self.rounds = log, rounds
        self.rounds.every(TICK_S, subscribe.tick)
        self.rounds.every(SLOWLY_S, lambda: mirror.flush())
        self.rounds.every(EXPIRE_S, self._expire)
        self._uses = Uses(control.catalog, publish.clock, subscribe.used)
        publish.extensions.append(self._uses)
        self._background = Tasks()

    def start(self) -> None:
        self.rounds.start()

    async def catch_up(self) -> None:
        """Before anybody is served: delete what lives too short for it have left, for a moment at most. Otherwise each
        of them would leave its log to the next one, and every start would take longer.
        """
        steps, end = 0, self.clock.monotonic() + CATCH_UP_S
        try:
            while self.log.behind and (steps < CATCH_UP_STEPS or self.clock.monotonic() < end):
                steps += 1
                self.log.catch_up()
                await asyncio.sleep(CATCH_UP_PAUSE_S)
        except Exception:
            log.exception("what earlier lives left is not deleted yet; it will be tried again")

    async def stop(self) -> None:
        """End the periodic work; what a step was doing is finished, and what was used is noted, where the disks answer
        in time: a later start counts from an earlier note then.
        """
        if self.rounds.tasks and self.publish.failed is None and self._uses.news:
            self._commit([self._uses.note()])
        await self.rounds.stop()
        if self._background:
            await asyncio.wait(self._background, timeout=LAST_S)

    def last_checkpoint(self) -> None:
        """Write a whole checkpoint now: the next start replays nothing else."""
        self.log.last_checkpoint()

    def _expire(self) -> None:
        """Snapshots past their time, and subscriptions nobody used for as long as their policy says, are deleted."""
        if self.publish.failed is not None:
            return
        catalog, now_ns = self.control.catalog, self.publish.clock.sure_ns()
        gone: list[Change] = [Change.delete(record) for record in catalog.snapshots() if record.expire_ns <= now_ns]
        used_at = self.subscribe.used
        for incarnation in [one for one in used_at if catalog.subscription_by_incarnation(one) is None]:
            del used_at[incarnation]
        for record in catalog.subscriptions():
            if record.expiration_s is not None and self._uses.idle_s(record) > record.expiration_s:
                gone.append(Change.delete(record))
        if gone:
            log.info("deleting %d expired snapshots and subscriptions", len(gone))
            self._commit(gone)
        if self._uses.due():
            self._commit([self._uses.note()])

    def _commit(self, changes: list[Change]) -> None:
        self._background.start(self._committed(changes))

    async def _committed(self, changes: list[Change]) -> None:
        try:
            await self.control.commit(changes)
        except SyncpointError as error:
            log.warning("what has expired or was used is not stored: %s", error)
