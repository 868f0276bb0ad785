"""A listener over sockets: gRPC and HTTP/1.1 on one port, one gate, and callers that do not behave."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from syncpoint.base.model.errors import NotFound, ResourceExhausted, Unauthenticated
from syncpoint.testing.rigs.plain_tests import plain_test
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.status import retry_info
from syncpoint.wire.rest.http1 import LEAVING, HttpConnection, HttpFallback, http_fallback
from syncpoint.wire.transport.calls import Call, CallContext, Unary
from syncpoint.wire.transport.client import Channel
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.server import Server, serve

GET, PUBLISH, PULL = methods.PUBLISHER.GetTopic, methods.PUBLISHER.Publish, methods.SUBSCRIBER.Pull
TOPIC = "/v1/projects/p/topics/t"
LIMITS = TransportLimits(message_bytes=20_000)


class Served:
    """A served table of three methods. `pulls`: calls that nobody answers; `asked_about`: what admitted calls named."""

    server: Server
    fallback: HttpFallback

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.asked_about: list[str] = []
        self.pulls: asyncio.Queue[Call] = asyncio.Queue()
        self.connections: list[HttpConnection] = []
        self.callers: list[Caller] = []
        self.given, self.ended = 0, asyncio.Event()

    def get(self, call: Call, request: bytes) -> None:
        self.calls.append(call)
        name = pubsub.GetTopicRequest.FromString(request).topic
        if name.endswith("/missing"):
            raise NotFound(name)
        if name.endswith("/busy"):
            raise ResourceExhausted("later", [retry_info(3)])
        if name.endswith("/broken"):
            raise KeyError(name)
        call.reply([b"", pubsub.Topic(name=name, state=pubsub.Topic.ACTIVE).SerializeToString()])

    def publish(self, call: Call, request: bytes) -> None:
        asked = pubsub.PublishRequest.FromString(request)
        call.reply(
            pubsub.PublishResponse(message_ids=[one.data.decode() for one in asked.messages]).SerializeToString()
        )

    def pull(self, call: Call, request: bytes) -> None:
        call.on_cancel = lambda: self.calls.append(call)
        self.pulls.put_nowait(call)

    def admit(self, call: CallContext, resource: str) -> None:
        self.asked_about.append(resource)
        if call.metadata.get(b"authorization") == b"Bearer bad":
            raise Unauthenticated("Who are you?")

    async def pieces(self, request: Request) -> AsyncIterator[bytes]:
        """An answer in pieces of so many bytes as the query says, until the server stops; one that waits for `ended`
        where it says 0."""
        size, leaving = int(request.url.query), request.scope["extensions"][LEAVING]
        try:
            while not leaving.is_set():
                yield b"p" * (size or 5)
                self.given += 1
                if size:
                    await asyncio.sleep(0)
                else:
                    await leaving.wait()
        finally:
            self.ended.set()

    async def open(self, limits: TransportLimits = LIMITS) -> None:
        table = {
            GET.encode(): Unary(self.get),
            PUBLISH.encode(): Unary(self.publish),
            PULL.encode(): Unary(self.pull),
        }
        page = Route("/metrics", lambda request: PlainTextResponse("up 1" * (4_000_000 if request.url.query else 1)))
        fails = Route("/fails", lambda request: {}["nothing"])
        endless = Route("/endless", lambda request: StreamingResponse(self.pieces(request)))
        self.fallback = http_fallback(table, limits, admit=self.admit, pages=[page, fails, endless])

        def connected() -> HttpConnection:
            self.connections.append(self.fallback())
            return self.connections[-1]

        self.server = await serve(table, limits=limits, on_fallback=connected)

    async def connect(self) -> Caller:
        self.callers.append(Caller(*await asyncio.open_connection("127.0.0.1", self.server.port)))
        return self.callers[-1]


class Caller:
    """One connection, by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, verb: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], Any]:
        lines = [f"{verb} {path} HTTP/1.1", "host: here", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return await self.send("\r\n".join([*lines, "", ""]).encode() + body, bare=verb == "HEAD")

    async def send(self, data: bytes, *, bare: bool = False) -> tuple[int, dict[str, str], Any]:
        self.writer.write(data)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = b"" if bare else await self.reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        return (
            int(head[0].split()[1]),
            headers,
            json.loads(body) if "json" in headers.get("content-type", "") and body else body,
        )

    async def gone(self) -> bool:
        """Whether the server has closed; what it still sent is left out."""
        with contextlib.suppress(ConnectionResetError):
            await self.reader.read()
        return True


def run(test: Callable[[Served], Awaitable[None]], limits: TransportLimits = LIMITS) -> None:
    async def main() -> None:
        served = Served()
        await served.open(limits)
        try:
            await asyncio.wait_for(test(served), 20)
        finally:
            for caller in served.callers:
                caller.writer.close()
                with contextlib.suppress(ConnectionError):
                    await caller.writer.wait_closed()
            await served.server.close()
        assert served.fallback.shares.held == 0

    asyncio.run(main())


@plain_test(run)
async def test_one_port_for_both(served: Served) -> None:
    channel = Channel("127.0.0.1", served.server.port)
    answer = await channel.unary(GET, pubsub.GetTopicRequest(topic="projects/p/topics/t").SerializeToString())
    assert pubsub.Topic.FromString(answer).name == "projects/p/topics/t"
    caller = await served.connect()
    status, headers, body = await caller.ask("GET", TOPIC, authorization="Bearer x", x_goog_user_project="q")
    assert (status, body) == (200, {"name": "projects/p/topics/t", "state": "ACTIVE"})
    assert headers["content-type"] == "application/json; charset=utf-8"
    call = served.calls[-1]
    assert call.metadata == {b"authorization": b"Bearer x", b"x-goog-user-project": b"q"}
    assert call.path == GET.encode()
    assert call.peer == "{}:{}".format(*caller.writer.get_extra_info("sockname"))
    assert served.server.stats["connections"] == 2
    await channel.close()


@plain_test(run)
async def test_a_connection_takes_many_requests_also_ahead(served: Served) -> None:
    caller = await served.connect()
    two = f"GET {TOPIC} HTTP/1.1\r\nhost: x\r\n\r\nGET {TOPIC}2?fields=name HTTP/1.1\r\nhost: x\r\n\r\n".encode()
    assert (await caller.send(two))[0] == 200
    assert (await caller.send(b""))[2] == {"name": "projects/p/topics/t2"}
    assert (await caller.ask("GET", TOPIC, connection="close"))[1]["connection"] == "close"
    assert await caller.gone()


@plain_test(run)
async def test_errors_are_answers(served: Served) -> None:
    caller = await served.connect()
    for path, status, name in (
        (f"{TOPIC}/missing", 404, "NOT_FOUND"),
        ("/v1/projects/p/topics/missing", 404, "NOT_FOUND"),
        ("/v1/projects/p/topics/busy", 429, "RESOURCE_EXHAUSTED"),
        ("/v1/projects/p/topics/broken", 500, "INTERNAL"),
        (f"{TOPIC}?alt=media", 400, "INVALID_ARGUMENT"),
        (f"{TOPIC}?alt=xml", 400, "INVALID_ARGUMENT"),
        ("/fails", 500, "INTERNAL"),
        ("/$discovery/rest?version=v2", 404, "NOT_FOUND"),
        (f"{TOPIC}:publish", 405, "UNIMPLEMENTED"),
        (f"{TOPIC}?callback=f", 400, "INVALID_ARGUMENT"),
        (f"{TOPIC}?" + "&".join("a=1" for _ in range(1001)), 400, "INVALID_ARGUMENT"),
        ("/v1/projects/%ff/topics/t", 400, "INVALID_ARGUMENT"),
    ):
        got, headers, body = await caller.ask("GET", path)
        assert (got, body["error"]["code"], body["error"]["status"]) == (status, status, name), path
        assert headers.get("retry-after") == ("3" if status == 429 else None)
    assert "KeyError" not in json.dumps(body)
    status, _, body = await caller.ask("GET", "/v1/projects/p/topics/missing?$.xgafv=1")
    assert body["error"]["errors"][0]["reason"] == "notFound"


@plain_test(run)
async def test_ways_to_ask(served: Served) -> None:
    caller = await served.connect()
    body = json.dumps({"messages": [{"data": "aGk="}]}).encode()
    expected = {"messageIds": ["hi"]}
    assert (await caller.ask("POST", f"{TOPIC}:publish", body))[2] == expected
    assert (await caller.ask("POST", f"{TOPIC}:publish", gzip.compress(body), content_encoding="gzip"))[2] == expected
    assert (await caller.ask("GET", f"{TOPIC}?$alt=json;enum-encoding=int"))[2]["state"] == 1
    _, headers, _ = await caller.ask("GET", f"{TOPIC}?prettyPrint=false")
    assert int(headers["content-length"]) < int((await caller.ask("GET", TOPIC))[1]["content-length"])
    form = {"x_http_method_override": "GET", "content_type": "application/x-www-form-urlencoded"}
    assert (await caller.ask("POST", TOPIC, b"fields=name&alt=json", **form))[2]["name"] == "projects/p/topics/t"
    assert (await caller.ask("HEAD", "/openapi.json"))[0] == 200
    assert (await caller.ask("GET", "/openapi.json"))[2]["openapi"].startswith("3.")
    document = (await caller.ask("GET", "/$discovery/rest?version=v1"))[2]
    assert document["rootUrl"] == "http://here/"
    assert (await caller.ask("GET", "/metrics"))[2] == b"up 1"
    chunked = b"POST %s:publish HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" % TOPIC.encode()
    assert (await caller.send(chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)))[2] == expected
    expecting = b"POST %s:publish HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n"
    assert (await caller.send(expecting % (TOPIC.encode(), len(body))))[0] == 100
    assert (await caller.send(body))[2] == expected


