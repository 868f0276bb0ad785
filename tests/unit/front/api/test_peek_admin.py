"""Peek: what pages show against a plain list, and that nothing is delivered, leased or counted by it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, Unavailable
from syncpoint.broker.publish.chain import source_peek
from syncpoint.broker.subscribe import lane_rules
from syncpoint.catalog.metadata.entity_options import MessageRule, RuleChange, changed_rules
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.front.api import pages as pages_of_api
from syncpoint.front.api import peek_admin
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf.messages import admin, internal, pubsub
from tests.kit.working_apart import WorkingApart

pytestmark = pytest.mark.shows("peek")


async def fill(harness: ServicerHarness, count: int = 12) -> list[str]:
    """Messages in batches of three, every second one red, each batch of another key; a second between two batches."""
    ids: list[str] = []
    for begin in range(0, count, 3):
        messages = [
            {"data": b"%d" % n, "attributes": {"color": ("red", "blue")[n % 2]}, "ordering_key": f"k{begin // 3 % 3}"}
            for n in range(begin, begin + 3)
        ]
        ids += (await harness.call("Publish", topic=TOPIC, messages=messages)).message_ids
        await asyncio.sleep(1)
    return ids


async def pages(harness: ServicerHarness, method: str, **fields: Any) -> list[admin.PeekedMessage]:
    found, token = [], ""
    while True:
        answer = await harness.call(method, page_token=token, **fields)
        assert not answer.unknown
        found += answer.messages
        token = answer.next_page_token
        if not token:
            return found


def numbers(found: list[admin.PeekedMessage]) -> list[int]:
    return [int(one.message.data) for one in found]


@simulated()
async def test_a_topic_is_shown_by_offset_time_attribute_and_key(harness: ServicerHarness) -> None:
    ids = await fill(harness)
    found = await pages(harness, "PeekTopic", topic=TOPIC, page_size=5)
    assert numbers(found) == list(range(12))
    assert [one.message.message_id for one in found] == ids
    assert [one.offset for one in found] == list(range(12))
    since = found[7].message.publish_time
    for fields, expected in (
        ({"start_offset": 5}, range(5, 12)),
        ({"message_id": ids[8]}, range(8, 12)),
        ({"start_time": since}, range(6, 12)),
        ({"filter": 'attributes.color = "red"'}, range(0, 12, 2)),
        ({"ordering_key": "k1"}, (3, 4, 5)),
        ({"ordering_key": "k1", "filter": 'attributes.color = "red"', "start_offset": 2}, (4,)),
        ({"start_offset": 12}, ()),
    ):
        for size in (1, 5, 0):
            assert numbers(await pages(harness, "PeekTopic", topic=TOPIC, page_size=size, **fields)) == list(expected)


@simulated()
async def test_a_subscription_shows_what_it_has_not_acknowledged_and_nothing_is_lent(harness: ServicerHarness) -> None:
    await fill(harness)
    out = await harness.pull(4)
    acked = [one for one in out if one.message.data in (b"0", b"2")]
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[one.ack_id for one in acked])
    before = await harness.call("GetSubscriptionState", subscription=SUB)
    for size in (1, 4, 0):
        found = await pages(harness, "PeekSubscription", subscription=SUB, page_size=size)
        assert numbers(found) == [1, 3, *range(4, 12)]
    red = await pages(harness, "PeekSubscription", subscription=SUB, filter='attributes.color = "red"')
    assert numbers(red) == [4, 6, 8, 10]
    assert (await harness.call("GetSubscriptionState", subscription=SUB)).outstanding_messages == 2
    assert (await harness.call("GetSubscriptionState", subscription=SUB)).sources == before.sources
    assert len(await harness.pull()) == 8, "what was shown is there for who pulls"


@simulated()
async def test_a_filter_of_the_subscription_holds(harness: ServicerHarness) -> None:
    await harness.call("CreateSubscription", name=SUB + "2", topic=TOPIC, filter='attributes.color = "blue"')
    await fill(harness)
    assert numbers(await pages(harness, "PeekSubscription", subscription=SUB + "2")) == list(range(1, 12, 2))


@pytest.mark.parametrize("elsewhere", [False, True])
@simulated()
async def test_copies_are_shown_as_the_rules_make_them(
    harness: ServicerHarness, *, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.admin.peeks.apart = apart = WorkingApart()
    if elsewhere:
        monkeypatch.setattr(lane_rules, "LAZY_CHARS", -1)
    rules = (
        MessageRule("red", "color = 'red'"),
        MessageRule("sized", "color = 'blue' AND sys.Label IS NULL", action="SET size = 2; SET color = 'green'"),
    )
    record = harness.control.catalog.subscription(SUB)
    assert record is not None
    revision = harness.control.catalog.revision + 1
    options = changed_rules(record.options, RuleChange(rules, ("$Default",)), revision)
    await harness.control.commit([CatalogChange.put(replace(record, options=options))])
    await fill(harness)
    for size in (1, 3, 0):
        found = await pages(harness, "PeekSubscription", subscription=SUB, page_size=size)
        plain = [one for one in found if "RuleName" not in one.message.attributes]
        copies = [one for one in found if one.message.attributes.get("RuleName") == "sized"]
        assert len(plain) + len(copies) == len(found)
        assert numbers(plain) == list(range(0, 12, 2))
        assert numbers(copies) == list(range(1, 12, 2))
        assert {one.message.attributes["color"] for one in copies} == {"green"}
        assert [one.offset for one in copies] == numbers(copies)
    green = await pages(harness, "PeekSubscription", subscription=SUB, filter='attributes.color = "green"')
    assert numbers(green) == list(range(1, 12, 2))
    assert not await pages(harness, "PeekSubscription", subscription=SUB, filter='attributes.color = "blue"')
    assert (bool(apart.apart), bool(apart.at_once)) == (elsewhere, not elsewhere)
    assert {*apart.apart, *apart.at_once} == {"projects/p"}
    pulled = sorted(one.message.SerializeToString(deterministic=True) for one in await harness.pull())
    assert sorted(one.message.SerializeToString(deterministic=True) for one in found) == pulled


@simulated()
async def test_a_page_costs_a_bounded_amount_of_reading(
    harness: ServicerHarness, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(harness, 60)
    monkeypatch.setattr(source_peek, "SCANNED_BYTES_MAX", 1)
    monkeypatch.setattr(source_peek, "READ_BYTES", 1)
    monkeypatch.setattr(peek_admin, "ASKED_MAX", 3)
    answer = await harness.call("PeekTopic", topic=TOPIC, filter="attributes:absent")
    assert not answer.messages
    assert answer.next_page_token
    assert numbers(await pages(harness, "PeekTopic", topic=TOPIC, filter='attributes.color = "red"')) == list(
        range(0, 60, 2)
    )


@simulated()
async def test_what_cannot_be_reached_or_opened_is_said(harness: ServicerHarness) -> None:
    await fill(harness, 3)

    async def closed(response: bytes) -> bytes:
        found = pubsub.PullResponse.FromString(response)
        del found.received_messages[1:2]
        return bytes(found.SerializeToString())

    harness.admin.peeks.open = closed
    answer = await harness.call("PeekTopic", topic=TOPIC)
    assert numbers(answer.messages) == [0, 2]
    assert answer.unknown == ["1 messages cannot be decrypted: their data was changed or their key was removed"]

    async def nobody(chain: int, request: internal.PeekRequest) -> internal.PeekResponse:
        raise Unavailable("no process has it open now")

    harness.admin._asking.peek = nobody  # type: ignore[method-assign]
    answer = await harness.call("PeekTopic", topic=TOPIC)
    assert not answer.messages
    assert "no process has it open" in answer.unknown[0]


@simulated()
async def test_what_is_refused(harness: ServicerHarness) -> None:
    await fill(harness)
    refusals: tuple[dict[str, Any], ...] = (
        {"message_id": "x"},
        {"message_id": "1" * 26 + "0" * 12, "start_offset": 1},
        {"filter": "attributes.a ="},
        {"page_token": "x"},
        {"page_size": -1},
        {"start_offset": 10**12 + 1},
        *(
            {"page_token": pages_of_api.token_of(text, f"messages of {TOPIC}")}
            for text in ("x", "1", "1 -1", "1 " + "9" * 20)
        ),
    )
    for fields in refusals:
        with pytest.raises(InvalidArgument):
            await harness.call("PeekTopic", topic=TOPIC, **fields)
    for seconds, expected in ((1 << 40, 0), (-(1 << 62), 12)):
        found = await pages(harness, "PeekTopic", topic=TOPIC, start_time={"seconds": seconds, "nanos": 1 << 30})
        assert len(found) == expected
    harness.admin.peeks.may_pass = lambda topic: False
    for method, fields in (("PeekTopic", {"topic": TOPIC}), ("PeekSubscription", {"subscription": SUB})):
        with pytest.raises(FailedPrecondition, match="may not pass"):
            await harness.call(method, **fields)
    await harness.call("DetachSubscription", subscription=SUB)
    with pytest.raises(FailedPrecondition, match="detached"):
        await harness.call("PeekSubscription", subscription=SUB)
