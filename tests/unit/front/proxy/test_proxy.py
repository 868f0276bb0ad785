"""The proxy put together: one table of methods, and numbers for operators."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import health, pubsub
from syncpoint.wire.protobuf.methods import Service
from syncpoint.wire.transport.calls import Unary
from tests.kit.proxy import PUBLISHER, ProxyHarness, ProxyProcess, in_harness
from tests.kit.proxy_processes import PublishProcess, SubscribeProcess


@in_harness()
async def test_methods_of_messages_are_its_own_and_others_are_laid_over_them(harness: ProxyHarness) -> None:
    made = await harness.start(ProxyProcess, "proxy")
    create = Unary(lambda call, request: call.reply(request))
    table = made.proxy.methods({b"/google.pubsub.v1.Publisher/CreateTopic": create})
    assert {path.encode() for path in Service("grpc.health.v1.Health")} <= table.keys()
    own = (methods.PUBLISHER.Publish, methods.SUBSCRIBER.Pull, methods.SUBSCRIBER.StreamingPull)
    assert {path.encode() for path in own} <= table.keys()
    assert table[b"/google.pubsub.v1.Publisher/CreateTopic"] is create
    answer = await harness.call("/grpc.health.v1.Health/Check", health.HealthCheckRequest())
    assert health.HealthCheckResponse.FromString(answer).status == 1
    with pytest.raises(SyncpointError) as caught:
        await harness.call(PUBLISHER + "CreateTopic", pubsub.Topic())
    assert caught.value.code is Code.UNIMPLEMENTED


@in_harness()
async def test_numbers(harness: ProxyHarness) -> None:
    one = await harness.start(PublishProcess, "f1")
    harness.chain(1, one)
    await harness.start(SubscribeProcess, "s1")
    made = await harness.start(ProxyProcess, "proxy")
    await harness.publish(b"x", key="k")
    stream = await harness.stream()
    await stream.next()
    status = made.proxy.status()
    assert {name: status[name] for name in ("published", "streams", "responses", "assigned", "held_bytes")} == {
        "published": 1,
        "streams": 1,
        "responses": 1,
        "assigned": 1,
        "held_bytes": 0,
    }


@in_harness()
async def test_the_dead_are_forgotten(harness: ProxyHarness) -> None:
    for name in ("s1", "s2"):
        await harness.start(SubscribeProcess, name)
    harness.share(["s1"])
    made = await harness.start(ProxyProcess, "proxy")
    stream = await harness.stream()
    await stream.next()
    harness.processes["s1"].process.hang()
    await stream.next()
    assert made.proxy.routes.suspects == {"s1:1"}
    harness.processes["s1"].lease_ends()
    await asyncio.sleep(0.1)
    assert made.proxy.routes.suspects == set()
    assert made.proxy.detector.suspected == set()
