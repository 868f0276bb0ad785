"""Quotas: rates over time, streams and resources that may exist; and everything as before without any."""

from __future__ import annotations

import pytest

from syncpoint.access.quotas import BURST_S, project_in
from syncpoint.access.settings import parse
from syncpoint.metadata.records import CatalogChange, Topic
from syncpoint.model.errors import InvalidArgument, ResourceExhausted, SyncpointError
from syncpoint.transport.calls import Streaming
from syncpoint.wire import methods
from syncpoint.wire.messages import pubsub
from syncpoint.wire.status import unpacked

from .conftest import World

TOPIC, SUBSCRIPTION = "projects/a/topics/one", "projects/a/subscriptions/two"
PUBLISH, PULL = methods.PUBLISHER.Publish, methods.SUBSCRIBER.StreamingPull


@pytest.fixture
def world() -> World:
    made = World()
    made.content["quotas"] = {
        "default": {"requests_per_s": 10},
        "projects/a": {"requests_per_s": 5, "bytes_per_s": 1000, "streams": 2, "topics": 1},
        "projects/free": {},
    }
    made.authenticator.take(parse(made.content))
    made.gate.take_quotas()
    made.apply(CatalogChange.put(Topic(1, TOPIC)))
    return made


def publish(world: World, topic: str = TOPIC, size: int = 0) -> SyncpointError | None:
    request = pubsub.PublishRequest(topic=topic, messages=[pubsub.PubsubMessage(data=b"x" * size)])
    return world.call(PUBLISH, request, world.token(email="root@example.com", iat=None))


def let_in(world: World, topic: str, size: int = 0) -> int:
    """How many come through one after the other."""
    count = 0
    while publish(world, topic, size) is None:
        count += 1
        assert count < 1000
    return count


def test_a_rate_may_be_exceeded_for_a_moment_and_holds_over_time(world: World) -> None:
    at_once = let_in(world, TOPIC)
    assert at_once == pytest.approx(5 * BURST_S, abs=1)
    later = 0
    for _ in range(40):
        world.clock.advance(0.1)
        later += publish(world) is None
    assert later == pytest.approx(20, abs=1), "four seconds at five a second"


def test_the_refusal_says_when_to_try_again(world: World) -> None:
    let_in(world, TOPIC)
    error = publish(world)
    assert isinstance(error, ResourceExhausted)
    info, retry = unpacked(error.details)
    assert info.metadata["consumer"] == "projects/a"
    world.clock.advance(retry.retry_delay.ToNanoseconds() / 1e9 + 1e-6)
    assert publish(world) is None


def test_bytes_count_and_projects_do_not_count_for_each_other(world: World) -> None:
    assert let_in(world, TOPIC, 900) == 3
    assert let_in(world, "projects/b/topics/other") == pytest.approx(10 * BURST_S, abs=1)
    assert publish(world) is not None
    for _ in range(100):
        assert publish(world, "projects/free/topics/many") is None


def test_what_is_refused_anyway_is_not_counted(world: World) -> None:
    for _ in range(100):
        world.call(PUBLISH, pubsub.PublishRequest(topic=TOPIC), world.token())
    assert let_in(world, TOPIC) == pytest.approx(5 * BURST_S, abs=1)


def test_resources_and_streams_that_may_exist(world: World) -> None:
    token = world.token(email="root@example.com")
    create = methods.PUBLISHER.CreateTopic
    assert isinstance(world.call(create, pubsub.Topic(name="projects/a/topics/two"), token), ResourceExhausted)
    assert world.call(create, pubsub.Topic(name="projects/b/topics/two"), token) is None
    method = world.table[PULL.encode()]
    assert isinstance(method, Streaming)
    calls, ends = [], []
    for _ in range(3):
        ended: list[SyncpointError | None] = []
        call = world.opened(PULL, token, ended)
        call.run(method.handler, call)
        assert call.on_message is not None
        call.on_message(pubsub.StreamingPullRequest(subscription=SUBSCRIPTION).SerializeToString())
        calls.append(call)
        ends.append(ended)
    assert [bool(ended) for ended in ends] == [False, False, True]
    assert isinstance(ends[2][0], ResourceExhausted)
    calls[0].finish()
    again = world.opened(PULL, token, [])
    again.run(method.handler, again)
    assert again.on_message is not None
    again.on_message(pubsub.StreamingPullRequest(subscription=SUBSCRIPTION).SerializeToString())
    assert not again.over


def test_nothing_is_counted_without_quotas() -> None:
    world = World()
    assert world.gate.quotas is None
    for _ in range(100):
        assert publish(world) is None


@pytest.mark.parametrize(
    "quotas", [{"a": {}}, {"default": {"request": 1}}, {"default": {"streams": -1}}, {"default": {"topics": "x"}}, []]
)
def test_quotas_that_mean_nothing_are_refused(world: World, quotas: object) -> None:
    with pytest.raises(InvalidArgument):
        parse({**world.content, "quotas": quotas})


def test_what_lies_in_no_project_has_no_quota() -> None:
    assert [project_in(one) for one in ("server", "projects/a", TOPIC)] == ["", "projects/a", "projects/a"]
