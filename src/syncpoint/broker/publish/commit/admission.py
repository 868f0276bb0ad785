"""Admission: how much may be on its way to the disks at once, and what became of it, as counts for operators.

Place: before anything of a publish is stored. A publish is let in, or refused at once, to come back later. Limits
count messages and bytes accepted and not yet persisted, for the whole system and per topic, so a flood or a slow disk
bounds memory instead of growing it. Refusal happens before anything is queued: RESOURCE_EXHAUSTED always means "not
stored", which official clients retry with backoff.
What the chains of a process count is written where messages are persisted, once for each entry, not for each message.
What waits for its time is counted when it is published, and what pipelines stage when it becomes visible.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from syncpoint.base.model.errors import ResourceExhausted
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.model.histogram import COUNTS, Histogram
from syncpoint.broker.publish.commit.append import PendingEntry
from syncpoint.broker.publish.facts.source import INNER_TOPICS
from syncpoint.catalog.metadata.records import Topic


@dataclass(slots=True)
class InFlight:
    """What one topic, or the whole system, has on its way."""

    messages: int = 0
    bytes: int = 0


class Admission:
    """Counts what is in flight and refuses what would exceed the limits."""

    def __init__(self, limits: FlowLimits) -> None:
        self.limits = limits
        self.system = InFlight()
        self._topics: dict[int, InFlight] = {}
        self.refused = 0
        self.counts = PublishCounts()

    def check(self, topic: Topic, nbytes: int) -> None:
        """Raise `ResourceExhausted` if a publish of `nbytes` may not come in now."""
        limit, load = self.limits.system, self.system
        # A request larger than the limit comes in alone: it would be asked to retry for ever otherwise.
        if load.messages and (load.messages >= limit.messages_max or load.bytes + nbytes > limit.bytes_max):
            self._refuse("the system", load)
        mine = self._topics.get(topic.incarnation)
        if mine is not None:
            limits = self.limits  # see `of_topic`: a call less for each publish
            limit = limits.topics.get(topic.name, limits.topic) if limits.topics else limits.topic
            if mine.messages >= limit.messages_max or mine.bytes + nbytes > limit.bytes_max:
                self._refuse(f"topic {topic.name}", mine)

    def _refuse(self, scope: str, load: InFlight) -> None:
        self.refused += 1
        raise ResourceExhausted(
            f"Flow control limit of {scope} reached: {load.messages} messages ({load.bytes} bytes) are being written."
            " Retry with backoff."
        )

    def enter(self, topic: int, messages: int, nbytes: int) -> None:
        """A batch was accepted."""
        mine = self._topics.get(topic)
        if mine is None:
            mine = self._topics[topic] = InFlight()
        mine.messages += messages
        mine.bytes += nbytes
        self.system.messages += messages
        self.system.bytes += nbytes

    def release(self, topic: int, messages: int, nbytes: int) -> None:
        """A batch was persisted, or given up."""
        mine = self._topics[topic]
        mine.messages -= messages
        mine.bytes -= nbytes
        if not mine.messages:
            assert not mine.bytes, (topic, mine.bytes)
            del self._topics[topic]
        self.system.messages -= messages
        self.system.bytes -= nbytes


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
        requests, messages, nbytes = entry.requests, entry.count, entry.bytes
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
