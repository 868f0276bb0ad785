"""Publishing through a proxy: whatever happens behind it, a client learns ids of what is stored, or the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from syncpoint.base.model.errors import (
    Code,
    InvalidArgument,
    MetadataSilent,
    ResourceExhausted,
    SyncpointError,
    Unavailable,
)
from syncpoint.broker.router.rendezvous import pick_chain
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.front.proxy.publish_attempt import PublishAttempt
from syncpoint.front.proxy.publisher import ClusterPublisher
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.errors import failing
from tests.kit.proxy import (
    PUBLISHER,
    TOPIC,
    ProxyHarness,
    in_harness,
    run,
)

pytestmark = pytest.mark.shows("proxies")


@in_harness()
async def test_the_ids_of_the_chain_come_back_and_the_request_went_as_it_was(harness: ProxyHarness) -> None:
    await harness.cluster([1])
    request = pubsub.PublishRequest(
        topic=TOPIC, messages=[pubsub.PubsubMessage(data=b"a"), pubsub.PubsubMessage(data=b"b")]
    )
    answer = await harness.call(PUBLISHER + "Publish", request)
    ((stored, ids),) = harness.stored[1].values()
    assert stored == request.SerializeToString()
    assert list(pubsub.PublishResponse.FromString(answer).message_ids) == ids


@in_harness()
async def test_an_unknown_topic_is_looked_for_once_more(harness: ProxyHarness) -> None:
    await harness.cluster()
    error = await failing(harness.publish(b"x", topic="projects/p/topics/nobody"))
    assert (error.code, error.message) == (Code.NOT_FOUND, "Resource not found (resource=projects/p/topics/nobody).")
    error = await failing(harness.publish(b"x", topic="nonsense"))
    assert error.code is Code.INVALID_ARGUMENT
    name = "projects/p/topics/new"
    harness.on_refresh = lambda: harness.catalog.topic(name) or harness.add_topic(name)  # type: ignore[assignment, return-value]
    assert await harness.publish(b"x", topic=name)


@in_harness()
async def test_what_is_no_request_is_refused(harness: ProxyHarness) -> None:
    await harness.cluster()
    error = await failing(harness.call(PUBLISHER + "Publish", b"\x0a\x05x"))
    assert error.code is Code.INVALID_ARGUMENT


@in_harness()
async def test_keys_are_spread_over_the_chains_and_stay(harness: ProxyHarness) -> None:
    await harness.cluster([1, 2, 3], 3)
    for number in range(30):
        await harness.publish(b"%d" % (number % 10), key=f"k{number % 10}")
    for number in range(10):
        key = b"k%d" % number
        assert harness.found(pick_chain(harness.topic.incarnation, key, [1, 2, 3])).count(b"%d" % number) == 3


@in_harness()
async def test_messages_without_a_key_are_spread_over_the_chains_that_share_the_topic(harness: ProxyHarness) -> None:
    await harness.cluster([1, 3], 3)
    for _ in range(10):
        await harness.publish(b"x")
    assert [len(harness.found(chain)) for chain in (1, 2, 3)] == [5, 0, 5]


@in_harness()
async def test_a_crash_is_not_seen_without_a_key(harness: ProxyHarness) -> None:
    proxy, one, _two = await harness.cluster([1])
    one.before_answer = lambda batch: one.crash()
    began = harness.loop.time()
    assert len(await harness.publish(b"x", b"y")) == 2
    assert harness.loop.time() - began < 0.1
    assert harness.found(2) == [b"x", b"y"]
    assert proxy.publisher.resent == 1


@in_harness()
async def test_a_hung_owner_is_left_after_a_moment_without_a_key(harness: ProxyHarness) -> None:
    proxy, one, _two = await harness.cluster([1])
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
    _proxy, one, _two = await harness.cluster([1])
    one.commit_s = 8.0
    assert await harness.publish(b"x")
    assert (harness.found(1), harness.found(2)) == ([b"x"], [])


@in_harness()
async def test_with_a_key_the_new_owner_of_the_chain_answers_with_the_same_ids(harness: ProxyHarness) -> None:
    _proxy, one, two = await harness.cluster([1])
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
    _proxy, one, two = await harness.cluster([1])
    one.process.hang()
    publishing = asyncio.ensure_future(harness.publish(b"x", key="k"))
    await asyncio.sleep(4)
    assert not publishing.done()
    one.lease_ends()
    harness.chain(1, two, epoch=2)
    await asyncio.wait_for(publishing, 0.2)
    assert harness.found(1) == [b"x"]


@pytest.mark.parametrize("seed", range(12))
def test_keys_stay_in_order_while_owners_die(seed: int) -> None:
    async def work(harness: ProxyHarness) -> None:
        proxy, *owners = await harness.cluster([1, 2, 3], 3)
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
    _proxy, one, _two = await harness.cluster([1])
    await harness.publish(b"before", key="k")
    one.refusals = [ResourceExhausted("full")]
    tasks = []
    for number in range(5):
        tasks.append(asyncio.ensure_future(harness.publish(b"%d" % number, key="k")))
        await asyncio.sleep(0.01)  # the first one is refused before the second one comes, and tried again after it
    await asyncio.gather(*tasks)
    assert harness.found(1) == [b"before", b"0", b"1", b"2", b"3", b"4"]


def record_sends(publisher: ClusterPublisher) -> list[bytes]:
    """The first message of each request that leaves, in order."""
    sent: list[bytes] = []
    send = publisher._send

    def recorded(batch: PublishAttempt, *args: Any) -> Awaitable[bytes]:
        sent.append(pubsub.PublishRequest.FromString(batch.request).messages[0].data)
        return send(batch, *args)

    publisher._send = recorded  # type: ignore[method-assign, assignment]
    return sent


@in_harness()
async def test_nothing_overtakes_a_batch_of_its_key_that_waits_for_an_owner(harness: ProxyHarness) -> None:
    """Its pause is longer than the time until the chain's new owner is known."""
    proxy, _one, _two = await harness.cluster([1])
    await harness.publish(b"before", key="k")
    sent, known = record_sends(proxy.publisher), proxy.routes.open_at
    proxy.routes.open_at = lambda chain: None  # type: ignore[method-assign]
    first = asyncio.ensure_future(harness.publish(b"0", key="k"))
    await asyncio.sleep(0.5)
    proxy.routes.open_at = known  # type: ignore[method-assign]
    assert not first.done()
    await asyncio.gather(first, harness.publish(b"1", key="k"))
    assert sent == [b"0", b"1"]


