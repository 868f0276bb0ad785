"""A bridge at work: an MQTT 5 client in front of a publisher.

Place: run by `syncpoint bridge mqtt`. The MQTT library has a thread, the publisher another one; both come here, and
`_lock` is around what they share. Where too much is under way the library's thread waits, which holds up the broker.
Promises: those of `incoming_flow`. A publish that fails ends the connection, so that the broker sends all that was not
acknowledged again, in order; after a message that no topic can take the bridge stops, or drops it with `unfit: drop`.
QoS 2 is not asked for: its first response would give the message to this process, which keeps nothing. What devices
publish with QoS 2 comes with QoS 1.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, Final

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from syncpoint.base.model.errors import Code, FailedPrecondition, SyncpointError
from syncpoint.client import ClientFuture, MessageTooLargeError, PausedOrderingKeyError, Publisher
from syncpoint.front.client.client import client_tls
from syncpoint.programs.bridge.bridge_file import BridgeFile, MqttBroker
from syncpoint.programs.bridge.incoming_flow import IncomingFlow, MqttArrival
from syncpoint.programs.bridge.message_shape import MqttMessage, ShapedMessage, UnfitMessage, rule_for, shaped
from syncpoint.watch.metrics.bridge_families import FAMILIES
from syncpoint.watch.metrics.family import Samples

RECONNECT_FIRST_S: Final = 1
RECONNECT_MOST_S: Final = 60
STOP_S: Final = 10.0
CONNECT_S: Final = 10.0

log = logging.getLogger(__name__)


class _Network(Client):
    """The library's client; `on_end` is called when its thread ends, of which the library gives no notice."""

    on_end: Callable[[BaseException | None], None]

    def loop_forever(self, *arguments: Any, **options: Any) -> Any:
        try:
            found = super().loop_forever(*arguments, **options)
        except Exception as error:
            log.exception("the MQTT library failed")
            self.on_end(error)
            raise
        self.on_end(None)
        return found


def tls_of(broker: MqttBroker) -> ssl.SSLContext:
    """The context for the broker. Raises `OSError` for files that cannot be used."""
    return client_tls(*(str(one) if one else None for one in (broker.ca, broker.cert, broker.key)))


