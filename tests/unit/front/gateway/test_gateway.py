"""The gateway over sites without sockets: where calls go, and what their callers read when a site is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, SyncpointError, Unavailable
from syncpoint.front.gateway import gateway_stream
from syncpoint.front.gateway.ack_tags import tag_of
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.status import ack_failure, ack_outcomes
from tests.kit.gateway_in_memory import ACK, FILE, PUBLISH, PULL, Harness, in_harness


@pytest.fixture(autouse=True)
def _no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR")


def test_a_publish_goes_to_the_home_alone_with_the_callers_authorization() -> None:
    async def work(harness: Harness) -> None:
        assert await harness.publish() == "eu"
        assert harness.eu.shown[0][b"authorization"] == b"Bearer of-the-caller"
        assert harness.us.asked == []

    in_harness(work)


def test_what_a_hung_site_may_have_begun_is_unknown_and_goes_nowhere_else() -> None:
    async def work(harness: Harness) -> None:
        harness.eu.hangs = True
        with pytest.raises(SyncpointError, match="outcome is unknown") as caught:
            await harness.publish()
        assert caught.value.code is Code.UNAVAILABLE
        assert harness.us.asked == []
        assert await harness.publish() == "us"  # the client tries again
        assert harness.gateway.status()["home"] == "us"

    in_harness(work)


def test_a_site_comes_back_by_itself() -> None:
    async def work(harness: Harness) -> None:
        harness.eu.hangs = True
        while harness.gateway.board.home == "eu":
            await asyncio.sleep(0.01)
        harness.eu.hangs = False
        while harness.gateway.board.home == "us":
            await asyncio.sleep(0.01)
        assert harness.gateway.board.sites["eu"].answered >= FILE.health.successes
        assert await harness.publish() == "eu"

    in_harness(work)


def test_ack_ids_go_to_their_site_and_of_one_that_is_gone_they_are_unknown() -> None:
    async def work(harness: Harness) -> None:
        pulled = await harness.client.unary(PULL, pubsub.PullRequest(subscription="s").SerializeToString())
        (one,) = pubsub.PullResponse.FromString(pulled).received_messages
        assert one.ack_id == tag_of("eu").decode() + "of-eu"
        harness.gateway.mask("eu")
        request = pubsub.AcknowledgeRequest(subscription="s", ack_ids=[one.ack_id])
        await harness.client.unary(ACK, request.SerializeToString())
        assert harness.us.asked == []
        path, sent = harness.eu.asked[-1]
        assert path == ACK
        assert pubsub.AcknowledgeRequest.FromString(sent) == pubsub.AcknowledgeRequest(
            subscription="s", ack_ids=["of-eu"]
        )
        harness.eu.hangs = True
        while harness.gateway.board.sites["eu"].answers:
            await asyncio.sleep(0.01)
        with pytest.raises(SyncpointError) as caught:
            await harness.client.unary(ACK, request.SerializeToString())
        assert ack_outcomes(caught.value) == {one.ack_id: "TRANSIENT_FAILURE_INVALID_ACK_ID"}
        stranger = pubsub.AcknowledgeRequest(subscription="s", ack_ids=["????of-nobody"])
        await harness.client.unary(ACK, stranger.SerializeToString())
        assert harness.us.asked[-1] == (ACK, stranger.SerializeToString())  # the home judges it

    in_harness(work)


def test_what_a_request_acknowledged_is_known_though_other_ids_of_it_failed() -> None:
    async def work(harness: Harness) -> None:
        noted: list[str] = []
        tag = tag_of("eu").decode()
        harness.gateway.calls.on_acknowledged = lambda subscription, ack_ids: noted.extend(ack_ids)

        async def answers(*asked: Any) -> bytes:
            raise ack_failure(["bad"])

        harness.gateway.links["eu"].unary = answers  # type: ignore[method-assign]
        request = pubsub.AcknowledgeRequest(subscription="s", ack_ids=[f"{tag}bad", f"{tag}good"])
        with pytest.raises(SyncpointError):
            await harness.client.unary(ACK, request.SerializeToString())
        assert noted == [f"{tag}good"]

    in_harness(work)


def test_ack_ids_that_nobody_gave_stop_nothing() -> None:
    async def work(harness: Harness) -> None:
        harness.gateway.bounds.bytes_max = 2 << 20
        strangers = [f"{number:06x}" for number in range(120_000)]
        request = pubsub.AcknowledgeRequest(subscription="s", ack_ids=strangers)
        await harness.client.unary(ACK, request.SerializeToString())
        assert set(pubsub.AcknowledgeRequest.FromString(harness.eu.asked[-1][1]).ack_ids) == set(strangers)
        request.ack_ids.extend(strangers)
        with pytest.raises(SyncpointError, match="send the ack ids in several"):
            await harness.client.unary(ACK, request.SerializeToString())

    in_harness(work)


def test_who_shows_nothing_does_not_pass_for_the_gateway() -> None:
    """A site that reads certificates would take the gateway's own for the caller's where no authorization is shown."""

    async def work(harness: Harness) -> None:
        await harness.send(b"x")
        assert harness.eu.shown[-1][b"authorization"] == b""

    in_harness(work)


def test_what_waits_on_all_streams_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one caller the limits of the file bound it; but a stranger has as many names as it makes up."""
    monkeypatch.setattr(gateway_stream, "UPWARD_TOTAL_BYTES_MAX", 5_000)

    async def work(harness: Harness) -> None:
        stream = harness.client.stream(methods.SUBSCRIBER.StreamingPull)
        opening = pubsub.StreamingPullRequest(subscription="s", stream_ack_deadline_seconds=10)
        await stream.send(opening.SerializeToString())
        assert await stream.receive()
        harness.eu.hangs = harness.us.hangs = True
        more = pubsub.StreamingPullRequest(ack_ids=[tag_of("eu").decode() + "x" * 1_000]).SerializeToString()
        for number in range(5):
            await stream.send(more)
            await asyncio.sleep(0.001)
            assert harness.gateway.streams.upward_bytes <= number * len(more)
        assert harness.gateway.streams.upward_bytes > 0
        await stream.send(more)
        await stream.send(more)
        with pytest.raises(Unavailable):
            await stream.receive()
        assert harness.gateway.streams.upward_bytes == 0

    in_harness(work)


