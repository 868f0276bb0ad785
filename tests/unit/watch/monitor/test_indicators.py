"""Ten indicators: each is what was injected; without events there is no data, which is not good."""

from __future__ import annotations

import pytest

from syncpoint.watch.metrics.family_table import FAMILIES
from syncpoint.watch.monitor.kept_families import is_kept
from syncpoint.watch.monitor.monitor_core import MEASURED, NO_DATA, NOT_APPLICABLE, IndicatorValue
from syncpoint.watch.monitor.sli_table import SLIS
from tests.unit.watch.monitor.conftest import Watched

PUBLISH = ("clients", "Publisher.Publish")


def values(watched: Watched) -> dict[str, IndicatorValue]:
    return {one.sli.name: one for one in watched.core.indicators(watched.now_s)}


def test_there_are_ten_and_all_they_read_is_there_and_kept() -> None:
    assert len(SLIS) == len({one.name for one in SLIS}) == 10
    known = {one.name for one in FAMILIES}
    for one in SLIS:
        assert set(one.families) <= known
        assert all(map(is_kept, one.families))
        assert one.definition.endswith(".")
        assert one.window_s


def test_nothing_measured_is_no_data_and_no_routers_is_not_applicable(watched: Watched) -> None:
    watched.look()
    assert {one.sli.name: one.state for one in watched.core.indicators(watched.now_s)} == {
        **{one.name: NO_DATA for one in SLIS},
        "router-assignment": NOT_APPLICABLE,
    }
    assert all(one.state in (NO_DATA, NOT_APPLICABLE) for one in watched.core.objectives(watched.now_s))


def test_the_error_rate_of_publish_is_the_rate_that_was_injected(watched: Watched) -> None:
    for code, number in {"OK": 960, "UNAVAILABLE": 30, "NOT_FOUND": 10, "CANCELLED": 500}.items():
        watched.add("syncpoint_calls_total", number, *PUBLISH, code)
    watched.look()
    found = values(watched)["publish-success"]
    assert (found.state, found.value, found.events) == (MEASURED, pytest.approx(0.97), 1000)


def test_the_time_to_write_to_disk_is_the_delay_that_was_injected(watched: Watched) -> None:
    watched.note("syncpoint_disk_commit_seconds", 0.2, 1000, "0", "/disk-1")
    watched.look()
    assert 0.1 < values(watched)["storage-write-time"].value <= 0.25


@pytest.mark.parametrize(
    ("name", "family", "labels"),
    [
        ("publish-latency", "syncpoint_call_seconds", PUBLISH),
        ("delivery-latency", "syncpoint_delivery_latency_seconds", ()),
        ("create-subscription-time", "syncpoint_call_seconds", ("clients", "Subscriber.CreateSubscription")),
        ("create-topic-time", "syncpoint_call_seconds", ("clients", "Publisher.CreateTopic")),
    ],
)
def test_latencies_are_the_99th_percentile(watched: Watched, name: str, family: str, labels: tuple[str, ...]) -> None:
    watched.note(family, 0.004, 980, *labels)
    watched.note(family, 7.0, 20, *labels)
    watched.look()
    assert 5.0 < values(watched)[name].value <= 10.0


def test_acknowledgements_that_did_not_count_are_failures(watched: Watched) -> None:
    watched.add("syncpoint_subscription_acknowledged_total", 90, "p", "s")
    watched.add("syncpoint_subscription_refused_acks_total", 8, "p", "s")
    watched.add("syncpoint_calls_total", 2, "clients", "Subscriber.Acknowledge", "UNAVAILABLE")
    watched.look()
    assert values(watched)["ack-success"].value == pytest.approx(0.9)


def test_ages_are_the_largest_and_a_subscription_without_subscribers_is_not_late(watched: Watched) -> None:
    watched.put("syncpoint_log_under_replicated_seconds", 5, "0")
    watched.put("syncpoint_log_under_replicated_seconds", 70, "1")
    for name, age_s, subscribers in (("alone", 9000, 0), ("served", 40, 2)):
        watched.put("syncpoint_subscription_oldest_unacked_age_seconds", age_s, "p", name)
        watched.put("syncpoint_subscription_subscribers", subscribers, "p", name)
    watched.look()
    found = values(watched)
    assert found["under-replicated-age"].value == 70
    assert found["delivery-freshness"].state == NO_DATA  # they came a moment ago
    watched.put("syncpoint_subscription_oldest_unacked_age_seconds", 7000, "p", "late")
    for look in range(60):
        watched.put("syncpoint_subscription_subscribers", look % 7 > 0, "p", "late")  # pulls now and then
        watched.look()
    assert values(watched)["delivery-freshness"].value == 40


def test_router_answers_count_once_there_are_routers(watched: Watched) -> None:
    watched.put("syncpoint_members", 2, "router")
    watched.look()
    assert values(watched)["router-assignment"].state == NO_DATA
    watched.note("syncpoint_call_seconds", 0.001, 90, "members", "Router.Route")
    watched.note("syncpoint_call_seconds", 3.0, 6, "members", "Router.Route")
    watched.note("syncpoint_call_seconds", 0.001, 4, "members", "Router.Route")
    watched.add("syncpoint_calls_total", 4, "members", "Router.Route", "UNAVAILABLE")
    watched.look()
    assert values(watched)["router-assignment"].value == pytest.approx(0.9)
