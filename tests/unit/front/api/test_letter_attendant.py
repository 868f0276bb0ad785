"""Letters without listeners: what is moved while nobody receives, and that nothing else is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.broker.subscribe import lane_rules
from syncpoint.front.api import letter_attendant
from syncpoint.front.api.letter_attendant import LetterAttendant
from syncpoint.front.api.node_admin import LocalInquiry
from syncpoint.testing.rigs.forwarder_harness import TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from syncpoint.wire.protobuf.messages import internal
from tests.kit.working_apart import WorkingApart
from tests.unit.front.api.test_letter_admin import DEAD, LETTERS, WORK, listed, pulled, texts


async def attended(harness: ServicerHarness, **options: Any) -> LetterAttendant:
    """A subscription with these options, and who attends to it."""
    await harness.call("CreateTopic", name=DEAD)
    await harness.call("CreateSubscription", name=LETTERS, topic=DEAD)
    policy = {"dead_letter_topic": DEAD, "max_delivery_attempts": 5}
    await harness.call("CreateSubscription", name=WORK, topic=TOPIC, dead_letter_policy=policy)
    asked = {"options": {"subscription": WORK, **options}, "update_mask": {"paths": list(options)}}
    await harness.call("UpdateSubscriptionOptions", **asked)
    inquiry = LocalInquiry(harness.publish, harness.subscribe)
    copy: Any = SimpleNamespace(catalog=harness.control.catalog, on_change=harness.commits._listeners)
    attendant = LetterAttendant(copy, inquiry, harness.clock, inquiry.publish_letter)
    attendant.start()
    return attendant


async def send(harness: ServicerHarness, *data: str, **attributes: str) -> None:
    messages = [{"data": one.encode(), "attributes": attributes} for one in data]
    await harness.call("Publish", topic=TOPIC, messages=messages)


async def fails(harness: ServicerHarness) -> None:
    await harness.call("CreateRule", subscription=WORK, rule={"name": "share", "sql": "100 / n > 10"})
    await harness.call("DeleteRule", subscription=WORK, name="$Default")


@simulated()
async def test_what_runs_out_becomes_a_letter_with_nobody_there(harness: ServicerHarness) -> None:
    attendant = await attended(harness, dead_letter_expired=True)
    await send(harness, "brief", **{"sys.TimeToLive": "0:0:30"})
    await send(harness, "stays")
    await send(harness, "longer", **{"sys.TimeToLive": "0:2:0"})
    await asyncio.sleep(20)
    assert texts(await listed(harness)) == []
    await asyncio.sleep(30)
    (one,) = await listed(harness)
    assert (texts([one]), one.reason, one.source) == (["brief"], "TTLExpiredException", WORK)
    await asyncio.sleep(120)
    assert texts(await listed(harness)) == ["brief", "longer"]
    assert [one.message.data for one in await pulled(harness)] == [b"stays"]
    assert attendant.moved == 2
    await attendant.stop()


@pytest.mark.parametrize("elsewhere", [False, True])
@simulated()
async def test_what_rules_fail_at_becomes_a_letter_with_nobody_there(
    harness: ServicerHarness, *, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    attendant = await attended(harness, dead_letter_rule_errors=True)
    attendant._apart = apart = WorkingApart()
    if elsewhere:
        monkeypatch.setattr(lane_rules, "LAZY_CHARS", -1)
    await fails(harness)
    for n in ("0", "5", "50", "0"):
        await send(harness, f"n{n}", n=n)
    await asyncio.sleep(15)
    found = await listed(harness)
    assert texts(found) == ["n0", "n0"]
    assert {one.reason for one in found} == {"FilterEvaluationException"}
    await send(harness, "later", n="0")
    await asyncio.sleep(15)
    assert texts(await listed(harness)) == ["n0", "n0", "later"]
    assert [one.message.data for one in await pulled(harness)] == [b"n5"]
    harness.restart()
    assert len(await listed(harness)) == 3
    assert (bool(apart.apart), bool(apart.at_once)) == (elsewhere, not elsewhere)
    await attendant.stop()


@simulated()
async def test_what_is_out_is_left_alone(harness: ServicerHarness) -> None:
    """Its lease outlasts its time: it may be acknowledged until then, and no letter is made of it."""
    attendant = await attended(harness, dead_letter_expired=True)
    await send(harness, "brief", **{"sys.TimeToLive": "0:0:5"})
    (got,) = await pulled(harness)
    await harness.call("ModifyAckDeadline", subscription=WORK, ack_ids=[got.ack_id], ack_deadline_seconds=100)
    await asyncio.sleep(60)
    assert texts(await listed(harness)) == []
    await harness.call("Acknowledge", subscription=WORK, ack_ids=[got.ack_id])
    await asyncio.sleep(60)
    assert texts(await listed(harness)) == []
    assert attendant.moved == 0
    await attendant.stop()


@simulated()
async def test_leases_that_nobody_looks_at_would_be_noticed(
    harness: ServicerHarness, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: what a subscriber has becomes a letter all the same."""

    async def nobody(self: LetterAttendant, record: object) -> bool:
        return False

    monkeypatch.setattr(LetterAttendant, "_is_used", nobody)
    attendant = await attended(harness, dead_letter_expired=True)
    await send(harness, "brief", **{"sys.TimeToLive": "0:0:5"})
    (got,) = await pulled(harness)
    await harness.call("ModifyAckDeadline", subscription=WORK, ack_ids=[got.ack_id], ack_deadline_seconds=100)
    await asyncio.sleep(60)
    assert texts(await listed(harness)) == ["brief"]
    await attendant.stop()


