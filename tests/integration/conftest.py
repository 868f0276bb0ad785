"""Servers and clients for the integration tests.

One server serves the whole session; every test has a project of its own on it, so tests neither see nor wait for one
another. Tests that kill servers or spoil disks make their own with `boot`. SYNCPOINT_TEST_ENDPOINT=host:port runs the
tests that need only a shared server against one that is already running.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from syncpoint.front.client.client import Client
from syncpoint.testing.rigs import official
from syncpoint.testing.rigs.etcd import why_not
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf import methods
from tests.kit import forked_programs, houses
from tests.kit.endpoint import Endpoint

forked_programs.install()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What shares a cluster is marked so: `make test` runs it apart. Its waits, each with a bound of its own, add up to
    more than the time after which a test ends its whole process, and says nothing of what it waited for.
    """
    for item in items:
        if "shared_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker("shared_cluster")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))


class Space:
    """A project of its own on a server, with short ways to do what most tests do."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.api = official.Api(endpoint)
        self.project = f"p{uuid.uuid4().hex[:16]}"
        self._streams: list[official.HeldStream] = []
        self._closing: list[Callable[[], Any]] = [self.api.close]

    def path(self, kind: str, short: str) -> str:
        return f"projects/{self.project}/{kind}/{short}"

    def asked(self, method: str, **fields: Any) -> Any:
        """What a method of the admin service answers."""
        with Client(self.endpoint) as client:
            return client.call(f"Admin.{method}", methods.ADMIN[method].request(**fields))

    def topic(self, short: str = "topic", **fields: Any) -> str:
        """Create a topic and return its full name."""
        return self.api.create_topic({"name": self.path("topics", short), **fields}).name

    def subscription(self, topic: str, short: str = "sub", **fields: Any) -> str:
        """Create a subscription and return its full name."""
        name = self.path("subscriptions", short)
        return self.api.create_subscription({"name": name, "topic": topic, **fields}).name

    def pair(self, **fields: Any) -> tuple[str, str]:
        """A topic with one subscription."""
        topic = self.topic()
        return topic, self.subscription(topic, **fields)

    def publish(self, topic: str, *data: bytes, key: str = "", attributes: dict[str, str] | None = None) -> list[str]:
        """Publish one request; returns the message ids."""
        messages = [{"data": body, "ordering_key": key, "attributes": attributes or {}} for body in data]
        return list(self.api.publish({"topic": topic, "messages": messages}).message_ids)

    def pull(
        self, subscription: str, count: int = 1, within: float = 60.0, ack: bool = False, most: int = 1000
    ) -> list[Any]:
        """Pull until `count` messages have come; fails after `within` seconds. Returns everything received."""
        got: list[Any] = []
        end = time.monotonic() + within
        while len(got) < count:
            left = end - time.monotonic()
            assert left > 0, f"{len(got)} of {count} messages within {within:g} s"
            fresh = self.pull_once(subscription, most=most, wait=min(max(left, 1.0), 8.0))
            if ack and fresh:
                self.ack(subscription, *fresh)
            got += fresh
        return got

    def pull_once(self, subscription: str, most: int = 1000, wait: float = 8.0) -> list[Any]:
        """One pull that waits for messages at most about `wait` seconds; empty when none came."""
        try:
            answer = self.api.pull({"subscription": subscription, "max_messages": most}, timeout=wait)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                return []
            raise
        return list(answer.received_messages)

    def peek(self, subscription: str, most: int = 1000) -> list[Any]:
        """What a pull gets that does not wait."""
        request = {"subscription": subscription, "max_messages": most, "return_immediately": True}
        return list(self.api.pull(request).received_messages)

    def rest(self, subscription: str, within: float = 60.0) -> list[Any]:
        """All that is not acknowledged; acknowledges it, until nothing is left."""
        got: list[Any] = []
        end = time.monotonic() + within
        while left := self.asked("GetSubscriptionState", subscription=subscription).backlog_messages:
            assert time.monotonic() < end, f"{len(got)} messages came, and {left} are left"
            if fresh := self.peek(subscription):
                self.ack(subscription, *fresh)
                got += fresh
        return got

    def ack(self, subscription: str, *received: Any) -> None:
        self.api.acknowledge({"subscription": subscription, "ack_ids": [one.ack_id for one in received]})

    def deadline(self, subscription: str, seconds: int, *received: Any) -> None:
        """Set the ack deadline of deliveries; 0 is a nack."""
        ids = [one.ack_id for one in received]
        self.api.modify_ack_deadline({"subscription": subscription, "ack_ids": ids, "ack_deadline_seconds": seconds})

    def nack(self, subscription: str, *received: Any) -> None:
        self.deadline(subscription, 0, *received)

    def attached(self, subscription: str, count: int) -> None:
        """Wait until so many streams are open: from now on each gets its share."""
        official.eventually(
            lambda: self.asked("GetSubscriptionState", subscription=subscription).subscribers == count,
            what=f"{count} streams are open",
        )

    def stream(self, subscription: str, **first: Any) -> official.HeldStream:
        """Open a StreamingPull that is ended with the test."""
        stream = official.HeldStream(self.api, subscription, **first)
        self._streams.append(stream)
        return stream

    def publisher(self, **options: Any) -> Any:
        """A high-level publisher client, stopped with the test."""
        client = official.publisher(self.endpoint, **options)
        self._closing.append(client.stop)
        return client

    def subscriber(self) -> Any:
        """A high-level subscriber client, closed with the test."""
        client = official.subscriber(self.endpoint)
        self._closing.append(client.close)
        return client

    def listen(self, subscription: str, callback: Callable[[Any], None], **options: Any) -> Any:
        """Receive with a high-level client of its own; the returned future is cancelled with the test."""
        client = official.subscriber(self.endpoint)
        future = client.subscribe(subscription, callback=callback, **options)

        def stop() -> None:
            future.cancel()
            try:
                future.result(timeout=10)
            finally:
                client.close()

        self._closing.append(stop)
        return future

    def close(self) -> None:
        for stream in self._streams:
            stream.cancel()
        for close in reversed(self._closing):
            close()


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of the server that all tests share."""
    running = os.environ.get("SYNCPOINT_TEST_ENDPOINT")
    if running:
        yield running
        return
    server = ServerProcess(tmp_path_factory.mktemp("shared") / "data")
    try:
        server.start()
        yield server.endpoint
    finally:
        server.close()


