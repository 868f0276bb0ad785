"""Writing topics with a real session to a real server: once, whatever happens to checkpoints."""

import shutil

import pytest
from pyspark.sql.functions import expr

from tests.spark.spark_harness import Topic, numbers

pytestmark = pytest.mark.shows("spark")


def kept(frame):
    """What a copy keeps of each message, in their order."""
    names = ("message_id", "publish_time", "data", "attributes", "ordering_key")
    return [tuple(row[name] for name in names) for row in frame.orderBy("offset").collect()]


def test_a_batch_is_published_by_one_commit(spark, server, target, rows):
    frame = spark.range(1000).selectExpr("CAST(id AS STRING) AS data", "map('a', CAST(id AS STRING)) AS attributes")
    frame.write.format("pubsub").option("endpoint", server.endpoint).option("topic", target.name).mode("append").save()
    assert sorted(numbers(rows(target))) == list(range(1000))
    assert {row.attributes["a"] for row in rows(target).collect()} == {str(i) for i in range(1000)}


def test_rows_may_name_their_topics(spark, server, topic, target, rows):
    frame = spark.range(100).selectExpr(
        "encode(CAST(id AS STRING), 'utf-8') AS data",
        f"IF(id % 2 = 0, '{topic.name}', '{target.name}') AS topic",
        "CONCAT('k', CAST(id % 3 AS STRING)) AS ordering_key",
    )
    frame.write.format("pubsub").option("endpoint", server.endpoint).mode("append").save()
    assert sorted(numbers(rows(topic))) == list(range(0, 100, 2))
    assert sorted(numbers(rows(target))) == list(range(1, 100, 2))


def test_a_link_copies_once_over_restarts_and_lost_checkpoints(topic, target, rows, copy, tmp_path):
    link = {"link": topic.name[-8:]}
    topic.publish(0, 600)
    copy(topic, target, read={"maxRowsPerTrigger": 250}, write=link)
    newest = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    newest.unlink()  # as after a crash between the commit here and the one there: the epoch comes again
    copy(topic, target, write=link)
    assert numbers(rows(target)) == list(range(600))
    shutil.rmtree(tmp_path / "checkpoint")  # everything is read again
    topic.publish(600, 700)
    copy(topic, target, read={"maxRowsPerTrigger": 250}, write=link)
    assert numbers(rows(target)) == list(range(700))


def test_without_a_link_a_lost_checkpoint_publishes_again(topic, target, rows, copy, tmp_path):
    """What the link is for: this is the negative control."""
    topic.publish(0, 10)
    copy(topic, target)
    shutil.rmtree(tmp_path / "checkpoint")
    copy(topic, target)
    assert len(numbers(rows(target))) == 20


def test_a_link_keeps_ids_times_keys_and_attributes(topic, target, rows, copy):
    topic.publish(0, 50)
    copy(topic, target, write={"link": topic.name[-8:], "via": "eu", "here": "us"})
    assert kept(rows(target)) == kept(rows(topic))
    copied = rows(target, columns="origin,visited").collect()
    assert {(row.origin, *row.visited) for row in copied} == {("eu", "eu")}


def test_blocks_are_copied_as_they_are(topic, target, rows, copy, tmp_path):
    """Over a lost checkpoint: the same messages as by row, once."""
    link = {"link": topic.name[-8:], "via": "eu", "here": "us"}
    blocks = {"columns": "source,block", "fetchBytes": 4096, "maxRowsPerTrigger": 70}
    topic.publish(0, 100)
    copy(topic, target, read=blocks, write=link)
    shutil.rmtree(tmp_path / "checkpoint")
    topic.publish(100, 150)
    copy(topic, target, read=blocks, write=link)
    assert kept(rows(target)) == kept(rows(topic))
    copied = rows(target, columns="origin,visited").collect()
    assert {(row.origin, *row.visited) for row in copied} == {("eu", "eu")}


