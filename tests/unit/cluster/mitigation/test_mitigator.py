"""Mitigation: who is drained, who is put back and when, and what the budget keeps. By a fake clock."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.cluster.mitigation.drain_budget import BudgetedProcess, budget_refusal
from syncpoint.cluster.mitigation.health_reports import HealthReport, ReportedDisk, report_of
from syncpoint.cluster.mitigation.mitigator import (
    MARK,
    MitigationAction,
    MitigationDecision,
    MitigationMode,
    MitigationSettings,
    Mitigator,
)
from syncpoint.cluster.mitigation.sickness import HealthVerdict, ProcessHealth, SicknessLimits
from syncpoint.cluster.mitigation.trouble import TroubleCause
from syncpoint.cluster.mitigation.zones import ABSENT_S, FORGOTTEN_S

pytestmark = pytest.mark.shows("mitigation")

LIMITS = SicknessLimits(loop_lag_s=0.5, bad_looks=3, window_s=30, probation_s=60)
ACT = MitigationSettings(MitigationMode.ACT, LIMITS, share=0.34)
DRAIN, UNDRAIN, REFUSED = MitigationAction


class Cluster:
    """Members, their reports, and drains that are carried out."""

    def __init__(self, *names: str, role: str = "publish-forwarder", zones: Sequence[str] = ()) -> None:
        self.now = 0.0
        self.drains: dict[str, str] = {}
        self.lags: dict[str, float] = dict.fromkeys(names, 0.0)
        self.failed: dict[str, int] = {}  # of 100 calls
        self.disks: dict[str, dict[str, ReportedDisk]] = {}  # by owner, by process that serves them
        self.looks = 0
        self.role, self.zones = role, dict(zip(names, zones, strict=False))
        self.mitigator = Mitigator(ACT)
        self.decisions: list[MitigationDecision] = []

    def processes(self) -> list[BudgetedProcess]:
        return [
            BudgetedProcess(
                name, ("storage" if name.startswith("s") else self.role,), self.zones.get(name, ""), name in self.drains
            )
            for name in self.lags
        ]

    def look(self, *, act: bool = True) -> list[MitigationDecision]:
        self.now += 2
        self.looks += 1
        reports = {
            name: HealthReport(self.looks, lag, self.failed.get(name, 0), 100, self.disks.get(name, {}))
            for name, lag in self.lags.items()
        }
        found = self.mitigator.step(self.now, self.processes(), reports, self.drains)
        for one in found if act else ():
            if one.action is DRAIN:
                self.drains[one.process] = MARK + one.reason
            elif one.action is UNDRAIN:
                del self.drains[one.process]
        self.decisions += found
        return found

    def pass_time(self, seconds: float) -> list[MitigationDecision]:
        return [one for _ in range(int(seconds / 2)) for one in self.look()]


def test_one_late_look_is_no_sickness_and_three_are() -> None:
    cluster = Cluster("a", "b", "c")
    cluster.lags["a"] = 1.2
    assert cluster.look() == []
    cluster.lags["a"] = 0.0
    assert cluster.pass_time(40) == []
    cluster.lags["a"] = 1.2
    assert [one[:2] for one in cluster.pass_time(6)] == [(DRAIN, "a")]
    assert "late 3 times in 30 s, by up to 1.2 s" in cluster.decisions[-1].reason


def test_it_is_put_back_after_its_probation_which_begins_again_with_every_late_look() -> None:
    cluster = Cluster("a", "b", "c")
    cluster.lags["a"] = 1.0
    cluster.pass_time(6)
    cluster.lags["a"] = 0.0
    assert cluster.pass_time(50) == []
    cluster.lags["a"] = 1.0
    cluster.look()
    cluster.lags["a"] = 0.0
    assert cluster.pass_time(58) == []
    assert [one[:2] for one in cluster.pass_time(4)] == [(UNDRAIN, "a")]
    assert not cluster.drains


def test_a_report_that_is_not_renewed_counts_once() -> None:
    mitigator = Mitigator(ACT)
    two = [BudgetedProcess(name, ("proxy",), "", False) for name in ("a", "b")]
    for now in range(0, 20, 2):
        assert mitigator.step(float(now), two, {"a": HealthReport(1, 9.0)}, {}) == []


def test_drains_of_operators_are_left_alone() -> None:
    cluster = Cluster("a", "b", "c")
    cluster.drains["a"] = "new disks"
    assert cluster.pass_time(300) == []


def test_a_router_that_takes_over_goes_on_with_what_the_last_one_drained() -> None:
    cluster = Cluster("a", "b", "c")
    cluster.lags["a"] = 1.0
    cluster.pass_time(6)
    cluster.lags["a"] = 0.0
    cluster.mitigator = Mitigator(ACT)
    assert cluster.pass_time(58) == []
    assert [one[:2] for one in cluster.pass_time(4)] == [(UNDRAIN, "a")]


def test_of_many_that_are_sick_only_as_many_are_drained_as_the_budget_allows() -> None:
    cluster = Cluster(*"abcdef")
    cluster.lags = dict.fromkeys("abcdef", 2.0)
    cluster.pass_time(20)
    assert len(cluster.drains) == 2
    assert any(one.action is REFUSED and "2 of 6" in one.reason for one in cluster.decisions)


def test_the_last_of_a_role_and_what_holds_disks_stay() -> None:
    for cluster in (Cluster("a"), Cluster("a", "b", "c", role="storage")):
        cluster.lags["a"] = 2.0
        cluster.pass_time(20)
        assert not cluster.drains
        assert {one.action for one in cluster.decisions} == {REFUSED}


def test_one_zone_at_a_time() -> None:
    cluster = Cluster(*"abcdef", zones="xxyyzz")
    cluster.lags |= {"a": 2.0, "c": 2.0}
    cluster.pass_time(20)
    assert list(cluster.drains) == ["a"]


def test_off_decides_nothing() -> None:
    mitigator = Mitigator(MitigationSettings(MitigationMode.OFF))
    assert mitigator.step(0.0, [BudgetedProcess("a", ("proxy",), "", False)], {"a": HealthReport(1, 9.0)}, {}) == []


@given(
    draining=st.lists(st.booleans(), min_size=1, max_size=12),
    zones=st.lists(st.sampled_from(["x", "y"]), min_size=12, max_size=12),
    share=st.floats(0.01, 1.0),
)
def test_whatever_is_drained_a_role_is_never_empty(draining: list[bool], zones: list[str], share: float) -> None:
    processes = [
        BudgetedProcess(str(number), ("proxy",), zone, out)
        for number, (out, zone) in enumerate(zip(draining, zones, strict=False))
    ]
    drained = []
    for one in processes:
        if not one.draining and not budget_refusal(one.name, processes, share):
            processes = [p._replace(draining=True) if p.name == one.name else p for p in processes]
            drained.append(one.name)
    if drained:
        assert any(not one.draining for one in processes)
        assert sum(one.draining for one in processes) <= max(1, int(share * len(processes)))


def test_what_recovers_is_not_well_at_once() -> None:
    health = ProcessHealth(LIMITS)
    for now in (0.0, 2.0, 4.0):
        health.note(now, TroubleCause.LATE_LOOP, 1.0)
    assert health.verdict(5.0) is HealthVerdict.SICK
    assert health.verdict(40.0) is HealthVerdict.RECOVERING
    assert health.verdict(64.0) is HealthVerdict.WELL


@pytest.mark.parametrize("name", ["z", "b"])
def test_who_is_not_there_is_not_drained(name: str) -> None:
    one = BudgetedProcess("b", ("proxy",), "", False)
    assert budget_refusal(name, [one], 1.0)


def test_who_fails_alone_is_drained_and_put_back() -> None:
    cluster = Cluster("a", "b", "c", role="proxy")
    cluster.failed["a"] = 40
    assert [one[:2] for one in cluster.pass_time(6)] == [(DRAIN, "a")]
    assert cluster.decisions[-1].cause == "errors"
    assert "its calls failed, and not those of its peers, 3 times in 30 s, up to 40%" in cluster.decisions[-1].reason
    cluster.failed.clear()
    assert [one[:2] for one in cluster.pass_time(64)] == [(UNDRAIN, "a")]


@pytest.mark.parametrize("failed", [{"a": 40, "b": 35, "c": 30}, {"a": 19}, {"a": 40, "b": 20}])
def test_what_most_peers_have_too_or_is_little_is_nobodys_own_fault(failed: dict[str, int]) -> None:
    cluster = Cluster("a", "b", "c", role="proxy")
    cluster.failed |= failed
    cluster.pass_time(60)
    assert ("a" in cluster.drains) == (failed == {"a": 40, "b": 20}), "one of two peers is not most of them"


def test_few_calls_say_nothing() -> None:
    mitigator = Mitigator(ACT)
    three = [BudgetedProcess(name, ("proxy",), "", False) for name in "abc"]
    for now in range(0, 60, 2):
        assert mitigator.step(float(now), three, {"a": HealthReport(now, 0.0, 19, 19)}, {}) == []


def disks(p99_s: float = 0.0, *, failing: bool = False) -> dict[str, ReportedDisk]:
    return {"s1": ReportedDisk(p99_s, failing)}


def test_who_serves_a_disk_that_is_slower_than_others_is_drained_for_as_long_as_it_is() -> None:
    cluster = Cluster("a", "b", "s1", "s2", "s3")
    cluster.disks["a"] = disks(0.5)
    assert [one[:2] for one in cluster.pass_time(6)] == [(DRAIN, "s1")]
    assert cluster.decisions[-1].cause == "slow disk"
    assert cluster.pass_time(200) == [], "it is still slow"
    cluster.disks.clear()
    assert cluster.pass_time(56) == []
    assert [one[:2] for one in cluster.pass_time(8)] == [(UNDRAIN, "s1")]


def test_disks_that_are_all_slow_are_nobodys_fault_nor_are_those_of_an_owner_that_is_late() -> None:
    cluster = Cluster("a", "b", "s1", "s2", "s3")
    cluster.disks["a"] = {name: ReportedDisk(0.5, failing=False) for name in ("s1", "s2", "s3")}
    cluster.pass_time(60)
    assert cluster.decisions == []
    cluster.disks["a"] = disks(2.5)
    cluster.lags["a"] = 1.0
    cluster.pass_time(60)
    assert list(cluster.drains) == ["a"]


def test_who_serves_a_disk_that_fails_is_drained_and_only_one_of_three() -> None:
    cluster = Cluster("a", "b", "s1", "s2", "s3")
    cluster.disks["a"] = disks(failing=True)
    assert [one[:2] for one in cluster.pass_time(6)] == [(DRAIN, "s1")]
    assert cluster.decisions[-1].cause == "failing disk"
    cluster.disks["b"] = {"s2": ReportedDisk(9.0, failing=False)}
    cluster.pass_time(60)
    assert list(cluster.drains) == ["s1"]
    assert any(one.action is REFUSED and one.process == "s2" and "1 of 3" in one.reason for one in cluster.decisions)


def test_the_only_one_that_serves_disks_has_nobody_to_be_compared_with() -> None:
    cluster = Cluster("a", "b", "s1")
    cluster.disks["a"] = disks(9.0, failing=True)
    assert cluster.pass_time(60) == []


def test_what_is_left_of_a_lost_zone_is_drained_only_within_the_budget() -> None:
    cluster = Cluster(*"abcdef", zones="xxyyzz")
    cluster.look()
    for name in "ab":
        del cluster.lags[name]
    cluster.lags["c"] = 2.0
    cluster.pass_time(20)
    assert cluster.mitigator.zones.lost == ["x"]
    assert not cluster.drains
    assert "2 of 6 of the role publish-forwarder are out of service already" in cluster.decisions[-1].reason
    following = Mitigator(ACT)
    following.zones.recall(cluster.mitigator.zones.written())
    cluster.mitigator = following
    cluster.pass_time(20)
    assert (following.zones.lost, cluster.drains) == (["x"], {})
    cluster.lags |= {"a": 0.0, "b": 0.0}
    cluster.pass_time(4)
    assert following.zones.lost == []
    assert list(cluster.drains) == ["c"], "all are there again"


def test_a_process_that_was_taken_away_is_no_lost_zone_and_a_lost_zone_is_forgotten_in_the_end() -> None:
    cluster = Cluster(*"abcd", zones="xxyy")
    cluster.look()
    del cluster.lags["a"]
    cluster.look()
    assert cluster.mitigator.zones.lost == []
    cluster.pass_time(ABSENT_S)
    del cluster.lags["b"]
    cluster.look()
    assert [one.name for one in cluster.mitigator.zones.lost_processes()] == ["b"]
    cluster.now += FORGOTTEN_S
    cluster.look()
    assert cluster.mitigator.zones.lost == []


@pytest.mark.parametrize("zones", ["", "xyz", "xxx"])
def test_who_is_missing_counts_as_out_of_service(zones: str) -> None:
    cluster = Cluster(*"abc", zones=zones)
    cluster.look()
    del cluster.lags["a"]
    cluster.look()
    following = Mitigator(ACT)  # the router died, too
    following.zones.recall(cluster.mitigator.zones.written())
    cluster.mitigator = following
    cluster.lags["b"] = 2.0
    cluster.pass_time(20)
    assert not cluster.drains
    assert "1 of 3 of the role publish-forwarder are out of service already" in cluster.decisions[-1].reason
    cluster.lags["a"] = 0.0
    cluster.pass_time(4)
    assert list(cluster.drains) == ["b"], "all are there again"


@pytest.mark.parametrize("zones", ["", "xxx"])
def test_who_is_gone_for_long_was_taken_away_and_counts_no_more(zones: str) -> None:
    cluster = Cluster(*"abc", zones=zones)
    cluster.look()
    del cluster.lags["a"]
    cluster.pass_time(ABSENT_S - 2)
    assert [one.name for one in cluster.mitigator.zones.missing()] == ["a"]
    cluster.pass_time(6)
    assert cluster.mitigator.zones.missing() == []


def test_a_zone_whose_processes_go_one_after_the_other_is_lost_with_all_of_them() -> None:
    cluster = Cluster(*"abcdef", zones="xxyyzz")
    cluster.look()
    for name in "ab":
        del cluster.lags[name]
        cluster.look()
    assert [one.name for one in cluster.mitigator.zones.lost_processes()] == ["a", "b"]
    cluster.lags["c"] = 2.0
    cluster.pass_time(20)
    assert not cluster.drains


def test_a_drained_process_that_was_away_is_watched_as_long_as_any_other_before_it_is_put_back() -> None:
    cluster = Cluster(*"abcd")
    cluster.lags["a"] = 2.0
    cluster.pass_time(20)
    assert list(cluster.drains) == ["a"]
    del cluster.lags["a"]
    cluster.look()
    cluster.lags["a"] = 0.0
    cluster.pass_time(30)
    assert list(cluster.drains) == ["a"]
    cluster.pass_time(60)
    assert not cluster.drains


def test_each_relapse_doubles_the_probation() -> None:
    health, now, probations = ProcessHealth(LIMITS), 0.0, []
    for _ in range(5):
        for _ in range(3):
            now += 2
            health.note(now, TroubleCause.ERRORS, 0.5)
        begun = now
        while health.verdict(now) is not HealthVerdict.WELL:
            now += 2
        probations.append(now - begun)
    assert probations == [60, 120, 240, 480, 480]


def test_a_report_of_an_older_version_is_well() -> None:
    assert report_of({"topics": {}}) == HealthReport((0, 0))
    read = report_of({"late_looks": 1, "bad_reports": 2, "failed_calls": [3, 4], "disks": {"s1": [0.5, 1]}})
    assert read == HealthReport((1, 2), 0.0, 3, 4, {"s1": ReportedDisk(0.5, failing=True)})
