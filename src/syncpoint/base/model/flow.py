"""Flow control limits: how many messages and bytes may be on their way, system-wide, per topic and per subscriber.

Place: read by admission (publish side) and by streaming pulls (subscribe side); changed through the admin API while
running.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

NO_BOUND = 1 << 62


@dataclass(frozen=True, slots=True)
class FlowLimit:
    """A bound on messages and on bytes; 0 means none."""

    messages: int = 0
    bytes: int = 0
    messages_max: int = field(init=False, repr=False, compare=False)
    bytes_max: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages_max", self.messages or NO_BOUND)
        object.__setattr__(self, "bytes_max", self.bytes or NO_BOUND)


@dataclass(slots=True)
class FlowLimits:
    """All limits in force. The defaults bound the memory of a server that nobody configured."""

    system: FlowLimit = FlowLimit(1_000_000, 256 << 20)  # published, not yet persisted
    topic: FlowLimit = FlowLimit(500_000, 128 << 20)  # the same for each topic
    subscriber: FlowLimit = FlowLimit(1_000_000, 1 << 30)  # outstanding at one stream, whatever it asks for
    topics: dict[str, FlowLimit] = field(default_factory=dict)  # exceptions, by full name
    subscriptions: dict[str, FlowLimit] = field(default_factory=dict)
    on_change: Callable[[], None] = lambda: None  # for who keeps a copy: called after a change

    def of_topic(self, name: str) -> FlowLimit:
        return self.topics.get(name, self.topic)

    def of_subscriber(self, subscription: str) -> FlowLimit:
        return self.subscriptions.get(subscription, self.subscriber)
