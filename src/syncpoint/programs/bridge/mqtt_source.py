"""An MQTT 5 broker as the source of a bridge.

Place: in front of `incoming_bridge`; the MQTT library has a thread, which calls it.
QoS 2 is not asked for: its first response would give the message to this process, which keeps nothing. What devices
publish with QoS 2 comes with QoS 1.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import socket
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from paho.mqtt.client import ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.programs.bridge.bridge_file import BridgeFile
from syncpoint.programs.bridge.mqtt_link import MqttLink
from syncpoint.programs.bridge.mqtt_shape import foreign, rule_for

if TYPE_CHECKING:
    from syncpoint.programs.bridge.incoming_bridge import IncomingBridge

log = logging.getLogger(__name__)


class MqttSource:
    """Messages of the filters of a file."""

    def __init__(self, file: BridgeFile) -> None:
        """Raises `OSError` for files that cannot be read."""
        self._file = file
        self._network = MqttLink(file.broker)
        self._bridge: IncomingBridge | None = None
        self._connects = 0

    def begin(self, bridge: IncomingBridge) -> None:
        self._bridge, network = bridge, self._network
        network.on_connect, network.on_disconnect = self._connected, self._disconnected
        network.on_subscribe, network.on_message = self._subscribed, self._came
        network.on_end = bridge.end
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = self._file.broker.session_expiry_s
        properties.ReceiveMaximum = self._file.messages
        network.begin(clean_start=False, properties=properties)

    def acknowledge(self, tokens: list[Hashable]) -> None:
        for packet in tokens:
            assert isinstance(packet, int)
            self._network.ack(packet, 1)

    def drop_connection(self) -> None:
        open_now: Any = self._network.socket()
        if open_now is not None:
            with contextlib.suppress(OSError):  # gone already
                open_now.shutdown(socket.SHUT_RDWR)

    def tick(self) -> None:
        """Nothing is to be done."""

    def close(self) -> None:
        self._network.close()

    @property
    def _to(self) -> IncomingBridge:
        assert self._bridge is not None
        return self._bridge

    def _connected(self, _: Any, __: Any, flags: ConnectFlags, reason: ReasonCode, ___: Any) -> None:
        if reason.is_failure:
            log.warning("the MQTT broker refuses the connection: %s", reason)
            return
        kept = flags.session_present
        self._to.connected(lambda _: kept, lost_session=not kept and self._connects > 0)
        self._connects += 1
        log.info("connected; the broker has %s session", "kept the" if kept else "a new")
        self._network.subscribe(
            [(one.filter, SubscribeOptions(qos=one.qos, retainHandling=1)) for one in self._file.incoming]
        )

    def _subscribed(self, _: Any, __: Any, ___: int, reasons: list[ReasonCode], ____: Any) -> None:
        for rule, reason in zip(self._file.incoming, reasons, strict=True):
            if reason.is_failure or reason.value < rule.qos:
                text = f"the MQTT broker does not grant {rule.filter} with QoS {rule.qos}: {reason}"
                self._to.end(FailedPrecondition(text))

    def _disconnected(self, _: Any, __: Any, ___: DisconnectFlags, reason: ReasonCode, ____: Any) -> None:
        self._to.disconnected()
        log.log(logging.INFO if self._to.over.is_set() else logging.WARNING, "disconnected: %s", reason)

    def _came(self, _: Any, __: Any, packet: MQTTMessage) -> None:
        message = foreign(packet)
        token = packet.mid if packet.qos else None
        rule = rule_for(self._file.incoming, packet.topic)
        self._to.came(token, _digest(packet), message, rule, again=packet.dup)


def _digest(packet: MQTTMessage) -> bytes:
    """What stays the same when a message is sent again."""
    properties = tuple(getattr(packet.properties, "UserProperty", ()))
    digest = hashlib.blake2b(repr((packet.topic, properties)).encode("utf-8", "surrogatepass"), digest_size=16)
    digest.update(packet.payload)
    return digest.digest()
