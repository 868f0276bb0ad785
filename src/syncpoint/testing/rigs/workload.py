"""A steady load by official clients, entered in a history: what runs while something is broken on purpose.

Place on the message's path: both ends. Soak and fault tests start publishers and receivers from here, break the service
in the meantime, and let `checkers` judge the history.
Promise: outcomes are entered as certain only where the client was notified so.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from concurrent import futures
from typing import Any

from google.api_core import exceptions, retry
from google.cloud.pubsub_v1.types import FlowControl

from syncpoint.testing.rigs import official
from syncpoint.testing.rigs.history import History, MessageIdentity, Outcome, seal

REFUSALS = (exceptions.InvalidArgument, exceptions.NotFound, exceptions.FailedPrecondition)
"""Errors after which a publish has certainly not happened; every other one leaves it unknown."""
RETRY = retry.Retry(
    predicate=retry.if_exception_type(
        exceptions.Aborted,
        exceptions.Cancelled,
        exceptions.DeadlineExceeded,
        exceptions.InternalServerError,
        exceptions.ResourceExhausted,
        exceptions.ServiceUnavailable,
        exceptions.Unknown,
    ),
    initial=0.1,
    maximum=2.0,
    multiplier=2.0,
    timeout=60.0,
)
"""As the client does by itself, but with pauses of 2 s at most instead of 60: what is measured is the service."""


GIVE_UP_S = 60.0
"""After this long the outcome of a publish is unknown."""


class LoadPublisher(threading.Thread):
    """A high-level publisher at a steady rate. Keyed messages wait for their predecessor, so that order is certain."""

    def __init__(self, endpoint: str, history: History, topic: str, name: str, rate: float, keys: int) -> None:
        super().__init__(name=name, daemon=True)
        self.client = official.publisher(endpoint, ordering=keys > 0)
        self.history, self.topic, self.rate, self.keys = history, topic, rate, keys
        self.stop = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self.publish()
        except Exception as error:
            self.failure = error

    def publish(self) -> None:
        number, chance = 0, random.Random(self.name)
        while not self.stop.wait(10 / self.rate):
            batch = []
            for _ in range(10):
                identity = MessageIdentity(self.name, number)
                key = f"{self.name}-{number % self.keys}" if self.keys else ""
                operation = self.history.publishing(self.topic, identity, key)
                body = seal(identity, b"x" * chance.choice([0, 10, 100, 1000, 20_000]))
                batch.append(
                    (operation, self.client.publish(self.topic, body, ordering_key=key, timeout=20, retry=RETRY), key)
                )
                number += 1
            # Of all: with keys the client tries for ever, and one after the other they would take ten times as long.
            end = time.monotonic() + GIVE_UP_S
            for operation, future, key in batch:
                self.complete(operation, future, key, end)

    def complete(self, operation: Any, future: Any, key: str, end: float) -> None:
        try:
            self.history.published(operation, future.result(timeout=max(0.0, end - time.monotonic())))
        except REFUSALS as error:
            operation.error = repr(error)
            self.history.end(operation, Outcome.FAILED)
        except Exception as error:  # a lost answer, a deadline, or a key the client paused after an earlier failure
            operation.error = repr(error)
            self.history.end(operation, Outcome.UNKNOWN)
        if key and operation.outcome is not Outcome.OK:
            with contextlib.suppress(RuntimeError, ValueError):  # resumed already, for an earlier message of the key
                self.client.resume_publish(self.topic, key)

    def end(self) -> None:
        self.stop.set()
        self.join()
        self.client.stop()
        if self.failure is not None:
            raise self.failure


class Receiver:
    """A high-level subscriber that acknowledges, now and then nacks, and enters everything in the history."""

    def __init__(
        self, endpoint: str, history: History, subscription: str, name: str, *, confirm: bool, lease_s: int = 0
    ) -> None:
        """`lease_s`: what the client forgot comes again after so many seconds; 0: after the client's own choice, 60. As
        often it looks which leases are over: until then a key waits for an acknowledgement without an outcome.
        """
        self.history, self.subscription, self.name, self.confirm = history, subscription, name, confirm
        self.chance = random.Random(name)
        self.unanswered: set[Any] = set()  # acknowledgements that are being confirmed, or tried again
        self.client = official.subscriber(endpoint)
        flow_control = FlowControl(
            max_messages=200, min_duration_per_lease_extension=lease_s, max_duration_per_lease_extension=lease_s
        )
        self.future = self.client.subscribe(subscription, callback=self.receive, flow_control=flow_control)

    def receive(self, message: Any) -> None:
        arrived = message._received_timestamp  # callbacks run on several threads: another copy may overtake this one
        self.history.delivered(
            self.subscription, self.name, message.message_id, message.data, message.ordering_key, arrived
        )
        if self.chance.random() < 0.01:
            message.nack()
            return
        operation = self.history.acking(self.subscription, message.message_id)
        if not self.confirm:
            message.ack()
            self.history.end(operation, Outcome.UNKNOWN)
            return

        def complete(future: Any) -> None:
            self.unanswered.discard(future)
            self.history.end(operation, Outcome.UNKNOWN if future.exception() else Outcome.OK)

        answer = message.ack_with_response()
        self.unanswered.add(answer)
        answer.add_done_callback(complete)

    def state(self) -> str:
        """What it waits for, in words."""
        if self.future.done():
            return f"{self.name}: ended by {self.future.exception()!r}"
        return f"{self.name}: {len(self.unanswered)} acknowledgements without an outcome"

    def release_held(self) -> bool:
        """Hand on what Google's client holds for no reason; True if there was anything.

        It puts messages on hold while it is full, and looks at them again when a paused stream may go on, or with the
        next response. Where it became free before it paused the stream, and the server waits for acknowledgements,
        neither comes.
        """
        manager = self.future._StreamingPullFuture__manager
        with manager._pause_resume_lock:
            held = bool(manager._messages_on_hold.size) and manager.load < 1.0
            if held and manager._consumer is not None and not manager._consumer.is_paused:
                manager._maybe_release_messages()
                return True
        return False

    def end(self) -> None:
        """End the stream. The client is left open while a thread of it tries an acknowledgement again: that one would
        fail on a closed channel.
        """
        self.future.cancel()
        try:
            self.future.result(timeout=30)
        finally:
            if not futures.wait(set(self.unanswered), timeout=10).not_done:
                self.client.close()


def furnish(api: official.Api, history: History, number: int) -> tuple[str, dict[str, str]]:
    """A topic with a plain, an ordered and an exactly-once subscription, in a project of its own."""
    project = f"projects/load-{number}"
    topic = api.create_topic({"name": f"{project}/topics/topic"}).name
    kinds: dict[str, dict[str, bool]] = {
        "plain": {},
        "ordered": {"enable_message_ordering": True},
        "once": {"enable_exactly_once_delivery": True},
    }
    names = {}
    for kind, fields in kinds.items():
        name = f"{project}/subscriptions/{kind}"
        operation = history.creating(name, topic, ordered=kind == "ordered", exactly_once=kind == "once")
        api.create_subscription({"name": name, "topic": topic, "ack_deadline_seconds": 10, **fields})
        history.end(operation, Outcome.OK)
        names[kind] = name
    return topic, names


def clean(api: official.Api, topic: str, names: dict[str, str]) -> None:
    """Delete what `furnish` made."""
    for name in names.values():
        api.delete_subscription({"subscription": name})
    api.delete_topic({"topic": topic})


def rescue(api: official.Api, history: History, topic: str, names: dict[str, str]) -> None:
    """Receive by unary calls what the receivers did not get in time: distinguishes what is stuck from what is lost."""
    for name in names.values():
        end = time.monotonic() + 90  # longer than the deadline of a stream's messages
        while history.missing(name, topic) and time.monotonic() < end:
            for one in api.pull({"subscription": name, "max_messages": 1000}, timeout=5).received_messages:
                message = one.message
                history.delivered(name, "rescue", message.message_id, message.data, message.ordering_key)
