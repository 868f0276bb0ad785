"""Mitigation: who is drained, who is put back and when, and what the budget keeps. By a fake clock."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.mitigation.drain_budget import BudgetedProcess, budget_refusal
from syncpoint.mitigation.mitigator import (
    MARK,
    MitigationAction,
    MitigationDecision,
    MitigationMode,
    MitigationSettings,
    Mitigator,
)
from syncpoint.mitigation.sickness import HealthVerdict, ProcessHealth, SicknessLimits

LIMITS = SicknessLimits(loop_lag_s=0.5, bad_looks=3, window_s=30, probation_s=60)
ACT = MitigationSettings(MitigationMode.ACT, LIMITS, share=0.34)
DRAIN, UNDRAIN, REFUSED = MitigationAction


class Cluster:
    """Members, their reports, and drains that are carried out."""

    def __init__(self, *names: str, role: str = "publish-forwarder", zones: Sequence[str] = ()) -> None:
        self.now = 0.0
        self.drains: dict[str, str] = {}
        self.lags: dict[str, float] = dict.fromkeys(names, 0.0)
        self.looks = 0
        self.role, self.zones = role, dict(zip(names, zones, strict=False))
        self.mitigator = Mitigator(ACT)
        self.decisions: list[MitigationDecision] = []

    def processes(self) -> list[BudgetedProcess]:
        return [
            BudgetedProcess(name, (self.role,), self.zones.get(name, ""), name in self.drains) for name in self.lags
        ]

    def look(self, *, act: bool = True) -> list[MitigationDecision]:
        self.now += 2
        self.looks += 1
        reports = {name: (self.looks, lag) for name, lag in self.lags.items()}
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
        assert mitigator.step(float(now), two, {"a": (1, 9.0)}, {}) == []


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
    assert mitigator.step(0.0, [BudgetedProcess("a", ("proxy",), "", False)], {"a": (1, 9.0)}, {}) == []


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
        health.note(now, 1.0)
    assert health.verdict(5.0) is HealthVerdict.SICK
    assert health.verdict(40.0) is HealthVerdict.RECOVERING
    assert health.verdict(64.0) is HealthVerdict.WELL


@pytest.mark.parametrize("name", ["z", "b"])
def test_who_is_not_there_is_not_drained(name: str) -> None:
    one = BudgetedProcess("b", ("proxy",), "", False)
    assert budget_refusal(name, [one], 1.0)
