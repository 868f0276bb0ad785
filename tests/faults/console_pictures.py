"""Pictures for docs/console.md: a watched cluster with a shop's traffic, and a server that asks who calls.

Usage: python -m tests.faults.console_pictures FOLDER [SECONDS]; SECONDS of traffic come first, so that charts have
something to draw. Needs etcd and chromium. Prints each picture with complaints of the browser; exit code 1 if any.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from syncpoint.front.client.credentials import Credentials
from syncpoint.programs.cli.main import cli
from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs import official
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf.messages import admin
from tests.kit.browsing import Looked, apart, chromium
from tests.kit.watched_cluster import WatchedCluster

SHOP: Final = "projects/shop"
TOPICS: Final = {"orders": 5, "payments": 2, "clicks": 14, "stock-changes": 1}
"""How many messages come at a time."""
PULLED: Final = ("billing", "ledger", "stats")
WIDE: Final = {"width": 1180, "height": 760}
NARROW: Final = {"width": 400, "height": 760}
PAGES: Final = {
    "overview": "/",
    "topics": "/p/shop/topics?sort=-rate",
    "messages": "/p/shop/topics/orders?tab=messages&offset=40",
    "subscription": "/p/shop/subscriptions/billing",
    "settings": "/p/shop/subscriptions/billing?tab=settings",
    "rules": "/p/shop/subscriptions/europe?tab=rules",
    "objectives": "/objectives?slo=publish-latency",
    "history": "/history?panel=published&by=topic",
    "probers": "/probers",
    "at-risk": "/at-risk?gone=cluster:c1&gone=cluster:c2",
}


class ShopTraffic:
    """Orders come and most are dealt with, until it is ended."""

    def __init__(self, endpoint: str) -> None:
        self._api, self._ended = official.Api(endpoint), threading.Event()
        self._thread = threading.Thread(target=self._flow, name="shop", daemon=True)

    def begin(self) -> None:
        """Create what a shop has, and let it flow."""
        for short in (*TOPICS, "failed"):
            self._api.create_topic({"name": f"{SHOP}/topics/{short}", "labels": {"team": "core"}})
        letters = {"dead_letter_topic": f"{SHOP}/topics/failed", "max_delivery_attempts": 10}
        for short, topic, more in (
            ("billing", "orders", {"dead_letter_policy": letters, "retry_policy": {"minimum_backoff": {"seconds": 5}}}),
            ("europe", "orders", {}),
            ("ledger", "payments", {"enable_exactly_once_delivery": True}),
            ("stats", "clicks", {"filter": 'attributes.region = "eu"'}),
            ("audit", "payments", {"enable_message_ordering": True}),
        ):
            name = f"{SHOP}/subscriptions/{short}"
            self._api.create_subscription({"name": name, "topic": f"{SHOP}/topics/{topic}", **more})
        self._thread.start()

    def _flow(self) -> None:
        chance, number = random.Random(7), 0
        while not self._ended.wait(0.25):
            for topic, most in TOPICS.items():
                messages = []
                for _ in range(chance.randint(0, most)):
                    number += 1
                    order = {"order": number, "total": chance.randint(5, 900), "currency": "EUR"}
                    region = chance.choice(["eu", "us"])
                    messages.append({"data": json.dumps(order).encode(), "attributes": {"region": region}})
                if messages:
                    self._api.publish({"topic": f"{SHOP}/topics/{topic}", "messages": messages}, timeout=60)
            for short in PULLED:
                name = f"{SHOP}/subscriptions/{short}"
                asked = {"subscription": name, "max_messages": 40, "return_immediately": True}
                ids = [one.ack_id for one in self._api.pull(asked, timeout=60).received_messages]
                if ids and (short != "billing" or number % 3):
                    self._api.acknowledge({"subscription": name, "ack_ids": ids}, timeout=60)

    def end(self) -> None:
        """Stop it."""
        self._ended.set()
        self._thread.join()
        self._api.close()


def taken(looked: Looked, folder: Path, name: str, wait_ms: int = 3000) -> None:
    """One picture of what is shown now."""
    looked.page.get_by_text("Loading …").first.wait_for(state="hidden")
    looked.page.wait_for_timeout(wait_ms)  # what is live has come
    looked.page.screenshot(path=str(folder / f"{name}.png"))
    print(f"{name}.png {looked.complaints or ''}", flush=True)


def pages(browser: Any, watched: WatchedCluster, folder: Path) -> list[str]:
    """Pictures of the cluster; returns what the browser complained of."""
    looked = Looked(browser, watched.console, viewport=WIDE)
    for name, path in PAGES.items():
        looked.page.goto(looked.base + path)
        looked.page.get_by_role("heading", level=1).wait_for()
        if name == "rules":
            looked.page.get_by_label("Name of tried attribute 1").fill("region")
            looked.page.get_by_label("Value of tried attribute 1").fill("eu")
            looked.page.get_by_label("Name of tried attribute 2").fill("total")
            looked.page.get_by_label("Value of tried attribute 2").fill("250")
            looked.page.get_by_role("button", name="Test", exact=True).click()
        taken(looked, folder, name, 6000 if name in ("overview", "subscription") else 3000)
    narrow = Looked(browser, watched.console, viewport=NARROW)
    narrow.page.goto(narrow.base + "/p/shop/subscriptions?sort=-backlog")
    narrow.page.get_by_role("heading", level=1).wait_for()
    taken(narrow, folder, "narrow")
    return [*looked.complaints, *narrow.complaints]


@contextmanager
def asking_server(folder: Path) -> Iterator[tuple[str, str]]:
    """The address of a server that asks who calls and has something in its audit log, and a token."""
    auth, key, run = folder / "auth.yaml", folder / "admin.json", CliRunner().invoke
    run(cli, ["iam", "init", str(auth), "--owner", "ana@shop.example", "--key-file", str(key)])
    auth.write_text(auth.read_text() + "audit: {file: audit.log}\n")
    with ServerProcess(folder / "data", args=["--auth", str(auth)]) as server:
        common = ["--endpoint", server.endpoint, "--project", "shop", "--credentials", str(key)]
        for words in (
            ["topics", "create", "orders", "payments"],
            ["subscriptions", "create", "billing", "--topic", "orders"],
            ["topics", "peek", "orders"],
            ["subscriptions", "update", "billing", "--ack-deadline", "60s"],
            ["topics", "delete", "payments"],
            ["topics", "describe", "payments"],
        ):
            apart(partial(run, cli, [*words, *common]))
        yield f"http://{server.endpoint}/console", Credentials(key).token()


def main(arguments: list[str]) -> int:
    """See the module."""
    if not 1 <= len(arguments) <= 2:
        print("usage: python -m tests.faults.console_pictures FOLDER [SECONDS]", file=sys.stderr)
        return 2
    pictures, seconds = Path(arguments[0]), float((arguments[1:] or ["240"])[0])
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="syncpoint-pictures-") as name, chromium() as browser:
        folder = Path(name)
        watched = WatchedCluster(folder / "watched", Shape(3, 1, 2, 1, 2), probed=20.0)
        try:
            watched.up()
            traffic = ShopTraffic(watched.kit.proxies[0])
            traffic.begin()
            rule = admin.Rule(name="$Default", sql="region = 'eu' AND total > 100")
            watched.ask("UpdateRule", admin.UpdateRuleRequest(subscription=f"{SHOP}/subscriptions/europe", rule=rule))
            time.sleep(seconds)
            wrong = pages(browser, watched, pictures)
            traffic.end()
        finally:
            watched.down()
        with asking_server(folder) as (base, token):
            looked = Looked(browser, base, viewport=WIDE)
            looked.page.goto(base + "/audit")
            looked.token(token)
            looked.page.get_by_role("heading", level=1).wait_for()
            taken(looked, pictures, "audit")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
