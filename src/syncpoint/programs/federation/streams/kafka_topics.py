"""A topic as its Kafka cluster reports it: its identity, partitions and offsets.

Place: on the driver, through Kafka's admin client in the JVM, whose jar comes with Spark's Kafka source. Where a flow
begins is decided by `begin_of`, which is pure.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark_pubsub.stream_plans import partitions_of
from syncpoint.base.model.errors import (
    Code,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    SyncpointError,
    Unavailable,
)
from syncpoint.programs.federation.streams.stream_ends import KafkaStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CALL_S = 30
NO_SOURCE = (
    "Spark has no Kafka source: give it one under `runtime.spark`, such as `spark.jars.packages:"
    " org.apache.spark:spark-sql-kafka-0-10_2.13:{version}`, or the jars themselves as `spark.jars`"
)


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic as it is now: by partition, the oldest offset, the one after the newest, and where a new flow begins."""

    name: str
    cluster: str
    topic_id: int
    begins: Mapping[int, int]
    ends: Mapping[int, int]
    starts: Mapping[int, int]

    @property
    def identity(self) -> str:
        """As links name it."""
        return f"kafka:{self.cluster}/{self.topic_id}"


def begin_of(topic: KafkaTopic, wanted: Sequence[int], known: Any, flow: str, *, accepted: bool) -> dict[int, int]:
    """Where a flow begins, or goes on, in each of its partitions (none wanted: all). `known`: the link at the target;
    None: it has copied nothing. `accepted`: what is gone is passed over. A partition that the topic was given since is
    read from offset 0, wherever the others began, as by a query that runs when it comes. Raises `SyncpointError`.
    """
    chosen = tuple(wanted) or tuple(sorted(topic.ends))
    if missing := [one for one in chosen if one not in topic.ends]:
        there = ", ".join(map(str, sorted(topic.ends)))
        raise InvalidArgument(
            "from.partitions", f"the topic {topic.name} has no partition {missing[0]}; its partitions are {there}"
        )
    if known is not None and known.source_topic != topic.identity:
        raise FailedPrecondition(
            f"{flow} has copied a different topic of this name, or from another cluster ({known.source_topic}, not"
            f" {topic.identity}): to copy this topic from its start, create a task with another name"
        )
    committed = {} if known is None else partitions_of({one.source: one.end for one in known.committed})
    # A batch names all partitions that there are, so those above the highest of a whole topic were added later.
    whole = not wanted and committed.keys() == set(range(len(committed)))
    found, gone = {}, []
    for one in chosen:
        at = committed.get(one, 0 if whole and committed else topic.starts[one])
        if at > topic.ends[one]:
            raise FailedPrecondition(
                f"partition {one} of {topic.name} ends at {topic.ends[one]}, and {flow} has copied up to {at}: Kafka"
                " has lost records; records written since would not be copied. To start over, rename the task"
            )
        if at < topic.begins[one]:
            gone.append(f"partition {one}: {at} to {topic.begins[one] - 1}")
        found[one] = max(at, topic.begins[one])
    if gone and not accepted:
        raise SyncpointError(
            Code.OUT_OF_RANGE,
            f"Kafka has deleted offsets of {topic.name} that were not copied ({'; '.join(gone)}):"
            f" `syncpoint federation accept-gap {flow}` skips them",
        )
    return found


class KafkaTopics:
    """Questions to one cluster. Raises `FailedPrecondition` where Spark has no jar for it."""

    def __init__(self, spark: SparkSession, stream: KafkaStream) -> None:
        check_source(spark)
        self._jvm: Any = spark._jvm
        self._stream = stream

    def topic(self, name: str, start: str) -> KafkaTopic:
        """Describe a topic. `start`: earliest, latest, or a time. Raises `NotFound`, `Unavailable`."""
        with self._client() as admin, _named(self._stream, name):
            names = self._jvm.java.util.ArrayList()
            names.add(name)
            description = self._got(admin.describeTopics(names).allTopicNames()).get(name)
            partitions = [one.partition() for one in description.partitions()]
            topic_id = int.from_bytes(base64.urlsafe_b64decode(description.topicId().toString() + "=="))
            cluster = str(self._got(admin.describeCluster().clusterId()))
            specs = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
            begins = self._offsets(admin, name, partitions, specs.earliest())
            ends = self._offsets(admin, name, partitions, specs.latest())
            starts = {"earliest": begins, "latest": ends}.get(start)
            if starts is None:
                at_ms = round(datetime.fromisoformat(start).timestamp() * 1000)
                found = self._offsets(admin, name, partitions, specs.forTimestamp(at_ms))
                starts = {one: offset if offset >= 0 else ends[one] for one, offset in found.items()}
            return KafkaTopic(name, cluster, topic_id, begins, ends, starts)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        properties = self._jvm.java.util.Properties()
        for name, value in self._stream.client_options.items():
            properties.setProperty(name, value)
        with _named(self._stream, ""):
            admin = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        try:
            yield admin
        finally:
            admin.close()

    def _offsets(self, admin: Any, name: str, partitions: Sequence[int], spec: Any) -> dict[int, int]:
        common = self._jvm.org.apache.kafka.common
        asked = self._jvm.java.util.HashMap()
        places = {one: common.TopicPartition(name, one) for one in partitions}
        for place in places.values():
            asked.put(place, spec)
        level = getattr(common.IsolationLevel, self._stream.client_options["isolation.level"].upper())
        answer = admin.listOffsets(asked, self._jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(level))
        return {one: int(self._got(answer.partitionResult(place)).offset()) for one, place in places.items()}

    def _got(self, future: Any) -> Any:
        return future.get(CALL_S, self._jvm.java.util.concurrent.TimeUnit.SECONDS)


def check_source(spark: SparkSession) -> None:
    """Raise `FailedPrecondition` where Spark has no Kafka source."""
    from py4j.java_gateway import JavaClass

    found: Any = spark._jvm
    for part in ("org", "apache", "kafka", "clients", "admin", "AdminClient"):
        found = getattr(found, part)
    if not isinstance(found, JavaClass):  # a name that is no class is a package to py4j
        raise FailedPrecondition(NO_SOURCE.format(version=spark.version))


@contextmanager
def _named(stream: KafkaStream, topic: str) -> Iterator[None]:
    """What Kafka's client raises, as errors that say what it was about."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        java = error.java_exception
        inner = java.getCause() or java
        kind = inner.getClass().getSimpleName()
        if kind == "UnknownTopicOrPartitionException":
            raise NotFound(
                f"Kafka at {stream.bootstrap} has no topic {topic}; create it, or correct `from.topic`"
            ) from None
        reason = f"Kafka at {stream.bootstrap}: {kind}: {inner.getMessage()}"
        if kind in (
            "ConfigException",
            "InvalidTopicException",
            "TopicAuthorizationException",
            "SaslAuthenticationException",
        ):
            raise FailedPrecondition(reason) from None
        raise Unavailable(reason) from None