def test_a_checkpoint_goes_on_by_blocks_and_by_row_again(topic, target, rows, copy):
    """What an upgrade does, or a `where` that is added to a flow."""
    link = {"link": topic.name[-8:]}
    for turn, columns in enumerate(("", "source,block", "")):
        topic.publish(100 * turn, 100 * (turn + 1))
        copy(topic, target, read={"maxRowsPerTrigger": 30} | ({"columns": columns} if columns else {}), write=link)
        assert numbers(rows(target)) == list(range(100 * (turn + 1)))


def test_the_plan_counts_and_not_the_rows_that_came_of_it(topic, target, rows, copy, tmp_path):
    """First, last and all rows of batches are dropped by the query; nothing is taken for a gap or a duplicate."""
    link = {"link": topic.name[-8:]}
    keep = "CAST(CAST(data AS STRING) AS INT) BETWEEN 30 AND 80"
    topic.publish(0, 100)
    copy(topic, target, read={"maxRowsPerTrigger": 25}, write=link, change=lambda frame: frame.where(keep))
    shutil.rmtree(tmp_path / "checkpoint")
    copy(topic, target, read={"maxRowsPerTrigger": 40}, write=link, change=lambda frame: frame.where(keep))
    assert numbers(rows(target)) == list(range(30, 81))


def test_a_link_routes_over_lost_checkpoints(server, topic, target, rows, copy, tmp_path):
    """Rows with a `target_topic` go there, the others where the option says; each is stored once."""
    aside = Topic(server)
    odd = f"IF(CAST(CAST(data AS STRING) AS INT) % 2 = 1, '{aside.name}', NULL)"
    link = {"link": topic.name[-8:]}

    def routed(frame):
        return frame.withColumn("target_topic", expr(odd))

    topic.publish(0, 60)
    copy(topic, target, read={"maxRowsPerTrigger": 25}, write=link, change=routed)
    shutil.rmtree(tmp_path / "checkpoint")
    topic.publish(60, 100)
    copy(topic, target, read={"maxRowsPerTrigger": 40}, write=link, change=routed)
    assert numbers(rows(target)) == list(range(0, 100, 2))
    assert numbers(rows(aside)) == list(range(1, 100, 2))


def test_a_gap_is_refused_and_nothing_is_stored(topic, target, rows, copy, tmp_path):
    link = {"link": topic.name[-8:]}
    topic.publish(0, 20)
    copy(topic, target, write=link)
    shutil.rmtree(tmp_path / "checkpoint")
    topic.publish(20, 40)
    source = rows(topic).first().source
    behind = {"startingPosition": f'{{"{source}": 30}}'}
    with pytest.raises(Exception, match="would leave a gap"):
        copy(topic, target, write=link, read=behind)
    assert numbers(rows(target)) == list(range(20))
    copy(topic, target, write=link | {"failOnDataLoss": "false"}, read=behind, checkpoint="other")
    assert numbers(rows(target)) == [*range(20), *range(30, 40)]


@pytest.mark.parametrize(
    ("select", "mode", "options", "says"),
    [
        ("id", "append", {}, "no column `data`"),
        ("CAST(id AS STRING) AS data", "overwrite", {}, "cannot overwrite"),
        ("CAST(id AS STRING) AS data, id AS tier", "append", {}, "tier cannot be published"),
        ("CAST(id AS STRING) AS data", "append", {"link": "x"}, "link is for streams"),
        ("CAST(id AS STRING) AS data", "append", {"topic": "projects/spark/topics/missing"}, "There is no topic"),
    ],
)
def test_spark_shows_what_is_wrong(spark, server, target, select, mode, options, says):
    given = {"endpoint": server.endpoint, "topic": target.name} | options
    frame = spark.range(3).selectExpr(*select.split(", "))
    with pytest.raises(Exception, match=says):  # Spark's own class, with the text of ours
        frame.write.format("pubsub").options(**given).mode(mode).save()
