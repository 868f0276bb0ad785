"""Reading topics with a real session from a real server."""

import json

import pytest

from syncpoint.wire.protobuf.messages import pubsub
from tests.spark.spark_harness import PUBLISHER, SUBSCRIBER, numbers

pytestmark = pytest.mark.shows("spark")


def test_a_batch_is_all_there_is_in_the_order_of_keys(topic, rows):
    topic.publish(0, 2500)
    frame = rows(topic, maxRowsPerPartition=1000)
    assert numbers(frame) == list(range(2500))
    assert frame.rdd.getNumPartitions() == 3
    first = frame.orderBy("offset").first()
    assert first.attributes == {"n": "0"}
    assert first.ordering_key == "k0"
    assert first.topic == topic.name
    assert first.message_id
    assert first.publish_time.year > 2000


def test_columns_and_filter(topic, rows):
    topic.publish(0, 100)
    frame = rows(topic, columns="offset,topic,size", filter='attributes.n = "7"')
    assert frame.columns == ["offset", "topic", "size"]
    assert [(row.offset, row.topic) for row in frame.collect()] == [(7, topic.name)]
    assert rows(topic, columns="topic").count() == 100


def test_a_batch_between_positions(topic, rows):
    topic.publish(0, 20)
    source = rows(topic).first().source
    frame = rows(topic, startingPosition=f'{{"{source}": 5}}', endingPosition=f'{{"{source}": 8}}')
    assert numbers(frame) == [5, 6, 7]
    assert rows(topic, startingPosition="latest").count() == 0


def test_a_subscriptions_backlog_is_a_table(spark, server, topic):
    name = topic.name.replace("topics", "subscriptions")
    topic.call("CreateSubscription", pubsub.Subscription(name=name, topic=topic.name), SUBSCRIBER)
    topic.publish(0, 30)
    answer = topic.call("Pull", pubsub.PullRequest(subscription=name, max_messages=10), SUBSCRIBER)
    pulled = pubsub.PullResponse.FromString(answer).received_messages
    done = {int(received.message.data) for received in pulled}
    request = pubsub.AcknowledgeRequest(subscription=name, ack_ids=[received.ack_id for received in pulled])
    topic.call("Acknowledge", request, SUBSCRIBER)
    frame = spark.read.format("pubsub").option("endpoint", server.endpoint).option("subscription", name).load()
    assert done
    assert set(numbers(frame)) == set(range(30)) - done


def test_filters_shorten_the_ranges_where_spark_is_asked_to(spark, topic, rows):
    topic.publish(0, 50)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = rows(topic, pushFilters="true").where("offset >= 10 AND offset < 13 AND attributes['n'] = '10'")
        assert numbers(frame) == [10]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert numbers(rows(topic).where("offset < 2")) == [0, 1]


def test_a_stream_in_limited_batches_goes_on_after_a_restart(topic, target, rows, copy):
    topic.publish(0, 1000)
    first = copy(topic, target, read={"maxOffsetsPerTrigger": 400})
    assert [progress.numInputRows for progress in first if progress.numInputRows] == [400, 400, 200]
    latest = [json.loads(progress.sources[0].latestOffset) for progress in first if progress.numInputRows]
    assert [one["messagesBehind"] for one in latest] == [600, 200, 0]
    topic.publish(1000, 1100)
    second = copy(topic, target, read={"maxOffsetsPerTrigger": 400})
    assert sum(progress.numInputRows for progress in second) == 100
    assert numbers(rows(target)) == list(range(1100))


def test_a_server_killed_between_the_epochs_of_a_query(topic, target, server, rows, copy):
    """Restarts seal sources: the next batches read what is left of the old one, then the new one."""
    topic.publish(0, 300)
    copy(topic, target, write={"link": topic.name[-8:]})
    server.restart(hard=True)
    topic.publish(300, 500)
    copy(topic, target, write={"link": topic.name[-8:]}, read={"cursor": "again"})
    assert sorted(numbers(rows(target))) == list(range(500))
    assert numbers(rows(topic)) == list(range(500))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"maxRowPerTrigger": "5"}, "did you mean maxRowsPerTrigger"),
        ({"columns": "date"}, "no column 'date'"),
        ({"startingPosition": "yesterday"}, "is earliest, latest, a time"),
        ({"topic": "projects/spark/topics/missing"}, "There is no topic projects/spark/topics/missing"),
        ({"endpoint": "127.0.0.1:9", "patienceSeconds": "0"}, "No connection"),
    ],
)
def test_spark_shows_what_is_wrong(spark, server, topic, options, says):
    given = {"endpoint": server.endpoint, "topic": topic.name} | options
    with pytest.raises(Exception, match=says):  # Spark's own class, with the text of ours
        spark.read.format("pubsub").options(**given).load().count()


def test_a_topic_created_again_fails_loudly(topic, target, copy):
    topic.publish(0, 10)
    copy(topic, target)
    topic.call("DeleteTopic", pubsub.DeleteTopicRequest(topic=topic.name), PUBLISHER)
    topic.call("CreateTopic", pubsub.Topic(name=topic.name), PUBLISHER)
    with pytest.raises(Exception, match="deleted and created again"):
        copy(topic, target)