class MqttBridge:
    """Takes messages of an MQTT broker into topics, from `run` until `stop`."""

    def __init__(self, file: BridgeFile, project: str, publisher: Publisher) -> None:
        """Raises `OSError` for files that cannot be read."""
        self._file, self._project, self._publisher = file, project, publisher
        self._flow = IncomingFlow(file.messages, file.bytes)
        self._lock = threading.Condition()
        self._over, self._stopping = threading.Event(), False
        self._error: SyncpointError | None = None
        self._paused: set[tuple[str, str]] = set()  # topics and keys to be resumed
        self._dropped = self._unmatched = self._lost = 0
        self._network = self._made()

    def run(self, watch: Callable[[], None], every_s: float = 1.0) -> None:
        """Run until `stop`; `watch` is called again and again. Raises `SyncpointError`."""
        broker = self._file.broker
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = broker.session_expiry_s
        properties.ReceiveMaximum = self._file.messages
        self._network.connect_async(
            broker.host, broker.port, broker.keepalive_s, clean_start=False, properties=properties
        )
        self._network.loop_start()
        while not self._over.wait(every_s) and not self._stopping:
            watch()
        self._over.set()
        with self._lock:
            self._lock.notify_all()  # who waits for room
        self._publisher.stop(STOP_S)  # what is stored by now is acknowledged
        self._network.disconnect()
        self._network.loop_stop()
        watch()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End `run` soon. A signal may call this, so that no lock is taken."""
        self._stopping = True

    def status(self) -> dict[str, Any]:
        """What is known now, for scripts."""
        with self._lock:
            flow = self._flow
            return {
                "connected": flow.connected,
                "connects": flow.connects,
                "lostSessions": flow.lost_sessions,
                "heldMessages": flow.messages,
                "heldBytes": flow.bytes,
                "storedMessages": flow.stored - self._dropped - self._unmatched,
                "failedMessages": flow.failed,
                "lostMessages": self._lost,
                "redeliveredMessages": flow.sent_again,
                "joinedMessages": flow.joined,
                "droppedMessages": self._dropped,
                "unmatchedMessages": self._unmatched,
            }

    as_dict = status

    def samples(self) -> Samples:
        """The status as metrics."""
        found = Samples(FAMILIES)
        for family, value in zip(FAMILIES, self.status().values(), strict=True):
            found.put(family.name, int(value))
        return found

    # -- the library's thread ----------------------------------------------------------------------------------------

    def _made(self) -> _Network:
        broker = self._file.broker
        network = _Network(CallbackAPIVersion.VERSION2, client_id=broker.client_id, protocol=MQTTv5, manual_ack=True)
        network.connect_timeout = CONNECT_S
        network.reconnect_delay_set(RECONNECT_FIRST_S, RECONNECT_MOST_S)
        if broker.tls:
            network.tls_set_context(tls_of(broker))
        if broker.user:
            password = broker.password_file.read_text().strip() if broker.password_file else None
            network.username_pw_set(broker.user, password)
        network.on_connect, network.on_disconnect = self._connected, self._disconnected
        network.on_subscribe, network.on_message = self._subscribed, self._came
        network.on_end = self._ended
        return network

    def _connected(self, _: Any, __: Any, flags: ConnectFlags, reason: ReasonCode, ___: Any) -> None:
        if reason.is_failure:
            log.warning("the MQTT broker refuses the connection: %s", reason)
            return
        self._resume()
        with self._lock:
            self._flow.connect(flags.session_present)
        log.info("connected; the broker has %s session", "kept the" if flags.session_present else "a new")
        self._network.subscribe(
            [(one.filter, SubscribeOptions(qos=one.qos, retainHandling=1)) for one in self._file.rules]
        )

    def _resume(self) -> None:
        """Let keys through again of which a message failed, once no later one is under way."""
        with self._lock:
            paused = bool(self._paused)
        if paused:
            self._publisher.flush()
            with self._lock:
                keys, self._paused = self._paused, set()
            for topic, key in keys:
                self._publisher.resume_publish(topic, key)

    def _subscribed(self, _: Any, __: Any, ___: int, reasons: list[ReasonCode], ____: Any) -> None:
        for rule, reason in zip(self._file.rules, reasons, strict=True):
            if reason.is_failure or reason.value < rule.qos:
                self._end(
                    FailedPrecondition(f"the MQTT broker does not grant {rule.filter} with QoS {rule.qos}: {reason}")
                )

    def _disconnected(self, _: Any, __: Any, ___: DisconnectFlags, reason: ReasonCode, ____: Any) -> None:
        with self._lock:
            self._flow.disconnect()
        log.log(logging.INFO if self._over.is_set() else logging.WARNING, "disconnected: %s", reason)

    def _came(self, _: Any, __: Any, packet: MQTTMessage) -> None:
        with self._lock:
            while self._flow.full and not self._over.is_set():
                self._lock.wait(1.0)
            if self._over.is_set():
                return  # not acknowledged: it is sent again
            message, digest = _read(packet)
            size = len(packet.payload) + 1024
            arrival = self._flow.arrive(packet.mid if packet.qos else 0, digest, size, again=packet.dup)
            if arrival is None:
                self._acknowledge()
                return
        self._take(arrival, message)

    def _take(self, arrival: MqttArrival, message: MqttMessage) -> None:
        rule = rule_for(self._file.rules, message.topic)
        try:
            if rule is None:
                self._pass_over(arrival, unmatched=True)
            else:
                self._publish(arrival, shaped(message, rule, self._project))
        except UnfitMessage as error:
            text = f"a message of the MQTT topic {message.topic!r} fits no topic: {error}"
            if not self._file.drop_unfit:
                self._end(FailedPrecondition(f"{text}. Correct its publisher or the file, or let it say `unfit: drop`"))
                return
            log.warning("dropped: %s", text)
            self._pass_over(arrival)

    def _publish(self, arrival: MqttArrival, one: ShapedMessage) -> None:
        def answered(outcome: ClientFuture[str]) -> None:
            error = outcome.exception()
            if error is None:
                self._finish(arrival)
            else:
                self._failed(arrival, one, error)

        try:
            outcome = self._publisher.publish(one.topic, one.data, one.key, **one.attributes)
        except (PausedOrderingKeyError, MessageTooLargeError, RuntimeError) as error:
            self._failed(arrival, one, error)
        else:
            outcome.add_done_callback(answered)  # type: ignore[arg-type]

    def _pass_over(self, arrival: MqttArrival, *, unmatched: bool = False) -> None:
        self._unmatched += unmatched
        self._dropped += not unmatched
        self._finish(arrival)

    def _ended(self, error: BaseException | None) -> None:
        if not self._over.is_set():
            self._end(FailedPrecondition(f"the MQTT library has stopped: {error!r}"))

    # -- either thread -----------------------------------------------------------------------------------------------

    def _finish(self, arrival: MqttArrival) -> None:
        with self._lock:
            self._flow.finish(arrival)
            self._acknowledge()
            self._lock.notify_all()

    def _acknowledge(self) -> None:
        for packet in self._flow.acknowledge():
            self._network.ack(packet, 1)

    def _failed(self, arrival: MqttArrival, one: ShapedMessage, error: BaseException) -> None:
        with self._lock:
            self._flow.fail(arrival)
            self._lost += not arrival.packet
            if one.key:
                self._paused.add((one.topic, one.key))
            self._lock.notify_all()
        if isinstance(error, SyncpointError) and error.code is Code.INVALID_ARGUMENT:
            self._end(FailedPrecondition(f"{one.topic} refuses a message: {error.message}"))
            return
        if not isinstance(error, PausedOrderingKeyError):
            log.warning("a message for %s is not stored, and asked for again: %s", one.topic, error)
        self._drop_connection()

    def _drop_connection(self) -> None:
        open_now: Any = self._network.socket()
        if open_now is not None and not self._over.is_set():
            with contextlib.suppress(OSError):  # gone already
                open_now.shutdown(socket.SHUT_RDWR)

    def _end(self, error: SyncpointError) -> None:
        self._error = self._error or error
        self._over.set()


def _read(packet: MQTTMessage) -> tuple[MqttMessage, bytes]:
    """The message, and a digest of what stays the same when it is sent again."""
    found: Any = packet.properties
    properties = tuple(getattr(found, "UserProperty", ()))
    message = MqttMessage(
        packet.topic,
        bytes(packet.payload),
        properties,
        packet.retain,
        getattr(found, "ContentType", ""),
        getattr(found, "ResponseTopic", ""),
        getattr(found, "CorrelationData", b""),
    )
    digest = hashlib.blake2b(repr((packet.topic, properties)).encode("utf-8", "surrogatepass"), digest_size=16)
    digest.update(message.data)
    return message, digest.digest()
