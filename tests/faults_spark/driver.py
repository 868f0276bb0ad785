"""A driver of Spark in a process of its own, which does what it is given line by line: faults kill it as a whole.

Each line of standard input is Python with `spark`, `copy`, `naive` and `job` at hand; the answer is one line of JSON
with `value` or `error`.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_pubsub.fault_points import pause
from syncpoint.programs.federation.session import session
from syncpoint.programs.federation.transform import CARRIED, UNTOUCHED


def copy(spark: SparkSession, source: str, target: str, topic: str, checkpoint: str, **more: Any) -> Any:
    """A query that copies what there is of a topic: over a link, unless `link` is "", and then by blocks, as a flow of
    federation that changes nothing; `split`: the target topic of each row, as an expression.
    """
    link = more.pop("link", topic)
    to = more.pop("to", topic)
    rows = more.pop("rows", 50)
    split = more.pop("split", "")
    if link and not split:
        more = {"columns": ",".join(UNTOUCHED), "fetchBytes": "1024", **more}  # several blocks in a batch
    frame = _source(spark, source, topic, rows, **more)
    writer = frame.withColumn("topic", _expr(split)) if split else frame
    stream = writer.writeStream.format("pubsub").queryName(f"{topic}-{checkpoint[-6:]}")
    options = {"endpoint": target, "checkpointLocation": checkpoint, "keepIdentity": "true"}
    if not split:
        options["topic"] = to
    if link:
        options["link"] = link
    return stream.options(**options).trigger(availableNow=True).start()


def naive(spark: SparkSession, source: str, target: str, topic: str, checkpoint: str, rows: int = 50) -> Any:
    """The same with a sink as one writes it first: every batch is published, by each task, as it comes."""

    def publish_all(batch: Any) -> None:
        from syncpoint.front.client.client import Client
        from syncpoint.wire.protobuf.messages import pubsub

        request = pubsub.PublishRequest(topic=topic)
        for row in batch:
            request.messages.add(data=bytes(row.data), attributes=row.attributes)
        if request.messages:
            with Client(target) as client:
                client.call("Publisher.Publish", request)

    def each(frame: DataFrame, epoch: int) -> None:
        frame.foreachPartition(publish_all)
        pause("committed")

    frame = _source(spark, source, topic, rows)
    stream = frame.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    return stream.trigger(availableNow=True).start()


def job(spark: SparkSession, file: str) -> None:
    """The job of a federation's file, in a thread, until this process is killed."""
    from pathlib import Path

    from syncpoint.programs.federation.job import FederationJob
    from syncpoint.programs.federation.patterns.registry import links_of
    from syncpoint.programs.federation.spec import load
    from syncpoint.programs.federation.state import StateFolder

    federation = load(Path(file))
    made = FederationJob(federation, links_of(federation), spark, StateFolder(federation.runtime.state))

    def work() -> None:
        # Spark looks for sinks written in Python in the session that is active in the thread that begins a query.
        java: Any = spark
        java._get_j_spark_session_class(java._jvm).setActiveSession(java._jsparkSession)
        made.run()

    threading.Thread(target=work, name="federation-job", daemon=True).start()


def _source(spark: SparkSession, endpoint: str, topic: str, rows: int, **more: Any) -> DataFrame:
    options = {
        "endpoint": endpoint,
        "topic": topic,
        "columns": ",".join(CARRIED),
        "maxRowsPerTrigger": str(rows),
        **more,
    }
    return spark.readStream.format("pubsub").options(**options).load()


def _expr(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)


def main() -> None:
    quick = {"spark.driver.memory": "768m", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    spark = session("faults", sys.argv[1], quick | json.loads(sys.argv[2]))
    spark.sparkContext.setLogLevel("OFF")
    names: dict[str, Any] = {"spark": spark, "copy": copy, "naive": naive, "job": job}
    print(json.dumps({"value": "ready"}), flush=True)
    for line in sys.stdin:
        code = json.loads(line)
        try:
            try:
                value = eval(code, names)
            except SyntaxError:
                exec(code, names)
                value = None
            answer = {"value": value if isinstance(value, str | int | float | list | dict | bool) else None}
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
