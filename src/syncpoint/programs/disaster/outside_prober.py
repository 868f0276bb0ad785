"""A publisher and a receiver of a drill's own: what clients see of the failure, by a stopwatch outside.

Place: beside `drill_driver`, with connections and threads of its own; `Stopwatch` is a machine.
Promise: nothing that was not answered counts as published, and nothing is published twice, so a message that is missing
at the end was confirmed, and lost. A gap that has not ended yet counts as long as it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from syncpoint.base.model.errors import SyncpointError
from syncpoint.front.client.client import Client
from syncpoint.wire.protobuf.messages import pubsub

PACE_S: Final = 0.02
CALL_S: Final = 2.0
MARK: Final = "syncpoint-drill"
"""The attribute of a drill's messages."""


class Stopwatch:
    """Longest times without something that should go on. Times are seconds of a monotonic clock."""

    def __init__(self, now: float) -> None:
        self._last = now
        self.longest = 0.0

    def note(self, now: float) -> None:
        """Something went on."""
        self.longest = max(self.longest, now - self._last)
        self._last = now

    def went_on_after(self, then: float) -> bool:
        """Whether something has gone on since that time."""
        return self._last > then

    def end(self, now: float) -> None:
        """Count the gap that has not ended yet; nothing more is expected."""
        self.longest = max(self.longest, now - self._last)

    def restart(self, now: float) -> None:
        """Measure from here on."""
        self.longest, self._last = 0.0, now


class OutsideProber:
    """Publishes numbered messages and receives them, in two threads; `stop` ends both."""

    def __init__(self, connect: Callable[[], Client], topic: str, subscription: str, mark: str) -> None:
        self._connect, self._topic, self._subscription, self._mark = connect, topic, subscription, mark
        self._publishing, self._receiving = threading.Event(), threading.Event()
        self.confirmed: set[int] = set()
        self.received: dict[int, int] = {}
        self.published, self.arrived = Stopwatch(time.monotonic()), Stopwatch(time.monotonic())
        self.errors = 0
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._publish, self._receive)]

    def start(self) -> None:
        """Begin."""
        for one in self._threads:
            one.start()

    def restart(self) -> None:
        """Measure gaps from here on."""
        now = time.monotonic()
        self.published.restart(now)
        self.arrived.restart(now)

    def well(self, since: float) -> bool:
        """Whether both went on since that time."""
        return self.published.went_on_after(since) and self.arrived.went_on_after(since)

    def finish(self, patience_s: float) -> None:
        """Publish no more, and wait for what was confirmed."""
        for one in (self.published, self.arrived):
            one.end(time.monotonic())
        self._publishing.set()
        self._threads[0].join(CALL_S * 4)
        end = time.monotonic() + patience_s
        while self.missing and time.monotonic() < end:
            time.sleep(0.05)
        self._receiving.set()
        self._threads[1].join(CALL_S * 4)

    @property
    def missing(self) -> int:
        """How many were confirmed and not received."""
        return len(self.confirmed - self.received.keys())

    def certificate(self, not_copied: int) -> Mapping[str, int]:
        """What clients have seen, as fields of a DrillCertificate."""
        return {
            "confirmed": len(self.confirmed),
            "received": len(self.confirmed & self.received.keys()),
            "lost": self.missing,
            "twice": sum(count - 1 for count in self.received.values()),
            "not_copied": not_copied,
            "publish_gap_ms": round(self.published.longest * 1000),
            "receive_gap_ms": round(self.arrived.longest * 1000),
        }

    def _publish(self) -> None:
        number = 0
        with self._connect() as client:
            while not self._publishing.is_set():
                number += 1
                message = pubsub.PubsubMessage(data=b"%d" % number, attributes={MARK: self._mark})
                request = pubsub.PublishRequest(topic=self._topic, messages=[message])
                if self._went(client, "Publisher.Publish", request) is not None:
                    self.confirmed.add(number)
                    self.published.note(time.monotonic())
                self._publishing.wait(PACE_S)

    def _receive(self) -> None:
        request = pubsub.PullRequest(subscription=self._subscription, max_messages=1000)
        with self._connect() as client:
            while not self._receiving.is_set():
                answer = self._went(client, "Subscriber.Pull", request)
                if answer is None:
                    self._receiving.wait(PACE_S)
                    continue
                for one in answer.received_messages:
                    number = int(one.message.data)
                    self.received[number] = 1 + self.received.get(number, 0)
                if ids := [one.ack_id for one in answer.received_messages]:
                    self.arrived.note(time.monotonic())
                    acked = pubsub.AcknowledgeRequest(subscription=self._subscription, ack_ids=ids)
                    self._went(client, "Subscriber.Acknowledge", acked)

    def _went(self, client: Client, method: str, request: Any) -> Any:
        """The answer; None: there was none, and what became of the request is unknown."""
        try:
            return client.call(method, request, timeout_s=CALL_S)
        except SyncpointError:
            self.errors += 1
            return None
