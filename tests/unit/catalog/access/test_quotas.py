"""Quotas: rates over time, streams and resources that may exist; and everything as before without any."""

from __future__ import annotations

import pytest

from syncpoint.base.model.errors import InvalidArgument, ResourceExhausted, SyncpointError
from syncpoint.catalog.access.quotas import BURST_S, CPU_BURST_S, CREATING_S, project_in
from syncpoint.catalog.access.settings import parse
from syncpoint.catalog.metadata.records import CatalogChange, Topic
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.status import unpacked
from syncpoint.wire.transport.calls import Streaming

from .conftest import Harness

pytestmark = pytest.mark.shows("quotas")

TOPIC, SUBSCRIPTION = "projects/a/topics/one", "projects/a/subscriptions/two"
PUBLISH, PULL = methods.PUBLISHER.Publish, methods.SUBSCRIBER.StreamingPull


@pytest.fixture
def harness() -> Harness:
    made = Harness()
    made.content["quotas"] = {
        "default": {"requests_per_s": 10},
        "projects/a": {"requests_per_s": 5, "bytes_per_s": 1000, "streams": 2, "topics": 1},
        "projects/free": {},
    }
    made.authenticator.take(parse(made.content))
    made.gate.take_quotas()
    made.apply(CatalogChange.put(Topic(1, TOPIC)))
    return made


def publish(harness: Harness, topic: str = TOPIC, size: int = 0) -> SyncpointError | None:
    request = pubsub.PublishRequest(topic=topic, messages=[pubsub.PubsubMessage(data=b"x" * size)])
    return harness.call(PUBLISH, request, harness.token(email="root@example.com", iat=None))


def let_in(harness: Harness, topic: str, size: int = 0) -> int:
    """How many come through one after the other."""
    count = 0
    while publish(harness, topic, size) is None:
        count += 1
        assert count < 1000
    return count


def test_a_rate_may_be_exceeded_for_a_moment_and_holds_over_time(harness: Harness) -> None:
    at_once = let_in(harness, TOPIC)
    assert at_once == pytest.approx(5 * BURST_S, abs=1)
    later = 0
    for _ in range(40):
        harness.clock.advance(0.1)
        later += publish(harness) is None
    assert later == pytest.approx(20, abs=1), "four seconds at five a second"


def test_the_refusal_says_when_to_try_again(harness: Harness) -> None:
    let_in(harness, TOPIC)
    error = publish(harness)
    assert isinstance(error, ResourceExhausted)
    info, retry = unpacked(error.details)
    assert info.metadata["consumer"] == "projects/a"
    harness.clock.advance(retry.retry_delay.ToNanoseconds() / 1e9 + 1e-6)
    assert publish(harness) is None


def test_bytes_count_and_projects_do_not_count_for_each_other(harness: Harness) -> None:
    assert let_in(harness, TOPIC, 900) == 3
    assert let_in(harness, "projects/b/topics/other") == pytest.approx(10 * BURST_S, abs=1)
    assert publish(harness) is not None
    for _ in range(100):
        assert publish(harness, "projects/free/topics/many") is None


def test_what_is_refused_anyway_is_not_counted(harness: Harness) -> None:
    for _ in range(100):
        harness.call(PUBLISH, pubsub.PublishRequest(topic=TOPIC), harness.token())
    assert let_in(harness, TOPIC) == pytest.approx(5 * BURST_S, abs=1)


def test_resources_and_streams_that_may_exist(harness: Harness) -> None:
    token = harness.token(email="root@example.com")
    create = methods.PUBLISHER.CreateTopic
    assert isinstance(harness.call(create, pubsub.Topic(name="projects/a/topics/two"), token), ResourceExhausted)
    assert harness.call(create, pubsub.Topic(name="projects/b/topics/two"), token) is None
    method = harness.table[PULL.encode()]
    assert isinstance(method, Streaming)
    calls, ends = [], []
    for _ in range(3):
        ended: list[SyncpointError | None] = []
        call = harness.opened(PULL, token, ended)
        call.run(method.handler, call)
        assert call.on_message is not None
        call.on_message(pubsub.StreamingPullRequest(subscription=SUBSCRIPTION).SerializeToString())
        calls.append(call)
        ends.append(ended)
    assert [bool(ended) for ended in ends] == [False, False, True]
    assert isinstance(ends[2][0], ResourceExhausted)
    calls[0].finish()
    again = harness.opened(PULL, token, [])
    again.run(method.handler, again)
    assert again.on_message is not None
    again.on_message(pubsub.StreamingPullRequest(subscription=SUBSCRIPTION).SerializeToString())
    assert not again.over


