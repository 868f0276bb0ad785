"""What pages of the console ask of a monitor: who is on call, what probers find, who held which chain, what burns."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SystemRandom
from syncpoint.programs.probers.board_page import BoardPage
from syncpoint.programs.probers.judgement import judge
from syncpoint.programs.probers.probe_history import ProbeHistory
from syncpoint.programs.probers.prober_board import ProberBoard
from syncpoint.programs.probers.prober_table import PROBERS
from syncpoint.watch.monitor.alert_rules import AlertCondition
from syncpoint.watch.monitor.burn_rates import RULES
from syncpoint.watch.monitor.kept_families import is_kept
from syncpoint.watch.monitor.monitor_admin import MonitorAdmin
from syncpoint.watch.monitor.monitor_driver import Monitor
from syncpoint.watch.monitor.monitor_settings import MonitorSettings, parse_monitor
from syncpoint.watch.monitor.ownership_log import ChainHolder
from syncpoint.watch.monitor.prober_pages import board_of
from syncpoint.watch.monitor.scrape_sources import once_each, pages
from syncpoint.watch.monitor.sli_table import SLIS
from syncpoint.wire.protobuf.messages import admin

ENDPOINT = "127.0.0.1:8085"


@contextlib.asynccontextmanager
async def monitoring(settings: MonitorSettings, folder: Path, clock: ManualClock) -> AsyncIterator[Monitor]:
    monitor = Monitor(settings, folder, lambda: once_each(pages(settings)), clock, SystemRandom(), look_s=3600.0)
    await monitor.start()
    try:
        yield monitor
    finally:
        await monitor.stop()


@pytest.fixture
def board() -> Iterator[tuple[str, BoardPage]]:
    """A prober program's page, with one run of P2 that was refused."""
    made = ProberBoard(PROBERS[:2], [ENDPOINT])
    history = ProbeHistory("run-1", failure="Publish: RESOURCE_EXHAUSTED: too much")
    made.note("P2", ENDPOINT, history, judge(PROBERS[1], history), 1_790_000_000.0)
    page = BoardPage(made)
    port = page.serve("127.0.0.1", 0)
    yield f"http://127.0.0.1:{port}/metrics", page
    page.close()


def test_probers_are_shown_with_their_texts_and_the_silent_ones_named(
    board: tuple[str, BoardPage], tmp_path: Path
) -> None:
    url, page = board
    assert board_of(url) == url.replace("/metrics", "/probers.json")

    async def work() -> None:
        targets = [{"url": url, "labels": {"process": "prober-1"}}]
        async with monitoring(parse_monitor({"targets": targets}), tmp_path, ManualClock()) as monitor:
            asked = MonitorAdmin(monitor)
            assert not (await asked.list_probers(admin.ListProbersRequest())).probers  # not looked at yet
            await monitor.look()
            found = await asked.list_probers(admin.ListProbersRequest())
            assert not found.unknown
            assert [(one.prober, one.endpoint, one.process) for one in found.probers] == [
                ("P1", ENDPOINT, "prober-1"),
                ("P2", ENDPOINT, "prober-1"),
            ]
            never, refused = found.probers
            assert (never.runs, never.HasField("last_run"), list(never.metrics)) == (0, False, [])
            assert refused.last_run.ToSeconds() == 1_790_000_000
            by_name = {one.name: one for one in refused.metrics}
            assert by_name["P2.success"].verdict == admin.ProberMetric.UNEXPECTED
            assert by_name["P2.correctness"].verdict == admin.ProberMetric.UNKNOWN
            assert not by_name["P2.correctness"].HasField("value")
            assert "RESOURCE_EXHAUSTED" in refused.failures[-1].text
            await asyncio.to_thread(page.close)
            await monitor.look()
            gone = await asked.list_probers(admin.ListProbersRequest())
            assert not gone.probers
            assert gone.unknown[0].startswith(f"prober-1 does not answer at {board_of(url)}")

    asyncio.run(work())


