"""One cause is one notification: what follows from a process that is gone is listed under it."""

from __future__ import annotations

import pytest
import yaml

from syncpoint.watch.monitor.alert_causes import LINGER_S, MOVING_S
from syncpoint.watch.monitor.alert_machine import FIRED, RESOLVED
from syncpoint.watch.monitor.monitor_core import ProcessText
from syncpoint.watch.monitor.monitor_settings import parse_monitor
from tests.unit.watch.monitor.conftest import Watched
from tests.unit.watch.monitor.test_alerts import SUN

SERVED = "syncpoint_chain_disk"
BUDGETS = {"ErrorBudgetBurns", "ErrorBudgetBurnsFast"}


class Cluster(Watched):
    """The owner of two chains answers with `text`; `storage-2` serves one disk of each."""

    def __init__(self) -> None:
        super().__init__(parse_monitor(yaml.safe_load(SUN)))
        for chain in ("1", "2"):
            for number in (1, 2, 3):
                self.put(SERVED, 1, chain, f"/c{number}/d1", f"storage-{number}")
                self.put("syncpoint_disk_failures_total", 0, chain, f"/c{number}/d1")

    def watch_for_days(self) -> None:
        """Until there is enough of everything to judge a budget by."""
        self.publish(1)
        self.pass_time(10, gone=False)
        self.now_s += 3 * 86_400

    def pass_time(self, seconds: float, *, gone: bool) -> list[tuple[str, str, str]]:
        """(rule, summary, why) of what was notified of."""
        sent = []
        for _ in range(int(seconds / 10)):
            self.now_s += 10
            texts = [ProcessText("owner", {"process": "owner"}, self.text(), True)]
            texts.append(ProcessText("storage-2", {"process": "storage-2"}, None if gone else b"", True))
            sent += [(one.alert.rule, one.alert.summary, one.why) for one in self.core.look(texts, self.now_s)]
        return sent

    def publish(self, good: int, bad: int = 0) -> None:
        """Clients were answered."""
        for number, code in ((good, "OK"), (bad, "UNAVAILABLE")):
            self.add("syncpoint_calls_total", number, "clients", "Publisher.Publish", code)

    def lack(self, number: int = 2, *, lacking: bool = True) -> None:
        """The disks of a storage process are away."""
        for chain in ("1", "2"):
            if lacking:
                self.add("syncpoint_disk_failures_total", 1, chain, f"/c{number}/d1")
            self.put("syncpoint_disk_state", int(lacking), chain, f"/c{number}/d1", "failed")
            self.put("syncpoint_at_risk_unborne_disks", int(lacking), chain)
            self.put("syncpoint_log_under_replicated_seconds", 100 if lacking else 0, chain)


def test_a_storage_process_that_is_gone_is_one_page_with_what_follows() -> None:
    cluster = Cluster()
    assert cluster.pass_time(20, gone=False) == []
    sent = cluster.pass_time(10, gone=True)
    cluster.lack()
    sent += cluster.pass_time(120, gone=True)
    assert [(rule, why) for rule, _, why in sent] == [("ProcessUnanswered", FIRED)]
    listed = {one.rule for one in cluster.core.alerts(0)} - BUDGETS
    assert listed == {"ProcessUnanswered", "DiskDead", "DiskGivenUp", "MessagesAtRisk", "UnderReplicated"}
    summary = sent[0][1]
    for expected in ("DiskGivenUp of chain 1 on /c2/d1, chain 2 on /c2/d1", "UnderReplicated of chain 1, chain 2"):
        assert expected in summary
    assert "MessagesAtRisk" in next(one.summary for one in cluster.core.alerts(0) if one.rule == "ProcessUnanswered")
    cluster.lack(lacking=False)
    ended = cluster.pass_time(LINGER_S + 120, gone=False)
    assert [(rule, why) for rule, _, why in ended] == [("ProcessUnanswered", RESOLVED)]
    assert {one.rule for one in cluster.core.alerts(0)} <= BUDGETS
    assert all(one.follows for one in cluster.core.alerts(0)), "the disks were away for as long as entries lacked them"


def test_what_outlasts_its_cause_is_notified_of() -> None:
    cluster = Cluster()
    cluster.pass_time(20, gone=False)
    cluster.lack()
    cluster.pass_time(60, gone=True)
    quiet = cluster.pass_time(LINGER_S - 30, gone=False)
    assert {rule for rule, _, _ in quiet} == {"ProcessUnanswered"}
    late = cluster.pass_time(60, gone=False)
    assert {(rule, why) for rule, _, why in late} == {("DiskDead", FIRED)}, "the rest follows from that now"


