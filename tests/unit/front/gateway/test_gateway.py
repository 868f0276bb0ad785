"""The gateway over sites without sockets: where calls go, and what their callers read when a site is gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, SyncpointError, Unavailable
from syncpoint.base.model.reserved import IDENTITY
from syncpoint.base.runtime.random import SystemRandom
from syncpoint.front.api.health import HealthService
from syncpoint.front.gateway import dual_publisher, gateway_stream
from syncpoint.front.gateway.ack_tags import tag_of
from syncpoint.front.gateway.gateway_driver import Gateway, SiteAccess
from syncpoint.front.gateway.gateway_file import CallerLimits, DualTopics, GatewayFile, HealthSettings, SiteSpec
from syncpoint.front.gateway.site_fill import NOT_COMPARED
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.status import ack_failure, ack_outcomes
from syncpoint.wire.transport.calls import Call, Methods, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.memory import Faults, MemoryChannel

PUBLISH, PULL = methods.PUBLISHER.Publish, methods.SUBSCRIBER.Pull
ACK = methods.SUBSCRIBER.Acknowledge


class FakeSite:
    """A site that answers by its name. `hangs`: it answers nothing; `faults`: of the way there."""

    def __init__(self, name: str) -> None:
        self.name, self.hangs = name, False
        self.health = HealthService()
        self.asked: list[tuple[str, bytes]] = []
        self.shown: list[dict[bytes, bytes]] = []
        self.faults = Faults(SystemRandom())
        self.stored: list[tuple[str, bytes]] = []  # identity and data, in the order of storing
        self.answers_lost = 0
        self.allows = True
        self.refuses: Code | None = None  # what is created, and published

    def methods(self) -> Methods:
        ours = (*methods.PUBLISHER, *methods.SUBSCRIBER, *methods.IAM)
        table: dict[bytes, Any] = {path.encode(): Unary(self._serve) for path in ours}
        check = methods.HEALTH.Check.encode()
        healthy = self.health.methods()[check]
        assert isinstance(healthy, Unary)

        def alive(call: Call, request: bytes) -> None:
            if not self.hangs:
                healthy.handler(call, request)

        pull = Streaming(self._lend, PUBLISH.encode())
        return {**table, check: Unary(alive), methods.SUBSCRIBER.StreamingPull.encode(): pull}

    def _lend(self, stream: StreamingCall) -> None:
        """Lend one message on each stream; end when the caller does."""

        def asked(request: bytes) -> None:
            if pubsub.StreamingPullRequest.FromString(request).subscription:
                lent = [pubsub.ReceivedMessage(ack_id=f"of-{self.name}".ljust(48, "-"))]  # as long as of a server
                stream.send(pubsub.StreamingPullResponse(received_messages=lent).SerializeToString())

        stream.on_message, stream.on_end = asked, stream.finish

    def _serve(self, call: Call, request: bytes) -> None:
        path = call.path.decode()
        self.asked.append((path, request))
        self.shown.append(call.metadata)
        if self.hangs:
            return
        if self.refuses is not None and path in (PUBLISH, methods.PUBLISHER.CreateTopic):
            call.fail(SyncpointError(self.refuses, f"Refused by {self.name}."))
        elif path == PUBLISH:
            for one in pubsub.PublishRequest.FromString(request).messages:
                identity = one.attributes[IDENTITY]
                if identity not in [known for known, _ in self.stored] or not identity:
                    self.stored.append((identity, one.data))
            if self.answers_lost:
                self.answers_lost -= 1
                call.fail(Unavailable("The connection was lost."))
                return
            call.reply(pubsub.PublishResponse(message_ids=[self.name]).SerializeToString())
        elif path == methods.IAM.TestIamPermissions:
            allowed = ["pubsub.subscriptions.consume"] if self.allows else []
            call.reply(methods.IAM.TestIamPermissions.response(permissions=allowed).SerializeToString())
        elif path == PULL:
            lent = [pubsub.ReceivedMessage(ack_id=f"of-{self.name}")]
            call.reply(pubsub.PullResponse(received_messages=lent).SerializeToString())
        elif path == methods.SUBSCRIBER.GetSubscription:
            call.reply(pubsub.Subscription(name="s", topic="t").SerializeToString())
        else:
            call.reply(b"")

    def access(self) -> SiteAccess:
        return SiteAccess(lambda: MemoryChannel(self.methods(), self.faults))


FILE = GatewayFile(
    sites=(SiteSpec("eu", "eu:1", weight=200), SiteSpec("us", "us:1")),
    health=HealthSettings(interval_s=0.02, timeout_s=0.05, failures=2, successes=3),
    limits=CallerLimits(streams_per_caller=1, bytes_per_caller=100),
    drain_s=0.2,
)


class Harness:
    """Two sites, a gateway, and a client of it."""

    def __init__(self, answer: str = "") -> None:
        self.eu, self.us = FakeSite("eu"), FakeSite("us")
        roomy = CallerLimits(bytes_per_caller=10_000)
        file = replace(FILE, dual=(DualTopics("t*", answer),), limits=roomy) if answer else FILE
        self.gateway = Gateway(file, {"eu": self.eu.access(), "us": self.us.access()})
        self.gateway.fill.ready = self._ready  # type: ignore[method-assign]  # these sites have no topics
        self.client = MemoryChannel(self.gateway.methods())

    async def _ready(self, topic: str) -> None:
        assert topic == "t"

    async def send(self, data: bytes, key: str = "", **more: Any) -> None:
        message = pubsub.PubsubMessage(data=data, ordering_key=key)
        request = pubsub.PublishRequest(topic="t", messages=[message])
        await self.client.unary(PUBLISH, request.SerializeToString(), **more)

    async def publish(self, size: int = 1) -> str:
        request = pubsub.PublishRequest(topic="t", messages=[pubsub.PubsubMessage(data=b"x" * size)])
        answer = await self.client.unary(
            PUBLISH, request.SerializeToString(), metadata=((b"authorization", b"Bearer of-the-caller"),)
        )
        return str(pubsub.PublishResponse.FromString(answer).message_ids[0])


def in_harness(work: Any, answer: str = "") -> None:
    async def run() -> None:
        harness = Harness(answer)
        await harness.gateway.start()
        try:
            await asyncio.wait_for(work(harness), 10)
        finally:
            await harness.gateway.stop()

    asyncio.run(run())


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
