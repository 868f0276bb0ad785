"""Reconciliation of a flow: whether the target holds exactly what its source has, each message once and as it was.

Place: a batch job over both logs; `syncpoint analyze reconcile` prints it. It trusts neither the flow nor its records:
what should be at the target, and in which topic, is worked out anew from the source, by the condition, the changes and
the steps of the flow.
Promise: an anomaly has the message's id, its kind, and the flow it happened on. A message that either side does not
store any more is counted as neither right nor wrong. Copies keep their ids, so ids decide.

Kinds: `missing` (the flow reports the message as copied, its topic at the target does not have it), `twice` (that has
it more than once), `altered` (data, attributes or ordering key are not what the flow makes of the source's),
`unexpected` (a topic has a copy by this flow of a message that should not be there).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.programs.analytics.stored_messages import OnProgress, stored_topic, watched
from syncpoint.programs.federation.flow_options import selecting
from syncpoint.programs.federation.flow_plan import Flow
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.steps.step import TOPIC
from syncpoint.programs.federation.transform import CARRIED, prepared
from syncpoint.wire.protobuf.messages import pipeline

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
    """Result of checking one flow.

    Numbers of messages: `expected` at the target, from stored messages that the flow committed or a backfill copied;
    `right` at the target; `waiting` for the flow; `gone_at_target` and `gone_at_source`: copied, and now stored on one
    side only, so not comparable; `skipped` over accepted gaps.
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
    """Compare both ends of a flow. Raises `FailedPrecondition` when it encrypts, or has not copied any messages yet;
    `InvalidArgument` when its function cannot be imported here; `SyncpointError` when a server refuses.
    """
    if not flow.link.steps.repeatable:
        raise FailedPrecondition(
            f"the flow {flow.name} cannot be reconciled, because it encrypts data: copies differ from the originals"
        )
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    with Servers(patience_s=30.0) as servers:
        request = pipeline.ListLinksRequest(name=flow.name)
        links = servers.call(flow.link.target, "EpochWriter.ListLinks", request).links
        if not links:
            raise FailedPrecondition(f"the flow {flow.name} has not copied any messages yet")
        link = links[0]
        can_lack = _any((F.col("topic") == topic) & _within(ranges)
                        for topic, ranges in _judged(servers, flow, link).items())  # fmt: skip
    with watched(spark, on_progress):
        wanted = _expected(spark, flow).persist(StorageLevel.DISK_ONLY)
        there = _copies(spark, flow).persist(StorageLevel.DISK_ONLY)
        try:
            done = _within(link.committed)
            judged = wanted.withColumn("done", done).join(there, "message_id", "full").fillna(False, ["done"])
            judged = judged.withColumn("here", F.try_element_at("places", F.col("topic")))
            known, copied = F.col("source").isNotNull(), F.col("here").isNotNull()
            wants = known & F.col("topic").isNotNull()
            lacks = wants & F.col("done") & ~copied
            elsewhere = F.coalesce(F.size("places"), F.lit(0)) > copied.cast("int")
            kind = (
                F.when(lacks & can_lack, "missing")
                .when(F.col("here.copies") > 1, "twice")
                .when(wants & copied & (F.col("content") != F.col("here.content")), "altered")
                .when(known & elsewhere, "unexpected")
            )
            judged = judged.withColumn("kind", kind).persist(StorageLevel.DISK_ONLY)
            whole: Any = judged.agg(
                F.count_if(wants & (F.col("done") | copied)).alias("expected"),
                F.count_if(wants & copied & F.col("kind").isNull()).alias("right"),
                F.count_if(wants & ~F.col("done") & ~copied).alias("waiting"),
                F.count_if(lacks & ~can_lack).alias("gone_at_target"),
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


def _topics(flow: Flow) -> tuple[str, ...]:
    """Topics of the target that messages of a flow may be in."""
    return tuple(dict.fromkeys((flow.target_topic, *flow.link.steps.topics)))


def _expected(spark: SparkSession, flow: Flow) -> DataFrame:
    """Every message that the source stores, the topic that the flow copies it to (null: to none), and the digest of
    what it makes of it.
    """
    from pyspark.sql import functions as F

    stored = stored_topic(flow.link.source, flow.source_topic)
    every = stored.frame(spark, ("message_id", "source", "offset"))
    made = prepared(stored.frame(spark, CARRIED, **selecting(flow.link)), flow.link, flow)
    topic = F.col(TOPIC) if TOPIC in made.columns else F.lit(flow.target_topic)
    return every.join(made.select("source", "offset", topic.alias("topic"), _content().alias("content")),
                      ["source", "offset"], "left")  # fmt: skip


def _copies(spark: SparkSession, flow: Flow) -> DataFrame:
    """What the target stores that came through the flow's source last: by id, how often it is in which topic, and the
    digest of one of these.
    """
    from pyspark.sql import functions as F

    def stored_in(topic: str) -> DataFrame:
        columns = ("message_id", "data", "attributes", "ordering_key", "visited")
        frame = stored_topic(flow.link.target, topic).frame(spark, columns)
        came = (F.size("visited") > 0) & (F.element_at("visited", -1) == flow.link.source.name)
        counted = frame.where(came).groupBy("message_id")
        return counted.agg(F.lit(topic).alias("at"), F.count("*").alias("copies"), F.first(_content()).alias("content"))

    copies = reduce(lambda one, other: one.unionByName(other), map(stored_in, _topics(flow)))
    places = F.map_from_entries(F.collect_list(F.struct("at", F.struct("copies", "content"))))
    return copies.groupBy("message_id").agg(places.alias("places"))


def _content() -> Column:
    """A digest of what a flow may change, the same for equal content."""
    from pyspark.sql import functions as F

    pairs = F.array_sort(F.map_entries("attributes"))
    return F.xxhash64("data", F.to_json(pairs), F.coalesce("ordering_key", F.lit("")))


def _within(ranges: Iterable[Any]) -> Column:
    """Whether a message of the source is in one of these ranges."""
    from pyspark.sql import functions as F

    return _any(
        (F.col("source") == one.source) & (F.col("offset") >= one.begin) & (F.col("offset") < one.end) for one in ranges
    )


def _any(conditions: Iterable[Column]) -> Column:
    from pyspark.sql import functions as F

    return reduce(or_, conditions, F.lit(False))


def _judged(servers: Servers, flow: Flow, link: Any) -> dict[str, list[Any]]:
    """Return, by target topic, the committed ranges of the source whose copies cannot have been deleted since.

    The target maps offsets while it stores the copies, and stores copies of one source in order: above the lowest
    mapped offset of a topic, an unmapped offset was never stored there. A link that has stored nothing maps nothing.
    """
    topics = _topics(flow)
    found: dict[str, list[Any]] = {topic: [] for topic in topics}
    for one in link.committed:
        begins = {} if link.rows else dict.fromkeys(topics, one.begin)
        at = one.begin
        while at < one.end and len(begins) < len(topics):
            asked = pipeline.MapOffsetsRequest(link=flow.name, source=one.source, begin=at, end=one.end)
            answer = servers.call(flow.link.target, "EpochWriter.MapOffsets", asked)
            for mapping in answer.mappings:
                for place in mapping.to:
                    begins.setdefault(place.topic, getattr(mapping, "from").begin)
            at = answer.next_offset
        for topic in topics:
            if topic in begins:
                found[topic].append(pipeline.SourceRange(source=one.source, begin=begins[topic], end=one.end))
    return found
