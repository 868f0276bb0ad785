"""What does each feature cost per message, beside plain publishing and delivery?

One server has a topic and a subscription for each case; the cases take turns, round by round, so a case is compared
with the plain one of its round. The same record of about 1 KB is published 100 times per request, delivered on a stream
and acknowledged. Processes that the server starts for functions and checks count with it.

`python -m bench.features load ...` is the generator, which the question runs.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from bench import machine
from bench.harness import Bench, Run
from bench.process import Server
from syncpoint.catalog.schemas.compiler import compile_proto
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub
from syncpoint.wire.transport.client import Channel

PROJECT = "projects/bench"
RECORDS = f"{PROJECT}/topics/records"
MESSAGES = 100  # in a request
REQUESTS = 200
IN_FLIGHT = 8
RECORD = {"name": "a customer", "number": 4711, "prices": [1.5] * 20, "note": "x" * 850}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "number", "type": "int"},
        {"name": "prices", "type": {"type": "array", "items": "double"}},
        {"name": "note", "type": "string"},
    ],
}
PROTO = """
syntax = "proto3";
message Order { string name = 1; int32 number = 2; repeated double prices = 3; string note = 4; }
"""
AS_JSON = json.dumps(RECORD).encode()
FUNCTION = "function same(message, metadata) { return message; }"


@dataclass(frozen=True)
class Case:
    """Options of the topic and the subscription, and what is published."""

    name: str
    topic: dict[str, Any] = field(default_factory=dict)
    subscription: dict[str, Any] = field(default_factory=dict)
    data: bytes = AS_JSON
    options: dict[str, str] = field(default_factory=dict)  # of the topic, beyond Pub/Sub's

    @property
    def slug(self) -> str:
        """Its part of the names of resources."""
        return "".join(one if one.isalnum() else "-" for one in self.name.lower())


class WholeServer:
    """A server with the processes that it has started."""

    def __init__(self, server: Server) -> None:
        self._server, self.address, self.output = server, server.address, server.output

    def cpu_seconds(self) -> float:
        """CPU seconds so far, of all that run."""
        tasks = Path(f"/proc/{self._server.pid}/task").glob("*/children")
        children = [int(pid) for each in tasks for pid in each.read_text().split()]
        return self._server.cpu_seconds() + sum(map(machine.cpu_seconds, children))


def avro_binary() -> bytes:
    """The record as Avro has it."""
    out = BytesIO()
    fastavro.schemaless_writer(out, AVRO, RECORD)
    return out.getvalue()


def proto_binary() -> bytes:
    """The record as Protocol Buffers have it."""
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(compile_proto(PROTO)).file:
        pool.Add(file)
    made: bytes = GetMessageClass(pool.FindMessageTypeByName("Order"))(**RECORD).SerializeToString()
    return made


def cases() -> list[Case]:
    """All of them, the plain one first."""
    Encoding = pubsub.Encoding
    function = [pubsub.MessageTransform(javascript_udf={"function_name": "same", "code": FUNCTION})]

    def schema(name: str, encoding: int) -> dict[str, Any]:
        return {"schema_settings": {"schema": f"{PROJECT}/schemas/{name}", "encoding": encoding}}

    def compress(algorithm: int) -> list[Any]:
        kind = {"compression_algorithm": algorithm, "compression_mode": pubsub.Compression.COMPRESS}
        return [pubsub.MessageTransform(compression=kind)]

    return [
        Case("plain"),
        Case("filter", subscription={"filter": 'attributes.kind = "order" OR attributes:other'}),
        Case("delivery records", options={"records_topic": RECORDS}),
        Case("exactly once", subscription={"enable_exactly_once_delivery": True}),
        Case("Avro, JSON", schema("avro", Encoding.JSON)),
        Case("Avro, binary", schema("avro", Encoding.BINARY), data=avro_binary()),
        Case("Protocol Buffers, JSON", schema("proto", Encoding.JSON)),
        Case("Protocol Buffers, binary", schema("proto", Encoding.BINARY), data=proto_binary()),
        Case("JavaScript, topic", {"message_transforms": function}),
        Case("JavaScript, subscription", subscription={"message_transforms": function}),
        Case("zlib, topic", {"message_transforms": compress(pubsub.Compression.ZLIB)}),
        Case("Zstandard, topic", {"message_transforms": compress(pubsub.Compression.ZSTD)}),
        Case("Zstandard, subscription", subscription={"message_transforms": compress(pubsub.Compression.ZSTD)}),
    ]


async def make(address: str, all_cases: Sequence[Case]) -> None:
    """Schemas, topics and subscriptions."""
    channel = open_channel(address)

    async def call(path: methods.Method, request: Any) -> None:
        await channel.unary(path, request.SerializeToString())

    for name, kind, definition in (
        ("avro", pubsub.Schema.AVRO, json.dumps(AVRO)),
        ("proto", pubsub.Schema.PROTOCOL_BUFFER, PROTO),
    ):
        made = pubsub.Schema(type=kind, definition=definition)
        await call(
            methods.SCHEMAS.CreateSchema, pubsub.CreateSchemaRequest(parent=PROJECT, schema_id=name, schema=made)
        )
    kept = pubsub.Topic(name=RECORDS, message_retention_duration={"seconds": 3600})
    await call(methods.PUBLISHER.CreateTopic, kept)
    for case in all_cases:
        topic = f"{PROJECT}/topics/{case.slug}"
        await call(methods.PUBLISHER.CreateTopic, pubsub.Topic(name=topic, **case.topic))
        if case.options:
            asked = admin.UpdateTopicOptionsRequest(options={"topic": topic, **case.options})
            asked.update_mask.paths.extend(case.options)
            await call(methods.ADMIN.UpdateTopicOptions, asked)
        subscription = f"{PROJECT}/subscriptions/{case.slug}"
        await call(
            methods.SUBSCRIBER.CreateSubscription,
            pubsub.Subscription(name=subscription, topic=topic, ack_deadline_seconds=60, **case.subscription),
        )
    await channel.close()


def open_channel(address: str) -> Channel:
    """A connection to HOST:PORT."""
    host, _, port = address.rpartition(":")
    return Channel(host, int(port))


async def load(address: str, slug: str, data: bytes) -> Run:
    """Publish, receive and acknowledge; what a load generator reports."""
    publisher, subscriber = open_channel(address), open_channel(address)
    stream = subscriber.stream(methods.SUBSCRIBER.StreamingPull)
    name = f"{PROJECT}/subscriptions/{slug}"
    await stream.send(
        pubsub.StreamingPullRequest(subscription=name, stream_ack_deadline_seconds=60).SerializeToString()
    )
    message = pubsub.PubsubMessage(data=data, attributes={"kind": "order"})
    request = pubsub.PublishRequest(topic=f"{PROJECT}/topics/{slug}", messages=[message] * MESSAGES).SerializeToString()
    left, received, published = iter(range(REQUESTS)), set[str](), 0

    async def publish() -> None:
        nonlocal published
        for _ in left:
            answer = await publisher.unary(methods.PUBLISHER.Publish, request, timeout=60.0)
            published += len(pubsub.PublishResponse.FromString(answer).message_ids)

    async def receive() -> None:
        while len(received) < REQUESTS * MESSAGES:
            response = await stream.receive()
            found = pubsub.StreamingPullResponse.FromString(response or b"").received_messages
            received.update(one.message.message_id for one in found)
            if found:
                ids = [one.ack_id for one in found]
                await stream.send(pubsub.StreamingPullRequest(ack_ids=ids).SerializeToString())

    receiving = asyncio.ensure_future(receive())
    await asyncio.gather(*(publish() for _ in range(IN_FLIGHT)))
    async with asyncio.timeout(60):
        await receiving
    stream.cancel()
    await asyncio.gather(publisher.close(), subscriber.close())
    return {
        "published": published,
        "received": len(received),
        "missing": published - len(received),
        "errors": 0,
        "generator_cpu_seconds": time.process_time(),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print the table."""
    title = f"{MESSAGES} messages of 1 KB per Publish: CPU of the server and what it started, per message"
    with Bench.open("features", title, argv) as b, b.server() as started:
        server, all_cases = WholeServer(started), cases()
        asyncio.run(make(server.address, all_cases))
        figures: dict[str, list[float]] = {case.name: [] for case in all_cases}
        files = {}
        for case in all_cases:
            files[case.name] = path = b.scratch / f"{case.slug}.data"
            path.write_bytes(case.data)
        for turn in range(b.options.runs + 1):
            for case in all_cases:
                line = [sys.executable, "-m", "bench.features", "load", server.address, case.slug]
                run = b.measured([*line, str(files[case.name])], server, 120.0)
                if turn:  # the first round starts processes and fills caches
                    figures[case.name].append(run["server_cpu_us_per_msg"])
        for case in all_cases:
            more = [one - plain for one, plain in zip(figures[case.name], figures["plain"], strict=True)]
            b.row(case.name, "CPU per message", "µs", figures[case.name])
            if case.name != "plain":
                b.row(case.name, "more than plain", "µs", more)


if __name__ == "__main__":
    if sys.argv[1:2] == ["load"]:
        print(json.dumps(asyncio.run(load(sys.argv[2], sys.argv[3], Path(sys.argv[4]).read_bytes()))))
    else:
        main()
