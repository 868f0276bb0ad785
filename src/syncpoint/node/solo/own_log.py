"""Messages of the one log in the own process, and what the clock asks for on a node.

Place: the `Upstream` of a node.
"""

from __future__ import annotations

from syncpoint.broker.pipeline.exclusive_readers import NodeReaders
from syncpoint.node.solo.own_chain import OwnChain
from syncpoint.node.solo.solo_context import SoloContext
from syncpoint.node.subscribe_role import Fetching, SubscribeRole, Upstream
from syncpoint.node.upkeep import Upkeep


class OwnLog(Upstream):
    """Deliver from the chain of a node."""

    def __init__(self, context: SoloContext, log: OwnChain) -> None:
        self._context, self._log = context, log

    async def fetching(self) -> Fetching:
        return Fetching(self._log.publish.server, self._log.ack_key)

    def serve(self, role: SubscribeRole) -> None:
        context, log = self._context, self._log
        log.pipelines.reader.exclusive = NodeReaders(log.publish, role.forwarder, log.control.commit)
        self.upkeep = Upkeep(
            log.chain.upkeep, log.host.rounds, role.forwarder, log.control, context.mirror, context.clock
        )

    async def on_joined(self) -> None:
        """Delete what short lives have left before anybody is served."""
        self.upkeep.start()
        await self.upkeep.catch_up()

    async def stop(self) -> None:
        """Note what was used."""
        await self.upkeep.stop()
