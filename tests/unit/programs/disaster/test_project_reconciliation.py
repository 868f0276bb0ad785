"""A reconciliation over a server that is made up."""

from __future__ import annotations

from typing import Any

import pytest

from syncpoint.programs.disaster.project_reconciliation import ProjectReconciliation
from syncpoint.programs.disaster.reconciled_topic import Window
from syncpoint.wire.protobuf.messages import admin, pipeline, pubsub

pytestmark = pytest.mark.shows("disaster-classes")


def test_subscriptions_are_asked_for_page_by_page() -> None:
    asked: list[str] = []

    def call(method: str, request: Any) -> Any:
        match method:
            case "Publisher.ListTopics":
                return pubsub.ListTopicsResponse(topics=[pubsub.Topic(name="projects/p/topics/t")])
            case "Admin.GetTopicOptions":
                return admin.TopicOptions(records_topic="projects/p/topics/delivery-records")
            case "Admin.PeekTopic":
                return admin.PeekResponse()
            case "LogReader.GetPositions":
                return pipeline.Positions(universe="1")
            case "Publisher.ListTopicSubscriptions":
                page = int(request.page_token or 0)
                token = str(page + 1) if page < 2 else ""
                return pubsub.ListTopicSubscriptionsResponse(subscriptions=[f"s{page}"], next_page_token=token)
        asked.append(request.subscription)
        return pubsub.Subscription()

    found = ProjectReconciliation(call, "projects/p", Window(0, 1_000_000)).run()
    assert (found.topics, found.total, found.unknown) == (1, 0, [])
    assert asked == ["s0", "s1", "s2"]
