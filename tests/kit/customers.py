"""Customers of a cluster: programs that publish and receive by the official Python client, without retries of theirs.

What the client tries again by its own defaults, it does; what it then gives up is an error here. Every answer's time is
kept, so that the time of a restart can be held against any other time.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

import grpc

from syncpoint.testing.rigs import official
from syncpoint.testing.rigs.official import eventually

ANSWER_S = 600.0  # as long as the client tries by itself


class Customer(threading.Thread):
    """Publishes message after message through one proxy, to its topics in turn, and waits for each."""

    def __init__(self, endpoint: str, topics: Sequence[str], rate: float) -> None:
        super().__init__(name=f"customer of {endpoint}", daemon=True)
        self.client = official.publisher(endpoint)
        self.topics, self.pause_s = topics, 1 / rate
        self.answered: list[tuple[float, float]] = []  # when it was sent, how long it took
        self.sent: set[bytes] = set()
        self.errors: list[str] = []
        self.stop = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stop.wait(self.pause_s):
            body = f"{self.ident}-{number}".encode()
            begun = time.monotonic()
            try:
                self.client.publish(self.topics[number % len(self.topics)], body).result(timeout=ANSWER_S)
            except Exception as error:  # whatever a program would see
                self.errors.append(f"{type(error).__name__}: {error}")
            else:
                self.sent.add(body)
                self.answered.append((begun, time.monotonic() - begun))
            number += 1


class Customers:
    """Publishers through every endpoint, and a receiver of each topic, which acknowledges what it gets.

    Receivers know all endpoints: the client gives a stream up whose only endpoint is away for a minute.
    """

    def __init__(self, endpoints: Sequence[str], *, topics: int = 8, rate: float = 40.0, many: int = 4) -> None:
        """`rate`: messages a second of all together; `many`: publishers of each endpoint."""
        self.endpoints = list(endpoints)
        self.api = official.Api(self.endpoints[0])
        self.project = f"projects/shop-{uuid.uuid4().hex[:8]}"
        self.topics = [f"{self.project}/topics/orders-{number}" for number in range(topics)]
        self.received: set[bytes] = set()
        self._closed, self._ended = False, list[str]()
        self.pulls: list[tuple[Any, Any]] = []
        for topic in self.topics:
            self.api.create_topic({"name": topic})
        for number, topic in enumerate(self.topics):
            name = topic.replace("/topics/", "/subscriptions/")
            self.api.create_subscription({"name": name, "topic": topic})
            turn = number % len(self.endpoints)
            known = self.endpoints[turn:] + self.endpoints[:turn]
            client = official.subscriber(known[0] if len(known) == 1 else f"ipv4:{','.join(known)}")
            self.pulls.append((client, client.subscribe(name, callback=self._take)))
        self.publishers = [
            Customer(one, self.topics[number:] + self.topics[:number], rate / len(self.endpoints) / many)
            for one in self.endpoints
            for number in range(many)
        ]

    def _take(self, message: Any) -> None:
        self.received.add(message.data)
        message.ack()

    def start(self) -> Customers:
        for one in self.publishers:
            one.start()
        eventually(lambda: all(len(one.answered) > 5 for one in self.publishers), 60, "customers are served")
        return self

    @property
    def sent(self) -> set[bytes]:
        return set().union(*(one.sent for one in self.publishers))

    def failed(self) -> list[str]:
        """What programs saw: of publishes, and of streams that ended before they were closed."""
        if not self._closed:
            self._ended = [str(pull.exception()) for _, pull in self.pulls if pull.done()]
        return [*(text for one in self.publishers for text in one.errors), *self._ended]

    def times(self, *spans: tuple[float, float]) -> tuple[list[float], list[float]]:
        """How long answers took: of publishes that were under way in one of these spans, and of all others."""
        inside: list[float] = []
        outside: list[float] = []
        for one in self.publishers:
            for begun, took in one.answered:
                within = any(begun <= end and begun + took >= start for start, end in spans)
                (inside if within else outside).append(took)
        return inside, outside

    def end(self, within: float = 60.0) -> None:
        """Stop publishing; everything sent must have been received."""
        for one in self.publishers:
            one.stop.set()
        for one in self.publishers:
            one.join()
        try:
            with contextlib.suppress(AssertionError):
                eventually(lambda: self.sent <= self.received, within)
            missing = sorted(self.sent - self.received)
            ended = [pull.done() for _, pull in self.pulls]
            assert not missing, f"{len(missing)} of {len(self.sent)} not received: {missing[:5]}; streams over: {ended}"
        finally:
            self.close()

    def close(self) -> None:
        if self._closed:
            return
        self.failed()
        self._closed = True
        for one in self.publishers:
            one.stop.set()
        for client, pull in self.pulls:
            pull.cancel()
            client.close()
        for one in self.publishers:
            if one.is_alive():
                one.join()
            one.client.stop()
        self.api.close()


class ContinuousTest(threading.Thread):
    """What goes on in an environment without customers: one publish after the other, whatever becomes of them."""

    def __init__(self, endpoint: str, rate: float = 20.0) -> None:
        super().__init__(daemon=True)
        self._api, self._pause_s = official.Api(endpoint), 1 / rate
        self._topic = "projects/tests/topics/continuous"
        self._over = threading.Event()

    def run(self) -> None:
        self._api.create_topic({"name": self._topic})
        while not self._over.wait(self._pause_s):
            with contextlib.suppress(grpc.RpcError):
                self._api.publish({"topic": self._topic, "messages": [{"data": b"x"}]}, timeout=5.0)

    def close(self) -> None:
        self._over.set()
        self.join()
        self._api.close()


def percentile(times: Sequence[float], share: float) -> float:
    """In milliseconds."""
    ordered = sorted(times)
    return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1) if ordered else 0.0
