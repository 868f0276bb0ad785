"""Which families history keeps, and how their samples are put together over time.

Place: what a look reads of a text; what `QueryHistory` can be asked for.
Promise: all that indicators, rules and dashboards read is kept. Buckets are kept of few histograms, whose series are
few.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from syncpoint.watch.monitor.scraped_text import Labels

KEPT: Final = frozenset(
    {
        "process_cpu_seconds_total", "process_resident_memory_bytes", "syncpoint_access_refused_total",
        "syncpoint_attended_letters_total", "syncpoint_call_seconds", "syncpoint_calls_total",
        "syncpoint_catalog_snapshots", "syncpoint_catalog_subscriptions", "syncpoint_catalog_topics",
        "syncpoint_chain_below_policy", "syncpoint_chain_disk", "syncpoint_chain_unserved_seconds",
        "syncpoint_chains", "syncpoint_chains_owned", "syncpoint_delivery_latency_seconds",
        "syncpoint_delivery_outstanding_bytes", "syncpoint_delivery_outstanding_messages",
        "syncpoint_delivery_streams", "syncpoint_disk_behind_entries", "syncpoint_disk_commit_seconds",
        "syncpoint_disk_damages_total", "syncpoint_disk_failures_total", "syncpoint_disk_free_bytes",
        "syncpoint_disk_queued_bytes", "syncpoint_disk_state", "syncpoint_disk_sync_seconds",
        "syncpoint_disk_unreadable_places", "syncpoint_disk_written_bytes_total", "syncpoint_federation_blocked",
        "syncpoint_federation_lag_messages", "syncpoint_federation_rows_total", "syncpoint_listener_connections",
        "syncpoint_log_ended", "syncpoint_log_full", "syncpoint_log_segments", "syncpoint_log_too_few_disks",
        "syncpoint_log_under_replicated_entries", "syncpoint_log_under_replicated_seconds",
        "syncpoint_log_waiting_entries", "syncpoint_loop_lag_seconds", "syncpoint_members",
        "syncpoint_members_draining", "syncpoint_process_uptime_seconds", "syncpoint_publish_batch_messages",
        "syncpoint_publish_bytes_total", "syncpoint_publish_commits_total", "syncpoint_publish_in_flight_bytes",
        "syncpoint_publish_in_flight_messages", "syncpoint_publish_messages_total",
        "syncpoint_publish_persist_seconds", "syncpoint_publish_refused_total", "syncpoint_publish_requests_total",
        "syncpoint_publish_unknown_messages_total", "syncpoint_push_paused", "syncpoint_push_total",
        "syncpoint_router_answered_total", "syncpoint_subscription_ack_requests_total",
        "syncpoint_subscription_acknowledged_total", "syncpoint_subscription_backlog_bytes",
        "syncpoint_subscription_backlog_messages", "syncpoint_subscription_bytes_total",
        "syncpoint_subscription_dead_letters_total", "syncpoint_subscription_expired_leases_total",
        "syncpoint_subscription_messages_total", "syncpoint_subscription_nacked_total",
        "syncpoint_subscription_oldest_unacked_age_seconds", "syncpoint_subscription_outstanding_bytes",
        "syncpoint_subscription_outstanding_messages", "syncpoint_subscription_redelivered_total",
        "syncpoint_subscription_refused_acks_total", "syncpoint_subscription_subscribers",
        "syncpoint_topic_bytes_total", "syncpoint_topic_messages_total", "syncpoint_topic_requests_total",
    }
)  # fmt: skip
PREFIXES: Final = (
    "syncpoint_prober_",
    "syncpoint_reconciliation_",
    "syncpoint_at_risk_",
    "syncpoint_headroom_",
    "syncpoint_mitigation_",
)
"""Families of other programs, which are known by how their names begin."""

BUCKETS_OF: Final = frozenset(
    {
        "Publisher.Publish", "Publisher.CreateTopic", "Publisher.DeleteTopic", "Router.Route",
        "Subscriber.Acknowledge", "Subscriber.CreateSubscription", "Subscriber.DeleteSubscription",
        "Subscriber.ModifyAckDeadline", "Subscriber.Pull", "Subscriber.Seek",
    }
)  # fmt: skip
"""Methods whose calls are kept with their buckets, of syncpoint_call_seconds."""


@cache
def is_kept(family: str) -> bool:
    """Whether history keeps a family."""
    return family in KEPT or family.startswith(PREFIXES)


def is_left_out(name: str, labels: Labels) -> bool:
    """Whether a series of a family that is kept is not."""
    return name == "syncpoint_call_seconds_bucket" and dict(labels).get("method") not in BUCKETS_OF


@cache
def takes_largest(name: str) -> bool:
    """Whether the samples of a gauge are put together by the largest, because they are ages or say that something is
    wrong, not added up.
    """
    return name.endswith(
        (
            "_age_seconds", "_under_replicated_seconds", "_too_few_disks", "_log_full", "_log_ended",
            "_unserved_seconds", "_below_policy",
        )
    )  # fmt: skip
