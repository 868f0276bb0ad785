"""Pushes over real sockets of this machine: what is connected to, what is sent, and what counts as an answer."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import jwt
import pytest

from syncpoint.base.runtime.clock import SystemClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.inner.feed import open_feed
from syncpoint.broker.inner.inner_driver import ConsumingProcess
from syncpoint.broker.push.addresses import Vetting, networks
from syncpoint.broker.push.http_sender import HttpSender, PushFailed, Resolve, SystemNames, VettedBackend
from syncpoint.broker.push.oidc_tokens import OidcTokens
from syncpoint.broker.push.own_endpoints import OwnEndpoints
from syncpoint.broker.push.push_config import Endpoint
from syncpoint.broker.push.push_driver import PushDriver
from syncpoint.broker.push.signing_keys import SigningKeys, jwks
from syncpoint.catalog.access.keysets import keys_of_set
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.catalog.transforms.model_client import ModelClient
from syncpoint.testing.rigs.certificates import Authority
from syncpoint.testing.rigs.forwarder_harness import ForwarderHarness
from syncpoint.testing.rigs.plain_tests import plain_test
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("push")

LOCAL = Vetting(networks(["loopback"]))
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Endpoints:
    """A server of this machine that gives every request the same answer, and remembers what came."""

    def __init__(self, answer: bytes = OK, *, endless: bool = False) -> None:
        self.answer, self.endless = answer, endless
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.connections, self.port, self.names = 0, 0, list[str | None]()

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Endpoints]:
        if tls is not None:
            tls.sni_callback = lambda _, name, __: self.names.append(name)
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    def at(self, host: str = "127.0.0.1", scheme: str = "http") -> Endpoint:
        return Endpoint(scheme, host, self.port, "/push?a=b")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            chosen = writer.get_extra_info("ssl_object")
            if chosen is not None and chosen.selected_alpn_protocol() == "h2":
                await self._serve_h2(reader, writer)
            else:
                await self._serve_h1(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the sender has closed the connection
        finally:
            writer.close()

    async def _serve_h1(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {":start": head[0]}
            for line in filter(None, head[1:]):
                name, _, value = line.partition(": ")
                headers[name.lower()] = value
            self.requests.append((headers, await reader.readexactly(int(headers["content-length"]))))
            writer.write(self.answer)
            while self.endless:
                writer.write(b"x" * 65_536)
                await writer.drain()

    async def _serve_h2(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        heads: dict[int, dict[str, str]] = {}
        bodies: dict[int, bytes] = {}
        while True:
            writer.write(connection.data_to_send())
            data = await reader.read(65_536)
            if not data:
                return
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    heads[event.stream_id], bodies[event.stream_id] = dict(event.headers), b""
                elif isinstance(event, h2.events.DataReceived):
                    bodies[event.stream_id] += event.data
                elif isinstance(event, h2.events.StreamEnded):
                    self.requests.append((heads[event.stream_id], bodies[event.stream_id]))
                    connection.send_headers(event.stream_id, [(":status", "202")], end_stream=True)


def story(reported: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(reported(), 30))  # type: ignore[arg-type]


@asynccontextmanager
async def sending(
    vetting: Vetting = LOCAL, *, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[HttpSender]:
    sender = HttpSender(vetting, agent="test", resolve=resolve, tls=tls)
    try:
        yield sender
    finally:
        await sender.close()


class Names:
    """Answers for every name with the next of its lists, the last one again and again."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers, self.asked = list(answers), 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@plain_test(story)
async def test_a_request_and_its_connection_are_what_http_says() -> None:
    async with Endpoints().serving() as server, sending() as sender:
        for _ in range(3):
            assert await sender.post(server.at(), [(b"content-type", b"application/json")], b'{"a":1}', 30) == 200
        assert server.connections == 1
        headers, body = server.requests[0]
        assert body == b'{"a":1}'
        assert headers == {
            ":start": "POST /push?a=b HTTP/1.1", "host": f"127.0.0.1:{server.port}", "user-agent": "test",
            "accept": "*/*", "content-length": "7", "content-type": "application/json",
        }  # fmt: skip


