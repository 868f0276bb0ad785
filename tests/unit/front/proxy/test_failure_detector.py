"""Failure detector: the silent are suspected, the slow are not."""

from __future__ import annotations

import asyncio

from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.front.proxy.failure_detector import FailureDetector
from tests.kit.proxy import ProxyHarness, in_harness
from tests.kit.proxy_processes import Process


@in_harness()
async def test_silence_is_noticed_and_so_is_its_end(harness: ProxyHarness) -> None:
    peers = PeerChannels(harness.network)
    detector, received = FailureDetector(peers), []
    detector.on_suspect = lambda address, suspected: received.append((address, suspected))
    one = await harness.start(Process, "one")
    detector.wait(one.address, "call")
    await asyncio.sleep(10)
    assert received == []
    one.process.hang()
    await asyncio.sleep(3)
    assert received == [("one:1", True)]
    detector.done(one.address, "call")
    await asyncio.sleep(3)
    one.process.go_on()
    await asyncio.sleep(3)
    assert received == [("one:1", True), ("one:1", False)]
    assert detector._timer is None  # nobody waits for anybody
    detector.close()
    await peers.close()


@in_harness()
async def test_a_refused_connection_needs_no_second_look(harness: ProxyHarness) -> None:
    peers = PeerChannels(harness.network)
    detector = FailureDetector(peers)
    detector.wait("nobody:1", "call")
    await asyncio.sleep(1.1)
    assert detector.suspected == {"nobody:1"}
    detector.close()
    await peers.close()


@in_harness()
async def test_short_calls_cost_no_ping(harness: ProxyHarness) -> None:
    peers = PeerChannels(harness.network)
    detector = FailureDetector(peers)
    for number in range(100):
        detector.wait("nobody:1", number)
        await asyncio.sleep(0.1)
        detector.done("nobody:1", number)
    assert detector.suspected == set()
    detector.close()
    await peers.close()
