"""Append what is new in a topic to a folder of Parquet files, each message once, and end.

    spark-submit examples/spark/topic_to_parquet.py ENDPOINT TOPIC FOLDER [--typed]

Run it again for what has come since: the checkpoint in FOLDER/_checkpoint knows how far it is. With --typed the columns
are those of the topic's schema.
"""

import sys

from pyspark.sql import SparkSession

import pyspark_pubsub  # noqa: F401 - workers use this Python


def append(spark: SparkSession, endpoint: str, topic: str, folder: str, *, typed: bool = False) -> int:
    """Returns the number of messages appended."""
    reader = spark.readStream.format("pubsub").option("endpoint", endpoint).option("topic", topic)
    if typed:
        frame = reader.option("decode", "topic").load().select("message_id", "publish_time", "value.*")
    else:
        frame = reader.load()
    query = (
        frame.writeStream.format("parquet")
        .option("path", folder)
        .option("checkpointLocation", f"{folder}/_checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    session = SparkSession.builder.appName("topic_to_parquet").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    print(f"{append(session, *sys.argv[1:4], typed='--typed' in sys.argv)} messages appended")
    session.stop()
