"""The ten service level indicators, exactly: what each means, and which families it is computed from.

Place: the one list that `syncpoint slo`, the console, the generated rules and dashboards, and docs/operations/slis.md
are made from. Targets are no part of it: those are objectives (`slos.yaml`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from syncpoint.watch.metrics.family_table import FAMILIES
from syncpoint.watch.monitor.indicators import Measure, Quick, Share, Youngest
from syncpoint.watch.monitor.selections import SERVER_CODES, SeriesSelection

RATIO, SECONDS = "ratio", "seconds"
WINDOW_S: Final = 3600.0
SUBSCRIBERS: Final = "syncpoint_subscription_subscribers"
_OF_CLIENTS: Final = ("listener", ("clients",))


class IndicatorPart(NamedTuple):
    """A question to history whose answer shows where what is bad comes from."""

    title: str
    family: str
    labels: tuple[str, ...]
    group_by: tuple[str, ...]
    quantile: float = 0.0


class ServiceLevelIndicator(NamedTuple):
    """One of the ten. `threshold`: up to which an event is good, unless an objective sets another one; 0: it has none.
    `role`: without a process of this role it does not apply.
    """

    name: str
    title: str
    definition: str
    unit: str
    measure: Measure
    threshold: float = 0.0
    role: str = ""
    window_s: float = WINDOW_S

    @property
    def families(self) -> tuple[str, ...]:
        """Which families of metrics it is computed from."""
        measure = self.measure
        if isinstance(measure, Share):
            used = (*measure.events, *measure.bad)
        elif isinstance(measure, Quick):
            used = (measure.took, *measure.failed)
        else:
            used = (measure.age, *(() if measure.having is None else (measure.having,)))
        return tuple(dict.fromkeys(one.name for one in used))

    @property
    def parts(self) -> tuple[IndicatorPart, ...]:
        """Where what is bad of it comes from: what fails, and what takes long."""
        measure = self.measure
        if isinstance(measure, Share):
            return tuple(_part("failed", one) for one in measure.bad)
        if isinstance(measure, Quick):
            slow = _part(f"{measure.quantile * 100:g}th percentile", measure.took, measure.quantile)
            return (slow, *(_part("failed", one) for one in measure.failed))
        return (_part("age", measure.age),)

    @property
    def promql(self) -> str:
        """Its value in PromQL, over its window."""
        measure, window = self.measure, promql_duration(self.window_s)
        if isinstance(measure, Youngest):
            return measure.query
        if self.unit == RATIO:
            bad, total = measure.promql(self.threshold, window)
            return f"1 - {bad} / ({total} > 0)"
        assert isinstance(measure, Quick)
        took = SeriesSelection(f"{measure.took.name}_bucket", measure.took.where, measure.took.without).promql
        return f"histogram_quantile({measure.quantile:g}, sum by (le) (rate({took}[{window}])))"


def _part(title: str, numbers: SeriesSelection, quantile: float = 0.0) -> IndicatorPart:
    labels = tuple(f"{name}={value}" for name, values in numbers.where for value in values)
    known = next(one.labels for one in FAMILIES if one.name == numbers.name)
    single = {name for name, values in numbers.where if len(values) == 1}
    return IndicatorPart(
        title, numbers.name, labels, ("process", *(one for one in known if one not in single)), quantile
    )


def promql_duration(seconds: float) -> str:
    """Such as 5m, 1h or 3d."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def _ended(method: str, codes: tuple[str, ...] = (), *, listener: str = "clients") -> SeriesSelection:
    """Calls of a method that ended: with one of the codes, or all that their caller did not give up."""
    where = (("listener", (listener,)), ("method", (method,)))
    return SeriesSelection(
        "syncpoint_calls_total",
        (*where, ("code", codes)) if codes else where,
        () if codes else (("code", ("CANCELLED",)),),
    )


def _took(method: str, listener: str = "clients") -> SeriesSelection:
    return SeriesSelection("syncpoint_call_seconds", (("listener", (listener,)), ("method", (method,))))


