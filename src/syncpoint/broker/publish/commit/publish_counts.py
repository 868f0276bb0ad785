"""What the chains of a process count of publishes, for operators: plain numbers, for all and by topic.

Place: kept by `admission`, which the chains of a process share; written where messages are persisted, once for each
entry, not for each message; read by `metrics`.
Promise: what is counted here was answered as persisted. What waits for its time is counted when it is published, and
what pipelines stage when it becomes visible.
"""

from __future__ import annotations

from bisect import bisect_left

from syncpoint.base.model.histogram import COUNTS, Histogram
from syncpoint.broker.publish.commit.append import PendingEntry
from syncpoint.broker.publish.facts.source import INNER_TOPICS


class TopicCounts:
    """Counters of one topic since the process began."""

    __slots__ = ("bytes", "messages", "requests")

    def __init__(self) -> None:
        self.requests = self.messages = self.bytes = 0

    def values(self) -> tuple[int, ...]:
        """In the order of names above."""
        return self.requests, self.messages, self.bytes


class PublishCounts:
    """`persist`: seconds from the turn in which an entry's messages were taken until it was persisted, by the stamps of
    messages; `batch`: messages of an entry.
    """

    def __init__(self) -> None:
        self.all = TopicCounts()
        self.topics: dict[int, TopicCounts] = {}
        self.persist, self.batch = Histogram(), Histogram(COUNTS)
        self.commits = 0  # how often a log reported more as persisted
        self.unknown = 0  # messages whose outcome nobody knows, because their log ended
        self.duplicates = 0  # messages that were dropped because of their ids

    def persisted(self, entry: PendingEntry, now_ns: int) -> None:
        """An entry is on the disks."""
        persist, seconds = self.persist, (now_ns - entry.time_ns) / 1e9
        if seconds < 0:
            seconds = 0.0
        persist.counts[bisect_left(persist.bounds, seconds)] += 1  # as `note` does, without a call
        persist.total += seconds
        topic = entry.source.topic
        if topic in INNER_TOPICS:
            return
        requests, messages, nbytes = len(entry.callers), entry.count, entry.bytes
        batch = self.batch
        batch.counts[bisect_left(batch.bounds, messages)] += 1
        batch.total += messages
        counts = self.topics.get(topic)
        if counts is None:
            counts = self.topics[topic] = TopicCounts()
        counts.requests += requests
        counts.messages += messages
        counts.bytes += nbytes
        every = self.all
        every.requests += requests
        every.messages += messages
        every.bytes += nbytes

    def forget(self, topic: int) -> None:
        """A topic was deleted."""
        self.topics.pop(topic, None)