def test_who_is_on_call_is_said_with_what_comes_next(tmp_path: Path) -> None:
    people = {name: {"webhook": "http://127.0.0.1:1/"} for name in ("ana", "ben", "eve")}
    sites = [
        {"name": "day", "hours": "06:00-18:00", "people": ["ana"]},
        {"name": "night", "hours": "18:00-06:00", "people": ["ben"]},
    ]
    content = {"people": people, "on_call": {"sites": sites, "last": ["eve"], "acknowledge_s": 120}}

    async def work() -> None:
        clock = ManualClock()
        async with monitoring(parse_monitor(content), tmp_path, clock) as monitor:
            asked = MonitorAdmin(monitor)
            seen = set()
            for _ in range(2):
                found = await asked.get_on_call(admin.GetOnCallRequest())
                (site,) = [one for one in found.sites if one.on_call]
                first = found.people[0]
                seen.add((site.name, first.name, first.site))
                assert found.people[-1].name == "eve"
                assert (list(first.ways), found.acknowledge_time.seconds) == (["webhook"], 120)
                clock.advance(12 * 3600)
            assert seen == {("day", "ana", "day"), ("night", "ben", "night")}
        async with monitoring(parse_monitor({}), tmp_path / "nobody", clock) as monitor:
            assert not (await MonitorAdmin(monitor).get_on_call(admin.GetOnCallRequest())).people

    asyncio.run(work())


def test_owners_are_shown_from_a_time_on(tmp_path: Path) -> None:
    async def work() -> None:
        clock = ManualClock()
        async with monitoring(parse_monitor({}), tmp_path, clock) as monitor:
            now_s = monitor.now_s
            held = [
                ChainHolder(now_s - age_s, 3, epoch, owner) for age_s, epoch, owner in ((9e4, 1, "a"), (60, 2, "b"))
            ]
            await monitor.ask(lambda core: core.file.owners.note(held))
            asked = MonitorAdmin(monitor)
            found = await asked.list_ownerships(admin.ListOwnershipsRequest())  # of a day, and who held it before
            assert [(one.chain, one.epoch, one.owner) for one in found.changes] == [(3, 1, "a"), (3, 2, "b")]
            recent = admin.ListOwnershipsRequest(start_time={"seconds": int(now_s) - 30})
            assert [one.owner for one in (await asked.list_ownerships(recent)).changes] == ["b"]
            assert found.kept_since.ToSeconds() == int(now_s - 9e4)

    asyncio.run(work())


def test_objectives_say_when_somebody_is_notified_and_where_to_read_on(tmp_path: Path) -> None:
    async def work() -> None:
        async with monitoring(parse_monitor({}), tmp_path, ManualClock()) as monitor:
            found = await MonitorAdmin(monitor).list_slos(admin.ListSlosRequest())
            assert [one.rate for one in found.burn_rules] == [one.rate for one in RULES]
            assert all(one.runbook.endswith("#errorbudgetburnsfast") for one in found.slos)
            slis = (await MonitorAdmin(monitor).list_slis(admin.ListSlisRequest())).slis
            assert all(one.parts for one in slis)

    asyncio.run(work())


def test_an_alert_names_the_alert_that_it_follows_from(tmp_path: Path) -> None:
    gone = AlertCondition("ProcessUnanswered", (("process", "c2"),), "page", "gone")
    disk = AlertCondition("DiskGivenUp", (("chain", "1"), ("disk", "/d")), "ticket", "up", "ProcessUnanswered of c2")

    async def work() -> None:
        async with monitoring(parse_monitor({}), tmp_path, ManualClock()) as monitor:
            await monitor.ask(lambda core: core.machine.looked([disk], monitor.now_s))
            (early,) = (await MonitorAdmin(monitor).list_alerts(admin.ListAlertsRequest())).alerts
            assert (early.follows, early.cause, early.silenced) == ("ProcessUnanswered of c2", "", True)
            await monitor.ask(lambda core: core.machine.looked([disk, gone], monitor.now_s))
            found = (await MonitorAdmin(monitor).list_alerts(admin.ListAlertsRequest())).alerts
            by_rule = {one.rule: one for one in found}
            assert by_rule["DiskGivenUp"].cause == by_rule["ProcessUnanswered"].alert
            assert (by_rule["ProcessUnanswered"].follows, by_rule["ProcessUnanswered"].cause) == ("", "")

    asyncio.run(work())


def test_what_an_indicator_is_asked_by_is_kept_by_history(tmp_path: Path) -> None:
    for sli in SLIS:
        for part in sli.parts:
            assert is_kept(part.family), part
            assert part.group_by[0] == "process"
            assert all("=" in one for one in part.labels)
