"""The pages of the console over a socket: what the program learns, what is streamed to it, what browsers refuse."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument, NotFound, PermissionDenied, Unauthenticated
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.home_sites import HomeSite, put_home
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.catalog.schemas.stored import Revision, Schema, definition_setting
from syncpoint.testing.rigs.plain_tests import plain_test
from syncpoint.watch.console.bundle import POLICY
from syncpoint.watch.console.console_pages import console_pages
from syncpoint.watch.console.live_stream import ANONYMOUS_STREAMS_MAX, STREAMS_MAX, WATCHES_MAX
from syncpoint.watch.console.watches import counters_in, watch_of
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub
from syncpoint.wire.rest.http1 import http_fallback
from syncpoint.wire.transport.calls import Call, CallContext, Methods, Unary
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.server import Server, serve

ADMIN, SUBSCRIBER = methods.ADMIN, methods.SUBSCRIBER
SUB = "projects/p/subscriptions/sub"
SCHEMA = "projects/p/schemas/order"
AVRO = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"raw","type":"bytes"}]}'


class OneGate:
    """Knows one token, whose owner may see the server and the schemas of project p."""

    def admit(self, call: CallContext, resource: str = "") -> None:
        if call.metadata.get(b"authorization") != b"Bearer good":
            raise Unauthenticated("Who are you?")

    def principal_of(self, call: CallContext) -> str:
        self.admit(call)
        return "user:good@example.com"

    def payer_of(self, call: CallContext) -> str:
        return self.principal_of(call)

    def tenant_of(self, call: CallContext) -> str:
        try:
            kind, _, address = self.principal_of(call).partition(":")
        except Unauthenticated:
            return ""
        return address.rpartition("@")[2] if kind == "serviceAccount" else f"{kind}:{address}" if kind else ""

    def holds(self, call: CallContext, permission: str, resource: str) -> bool:
        return resource == "projects/p"

    def check_page(self, call: CallContext, permission: str, resource: str) -> None:
        self.admit(call)
        if permission == "pubsub.schemas.get" and not resource.startswith("projects/p/"):
            raise PermissionDenied("no")


class Text:
    """Metrics that a test sets."""

    def __init__(self) -> None:
        self.now = b""

    async def text(self) -> bytes:
        return self.now


class Served:
    """A port with the console over a few methods. `asked`: the calls that came to the methods."""

    server: Server

    def __init__(self, gate: Any = None) -> None:
        self.gate, self.metrics, self.catalog, self.asked = gate, Text(), Catalog(), list[tuple[str, Call]]()
        self.server_now = admin.Server(version="1", topics=1)
        self.writers: list[asyncio.StreamWriter] = []
        self.methods: Methods = {}  # that a test adds to before it asks

    def get_server(self, call: Call, request: bytes) -> None:
        self.asked.append(("GetServer", call))
        if self.gate is not None:
            self.gate.admit(call)
        call.reply(self.server_now.SerializeToString())

    def get_disks(self, call: Call, request: bytes) -> None:
        self.asked.append(("ListDisks", call))
        raise PermissionDenied("not for you")

    def get_subscription(self, call: Call, request: bytes) -> None:
        call.reply(pubsub.Subscription(name=SUB, topic="projects/p/topics/topic").SerializeToString())

    def get_state(self, call: Call, request: bytes) -> None:
        call.reply(admin.SubscriptionState(subscription=SUB, backlog_messages=2).SerializeToString())

    def get_rules(self, call: Call, request: bytes) -> None:
        raise PermissionDenied("rules are secret")

    def get_options(self, call: Call, request: bytes) -> None:
        call.reply(admin.TopicOptions().SerializeToString())

    async def open(self) -> None:
        table: Methods = {
            ADMIN.GetServer.encode(): Unary(self.get_server),
            ADMIN.ListDisks.encode(): Unary(self.get_disks),
            ADMIN.GetSubscriptionState.encode(): Unary(self.get_state),
            ADMIN.ListRules.encode(): Unary(self.get_rules),
            ADMIN.GetTopicOptions.encode(): Unary(self.get_options),
            SUBSCRIBER.GetSubscription.encode(): Unary(self.get_subscription),
        }
        table = self.methods = {**table}
        limits = TransportLimits()
        found = console_pages(table, self.catalog, self.metrics, self.gate)
        self.server = await serve(table, limits=limits, on_fallback=http_fallback(table, limits, pages=found))

    async def begin(self, verb: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], Any]:
        """A request on a connection of its own: status, header fields, and the reader."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        self.writers.append(writer)
        lines = [f"{verb} {path} HTTP/1.1", "host: here", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        return int(head[0].split()[1]), dict(line.lower().split(": ", 1) for line in head[1:] if line), reader

    async def ask(self, verb: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], Any]:
        status, fields, reader = await self.begin(verb, path, body, **headers)
        content = await reader.readexactly(int(fields.get("content-length", "0")))
        return status, fields, json.loads(content) if "json" in fields.get("content-type", "") else content


