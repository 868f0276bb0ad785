"""What chains of one process may have under way together."""

from __future__ import annotations

import asyncio

from syncpoint.base.model.errors import Code
from syncpoint.base.model.flow import FlowLimit
from tests.kit.chain import (
    ChainHarness,
    simulated,
)
from tests.kit.errors import failing


@simulated
async def test_limits_hold_for_all_chains_of_a_process_together(harness: ChainHarness) -> None:
    process = await harness.opened("f1", 1)
    await process.open(2)
    await process.publish("warm", chain=1)
    await process.publish("warm", chain=2)
    process.host.context.limits.system = FlowLimit(2, 0)
    process.paused = True
    waiting = [asyncio.ensure_future(process.publish("a", chain=chain)) for chain in (1, 2)]
    await asyncio.sleep(0.05)
    assert process.host.context.admission.system.messages == 2
    refused = await failing(process.publish("b", chain=1))
    assert refused.code is Code.RESOURCE_EXHAUSTED
    assert (await failing(process.publish("b", chain=2))).code is Code.RESOURCE_EXHAUSTED
    process.paused = False
    assert all(await asyncio.gather(*waiting))
    assert process.host.context.admission.system.messages == 0
    assert await process.publish("c", chain=2)


@simulated
async def test_a_chain_that_fails_gives_back_what_it_took_of_the_limits(harness: ChainHarness) -> None:
    process = await harness.opened("f1", 1)
    await process.open(2)
    await process.publish("warm", chain=1)
    process.paused = True
    waiting = asyncio.ensure_future(process.publish("a", chain=1))
    await asyncio.sleep(0.05)
    assert process.host.context.admission.system.messages == 1
    process.host.chains[1].forwarder.commit.give_up(OSError("gone"))
    assert (await failing(waiting)).code is Code.UNAVAILABLE
    assert process.host.context.admission.system.messages == 0
    process.paused = False
    assert await process.publish("b", chain=2)
