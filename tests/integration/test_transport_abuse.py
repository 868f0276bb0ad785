"""A real server with callers who do not behave: what they hold is bounded, others are served, silence ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from google.pubsub_v1 import types
from hpack import Encoder

from syncpoint.front.client.client import Client
from syncpoint.testing.rigs import official
from syncpoint.testing.rigs.certificates import Authority
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf import methods
from syncpoint.wire.transport import frames
from syncpoint.wire.transport.calls import Unary
from syncpoint.wire.transport.frames import SettingId
from syncpoint.wire.transport.limits import MIB, TransportLimits
from syncpoint.wire.transport.server import serve

pytestmark = pytest.mark.shows("transport")

PROJECT = "projects/crowded"
PULL = "/google.pubsub.v1.Subscriber/StreamingPull"
LIST = "/google.pubsub.v1.Publisher/ListTopics"
PUBLISH = "/google.pubsub.v1.Publisher/Publish"
UNREAD_BYTES_MAX = 12 * MIB
"""What a stream that nobody reads may take of a server's memory: a response, and what the socket is given."""


class RawClient:
    """A connection that writes frames and reads nothing, or only on request."""

    def __init__(self, endpoint: str, window: int) -> None:
        host, port = endpoint.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self._encoder = Encoder()
        self._sid = 1
        self._rest = b""
        self.socket.sendall(frames.PREFACE + frames.settings({SettingId.INITIAL_WINDOW_SIZE: window}))
        if window > frames.WINDOW_DEFAULT:
            self.socket.sendall(frames.window_update(0, window - frames.WINDOW_DEFAULT))

    def ask(self, path: str, message: bytes, *, more: bool = False) -> None:
        """Begin a call. `more`: its stream stays open for other messages."""
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers")]
        block = self._encoder.encode([*fields, ("content-type", "application/grpc")])
        body = b"\0" + len(message).to_bytes(4, "big") + message
        self.socket.sendall(
            frames.headers(self._sid, block, end=False, frame_bytes=16384)
            + frames.frame(frames.DATA, 0 if more else frames.END_STREAM, self._sid, body)
        )
        self._sid += 2

    def take(self) -> int:
        """Read what has come; the number of answers that ended with it. ConnectionError at the end."""
        fresh = self.socket.recv(1 << 20)
        if not fresh:
            raise ConnectionError("the server has closed the connection")
        data, at, ended = self._rest + fresh, 0, 0
        while len(data) - at >= 9:
            end = at + 9 + int.from_bytes(data[at : at + 3], "big")
            if end > len(data):
                break
            ended += data[at + 3] == frames.HEADERS and bool(data[at + 4] & frames.END_STREAM)
            at = end
        self._rest = data[at:]
        return ended


def resident(pid: int) -> int:
    """Bytes of memory of a process, at its highest."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with 400 topics of 8 KB. No publish waits for a disk: what is checked are turns."""
    with ServerProcess(tmp_path_factory.mktemp("crowded") / "data", durability="memory") as server:
        api = official.Api(server.endpoint)
        labels = {f"k{number}{'y' * 60}": "v" * 63 for number in range(60)}
        for number in range(400):
            api.create_topic({"name": f"{PROJECT}/topics/t{number:03d}", "labels": labels})
        api.create_topic({"name": "projects/calm/topics/mine"})
        api.close()
        yield server


def publishing(endpoint: str, until: Callable[[], bool]) -> list[float]:
    """Seconds that each of a calm client's publishes took, one after another, until stopped; each is answered OK."""
    api = official.Api(endpoint)
    took = []
    while not until():
        begin = time.monotonic()
        api.publish({"topic": "projects/calm/topics/mine", "messages": [{"data": b"x"}]}, timeout=60)
        took.append(time.monotonic() - begin)
    api.close()
    return took


def test_what_nobody_reads_is_bounded_over_all_connections(crowded: ServerProcess) -> None:
    """60 connections ask for 25 MB each and read none of it; another client does not notice."""
    assert crowded.pid is not None
    before = resident(crowded.pid)
    request = types.ListTopicsRequest.pb()(project=PROJECT, page_size=1000).SerializeToString()
    clients = [RawClient(crowded.endpoint, window=0) for _ in range(60)]
    for client in clients:
        for _ in range(100):
            client.ask(LIST, request)
    asked, closings = time.monotonic(), "connections were closed"

    def until() -> bool:
        """6,000 answers of 256 KB are 1.5 GB; they are made in turns, as fast as the machine is."""
        seconds = time.monotonic() - asked
        return seconds > 12 and (closings in crowded.logs() or seconds > 120)

    took = publishing(crowded.endpoint, until)
    assert resident(crowded.pid) - before < TransportLimits().unsent_total_bytes + 300 * MIB
    closed = 0
    for client in clients:
        client.socket.setblocking(False)
        try:
            while fresh := client.socket.recv(1 << 20):
                closed += b"among the slowest" in fresh
        except OSError:
            pass
        client.socket.close()
    assert closed or closings in crowded.logs()
    assert len(took) > 20  # all of them answered, and none waited for what the others had asked