async def event(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next one of a live stream, which is one chunk."""
    length = int(await reader.readuntil(b"\r\n"), 16)
    data = (await reader.readexactly(length + 2))[:-2]
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    return dict(json.loads(data[6:]))


def run(test: Callable[[Served], Awaitable[None]], gate: Any = None) -> None:
    async def main() -> None:
        served = Served(gate)
        await served.open()
        try:
            await asyncio.wait_for(test(served), 20)
        finally:
            for writer in served.writers:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
            await served.server.close()

    asyncio.run(main())


@plain_test(run)
async def test_the_program_is_sent_with_everything_that_browsers_must_refuse(served: Served) -> None:
    for path in ("/console/", "/console/p/shop/topics/orders", "/console/cluster?x=1"):
        status, headers, body = await served.ask("GET", path)
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert headers["content-security-policy"] == POLICY.lower()
        assert headers["cache-control"] == "no-cache"
    assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("deny", "nosniff")
    assert "unsafe" not in POLICY
    assert "frame-ancestors 'none'" in POLICY
    assert b"<script>" not in body
    assert b"style=" not in body
    assert (await served.ask("GET", "/console"))[1]["location"] == "/console/"
    assert (await served.ask("GET", "/console/assets/none.js"))[0] == 404
    assert (await served.ask("GET", "/console/api/none"))[0] == 404
    assert (await served.ask("GET", "/console/..%2fbundle.py"))[1]["content-type"] == "text/html; charset=utf-8"


@plain_test(run)
async def test_files_are_packed_and_kept(served: Served) -> None:
    _, _, page = await served.ask("GET", "/console/")
    paths = [part.split('"')[0] for part in page.decode().split('="') if part.startswith("/console/assets/")]
    assert {path.rpartition(".")[2] for path in paths} == {"js", "css", "svg"}
    weight = 0
    for path in paths:
        status, headers, body = await served.ask("GET", path, accept_encoding="gzip, br")
        assert (status, headers["content-encoding"]) == (200, "gzip")
        assert "immutable" in headers["cache-control"]
        assert headers["content-security-policy"] == POLICY.lower()
        weight += len(body)
    assert weight < 300_000  # of the first paint: all that the first page names


@plain_test(run)
async def test_what_the_program_learns_of_the_server(served: Served) -> None:
    _, _, about = await served.ask("GET", "/console/api/about")
    assert about["identifies"] is False
    assert about["routes"]["Admin.GetServer"] == ["GET", "/admin/v1/server", ""]
    assert "Admin.ListMembers" not in about["routes"]


@plain_test(run)
async def test_the_stream_says_what_has_changed_and_what_cannot_be_said_once(served: Served) -> None:
    served.metrics.now = b"syncpoint_publish_messages_total 3\n"
    query = "watch=server&watch=disks&watch=rates&watch=members&watch=server"
    status, headers, reader = await served.begin("GET", f"/console/api/live?{query}")
    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    first = await event(reader)
    assert first["changed"]["server"] == {"version": "1", "topics": "1"}
    assert first["changed"]["rates"] == {"published_messages": 3.0, "topics": {}}
    assert {name: one["code"] for name, one in first["failed"].items()} == {
        "disks": "PERMISSION_DENIED",
        "members": "UNIMPLEMENTED",
    }
    assert await event(reader) == {"changed": {}, "failed": {}}
    served.server_now.topics = 2
    assert (await event(reader))["changed"] == {"server": {"version": "1", "topics": "2"}}
    assert [name for name, _ in served.asked].count("ListDisks") == 1  # who is refused is not asked again


@plain_test(run)
async def test_a_stream_ends_with_the_server(served: Served) -> None:
    _, _, reader = await served.begin("GET", "/console/api/live?watch=server")
    await event(reader)
    stopping = asyncio.ensure_future(served.server.drain(10))
    assert (await reader.read()).endswith(b"0\r\n\r\n")
    await stopping


@plain_test(run)
async def test_there_are_only_so_many_streams(served: Served) -> None:
    for _ in range(STREAMS_MAX):
        _, _, reader = await served.begin("GET", "/console/api/live?watch=server")
        await event(reader)
    status, _, body = await served.ask("GET", "/console/api/live?watch=server")
    assert (status, body["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
    served.writers[0].close()
    while (status := (await served.begin("GET", "/console/api/live?watch=server"))[0]) == 429:
        await asyncio.sleep(0.05)
    assert status == 200


class NamedGate(OneGate):
    """Believes what callers say of themselves."""

    def principal_of(self, call: Any) -> str:
        return bytes(call.metadata.get(b"authorization", b"")).decode()


@plain_test(run, NamedGate())
async def test_no_caller_takes_the_streams_of_all_others(served: Served) -> None:
    async def opened(who: str, most: int = STREAMS_MAX) -> int:
        for count in range(most):
            named = {"authorization": who} if who else {}
            status, _, reader = await served.begin("GET", "/console/api/live?watch=disks&watch=server", **named)
            if status != 200:
                assert status == 429
                return count
            await event(reader)
        return most

    served.gate.admit = lambda call: None
    assert await opened("") == ANONYMOUS_STREAMS_MAX
    tenants = [f"serviceAccount:a{number}@evil.iam.example" for number in range(STREAMS_MAX)]
    assert await opened(tenants[0]) == (STREAMS_MAX - ANONYMOUS_STREAMS_MAX) // 2
    assert await opened(tenants[1]) == 0, "the accounts of a project are one caller"
    assert await opened("user:owner@example.com", 4) == 4


@pytest.mark.parametrize("query", ["", "watch=secrets", "watch=topic:nothing"])
@plain_test(run)
async def test_what_cannot_be_watched_is_refused(served: Served, *, query: str) -> None:
    status, _, body = await served.ask("GET", f"/console/api/live?{query}")
    assert (status, body["error"]["status"]) == (400, "INVALID_ARGUMENT")


@plain_test(run)
async def test_too_many_watches_are_refused(served: Served) -> None:
    query = "&".join(f"watch=topic:projects/p/topics/t-{number}" for number in range(WATCHES_MAX + 1))
    assert (await served.ask("GET", f"/console/api/live?{query}"))[0] == 400


@plain_test(run, OneGate())
async def test_where_callers_are_known_everything_but_the_program_asks_who_it_is(served: Served) -> None:
    assert (await served.ask("GET", "/console/"))[0] == 200
    assert (await served.ask("GET", "/console/api/about"))[2]["identifies"] is True
    assert (await served.ask("GET", "/console/api/projects"))[0] == 401
    _, _, reader = await served.begin("GET", "/console/api/live?watch=server&watch=rates")
    refused = (await event(reader))["failed"]
    assert {one["code"] for one in refused.values()} == {"UNAUTHENTICATED"}
    assert await reader.readexactly(5) == b"0\r\n\r\n"  # nothing is left to be watched
    _, _, reader = await served.begin("GET", "/console/api/live?watch=server", authorization="Bearer good")
    assert (await event(reader))["changed"]["server"]["version"] == "1"
    assert served.asked[-1][1].metadata[b"authorization"] == b"Bearer good"


@plain_test(run, OneGate())
async def test_projects_are_those_that_the_caller_may_list(served: Served) -> None:
    for number, name in enumerate(("projects/p/topics/a", "projects/p/topics/b", "projects/other/topics/a"), 1):
        (change,) = served.catalog.assign([CatalogChange.put(Topic(number, name))])
        served.catalog.apply(change)
    _, _, body = await served.ask("GET", "/console/api/projects", authorization="Bearer good")
    assert body == {"projects": ["projects/p"]}


@pytest.mark.parametrize(
    "path", ["about", "projects", "topics?project=projects/p", "live?watch=server", f"why?subscription={SUB}"]
)
@plain_test(run)
async def test_pages_of_other_sites_may_not_ask(served: Served, *, path: str) -> None:
    for headers in ({"origin": "https://evil.example"}, {"sec_fetch_site": "cross-site"}):
        assert (await served.ask("GET", f"/console/api/{path}", **headers))[0] == 403
    assert (await served.ask("GET", "/console/", sec_fetch_site="cross-site"))[0] == 200  # a link may lead here


@plain_test(run)
async def test_why_says_what_it_may_not_ask(served: Served) -> None:
    _, _, body = await served.ask("GET", f"/console/api/why?subscription={SUB}")
    assert body["findings"][0]["cause"] == "NOBODY_CONNECTED"
    assert body["unknown"] == ["ListRules: PERMISSION_DENIED: rules are secret"]


@plain_test(run)
async def test_that_there_was_no_rollout_is_no_error(served: Served) -> None:
    def none_yet(call: Call, request: bytes) -> None:
        raise NotFound("rollout")

    def found(call: Call, request: bytes) -> None:
        call.reply(admin.Rollout(name="october").SerializeToString())

    for method, expected in ((none_yet, {}), (found, {"rollout": {"name": "october"}})):
        served.methods[ADMIN.GetRollout.encode()] = Unary(method)
        status, _, body = await served.ask("GET", "/console/api/rollout")
        assert (status, body) == (200, expected)


@plain_test(run)
async def test_homes_are_those_of_subscriptions_that_there_are(served: Served) -> None:
    topic = Topic(1, "projects/p/topics/t")
    kept = [Subscription(number, f"projects/p/subscriptions/s{number}", 1, topic.name) for number in (2, 3)]
    for change in served.catalog.assign([CatalogChange.put(one) for one in (topic, *kept)]):
        served.catalog.apply(change)
    for number, home in ((2, "eu"), (3, "us")):
        for change in served.catalog.assign(put_home(served.catalog, number, HomeSite("us", home, 7))):
            served.catalog.apply(change)
    for change in served.catalog.assign([CatalogChange.delete(kept[1])]):
        served.catalog.apply(change)
    _, _, body = await served.ask("GET", "/console/api/flows")
    assert body["homes"] == [{"subscription": kept[0].name, "site": "us", "home": "eu", "epoch": 7}]


@plain_test(run)
async def test_runbooks_come_with_the_version(served: Served) -> None:
    _, _, body = await served.ask("GET", "/console/api/runbook?rule=DiskDead")
    assert body["text"].startswith("Page. A disk was given up")
    assert (await served.ask("GET", "/console/api/runbook?rule=Nothing"))[0] == 404


def keep_schema(catalog: Catalog) -> None:
    schema = pubsub.Schema(type=pubsub.Schema.AVRO, definition=AVRO)
    kept = Schema(SCHEMA, 1, pubsub.Schema.AVRO, (Revision("aaaa0001", 1, 0),), 1)
    for setting in (kept.setting(), definition_setting(SCHEMA, "aaaa0001", schema, b"")):
        (change,) = catalog.assign([CatalogChange.put(setting)])
        catalog.apply(change)


def asked(*payloads: bytes, **changed: Any) -> bytes:
    content = {
        "schema": SCHEMA,
        "revision": "aaaa0001",
        "payloads": [base64.b64encode(one).decode() for one in payloads],
    }
    return json.dumps({**content, **changed}).encode()


@plain_test(run, OneGate())
async def test_payloads_are_decoded_by_their_schema(served: Served) -> None:
    keep_schema(served.catalog)
    good, bad = b"\x0e\x04\xff\x00", b"\x0e\x7f"

    async def decode(body: bytes) -> tuple[int, Any]:
        status, _, content = await served.ask("POST", "/console/api/decode", body, authorization="Bearer good")
        return status, content

    status, body = await decode(asked(good, bad))
    assert status == 200
    assert json.loads(body["payloads"][0]["json"]) == {"id": 7, "raw": base64.b64encode(b"\xff\x00").decode()}
    assert "does not match" in body["payloads"][1]["error"]
    assert (await decode(asked(good, payloads=["%%"])))[1]["payloads"][0]["error"] == "It is not base64."
    assert (await decode(asked(good, revision="ffffffff")))[0] == 404
    assert (await decode(asked(good, schema="projects/q/schemas/other")))[0] == 403
    for wrong in (b"{", b"[]", asked(good, payloads=[1]), asked(good, schema=1), asked(*[good] * 101)):
        assert (await decode(wrong))[0] == 400
    assert (await served.ask("POST", "/console/api/decode", asked(good)))[0] == 401


def test_counters_are_sums_and_the_busiest_topics() -> None:
    text = (
        b"# HELP syncpoint_topic_messages_total x\n"
        b'syncpoint_topic_messages_total{project="p",topic="a"} 5.0\n'
        b'syncpoint_topic_messages_total{project="p",topic="a",process="2"} 2.0\n'
        b'syncpoint_topic_messages_total{project="p",topic="_other"} 9.0\n'
        b'syncpoint_calls_total{code="OK",method="x"} 1\nsyncpoint_calls_total{code="NO",method="y"} 2\n'
    )
    assert counters_in(text) == {"calls": 3.0, "topics": {"projects/p/topics/a": 7.0}}


@pytest.mark.parametrize("name", ["", "topic", "topic:", "subscription:projects/p/topics/t", "nothing"])
def test_watches_have_names(name: str) -> None:
    with pytest.raises(InvalidArgument):
        watch_of(name)
