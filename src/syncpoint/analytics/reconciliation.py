"""Reconciliation of a flow: whether the target holds exactly what its source has, each message once and as it was.

Place: a batch job over both logs; `syncpoint analyze reconcile` prints it. It trusts neither the flow nor its records:
what should be at the target is worked out anew from the source, by the condition and the changes of the flow.
Promise: an anomaly has the message's id, its kind, and the flow it happened on. A message that either side does not
store any more is counted, and said to be neither right nor wrong. Copies keep their ids, so ids decide.

Kinds: `missing` (the flow says it has copied the message, the target does not have it), `twice` (the target has it more
than once), `altered` (data, attributes or ordering key are not what the flow makes of the source's), `unexpected` (the
target has a copy by this flow of a message that the flow should have left out).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from syncpoint.analytics.stored_messages import OnProgress, stored_topic, watched
from syncpoint.federation.flow_options import selecting
from syncpoint.federation.flow_plan import Flow
from syncpoint.federation.servers import Servers
from syncpoint.federation.transform import CARRIED, changed
from syncpoint.model.errors import FailedPrecondition
from syncpoint.wire.messages import pipeline

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NAMED: Final = 1_000
"""Anomalies of each kind that are named; all are counted."""
KINDS: Final = ("missing", "twice", "altered", "unexpected")


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One message that is not as it should be, and the flow it happened on."""

    kind: str
    message_id: str
    hop: str


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Of one flow. Messages: `expected` by what the source stores, of those that the flow has committed; `right` at the
    target; `waiting` for the flow; `gone_at_target` and `gone_at_source`: copied, and stored on one side alone by now,
    so that nothing can be said of them; `skipped` over accepted gaps.
    """

    flow: str
    expected: int
    right: int
    waiting: int
    gone_at_target: int
    gone_at_source: int
    skipped: int
    counts: dict[str, int]
    anomalies: tuple[Anomaly, ...]

    @property
    def clean(self) -> bool:
        """Whether no anomaly was found."""
        return not any(self.counts.values())


def reconcile(spark: SparkSession, flow: Flow, on_progress: OnProgress) -> Reconciliation:
    """Compare both ends of a flow. Raises `FailedPrecondition` when its pattern has steps of its own, or it has copied
    nothing yet; `InvalidArgument` when its function cannot be imported here; `SyncpointError` when a server refuses.
    """
    if flow.link.steps:  # what they make of a message is not worked out here: all of it would pass for altered
        raise FailedPrecondition(
            f"the flow {flow.name} cannot be reconciled: the pattern {flow.link.pattern} has steps"
        )
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    with Servers(patience_s=30.0) as servers:
        request = pipeline.ListLinksRequest(name=flow.name)
        links = servers.call(flow.link.target, "EpochWriter.ListLinks", request).links
        if not links:
            raise FailedPrecondition(f"the flow {flow.name} has copied nothing yet")
        link = links[0]
        judged_ranges = _judged(servers, flow, link)
    with watched(spark, on_progress):
        wanted = _expected(spark, flow).persist(StorageLevel.DISK_ONLY)
        there = _copies(spark, flow).persist(StorageLevel.DISK_ONLY)
        try:
            done = _within(link.committed)
            judged = wanted.withColumn("done", done).join(there, "message_id", "full").fillna(False, ["done"])
            known = F.col("source").isNotNull()
            wants = known & F.col("kept")
            lacks = wants & F.col("done") & F.col("copies").isNull()
            kind = (
                F.when(lacks & _within(judged_ranges), "missing")
                .when(F.col("copies") > 1, "twice")
                .when(wants & F.col("copies").isNotNull() & (F.col("content") != F.col("copy")), "altered")
                .when(known & ~F.col("kept") & F.col("copies").isNotNull(), "unexpected")
            )
            judged = judged.withColumn("kind", kind).persist(StorageLevel.DISK_ONLY)
            whole: Any = judged.agg(
                F.count_if(wants & F.col("done")).alias("expected"),
                F.count_if(wants & F.col("copies").isNotNull() & F.col("kind").isNull()).alias("right"),
                F.count_if(wants & ~F.col("done") & F.col("copies").isNull()).alias("waiting"),
                F.count_if(lacks & ~_within(judged_ranges)).alias("gone_at_target"),
                F.count_if(F.col("source").isNull()).alias("gone_at_source"),
                *(F.count_if(F.col("kind") == name).alias(name) for name in KINDS),
            ).first()
            named: list[Anomaly] = []
            for name in KINDS:
                if whole[name]:
                    rows = judged.where(F.col("kind") == name).orderBy("message_id").limit(NAMED)
                    named += [Anomaly(name, row.message_id, flow.name) for row in rows.select("message_id").collect()]
            judged.unpersist()
        finally:
            wanted.unpersist()
            there.unpersist()
    return Reconciliation(
        flow.name,
        whole.expected,
        whole.right,
        whole.waiting,
        whole.gone_at_target,
        whole.gone_at_source,
        sum(one.end - one.begin for one in link.skipped),
        {name: whole[name] for name in KINDS},
        tuple(named),
    )


def _expected(spark: SparkSession, flow: Flow) -> DataFrame:
    """Every message that the source stores, whether the flow keeps it, and the digest of what it makes of it."""
    from pyspark.sql import functions as F

    stored = stored_topic(flow.link.source, flow.source_topic)
    every = stored.frame(spark, ("message_id", "source", "offset"))
    kept = changed(stored.frame(spark, CARRIED, **selecting(flow.link)), flow.link.change, flow.link.name)
    made = kept.select("source", "offset", _content().alias("content"), F.lit(True).alias("kept"))
    return every.join(made, ["source", "offset"], "left").fillna(False, ["kept"])


def _copies(spark: SparkSession, flow: Flow) -> DataFrame:
    """What the target stores that came through the flow's source last: by id, how often, and the digest of one."""
    from pyspark.sql import functions as F

    stored = stored_topic(flow.link.target, flow.target_topic)
    frame = stored.frame(spark, ("message_id", "data", "attributes", "ordering_key", "visited"))
    came = F.element_at("visited", -1) == flow.link.source.name
    copies = frame.where(F.size("visited") > 0).where(came)
    return copies.groupBy("message_id").agg(F.count("*").alias("copies"), F.first(_content()).alias("copy"))