@pytest.mark.parametrize(
    "found", [["127.0.0.1"], ["10.0.0.1"], ["::ffff:127.0.0.1"], ["169.254.169.254"], ["8.8.8.8", "127.0.0.1"], ["::1"]]
)
@plain_test(story)
async def test_a_name_that_leads_inside_is_not_connected_to(*, found: list[str]) -> None:
    async with Endpoints().serving() as server, sending(Vetting(), resolve=Names(found)) as sender:
        with pytest.raises(PushFailed, match="may not go to"):
            await sender.post(server.at("e.example"), [], b"", 30)
        assert server.connections == 0


@plain_test(story)
async def test_a_name_is_asked_once_for_a_connection_so_it_cannot_change_in_between() -> None:
    names = Names(["127.0.0.1"], ["10.9.9.9"])
    async with Endpoints().serving() as server, sending(resolve=names) as sender:
        assert await sender.post(server.at("e.example"), [], b"", 30) == 200
        assert names.asked == 1
        server.answer = OK.replace(b"OK\r\n", b"OK\r\nconnection: close\r\n", 1)
        assert await sender.post(server.at("e.example"), [], b"", 30) == 200
        assert names.asked == 1  # on the same connection
        with pytest.raises(PushFailed, match="may not go to"):
            await sender.post(server.at("e.example"), [], b"", 30)
        assert names.asked == 2


@pytest.mark.parametrize("found", ["127.0.0.1", "127.0.0.5", "0.0.0.0", "::ffff:127.0.0.1", "::1"])
@plain_test(story)
async def test_listeners_of_the_deployment_are_no_targets(*, found: str) -> None:
    async with Endpoints().serving() as server, Endpoints().serving() as other:
        own = OwnEndpoints(lambda: [f"127.0.0.1:{server.port}"])
        vetting = Vetting(networks(["loopback", "0.0.0.0/0", "::/0"]), own)
        async with sending(vetting, resolve=Names([found])) as sender:
            with pytest.raises(PushFailed, match="leads back to this deployment"):
                await sender.post(server.at("e.example"), [], b"", 30)
            assert server.connections == 0
        async with sending(vetting, resolve=Names(["127.0.0.1"])) as sender:
            assert await sender.post(other.at("e.example"), [], b"", 30) == 200


@plain_test(story)
async def test_a_model_is_not_asked_at_a_listener_of_the_deployment() -> None:
    names = SystemNames("test-names")
    async with Endpoints().serving() as server:
        own = OwnEndpoints(lambda: [f"127.0.0.1:{server.port}"])
        client = ModelClient(VettedBackend.anywhere(own, names))
        try:
            with pytest.raises(OSError, match="leads back to this deployment"):
                await client(f"http://localhost:{server.port}/", b"{}", b"", 5, 100)
            assert server.connections == 0
        finally:
            await client.close()
            names.close()


@plain_test(story)
async def test_redirects_are_not_followed() -> None:
    async with Endpoints().serving() as inside, sending() as sender:
        redirect = f"HTTP/1.1 307 Go\r\nlocation: http://127.0.0.1:{inside.port}/\r\ncontent-length: 0\r\n\r\n"
        async with Endpoints(redirect.encode()).serving() as server:
            assert await sender.post(server.at(), [], b"secret", 30) == 307
        assert inside.requests == []


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")

    async def reported() -> None:
        async with Endpoints().serving() as server, sending() as sender:
            assert await sender.post(server.at(), [], b"", 30) == 200

    story(reported)


@plain_test(story)
async def test_of_an_answer_no_more_than_a_little_is_read() -> None:
    endless = Endpoints(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", endless=True)
    async with endless.serving() as server, sending() as sender:
        assert await sender.post(server.at(), [], b"", 20) == 200


@plain_test(story)
async def test_102_is_an_answer_although_http_waits_for_another() -> None:
    for answer, status in (
        (b"HTTP/1.1 102 Processing\r\n\r\n", 102),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK, 200),
    ):
        async with Endpoints(answer).serving() as server, sending() as sender:
            assert await sender.post(server.at(), [], b"", 30) == status


