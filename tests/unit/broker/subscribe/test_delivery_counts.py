"""What is counted of deliveries."""

from __future__ import annotations

import pytest

from syncpoint.broker.subscribe.delivery_counts import DeliveryCounts

S = 10**9


@pytest.mark.parametrize(
    ("published_s", "came_s", "latency_s"),
    [(10, 5, 90.0), (10, 99, 1.0), (101, 5, 0.0)],
    ids=["the subscriber was there", "nobody was there for long", "clocks differ"],
)
def test_a_message_waits_from_its_publish_or_from_when_its_subscriber_came(
    published_s: int, came_s: int, latency_s: float
) -> None:
    counts = DeliveryCounts(lambda: 100 * S)
    counts.first_delivery(published_s * S, came_s * S, 3)
    assert (counts.latency.count, counts.latency.total) == (3, 3 * latency_s)
