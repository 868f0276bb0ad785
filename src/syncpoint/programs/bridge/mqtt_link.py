"""A connection to an MQTT 5 broker, in the MQTT library's thread.

Place: under `mqtt_source` and `mqtt_sink`. The library connects again by itself, with growing pauses. What it lacks
is added: it gives no notice of the end of its thread, takes a refused message of QoS 2 for one on its way, and does not
look at how much the broker takes at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.programs.bridge.bridge_file import OtherBroker
from syncpoint.programs.bridge.broker_access import password_of, tls_of

RECONNECT_FIRST_S: Final = 1
RECONNECT_MOST_S: Final = 60
CONNECT_S: Final = 10.0
FAILURE: Final = 0x80

log = logging.getLogger(__name__)


class MqttLink(Client):
    """The library's client; `on_end` is called when its thread ends without `close`."""

    on_end: Callable[[FailedPrecondition], None]

    def __init__(self, broker: OtherBroker) -> None:
        """Raises `OSError` for files that cannot be read."""
        super().__init__(CallbackAPIVersion.VERSION2, client_id=broker.client_id, protocol=MQTTv5, manual_ack=True)
        self._broker, self._closing = broker, False
        self.connect_timeout = CONNECT_S
        self.reconnect_delay_set(RECONNECT_FIRST_S, RECONNECT_MOST_S)
        if broker.tls:
            self.tls_set_context(tls_of(broker))
        if broker.user:
            self.username_pw_set(broker.user, password_of(broker))

    def begin(self, *, clean_start: Any, properties: Properties) -> None:
        """Connect, and again after each end of a connection."""
        broker = self._broker
        self.connect_async(broker.host, broker.port, broker.keepalive_s, clean_start=clean_start, properties=properties)
        self.loop_start()

    def close(self) -> None:
        """Send what is still to be sent, and end."""
        self._closing = True
        self.disconnect()
        self.loop_stop()

    def forget(self) -> None:
        """The broker has lost the session: nothing that was sent over it is sent again by the library. Called in its
        thread, as the connection is made.
        """
        with self._out_message_mutex:
            self._out_messages.clear()
            self._inflight_messages = 0

    def grant(self, messages: int) -> None:
        """Limit what is on its way at once to what the broker takes. Called as `forget` is: the library itself limits
        all connections only.
        """
        with self._out_message_mutex:
            self._max_inflight_messages = messages

    def loop_forever(self, *arguments: Any, **options: Any) -> Any:
        try:
            found = super().loop_forever(*arguments, **options)
        except Exception as error:
            log.exception("the MQTT library failed")
            self._ended(error)
            raise
        self._ended(None)
        return found

    def _ended(self, error: BaseException | None) -> None:
        if not self._closing:
            self.on_end(FailedPrecondition(f"the MQTT library has stopped: {error!r}"))

    def _handle_pubrec(self) -> MQTTErrorCode:
        packet = self._in_packet["packet"]
        if len(packet) > 2 and packet[2] >= FAILURE:  # refused: no PUBREL follows, and nothing is on its way
            number = int.from_bytes(packet[:2], "big")
            with self._out_message_mutex:
                if number not in self._out_messages:
                    return MQTTErrorCode.MQTT_ERR_SUCCESS
                reason = ReasonCode(PacketTypes.PUBREC, identifier=packet[2])
                return self._do_on_publish(number, reason, Properties(PacketTypes.PUBREC))  # type: ignore[no-untyped-call]
        return super()._handle_pubrec()