@simulated()
async def test_a_letter_is_persisted_before_its_message_is_acknowledged(harness: ServicerHarness) -> None:
    attendant = await attended(harness, dead_letter_expired=True)
    order, publish, acknowledge = [], attendant._publish, attendant._asking.acknowledge_seen

    async def published(topic: str, request: bytes) -> bytes:
        answer = await publish(topic, request)
        order.append(len(await listed(harness)))
        return answer

    async def acknowledged(chain: int, request: internal.AcknowledgeSeenRequest) -> None:
        order.append(-1)
        await acknowledge(chain, request)

    attendant._publish = published
    attendant._asking.acknowledge_seen = acknowledged  # type: ignore[method-assign]
    await send(harness, "a", "b", **{"sys.TimeToLive": "0:0:5"})
    await asyncio.sleep(30)
    assert order == [1, -1, 2, -1]
    await attendant.stop()


@simulated()
async def test_what_a_forwarder_moved_first_has_one_letter(
    harness: ServicerHarness, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_attendant, "QUIET_S", 30.0)
    attendant = await attended(harness, dead_letter_expired=True)
    await send(harness, "brief", **{"sys.TimeToLive": "0:0:5"})
    await asyncio.sleep(20)
    assert not await pulled(harness)
    await asyncio.sleep(60)
    assert texts(await listed(harness)) == ["brief"]
    assert attendant.moved == 0
    await attendant.stop()


@simulated()
async def test_a_letter_that_cannot_be_published_is_tried_again(harness: ServicerHarness) -> None:
    attendant = await attended(harness, dead_letter_expired=True)
    right, ready = attendant._publish, False

    async def publish(topic: str, request: bytes) -> bytes:
        if not ready:
            raise Unavailable("not now")
        return await right(topic, request)

    attendant._publish = publish
    await send(harness, "brief", **{"sys.TimeToLive": "0:0:5"})
    await asyncio.sleep(60)
    assert texts(await listed(harness)) == []
    ready = True
    await asyncio.sleep(30)
    assert texts(await listed(harness)) == ["brief"]
    await attendant.stop()


@simulated()
async def test_more_than_a_round_moves(harness: ServicerHarness, *, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_attendant, "MOVED_MAX", 3)
    attendant = await attended(harness, dead_letter_expired=True, dead_letter_rule_errors=True)
    await fails(harness)
    names = [f"{number:02}" for number in range(10)]
    for name in names:
        await send(harness, name, n="0")
        await send(harness, f"t{name}", n="5", **{"sys.TimeToLive": "0:1:0"})
    await asyncio.sleep(50)
    assert texts(await listed(harness)) == names
    await asyncio.sleep(100)
    assert sorted(texts(await listed(harness))) == sorted([*names, *(f"t{name}" for name in names)])
    await attendant.stop()


@simulated()
async def test_nothing_is_done_for_others_or_after_the_option_is_taken_back(harness: ServicerHarness) -> None:
    attendant = await attended(harness, dead_letter_expired=True)
    asked = {"options": {"subscription": WORK}, "update_mask": {"paths": ["dead_letter_expired"]}}
    await harness.call("UpdateSubscriptionOptions", **asked)
    assert not attendant._attended
    await send(harness, "brief", **{"sys.TimeToLive": "0:0:5"})
    await asyncio.sleep(60)
    assert texts(await listed(harness)) == []
    await attendant.stop()


@simulated()
async def test_two_that_move_the_same_make_one_letter(harness: ServicerHarness) -> None:
    """Also a subscriber that comes between: the name of a letter is that of the copy it was made of."""
    first = await attended(harness, dead_letter_expired=True)
    second = LetterAttendant(first._copy, first._asking, harness.clock, first._publish)
    second.start()
    await send(harness, "a", "b", **{"sys.TimeToLive": "0:0:5"})
    right = first._asking.acknowledge_seen

    async def lost(chain: int, request: internal.AcknowledgeSeenRequest) -> None:
        raise Unavailable("away")

    first._asking.acknowledge_seen = lost  # type: ignore[method-assign]
    await asyncio.sleep(30)
    assert texts(await listed(harness)) == ["a"], "the next one has its turn when this one is acknowledged"
    assert not await pulled(harness)
    assert sorted(texts(await listed(harness))) == ["a", "b"]
    first._asking.acknowledge_seen = right  # type: ignore[method-assign]
    await asyncio.sleep(60)
    assert sorted(texts(await listed(harness))) == ["a", "b"]
    await first.stop()
    await second.stop()
