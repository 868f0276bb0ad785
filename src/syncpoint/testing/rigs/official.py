"""Google's own Python client, held by a test: exact calls, held streams, and the two high-level clients.

Place on the message's path: both outer ends of it. `Api` makes single calls through the client's generated layer
without its retries, so that a test sees the very status the server gave; `HeldStream` is one StreamingPull in the
test's hands; `publisher` and `subscriber` are the clients a program would use.
Promises: nothing here invents, hides or repeats an answer; every wait has an end and says what it was waiting for.
Leaves to its user: what is sent and what is right. Needs the packages google-cloud-pubsub and grpcio, which are not
dependencies of the product.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc  # type: ignore[import-untyped]
from google.cloud import pubsub_v1
from google.pubsub_v1 import types
from google.pubsub_v1.services.publisher.transports.grpc import PublisherGrpcTransport
from google.pubsub_v1.services.schema_service.transports.grpc import SchemaServiceGrpcTransport
from google.pubsub_v1.services.subscriber.transports.grpc import SubscriberGrpcTransport

CALL_SECONDS = 20.0
"""How long a unary call may take before the test gives up on it."""
MESSAGE_BYTES_MAX = 24 * 1024 * 1024

_environment = threading.Lock()


def connect(endpoint: str) -> Any:
    """A plaintext gRPC channel of its own (never shared with another client of this process)."""
    options = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 500),
    ]
    return grpc.insecure_channel(endpoint, options=options)


def eventually(holds: Callable[[], Any], within: float = 60.0, what: str = "") -> Any:
    """Poll until `holds()` is true and return its value; AssertionError after `within` seconds."""
    end = time.monotonic() + within
    while True:
        value = holds()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {within:g} s: {what or getattr(holds, '__name__', holds)}")
        time.sleep(0.02)


class Refusal:
    """What `refused` caught: the status, its text, and the metadata that came with it."""

    def __init__(self) -> None:
        self.error: Any = None

    @property
    def text(self) -> str:
        return str(self.error.details())

    def trailer(self, key: str) -> bytes | str | None:
        """The value of a trailing metadata entry, or None."""
        return next((value for name, value in self.error.trailing_metadata() if name == key), None)


@contextlib.contextmanager
def refused(code: str, *words: str) -> Iterator[Refusal]:
    """The block must end in an RPC error with this status name, whose text holds every one of `words`."""
    caught = Refusal()
    try:
        yield caught
    except grpc.RpcError as error:
        caught.error = error
    if caught.error is None:
        raise AssertionError(f"accepted, though {code} was due")
    got = caught.error.code().name
    if got != code:
        raise AssertionError(f"{got} ({caught.text!r}) instead of {code}") from None
    for word in words:
        if word not in caught.text:
            raise AssertionError(f"the text {caught.text!r} does not name {word!r}")


class Api:
    """Every method of the Pub/Sub services as a plain call on one channel: `api.create_topic({"name": ...})`.

    A request is given as a dict or as the message itself; a failed call raises grpc.RpcError.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.channel = connect(endpoint)
        self._services = [
            PublisherGrpcTransport(channel=self.channel),
            SubscriberGrpcTransport(channel=self.channel),
            SchemaServiceGrpcTransport(channel=self.channel),
        ]

    def __getattr__(self, method: str) -> _HeldCall:
        for service in self.__dict__.get("_services", ()):
            call = getattr(type(service), method, None)
            if call is not None:
                return _HeldCall(getattr(service, method), method)
        raise AttributeError(method)

    def close(self) -> None:
        self.channel.close()


class _HeldCall:
    """One method: turns a dict into its request message; `raw` is the gRPC call itself."""

    def __init__(self, call: Any, method: str) -> None:
        name = "".join(part.capitalize() for part in method.split("_")) + "Request"
        name = {"CreateTopicRequest": "Topic", "CreateSubscriptionRequest": "Subscription"}.get(name, name)
        self._request = getattr(types, name)
        self._call = call
        self.raw = call

    def __call__(self, request: Any, timeout: float | None = CALL_SECONDS, **options: Any) -> Any:
        return self._call(self._message(request), timeout=timeout, **options)

    def future(self, request: Any, timeout: float | None = CALL_SECONDS) -> Any:
        """Make the call without waiting for its answer; the returned gRPC future has result() and cancel()."""
        return self._call.future(self._message(request), timeout=timeout)

    def _message(self, request: Any) -> Any:
        return self._request(request) if isinstance(request, dict) else request


