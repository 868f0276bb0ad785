"""A real Prometheus scrapes a server and its probers: it takes the generated rules, and every panel shows something."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from syncpoint.base.runtime.ports import free_ports
from syncpoint.testing.rigs import official
from syncpoint.testing.server_process import ServerProcess
from syncpoint.watch.monitor.grafana_dashboards import dashboards, expressions
from syncpoint.watch.monitor.monitor_settings import defaults
from syncpoint.watch.monitor.prometheus_rules import rules_file
from syncpoint.watch.monitor.sli_table import SLIS
from tests.kit.probing import held_probers

pytestmark = pytest.mark.shows("dashboards")

PROMETHEUS = shutil.which("prometheus")
NOTHING_TO_SHOW = (  # without routers, while probers find nothing wrong, and before ten minutes with a subscriber
    "Router.Route",
    'sloth_slo="router-assignment"',
    "syncpoint_prober_wrong_total",
    "syncpoint_federation_",
    "syncpoint_gateway_",
    "syncpoint_subscription_oldest_unacked_age_seconds) and",
    'sloth_slo="delivery-freshness"',
)


class Prometheus:
    """Its HTTP API."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"

    def asked(self, path: str, **query: str) -> Any:
        address = f"{self._address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(address, timeout=20) as answer:  # an expression that is wrong is a 400 or 422
            return json.load(answer)["data"]

    def numbers(self, expression: str) -> list[float]:
        """Of the series that an expression has now, those that are numbers."""
        found = self.asked("query", query=expression.replace("$__rate_interval", "10s"))
        values = [float(one["value"][1]) for one in found["result"]]
        return [one for one in values if not math.isnan(one)]

    @property
    def ready(self) -> bool:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{self._address}/-/ready", timeout=5).close()
            return True
        return False


@contextlib.contextmanager
def prometheus(folder: Path, targets: dict[str, str]) -> Iterator[Prometheus]:
    """One that scrapes `targets` (job by address) every second, with the shipped rules."""
    assert PROMETHEUS is not None
    folder.mkdir()
    (folder / "rules.yaml").write_text(rules_file(defaults().objectives, defaults().runbooks))
    jobs = [
        {
            "job_name": job,
            "static_configs": [{"targets": [address], "labels": {"process": job, "region": "here"}}],
        }
        for address, job in targets.items()
    ]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules.yaml")],
        "scrape_configs": jobs,
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    line = [PROMETHEUS, f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]
    line.append(f"--web.listen-address=127.0.0.1:{port}")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(line, stdout=log, stderr=log)
        try:
            made = Prometheus(port)
            until(lambda: made.ready or process.poll(), 60, lambda: (folder / "log").read_text())
            assert process.poll() is None, (folder / "log").read_text()
            yield made
        finally:
            process.terminate()
            process.wait(30)


def until(holds: Callable[[], Any], within_s: float, otherwise: Callable[[], Any]) -> None:
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, otherwise()
        time.sleep(0.25)


def used(api: official.Api, project: str, number: int) -> None:
    """Everything that panels show, once: made, published, received, acknowledged, given back, left."""
    topic, subscription = f"projects/{project}/topics/topic-{number}", f"projects/{project}/subscriptions/sub-{number}"
    api.create_topic({"name": topic})
    api.create_subscription({"name": subscription, "topic": topic})
    api.publish({"topic": topic, "messages": [{"data": b"x"}] * 5})
    received = api.pull({"subscription": subscription, "max_messages": 3}).received_messages
    first, *others = [one.ack_id for one in received]
    api.modify_ack_deadline({"subscription": subscription, "ack_ids": others, "ack_deadline_seconds": 0})
    api.acknowledge({"subscription": subscription, "ack_ids": [first]})


@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed: make prometheus")
def test_prometheus_takes_the_rules_and_every_panel_shows_something(tmp_path: Path) -> None:
    shown = [one for made in dashboards(defaults().objectives).values() for one in expressions(made)]
    shown = [one for one in shown if not any(word in one for word in NOTHING_TO_SHOW)]
    disks = [tmp_path / f"disk-{number}" for number in (1, 2, 3)]
    (metrics,) = free_ports(1)
    project = f"p{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as held:
        server = held.enter_context(ServerProcess(tmp_path / "data", disks=disks))
        probing = ("--only", "P4", "--interval", "1", "--patience", "20", "--metrics", f"127.0.0.1:{metrics}")
        held.enter_context(held_probers(tmp_path, [server.endpoint], *probing))
        targets = {server.endpoint: "syncpoint", f"127.0.0.1:{metrics}": "syncpoint-probers"}
        asked = held.enter_context(prometheus(tmp_path / "prometheus", targets))
        api = official.Api(server.endpoint)
        held.callback(api.close)
        used(api, project, 0)
        held.callback(official.HeldStream(api, f"projects/{project}/subscriptions/sub-0").cancel)
        missing, number = shown, 1
        end = time.monotonic() + 150
        while missing:
            used(api, project, number)
            number += 1
            missing = [one for one in missing if not asked.numbers(one)]
            assert time.monotonic() < end, missing
        assert asked.numbers(SLIS[0].promql) == [1.0]
        assert asked.numbers("min by (prober, metric) (syncpoint_prober_as_expected)") == [1.0] * 3
        shutil.rmtree(disks[2])  # it is made anew and filled within a second, and that is noticed
        firing = 'ALERTS{alertname="DiskGivenUp",process="syncpoint",alertstate="firing"}'
        until(lambda: asked.numbers(firing), 60, lambda: asked.asked("alerts"))
        rules = [rule for group in asked.asked("rules")["groups"] for rule in group["rules"]]
        assert {(one["name"], one.get("lastError")) for one in rules if one["health"] != "ok"} == set()
