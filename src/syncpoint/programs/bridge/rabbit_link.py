"""A connection to RabbitMQ with one channel, in a thread of its own.

Place: under `rabbit_source` and `rabbit_sink`, whose callbacks run in this thread. A connection that ends, or whose
channel ends, is made again, with growing pauses until `works` is called.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Any, Final

from pika import ConnectionParameters, PlainCredentials, SelectConnection, SSLOptions
from pika.channel import Channel

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.runtime.backoff import Backoff
from syncpoint.programs.bridge.bridge_file import OtherBroker
from syncpoint.programs.bridge.broker_access import password_of, tls_of
from syncpoint.programs.bridge.rabbit_shape import read_headers_whole

RECONNECT_FIRST_S: Final = 1.0
RECONNECT_MOST_S: Final = 60.0
CONNECT_S: Final = 10.0
CLOSE_S: Final = 10.0

log = logging.getLogger(__name__)


class RabbitLink:
    """`opened` is called with each new channel; `closed` when it is gone."""

    opened: Callable[[Channel], None]
    closed: Callable[[], None]
    on_end: Callable[[FailedPrecondition], None]

    def __init__(self, broker: OtherBroker) -> None:
        """Raises `OSError` for files that cannot be read."""
        read_headers_whole()
        given: dict[str, Any] = {"ssl_options": SSLOptions(tls_of(broker), broker.host)} if broker.tls else {}
        if broker.user:
            given["credentials"] = PlainCredentials(broker.user, password_of(broker) or "")
        self._parameters = ConnectionParameters(
            broker.host,
            broker.port,
            broker.vhost,
            heartbeat=broker.keepalive_s,
            socket_timeout=CONNECT_S,
            stack_timeout=2 * CONNECT_S,
            client_properties={"connection_name": "syncpoint bridge"},
            **given,
        )
        self._lock = threading.Lock()
        self._connection: SelectConnection | None = None
        self._over = threading.Event()
        self._backoff = Backoff(RECONNECT_FIRST_S, RECONNECT_MOST_S)
        self._thread = threading.Thread(target=self._run, name="rabbitmq", daemon=True)

    def begin(self) -> None:
        """Connect, and again after each end of a connection."""
        self._thread.start()

    def works(self) -> None:
        """Something has come over the connection: the next pause is short."""
        self._backoff.succeeded()

    def call(self, work: Callable[[], Any]) -> None:
        """Do it in the thread of the connection, if there is one. Any thread may ask for it."""
        with self._lock:
            if self._connection is not None:
                self._connection.ioloop.add_callback_threadsafe(work)

    def drop(self) -> None:
        """End the connection; another one is made."""
        self.call(self._hang_up)

    def close(self) -> None:
        """Do what `call` was asked for, and end."""
        self._over.set()
        self.drop()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._connect_once()
            except Exception as error:
                log.exception("the RabbitMQ library failed")
                self.on_end(FailedPrecondition(f"the RabbitMQ library has stopped: {error!r}"))
                return
            self._over.wait(self._backoff.failed(random.random))

    def _connect_once(self) -> None:
        connection = SelectConnection(
            self._parameters,
            on_open_callback=self._connected,
            on_open_error_callback=self._lost,
            on_close_callback=self._lost,
        )
        with self._lock:
            self._connection = connection
        if self._over.is_set():  # `close` came between
            connection.ioloop.add_callback_threadsafe(self._hang_up)
        try:
            connection.ioloop.start()
        finally:
            with self._lock:
                self._connection = None
            connection.ioloop.close()

    def _connected(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Channel) -> None:
        channel.add_on_close_callback(self._channel_lost)
        self.opened(channel)

    def _channel_lost(self, _: Channel, reason: Exception) -> None:
        if not self._over.is_set():
            log.warning("RabbitMQ ends the channel: %s", reason)
        self._hang_up()

    def _hang_up(self) -> None:
        connection = self._connection
        if connection is None or connection.is_closing or connection.is_closed:
            return
        if connection.is_open:
            connection.close()
        else:  # it is not open yet, and cannot be closed
            connection.ioloop.stop()

    def _lost(self, connection: Any, error: Any) -> None:
        log.log(logging.INFO if self._over.is_set() else logging.WARNING, "not connected to RabbitMQ: %s", error)
        self.closed()
        connection.ioloop.stop()
