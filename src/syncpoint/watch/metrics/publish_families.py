"""Families of publishing: what was taken and persisted, how long that took, and which topics it was for.

Place: in every process with a publish forwarder. Of a cluster's topic each process shows its own part; their sum is the
topic's. The names of Google's metrics stand beside ours, so that alerts that were written for them can be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from syncpoint.broker.publish.commit.admission import Admission
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.watch.metrics.family import Family, MetricKind, QuickCollector, Samples
from syncpoint.watch.metrics.ranked import NAMED_MAX, Ranked

_C, _G, _H, _S, _U = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM, MetricKind.SUMMARY, MetricKind.UNTYPED
_TOPIC: Final = ("project", "topic")
_GOOGLE: Final = ("project_id", "topic_id")
FAMILIES: Final = (
    Family("syncpoint_publish_requests_total", _C, "", (), "Publish requests persisted."),
    Family("syncpoint_publish_messages_total", _C, "", (), "Messages persisted."),
    Family("syncpoint_publish_bytes_total", _C, "bytes", (), "Persisted bytes, as stored."),
    Family(
        "syncpoint_publish_persist_seconds",
        _H,
        "seconds",
        (),
        "Time from accepting the messages of an entry to persisting it.",
    ),
    Family(
        "syncpoint_publish_batch_messages",
        _H,
        "",
        (),
        "Messages per entry: those published to one topic within one turn of the event loop.",
    ),
    Family("syncpoint_publish_commits_total", _C, "", (), "Advances of the persisted position of logs."),
    Family(
        "syncpoint_publish_unknown_messages_total",
        _C,
        "",
        (),
        "Messages with an unknown outcome because their log ended; their publishers retry.",
    ),
    Family("syncpoint_publish_refused_total", _C, "", (), "Requests refused by flow control."),
    Family("syncpoint_publish_in_flight_messages", _G, "", (), "Messages accepted and not persisted yet."),
    Family("syncpoint_publish_in_flight_bytes", _G, "bytes", (), "Bytes accepted and not persisted yet."),
    Family("syncpoint_publish_limit_messages", _G, "", (), "Limit on messages in flight."),
    Family("syncpoint_publish_limit_bytes", _G, "bytes", (), "Limit on bytes in flight."),
    Family(
        "syncpoint_publish_duplicates_total",
        _C,
        "",
        (),
        "Messages dropped as duplicates of a stored message id.",
    ),
    Family("syncpoint_publish_known_ids", _G, "", (), "Message ids kept for duplicate detection."),
    Family("syncpoint_scheduled_messages", _G, "", (), "Scheduled messages not published yet."),
    Family("syncpoint_scheduled_published_total", _C, "", ("chain",), "Scheduled messages published."),
    Family("syncpoint_topic_requests_total", _C, "", _TOPIC, "Requests persisted, by topic."),
    Family("syncpoint_topic_messages_total", _C, "", _TOPIC, "Messages persisted, by topic."),
    Family("syncpoint_topic_bytes_total", _C, "bytes", _TOPIC, "Persisted bytes, as stored."),
    Family(
        "pubsub_topic_send_request_count",
        _U,
        "",
        (*_GOOGLE, "response_class"),
        "Google's topic/send_request_count: publish requests that succeeded.",
    ),
    Family(
        "pubsub_topic_send_message_operation_count",
        _U,
        "",
        _GOOGLE,
        "Google's topic/send_message_operation_count: messages published.",
    ),
    Family(
        "pubsub_topic_message_sizes",
        _S,
        "bytes",
        _GOOGLE,
        "Google's topic/message_sizes: number and bytes of messages published.",
    ),
)


class PublishRoom(QuickCollector):
    """`chains`: the publish forwarder of each chain that is open; `fired`: of each, how many scheduled messages it has
    published; `most`: how many topics of a project are named.
    """

    name = "publishing"

    def __init__(
        self,
        admission: Admission,
        catalog: Catalog,
        chains: Callable[[], Mapping[int, PublishForwarder]],
        fired: Callable[[], Mapping[int, int]],
        most: int = NAMED_MAX,
    ) -> None:
        self._admission, self._chains, self._fired = admission, chains, fired

        def name_of(topic: int) -> str | None:
            record = catalog.topic_by_incarnation(topic)
            return None if record is None else record.name

        self._topics = Ranked(3, 1, most, name_of)

    def collect(self, samples: Samples) -> None:
        admission, counts = self._admission, self._admission.counts
        chains: Iterable[PublishForwarder] = self._chains().values()
        values = {
            "requests_total": counts.all.requests,
            "messages_total": counts.all.messages,
            "bytes_total": counts.all.bytes,
            "commits_total": counts.commits,
            "unknown_messages_total": counts.unknown,
            "refused_total": admission.refused,
            "in_flight_messages": admission.system.messages,
            "in_flight_bytes": admission.system.bytes,
            "limit_messages": admission.limits.system.messages_max,
            "limit_bytes": admission.limits.system.bytes_max,
            "duplicates_total": counts.duplicates,
            "known_ids": sum(len(one.ids) for one in chains),
        }
        for name, value in values.items():
            samples.put(f"syncpoint_publish_{name}", value)
        samples.put_histogram("syncpoint_publish_persist_seconds", counts.persist)
        samples.put_histogram("syncpoint_publish_batch_messages", counts.batch)
        samples.put("syncpoint_scheduled_messages", sum(len(one.scheduled) for one in chains))
        for number, fired in self._fired().items():
            samples.put("syncpoint_scheduled_published_total", fired, str(number))
        self._topics.look(counts.topics, {})
        for shown, (requests, messages, nbytes) in self._topics.series():
            samples.put("syncpoint_topic_requests_total", requests, *shown)
            samples.put("syncpoint_topic_messages_total", messages, *shown)
            samples.put("syncpoint_topic_bytes_total", nbytes, *shown)
            samples.put("pubsub_topic_send_request_count", requests, *shown, "success")
            samples.put("pubsub_topic_send_message_operation_count", messages, *shown)
            samples.put_summary("pubsub_topic_message_sizes", messages, nbytes, *shown)