SLIS: Final = (
    ServiceLevelIndicator(
        "publish-success",
        "Publish success",
        "Share of client Publish calls without a server error (UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, "
        "DATA_LOSS). Calls canceled by clients do not count.",
        RATIO,
        Share((_ended("Publisher.Publish"),), (_ended("Publisher.Publish", SERVER_CODES),)),
    ),
    ServiceLevelIndicator(
        "publish-latency",
        "Publish latency",
        "Time from the arrival of a client's Publish call to its answer, sent once its messages are persisted. 99th "
        "percentile.",
        SECONDS,
        Quick(_took("Publisher.Publish")),
        0.1,
    ),
    ServiceLevelIndicator(
        "delivery-latency",
        "End-to-end delivery latency",
        "Time from the publish of a message, or from when the subscriber came if that is later, to its first delivery. "
        "99th percentile.",
        SECONDS,
        Quick(SeriesSelection("syncpoint_delivery_latency_seconds")),
        1.0,
    ),
    ServiceLevelIndicator(
        "create-subscription-time",
        "Time to create a subscription",
        "Duration of client CreateSubscription calls. Once answered, the subscription misses no message. 99th "
        "percentile.",
        SECONDS,
        Quick(_took("Subscriber.CreateSubscription"), (_ended("Subscriber.CreateSubscription", SERVER_CODES),)),
        5.0,
    ),
    ServiceLevelIndicator(
        "create-topic-time",
        "Time to create a topic",
        "Duration of client CreateTopic calls. 99th percentile.",
        SECONDS,
        Quick(_took("Publisher.CreateTopic"), (_ended("Publisher.CreateTopic", SERVER_CODES),)),
        5.0,
    ),
    ServiceLevelIndicator(
        "ack-success",
        "Acknowledge success",
        "Share of acknowledged ack ids that were accepted. Failures are expired or unknown ack ids of exactly-once "
        "subscriptions, and Acknowledge calls with a server error, counted as one each.",
        RATIO,
        Share(
            (SeriesSelection("syncpoint_subscription_acknowledged_total"),),
            (
                SeriesSelection("syncpoint_subscription_refused_acks_total"),
                _ended("Subscriber.Acknowledge", SERVER_CODES),
            ),
            beside=True,
        ),
    ),
    ServiceLevelIndicator(
        "storage-write-time",
        "Time to write to disk",
        "Duration of group commits, writing and syncing, over all disks. 99th percentile.",
        SECONDS,
        Quick(SeriesSelection("syncpoint_disk_commit_seconds")),
        0.1,
    ),
    ServiceLevelIndicator(
        "under-replicated-age",
        "Age of under-replicated entries",
        "Time for which the oldest under-replicated entry has lacked a disk. Maximum of all chains.",
        SECONDS,
        Youngest(SeriesSelection("syncpoint_log_under_replicated_seconds")),
        60.0,
    ),
    ServiceLevelIndicator(
        "delivery-freshness",
        "Excess age of unacknowledged messages",
        "Age of the oldest unacknowledged message of subscriptions that have had subscribers for 10 minutes. Maximum "
        "of the subscriptions that have metrics of their own.",
        SECONDS,
        Youngest(
            SeriesSelection("syncpoint_subscription_oldest_unacked_age_seconds"),
            SeriesSelection(SUBSCRIBERS),
            ("project", "subscription"),
            600.0,
        ),
        600.0,
    ),
    ServiceLevelIndicator(
        "router-assignment",
        "Router assignments",
        "Share of requests to routers, for the forwarders of a topic or subscription, that were answered without a "
        "server error within 0.1 s. Does not apply without routers.",
        RATIO,
        Quick(_took("Router.Route", "members"), (_ended("Router.Route", SERVER_CODES, listener="members"),)),
        0.1,
        role="router",
    ),
)
BY_NAME: Final = {one.name: one for one in SLIS}
