"""The console's pages about operations, in Chromium, over a cluster with a monitor, people on call and probers: what
they show is what happens, what can be done there is done, and they are clean, wide and narrow.

Needs chromium, axe-core in console/node_modules (`tools/console.py build` installs it) and etcd; skipped without.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from syncpoint.catalog.metadata.store_client import SharedStore
from syncpoint.front.client.credentials import Credentials
from syncpoint.node.cluster.cluster_environment import ClusterEnvironment
from syncpoint.node.cluster.settings import load
from syncpoint.programs.cli.main import cli
from syncpoint.programs.clusters.local import Shape
from syncpoint.programs.rollout.progress import RolloutState
from syncpoint.programs.rollout.rollout_store import RolloutStore
from syncpoint.testing.rigs.etcd import why_not
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf.messages import admin
from tests.kit.browsing import MARKS, Looked, chromium
from tests.kit.in_threads import LoopThread
from tests.kit.watched_cluster import PEOPLE, SomeTraffic, WatchedCluster

pytestmark = [
    *MARKS,
    pytest.mark.skipif(why_not() is not None, reason="etcd is not installed (Debian: apt-get install etcd-server)"),
    pytest.mark.shows("console"),
]
PATIENCE_MS = 90_000  # until a look of the monitor finds what happened
WIDE = {"width": 1280, "height": 900}
PAGES = {
    "/": "Overview",
    "/objectives": "Objectives",
    "/objectives?slo=storage-write-time": "Objectives",
    "/alerts": "Alerts",
    "/history": "History",
    "/history?by=topic&range=14d": "History",
    "/history?panel=publishers&range=6h": "History",
    "/history?panel=latency&by=task": "History",
    "/history?family=syncpoint_disk_free_bytes&by=disk": "History",
    "/probers": "Probers",
    "/rollouts": "Rollouts",
    "/cluster": "Cluster and disks",
}
STATE = RolloutState(
    "october",
    "2.0",
    "0123456789abcdef",
    "d1",
    step="canary",
    steps=("test", "staging", "soak", "canary", "stage 100%"),
    deployed=True,
    watched_s=20.0,
    watch_s=60.0,
    begun=1_790_000_000.0,
    looked=1_790_000_100.0,
    shares={"proxy": 0.47},
    figures={"released_calls": 200.0, "released_errors": 3.0, "others_calls": 410.0, "others_errors": 0.0},
    history=((1_790_000_000.0, "test: begins"), (1_790_000_090.0, "canary: begins")),
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


def looking(browser: Any, base: str, **how: Any) -> Looked:
    """A page whose waits are as long as it may take until the monitor knows."""
    made = Looked(browser, base, viewport=WIDE, **how)
    made.page.set_default_timeout(PATIENCE_MS)
    return made


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedCluster]:
    made = WatchedCluster(tmp_path_factory.mktemp("watched"), Shape(1, 3, 2, 1, 2))
    try:
        made.up()
        traffic = SomeTraffic(made.kit.proxies[0], "orders", "invoices")
        yield made
        traffic.end()
    finally:
        made.down()


@contextlib.contextmanager
def driven_rollout(watched: WatchedCluster) -> Iterator[Callable[[], str]]:
    """A controller drives `STATE` in the meantime; what is given says who asked it for an abort."""

    async def begun() -> tuple[SharedStore, RolloutStore]:
        store = await ClusterEnvironment.of(None).metadata(load(watched.kit.local.settings_path))
        driver = RolloutStore(store, "ana at ops-1")
        await driver.claim()
        await driver.begin(STATE)
        return store, driver

    with LoopThread() as own:
        store, driver = own.run(begun())
        try:
            yield lambda: str(own.run(driver.aborted()))
        finally:
            own.run(driver.release())
            own.run(store.close())


def test_a_forwarder_dies_and_the_pages_show_it(browser: Any, watched: WatchedCluster) -> None:
    looked = looking(browser, watched.console)
    watched.kit.local.kill("publish-forwarder-2")
    page = looked.go("/cluster", "Cluster and disks")  # who owns what, in which epoch
    card = page.get_by_role("region", name="Owners over time")
    card.get_by_text("in this time range").click()
    card.get_by_text("publish-forwarder-2/default: publish-forwarder-1, epoch 2").wait_for()
    card.get_by_text("publish-forwarder-2/default: publish-forwarder-2, epoch 1").wait_for()
    served = page.get_by_role("group", name="Processes").get_by_role("row").filter(has_text="publish-forwarder-1")
    served.filter(has_text=re.compile(r"[1-9]\d*(\.\d)?/s")).wait_for()  # what it does, as the monitor sees it
    page = looked.go("/alerts", "Alerts")
    page.get_by_role("button", name="ProcessUnanswered").first.wait_for()
    row = page.get_by_role("row", name=re.compile("ProcessUnanswered")).first  # a busy machine may have other alerts
    row.get_by_role("cell", name=re.compile(rf"^({'|'.join(PEOPLE)})\b")).wait_for()  # who is on call at this hour
    row.get_by_role("button", name="Acknowledge…").click()
    page.get_by_label("Your name").fill("ben")
    page.get_by_label("Comment").fill("it is being restarted")
    page.get_by_role("button", name="Copy as…").last.click()
    command = page.get_by_label("Command").inner_text()
    assert re.fullmatch(r"syncpoint alerts ack \w+ --by ben --comment 'it is being restarted'", command), command
    page.get_by_role("button", name="Close").last.click()
    page.get_by_role("button", name="Acknowledge", exact=True).click()
    page.get_by_text("acknowledged by ben").wait_for()
    page.get_by_role("button", name="ProcessUnanswered").first.click()
    page.get_by_text("acknowledged by ben: it is being restarted").wait_for()
    page.get_by_role("button", name="Runbook").first.click()
    page.get_by_role("region", name="Runbook").get_by_text("syncpoint cluster status").wait_for()
    assert re.search(r"/alerts\?alert=\w+$", page.url)  # an address that can be sent
    page.get_by_role("button", name="Silence…").first.click()
    page.get_by_label("Rule").fill("Disk*")
    page.get_by_label("Reason").fill("new disks")
    page.get_by_label("Your name").fill("ben")
    page.get_by_role("button", name="Silence", exact=True).click()
    page.get_by_role("cell", name="new disks").wait_for()
    (silence,) = watched.ask("ListSilences", admin.ListSilencesRequest()).silences
    alerts = watched.ask("ListAlerts", admin.ListAlertsRequest()).alerts
    (alert,) = (one for one in alerts if one.rule == "ProcessUnanswered")
    assert (silence.rule, silence.comment, silence.by) == ("Disk*", "new disks", "ben")
    assert (silence.end_time.ToSeconds() - time.time()) == pytest.approx(7200, abs=600)
    assert alert.acknowledged_by == "ben"
    page.get_by_role("button", name="End…").click()
    page.get_by_role("button", name="End silence").click()
    page.get_by_text("No silences.").wait_for()
    page = looked.go("/", "Overview")
    page.get_by_text("Process publish-forwarder-2 does not answer requests for its metrics.").wait_for()
    page.get_by_role("link", name=re.compile(r"^\d+ active alerts?, (all acknowledged|\d+ unacknowledged)$")).wait_for()
    page.get_by_role("link", name="storage-write-time").click()
    page.get_by_text("Budget consumption, last hour").wait_for()
    page.get_by_role("cell", name=re.compile("^publish-forwarder-1 · 1 ·")).first.wait_for()
    assert looked.complaints == []
    page.close()
    watched.kit.local.start("publish-forwarder-2")


def test_history_is_grouped_anew_and_its_parts_add_up(browser: Any, watched: WatchedCluster) -> None:
    looked = looking(browser, watched.console)
    page = looked.go("/history?by=topic", "History")
    page.get_by_role("button", name="shop / orders").wait_for()
    page.get_by_role("cell", name="matches sum").wait_for()
    page.get_by_label("Group by", exact=True).select_option("task")
    page.get_by_role("button", name=re.compile("^publish-forwarder-|^proxy-")).first.wait_for()
    page.get_by_role("cell", name="matches sum").wait_for()
    page.get_by_label("Group by", exact=True).select_option("topic")
    page.get_by_role("button", name="shop / orders").click()  # it alone
    page.wait_for_url(re.compile("only=project"))
    page.get_by_role("button", name="14 days").click()
    page.wait_for_url(re.compile("range=14d"))
    page.get_by_label("Metric", exact=True).select_option("publishers")
    for title in ("Topics", "Bytes", "Batches", "Messages", "Outstanding bytes"):
        page.locator("figcaption", has_text=title).first.wait_for()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Topic, subscription or page").fill("probers")
    page.get_by_role("option", name="Probers Page", exact=True).wait_for()
    assert looked.complaints == []
    page.close()


def test_the_matrix_shows_every_prober_at_every_proxy(browser: Any, watched: WatchedCluster) -> None:
    eventually(lambda: all(one["runs"] for one in watched.board()["probers"]), 180, "every prober has run")
    board = watched.board()["probers"]
    looked = looking(browser, watched.console)
    page = looked.go("/probers", "Probers")
    page.get_by_role("button", name="P10 at").first.wait_for()
    assert page.locator(".matrix .cell").count() == len(board) == 9 * 2
    for endpoint in watched.kit.proxies:
        page.get_by_role("columnheader", name=endpoint).wait_for()
    page.get_by_role("button", name=f"P4 at {watched.kit.proxies[1]}").click()
    for metric in ("P4.success", "P4.duration", "P4.correctness"):
        page.get_by_role("cell", name=metric).wait_for()
    page.get_by_role("img", name="Steps of P4 over 6h").wait_for()
    assert "prober=P4" in page.url
    assert looked.complaints == []
    page.close()


def test_a_rollout_is_followed_and_aborted(browser: Any, watched: WatchedCluster) -> None:
    looked = looking(browser, watched.console)
    page = looked.go("/rollouts", "Rollouts")
    page.get_by_text("No rollouts yet").wait_for()
    assert page.get_by_role("button", name="Abort…").count() == 0
    assert looked.complaints == []
    page.close()
    looked = looking(browser, watched.console)
    with driven_rollout(watched) as aborted_by:
        page = looked.go("/rollouts", "Rollouts")
        page.locator("[aria-current=step]", has_text="canary").wait_for()
        page.get_by_role("row", name="Errors 3 0").wait_for()
        page.get_by_role("row", name="Failed calls 1.5% 0%").wait_for()
        page.get_by_text("The release handles 47% of proxy.").wait_for()
        page.get_by_role("button", name="Abort…").click()
        page.get_by_label("Your name").fill("ben")
        assert page.get_by_role("button", name="Abort", exact=True).is_disabled()  # without a reason
        page.get_by_label("Reason").fill("complaints from shop")
        page.get_by_role("button", name="Abort", exact=True).click()
        page.get_by_text("Abort requested by ben: complaints from shop").wait_for()
        assert aborted_by() == "ben: complaints from shop"
    page.get_by_text("No controller is running").wait_for()
    assert looked.complaints == []
    page.close()


def test_every_page_is_clean_wide_and_narrow(browser: Any, watched: WatchedCluster) -> None:
    looked = looking(browser, watched.console)
    for path, title in PAGES.items():
        page = looked.go(path, title)
        wrong = looked.violations()
        assert not wrong, (path, wrong)
        for width in (400, 640):  # 1280 pixels at 200 % are 640 of CSS
            assert looked.fits(width), (path, width)
        page.set_viewport_size(WIDE)
    assert looked.complaints == []
    looked.page.close()


def test_without_the_right_nothing_can_be_done_and_a_single_server_says_what_it_lacks(
    browser: Any, tmp_path: Path
) -> None:
    auth, key = str(tmp_path / "auth.yaml"), tmp_path / "key"
    invoked = CliRunner().invoke(cli, ["iam", "init", auth, "--owner", "admin@demo.example", "--key-file", str(key)])
    assert invoked.exit_code == 0, invoked.output
    with ServerProcess(tmp_path / "data", args=["--auth", auth]) as server:
        looked = looking(browser, f"http://{server.endpoint}/console")
        page = looked.page
        page.goto(looked.base + "/alerts")
        page.get_by_label("Token").fill(Credentials(key).token())
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", level=1, name="Alerts", exact=True).wait_for()
        page.get_by_text("No one is notified: alerts are only listed here.").wait_for()
        page.get_by_role("button", name="Silence…").wait_for()
        page.close()
        looked = looking(browser, f"http://{server.endpoint}/console")
        page = looked.page  # and where the server says that its caller may do nothing
        page.route("**/v1/server:testIamPermissions", lambda route: route.fulfill(json={}))
        page.goto(looked.base + "/alerts")
        page.get_by_label("Token").fill(Credentials(key).token())
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("No one is notified: alerts are only listed here.").wait_for()
        assert page.get_by_role("button", name="Silence…").count() == 0
        page.get_by_role("link", name="Probers").click()
        page.get_by_text("No probers configured").wait_for()
        assert page.get_by_role("link", name="Rollouts").count() == 0  # a single server has none
        page.get_by_role("link", name="Objectives").click()
        page.get_by_role("button", name="publish-success").wait_for()
        page.close()
