"""What is prepared for two sites, over sites that are made up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from syncpoint.front.gateway.dual_identities import KnownIdentities, in_topic
from syncpoint.front.gateway.dual_publish import AnswerWhen
from syncpoint.front.gateway.gateway_file import DualTopics
from syncpoint.front.gateway.site_board import HealthRules, SiteBoard, SiteState
from syncpoint.front.gateway.site_fill import FillStream, SiteCalls, SiteFill, Waiting, fill_of
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub
from syncpoint.wire.protobuf.methods import Method

T = "projects/p/topics/"


class FakeSites(SiteCalls):
    """Sites with three topics, one of which takes no second subscription; lists have one name on each page."""

    def __init__(self) -> None:
        super().__init__({})
        self.made: list[tuple[str, str]] = []

    async def call(self, site: str, method: Method, **fields: Any) -> Any:
        at = int(fields.get("page_token") or 0)
        match method:
            case methods.PUBLISHER.ListTopics:
                token = str(at + 1) if at < 2 else ""
                return pubsub.ListTopicsResponse(topics=[{"name": f"{T}t{at}"}], next_page_token=token)
            case methods.PUBLISHER.ListTopicSubscriptions:
                token = str(at + 1) if at < 1 else ""
                return pubsub.ListTopicSubscriptionsResponse(subscriptions=[f"s{at}"], next_page_token=token)
            case methods.IAM.GetIamPolicy:
                return method.response()
            case methods.PUBLISHER.GetTopic:
                return pubsub.Topic(name=fields["topic"])
            case methods.SUBSCRIBER.GetSubscription:
                return pubsub.Subscription(name=fields["subscription"])
        return admin.TopicOptions(duplicate_detection_window={"seconds": 60})

    async def send(self, site: str, method: Method, request: Any) -> Any:
        if request.name == fill_of(f"{T}t1"):
            raise FailedPrecondition("A queue has one subscription.")
        self.made.append((site, request.name))


class FakePublisher:
    """Every topic is one of two sites."""

    def answer_of(self, topic: str) -> AnswerWhen:
        return AnswerWhen.DEGRADE


def test_a_topic_that_cannot_be_prepared_is_named_and_the_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    board = SiteBoard([SiteState("eu", 20), SiteState("us", 10)], HealthRules())
    board.mask("us", 1.0)
    sites = FakeSites()
    patterns = (DualTopics(f"{T}*"),)
    fill = SiteFill(patterns, board, sites, FakePublisher(), 10)  # type: ignore[arg-type]
    monkeypatch.setattr(fill, "_copy", lambda topic, site: None)
    asyncio.run(fill._round())
    assert board.sites["us"].held == f"{T}t1 cannot be prepared for two sites: A queue has one subscription."
    assert [name for site, name in sites.made if site == "us" and name.startswith("s")] == ["s0", "s1"] * 2
    assert ("us", fill_of(f"{T}t2")) in sites.made
    assert f"{T}t2" not in fill._locks, "a name that somebody made up is not kept"


class OtherSubscriptions(FakeSites):
    """The second site was away while a subscription was deleted, and made again as another one."""

    def __init__(self, **there: Any) -> None:
        super().__init__()
        self.there = there

    async def call(self, site: str, method: Method, **fields: Any) -> Any:
        if method == methods.ADMIN.GetSubscriptionState:
            return admin.SubscriptionState()
        found = await super().call(site, method, **fields)
        if method == methods.SUBSCRIBER.GetSubscription and fields["subscription"].startswith("s"):
            found.topic = f"{T}t1"
            if site == "us":
                found.MergeFrom(pubsub.Subscription(**self.there))
        elif method == methods.SUBSCRIBER.GetSubscription:
            found.topic = f"{T}{found.name.rpartition('-')[2]}"
        return found

    async def send(self, site: str, method: Method, request: Any) -> Any:
        if method == methods.SUBSCRIBER.CreateSubscription and request.name == "s0":
            raise AlreadyExists(request.name)
        self.made.append((site, str(method)))


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ({"topic": f"{T}t2"}, f"s0 is of {T}t2 there"),
        ({"filter": "a"}, "s0 has another filter there"),
        ({"enable_message_ordering": True}, "s0 has another order there"),
        ({"ack_deadline_seconds": 60}, ""),
    ],
)
def test_a_site_with_another_subscription_of_a_name_stays_away(
    there: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = SiteBoard([SiteState("eu", 20), SiteState("us", 10)], HealthRules())
    board.mask("us", 1.0)
    sites = OtherSubscriptions(**there)
    fill = SiteFill((DualTopics(f"{T}*"),), board, sites, FakePublisher(), 10)  # type: ignore[arg-type]
    monkeypatch.setattr(fill, "_copy", lambda topic, site: None)
    asyncio.run(fill._round())
    assert (why in board.sites["us"].held) if why else not board.sites["us"].held
    updates = [site for site, method in sites.made if method == methods.SUBSCRIBER.UpdateSubscription]
    assert updates == ([] if why else ["us"] * 3), "nothing of another subscription is changed"


class MissedSites(FakeSites):
    """The second site was away while a topic and a subscription were deleted, and while somebody lost a role."""

    def __init__(self) -> None:
        super().__init__()
        self.repaired = False

    async def call(self, site: str, method: Method, **fields: Any) -> Any:
        extra = site == "us" and not self.repaired
        match method:
            case methods.ADMIN.GetSubscriptionState:
                return admin.SubscriptionState()
            case methods.PUBLISHER.ListTopics:
                names = ["t0", "old"] if extra else ["t0"]
                return pubsub.ListTopicsResponse(topics=[{"name": T + name} for name in names])
            case methods.PUBLISHER.ListTopicSubscriptions:
                return pubsub.ListTopicSubscriptionsResponse(subscriptions=["s0", "s1"] if extra else ["s0"])
            case methods.IAM.GetIamPolicy if fields["resource"] == "s0" and extra:
                return method.response(bindings=[{"role": "roles/pubsub.subscriber", "members": ["user:eve"]}])
            case methods.PUBLISHER.GetTopic if fields["topic"] == f"{T}old" and not extra:
                raise NotFound(f"{T}old")
        return await super().call(site, method, **fields)


def test_deletions_and_policies_that_a_site_missed_are_named_until_they_are_made_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sites = MissedSites()
    fill = filling(sites)
    monkeypatch.setattr(fill, "_copy", lambda topic, site: None)
    asyncio.run(fill._round())
    assert fill.differences.shown("us") == [], "what differs while no site is away is so on purpose"
    fill.board.mask("us", 1.0)
    fill.left("us")
    asyncio.run(fill._round())
    assert fill.differences.shown("us") == [f"{T}old is not at eu", "s1 is not at eu", "s0 has another policy"]
    assert not fill.board.sites["us"].held
    sites.repaired = True
    asyncio.run(fill._round())
    assert fill.differences.shown("us") == []


class PickySites(FakeSites):
    """The second site takes no request of these bytes or more, and no message without data; the first has a schema."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.stored, self.schemas = most, list[bytes](), list[Any]()

    async def call(self, site: str, method: Method, **fields: Any) -> Any:
        if method == methods.PUBLISHER.Publish:
            request = method.request(**fields)
            if request.ByteSize() >= self.most or not all(one.data for one in request.messages):
                raise InvalidArgument("request", "is refused")
            self.stored += [one.data for one in request.messages]
            return method.response()
        if method == methods.SCHEMAS.GetSchema:
            assert site == "eu"
            return pubsub.Schema(name=fields["name"], type=pubsub.Schema.AVRO, definition="{}", revision_id="of-eu")
        return await super().call(site, method, **fields)

    async def send(self, site: str, method: Method, request: Any) -> Any:
        if method == methods.SCHEMAS.CreateSchema:
            self.schemas.append((site, request.parent, request.schema_id, request.schema.definition))
        else:
            await super().send(site, method, request)