@pytest.fixture
def space(endpoint: str) -> Iterator[Space]:
    """A fresh project on the shared server."""
    made = Space(endpoint)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def model() -> Iterator[Endpoint]:
    """What transforms that name `houses.MODEL` ask."""
    with Endpoint() as found:
        found.status, found.answer = 200, b'{"score": 0.5}'
        yield found


@pytest.fixture(scope="module", params=houses.KINDS)
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, model: Endpoint) -> Iterator[str]:
    """Where one of the three houses is served; each is started once for a file."""
    if request.param == "cluster" and why_not():
        pytest.skip("etcd is not installed (Debian: apt-get install etcd-server)")
    with houses.house_of(request.param, tmp_path_factory.mktemp(request.param), model.url) as endpoint:
        yield endpoint


@pytest.fixture
def boot(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """`boot(...)` starts a server of this test's own; all of them are ended with the test.

    Without `data` each server has a folder of its own below the test's temporary folder.
    """
    servers: list[ServerProcess] = []

    def start(data: Path | None = None, **options: Any) -> ServerProcess:
        server = ServerProcess(data or tmp_path / f"data-{len(servers)}", **options)
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def enter() -> Iterator[Callable[[str], Space]]:
    """`enter(endpoint)` is a fresh project on that server."""
    spaces: list[Space] = []

    def make(endpoint: str) -> Space:
        spaces.append(Space(endpoint))
        return spaces[-1]

    yield make
    for space in spaces:
        space.close()


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The cluster that all cluster tests share; None where there is no etcd."""
    from syncpoint.testing.rigs.etcd import why_not
    from tests.kit.clusters import Kit

    if why_not():
        yield None
        return
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "bucket").mkdir()
    kit = Kit(folder, changes={"push": {"networks": ["loopback"]}, "buckets": {"archive": str(folder / "bucket")}})
    try:
        yield kit.up()
    finally:
        kit.down()


@pytest.fixture
def cluster(shared_cluster: Any) -> Iterator[Any]:
    """The shared cluster, whole; what the test broke is mended after it."""
    if shared_cluster is None:
        pytest.skip("etcd is not installed (Debian: apt-get install etcd-server)")
    yield shared_cluster
    shared_cluster.heal()
    shared_cluster.stabilize()