def test_one_clients_lists_do_not_hold_another_up(crowded: ServerProcess) -> None:
    """Ten connections have 200 lists each in the queue all the time. Publishes are answered among them, those of new
    connections, too; in the order of their coming each would wait for 2,000 lists."""
    lists = types.ListTopicsRequest.pb()(project=PROJECT, page_size=1000).SerializeToString()
    message = {"topic": "projects/calm/topics/mine", "messages": [{"data": b"x"}]}
    publish = types.PublishRequest.pb()(**message).SerializeToString()
    with contextlib.ExitStack() as opened, selectors.DefaultSelector() as selector:

        def connect() -> RawClient:
            client = RawClient(crowded.endpoint, window=frames.WINDOW_MAX)
            opened.enter_context(client.socket)
            selector.register(client.socket, selectors.EVENT_READ, client)
            return client

        greedy = {connect(): 0 for _ in range(10)}
        for client in greedy:
            for _ in range(200):
                client.ask(LIST, lists)
        calm, published = connect(), 0
        calm.ask(PUBLISH, publish)
        while published < 40 or min(greedy.values()) < 20:
            for client in [key.data for key, _ in selector.select()]:
                answered = client.take()
                if client in greedy:
                    greedy[client] += answered
                    for _ in range(answered):
                        client.ask(LIST, lists)
                elif answered:
                    published += 1
                    (calm if published % 2 else connect()).ask(PUBLISH, publish)
            # Some of each; hundreds only where this process was held up: what it had asked for is answered in the
            # meantime.
            assert sum(greedy.values()) < 500 * max(published, 10)


def test_streams_that_nobody_reads_are_bounded_and_their_messages_come_to_others(tmp_path: Path) -> None:
    """40 subscribers are owed 48 MB each and read none of it: half of them grant no window, half do not read."""
    topic, body, count = "projects/unread/topics/much", b"x" * 1_000_000, 48
    with ServerProcess(tmp_path / "data", durability="memory") as server:
        assert server.pid is not None
        api = official.Api(server.endpoint)
        api.create_topic({"name": topic})
        api.create_topic({"name": "projects/calm/topics/mine"})
        names = [f"projects/unread/subscriptions/s{number:02d}" for number in range(41)]
        for name in names:
            api.create_subscription({"name": name, "topic": topic, "ack_deadline_seconds": 600})
        for number in range(count):
            api.publish({"topic": topic, "messages": [{"data": b"%d " % number + body}]}, timeout=60)
        before, clients = resident(server.pid), []
        for number, name in enumerate(names[1:]):
            clients.append(RawClient(server.endpoint, window=frames.WINDOW_MAX if number % 2 else 0))
            first = types.StreamingPullRequest.pb()(subscription=name, stream_ack_deadline_seconds=600)
            clients[-1].ask(PULL, first.SerializeToString(), more=True)
        with Client(server.endpoint) as client:

            def outstanding(name: str) -> int:
                asked = methods.ADMIN.GetSubscriptionState.request(subscription=name)
                return int(client.call("Admin.GetSubscriptionState", asked).outstanding_messages)

            official.eventually(lambda: all(outstanding(name) for name in names[1:]), 120, "all streams are lent some")
            reader = official.HeldStream(api, names[0])
            assert {int(one.message.data.split()[0]) for one in reader.wait(count, 120)} == set(range(count))
            assert all(outstanding(name) < count for name in names[1:]), "what does not fit is lent to nobody"
        ends, answered = time.monotonic() + 5, itertools.count()
        publishing(server.endpoint, lambda: next(answered) > 20 and time.monotonic() > ends)
        assert resident(server.pid) - before < 40 * UNREAD_BYTES_MAX, "40 times what all are owed would be 1.9 GB"
        for unread in clients:
            unread.socket.close()
        for name in names[1:3]:
            after = official.HeldStream(api, name)
            assert {int(one.message.data.split()[0]) for one in after.wait(count, 120)} == set(range(count))
        api.close()


@pytest.mark.parametrize("encrypted", [True, False])
@pytest.mark.parametrize("greeted", [True, False])
def test_who_says_nothing_is_gone_soon(encrypted: bool, greeted: bool, tmp_path: Path) -> None:
    """300 connections, TLS finished, then silence; their ends never read, so nothing is answered either."""
    limits = TransportLimits(greeting_s=0.5, first_request_s=1.0, close_s=0.5, drain_ping_s=0.2, sweep_s=0.1)

    async def run() -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*Authority(tmp_path).issue("server"))
        methods = {b"/t.T/Echo": Unary(lambda call, request: call.reply(request))}
        server = await serve(methods, tls=tls if encrypted else None, limits=limits)
        clients = await asyncio.to_thread(_silent, server.port, encrypted, greeted)
        async with asyncio.timeout(30):
            while server.stats["connections"]:
                await asyncio.sleep(0.05)
        # Who did not even greet broke a rule; the others were notified that they may come again.
        assert server.stats["faults"] == (0 if greeted else 300)
        assert server.stats["refused"] == 0
        for client in clients:
            client.close()
        await server.close()

    uvloop.run(run())


def _silent(port: int, encrypted: bool, greeted: bool) -> list[Any]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    clients: list[Any] = []
    for _ in range(300):
        client: Any = socket.create_connection(("127.0.0.1", port))
        if encrypted:
            client = context.wrap_socket(client)
        if greeted:
            client.sendall(frames.PREFACE + frames.settings({}))
        clients.append(client)
    return clients
