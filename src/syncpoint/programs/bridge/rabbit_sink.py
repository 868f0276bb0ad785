"""An exchange of RabbitMQ as the target of a bridge.

Place: after `outgoing_bridge`; runs in the thread of `rabbit_link`. Messages are persistent and mandatory: RabbitMQ
returns those that reach no queue, before it confirms them.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from pika.channel import Channel
from pika.spec import Basic, BasicProperties

from syncpoint.programs.bridge.bridge_file import BridgeFile
from syncpoint.programs.bridge.key_lanes import QueuedWork
from syncpoint.programs.bridge.message_shape import SERVER_ID, BridgedMessage
from syncpoint.programs.bridge.rabbit_link import RabbitLink
from syncpoint.programs.bridge.rabbit_shape import published

if TYPE_CHECKING:
    from syncpoint.programs.bridge.outgoing_bridge import BridgedWork, OutgoingBridge

log = logging.getLogger(__name__)


class RabbitSink:
    """Sends to the exchanges of a file."""

    def __init__(self, file: BridgeFile) -> None:
        """Raises `OSError` for files that cannot be read."""
        self._link = RabbitLink(file.broker)
        self._bridge: OutgoingBridge | None = None
        self._channel: Any = None  # pika's has no types
        self._works: dict[int, QueuedWork[BridgedWork]] = {}  # by delivery tag, in their order
        self._sent = 0  # the last delivery tag of the channel

    def begin(self, bridge: OutgoingBridge) -> None:
        self._bridge = bridge
        self._link.opened, self._link.closed, self._link.on_end = self._opened, self._closed, bridge.end
        self._link.begin()

    def prepare(self, message: BridgedMessage) -> BasicProperties:
        return published(message)

    def send(self, works: list[QueuedWork[BridgedWork]]) -> None:
        self._link.call(partial(self._publish, self._channel, works))

    def close(self) -> None:
        self._link.close()

    @property
    def _to(self) -> OutgoingBridge:
        assert self._bridge is not None
        return self._bridge

    def _opened(self, channel: Channel) -> None:
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._answered, callback=lambda _: self._ready(channel))

    def _ready(self, channel: Channel) -> None:
        self._channel, self._sent = channel, 0
        self._works.clear()
        log.info("connected")
        self._to.connected(lambda _: False)

    def _closed(self) -> None:
        self._to.disconnected()

    def _publish(self, channel: Any, works: list[QueuedWork[BridgedWork]]) -> None:
        for work in works:
            if channel is None or channel is not self._channel or not channel.is_open:
                return  # they are sent again over the next one
            message, properties = work.value.message, work.value.prepared
            self._sent += 1
            self._works[self._sent] = work
            channel.basic_publish(message.rule.exchange, message.target, message.data, properties, mandatory=True)

    def _returned(self, _: Channel, method: Basic.Return, properties: BasicProperties, __: bytes) -> None:
        found = (properties.headers or {}).get(SERVER_ID)
        for tag, work in self._works.items():
            one = work.value.message
            if (one.id, one.rule.exchange, one.target) == (found, method.exchange, method.routing_key):
                del self._works[tag]  # its confirmation follows, and counts for nothing
                reason = f"RabbitMQ returns it: {method.reply_text}, exchange {method.exchange!r}, "
                self._to.refused(work.token, f"{reason}routing key {method.routing_key!r}")
                return

    def _answered(self, frame: Any) -> None:
        answer: Basic.Ack | Basic.Nack = frame.method
        self._link.works()
        tags = [answer.delivery_tag]
        if answer.multiple:
            tags = [one for one in self._works if one <= answer.delivery_tag]
        tokens = [self._works.pop(tag).token for tag in tags if tag in self._works]
        if isinstance(answer, Basic.Ack):
            self._to.confirmed(tokens)
            return
        for token in tokens:
            self._to.again(token, "RabbitMQ does not confirm it, as when a queue is full")