@pytest.mark.parametrize("code", [Code.PERMISSION_DENIED, Code.NOT_FOUND])
def test_who_may_not_publish_learns_nothing_of_what_the_gateway_sees(code: Code) -> None:
    async def work(harness: Harness) -> None:
        async def missing(topic: str) -> None:
            raise SyncpointError(Code.NOT_FOUND, "seen with the gateway's own rights")

        harness.gateway.fill.ready = missing  # type: ignore[method-assign]
        harness.eu.refuses = code  # as the home answers the caller
        with pytest.raises(SyncpointError) as caught:
            await harness.send(b"x")
        assert caught.value.code is code
        assert ("own rights" in caught.value.message) is (code is Code.NOT_FOUND)
        assert harness.eu.stored == harness.us.stored == []

    in_harness(work, "degrade")


def test_nothing_is_kept_of_topics_that_no_site_can_have() -> None:
    async def work(harness: Harness) -> None:
        assert harness.gateway.publisher.answer_of("t" * 5_000) is None
        assert harness.gateway.publisher.answer_of("t" * 500) == "degrade"
        assert list(harness.gateway.publisher._answers) == ["t" * 500]

    in_harness(work, "degrade")


def test_changes_are_made_everywhere_and_say_where_they_are_not() -> None:
    async def work(harness: Harness) -> None:
        topic = pubsub.Topic(name="projects/p/topics/t").SerializeToString()
        await harness.client.unary(methods.PUBLISHER.CreateTopic, topic)
        assert [path for path, _ in harness.us.asked] == [methods.PUBLISHER.CreateTopic]
        await harness.client.unary(methods.PUBLISHER.GetTopic, b"")
        assert len(harness.us.asked) == 1
        harness.us.faults.cut = True
        with pytest.raises(SyncpointError, match=r"Done at eu, but not at us.*mask us"):
            await harness.client.unary(methods.PUBLISHER.DeleteTopic, b"")

    in_harness(work)