def filling(sites: FakeSites) -> SiteFill:
    board = SiteBoard([SiteState("eu", 20), SiteState("us", 10)], HealthRules())
    return SiteFill((DualTopics(f"{T}*"),), board, sites, FakePublisher(), 10)  # type: ignore[arg-type]


def test_a_message_that_a_site_refuses_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    sites = PickySites(200)
    fill = filling(sites)
    fill.publisher.both = KnownIdentities(10)
    stream = FillStream(fill, f"{T}t0", "eu", "us")
    datas = (b"a" * 70, b"b" * 70, b"", b"c" * 500, b"d")
    lacking = [Waiting(f"{n}", f"gw-{n}", pubsub.PubsubMessage(data=data)) for n, data in enumerate(datas)]
    there = asyncio.run(stream._publish(lacking))
    assert [one.ack_id for one in there] == ["0", "1", "4"]
    assert sites.stored == [datas[0], datas[1], datas[4]]  # the first two are too large together
    assert caplog.text.count("stays at eu alone") == 2
    both = [in_topic(f"gw-{n}", f"{T}t0") for n in range(5)]
    assert [fill.publisher.both.has(one, 0.0) for one in both] == [True, True, False, False, True]
    assert not fill.publisher.both.has(in_topic("gw-0", f"{T}t1"), 0.0), "one site may have forwarded it there"


def test_a_topic_gets_its_schema_and_a_long_name_is_shortened() -> None:
    sites = PickySites(200)
    settings = {"schema": "projects/p/schemas/four", "first_revision_id": "of-eu"}
    topic = pubsub.Topic(name=f"{T}t0", schema_settings=settings)
    asyncio.run(filling(sites)._bring_to("us", topic, ()))
    assert sites.schemas == [("us", "projects/p", "four", "{}")]
    assert topic.schema_settings.first_revision_id == ""
    names = {fill_of(f"{T}{'l' * 250}{n}").rpartition("/")[2] for n in range(3)}
    assert len(names) == 3
    assert max(map(len, names)) <= 255
