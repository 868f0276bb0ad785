"""Families of subscriptions: what was delivered, acknowledged and came back, what waits, and who receives.

Place: in every process with a subscribe forwarder or chains. What is counted of deliveries is that of this process;
backlogs are those of its chains. Of a cluster's subscription the sum over processes is the subscription's, of ages the
largest. The names of Google's metrics stand beside ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from syncpoint.broker.subscribe.delivery_counts import NAMES
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.watch.metrics.backlogs import Backlogs, SubscriptionBacklog
from syncpoint.watch.metrics.family import Family, MetricKind, Samples
from syncpoint.watch.metrics.ranked import NAMED_MAX, Ranked, Shown

_C, _G, _H, _U = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM, MetricKind.UNTYPED
_OWN: Final = ("project", "subscription")
_GOOGLE: Final = ("project_id", "subscription_id")

_COUNTED: Final = (  # in the order of `subscribe.delivery_counts.NAMES`
    ("responses_total", "", "Responses with messages."),
    ("messages_total", "", "Messages delivered, including redeliveries."),
    ("bytes_total", "bytes", "Bytes of responses."),
    (
        "redelivered_total",
        "",
        "Messages redelivered. For ordered subscriptions, counted only with a retry or dead-letter policy.",
    ),
    ("ack_requests_total", "", "Acknowledge requests."),
    ("acknowledged_total", "", "Valid ack ids acknowledged."),
    ("refused_acks_total", "", "Expired or unknown ack ids (exactly-once delivery)."),
    ("modify_requests_total", "", "Requests that modify ack deadlines."),
    ("nacked_total", "", "Messages nacked by their subscriber."),
    ("expired_leases_total", "", "Messages whose ack deadline expired."),
    ("filtered_total", "", "Messages excluded by the filter or rules."),
    ("dead_letters_total", "", "Messages moved to the dead-letter topic."),
    (
        "dead_letters_failed_total",
        "",
        "Dead letters that could not be published; they are retried.",
    ),
    ("run_out_total", "", "Messages dropped before delivery because their time to live expired."),
)
_STANDING: Final = (
    ("backlog_messages", "", "Unacknowledged messages."),
    ("backlog_bytes", "bytes", "Bytes of unacknowledged messages, estimated from the oldest."),
    ("oldest_unacked_age_seconds", "seconds", "Age of the oldest unacknowledged message; unknown for _other."),
    ("outstanding_messages", "", "Outstanding messages: delivered, neither acknowledged nor nacked."),
    ("outstanding_bytes", "bytes", "Outstanding bytes."),
    ("subscribers", "", "Connected streams and waiting pulls."),
)
_ALL: Final = (
    ("delivery_served", _G, "", "Subscriptions with subscribers here, or with messages outstanding."),
    ("delivery_streams", _G, "", "Open streaming pulls."),
    ("delivery_outstanding_messages", _G, "", "Messages outstanding, over all subscriptions."),
    ("delivery_outstanding_bytes", _G, "bytes", "Outstanding bytes, over all subscriptions."),
    ("delivery_waiting_messages", _G, "", "Nacked messages waiting for their retry."),
    ("delivery_failed_steps_total", _C, "", "Internal steps restarted after a failure caused by a bug."),
    (
        "delivery_latency_seconds",
        _H,
        "seconds",
        "Time from publish, or the subscriber's coming if later, to delivery.",
    ),
    ("backlog_survey_seconds", _G, "seconds", "Duration of the latest count of backlogs."),
)
_GOOGLES: Final = {
    "ack_message_count": ("acknowledged", "messages acknowledged"),
    "pull_ack_request_count": ("ack_requests", "acknowledge requests"),
    "sent_message_count": ("messages", "messages delivered"),
    "mod_ack_deadline_request_count": ("modify_requests", "modify deadline requests"),
    "expired_ack_deadlines_count": ("expired_leases", "messages whose ack deadline expired"),
    "dead_letter_message_count": ("dead_letters", "messages moved to the dead-letter topic"),
}
_GOOGLES_STANDING: Final = {
    "num_undelivered_messages": ("backlog_messages", "unacknowledged messages"),
    "backlog_bytes": ("backlog_bytes", "unacknowledged bytes, estimated"),
    "oldest_unacked_message_age": ("oldest_unacked_age_seconds", "age of the oldest unacknowledged message"),
    "num_outstanding_messages": ("outstanding_messages", "outstanding messages"),
}
FAMILIES: Final = (
    *(Family(f"syncpoint_{name}", kind, unit, (), text) for name, kind, unit, text in _ALL),
    *(Family(f"syncpoint_subscription_{name}", _C, unit, _OWN, text) for name, unit, text in _COUNTED),
    *(Family(f"syncpoint_subscription_{name}", _G, unit, _OWN, text) for name, unit, text in _STANDING),
    *(
        Family(
            f"pubsub_subscription_{name}",
            _U,
            "",
            _GOOGLE,
            f"Google's subscription/{name}: {text}.",
        )
        for name, (_, text) in _GOOGLES.items()
    ),
    *(
        Family(
            f"pubsub_subscription_{name}",
            _G,
            "",
            _GOOGLE,
            f"Google's subscription/{name}: {text}.",
        )
        for name, (_, text) in _GOOGLES_STANDING.items()
    ),
)


class SubscriptionRoom:
    """`forwarder`: None where nothing is delivered from; `backlogs`: None where there are no chains; `streams`: how
    many streaming pulls are open; `most`: how many subscriptions of a project are named.
    """

    name = "subscriptions"

    def __init__(
        self,
        catalog: Catalog,
        forwarder: SubscribeForwarder | None,
        backlogs: Backlogs | None,
        streams: Callable[[], int],
        most: int = NAMED_MAX,
    ) -> None:
        self._forwarder, self._backlogs, self._streams = forwarder, backlogs, streams

        def name_of(subscription: int) -> str | None:
            record = catalog.subscription_by_incarnation(subscription)
            return None if record is None else record.name

        self._ranked = Ranked(len(NAMES), NAMES.index("messages"), most, name_of)

    async def prepare(self) -> None:
        counted = {} if self._forwarder is None else self._forwarder.counts.of
        backlogs, weights = self._backlogs, {}
        surveys = backlogs is not None and backlogs.due
        if backlogs is not None:
            if surveys:
                await backlogs.count()
            weights = {number: float(one.messages) for number, one in backlogs.known.items()}
        self._ranked.look(counted, weights)
        if backlogs is not None and surveys:
            await backlogs.look_up_ages(self._ranked.is_named)

    def collect(self, samples: Samples) -> None:
        standing = self._standing()
        for shown, values in self._ranked.series():
            counted = dict(zip(NAMES, values, strict=True))
            for (name, _, _), value in zip(_COUNTED, values, strict=True):
                samples.put(f"syncpoint_subscription_{name}", value, *shown)
            for name, (ours, _) in _GOOGLES.items():
                samples.put(f"pubsub_subscription_{name}", counted[ours], *shown)
            standing.setdefault(shown, {})
        for shown, found in standing.items():
            if self._backlogs is not None and "backlog_messages" not in found:
                found["oldest_unacked_age_seconds"] = 0.0  # there is none
            for name, _, _ in _STANDING:
                if name in found or not name.startswith("oldest"):
                    samples.put(f"syncpoint_subscription_{name}", found.get(name, 0.0), *shown)
            for name, (ours, _) in _GOOGLES_STANDING.items():
                if ours in found or not ours.startswith("oldest"):
                    samples.put(f"pubsub_subscription_{name}", found.get(ours, 0.0), *shown)
        if self._backlogs is not None:
            samples.put("syncpoint_backlog_survey_seconds", self._backlogs.seconds)
        if self._forwarder is not None:
            self._all(samples, self._forwarder)

    def _all(self, samples: Samples, forwarder: SubscribeForwarder) -> None:
        messages, nbytes = forwarder.outstanding()
        waiting = sum(len(one.leases.redelivery) for one in forwarder.deliveries.values())
        samples.put("syncpoint_delivery_served", len(forwarder.deliveries))
        samples.put("syncpoint_delivery_streams", self._streams())
        samples.put("syncpoint_delivery_outstanding_messages", messages)
        samples.put("syncpoint_delivery_outstanding_bytes", nbytes)
        samples.put("syncpoint_delivery_waiting_messages", waiting)
        samples.put("syncpoint_delivery_failed_steps_total", forwarder.guard.failures)
        samples.put_histogram("syncpoint_delivery_latency_seconds", forwarder.counts.latency)

    def _standing(self) -> dict[Shown, dict[str, float]]:
        """What is so now, by series."""
        found: dict[Shown, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        deliveries = {} if self._forwarder is None else self._forwarder.deliveries
        for number, delivery in deliveries.items():
            shown = self._ranked.labels_of(number)
            if shown is not None:
                messages, nbytes = delivery.table.total()
                sums = found[shown]
                sums["outstanding_messages"] += messages
                sums["outstanding_bytes"] += nbytes
                sums["subscribers"] += len(delivery.consumers)
        backlogs: Mapping[int, SubscriptionBacklog] = {} if self._backlogs is None else self._backlogs.known
        for number, one in backlogs.items():
            shown = self._ranked.labels_of(number)
            if shown is not None:
                sums = found[shown]
                sums["backlog_messages"] += one.messages
                sums["backlog_bytes"] += one.bytes
                if one.age_s is not None:
                    sums["oldest_unacked_age_seconds"] = max(sums["oldest_unacked_age_seconds"], one.age_s)
        return found