def test_a_change_that_is_repeated_is_made_where_it_was_not() -> None:
    async def work(harness: Harness) -> None:
        topic = pubsub.Topic(name="projects/p/topics/t").SerializeToString()
        harness.eu.refuses = Code.ALREADY_EXISTS
        await harness.client.unary(methods.PUBLISHER.CreateTopic, topic)
        assert [path for path, _ in harness.us.asked] == [methods.PUBLISHER.CreateTopic]
        harness.us.refuses = Code.ALREADY_EXISTS
        with pytest.raises(SyncpointError, match="Refused by eu") as caught:
            await harness.client.unary(methods.PUBLISHER.CreateTopic, topic)
        assert caught.value.code is Code.ALREADY_EXISTS
        harness.us.asked.clear()
        harness.eu.refuses = Code.PERMISSION_DENIED
        with pytest.raises(SyncpointError, match="Refused by eu"):
            await harness.client.unary(methods.PUBLISHER.CreateTopic, topic)
        assert harness.us.asked == []

    in_harness(work)


def test_a_stream_that_moves_still_brings_ack_ids_back() -> None:
    async def work(harness: Harness) -> None:
        harness.gateway.streams.drain_s = 5.0
        stream = harness.client.stream(methods.SUBSCRIBER.StreamingPull)
        opening = pubsub.StreamingPullRequest(subscription="s", stream_ack_deadline_seconds=10)
        await stream.send(opening.SerializeToString())
        lent = pubsub.StreamingPullResponse.FromString(await stream.receive() or b"").received_messages
        harness.gateway.mask("eu")
        await asyncio.sleep(0.05)
        ack = pubsub.StreamingPullRequest(ack_ids=[one.ack_id for one in lent])
        await stream.send(ack.SerializeToString())
        with pytest.raises(Unavailable):
            await asyncio.wait_for(stream.receive(), 2)
        acked = [pubsub.AcknowledgeRequest.FromString(one) for path, one in harness.eu.asked if path == ACK]
        assert [list(one.ack_ids) for one in acked] == [["of-eu".ljust(48, "-")]]

    in_harness(work)


def test_nobody_has_copies_held_who_may_not_consume() -> None:
    async def work(harness: Harness) -> None:
        request = pubsub.PullRequest(subscription="s", max_messages=1).SerializeToString()
        harness.eu.allows = False
        await harness.client.unary(PULL, request)
        assert harness.gateway.delivery.books == {}
        harness.eu.allows = True
        await harness.client.unary(PULL, request)
        assert list(harness.gateway.delivery.books) == ["s"]

    in_harness(work, "degrade")


def test_empty_requests_of_one_caller_do_not_disturb_each_other() -> None:
    async def work(harness: Harness) -> None:
        empty = (harness.client.unary(PUBLISH, b"") for _ in range(3))
        assert len(await asyncio.gather(*empty)) == 3

    in_harness(work)


def test_a_caller_has_its_share_and_no_more() -> None:
    async def work(harness: Harness) -> None:
        harness.eu.hangs = True
        first = asyncio.ensure_future(harness.publish(90))
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        with pytest.raises(SyncpointError, match="bytes_per_caller") as caught:
            await harness.publish(90)
        assert caught.value.code is Code.RESOURCE_EXHAUSTED
        with pytest.raises(SyncpointError, match="outcome is unknown"):
            await first
        assert await harness.publish(90) == "us"
        assert harness.gateway.status()["refused"] == 1

    in_harness(work)
