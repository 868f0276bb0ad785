"""What the driver's process does with its session when it is asked: reads, copies, streams of small batches.

Every function takes the session first and gives something that JSON can hold. Times of batches are Spark's own
(`durationMs.triggerExecution` of the progress of a query), in milliseconds.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.spark.processes import session_cpu_seconds
from pyspark_pubsub.checkpoint import plans_from_json
from pyspark_pubsub.offsets import Offsets
from syncpoint.programs.federation.flow_rules import FlowRule
from syncpoint.programs.federation.flow_starts import FlowStart
from syncpoint.programs.federation.job import FederationJob
from syncpoint.programs.federation.link_query import LinkQuery
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.session import QUICK_CHECKPOINTS, SETTINGS
from syncpoint.programs.federation.spark_home import quick_home
from syncpoint.programs.federation.spec import FieldChange, load
from syncpoint.programs.federation.state import StateFolder
from syncpoint.programs.federation.steps.step_counts import StepCounts
from syncpoint.programs.federation.streams.stream_queries import stream_query, stream_start
from syncpoint.programs.federation.transform import changed, prepared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DEFAULT_PROFILE = {key: value for key, value in SETTINGS.items() if key not in QUICK_CHECKPOINTS}
"""The session of federation with Spark's own way to write checkpoints."""
RAW_PROFILE = dict(SETTINGS)
"""The session of federation as it is."""

_LOOK_SECONDS = 0.1
_SOON_SECONDS = 0.01
_BATCHES_LIMIT_SECONDS = 300.0
_running: dict[str, StreamingQuery] = {}


def start(master: str, settings: Mapping[str, str]) -> SparkSession:
    """The session, with the formats that only the measurement has, from the home that federation gives to Spark."""
    from pyspark.sql import SparkSession

    from bench.spark.appending import PublishingSource, UnfencedSource
    from bench.spark.rowwise import RowwiseSource

    os.environ["SPARK_HOME"] = str(quick_home())
    builder = SparkSession.builder.appName("bench").master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    for source in (PublishingSource, UnfencedSource, RowwiseSource):
        session.dataSource.register(source)
    return session


def count(session: SparkSession, format: str, options: Mapping[str, str], path: str = "") -> int:
    """Rows of a batch read."""
    return session.read.format(format).options(**options).load(*([path] if path else [])).count()


def noop(
    session: SparkSession, format: str, options: Mapping[str, str], path: str = "", columns: list[str] | None = None
) -> None:
    """Read all rows, and do nothing with them."""
    frame = session.read.format(format).options(**options).load(*([path] if path else []))
    if columns:
        frame = frame.selectExpr(*columns)
    frame.write.format("noop").mode("overwrite").save()


def store(
    session: SparkSession, options: Mapping[str, str], format: str, target: Mapping[str, str],
    columns: list[str] | None = None,
) -> None:  # fmt: skip
    """Read a topic and write its rows elsewhere, in Spark's default way."""
    frame = session.read.format("pubsub").options(**options).load()
    if columns:
        frame = frame.selectExpr(*columns)
    frame.write.format(format).mode("append").options(**target).save()


def lines(session: SparkSession, options: Mapping[str, str], path: str, files: int) -> None:
    """Write the data of a topic's messages as so many files of lines."""
    frame = session.read.format("pubsub").options(**options).load()
    frame.selectExpr("CAST(data AS STRING) AS value").repartition(files).write.text(path)


def rowwise(session: SparkSession, reading: Mapping[str, str], writing: Mapping[str, str]) -> None:
    """Pull messages one by one and publish them one by one (`bench.spark.rowwise`)."""
    frame = session.read.format("rowwise").options(**reading).load()
    frame.write.format("rowwise").mode("append").options(**writing).save()


def copy(
    session: SparkSession, reading: Mapping[str, str], writing: Mapping[str, str], sink: str = "pubsub", rule: str = ""
) -> dict[str, Any]:
    """A stream from topic to topic until nothing is left, as a flow of federation does it; `rule`: its SQL filter.

    `steady_rows` and `steady_cpu_seconds`: what came behind the first batch, and what all of Spark spent on it.
    """
    return _until_done(_query(session, "pubsub", reading, sink, writing, {"availableNow": True}, rule))


