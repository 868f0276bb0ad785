"""What a subscribe forwarder counts of one subscription, for operators: plain numbers, since the process began.

Place: kept by `subscribe_forwarder` for longer than deliveries last; written once for each response and request, not
for each message; read by `metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from syncpoint.base.model.histogram import Histogram

NAMES = (
    "responses", "messages", "bytes", "redelivered", "ack_requests", "acknowledged", "refused_acks", "modify_requests",
    "nacked", "expired_leases", "filtered", "dead_letters", "dead_letters_failed", "run_out",
)  # fmt: skip


class SubscriptionCounts:
    """`redelivered`: those of `messages` that had been delivered before; `acknowledged`: ack ids in requests;
    `filtered`: acknowledged on the subscriber's behalf, because the filter leaves them out; `run_out`: dropped here,
    because their time to live was over.
    """

    __slots__ = NAMES

    def __init__(self) -> None:
        self.responses = self.messages = self.bytes = self.redelivered = 0
        self.ack_requests = self.acknowledged = self.refused_acks = 0
        self.modify_requests = self.nacked = self.expired_leases = 0
        self.filtered = self.dead_letters = self.dead_letters_failed = self.run_out = 0

    def values(self) -> tuple[int, ...]:
        """In the order of `NAMES`."""
        return (
            self.responses, self.messages, self.bytes, self.redelivered, self.ack_requests, self.acknowledged,
            self.refused_acks, self.modify_requests, self.nacked, self.expired_leases, self.filtered,
            self.dead_letters, self.dead_letters_failed, self.run_out,
        )  # fmt: skip


class DeliveryCounts:
    """What a forwarder counts of all its subscriptions. `latency`: seconds from publishing, or from when the
    subscriber came if that is later, to the first delivery, by the stamps of messages.
    """

    def __init__(self, time_ns: Callable[[], int]) -> None:
        self.latency = Histogram()
        self.of: dict[int, SubscriptionCounts] = {}
        self.time_ns = time_ns

    def of_subscription(self, subscription: int) -> SubscriptionCounts:
        """Those of one subscription, begun when first needed."""
        found = self.of.get(subscription)
        if found is None:
            found = self.of[subscription] = SubscriptionCounts()
        return found

    def first_delivery(self, published_ns: int, came_ns: int, messages: int) -> None:
        """Messages are delivered that nobody had before, to a subscriber that came at `came_ns`: it cannot have waited
        for them any longer.
        """
        seconds = (self.time_ns() - max(published_ns, came_ns)) / 1e9
        self.latency.note(seconds if seconds > 0 else 0.0, messages)

    def keep(self, subscriptions: Collection[int]) -> None:
        """Forget all others."""
        for gone in self.of.keys() - set(subscriptions):
            del self.of[gone]
