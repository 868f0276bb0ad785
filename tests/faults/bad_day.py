"""A staged disaster, in pictures: a zone of a watched cluster dies under load, and pictures of the console are taken
before, during and after it.

Usage: python -m tests.faults.bad_day FOLDER; pictures go there. A zone has a disk of each chain, a publish forwarder
and a subscribe forwarder. What is published and received is judged; the program prints what happened, and ends with 1
when something was lost, no page was notified, or it was not well again in the end. It takes about eight minutes, and
needs chromium and etcd.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from playwright import sync_api

from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf.messages import admin
from tests.kit.clusters import Load
from tests.kit.watched_cluster import WatchedCluster

ZONE: Final = "zone-2"
CALM_S: Final = 90.0
DARK_S: Final = 100.0
PAGES: Final = {
    "overview": "/",
    "alerts": "/alerts",
    "cluster": "/cluster",
    "objectives": "/objectives",
    "history": "/history?panel=published&by=task",
}
FLAGS: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
PATIENCE_MS: Final = 60_000


class BadDay:
    """One run. Times are in seconds since the zone was killed."""

    def __init__(self, watched: WatchedCluster, browser: Any, folder: Path) -> None:
        self.watched, self.kit, self._browser, self._folder = watched, watched.kit, browser, folder
        self.killed_at = 0.0

    def say(self, text: str) -> None:
        """Print a line of the story."""
        since = f"{time.time() - self.killed_at:+6.0f} s" if self.killed_at else "        "
        print(f"{time.strftime('%H:%M:%S')}  {since}  {text}", flush=True)

    def pictures(self, when: str) -> None:
        """Of every page, as it is now."""
        page = self._browser.new_page(viewport={"width": 1180, "height": 760})
        page.set_default_timeout(PATIENCE_MS)
        for name, path in PAGES.items():
            page.goto(self.watched.console + path)
            page.locator("h1").wait_for()
            page.get_by_text("Loading …").first.wait_for(state="hidden")
            page.locator("main section").first.wait_for()
            page.wait_for_timeout(6000 if name == "overview" else 2500)  # what is live has come
            page.screenshot(path=str(self._folder / f"{when}-{name}.png"), full_page=name != "history")
        page.close()
        self.say(f"pictures: {when}")

    def alerts(self, *, resolved: bool = False) -> list[Any]:
        """Those that fire, or all."""
        return list(self.watched.ask("ListAlerts", admin.ListAlertsRequest(resolved=resolved, page_size=50)).alerts)

    def faults(self) -> list[Any]:
        """Alerts that fire and are about something broken: a budget that was spent is so for as long as its windows."""
        return [one for one in self.alerts() if not one.rule.startswith("ErrorBudget")]

    def run(self) -> list[str]:
        """All of it; returns what was not as it is to be."""
        names = [name for name, one in self.kit.local.settings().processes.items() if one.zone == ZONE]
        with Load(self.kit, rate=40.0) as load:
            time.sleep(CALM_S)
            wrong = [f"{one.rule} fired before anything was broken" for one in self.faults()]
            self.pictures("before")
            self.killed_at = time.time()
            for name in names:
                self.kit.local.kill(name)
            self.say(f"{ZONE} is gone: {', '.join(names)}")
            took = load.flows(0.0, within=120.0)
            self.say(f"publishers and subscribers go on, {took:.1f} s later")
            within(120, lambda: any(one.severity == 2 for one in self.faults()), "somebody is paged")
            self.say(f"the first page: {self.faults()[-1].summary}")
            time.sleep(max(0.0, self.killed_at + DARK_S - time.time()))
            firing = self.alerts()
            self._acknowledge(self.faults()[-1])
            self.say(f"{len(firing)} alerts: {', '.join(sorted({one.rule for one in firing}))}; ben acknowledges one")
            self.pictures("during")
            for name in names:
                self.kit.local.start(name)
            self.say("all of the zone runs again")
            within(300, self._is_well, "disks are filled, and chains are at home")
            self.say("disks are filled, chains are at home")
            within(600, lambda: not self.faults(), "no alert fires but those of budgets")
            left = sorted(f"{one.rule} {dict(one.labels)['slo']}" for one in self.alerts())
            self.say(f"nothing broken is reported any more; what was spent is: {', '.join(left) or 'nothing'}")
            over = [one for one in self.alerts(resolved=True) if one.resolve_time.ToSeconds()]
            self.say(f"{len(over)} alerts are over, {sum(bool(one.notified) for one in over)} were notified")
            if not any(one.notified for one in over if one.severity == 2):
                wrong.append("nobody was notified")
            self.pictures("after")
        history = load.judge()
        self.say(f"{history.counts()}; longest time without an answered publish, without and with keys: {load.gaps} s")
        return wrong

    def _acknowledge(self, alert: Any) -> None:
        asked = admin.AcknowledgeAlertRequest(
            alert=alert.alert, by="ben", comment="a zone is gone; it is being started"
        )
        self.watched.ask("AcknowledgeAlert", asked)

    def _is_well(self) -> bool:
        disks = self.watched.ask("ListDisks", admin.ListDisksRequest())
        chains = self.watched.ask("ListChains", admin.ListChainsRequest()).chains
        healthy = not disks.unknown and all(one.state == admin.Disk.OK for one in disks.disks)
        return healthy and all(one.owner == one.home and not one.below_policy for one in chains)


def within(seconds: float, holds: Callable[[], bool], what: str) -> None:
    """Wait until it holds; a look each second. Raises `AssertionError`."""

    def looked() -> bool:
        time.sleep(1.0)
        return holds()

    eventually(looked, seconds, what)


def main(arguments: list[str]) -> int:
    """See the module."""
    if len(arguments) != 1:
        print("usage: python -m tests.faults.bad_day FOLDER", file=sys.stderr)
        return 2
    chromium = shutil.which("chromium")
    if chromium is None:
        print("chromium is not installed: make chromium", file=sys.stderr)
        return 2
    pictures = Path(arguments[0])
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="syncpoint-bad-day-") as folder, sync_api.sync_playwright() as playwright:
        watched = WatchedCluster(Path(folder), Shape(3, 1, 2, 1, 2), zones=True, probed=20.0)
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS), timeout=PATIENCE_MS)
        try:
            watched.up()
            wrong = BadDay(watched, browser, pictures).run()
        finally:
            browser.close()
            watched.down()
    for one in wrong:
        print(f"not as it is to be: {one}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
