"""A project's quota of outstanding bytes, over all its subscriptions: what does not fit waits, and nothing is lost."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.model.errors import SyncpointError
from syncpoint.broker.subscribe.outstanding_quota import UNBOUNDED, project_of
from syncpoint.catalog.metadata.records import CatalogChange, Subscription
from syncpoint.front.api.subscriber import SubscriberService
from syncpoint.testing.rigs.forwarder_harness import SUB, ForwarderHarness, Subscriber
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.status import unpacked
from syncpoint.wire.transport.calls import Unary
from syncpoint.wire.transport.memory import MemoryCall

pytestmark = pytest.mark.shows("flow-control")

BODY = "x" * 1000


@pytest.fixture
def harness() -> ForwarderHarness:
    made = ForwarderHarness()
    made.subscribe.quota.bounds_of = {"projects/p": [(("projects/p",), 3500)]}.__getitem__
    return made


def test_what_does_not_fit_waits_until_something_is_acknowledged(harness: ForwarderHarness) -> None:
    first, second = Subscriber(harness), Subscriber(harness)
    for _ in range(10):
        harness.send(BODY)
    harness.quiesce()
    lent = harness.subscribe.outstanding()[1]
    assert 2000 < lent < 3500 + 2 * 1100, "one message of any size for each who has none"
    received = 0
    for _ in range(20):
        for subscriber in (first, second):
            held = list(subscriber.held)
            received += len(held)
            if held:
                subscriber.ack(*held)
        assert harness.subscribe.outstanding()[1] < 3500 + 2 * 1100
    assert received == 10
    assert harness.subscribe.quota.room(harness.record) == 3500


def test_a_pull_beyond_it_is_refused_and_learns_when_to_come_again(harness: ForwarderHarness) -> None:
    holding = Subscriber(harness)
    for _ in range(5):
        harness.send(BODY)
    harness.quiesce()
    harness.subscribe.quota.bounds_of = lambda project: [((project,), 1000)]

    async def main() -> SyncpointError | None:
        ended: list[SyncpointError | None] = []
        method = SubscriberService(harness.subscribe).methods()[methods.SUBSCRIBER.Pull.encode()]
        assert isinstance(method, Unary)
        call = MemoryCall(methods.SUBSCRIBER.Pull.encode(), {}, None, lambda error=None: ended.append(error))
        request = pubsub.PullRequest(subscription=SUB, max_messages=1)
        call.run(method.handler, call, request.SerializeToString())
        return ended[0] if ended else None

    error = asyncio.run(main())
    assert error is not None
    assert error.code.name == "RESOURCE_EXHAUSTED"
    info, retry = unpacked(error.details)
    assert (info.metadata["consumer"], retry.retry_delay.seconds) == ("projects/p", 1)
    assert len(holding.held) >= 3, "what is delivered stays so"


def test_projects_do_not_count_for_each_other_and_no_quota_is_none(harness: ForwarderHarness) -> None:
    other = Subscription(77, "projects/q/subscriptions/s", harness.record.topic_incarnation, harness.record.topic_name)
    harness.commit(CatalogChange.put(other))
    harness.subscribe.quota.bounds_of = lambda project: [((project,), 3500)] if project == "projects/p" else []
    assert project_of(other) == "projects/q"
    assert harness.subscribe.quota.room(other) == UNBOUNDED
    assert harness.subscribe.quota.binds(harness.record)
    assert not harness.subscribe.quota.binds(other)
    harness.subscribe.quota.bounds_of = None
    assert harness.subscribe.quota.room(harness.record) == UNBOUNDED
