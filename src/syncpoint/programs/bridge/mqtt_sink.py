"""An MQTT 5 broker as the target of a bridge.

Place: after `outgoing_bridge`; the MQTT library has a thread, which calls it. A session begins with this process:
packet ids of an earlier one would make the broker take new messages of QoS 2 for old ones. After a lost connection the
library sends on what the session has; without a session all that is not confirmed is sent again.
"""

from __future__ import annotations

import base64
import logging
import queue
import threading
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY, ConnectFlags, DisconnectFlags
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.programs.bridge.bridge_file import BridgeFile
from syncpoint.programs.bridge.key_lanes import QueuedWork
from syncpoint.programs.bridge.message_shape import MESSAGE_ID, BridgedMessage, UnfitMessage
from syncpoint.programs.bridge.mqtt_link import MqttLink
from syncpoint.programs.bridge.mqtt_shape import CONTENT_TYPE, CORRELATION, RESPONSE_TOPIC

if TYPE_CHECKING:
    from syncpoint.programs.bridge.outgoing_bridge import BridgedWork, OutgoingBridge

TEXT_BYTES_MAX: Final = 65_535
LASTING: Final = (0x87, 0x90, 0x99)  # not authorized, no such topic name, not the format of its payload
RECEIVE_MAX: Final = 65_535
HEAD_BYTES: Final = 64  # of a packet, beside topic, properties and data

log = logging.getLogger(__name__)


def published(message: BridgedMessage) -> Properties:
    """The properties to send. Raises `UnfitMessage`."""
    target, rule, given = message.target, message.rule, message.given
    if "+" in target or "#" in target or "\0" in target:
        raise UnfitMessage(f"no message can be sent to the MQTT topic {target!r}")
    if not 1 <= len(target.encode()) <= TEXT_BYTES_MAX:
        raise UnfitMessage(f"an MQTT topic has 1 to {TEXT_BYTES_MAX:,} bytes")
    found: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    found.UserProperty = list(message.headers.items())
    if MESSAGE_ID in given:
        found.UserProperty = [(MESSAGE_ID, given[MESSAGE_ID])]  # the library adds to the list
    if content_type := rule.content_type or given.get(CONTENT_TYPE):
        found.ContentType = content_type
    if rule.expiry_ms:
        found.MessageExpiryInterval = rule.expiry_ms // 1000
    answers = given.get(RESPONSE_TOPIC, "")
    if answers and "+" not in answers and "#" not in answers:
        found.ResponseTopic = answers
    if correlation := given.get(CORRELATION):
        try:
            found.CorrelationData = base64.b64decode(correlation, validate=True)
        except ValueError as error:
            raise UnfitMessage(f"its attribute {CORRELATION} is not base64") from error
    return found  # type: ignore[no-any-return]


class MqttSink:
    """Sends to the MQTT topics that rules make."""

    def __init__(self, file: BridgeFile) -> None:
        """Raises `OSError` for files that cannot be read."""
        self._file = file
        self._network = MqttLink(file.broker)
        self._bridge: OutgoingBridge | None = None
        self._tokens: dict[int, Hashable] = {}  # by packet id
        self._connects = self._bytes_max = 0
        self._answers: queue.SimpleQueue[tuple[int, ReasonCode] | None] = queue.SimpleQueue()

    def begin(self, bridge: OutgoingBridge) -> None:
        self._bridge, network = bridge, self._network
        network.on_connect, network.on_disconnect = self._connected, self._disconnected
        network.on_publish, network.on_end = self._published, bridge.end
        threading.Thread(target=self._answer, name="mqtt-answers", daemon=True).start()
        network.max_queued_messages_set(0)  # the bridge has bounds
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = self._file.broker.session_expiry_s
        network.begin(clean_start=MQTT_CLEAN_START_FIRST_ONLY, properties=properties)

    def prepare(self, message: BridgedMessage) -> Properties:
        found = published(message)
        self._check_size(message)
        return found

    def send(self, works: list[QueuedWork[BridgedWork]]) -> None:
        for work in works:
            message, properties = work.value.message, work.value.prepared
            rule = message.rule
            found = self._network.publish(message.target, message.data, rule.qos, rule.retain, properties)
            if found.rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE:  # the packet id is still in use
                self._to.again(work.token, "all packet ids are in use")
            else:
                self._tokens[found.mid] = work.token

    def close(self) -> None:
        self._network.close()
        self._answers.put(None)

    @property
    def _to(self) -> OutgoingBridge:
        assert self._bridge is not None
        return self._bridge

    def _check_size(self, message: BridgedMessage) -> None:
        if self._bytes_max:
            size = HEAD_BYTES + len(message.data) + len(message.target.encode())
            pairs = (*message.headers.items(), *message.given.items())
            size += sum(len(name.encode()) + len(one.encode()) + 5 for name, one in pairs)
            if size > self._bytes_max:
                raise UnfitMessage(f"it has about {size:,} bytes; the MQTT broker takes {self._bytes_max:,}")

    def _connected(self, _: Any, __: Any, flags: ConnectFlags, reason: ReasonCode, properties: Any) -> None:
        if reason.is_failure:
            log.warning("the MQTT broker refuses the connection: %s", reason)
            return
        if not self._grants(properties):
            return
        kept = flags.session_present
        if not kept:
            self._network.forget()
        log.info("connected; the broker has %s session", "kept the" if kept else "a new")
        lost = not kept and self._connects > 0
        self._connects += 1
        with self._to.lock:  # `send` writes there
            self._tokens = {number: token for number, token in self._tokens.items() if kept}
            self._to.connected(lambda one: kept and one.rule.qos > 0, lost_session=lost)

    def _grants(self, properties: Any) -> bool:
        most = getattr(properties, "MaximumQoS", 2)
        if most < (asked := max(one.qos for one in self._file.outgoing)):
            self._to.end(FailedPrecondition(f"the MQTT broker takes QoS {most} at most, and the file has {asked}"))
            return False
        if not getattr(properties, "RetainAvailable", 1) and any(one.retain for one in self._file.outgoing):
            self._to.end(FailedPrecondition("the MQTT broker retains no messages, and the file asks for it"))
            return False
        most = getattr(properties, "ReceiveMaximum", RECEIVE_MAX)
        self._network.grant(min(most, self._file.messages))
        self._bytes_max = getattr(properties, "MaximumPacketSize", 0)
        return True

    def _disconnected(self, _: Any, __: Any, ___: DisconnectFlags, reason: ReasonCode, ____: Any) -> None:
        self._to.disconnected()
        log.log(logging.INFO if self._to.over.is_set() else logging.WARNING, "disconnected: %s", reason)

    def _published(self, _: Any, __: Any, number: int, reason: ReasonCode, ___: Any) -> None:
        self._answers.put((number, reason))  # the library holds a lock here that `send` asks for

    def _answer(self) -> None:
        while (one := self._answers.get()) is not None:
            number, reason = one
            with self._to.lock:  # `send` may be about to note the packet id
                token = self._tokens.pop(number, None)
            if token is None:
                continue
            if not reason.is_failure:
                self._to.confirmed([token])
            elif reason.value in LASTING:
                self._to.refused(token, f"the MQTT broker: {reason}")
            else:
                self._to.again(token, f"the MQTT broker: {reason}")
