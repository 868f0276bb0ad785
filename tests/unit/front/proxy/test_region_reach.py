"""Publishing to topics that may be stored in some regions only, while these can be reached and while they cannot."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.model.errors import Code
from tests.kit.errors import failing
from tests.kit.proxy import ProxyHarness, ProxyProcess, in_harness
from tests.kit.proxy_processes import PublishProcess

pytestmark = pytest.mark.shows("regions")

GERMAN = "projects/p/topics/german"


async def start_far(harness: ProxyHarness, owners: int) -> list[PublishProcess]:
    """Owners of chains from number 3 on in another region, and a topic that is allowed only there."""
    far: list[PublishProcess] = [await harness.start(PublishProcess, f"far{one}", "r2") for one in range(owners)]
    for number, owner in enumerate(far, 3):
        harness.chain(number, owner, region="r2")
    harness.add_topic(GERMAN, regions=("r2",))
    await asyncio.sleep(0.1)
    return far


@in_harness()
async def test_nothing_is_stored_outside_of_the_allowed_regions(harness: ProxyHarness) -> None:
    await harness.cluster()
    (three,) = await start_far(harness, 1)
    topic = harness.catalog.topic(GERMAN)
    assert topic is not None
    for number in range(4):
        await harness.publish(b"x", key="k" * (number % 2), topic=GERMAN)
    assert (len(harness.found(1)), len(harness.found(2)), len(harness.found(3))) == (0, 0, 4)
    three.lease_ends()
    three.crash()
    assert (await failing(harness.publish(b"x", topic=GERMAN, timeout=3))).code is Code.DEADLINE_EXCEEDED
    for key in ("", "k"):  # the caller has time: it is reported before its time is over
        error = await failing(harness.publish(b"x", topic=GERMAN, key=key, timeout=20))
        assert (error.code, "regions" in error.message) == (Code.UNAVAILABLE, True)
    for key in ("", "k"):  # it has been so for long
        begun = harness.loop.time()
        assert (await failing(harness.publish(b"x", topic=GERMAN, key=key, timeout=3))).code is Code.UNAVAILABLE
        assert harness.loop.time() - begun < 0.5
    harness.delete(topic)
    harness.add_topic(GERMAN, regions=("r2",), enforce_in_transit=True)
    assert (await failing(harness.publish(b"x", topic=GERMAN))).code is Code.FAILED_PRECONDITION


@in_harness()
async def test_a_region_that_cannot_be_reached_is_named_at_once(harness: ProxyHarness) -> None:
    """Its members live, by what the metadata say; from here nobody of them answers."""
    await harness.cluster()
    far = await start_far(harness, 3)
    everywhere = "projects/p/topics/everywhere"
    harness.add_topic(everywhere, regions=("r1", "r2"))
    for key in ("", "k"):
        await harness.publish(b"x", topic=GERMAN, key=key)
    for process in far:
        process.process.hang()
    begun = harness.loop.time()
    waiting = [failing(harness.publish(b"y", topic=GERMAN, key=key, timeout=30)) for key in ("", "k")]
    for error in await asyncio.gather(*waiting):
        assert (error.code, "r2" in error.message) == (Code.UNAVAILABLE, True)
    assert harness.loop.time() - begun < 6
    for key in ("", "k"):
        begun = harness.loop.time()
        error = await failing(harness.publish(b"y", topic=GERMAN, key=key, timeout=30))
        assert error.code is Code.UNAVAILABLE
        assert "no publish forwarder in r2 is reachable" in error.message
        assert harness.loop.time() - begun < 0.1
    await harness.publish(b"z", topic=everywhere)
    for process in far:
        process.process.go_on()
    await asyncio.sleep(2)
    for key in ("", "k"):
        await harness.publish(b"again", topic=GERMAN, key=key)


@in_harness()
async def test_a_hung_forwarder_is_waited_for_where_others_of_its_region_answer(harness: ProxyHarness) -> None:
    await harness.cluster()
    far = await start_far(harness, 2)
    await harness.publish(b"x", topic=GERMAN, key="k")
    victim = 3 if harness.found(3) else 4
    far[victim - 3].process.hang()
    waiting = asyncio.ensure_future(harness.publish(b"y", topic=GERMAN, key="k", timeout=60))
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
