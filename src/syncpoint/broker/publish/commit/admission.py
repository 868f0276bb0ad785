"""Admission: how much may be on its way to the disks at once.

Place: before anything of a publish is stored. A publish is let in, or refused at once, to come back later. Limits
count messages and bytes accepted and not yet persisted, for the whole system and per topic, so a flood or a slow disk
bounds memory instead of growing it. Refusal happens before anything is queued: RESOURCE_EXHAUSTED always means "not
stored", which official clients retry with backoff.
"""

from dataclasses import dataclass

from syncpoint.base.model.errors import ResourceExhausted
from syncpoint.base.model.flow import FlowLimits
from syncpoint.broker.publish.commit.publish_counts import PublishCounts
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
            f"Flow control of {scope}: {load.messages} messages ({load.bytes} bytes) are being written; retry later."
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
