"""Many of everything, small enough for a laptop: topics, subscriptions, streams, and a backlog."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from syncpoint.testing.rigs.official import bodies, eventually

pytestmark = pytest.mark.shows("flow-control")


def test_fifty_subscriptions_store_a_message_once(boot, enter, tmp_path):
    """Stored bytes must not grow with the number of subscriptions."""
    server = boot(tmp_path / "data")
    space = enter(server.endpoint)
    topic = space.topic()
    subscriptions = [space.subscription(topic, f"sub-{number}") for number in range(50)]
    before = sum(file.stat().st_size for file in (tmp_path / "data").rglob("*") if file.is_file())
    for _ in range(20):
        space.publish(topic, *[b"x" * 100_000] * 50)
    after = sum(file.stat().st_size for file in (tmp_path / "data").rglob("*") if file.is_file())
    assert after - before < 150_000_000, "100 MB were published; two copies would be 200 MB"
    for subscription in subscriptions[::10]:
        assert len(space.pull(subscription, 1000, within=60, ack=True)) == 1000


def test_three_hundred_topics_work_side_by_side(space):
    def make(number):
        topic = space.topic(f"topic-{number:03}")
        return topic, space.subscription(topic, f"sub-{number:03}")

    with ThreadPoolExecutor(8) as pool:
        pairs = list(pool.map(make, range(300)))
        list(pool.map(lambda pair: space.publish(pair[0], pair[0].encode()), pairs))
        got = list(pool.map(lambda pair: space.pull(pair[1], ack=True), pairs))
    assert [bodies(one) for one in got] == [[topic.encode()] for topic, _ in pairs]
    project = f"projects/{space.project}"
    assert len(space.api.list_topics({"project": project, "page_size": 1000}).topics) == 300


def test_a_hundred_subscriptions_of_one_topic_each_get_everything(space):
    topic = space.topic()
    subscriptions = [space.subscription(topic, f"sub-{number}") for number in range(100)]
    ids = space.publish(topic, *[b"x"] * 20)
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda one: space.pull(one, 20, ack=True), subscriptions))
    assert all(sorted(one.message.message_id for one in share) == sorted(ids) for share in got)


def test_a_hundred_streams_at_once(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    streams = [space.stream(subscription, max_outstanding_messages=10) for _ in range(100)]
    for _ in range(10):
        space.publish(topic, *[b"x"] * 50)
    eventually(lambda: sum(len(stream.messages) for stream in streams) >= 500)
    got = [one.message.message_id for stream in streams for one in stream.messages]
    assert len(got) == len(set(got)) == 500


def test_a_backlog_drains_while_new_messages_come(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    live = space.subscription(topic, "live", ack_deadline_seconds=600)
    backlog = {one for _ in range(100) for one in space.publish(topic, *[b"x" * 100] * 1000)}
    space.api.seek({"subscription": live, "time": {"seconds": 32503680000}})
    seen, fresh = set(), set()
    while not backlog <= seen:
        seen |= {one.message.message_id for one in space.pull(subscription, ack=True)}
        (newest,) = space.publish(topic, b"live")
        fresh.add(newest)
        assert [one.message.message_id for one in space.pull(live, ack=True)] == [newest]
    while not fresh <= seen:
        seen |= {one.message.message_id for one in space.pull(subscription, ack=True)}
    assert seen == backlog | fresh
