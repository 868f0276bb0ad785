"""What is prepared for two sites, over sites that are made up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.front.gateway.dual_publish import AnswerWhen
from syncpoint.front.gateway.gateway_file import DualTopics
from syncpoint.front.gateway.site_board import HealthRules, SiteBoard, SiteState
from syncpoint.front.gateway.site_fill import SiteFill, fill_of
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub
from syncpoint.wire.protobuf.methods import Method

T = "projects/p/topics/"


class FakeSites:
    """Sites with three topics, one of which takes no second subscription; lists have one name on each page."""

    def __init__(self) -> None:
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
