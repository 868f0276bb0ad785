"""Alerts from looks: durability pages at once, budgets by two windows; five minutes to acknowledge; a week on call."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from syncpoint.base.model.errors import InvalidArgument, NotFound
from syncpoint.watch.monitor.alert_machine import (
    FIRED,
    PASSED_ON,
    RESOLVED,
    Alert,
    AlertMachine,
    AlertSilence,
    Notification,
)
from syncpoint.watch.monitor.alert_rules import THRESHOLD_RULES, AlertCondition
from syncpoint.watch.monitor.monitor_settings import parse_monitor
from syncpoint.watch.monitor.on_call import Person
from tests.unit.watch.monitor.conftest import BEGIN_S, Watched

SUN = """
people:
  ana: {command: ["true"]}
  ben: {command: ["true"]}
  cho: {command: ["true"]}
  dee: {command: ["true"]}
  eve: {command: ["true"]}
on_call:
  sites:
    - {name: zurich, timezone: Europe/Zurich, hours: "07:00-16:00", people: [ana, ben]}
    - {name: denver, timezone: America/Denver, hours: "07:00-17:00", people: [cho]}
    - {name: sydney, timezone: Australia/Sydney, hours: "08:00-18:00", people: [dee]}
  last: [eve]
"""


def following_the_sun(path: str = ":memory:") -> Watched:
    return Watched(parse_monitor(yaml.safe_load(SUN)), path)


def reported(some: Iterable[Notification]) -> list[tuple[str, str, str]]:
    return [(one.alert.rule, one.person.name, one.why) for one in some]


def condition(rule: str = "DiskDead", severity: str = "page", **labels: str) -> AlertCondition:
    return AlertCondition(rule, tuple(sorted(labels.items())), severity, f"{rule}.")


def test_a_week_on_call_has_no_gap_and_every_page_reaches_somebody_within_five_minutes() -> None:
    """Every hour of a week a disk dies: nobody answers every third time, and then it goes on and on."""
    schedule = following_the_sun().settings.schedule(BEGIN_S)
    names = iter(range(10_000))
    machine = AlertMachine(schedule.chain, lambda: f"a{next(names)}", people=schedule.people)
    at_s, active, firing = BEGIN_S, [], {}
    for step in range(7 * 24 * 60):
        now_s = at_s + 60 * step
        assert schedule.chain(now_s), datetime.fromtimestamp(now_s, UTC)
        on_call = next(site for site in schedule.sites if site.covers(datetime.fromtimestamp(now_s, UTC)))
        if step % 60 == 0:
            active = [condition(disk=str(step))]
        sent = machine.looked(active if step % 60 < 50 else [], now_s)
        for alert, person, why in sent:
            if why == FIRED:
                assert person.name in on_call.people
            firing.setdefault(alert.alert, []).append((now_s, person.name, why))
            if why == FIRED and (step // 60) % 3:
                machine.acknowledge(alert.alert, person.name, now_s + 30)
    assert len(firing) == 7 * 24
    for number, events in enumerate(firing.values()):
        begun = [one for one in events if one[2] != RESOLVED]
        if number % 3:
            assert len(begun) == 1  # acknowledged: passed on to nobody
        else:
            assert all(later[0] - earlier[0] <= 300 for earlier, later in pairwise(begun))
            assert {"eve", begun[0][1]} <= {name for _, name, _ in begun}
            assert begun[1][2] == PASSED_ON
        assert {name for _, name, why in events if why == RESOLVED} == {name for _, name, why in begun}


def test_a_schedule_with_a_gap_is_refused_with_its_first_moment() -> None:
    broken = SUN.replace('"08:00-18:00"', '"10:00-17:00"')
    settings = parse_monitor(yaml.safe_load(broken))
    with pytest.raises(InvalidArgument, match="no one is on call on"):
        settings.schedule(BEGIN_S)


@pytest.mark.parametrize("begin", ["2026-03-01", "2026-10-20"])
def test_changes_of_daylight_saving_time_are_within_the_year_that_is_checked(begin: str) -> None:
    schedule = following_the_sun().settings.schedule(BEGIN_S)
    at_s = datetime.fromisoformat(begin).replace(tzinfo=UTC).timestamp()
    assert list(schedule.gaps(at_s, timedelta(days=30))) == []


@pytest.mark.parametrize(
    ("family", "labels", "rule"),
    [
        ("syncpoint_disk_unreadable_places", ("0", "/d1"), "MessagesUnreadable"),
        ("syncpoint_disk_damages_total", ("0", "/d1"), "DataCorrupted"),
        ("syncpoint_log_too_few_disks", ("0",), "BelowPolicy"),
        ("syncpoint_disk_state", ("0", "/d1", "failed"), "DiskDead"),
        ("syncpoint_log_ended", ("0",), "LogEnded"),
        ("syncpoint_chain_below_policy", ("0",), "PlacedBelowPolicy"),
        ("syncpoint_log_full", ("0",), "DisksFull"),
    ],
)
def test_durability_pages_at_the_first_look(family: str, labels: tuple[str, ...], rule: str) -> None:
    watched = following_the_sun()
    watched.put(family, 0, *labels)
    assert watched.look() == []
    watched.put(family, 1, *labels)
    found = reported(watched.look())
    assert (rule, watched.core.schedule.chain(watched.now_s)[0].name, FIRED) in found
    assert watched.look() == []  # once
    watched.put(family, 0, *labels)
    ended = [one for _ in range(40) for one in watched.look() if one.why == RESOLVED and one.alert.rule == rule]
    assert len(ended) == 1 or rule == "DataCorrupted"  # that one is unacknowledged, and was passed on


def test_under_replication_pages_after_a_minute_of_it_and_a_silent_process_after_half_a_minute() -> None:
    watched = following_the_sun()
    watched.put("syncpoint_log_under_replicated_seconds", 59, "0")
    assert watched.look() == []
    watched.put("syncpoint_log_under_replicated_seconds", 61, "0")
    assert [one[0] for one in reported(watched.look())] == ["UnderReplicated"]
    silent = following_the_sun()
    silent.look()
    rules = [one[0] for _ in range(5) for one in reported(silent.look(silent=True))]
    assert rules == ["ProcessUnanswered"]


def test_every_rule_of_thresholds_reads_what_there_is() -> None:
    from syncpoint.watch.metrics.family_table import FAMILIES

    known = {one.name for one in FAMILIES} | {"syncpoint_monitor_unanswered"}
    assert {one.numbers.name for one in THRESHOLD_RULES} <= known


def test_create_subscription_above_five_seconds_spends_the_budget_and_pages() -> None:
    watched, call = following_the_sun(), ("clients", "Subscriber.CreateSubscription")
    for _ in range(60):
        watched.note("syncpoint_call_seconds", 0.5, 10, *call)
        assert watched.look(60) == []
    found: list[tuple[str, str, str]] = []
    for _ in range(60):
        watched.note("syncpoint_call_seconds", 8.0, 3, *call)
        watched.note("syncpoint_call_seconds", 0.5, 7, *call)
        found += reported(watched.look(60))
    assert ("ErrorBudgetBurnsFast", found[0][1], FIRED) in found
    (alert,) = [one for one in watched.core.alerts(0) if one.severity == "page"]
    assert dict(alert.labels) == {"slo": "create-subscription-time"}
    state = {one.objective.name: one for one in watched.core.objectives(watched.now_s)}["create-subscription-time"]
    assert 0.94 < state.left < 0.97  # an hour of 30% in a month of which two were watched
    ended: list[tuple[str, str, str]] = []
    for _ in range(30):  # the short window is over soon after its cause
        watched.note("syncpoint_call_seconds", 0.5, 10, *call)
        ended += reported(watched.look(60))
    assert "ErrorBudgetBurnsFast" in {rule for rule, _, why in ended if why == RESOLVED}


def test_minutes_of_data_do_not_spend_the_budget_of_a_month_and_an_outage_pages_all_the_same() -> None:
    call = ("clients", "Publisher.Publish")
    young = following_the_sun()
    for _ in range(6 * 10):  # a tenth is slow while a new server warms up
        young.note("syncpoint_call_seconds", 0.9, 10, *call)
        young.note("syncpoint_call_seconds", 0.01, 90, *call)
        assert young.look() == []
    state = {one.objective.name: one for one in young.core.objectives(young.now_s)}["publish-latency"]
    assert state.left > 0.99
    broken = following_the_sun()
    found: list[tuple[str, str, str]] = []
    for _ in range(6 * 10):
        broken.add("syncpoint_calls_total", 50, *call, "UNAVAILABLE")
        found += reported(broken.look())
    assert ("ErrorBudgetBurnsFast", FIRED) in {(rule, why) for rule, _, why in found}


def test_a_slow_burn_is_a_ticket_and_one_within_the_budget_is_nothing() -> None:
    for bad, expected in ((1, {"ErrorBudgetBurns"}), (0, set())):
        watched, rules = following_the_sun(), set()
        for _ in range(4 * 24 * 2):
            watched.add("syncpoint_calls_total", 500 - bad, "clients", "Publisher.Publish", "OK")
            watched.add("syncpoint_calls_total", bad, "clients", "Publisher.Publish", "INTERNAL")
            rules |= {one[0] for one in reported(watched.look(1800))}
        assert rules == expected


def test_an_alert_that_is_acknowledged_survives_a_restart_and_escalates_no_more(tmp_path: Path) -> None:
    watched = following_the_sun(str(tmp_path / "m.sqlite"))
    watched.put("syncpoint_log_full", 1, "0")
    (first,) = watched.look()
    watched.restart()
    assert [(one.alert.alert, one.person.name) for one in watched.core.machine.unsent()] == [
        (first.alert.alert, first.person.name)
    ]
    assert [one for _ in range(29) for one in watched.look()] == []
    (second,) = watched.look()
    assert (second.alert.alert, second.why, second.alert.level) == (first.alert.alert, PASSED_ON, 1)
    watched.core.acknowledge(first.alert.alert, "ben", watched.now_s)
    watched.restart()
    assert [one for _ in range(100) for one in watched.look()] == []
    (kept,) = watched.core.alerts(10)
    assert (kept.acknowledged_by, kept.resolved_s) == ("ben", 0.0)
    watched.put("syncpoint_log_full", 0, "0")
    assert {one.why for _ in range(7) for one in watched.look()} == {RESOLVED}
    watched.restart()
    (over,) = watched.core.alerts(10)
    assert over.resolved_s
    with pytest.raises(NotFound):
        watched.core.acknowledge(over.alert, "ben", watched.now_s)


def test_alerts_are_sent_while_the_disk_is_full_and_kept_once_it_has_room(tmp_path: Path) -> None:
    watched = following_the_sun(str(tmp_path / "m.sqlite"))
    watched.look()
    database = watched.file.history.database
    (pages,) = database.execute("pragma page_count").fetchone()
    database.execute(f"pragma max_page_count={pages}")
    for number in range(200):  # what is free in the file is used up
        watched.put("syncpoint_subscription_subscribers", 1, "p", f"s{number}")
    watched.put("syncpoint_log_full", 1, "0")
    sent = [one for _ in range(20) for one in watched.look()]
    assert [one.why for one in sent] == [FIRED]
    assert watched.core.full
    assert not database.in_transaction
    database.execute("pragma max_page_count=1000000")
    watched.look()
    assert not watched.core.full
    watched.restart()
    (kept,) = watched.core.alerts(10)
    assert (kept.alert, kept.resolved_s) == (sent[0].alert.alert, 0.0)
    counted, _ = watched.file.month("2026-09")
    assert counted


def test_what_cannot_be_sent_goes_to_the_next_person_at_once() -> None:
    watched = following_the_sun()
    watched.put("syncpoint_log_full", 1, "0")
    (first,) = watched.look()
    watched.core.machine.not_sent(first.alert, first.person.name, FIRED, "no answer", watched.now_s)
    (second,) = watched.look()
    assert second.person.name != first.person.name
    assert any("could not be notified" in text for _, text in second.alert.events)


def test_a_silence_keeps_quiet_until_its_end_and_survives_a_restart(tmp_path: Path) -> None:
    watched = following_the_sun(str(tmp_path / "m.sqlite"))
    asked = AlertSilence("", "Disk*", (("chain", "0"),), watched.now_s + 600, "ana", "new disks")
    made = watched.core.silence(asked, watched.now_s)
    watched.restart()
    watched.put("syncpoint_log_full", 1, "0")
    assert [one for _ in range(58) for one in watched.look()] == []
    (alert,) = watched.core.alerts(0)
    assert alert.silenced
    assert [one.why for _ in range(4) for one in watched.look()] == [FIRED]
    with pytest.raises(NotFound):
        watched.core.end_silence(made.silence)
    with pytest.raises(InvalidArgument):
        watched.core.silence(asked, watched.now_s)


def test_without_people_alerts_are_listed_all_the_same(watched: Watched) -> None:
    watched.put("syncpoint_log_full", 1, "0")
    assert watched.look() == []
    assert [one.rule for one in watched.core.alerts(0)] == ["DisksFull"]


def test_an_alert_is_kept_whole() -> None:
    machine = AlertMachine(lambda now_s: [Person("ana")], lambda: "a1")
    (sent,) = machine.looked([condition(chain="1")], 5.0)
    assert Alert.of(json.loads(json.dumps(sent.alert.kept()))) == sent.alert