@plain_test(run)
async def test_answers_are_compressed_for_who_takes_that(served: Served) -> None:
    caller = await served.connect()
    path = TOPIC + "x" * 3000
    for accepted, used in (("gzip, deflate", True), ("br, *", False), ("gzip;q=0.0", False), ("gzip;q=0.5", True)):
        _, headers, body = await caller.ask("GET", path, accept_encoding=accepted)
        assert headers.get("content-encoding") == ("gzip" if used else None), accepted
        if used:
            assert int(headers["content-length"]) < 500
        assert body["name"] == path.removeprefix("/v1/")
    assert "content-encoding" not in (await caller.ask("GET", TOPIC, accept_encoding="gzip"))[1]


@plain_test(run)
async def test_protobuf_both_ways(served: Served) -> None:
    caller = await served.connect()
    asked = pubsub.PublishRequest(messages=[{"data": b"hi"}]).SerializeToString()
    _, headers, body = await caller.ask(
        "POST", f"{TOPIC}:publish?alt=proto", asked, content_type="application/x-protobuf"
    )
    assert headers["content-type"] == "application/x-protobuf"
    assert pubsub.PublishResponse.FromString(body).message_ids == ["hi"]
    status, _, body = await caller.ask("GET", f"{TOPIC}/missing?$alt=proto")
    assert (status, body[:2]) == (404, b"\x08\x05")
    status, _, body = await caller.ask("POST", f"{TOPIC}:publish", b"\xff", content_type="application/protobuf; x=y")
    assert (status, body["error"]["message"]) == (400, "Invalid PROTO payload received.")


