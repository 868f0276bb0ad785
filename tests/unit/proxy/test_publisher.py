"""Publishing through a proxy: whatever happens behind it, a client learns ids of what is stored, or the truth."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from syncpoint.metadata.catalog import Catalog
from syncpoint.metadata.layout import ASSIGNED_TOPICS
from syncpoint.metadata.records import CatalogChange, Record, Topic, TopicSchema
from syncpoint.model.errors import Code, InvalidArgument, MetadataSilent, ResourceExhausted, SyncpointError, Unavailable
from syncpoint.publish.envelope import PublishBatch
from syncpoint.router.assignment import TopicAssignment
from syncpoint.router.rendezvous import pick_chain
from syncpoint.schemas import stored
from syncpoint.schemas.limits import JSON_BYTES_AT_ONCE
from syncpoint.testing.plain_tests import plain_test
from syncpoint.transforms.message_transforms import Outcome, Transformer
from syncpoint.wire.messages import internal, pubsub
from tests.kit.errors import failing
from tests.kit.proxy import (
    PUBLISHER,
    TOPIC,
    ProxyHarness,
    ProxyProcess,
    PublishProcess,
    RouterProcess,
    in_harness,
    run,
)


async def cluster(harness: ProxyHarness, owners: int = 2, **options: Any) -> tuple[Any, ...]:
    """A proxy and owners with one chain each, numbered from 1."""
    made = [await harness.start(PublishProcess, f"f{number}") for number in range(1, owners + 1)]
    for number, owner in enumerate(made, 1):
        harness.chain(number, owner)
    proxy = await harness.start(ProxyProcess, "proxy", **options)
    await asyncio.sleep(0.1)
    return (proxy.proxy, *made)


def of_records(*records: Record) -> Catalog:
    made = Catalog()
    made.become(records, 1, 1)
    return made


@in_harness()
async def test_the_ids_of_the_chain_come_back_and_the_request_went_as_it_was(harness: ProxyHarness) -> None:
    await cluster(harness)
    harness.assign([1])
    request = pubsub.PublishRequest(
        topic=TOPIC, messages=[pubsub.PubsubMessage(data=b"a"), pubsub.PubsubMessage(data=b"b")]
    )
    answer = await harness.call(PUBLISHER + "Publish", request)
    ((stored, ids),) = harness.stored[1].values()
    assert stored == request.SerializeToString()
    assert list(pubsub.PublishResponse.FromString(answer).message_ids) == ids


@in_harness()
async def test_an_unknown_topic_is_looked_for_once_more(harness: ProxyHarness) -> None:
    _proxy, *_ = await cluster(harness)
    error = await failing(harness.publish(b"x", topic="projects/p/topics/nobody"))
    assert (error.code, error.message) == (Code.NOT_FOUND, "Resource not found (resource=projects/p/topics/nobody).")
    error = await failing(harness.publish(b"x", topic="nonsense"))
    assert error.code is Code.INVALID_ARGUMENT
    name = "projects/p/topics/new"
    harness.on_refresh = lambda: harness.catalog.topic(name) or harness.add_topic(name)  # type: ignore[assignment, return-value]
    assert await harness.publish(b"x", topic=name)


@in_harness()
async def test_what_is_no_request_is_refused(harness: ProxyHarness) -> None:
    await cluster(harness)
    error = await failing(harness.call(PUBLISHER + "Publish", b"\x0a\x05x"))
    assert error.code is Code.INVALID_ARGUMENT


@in_harness()
async def test_keys_are_spread_over_the_chains_and_stay(harness: ProxyHarness) -> None:
    await cluster(harness, 3)
    harness.assign([1, 2, 3])
    for number in range(30):
        await harness.publish(b"%d" % (number % 10), key=f"k{number % 10}")
    for number in range(10):
        key = b"k%d" % number
        assert harness.found(pick_chain(harness.topic.incarnation, key, [1, 2, 3])).count(b"%d" % number) == 3


@in_harness()
async def test_messages_without_a_key_are_spread_over_the_chains_that_share_the_topic(harness: ProxyHarness) -> None:
    await cluster(harness, 3)
    harness.assign([1, 3])
    for _ in range(10):
        await harness.publish(b"x")
    assert [len(harness.found(chain)) for chain in (1, 2, 3)] == [5, 0, 5]


@in_harness()
async def test_a_crash_is_not_seen_without_a_key(harness: ProxyHarness) -> None:
    proxy, one, _two = await cluster(harness)
    harness.assign([1])
    one.before_answer = lambda batch: one.crash()
    began = harness.loop.time()
    assert len(await harness.publish(b"x", b"y")) == 2
    assert harness.loop.time() - began < 0.1
    assert harness.found(2) == [b"x", b"y"]
    assert proxy.publisher.resent == 1


@in_harness()
async def test_a_hung_owner_is_left_after_a_moment_without_a_key(harness: ProxyHarness) -> None:
    proxy, one, _two = await cluster(harness)
    harness.assign([1])
    one.process.hang()
    began = harness.loop.time()
    assert await harness.publish(b"x")
    assert harness.loop.time() - began < 3
    assert proxy.routes.suspects == {"f1:1"}
    began = harness.loop.time()
    assert await harness.publish(b"y")  # nobody waits for it again
    assert harness.loop.time() - began < 0.1
    one.process.go_on()
    await asyncio.sleep(2)
    assert proxy.routes.suspects == set()
    await harness.publish(b"z")
    assert b"z" in harness.found(1)


@in_harness()
async def test_a_slow_owner_is_waited_for(harness: ProxyHarness) -> None:
    _proxy, one, _two = await cluster(harness)
    harness.assign([1])
    one.commit_s = 8.0
    assert await harness.publish(b"x")
    assert (harness.found(1), harness.found(2)) == ([b"x"], [])


@in_harness()
async def test_with_a_key_the_new_owner_of_the_chain_answers_with_the_same_ids(harness: ProxyHarness) -> None:
    _proxy, one, two = await cluster(harness)
    harness.assign([1])
    one.before_answer = lambda batch: one.crash()
    publishing = asyncio.ensure_future(harness.publish(b"x", key="k"))
    await asyncio.sleep(1)
    assert not publishing.done()
    harness.chain(1, two, epoch=2)
    ((_, ids),) = harness.stored[1].values()
    assert await publishing == ids
    assert harness.found(2) == []


@in_harness()
async def test_with_a_key_a_hung_owner_is_left_when_the_chain_has_another(harness: ProxyHarness) -> None:
    _proxy, one, two = await cluster(harness)
    harness.assign([1])
    one.process.hang()
    publishing = asyncio.ensure_future(harness.publish(b"x", key="k"))
    await asyncio.sleep(4)
    assert not publishing.done()
    one.lease_ends()
    harness.chain(1, two, epoch=2)
    await asyncio.wait_for(publishing, 0.2)
    assert harness.found(1) == [b"x"]


@pytest.mark.parametrize("seed", range(20))
def test_keys_stay_in_order_while_owners_die(seed: int) -> None:
    async def work(harness: ProxyHarness) -> None:
        proxy, *owners = await cluster(harness, 3)
        harness.assign([1, 2, 3])
        harness.network.break_chance = 0.02
        sent: dict[str, int] = {}
        done: list[tuple[str, int]] = []

        async def send(key: str) -> None:
            number = sent[key] = sent.get(key, 0) + 1
            while True:
                try:
                    await harness.publish(b"%s %d" % (key.encode(), number), key=key)
                    break
                except SyncpointError as error:
                    if error.code is not Code.UNAVAILABLE:  # the way to the proxy breaks, too
                        raise
            done.append((key, number))

        async def client(key: str) -> None:
            for _ in range(15):
                await send(key)
                await asyncio.sleep(harness.random.random() * 0.2)

        async def chaos() -> None:
            epoch = 1
            while True:
                await asyncio.sleep(0.3 + harness.random.random())
                epoch += 1
                chain = harness.random.randrange(1, 4)
                harness.chain(chain, owners[harness.random.randrange(0, 3)], epoch=epoch)

        trouble = asyncio.ensure_future(chaos())
        await asyncio.gather(*(client(f"k{number}") for number in range(6)))
        trouble.cancel()
        assert len(done) == 90
        for number in range(6):
            key = f"k{number}"
            chain = pick_chain(harness.topic.incarnation, key.encode(), [1, 2, 3])
            seen = [int(one.split()[1]) for one in harness.found(chain) if one.startswith(key.encode() + b" ")]
            assert list(dict.fromkeys(seen)) == list(range(1, 16))  # first appearances are in order
        assert len(proxy.publisher.order) == 0
        assert proxy.publisher.rate_limiter.held == 0

    run(work, seed)


@in_harness()
async def test_nothing_overtakes_a_batch_of_its_key_that_failed(harness: ProxyHarness) -> None:
    _proxy, one, _two = await cluster(harness)
    harness.assign([1])
    await harness.publish(b"before", key="k")
    one.refusals = [ResourceExhausted("full")]
    tasks = []
    for number in range(5):
        tasks.append(asyncio.ensure_future(harness.publish(b"%d" % number, key="k")))
        await asyncio.sleep(0.01)  # the first one is refused before the second one comes, and tried again after it
    await asyncio.gather(*tasks)
    assert harness.found(1) == [b"before", b"0", b"1", b"2", b"3", b"4"]


@in_harness()
async def test_an_old_epoch_makes_the_proxy_ask_again(harness: ProxyHarness) -> None:
    _proxy, one, two = await cluster(harness)
    harness.assign([1])
    await harness.publish(b"x", key="k")
    harness.assign([2], epoch=2)
    one.epochs, two.epochs = {1: 2}, {2: 2}
    await harness.publish(b"y", key="k")
    assert (harness.found(1), harness.found(2)) == ([b"x"], [b"y"])


@in_harness()
async def test_full_chains_are_reported_after_a_while(harness: ProxyHarness) -> None:
    _proxy, one, two = await cluster(harness)
    harness.assign([1, 2])
    one.refusals = [ResourceExhausted("full")]
    assert await harness.publish(b"x", timeout=10)  # the other one has room
    one.refusals = [ResourceExhausted("full")] * 100
    two.refusals = [ResourceExhausted("full")] * 100
    began = harness.loop.time()
    error = await failing(harness.publish(b"x", timeout=10))
    assert error.code is Code.RESOURCE_EXHAUSTED
    assert 2.9 < harness.loop.time() - began < 4


@in_harness()
async def test_what_the_forwarder_refuses_is_refused_at_once(harness: ProxyHarness) -> None:
    _proxy, one, _two = await cluster(harness)
    harness.assign([1])
    for key in ("", "k"):
        one.refusals = [InvalidArgument("messages[0]", "Some messages are empty")]
        began = harness.loop.time()
        error = await failing(harness.publish(b"x", key=key))
        assert (error.code, error.message) == (Code.INVALID_ARGUMENT, "messages[0]: Some messages are empty")
        assert harness.loop.time() - began < 0.1


@in_harness()
async def test_a_forwarder_that_does_not_know_the_topic_yet_is_given_time(harness: ProxyHarness) -> None:
    _proxy, one, _two = await cluster(harness)
    harness.assign([1])
    gone = SyncpointError(Code.NOT_FOUND, "Resource not found")
    one.refusals = [gone, gone]
    assert await harness.publish(b"x", key="k")
    one.refusals = [gone] * 1000
    began = harness.loop.time()
    assert (await failing(harness.publish(b"x", key="k"))).code is Code.NOT_FOUND
    assert 3 <= harness.loop.time() - began < 4


@in_harness()
async def test_the_deadline_of_the_caller_holds(harness: ProxyHarness) -> None:
    proxy, one, two = await cluster(harness)
    harness.assign([1])
    for owner in (one, two):
        owner.crash()
    for key in ("", "k"):
        began = harness.loop.time()
        error = await failing(harness.publish(b"x", key=key, timeout=1.5))
        assert error.code is Code.DEADLINE_EXCEEDED
        assert harness.loop.time() - began < 1.6
    error = await failing(harness.publish(b"x"))
    assert error.code is Code.UNAVAILABLE
    assert proxy.publisher.rate_limiter.held == 0


@in_harness()
async def test_nothing_is_stored_outside_of_the_allowed_regions(harness: ProxyHarness) -> None:
    _proxy, _one, _two = await cluster(harness)
    three = await harness.start(PublishProcess, "f3", "r2")
    harness.chain(3, three, region="r2")
    name = "projects/p/topics/german"
    topic = harness.add_topic(name, regions=("r2",))
    await asyncio.sleep(0.1)
    for number in range(4):
        await harness.publish(b"x", key="k" * (number % 2), topic=name)
    assert (len(harness.found(1)), len(harness.found(2)), len(harness.found(3))) == (0, 0, 4)
    three.lease_ends()
    three.crash()
    assert (await failing(harness.publish(b"x", topic=name, timeout=3))).code is Code.DEADLINE_EXCEEDED
    for key in ("", "k"):  # the caller has time: it is reported before its time is over
        error = await failing(harness.publish(b"x", topic=name, key=key, timeout=20))
        assert (error.code, "regions" in error.message) == (Code.UNAVAILABLE, True)
    for key in ("", "k"):  # it has been so for long
        begun = harness.loop.time()
        assert (await failing(harness.publish(b"x", topic=name, key=key, timeout=3))).code is Code.UNAVAILABLE
        assert harness.loop.time() - begun < 0.5
    harness.delete(topic)
    harness.add_topic(name, regions=("r2",), enforce_in_transit=True)
    assert (await failing(harness.publish(b"x", topic=name))).code is Code.FAILED_PRECONDITION


@in_harness()
async def test_a_region_that_cannot_be_reached_is_named_at_once(harness: ProxyHarness) -> None:
    """Its members live, by what the metadata say; from here nobody of them answers."""
    _proxy, _one, _two = await cluster(harness)
    far = [await harness.start(PublishProcess, f"far{number}", "r2") for number in range(3)]
    for number, owner in enumerate(far, 3):
        harness.chain(number, owner, region="r2")
    name = "projects/p/topics/german"
    harness.add_topic(name, regions=("r2",))
    everywhere = "projects/p/topics/everywhere"
    harness.add_topic(everywhere, regions=("r1", "r2"))
    await asyncio.sleep(0.1)
    for key in ("", "k"):
        await harness.publish(b"x", topic=name, key=key)
    for process in far:
        process.process.hang()
    begun = harness.loop.time()
    waiting = [failing(harness.publish(b"y", topic=name, key=key, timeout=30)) for key in ("", "k")]
    for error in await asyncio.gather(*waiting):
        assert (error.code, "r2" in error.message) == (Code.UNAVAILABLE, True)
    assert harness.loop.time() - begun < 6
    for key in ("", "k"):
        begun = harness.loop.time()
        error = await failing(harness.publish(b"y", topic=name, key=key, timeout=30))
        assert error.code is Code.UNAVAILABLE
        assert "no publish forwarder of r2 can be reached" in error.message
        assert harness.loop.time() - begun < 0.1
    await harness.publish(b"z", topic=everywhere)
    for process in far:
        process.process.go_on()
    await asyncio.sleep(2)
    for key in ("", "k"):
        await harness.publish(b"again", topic=name, key=key)


@in_harness()
async def test_a_hung_forwarder_is_waited_for_where_others_of_its_region_answer(harness: ProxyHarness) -> None:
    _proxy, _one, _two = await cluster(harness)
    far = [await harness.start(PublishProcess, f"far{number}", "r2") for number in range(2)]
    for number, owner in enumerate(far, 3):
        harness.chain(number, owner, region="r2")
    name = "projects/p/topics/german"
    harness.add_topic(name, regions=("r2",))
    await asyncio.sleep(0.1)
    await harness.publish(b"x", topic=name, key="k")
    victim = 3 if harness.found(3) else 4
    far[victim - 3].process.hang()
    waiting = asyncio.ensure_future(harness.publish(b"y", topic=name, key="k", timeout=60))
    await asyncio.sleep(8)
    assert not waiting.done()
    harness.chain(victim, far[4 - victim], region="r2", epoch=2)
    assert await waiting


@in_harness()
async def test_messages_without_a_key_stay_near(harness: ProxyHarness) -> None:
    owners = [await harness.start(PublishProcess, f"f{number}", f"r{number}") for number in (1, 2)]
    for number, owner in enumerate(owners, 1):
        harness.chain(number, owner, region=f"r{number}")
    await harness.start(ProxyProcess, "proxy", "r2")
    harness.assign([1], elsewhere={"r2": (2,)})
    for _ in range(3):
        await harness.publish(b"near")
        await harness.publish(b"keyed", key="k")
    assert set(harness.found(2)) == {b"near"}
    assert set(harness.found(1)) == {b"keyed"}
    owners[1].lease_ends()
    owners[1].crash()
    await harness.publish(b"far")
    assert b"far" in harness.found(1)


@in_harness()
async def test_all_routers_may_be_down(harness: ProxyHarness) -> None:
    proxy, *_ = await cluster(harness)
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
    _proxy, _one, _two = await cluster(harness)
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
    await cluster(harness)
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
    proxy, *_ = await cluster(harness)
    await harness.publish(b"x", key="k")
    assert proxy.route_client.assigned == 1


@in_harness()
async def test_publishes_go_on_while_the_metadata_is_down(harness: ProxyHarness) -> None:
    _proxy, _one, _two = await cluster(harness)
    harness.assign([1])
    await harness.publish(b"x", key="k")
    harness.processes["proxy"].store.cut = True
    await harness.publish(b"y", key="k")
    await harness.publish(b"z")
    assert b"y" in harness.found(1)


@in_harness()
async def test_a_spike_waits_and_what_has_no_room_is_refused(harness: ProxyHarness) -> None:
    proxy, one, _two = await cluster(harness)
    harness.assign([1])
    limiter = proxy.publisher.rate_limiter
    limiter.window, limiter.topic_window = 4_000, 4_000
    harness.limits.topic = type(harness.limits.topic)(0, 20_000)
    one.commit_s = 0.05
    results = await asyncio.gather(
        *(harness.publish(bytes(900), timeout=20) for _ in range(40)), return_exceptions=True
    )
    refused = [one for one in results if isinstance(one, SyncpointError)]
    assert {one.code for one in refused} == {Code.RESOURCE_EXHAUSTED}
    assert len(harness.found(1)) == 40 - len(refused) == 21
    assert limiter.delayed > 0
    assert limiter.held == limiter.underway == 0


@in_harness()
async def test_sealed_data_is_nowhere_behind_the_proxy(harness: ProxyHarness) -> None:
    proxy, _one, _two = await cluster(harness, sealed=True)
    harness.assign([1])
    await harness.publish(b"the plain secret", key="k")
    ((stored, _),) = harness.stored[1].values()
    assert b"secret" not in stored
    (message,) = pubsub.PublishRequest.FromString(stored).messages
    assert message.ordering_key == "k"
    assert proxy.status()["sealed"] == 1


@pytest.mark.parametrize("key", ["", "k"])
@in_harness()
async def test_for_a_topic_that_was_created_anew_it_is_sealed_again(harness: ProxyHarness, *, key: str) -> None:
    """It waits for its chain while the topic is deleted and created again: the key of the old one will be removed."""
    proxy, one, _two = await cluster(harness, sealed=True)
    harness.assign([1])
    old, held = harness.topic, asyncio.Event()
    one.refusals = [Unavailable("a failover")]
    seal = proxy.sealer.seal

    async def sealing(topic: int, request: bytes) -> bytes:
        sealed: bytes = await seal(topic, request)
        if topic == old.incarnation:
            await held.wait()
        return sealed

    proxy.sealer.seal = sealing
    publishing = asyncio.ensure_future(harness.publish(b"secret", key=key))
    await asyncio.sleep(0.1)
    harness.delete(old)
    harness.topic = harness.add_topic(TOPIC)
    harness.assign([1])
    held.set()
    assert await publishing
    ((stored, _),) = [batch for chain in harness.stored.values() for batch in chain.values()]
    number = int.from_bytes(pubsub.PublishRequest.FromString(stored).messages[0].data[8:12], "little")
    (item,) = harness.store.range(f"keys/data/{number}").items
    assert json.loads(item.value)["topic"] == harness.topic.incarnation


@in_harness()
async def test_a_forwarder_that_knows_an_older_topic_of_the_name_is_waited_for(harness: ProxyHarness) -> None:
    _proxy, one, two = await cluster(harness)
    harness.assign([1])
    behind = Catalog()
    for change in behind.assign([CatalogChange.put(harness.topic)]):
        behind.apply(change)
    one.catalog = two.catalog = behind
    harness.delete(harness.topic)
    harness.topic = harness.add_topic(TOPIC)
    harness.assign([1])
    publishing = asyncio.ensure_future(harness.publish(b"x", key="k"))
    await asyncio.sleep(1)
    assert not publishing.done()
    one.catalog = two.catalog = harness.catalog
    assert await publishing


@in_harness()
async def test_what_comes_from_within_the_cluster_is_sealed_already(harness: ProxyHarness) -> None:
    proxy, *_ = await cluster(harness, sealed=True)
    harness.assign([1])
    harness.network._listening["proxy:1"][1].update(proxy.internal_methods())  # type: ignore[attr-defined]
    assert await harness.publish(b"a dead letter, as it was stored")
    assert harness.found(1) == [b"a dead letter, as it was stored"]


@pytest.mark.parametrize("sealed", [False, True])
@in_harness()
async def test_messages_of_a_topic_with_a_schema_are_checked_before_they_are_sealed(
    harness: ProxyHarness, *, sealed: bool
) -> None:
    await cluster(harness, sealed=sealed)
    schema = stored.Schema("projects/p/schemas/s", 7, pubsub.Schema.AVRO, (), 0).with_revision("0000000a", 1)
    given = pubsub.Schema(type=pubsub.Schema.AVRO, definition='"string"')
    harness.put_setting(schema.setting())
    harness.put_setting(stored.definition_setting(schema.name, "0000000a", given, b""))
    harness.topic = replace(harness.topic, schema=TopicSchema(schema.name, 7, 1))
    harness.put(harness.topic)
    harness.assign([1])
    assert await harness.publish(b'"fits"')
    ((request, _),) = harness.stored[1].values()
    (message,) = pubsub.PublishRequest.FromString(request).messages
    assert message.attributes["googclient_schemarevisionid"] == "0000000a"
    assert (message.data == b'"fits"') is not sealed
    error = await failing(harness.publish(b"5"))
    assert (error.code, error.message) == (
        Code.INVALID_ARGUMENT,
        "Invalid data in message: Message failed schema validation.",
    )


@in_harness()
async def test_a_proxy_that_lags_checks_by_what_the_chains_know(harness: ProxyHarness) -> None:
    """Nothing is stored unchecked, and nothing refused for what another proxy has committed."""
    _proxy, one, _two = await cluster(harness)
    harness.assign([1])
    first = stored.Schema("projects/p/schemas/s", 7, pubsub.Schema.AVRO, (), 0).with_revision("0000000a", 1)
    second = first.with_revision("0000000b", 2)
    bound = replace(harness.topic, schema=TopicSchema(first.name, 7, 1))
    string, number = (pubsub.Schema(type=pubsub.Schema.AVRO, definition=text) for text in ('"string"', '"int"'))

    def known_here() -> None:
        harness.put_setting(first.setting())
        harness.put_setting(stored.definition_setting(first.name, "0000000a", string, b""))
        harness.put(bound)

    def newest_here() -> None:
        harness.put_setting(second.setting())
        harness.put_setting(stored.definition_setting(first.name, "0000000b", number, b""))

    one.catalog = of_records(bound)
    harness.on_refresh = known_here
    assert (await failing(harness.publish(b"5"))).code is Code.INVALID_ARGUMENT
    assert not harness.stored[1]
    assert await harness.publish(b'"fits"')
    harness.on_refresh = newest_here
    assert await harness.publish(b"5")
    marks = [
        message.attributes["googclient_schemarevisionid"]
        for request, _ in harness.stored[1].values()
        for message in pubsub.PublishRequest.FromString(request).messages
    ]
    assert marks == ["0000000a", "0000000b"]


class _DropsB(Transformer):
    """Drops messages `b` where the first transform says so."""

    async def apply(
        self, transforms: Sequence[pubsub.MessageTransform], messages: Sequence[pubsub.PubsubMessage]
    ) -> list[Outcome]:
        drops = transforms[0].compression.compression_mode == pubsub.Compression.DECOMPRESS
        return [None if drops and one.data == b"b" else one for one in messages]


@in_harness()
async def test_what_may_be_stored_by_other_transforms_is_not_sent_again_by_newer_ones(harness: ProxyHarness) -> None:
    """The chain would answer with the ids of what it stored first, which are those of other messages."""
    proxy, *owners = await cluster(harness)
    harness.assign([1, 2])

    def with_mode(mode: pubsub.Compression.CompressionMode) -> Topic:
        one = pubsub.MessageTransform(compression=pubsub.Compression(compression_mode=mode))
        return replace(harness.topic, config=pubsub.Topic(message_transforms=[one]).SerializeToString())

    newer = with_mode(pubsub.Compression.DECOMPRESS)
    harness.put(with_mode(pubsub.Compression.COMPRESS))
    proxy.publisher._preparation._transforms._transformer = _DropsB.of({})

    def stored_but_lost(_: PublishBatch) -> None:
        for one in owners:
            one.before_answer, one.catalog = lambda batch: None, of_records(newer)
        harness.on_refresh = lambda: harness.put(newer)
        raise Unavailable("the connection is lost")

    for one in owners:
        one.before_answer = stored_but_lost
    request = pubsub.PublishRequest(
        topic=TOPIC, messages=[pubsub.PubsubMessage(data=one) for one in (b"a", b"b", b"c")]
    )
    error = await failing(harness.call(PUBLISHER + "Publish", request))
    assert (error.code, "may or may not be stored" in error.message) == (Code.UNAVAILABLE, True)
    assert len(harness.stored[1]) + len(harness.stored.get(2, {})) == 1


@in_harness()
async def test_large_requests_are_checked_apart_and_keys_keep_their_order(harness: ProxyHarness) -> None:
    proxy, *_ = await cluster(harness)
    harness.assign([1])
    schema = stored.Schema("projects/p/schemas/s", 7, pubsub.Schema.AVRO, (), 0).with_revision("0000000a", 1)
    string = pubsub.Schema(type=pubsub.Schema.AVRO, definition='"string"')
    harness.put_setting(schema.setting())
    harness.put_setting(stored.definition_setting(schema.name, "0000000a", string, b""))
    harness.put(replace(harness.topic, schema=TopicSchema(schema.name, 7, 1)))
    checked: list[int] = []

    async def apart(work: Any) -> Any:
        await asyncio.sleep(0.5)
        checked.append(1)
        return work()

    proxy.publisher._preparation.schemas.apart = apart
    harness.network.delay_s_max = 0.0  # calls arrive in the order in which they are made
    large = b'"%b"' % (b"x" * JSON_BYTES_AT_ONCE)
    tasks = [asyncio.ensure_future(harness.publish(one, key="k")) for one in (large, b'"small"')]
    await asyncio.gather(*tasks)
    assert harness.found(1) == [large, b'"small"']
    assert checked == [1]


@in_harness()
async def test_settings_that_a_chain_never_learns_of_are_not_guessed(harness: ProxyHarness) -> None:
    _proxy, one, two = await cluster(harness)
    harness.assign([1])
    settings = TopicSchema("projects/p/schemas/s", 7, 1)
    one.catalog = two.catalog = of_records(replace(harness.topic, schema=settings))
    error = await failing(harness.publish(b"x"))
    assert (error.code, "schema settings" in error.message) == (Code.UNAVAILABLE, True)
    assert not harness.stored[1]


@in_harness()
async def test_limits_are_those_of_the_plain_request(harness: ProxyHarness) -> None:
    _proxy, _one, _two = await cluster(harness, sealed=True)
    harness.assign([1])
    room = 10_000_000 - len(pubsub.PublishRequest(topic=TOPIC).SerializeToString())
    largest = room - 10  # tags and lengths of the message and of its data
    assert await harness.publish(bytes(largest))
    error = await failing(harness.publish(bytes(largest + 1)))
    assert (error.code, error.message) == (Code.INVALID_ARGUMENT, "request: request_size is too large")


@in_harness()
async def test_without_a_key_for_sealing_nothing_is_published(harness: ProxyHarness) -> None:
    _proxy, _one, _two = await cluster(harness, sealed=True)
    harness.assign([1])
    harness.processes["proxy"].store.cut = True
    assert (await failing(harness.publish(b"x"))).code is Code.UNAVAILABLE
    assert harness.stored == {}


@in_harness()
async def test_stopping_fails_what_is_underway(harness: ProxyHarness) -> None:
    _proxy, one, _two = await cluster(harness)
    harness.assign([1])
    one.process.hang()
    publishing = asyncio.ensure_future(harness.publish(b"x", key="k"))
    await asyncio.sleep(0.1)
    await harness.processes["proxy"].process.start(harness.processes["proxy"].stop())
    assert isinstance(await failing(publishing), SyncpointError)
    assert publishing.exception().code is Unavailable("").code  # type: ignore[union-attr]


@in_harness()
async def test_another_chain_may_take_what_one_cannot_while_the_metadata_does_not_answer(harness: ProxyHarness) -> None:
    _proxy, one, two = await cluster(harness)
    harness.assign([1, 2])
    one.refusals = [MetadataSilent("not open here")] * 10
    for data in (b"a", b"b", b"c"):
        assert await harness.publish(data)
    assert sorted(harness.found(2)) == [b"a", b"b", b"c"]
    assert one.refusals
    assert not two.refusals


@pytest.mark.parametrize("key", ["", "k"])
@plain_test(run, 1)
async def test_a_topic_that_cannot_be_opened_without_the_metadata_is_refused_soon(
    harness: ProxyHarness, *, key: str
) -> None:
    _proxy, one, two = await cluster(harness)
    harness.assign([1, 2])
    for owner in (one, two):
        owner.refusals = [MetadataSilent("not open here") for _ in range(1000)]
    begun = harness.clock.monotonic()
    error = await failing(harness.publish(b"x", key=key, timeout=60.0))
    assert error.code is Code.UNAVAILABLE
    assert "the metadata does not answer" in error.message
    assert "Nothing was stored" in error.message
    assert harness.clock.monotonic() - begun < 10.0
    assert harness.stored.get(1, {}) == harness.stored.get(2, {}) == {}


@in_harness()
async def test_a_key_of_a_topic_without_assignment_is_refused_soon_while_the_metadata_is_down(
    harness: ProxyHarness,
) -> None:
    await cluster(harness)
    harness.processes["proxy"].store.cut = True
    error = await failing(harness.publish(b"x", key="k", timeout=60.0))
    assert error.code is Code.UNAVAILABLE
    assert "the metadata does not answer" in error.message
