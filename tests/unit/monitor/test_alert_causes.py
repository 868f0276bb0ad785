"""One cause is one notification: what follows from a process that is gone is listed under it."""

from __future__ import annotations

import pytest
import yaml

from syncpoint.monitor.alert_causes import LINGER_S
from syncpoint.monitor.alert_machine import FIRED, RESOLVED
from syncpoint.monitor.monitor_core import ProcessText
from syncpoint.monitor.monitor_settings import parse_monitor
from tests.unit.monitor.conftest import Watched
from tests.unit.monitor.test_alerts import SUN

SERVED = "syncpoint_chain_disk"


class Cluster(Watched):
    """The owner of two chains answers with `text`; `storage-2` serves one disk of each."""

    def __init__(self) -> None:
        super().__init__(parse_monitor(yaml.safe_load(SUN)))
        for chain in ("1", "2"):
            for number in (1, 2, 3):
                self.put(SERVED, 1, chain, f"/c{number}/d1", f"storage-{number}")
                self.put("syncpoint_disk_failures_total", 0, chain, f"/c{number}/d1")

    def pass_time(self, seconds: float, *, gone: bool) -> list[tuple[str, str, str]]:
        """(rule, summary, why) of what was notified of."""
        sent = []
        for _ in range(int(seconds / 10)):
            self.now_s += 10
            texts = [ProcessText("owner", {"process": "owner"}, self.text(), True)]
            texts.append(ProcessText("storage-2", {"process": "storage-2"}, None if gone else b"", True))
            sent += [(one.alert.rule, one.alert.summary, one.why) for one in self.core.look(texts, self.now_s)]
        return [one for one in sent if not one[0].startswith("ErrorBudget")]  # of objectives, which are about clients

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
    rules = {one.rule for one in cluster.core.alerts(0) if not one.rule.startswith("ErrorBudget")}
    assert rules == {"ProcessUnanswered", "DiskDead", "DiskGivenUp", "MessagesAtRisk", "UnderReplicated"}  # listed
    summary = sent[0][1]
    for expected in ("DiskGivenUp of chain 1 on /c2/d1, chain 2 on /c2/d1", "UnderReplicated of chain 1, chain 2"):
        assert expected in summary
    assert "MessagesAtRisk" in next(one.summary for one in cluster.core.alerts(0) if one.rule == "ProcessUnanswered")
    cluster.lack(lacking=False)
    ended = cluster.pass_time(LINGER_S + 120, gone=False)
    assert [(rule, why) for rule, _, why in ended] == [("ProcessUnanswered", RESOLVED)]
    assert {one.rule for one in cluster.core.alerts(0)} <= {"ErrorBudgetBurns", "ErrorBudgetBurnsFast"}


def test_what_outlasts_its_cause_is_notified_of() -> None:
    cluster = Cluster()
    cluster.pass_time(20, gone=False)
    cluster.lack()
    cluster.pass_time(60, gone=True)
    quiet = cluster.pass_time(LINGER_S - 30, gone=False)
    assert {rule for rule, _, _ in quiet} == {"ProcessUnanswered"}
    late = cluster.pass_time(60, gone=False)
    assert {(rule, why) for rule, _, why in late} >= {("DiskDead", FIRED), ("UnderReplicated", FIRED)}


def test_disks_of_others_and_what_held_before_do_not_follow() -> None:
    cluster = Cluster()
    cluster.pass_time(20, gone=False)
    cluster.lack(1)
    before = {rule for rule, _, _ in cluster.pass_time(60, gone=False)}
    assert before == {"DiskDead", "DiskGivenUp", "MessagesAtRisk", "UnderReplicated"}
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
