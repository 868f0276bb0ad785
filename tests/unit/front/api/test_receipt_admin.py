"""Receipts: what is said of a message that is stored, of one that is not, and where nobody can say."""

from __future__ import annotations

import pytest

from syncpoint.base.model.errors import InvalidArgument, NotFound, Unavailable
from syncpoint.base.model.identity import format_message_id, parse_message_id
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf.messages import admin, internal

pytestmark = pytest.mark.shows("receipts")


async def published(harness: ServicerHarness, count: int = 3) -> list[str]:
    answer = await harness.call("Publish", topic=TOPIC, messages=[{"data": b"%d" % n} for n in range(count)])
    return list(answer.message_ids)


@simulated()
async def test_each_message_is_on_every_disk(harness: ServicerHarness) -> None:
    positions = set()
    for one in await published(harness):
        found = await harness.call("GetReceipt", topic=TOPIC, message_id=one)
        assert found.message_id == one
        assert {copy.state for copy in found.copies} == {admin.DiskCopy.HELD}
        assert found.suffices
        assert 1 <= found.needed <= len(found.copies)
        positions.add((found.log, found.position))
    assert len(positions) == 1, "they are of one batch"


@simulated()
async def test_a_message_that_is_not_stored_has_none(harness: ServicerHarness) -> None:
    ids = await published(harness)
    universe, source, offset = parse_message_id(ids[0])
    for other in (
        format_message_id(universe, source, offset + 3),
        format_message_id(universe, source + 1, offset),
        format_message_id(universe + 1, source, offset),
    ):
        with pytest.raises(NotFound, match="no message with this id"):
            await harness.call("GetReceipt", topic=TOPIC, message_id=other)
    with pytest.raises(NotFound):
        await harness.call("GetReceipt", topic=TOPIC + "x", message_id=ids[0])
    for wrong in ("", "x"):
        with pytest.raises(InvalidArgument):
            await harness.call("GetReceipt", topic=TOPIC, message_id=wrong)


@simulated()
async def test_what_another_topic_holds_is_not_shown(harness: ServicerHarness) -> None:
    await harness.call("CreateTopic", name=TOPIC + "2")
    await harness.call("CreateSubscription", name=SUB + "2", topic=TOPIC + "2")
    (one,) = await published(harness, 1)
    with pytest.raises(NotFound):
        await harness.call("GetReceipt", topic=TOPIC + "2", message_id=one)


@simulated()
async def test_a_chain_that_does_not_answer_is_not_taken_for_a_no(harness: ServicerHarness) -> None:
    (one,) = await published(harness, 1)

    async def nobody(
        topic: int, subscription: int = 0, ranges_max: int = 0
    ) -> tuple[list[internal.DescribedChain], list[str]]:
        return [], ["chain 3: no process has it open now"]

    harness.admin._asking.chains = nobody  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="chain 3: no process"):
        await harness.call("GetReceipt", topic=TOPIC, message_id=one)
