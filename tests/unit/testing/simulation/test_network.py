"""Simulated processes and the network between them behave as real ones do."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, ConnectionRefused, SyncpointError
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.rigs.plain_tests import plain_test
from syncpoint.testing.simulation.loop import ProcessLoop, SimProcess, here, run_in_loop
from syncpoint.testing.simulation.sim_network import SimNetwork
from syncpoint.wire.transport.calls import Call, Unary


def in_loop(work: Any) -> Any:
    clock = ManualClock()

    def run(loop: ProcessLoop) -> Coroutine[Any, Any, Any]:
        return work(loop, SimNetwork(SeededRandom(1)))

    return run_in_loop(clock, run)


async def serve(network: SimNetwork, process: SimProcess, seen: list[str]) -> None:
    def answer(call: Call, request: bytes) -> None:
        current = here()
        seen.append(current.name if current else "nobody")
        call.reply(b"got " + request)

    async def listen() -> None:
        await network.serve({b"/a/b": Unary(answer)}, "10.0.0.1", 80)

    await process.start(listen())


@plain_test(in_loop)
async def test_a_handler_runs_in_the_process_that_serves(loop: ProcessLoop, network: SimNetwork) -> None:
    seen: list[str] = []
    await serve(network, SimProcess(loop, "server"), seen)
    assert await network.channel("10.0.0.1:80").unary("/a/b", b"x") == b"got x"
    assert seen == ["server"]


@plain_test(in_loop)
async def test_a_crashed_process_refuses_and_its_open_calls_break(loop: ProcessLoop, network: SimNetwork) -> None:
    server, cleaned = SimProcess(loop, "server"), []

    async def wait_for_ever() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            cleaned.append(True)

    await serve(network, server, [])
    server.start(wait_for_ever())
    channel = network.channel("10.0.0.1:80")
    calling = asyncio.create_task(channel.unary("/a/b", b"x"))
    await asyncio.sleep(0)
    server.crash()
    network.ended(server)
    with pytest.raises(SyncpointError) as lost:
        await calling
    assert lost.value.code is Code.UNAVAILABLE
    with pytest.raises(ConnectionRefused):
        await channel.unary("/a/b", b"x")
    await asyncio.sleep(10)
    assert not cleaned


@plain_test(in_loop)
async def test_a_hung_process_goes_on_where_it_was(loop: ProcessLoop, network: SimNetwork) -> None:
    server = SimProcess(loop, "server")
    await serve(network, server, [])
    channel = network.channel("10.0.0.1:80")
    server.hang()
    with pytest.raises(SyncpointError) as late:
        await channel.unary("/a/b", b"x", timeout=1.0)
    assert late.value.code is Code.DEADLINE_EXCEEDED
    calling = asyncio.create_task(channel.unary("/a/b", b"y"))
    await asyncio.sleep(5)
    server.go_on()
    assert await calling == b"got y"


@plain_test(in_loop)
async def test_what_was_under_way_arrives_after_the_healing(loop: ProcessLoop, network: SimNetwork) -> None:
    seen: list[str] = []
    server, client = SimProcess(loop, "server"), SimProcess(loop, "client-1")
    await serve(network, server, seen)
    network.part(["client-1"], ["server"])

    async def call() -> bytes:
        return await network.channel("10.0.0.1:80").unary("/a/b", b"z")

    calling = client.start(call())
    await asyncio.sleep(5)
    assert not seen
    network.heal()
    assert await calling == b"got z"


@plain_test(in_loop)
async def test_what_a_parted_process_still_said_arrives_after_its_end_and_the_healing(
    loop: ProcessLoop, network: SimNetwork
) -> None:
    seen: list[str] = []
    await serve(network, SimProcess(loop, "server"), seen)
    caller = SimProcess(loop, "caller")

    async def call() -> None:
        await network.channel("10.0.0.1:80").unary("/a/b", b"x")

    heal = network.part(["caller"], ["server"])
    caller.start(call())
    await asyncio.sleep(0.1)
    caller.crash()
    network.ended(caller)
    await asyncio.sleep(1.0)
    assert seen == []
    heal()
    await asyncio.sleep(5.0)
    assert seen == ["server"]


@plain_test(in_loop)
async def test_two_partings_of_the_same_processes_are_healed_one_by_one(loop: ProcessLoop, network: SimNetwork) -> None:
    first, second = network.part(["a"], ["b"]), network.part(["a"], ["b", "c"])
    first()
    assert network.parted("a", "b")
    second()
    assert not network.parted("a", "b")
    assert not network.parted("c", "a")