def test_a_dead_disk_is_one_page_with_what_follows() -> None:
    cluster = Cluster()
    cluster.pass_time(20, gone=False)
    cluster.lack(1)
    sent = cluster.pass_time(180, gone=False)
    assert {(rule, why) for rule, _, why in sent} == {("DiskDead", FIRED)}
    assert {one.follows for one in cluster.core.alerts(0) if one.rule == "UnderReplicated"} == {
        "DiskDead of chain 1 on /c1/d1",
        "DiskDead of chain 2 on /c1/d1",
    }
    texts = {one.summary for one in cluster.core.alerts(0) if one.rule == "DiskDead"}
    assert any("DiskGivenUp of chain 1 on /c1/d1; " in one and "MessagesAtRisk of chain 1; " in one for one in texts)


def test_disks_of_others_and_what_held_before_do_not_follow() -> None:
    cluster = Cluster()
    cluster.pass_time(20, gone=False)
    cluster.put("syncpoint_log_under_replicated_seconds", 100, "1")
    cluster.put("syncpoint_disk_state", 1, "2", "/c1/d1", "failed")
    before = {rule for rule, _, _ in cluster.pass_time(20, gone=False)}
    assert before == {"DiskDead", "UnderReplicated"}
    held = {one.alert for one in cluster.core.alerts(0)}
    cluster.pass_time(60, gone=True)
    assert not any(one.follows for one in cluster.core.alerts(0) if one.alert in held)


@pytest.mark.parametrize(
    ("family", "labels", "rule"),
    [
        ("syncpoint_disk_unreadable_places", ("1", "/c2/d1"), "MessagesUnreadable"),
        ("syncpoint_log_too_few_disks", ("1",), "BelowPolicy"),
        ("syncpoint_log_ended", ("1",), "LogEnded"),
        ("syncpoint_chain_unserved_seconds", ("1",), "ChainUnserved"),
    ],
)
def test_what_is_worse_pages_on_its_own(family: str, labels: tuple[str, ...], rule: str) -> None:
    cluster = Cluster()
    cluster.pass_time(20, gone=False)
    cluster.put(family, 9, *labels)
    assert (rule, FIRED) in {(name, why) for name, _, why in cluster.pass_time(10, gone=True)}


def test_what_clients_missed_while_they_moved_is_listed_under_the_process_that_is_gone() -> None:
    cluster = Cluster()
    cluster.watch_for_days()
    for _ in range(30):
        cluster.publish(1000)
        assert cluster.pass_time(10, gone=False) == []
    sent = []
    for look in range(12):
        cluster.publish(500, 500 if look < 2 else 0)
        sent += cluster.pass_time(10, gone=True)
    assert [(rule, why) for rule, _, why in sent] == [("ProcessUnanswered", FIRED)]
    assert "ErrorBudgetBurnsFast of publish-success" in sent[0][1]
    listed = {one.rule: one.follows for one in cluster.core.alerts(0)}
    assert listed.pop("ProcessUnanswered") == ""
    assert listed == dict.fromkeys(BUDGETS, "ProcessUnanswered of storage-2")
    for _ in range(60):  # long after the process is back, the windows of budgets still have it
        cluster.publish(1000)
        sent += cluster.pass_time(10, gone=False)
    assert {(rule, why) for rule, _, why in sent} == {("ProcessUnanswered", FIRED), ("ProcessUnanswered", RESOLVED)}
    assert {one.rule for one in cluster.core.alerts(0)} <= BUDGETS


def test_clients_that_go_on_failing_are_notified_of() -> None:
    cluster = Cluster()
    cluster.watch_for_days()
    for _ in range(30):
        cluster.publish(1000)
        cluster.pass_time(10, gone=False)
    sent: list[tuple[str, str, str]] = []
    for look in range(int(MOVING_S / 10) + 6):
        before = len(sent)
        cluster.publish(500, 500)
        sent += cluster.pass_time(10, gone=True)
        if look * 10 < MOVING_S - 10:
            assert {rule for rule, _, _ in sent[before:]} <= {"ProcessUnanswered"}
    assert {rule for rule, _, why in sent if why == FIRED} >= BUDGETS


def test_a_process_that_is_back_before_anybody_was_notified_explains_nothing() -> None:
    cluster = Cluster()
    cluster.watch_for_days()
    for _ in range(30):
        cluster.publish(1000)
        cluster.pass_time(10, gone=False)
    cluster.publish(500, 500)
    assert cluster.pass_time(20, gone=True) == []
    assert {rule for rule, _, _ in cluster.pass_time(10, gone=False)} == BUDGETS


def test_a_budget_that_was_spent_before_does_not_follow() -> None:
    cluster = Cluster()
    cluster.watch_for_days()
    for _ in range(30):
        cluster.publish(500, 500)
        cluster.pass_time(10, gone=False)
    cluster.publish(500, 500)
    cluster.pass_time(60, gone=True)
    assert all(not one.follows for one in cluster.core.alerts(0) if dict(one.labels).get("slo") == "publish-success")
