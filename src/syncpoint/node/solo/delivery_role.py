"""The subscribe forwarder of a node, which reads the one log in its own process, and what the clock asks for."""

from __future__ import annotations

import asyncio
from typing import Final

from syncpoint.broker.pipeline.exclusive_readers import NodeReaders
from syncpoint.broker.subscribe.rule_work import RuleWork
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.catalog.metadata.records import CatalogChange, Setting
from syncpoint.front.api.streaming_pull import StreamingPullService
from syncpoint.front.api.subscriber import SubscriberService
from syncpoint.node.solo.log_role import LogRole
from syncpoint.node.solo.solo_context import SoloContext
from syncpoint.node.upkeep import Upkeep

ACK_KEY: Final = "ack-id-key"
"""The setting that holds the key; in the log, so that ack ids survive the loss of the data folder."""


class DeliveryRole:
    """Deliver the messages of a node."""

    def __init__(self, context: SoloContext, log: LogRole) -> None:
        self._context, self._log = context, log

    async def start(self) -> None:
        """Make the parts."""
        context, log = self._context, self._log
        self.forwarder = SubscribeForwarder(
            log.publish.server,
            log.control.catalog,
            context.clock,
            key=await self._ack_key(),
            random=context.random,
            soon=asyncio.get_running_loop().call_soon,
            recorder=context.recorder,
        )
        self.work = self.forwarder.work = RuleWork(context.environment.apart)
        log.pipelines.reader.exclusive = NodeReaders(log.publish, self.forwarder, log.control.commit)
        self.streams = StreamingPullService(self.forwarder, context.limits)
        self.pulls = SubscriberService(self.forwarder)
        self.upkeep = Upkeep(
            log.chain.upkeep, log.host.rounds, self.forwarder, log.control, context.mirror, context.clock
        )

    async def on_joined(self) -> None:
        """Delete what short lives have left before anybody is served."""
        self.upkeep.start()
        await self.upkeep.catch_up()

    async def drain(self) -> None:
        """Its pulls and streams have ended with the port."""

    async def stop(self) -> None:
        """Note what was used."""
        await self.work.stop()
        await self.upkeep.stop()

    async def _ack_key(self) -> bytes:
        control = self._log.control
        key = control.catalog.setting(ACK_KEY)
        if key is None:
            key = self._context.random.token(32)
            await control.commit([CatalogChange.put(Setting(ACK_KEY, key))])
        return key
