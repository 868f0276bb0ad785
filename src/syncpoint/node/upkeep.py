"""Upkeep: what a node does by the clock. Leases expire, checkpoints are written, what nobody needs is deleted.

Everything runs in small steps on the event loop, so no step delays a publish for long. What concerns the log alone is
in `publish/upkeep`.
"""

import asyncio
import logging

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.clock import Clock
from syncpoint.broker.publish.keep.upkeep import TICK_S, LogUpkeep, Rounds
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.catalog.metadata.mirror import CatalogMirror
from syncpoint.cluster.control.expiry import Expiry
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.node.uses import REACHED_S, Uses

log = logging.getLogger(__name__)

SLOWLY_S = 0.5
LAST_S = 5.0  # for the last note of an orderly end
CATCH_UP_S = 0.5  # for what has to be gained before anybody is served
CATCH_UP_STEPS = 10  # ... or this many steps on a slow machine
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
        self.log, self.rounds, self.clock = log, rounds, clock
        self.rounds.every(TICK_S, subscribe.tick)
        self.rounds.busy.append(lambda: not subscribe.at_rest)
        subscribe.stir = self.rounds.stir
        self.rounds.every(SLOWLY_S, lambda: mirror.flush())
        self.uses = Uses(control, publish, subscribe.used)
        publish.extensions.append(self.uses)
        self.rounds.every(REACHED_S, self.uses.tick)
        self.expiry = Expiry(control, self.uses, publish.clock)

    def start(self) -> None:
        """Begin."""
        self.expiry.start()

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
            log.exception("data left by earlier runs is not deleted yet; deletion will be retried")

    async def stop(self) -> None:
        """End the periodic work; what a step was doing is finished, and what was used is noted, where the disks answer
        in time: a later start counts from an earlier note then.
        """
        await self.expiry.stop()
        if self.rounds.tasks and self.log.publish.commit.failed is None and self.uses.has_news:
            try:
                async with asyncio.timeout(LAST_S):
                    await self.uses.note()
            except (SyncpointError, TimeoutError) as error:
                log.warning("cannot store when subscriptions were last used: %s", error)
        await self.rounds.stop()