@plain_test(story)
async def test_silence_and_rubbish_are_failures() -> None:
    async with sending() as sender:
        for answer, why, within_s in (
            (b"", "no answer within 0.2 s", 0.2),
            (b"rubbish\r\n\r\n", "illegal status line", 30),
        ):
            async with Endpoints(answer).serving() as server:
                with pytest.raises(PushFailed, match=why):
                    await sender.post(server.at(), [], b"", within_s)
        with pytest.raises(PushFailed, match="cannot be connected to"):
            await sender.post(server.at(), [], b"", 30)  # nobody listens there any more


@pytest.mark.parametrize("protocol", ["h2", "http/1.1"])
def test_the_certificate_is_that_of_the_name_whatever_the_address(tmp_path: Path, protocol: str) -> None:
    authority = Authority(tmp_path)

    def context(host: str) -> ssl.SSLContext:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*authority.issue(host, [host]))
        tls.set_alpn_protocols([protocol])
        return tls

    async def reported() -> None:
        trusted = ssl.create_default_context(cafile=str(authority.ca))
        here = Names(["127.0.0.1"])
        async with Endpoints().serving(context("e.example")) as server, sending(resolve=here, tls=trusted) as sender:
            status = await sender.post(server.at("e.example", "https"), [(b"x-a", b"1")], b"body", 30)
            assert status == (202 if protocol == "h2" else 200)
            headers, body = server.requests[0]
            assert (body, headers["x-a"]) == (b"body", "1")
            assert headers.get(":authority", headers.get("host")) == f"e.example:{server.port}"
            assert server.names == ["e.example"]
            with pytest.raises(PushFailed, match="certificate"):
                await sender.post(server.at("other.example", "https"), [], b"body", 30)
            assert len(server.requests) == 1
        async with Endpoints().serving(context("e.example")) as server, sending(resolve=here) as sender:
            with pytest.raises(PushFailed, match="certificate"):
                await sender.post(server.at("e.example", "https"), [], b"body", 30)

    story(reported)


class _Copy:
    """The catalog of the forwarders, and who follows it."""

    def __init__(self, forwarders: ForwarderHarness) -> None:
        self.forwarders = forwarders
        self.on_change: list[Callable[[CatalogChange], None]] = []

    @property
    def catalog(self) -> Catalog:
        return self.forwarders.publish.catalog

    async def at(self, revision: int) -> None:
        """It is this process's own."""

    async def commit(self, changes: Sequence[CatalogChange]) -> None:
        self.forwarders.commit(*changes)


@plain_test(story)
async def test_a_published_message_arrives_signed_and_is_acknowledged() -> None:
    async with Endpoints().serving() as server, sending() as sender:
        url = f"http://127.0.0.1:{server.port}/push"
        config = pubsub.PushConfig(push_endpoint=url)
        config.oidc_token.service_account_email = "pusher@p.example"
        forwarders = ForwarderHarness(config=pubsub.Subscription(push_config=config).SerializeToString())
        copy, clock = _Copy(forwarders), SystemClock()
        keys = SigningKeys(copy.catalog, copy.commit, clock)
        await keys.upkeep()
        tokens = OidcTokens(keys, "https://pubsub.example", clock, lambda account: account)
        driver = PushDriver(
            ConsumingProcess(copy, partial(open_feed, forwarders.subscribe), clock, SeededRandom(1)),
            sender,
            LOCAL,
            tokens=tokens,
        )
        driver.start()
        forwarders.send("hello", attributes="none")
        while not server.requests or forwarders.subscribe.outstanding()[0]:
            forwarders.quiesce()
            await asyncio.sleep(0.01)
        await driver.close()
        [(headers, body)] = server.requests
        found = json.loads(body)
        assert found["message"]["attributes"] == {"attributes": "none"}
        assert found["subscription"] == forwarders.record.name
        token = headers["authorization"].removeprefix("Bearer ")
        key = keys_of_set(jwks(copy.catalog))[jwt.get_unverified_header(token)["kid"]].key
        assert jwt.decode(token, key, ["RS256"], audience=url)["email"] == "pusher@p.example"