def _content() -> Column:
    """A digest of what a flow may change, the same for equal content."""
    from pyspark.sql import functions as F

    pairs = F.array_sort(F.map_entries("attributes"))
    return F.xxhash64("data", F.to_json(pairs), F.coalesce("ordering_key", F.lit("")))


def _within(ranges: Iterable[Any]) -> Column:
    """Whether a message of the source is in one of these ranges."""
    from functools import reduce
    from operator import or_

    from pyspark.sql import functions as F

    places = [
        (F.col("source") == one.source) & (F.col("offset") >= one.begin) & (F.col("offset") < one.end) for one in ranges
    ]
    return reduce(or_, places, F.lit(False))


def _judged(servers: Servers, flow: Flow, link: Any) -> list[Any]:
    """Of what was committed, the ranges of the source whose copies the target cannot have deleted since.

    The target maps offsets for as long as it stores the copies, and stores those of one source in their order: behind
    the lowest offset that is mapped, what is not mapped was never stored. A link that has stored nothing maps nothing.
    """
    found: list[Any] = []
    for one in link.committed:
        asked = pipeline.MapOffsetsRequest(link=flow.name, source=one.source, begin=one.begin, end=one.end)
        mappings = servers.call(flow.link.target, "EpochWriter.MapOffsets", asked).mappings
        if mappings or not link.rows:
            begin = getattr(mappings[0], "from").begin if mappings else one.begin
            found.append(pipeline.SourceRange(source=one.source, begin=begin, end=one.end))
    return found
