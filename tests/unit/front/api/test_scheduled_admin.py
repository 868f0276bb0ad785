"""Scheduled messages over the interface of a node: pages against a plain list, content, cancellation."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument, NotFound, Unavailable
from syncpoint.front.api.scheduled_admin import ScheduledAdmin
from syncpoint.testing.rigs.forwarder_harness import TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf.messages import admin, internal

AT = "sys.ScheduledEnqueueTimeUtc"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ahead(harness: ServicerHarness, seconds: float) -> dict[str, str]:
    moment = EPOCH + timedelta(microseconds=harness.clock.time_ns() // 1000 + round(seconds * 1e6))
    return {AT: moment.isoformat()}


async def schedule(harness: ServicerHarness, *seconds: float, topic: str = TOPIC) -> list[str]:
    messages = [{"data": b"%d" % n, "attributes": ahead(harness, one)} for n, one in enumerate(seconds)]
    return list((await harness.call("Publish", topic=topic, messages=messages)).message_ids)


@simulated()
async def test_pages_come_in_the_order_of_times(harness: ServicerHarness) -> None:
    ids = await schedule(harness, 30, 10, 20, 10, 40)
    other = "projects/p/topics/other"
    await harness.call("CreateTopic", name=other)
    await schedule(harness, 15, topic=other)
    wanted = [ids[n] for n in (1, 3, 2, 0, 4)]
    for size in (1, 2, 5, 0):
        found, token = [], ""
        while True:
            page = await harness.call("ListScheduledMessages", topic=TOPIC, page_size=size, page_token=token)
            assert len(page.messages) <= (size or 100)
            found += page.messages
            token = page.next_page_token
            if not token:
                break
        assert [one.message_id for one in found] == wanted
        assert [one.enqueue_time.ToNanoseconds() for one in found] == sorted(
            one.enqueue_time.ToNanoseconds() for one in found
        )
        assert not any(one.HasField("message") for one in found)


@simulated()
async def test_one_is_shown_as_it_was_sent_and_cancelled_once(harness: ServicerHarness) -> None:
    first, second = await schedule(harness, 10, 20)
    shown = await harness.call("GetScheduledMessage", topic=TOPIC, message_id=second)
    assert (shown.message.data, shown.message.message_id, shown.message_id) == (b"1", second, second)
    assert not shown.message.HasField("publish_time")
    await harness.call("CancelScheduledMessage", topic=TOPIC, message_id=second)
    for method in ("GetScheduledMessage", "CancelScheduledMessage"):
        with pytest.raises(NotFound, match="has no scheduled message with this id"):
            await harness.call(method, topic=TOPIC, message_id=second)
        with pytest.raises(NotFound, match="has no scheduled message with this id"):
            await harness.call(method, topic=TOPIC, message_id="9" * 13 + second[13:])
        with pytest.raises(InvalidArgument):
            await harness.call(method, topic=TOPIC, message_id="7")
        with pytest.raises(NotFound):
            await harness.call(method, topic="projects/p/topics/none", message_id=first)
    assert [one.message_id for one in (await harness.call("ListScheduledMessages", topic=TOPIC)).messages] == [first]


@simulated()
async def test_a_cancellation_is_answered_when_it_is_stored(harness: ServicerHarness) -> None:
    (one,) = await schedule(harness, 10)
    harness.disks_rest = True
    asked = asyncio.ensure_future(harness.call("CancelScheduledMessage", topic=TOPIC, message_id=one))
    await asyncio.sleep(1)
    assert not asked.done()
    harness.persist()
    await asked


@simulated()
async def test_tokens_of_other_lists_are_refused(harness: ServicerHarness) -> None:
    await schedule(harness, 1000, 2000)
    token = (await harness.call("ListScheduledMessages", topic=TOPIC, page_size=1)).next_page_token
    other = "projects/p/topics/other"
    await harness.call("CreateTopic", name=other)
    for bad in (token + "x", "1 2 3"):
        with pytest.raises(InvalidArgument):
            await harness.call("ListScheduledMessages", topic=TOPIC, page_token=bad)
    with pytest.raises(InvalidArgument):
        await harness.call("ListScheduledMessages", topic=other, page_token=token)


@simulated()
async def test_chains_are_merged_and_a_silent_one_is_no_short_list(harness: ServicerHarness) -> None:
    class Chains:
        away = False

        async def scheduled(self, request: internal.ScheduledListRequest) -> list[internal.ScheduledOfChain]:
            if self.away:
                raise Unavailable("Chain 2 does not answer.")
            rows = {1: [(10, 5, 1), (30, 5, 0)], 2: [(10, 4, 7), (20, 9, 1)]}
            after = request.after.due_ns, request.after.source, request.after.offset
            return [
                internal.ScheduledOfChain(
                    chain=chain,
                    messages=[
                        {"due_ns": due, "source": source, "offset": offset}
                        for due, source, offset in found
                        if (due, source, offset) > after
                    ][: request.messages_max],
                )
                for chain, found in rows.items()
            ]

        async def cancel_scheduled(self, request: internal.ScheduledCancelRequest) -> bool:
            return False

    chains: Any = Chains()
    service = ScheduledAdmin(harness.admin.options, chains, harness.admin.peeks, harness.store.universe)
    found, token = [], ""
    while not found or token:
        request = admin.ListScheduledMessagesRequest(topic=TOPIC, page_size=1, page_token=token)
        page = await service.list_scheduled_messages(request)
        found += page.messages
        token = page.next_page_token
    assert [(one.chain, one.enqueue_time.nanos) for one in found] == [(2, 10), (1, 10), (2, 20), (1, 30)]
    chains.away = True
    with pytest.raises(Unavailable):
        await service.list_scheduled_messages(admin.ListScheduledMessagesRequest(topic=TOPIC))