@plain_test(run)
async def test_what_may_be_done_at_a_path(served: Served) -> None:
    caller = await served.connect()
    for verb, path, status, allow in (
        ("POST", TOPIC, 405, "GET, HEAD, OPTIONS"),
        ("GET", f"{TOPIC}:publish", 405, "POST, OPTIONS"),
        ("OPTIONS", TOPIC, 200, "GET, HEAD, OPTIONS"),
        ("OPTIONS", "*", 404, None),
    ):
        got, headers, body = await caller.ask(verb, path)
        assert (got, headers.get("allow")) == (status, allow and allow.lower()), path
        assert status == 200 or body["error"]["code"] == status
    length = (await caller.ask("GET", TOPIC))[1]["content-length"]
    status, headers, _ = await caller.ask("HEAD", TOPIC)
    assert (status, headers["content-length"]) == (200, length)


@plain_test(run)
async def test_nothing_is_read_of_who_is_not_admitted(served: Served) -> None:
    head = f"POST {TOPIC}:publish?alt=%s HTTP/1.1\r\nhost: x\r\nauthorization: Bearer bad\r\n"
    for more in ("content-length: 100000", "content-length: 1", "transfer-encoding: chunked"):
        for kind in ("json", "proto"):
            status, got, _ = await (await served.connect()).send(f"{head % kind}{more}\r\n\r\n".encode())
            assert (status, got["connection"], "www-authenticate" in got) == (401, "close", True)
            assert kind in got["content-type"]
    for path in (b"/page", b"/nowhere"):
        head = b"POST %s HTTP/1.1\r\nhost: x\r\nauthorization: Bearer bad\r\ncontent-length: 100000\r\n\r\n"
        assert (await (await served.connect()).send(head % path))[0] == 401
    bad = b"POST /v1/projects/%ff/topics/t:publish HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n"
    assert (await (await served.connect()).send(bad))[0] == 400
    for headers in ({}, {"content_encoding": "gzip"}, {"content_type": "application/protobuf"}):
        status, got, body = await (await served.connect()).ask(
            "POST", f"{TOPIC}:publish?alt=media", b"{no json", authorization="Bearer bad", **headers
        )
        assert (status, body["error"]["status"]) == (401, "UNAUTHENTICATED")
        assert got["www-authenticate"].startswith("bearer")
    assert set(served.asked_about) == {"projects/p/topics/t", ""}, "what is noted of a refusal"