class Connected:
    """A connection."""

    def __init__(self) -> None:
        self.closed = False

    def is_closing(self) -> bool:
        return self.closed


def test_connections_that_a_project_uses_at_once(harness: Harness) -> None:
    harness.authenticator.take(parse({**harness.content, "quotas": {"projects/a": {"connections": 2}}}))
    harness.gate.take_quotas()
    token = harness.token(email="root@example.com")
    handler = harness.table[PUBLISH.encode()].handler
    first, second, third = Connected(), Connected(), Connected()

    def asks(connection: Connected, topic: str = TOPIC) -> SyncpointError | None:
        ended: list[SyncpointError | None] = []
        call = harness.opened(PUBLISH, token, ended)
        call.connection = connection
        call.run(handler, call, pubsub.PublishRequest(topic=topic).SerializeToString())
        return ended[0]

    for _ in range(3):
        assert asks(first) is None
        assert asks(second) is None
        error = asks(third)
        assert isinstance(error, ResourceExhausted)
        assert "connections" in error.message
        assert [type(one).__name__ for one in unpacked(error.details)] == ["ErrorInfo", "RetryInfo"]
        assert asks(third, "projects/b/topics/other") is None, "another project's"
        assert publish(harness) is None, "a call without a connection of its own"
    first.closed = True
    assert asks(third) is None, "room at once, when one of them closes"
    assert isinstance(asks(Connected()), ResourceExhausted)
    second.closed = third.closed = True
    harness.gate.sweep()
    assert harness.gate.quotas is not None
    assert harness.gate.quotas._connections == {}


def test_what_is_created_at_once_is_no_more_than_one_by_one(harness: Harness) -> None:
    harness.authenticator.take(parse({**harness.content, "quotas": {"projects/a": {"topics": 3}}}))
    harness.gate.take_quotas()
    token = harness.token(email="root@example.com")

    def create(name: str) -> SyncpointError | None:
        return harness.call(methods.PUBLISHER.CreateTopic, pubsub.Topic(name=f"projects/a/topics/{name}"), token)

    outcomes = [create(f"new{number}") for number in range(10)]
    assert [one is None for one in outcomes] == [True, True] + [False] * 8, "none of them is in the catalog yet"
    assert create("new0") is None, "tried again"
    assert create("one") is None, "one that exists: its caller is told so"
    harness.apply(CatalogChange.put(Topic(2, "projects/a/topics/new0")))
    assert create("new2") is not None, "what was created counts once"
    harness.clock.advance(CREATING_S + 0.1)
    assert create("new2") is None, "what did not come about counts no longer"
    assert create("new3") is not None


def test_nothing_is_counted_without_quotas() -> None:
    harness = Harness()
    assert harness.gate.quotas is None
    for _ in range(100):
        assert publish(harness) is None


@pytest.mark.parametrize(
    "quotas", [{"a": {}}, {"default": {"request": 1}}, {"default": {"streams": -1}}, {"default": {"topics": "x"}}, []]
)
def test_quotas_that_mean_nothing_are_refused(harness: Harness, quotas: object) -> None:
    with pytest.raises(InvalidArgument):
        parse({**harness.content, "quotas": quotas})


def test_what_lies_in_no_project_has_no_quota() -> None:
    assert [project_in(one) for one in ("server", "projects/a", TOPIC)] == ["", "projects/a", "projects/a"]


def test_work_is_refused_while_its_project_is_behind_with_paying(harness: Harness) -> None:
    cpu = harness.gate.cpu
    cpu.check("projects/a")
    cpu.charge("projects/a", 2.0 * CPU_BURST_S)
    cpu.check("projects/a")
    cpu.charge("projects/a", 3.0)
    cpu.check("projects/b")
    with pytest.raises(ResourceExhausted, match="seconds of a processor") as refused:
        cpu.check("projects/a")
    assert unpacked(refused.value.details)[1].retry_delay.seconds == 1
    assert harness.gate.over_quota == 1
    harness.clock.advance(1.5)
    cpu.check("projects/a")


def test_the_time_of_a_project_is_what_the_file_says(harness: Harness) -> None:
    harness.content["quotas"] = {"projects/a": {"cpu": 0.1}, "projects/free": {"cpu": 0}}
    harness.authenticator.take(parse(harness.content))
    for project in ("projects/a", "projects/free", "projects/other"):
        harness.gate.cpu.charge(project, 1.1)
    harness.gate.cpu.check("projects/other")
    harness.gate.cpu.charge("projects/free", 1e6)
    harness.gate.cpu.check("projects/free")
    with pytest.raises(ResourceExhausted):
        harness.gate.cpu.check("projects/a")
