"""Where a proxy publishes to: as routers say, or as it decides itself while none does."""

from __future__ import annotations

import asyncio

from syncpoint.broker.router.assignment import TopicAssignment
from syncpoint.catalog.metadata.layout import ASSIGNED_TOPICS
from syncpoint.wire.protobuf.messages import internal
from tests.kit.proxy import ProxyHarness, ProxyProcess, in_harness
from tests.kit.proxy_processes import RouterProcess


@in_harness()
async def test_all_routers_may_be_down(harness: ProxyHarness) -> None:
    proxy, *_ = await harness.cluster()
    other = await harness.start(ProxyProcess, "proxy-2")
    routers = [await harness.start(RouterProcess, f"router-{number}") for number in (1, 2)]
    for router in routers:
        router.set_topic(harness.topic.incarnation, 4, [2])
    await asyncio.sleep(1)
    await harness.publish(b"routed", key="k")
    for router in routers:
        router.crash()
    await harness.publish(b"still routed", key="k")
    assert harness.found(2) == [b"routed", b"still routed"]
    name = "projects/p/topics/new"
    topic = harness.add_topic(name)
    both = [harness.publish(b"x", key="k", topic=name, proxy=one) for one in ("proxy", "proxy-2") * 3]
    await asyncio.gather(*both, harness.publish(b"y", topic=name))
    assert proxy.route_client.assigned + other.proxy.route_client.assigned == 1
    kept = TopicAssignment.decode(harness.store.get(ASSIGNED_TOPICS.key(topic.incarnation)).value)  # type: ignore[union-attr]
    assert harness.found(kept.chains[0]).count(b"x") == 6


@in_harness()
async def test_a_router_that_is_back_is_followed_again(harness: ProxyHarness) -> None:
    await harness.start(ProxyProcess, "proxy")
    router = await harness.start(RouterProcess, "router-1")
    await asyncio.sleep(5)
    assert router.watchers
    router.crash()
    await asyncio.sleep(5)  # nobody listens at its address, and its lease is not over
    router = await harness.start(RouterProcess, "router-1")
    await asyncio.sleep(5)
    assert router.watchers


@in_harness()
async def test_routers_are_followed(harness: ProxyHarness) -> None:
    router = await harness.start(RouterProcess, "router-1")
    router.set_topic(harness.topic.incarnation, 1, [1])
    await harness.cluster()
    await harness.publish(b"x")
    assert len(router.asked) == 1
    router.set_topic(harness.topic.incarnation, 2, [2])
    await asyncio.sleep(0.1)
    await harness.publish(b"y")
    assert len(router.asked) == 1
    assert (harness.found(1), harness.found(2)) == ([b"x"], [b"y"])


@in_harness()
async def test_what_may_have_changed_is_asked_for_again_when_it_is_used(harness: ProxyHarness) -> None:
    router = await harness.start(RouterProcess, "router-1")
    router.set_topic(harness.topic.incarnation, 1, [1])
    await harness.cluster()
    await harness.publish(b"x")
    router.topics[harness.topic.incarnation] = internal.TopicRoute(
        topic=harness.topic.incarnation, epoch=1, chains=[1], nearest=[2]
    )
    router.notify(internal.RouteResponse())
    await asyncio.sleep(0.1)
    assert len(router.asked) == 1
    await harness.publish(b"y")  # nobody waits for the answer
    await asyncio.sleep(0.1)
    await harness.publish(b"z")
    assert len(router.asked) == 2
    assert (harness.found(1), harness.found(2)) == ([b"x", b"y"], [b"z"])


@in_harness()
async def test_a_topic_that_routers_assign_to_nothing_is_assigned_here(harness: ProxyHarness) -> None:
    router = await harness.start(RouterProcess, "router-1")
    router.set_topic(harness.topic.incarnation, 0, [])
    proxy, *_ = await harness.cluster()
    await harness.publish(b"x", key="k")
    assert proxy.route_client.assigned == 1