@plain_test(run, replace(LIMITS, unsent_total_bytes=10000))
async def test_answers_that_are_not_read_are_counted_with_those_of_grpc(served: Served) -> None:
    caller = await served.connect()
    caller.writer.transport.pause_reading()
    caller.writer.write(b"GET /metrics?many HTTP/1.1\r\nhost: x\r\n\r\n")
    while not served.server.stats["shed"]:
        await asyncio.sleep(0.001)
    caller.writer.transport.resume_reading()
    assert await caller.gone()
    while served.server.stats["connections"]:
        await asyncio.sleep(0.001)
    assert served.server.stats["unsent"] == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://here"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
    ],
)
@plain_test(run)
async def test_pages_of_other_sites_may_not_call(served: Served, *, headers: dict[str, str], status: int) -> None:
    assert (await (await served.connect()).ask("GET", TOPIC, **headers))[0] == status
    assert len(served.calls) == (status == 200)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 200_000, 431),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 17_000 + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 30_000, 400),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", 400),
    ],
)
@plain_test(run)
async def test_what_is_too_much_or_no_http_is_answered_and_cut_off(served: Served, *, data: bytes, status: int) -> None:
    caller = await served.connect()
    got, _, body = await caller.send(data)
    # Two heads that disagree end the connection whatever else is read of them.
    assert got == status
    assert body["error"]["code"] == status


@plain_test(run)
async def test_who_still_sends_what_is_refused_can_read_why(served: Served) -> None:
    caller = await served.connect()
    status, _, _ = await caller.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999\r\n\r\n")
    assert status == 400
    for _ in range(50):
        caller.writer.write(bytes(100_000))
        await caller.writer.drain()
    (connection,) = served.connections
    connection.sweep(asyncio.get_running_loop().time() + LIMITS.close_s + 1)
    assert await caller.gone()