class HeldStream:
    """One StreamingPull call. `messages` and `responses` grow as they arrive; `status` is set when the call is over."""

    def __init__(
        self,
        api: Api,
        subscription: str,
        *,
        raw_first: dict[str, Any] | None = None,
        on_message: Callable[[Any], object] = lambda received: None,
        **first: Any,
    ) -> None:
        """`first` are further fields of the first request; `raw_first` replaces it altogether.

        `on_message` is called with every message as it arrives, on the stream's own thread.
        """
        self._on_message = on_message
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        opening = {"subscription": subscription, "stream_ack_deadline_seconds": 60, "client_id": "held", **first}
        self._requests.put(types.StreamingPullRequest(opening if raw_first is None else raw_first))
        self._changed = threading.Condition()
        self.responses: list[Any] = []
        self.messages: list[Any] = []
        self.status: str | None = None
        self.text = ""
        self._call = api.streaming_pull.raw(iter(self._requests.get, None))
        self._reader = threading.Thread(target=self._read, name="held-stream", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        status, text = "OK", ""
        try:
            for response in self._call:
                for received in response.received_messages:
                    self._on_message(received)
                with self._changed:
                    self.responses.append(response)
                    self.messages.extend(response.received_messages)
                    self._changed.notify_all()
        except grpc.RpcError as error:
            status, text = error.code().name, str(error.details())
        with self._changed:
            self.status, self.text = status, text
            self._changed.notify_all()

    def send(self, **fields: Any) -> None:
        """Send one more request (no fields: a keep-alive ping)."""
        self._requests.put(types.StreamingPullRequest(fields))

    def half_close(self) -> None:
        self._requests.put(None)

    def cancel(self) -> None:
        """End the call from this side and wait until its reader is done."""
        self._call.cancel()
        self._requests.put(None)
        self._reader.join(5.0)

    def wait(self, count: int = 1, within: float = 60.0) -> list[Any]:
        """Wait until at least `count` messages came in all; returns all messages so far."""
        return self.until(lambda: len(self.messages) >= count, within, f"{count} messages") and list(self.messages)

    def ended(self, within: float = 60.0) -> str:
        """Wait for the end of the call; returns its status name."""
        self.until(lambda: self.status is not None, within, "the end of the stream")
        return str(self.status)

    def until(self, holds: Callable[[], Any], within: float = 60.0, what: str = "") -> Any:
        """Wait until `holds()`, looking again whenever something arrives."""
        with self._changed:
            if not self._changed.wait_for(holds, within):
                state = f"{len(self.messages)} messages, status {self.status} {self.text!r}"
                raise AssertionError(f"not within {within:g} s: {what}; {state}")
            return holds()

    @property
    def bodies(self) -> list[bytes]:
        return [received.message.data for received in self.messages]

    def acknowledge(self, *received: Any) -> None:
        """Acknowledge over the stream."""
        self.send(ack_ids=[one.ack_id for one in received])


@contextlib.contextmanager
def emulator_host(endpoint: str) -> Iterator[None]:
    """PUBSUB_EMULATOR_HOST is `endpoint` while a client is being made (it reads it only then)."""
    with _environment:
        before = os.environ.get("PUBSUB_EMULATOR_HOST")
        os.environ["PUBSUB_EMULATOR_HOST"] = endpoint
        try:
            yield
        finally:
            if before is None:
                del os.environ["PUBSUB_EMULATOR_HOST"]
            else:
                os.environ["PUBSUB_EMULATOR_HOST"] = before


def publisher(endpoint: str, *, ordering: bool = False, batch_messages: int = 100, latency: float = 0.01) -> Any:
    """The high-level publisher client, as a program makes it under PUBSUB_EMULATOR_HOST."""
    with emulator_host(endpoint):
        return pubsub_v1.PublisherClient(
            batch_settings=pubsub_v1.types.BatchSettings(max_messages=batch_messages, max_latency=latency),
            publisher_options=pubsub_v1.types.PublisherOptions(enable_message_ordering=ordering),
        )


def subscriber(endpoint: str) -> Any:
    """The high-level subscriber client, as a program makes it under PUBSUB_EMULATOR_HOST."""
    with emulator_host(endpoint):
        return pubsub_v1.SubscriberClient()


def attributes_of(received: Any) -> dict[str, str]:
    """The attributes of a received message as a plain dict."""
    return dict(received.message.attributes)


def bodies(received: Sequence[Any]) -> list[bytes]:
    """The data of received messages, in order."""
    return [one.message.data for one in received]