@in_harness()
async def test_nothing_overtakes_a_batch_whose_topic_is_looked_for(harness: ProxyHarness) -> None:
    """The topic becomes known before the look at the metadata has ended; what comes later may need a later look."""
    proxy, _one, _two = await harness.cluster([1])
    sent, name, looks = record_sends(proxy.publisher), "projects/p/topics/new", []

    async def refresh() -> None:
        looks.append(0)
        await asyncio.sleep(1)

    proxy.publisher.refresh = refresh
    first = asyncio.ensure_future(harness.publish(b"0", key="k", topic=name))
    await asyncio.sleep(0.5)
    harness.add_topic(name)
    await asyncio.gather(first, harness.publish(b"1", key="k", topic=name))
    assert (sent, len(looks)) == ([b"0", b"1"], 1)
    nobody = "projects/p/topics/nobody"
    early = asyncio.ensure_future(failing(harness.publish(b"x", topic=nobody)))
    await asyncio.sleep(0.5)
    late = asyncio.ensure_future(failing(harness.publish(b"x", topic=nobody)))
    assert {(await early).code, (await late).code} == {Code.NOT_FOUND}
    assert len(looks) == 3


@in_harness()
async def test_an_old_epoch_makes_the_proxy_ask_again(harness: ProxyHarness) -> None:
    _proxy, one, two = await harness.cluster([1])
    await harness.publish(b"x", key="k")
    harness.assign([2], epoch=2)
    one.epochs, two.epochs = {1: 2}, {2: 2}
    await harness.publish(b"y", key="k")
    assert (harness.found(1), harness.found(2)) == ([b"x"], [b"y"])


@in_harness()
async def test_full_chains_are_reported_after_a_while(harness: ProxyHarness) -> None:
    _proxy, one, two = await harness.cluster([1, 2])
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
    _proxy, one, _two = await harness.cluster([1])
    for key in ("", "k"):
        one.refusals = [InvalidArgument("messages[0]", "Some messages are empty")]
        began = harness.loop.time()
        error = await failing(harness.publish(b"x", key=key))
        assert (error.code, error.message) == (Code.INVALID_ARGUMENT, "messages[0]: Some messages are empty")
        assert harness.loop.time() - began < 0.1