@plain_test(run)
async def test_a_body_above_the_limit_of_messages_is_refused(served: Served) -> None:
    caller = await served.connect()
    content = {"messages": [{"orderingKey": "x" * 30_000}]}
    got, _, body = await caller.ask("POST", f"{TOPIC}:publish", json.dumps(content).encode())
    assert (got, body["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
    bomb = gzip.compress(b" " * 5_000_000)
    got, _, body = await caller.ask("POST", f"{TOPIC}:publish", bomb, content_encoding="gzip")
    assert (got, body["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")


@plain_test(run, replace(LIMITS, held_bytes=100))
async def test_nothing_more_is_taken_while_too_much_is_held(served: Served) -> None:
    served.fallback.shares.held += 101
    status, _, body = await (await served.connect()).ask("GET", TOPIC)
    assert (status, body["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
    served.fallback.shares.held -= 101


@plain_test(run, replace(LIMITS, held_bytes=100))
async def test_a_body_does_not_grow_while_too_much_is_held(served: Served) -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 200\r\n\r\n"
    status, _, body = await (await served.connect()).send(head + bytes(150))
    assert (status, body["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert "Too much unfinished data of 127.0.0.1 is being received" in body["error"]["message"]


@plain_test(run)
async def test_who_goes_away_cancels(served: Served) -> None:
    caller = await served.connect()
    caller.writer.write(b"POST /v1/projects/p/subscriptions/s:pull HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
    call = await served.pulls.get()
    assert call.deadline is None
    caller.writer.close()
    while not served.calls:
        await asyncio.sleep(0.001)
    assert served.calls == [call]
    assert call.cancelled
    call.reply(b"")  # changes nothing


async def first_piece(caller: Caller, size: int) -> bytes:
    caller.writer.write(f"GET /endless?{size} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    head = await caller.reader.readuntil(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head.lower()
    length = int(await caller.reader.readuntil(b"\r\n"), 16)
    return (await caller.reader.readexactly(length + 2))[:-2]


@plain_test(run)
async def test_an_answer_may_come_in_pieces_and_ends_when_the_server_stops(served: Served) -> None:
    caller = await served.connect()
    assert await first_piece(caller, 0) == b"ppppp"  # it is there although the answer goes on
    assert not served.ended.is_set()
    stopping = asyncio.ensure_future(served.server.drain(10))
    assert await caller.reader.read() == b"0\r\n\r\n"  # a whole answer, and then the end of the connection
    assert served.ended.is_set()
    await stopping


@plain_test(run)
async def test_pieces_wait_for_who_does_not_read_and_end_with_who_goes_away(served: Served) -> None:
    caller = await served.connect()
    await first_piece(caller, 1 << 16)
    given = -1
    while given != served.given:  # until nothing more is taken
        given = served.given
        await asyncio.sleep(0.2)
    kept = served.connections[0]._transport.get_write_buffer_size()
    assert 0 < kept < 2 << 20  # what the transport holds back for any connection
    caller.writer.transport.abort()
    await served.ended.wait()


@plain_test(run)
async def test_a_deadline_of_the_caller(served: Served) -> None:
    caller = await served.connect()
    status, _, body = await caller.ask("POST", "/v1/projects/p/subscriptions/s:pull", b"{}", x_server_timeout="0.01")
    assert (status, body["error"]["status"]) == (504, "DEADLINE_EXCEEDED")
    assert served.calls[0].cancelled
    assert served.calls[0].deadline is not None


@plain_test(run)
async def test_a_server_that_stops_answers_what_it_has_begun(served: Served) -> None:
    idle, busy = await served.connect(), await served.connect()
    await idle.ask("GET", TOPIC)
    asking = asyncio.ensure_future(busy.ask("POST", "/v1/projects/p/subscriptions/s:pull"))
    call = await served.pulls.get()
    stopping = asyncio.ensure_future(served.server.drain(10.0))
    assert await idle.gone()
    call.reply(b"")
    status, headers, body = await asking
    assert (status, headers["connection"], body) == (200, "close", {})
    await stopping


@pytest.mark.parametrize(
    ("sent", "after_s", "status"),
    [
        (b"", 11, None),
        (b"GET / HT", 11, 408),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc", 61, 408),
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", 121, None),
    ],
    ids=["silent", "slow head", "slow body", "idle"],
)
@plain_test(run)
async def test_slow_callers_are_cut_off(served: Served, *, sent: bytes, after_s: float, status: int | None) -> None:
    caller = await served.connect()
    caller.writer.write(sent or b"G")
    if sent.endswith(b"\r\n\r\n"):
        await caller.send(b"")
    while not served.connections:
        await asyncio.sleep(0)
    (connection,) = served.connections
    if not sent:
        connection._started = False
    now = asyncio.get_running_loop().time()
    connection.sweep(now + after_s - 2)
    assert not caller.reader.at_eof()
    connection.sweep(now + after_s)
    if status is not None:
        assert (await caller.send(b""))[0] == status
    assert await caller.gone()


@plain_test(run)
async def test_a_listener_with_a_secret_speaks_nothing_else(served: Served) -> None:
    with pytest.raises(ValueError, match="secret"):
        await serve({}, secret=b"known to few", on_fallback=served.fallback)
