"""Topics at two sites, over sites without sockets: what is stored where, held, and moved when a site is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, SyncpointError, Unavailable
from syncpoint.front.gateway import dual_publisher
from syncpoint.front.gateway.ack_tags import tag_of
from syncpoint.front.gateway.site_fill import NOT_COMPARED
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.status import ack_outcomes
from tests.kit.gateway_in_memory import ACK, Harness, in_harness


@pytest.fixture(autouse=True)
def _no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR")


def test_a_dual_publish_is_at_both_sites_once_whatever_answers_are_lost() -> None:
    async def work(harness: Harness) -> None:
        harness.eu.answers_lost = harness.us.answers_lost = 2
        await harness.send(b"a")
        assert harness.eu.stored == harness.us.stored
        assert len(harness.eu.stored) == 1
        assert harness.gateway.status()["dual"]["atOneSite"] == 0

    in_harness(work, "strict")


def test_a_message_that_is_refused_is_no_failure_of_its_site() -> None:
    async def work(harness: Harness) -> None:
        harness.eu.refuses = harness.us.refuses = Code.INVALID_ARGUMENT
        with pytest.raises(SyncpointError, match="Refused by eu"):
            await harness.send(b"a")
        assert [link.failed for link in harness.gateway.links.values()] == [0, 0]

    in_harness(work, "degrade")


def test_messages_of_a_key_keep_their_order_at_both_sites() -> None:
    async def work(harness: Harness) -> None:
        harness.us.answers_lost = 3
        await asyncio.gather(*(harness.send(b"%d" % number, "k") for number in range(10)))
        for site in (harness.eu, harness.us):
            assert [int(data) for _, data in site.stored] == list(range(10))

    in_harness(work, "degrade")


def test_a_site_that_hangs_holds_a_publish_until_it_is_left() -> None:
    async def work(harness: Harness) -> None:
        harness.us.hangs = True
        await harness.send(b"a")
        assert not harness.gateway.board.is_open("us")
        assert harness.us.stored == []
        assert len(harness.eu.stored) == 1
        await harness.send(b"b")
        assert len(harness.eu.stored) == 2

    in_harness(work, "degrade")


def test_strict_refuses_with_one_site_and_available_goes_on() -> None:
    async def refused(harness: Harness) -> None:
        harness.gateway.mask("us")
        with pytest.raises(SyncpointError, match="Only one site takes calls"):
            await harness.send(b"a")
        assert harness.eu.stored == []

    async def stored(harness: Harness) -> None:
        await harness.gateway.tasks.stop()  # nobody probes, so nobody learns that the other one hangs
        harness.us.hangs = True
        await asyncio.wait_for(harness.send(b"a"), 10)
        assert len(harness.eu.stored) == 1

    in_harness(refused, "strict")
    in_harness(stored, "available")


def test_a_publisher_that_reads_unknown_and_tries_again_stores_once() -> None:
    async def work(harness: Harness) -> None:
        harness.eu.answers_lost = harness.us.answers_lost = 1_000
        with pytest.raises(SyncpointError):
            await harness.send(b"a", timeout=0.2)
        harness.eu.answers_lost = harness.us.answers_lost = 0
        await harness.send(b"a")
        assert len(harness.eu.stored) == len(harness.us.stored) == 1
        await harness.send(b"a")  # another message with the same bytes
        assert len(harness.eu.stored) == len(harness.us.stored) == 2

    in_harness(work, "degrade")


def test_what_a_caller_gave_up_counts_until_no_site_is_sent_it_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dual_publisher, "ATTEMPT_S", 0.1)
    monkeypatch.setattr(dual_publisher, "PAUSES_S", (0.01,))

    async def work(harness: Harness) -> None:
        harness.eu.hangs = harness.us.hangs = True
        with pytest.raises(SyncpointError):
            await harness.send(b"a" * 6_000, timeout=0.2)
        with pytest.raises(SyncpointError) as caught:
            await harness.send(b"b" * 6_000, timeout=0.2)
        assert caught.value.code is Code.RESOURCE_EXHAUSTED
        harness.eu.hangs = harness.us.hangs = False
        while harness.gateway.bounds._bytes:
            await asyncio.sleep(0.01)
        await harness.send(b"b" * 6_000)
        assert [data[:1] for _, data in harness.eu.stored] == [b"a", b"b"]

    in_harness(work, "degrade")


def test_copies_stand_in_for_a_site_that_is_gone_only_for_those_who_may_consume() -> None:
    async def work(harness: Harness) -> None:
        asked: list[list[str]] = []
        harness.gateway.calls.stands_in = lambda subscription, ack_ids: not asked.append(ack_ids)  # type: ignore[func-returns-value]
        ack_id = tag_of("eu").decode() + "of-eu"
        request = pubsub.AcknowledgeRequest(subscription="s", ack_ids=[ack_id]).SerializeToString()
        harness.eu.hangs = True
        while harness.gateway.board.is_open("eu"):
            await asyncio.sleep(0.01)
        harness.us.allows = False
        with pytest.raises(SyncpointError) as caught:
            await harness.client.unary(ACK, request)
        assert ack_outcomes(caught.value) == {ack_id: "TRANSIENT_FAILURE_INVALID_ACK_ID"}
        assert asked == []
        harness.us.allows = True
        await harness.client.unary(ACK, request)
        assert asked == [[ack_id]]

    in_harness(work, "degrade")


def test_a_stream_opens_once_it_is_known_whether_its_topic_is_at_two_sites() -> None:
    async def work(harness: Harness) -> None:
        async def silent(*asked: Any, **fields: Any) -> Any:
            raise Unavailable("No connection.")

        harness.gateway.delivery.own.call = silent  # type: ignore[method-assign]
        stream = harness.client.stream(methods.SUBSCRIBER.StreamingPull)
        await stream.send(pubsub.StreamingPullRequest(subscription="s").SerializeToString())
        with pytest.raises(SyncpointError) as caught:
            await stream.receive()
        assert caught.value.code is Code.UNAVAILABLE
        assert harness.gateway.status()["streams"] == 0

    in_harness(work, "degrade")


def test_a_masked_site_that_was_away_is_compared_anew() -> None:
    """It may have come back with other disks between two looks."""

    async def work(harness: Harness) -> None:
        harness.gateway.mask("us")
        harness.gateway.board.hold("us", "")
        harness.gateway.publisher.both.add("gw-1", 0.0)
        harness.us.faults.cut = True
        while harness.gateway.board.sites["us"].answers:
            await asyncio.sleep(0.01)
        assert harness.gateway.board.sites["us"].held == NOT_COMPARED
        assert len(harness.gateway.publisher.both) == 0

    in_harness(work, "degrade")


def test_a_stream_that_the_home_refused_for_a_moment_comes_home() -> None:
    """The home was never masked, so nothing changed that would move it."""

    async def work(harness: Harness) -> None:
        home, harness.gateway.links["eu"] = harness.gateway.links["eu"], harness.gateway.links["us"]
        stream = harness.client.stream(methods.SUBSCRIBER.StreamingPull)
        await stream.send(pubsub.StreamingPullRequest(subscription="s").SerializeToString())
        assert await stream.receive()  # at us
        harness.gateway.links["eu"] = home
        with pytest.raises(SyncpointError) as caught:
            await stream.receive()
        assert caught.value.code is Code.UNAVAILABLE
        assert harness.gateway.board.sites["eu"].changes == 0

    in_harness(work)