def _until_done(query: StreamingQuery) -> dict[str, Any]:
    while query.isActive and query.lastProgress is None:
        time.sleep(_SOON_SECONDS)
    cpu = session_cpu_seconds(os.getsid(0))
    query.awaitTermination()
    shown = _progress_text(query)
    rows = [_rows(one) for one in query.recentProgress]
    return {**shown, "steady_rows": sum(rows[1:]), "steady_cpu_seconds": session_cpu_seconds(os.getsid(0)) - cpu}


def pattern(session: SparkSession, file: str, topics: list[str]) -> dict[str, Any]:
    """The flow of a federation file's only task, until nothing is left; `steady_*` as for `copy`. `topics`: what its
    source has, where that is a server.
    """
    found = load(Path(file))
    (link,) = links_of(found)
    (flow,) = link.flows(topics)
    state = StateFolder(found.runtime.state)
    begin = FlowStart("earliest")
    if link.source.stream is not None:
        with Servers() as servers:
            begin = stream_start(session, servers, flow, state, accepted=False)
    query = (stream_query(link) or LinkQuery)(link, found.runtime, state.query(link.name), StepCounts(), only=flow)
    query.prepare()
    query.change([(flow, begin)])
    writer = query.written(prepared(query.read(session), link, flow)).outputMode("append")
    return _until_done(writer.trigger(availableNow=True).start())


def federate(session: SparkSession, file: str) -> None:
    """The job of a federation file, in a thread, until this process ends."""
    found = load(Path(file))
    job = FederationJob(found, links_of(found), session, StateFolder(found.runtime.state))

    def work() -> None:
        # Spark looks for sinks written in Python in the session that is active in the thread that begins a query.
        java: Any = session
        java._get_j_spark_session_class(java._jvm).setActiveSession(java._jsparkSession)
        job.run()

    threading.Thread(target=work, name="federation-job", daemon=True).start()


def collect_garbage(session: SparkSession) -> None:
    """What the JVM holds then is in use."""
    java: Any = session
    java._jvm.System.gc()


def batches(
    session: SparkSession, source: str, reading: Mapping[str, str], sink: str, writing: Mapping[str, str], least: int,
) -> dict[str, Any]:  # fmt: skip
    """A stream without pauses until it has made so many batches."""
    query = _query(session, source, reading, sink, writing, {"processingTime": "0 seconds"})
    end = time.monotonic() + _BATCHES_LIMIT_SECONDS
    while query.isActive and time.monotonic() < end:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] >= least:
            break
        time.sleep(_LOOK_SECONDS)
    query.stop()
    if (error := query.exception()) is not None:
        raise error
    return _progress_text(query)


def begin(session: SparkSession, reading: Mapping[str, str], writing: Mapping[str, str], trigger: str) -> None:
    """Start a stream from topic to topic and leave it running."""
    _running["copy"] = _query(session, "pubsub", reading, "pubsub", writing, {"processingTime": trigger})


def end(session: SparkSession) -> dict[str, Any]:
    """Stop it."""
    query = _running.pop("copy")
    query.stop()
    if (error := query.exception()) is not None:
        raise error
    return _progress_text(query)


def _query(
    session: SparkSession, source: str, reading: Mapping[str, str], sink: str, writing: Mapping[str, str],
    trigger: Mapping[str, Any], rule: str = "",
) -> StreamingQuery:  # fmt: skip
    frame = session.readStream.format(source).options(**reading).load()
    if rule:
        frame = changed(frame, FieldChange(rules=(FlowRule(rule),)), "bench")
    writer = frame.writeStream.format(sink).outputMode("append").options(**writing)
    return writer.trigger(**trigger).start()


def _progress_text(query: StreamingQuery) -> dict[str, Any]:
    """Rows, and the times of batches that had some: all of each batch, and its parts by their names."""
    found = [one for one in query.recentProgress if one["numInputRows"]]
    return {
        "rows": sum(map(_rows, found)),
        "batch_ms": [one["durationMs"]["triggerExecution"] for one in found],
        "parts_ms": [dict(one["durationMs"]) for one in found],
    }


def _rows(progress: Any) -> int:
    """Messages of a batch. Spark counts rows, which may be blocks of messages; our offsets report what was read."""
    rows, end = int(progress["numInputRows"]), str(progress["sources"][0]["endOffset"])
    if not rows or "universe" not in end:
        return rows
    found = json.loads(end)
    parts = [one.at for one in plans_from_json(found).values()] if "flows" in found else [Offsets.from_json(found)]
    return sum((one.end or one.begin) - one.begin for part in parts for one in part.ranges())
