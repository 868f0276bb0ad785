"""Pulse: the silent are suspected, the slow are not."""

from __future__ import annotations

import asyncio

from syncpoint.control.peer_channels import PeerChannels
from syncpoint.proxy.pulse import Pulse
from tests.kit.proxy import Process, ProxyWorld, in_world


@in_world()
async def test_silence_is_noticed_and_so_is_its_end(world: ProxyWorld) -> None:
    peers = PeerChannels(world.network)
    pulse, heard = Pulse(peers), []
    pulse.on_suspect = lambda address, suspected: heard.append((address, suspected))
    one = await world.start(Process, "one")
    pulse.wait(one.address, "call")
    await asyncio.sleep(10)
    assert heard == []
    one.process.hang()
    await asyncio.sleep(3)
    assert heard == [("one:1", True)]
    pulse.done(one.address, "call")
    await asyncio.sleep(3)
    one.process.go_on()
    await asyncio.sleep(3)
    assert heard == [("one:1", True), ("one:1", False)]
    assert pulse._timer is None  # nobody waits for anybody
    pulse.close()
    await peers.close()


@in_world()
async def test_a_refused_connection_needs_no_second_look(world: ProxyWorld) -> None:
    peers = PeerChannels(world.network)
    pulse = Pulse(peers)
    pulse.wait("nobody:1", "call")
    await asyncio.sleep(1.1)
    assert pulse.suspected == {"nobody:1"}
    pulse.close()
    await peers.close()


@in_world()
async def test_short_calls_cost_no_ping(world: ProxyWorld) -> None:
    peers = PeerChannels(world.network)
    pulse = Pulse(peers)
    for number in range(100):
        pulse.wait("nobody:1", number)
        await asyncio.sleep(0.1)
        pulse.done("nobody:1", number)
    assert pulse.suspected == set()
    pulse.close()
    await peers.close()