@in_harness()
async def test_a_forwarder_that_does_not_know_the_topic_yet_is_given_time(harness: ProxyHarness) -> None:
    _proxy, one, _two = await harness.cluster([1])
    gone = SyncpointError(Code.NOT_FOUND, "Resource not found")
    one.refusals = [gone, gone]
    assert await harness.publish(b"x", key="k")
    one.refusals = [gone] * 1000
    began = harness.loop.time()
    assert (await failing(harness.publish(b"x", key="k"))).code is Code.NOT_FOUND
    assert 3 <= harness.loop.time() - began < 4


@in_harness()
async def test_the_deadline_of_the_caller_holds(harness: ProxyHarness) -> None:
    proxy, one, two = await harness.cluster([1])
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
async def test_publishes_go_on_while_the_metadata_is_down(harness: ProxyHarness) -> None:
    await harness.cluster([1])
    await harness.publish(b"x", key="k")
    harness.processes["proxy"].store.cut = True
    await harness.publish(b"y", key="k")
    await harness.publish(b"z")
    assert b"y" in harness.found(1)


@in_harness()
async def test_a_spike_waits_and_what_has_no_room_is_refused(harness: ProxyHarness) -> None:
    proxy, one, _two = await harness.cluster([1])
    limiter = proxy.publisher.rate_limiter
    limiter.sending.window = limiter.sending.name_window = 4_000
    harness.limits.topic = type(harness.limits.topic)(0, 20_000)
    one.commit_s = 0.05
    results = await asyncio.gather(
        *(harness.publish(bytes(900), timeout=20) for _ in range(40)), return_exceptions=True
    )
    refused = [one for one in results if isinstance(one, SyncpointError)]
    assert {one.code for one in refused} == {Code.RESOURCE_EXHAUSTED}
    assert len(harness.found(1)) == 40 - len(refused) == 21
    assert limiter.sending.delayed > 0
    assert limiter.held == limiter.sending.underway == 0


@in_harness()
async def test_a_forwarder_that_knows_an_older_topic_of_the_name_is_waited_for(harness: ProxyHarness) -> None:
    _proxy, one, two = await harness.cluster([1])
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
async def test_stopping_fails_what_is_underway(harness: ProxyHarness) -> None:
    _proxy, one, _two = await harness.cluster([1])
    one.process.hang()
    publishing = asyncio.ensure_future(harness.publish(b"x", key="k"))
    await asyncio.sleep(0.1)
    await harness.processes["proxy"].process.start(harness.processes["proxy"].stop())
    assert isinstance(await failing(publishing), SyncpointError)
    assert publishing.exception().code is Unavailable("").code  # type: ignore[union-attr]


@in_harness()
async def test_another_chain_may_take_what_one_cannot_while_the_metadata_does_not_answer(harness: ProxyHarness) -> None:
    _proxy, one, two = await harness.cluster([1, 2])
    one.refusals = [MetadataSilent("not open here")] * 10
    for data in (b"a", b"b", b"c"):
        assert await harness.publish(data)
    assert sorted(harness.found(2)) == [b"a", b"b", b"c"]
    assert one.refusals
    assert not two.refusals


@pytest.mark.parametrize("key", ["", "k"])
@in_harness()
async def test_a_topic_that_cannot_be_opened_without_the_metadata_is_refused_soon(
    harness: ProxyHarness, *, key: str
) -> None:
    _proxy, one, two = await harness.cluster([1, 2])
    for owner in (one, two):
        owner.refusals = [MetadataSilent("not open here") for _ in range(1000)]
    begun = harness.clock.monotonic()
    error = await failing(harness.publish(b"x", key=key, timeout=60.0))
    assert error.code is Code.UNAVAILABLE
    assert "the metadata store does not answer" in error.message
    assert "Nothing was stored" in error.message
    assert harness.clock.monotonic() - begun < 10.0
    assert harness.stored.get(1, {}) == harness.stored.get(2, {}) == {}


@in_harness()
async def test_a_key_of_a_topic_without_assignment_is_refused_soon_while_the_metadata_is_down(
    harness: ProxyHarness,
) -> None:
    await harness.cluster()
    harness.processes["proxy"].store.cut = True
    error = await failing(harness.publish(b"x", key="k", timeout=60.0))
    assert error.code is Code.UNAVAILABLE
    assert "the metadata store does not answer" in error.message
