"""A server, its workers and a cluster watch over themselves: indicators, history that adds up, alerts of a fault."""

from __future__ import annotations

import json
import math
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncpoint.testing.rigs import official
from syncpoint.testing.server_process import ServerProcess

pytestmark = pytest.mark.shows("monitor")

COUNTED = {"orders": 30, "bills": 50, "mails": 20}


def asked(endpoint: str, path: str, **query: Any) -> Any:
    """An answer of the admin interface over REST."""
    text = urllib.parse.urlencode({key: value for key, value in query.items() if value}, doseq=True)
    with urllib.request.urlopen(f"http://{endpoint}/admin/v1/{path}?{text}", timeout=30) as answer:
        return json.load(answer)


def published(endpoint: str) -> str:
    """Publish to three topics; returns the project."""
    project = f"m{uuid.uuid4().hex[:8]}"
    api = official.Api(endpoint)
    for name, number in COUNTED.items():
        topic = f"projects/{project}/topics/{name}"
        api.create_topic({"name": topic})
        api.create_subscription({"name": f"projects/{project}/subscriptions/{name}", "topic": topic})
        for _ in range(number):
            api.publish({"topic": topic, "messages": [{"data": b"x"}]})
    api.close()
    return project


def totals(endpoint: str, project: str, *group_by: str) -> dict[str, float]:
    """How many messages were published within the last minutes, by a label."""
    found = asked(
        endpoint,
        "history",
        family="syncpoint_topic_messages_total",
        labels=[f"project={project}"],
        groupBy=list(group_by),
        step="10s",
    )
    return {
        "/".join(one.get("labels", {}).values()): round(
            10 * sum(float(value) for value in one["values"] if not math.isnan(float(value)))
        )
        for one in found.get("series", [])
    }


def states(endpoint: str) -> dict[str, str]:
    return {one["name"]: one["state"] for one in asked(endpoint, "slis")["slis"]}


def firing(endpoint: str) -> dict[str, str]:
    """The names of alerts, by rule."""
    return {one["rule"]: one["alert"] for one in asked(endpoint, "alerts").get("alerts", [])}


def eventually(read: Callable[[], Any], expected: Any) -> None:
    """Looks are ten seconds apart; a busy machine has its time."""
    end = time.monotonic() + 90
    while (found := read()) != expected:
        assert time.monotonic() < end, (found, expected)
        time.sleep(1.0)


def parts_add_up(endpoint: str, project: str, tasks: set[str]) -> None:
    eventually(lambda: totals(endpoint, project), {"": 100})
    assert totals(endpoint, project, "topic") == COUNTED
    by_task = totals(endpoint, project, "process")
    assert sum(by_task.values()) == 100
    assert by_task.keys() <= tasks


def test_a_node_watches_over_itself_and_pages_when_a_disk_is_gone(tmp_path: Path) -> None:
    disks = [tmp_path / f"disk-{number}" for number in (1, 2, 3)]
    with ServerProcess(tmp_path / "data", disks=disks):
        pass
    # Otherwise a folder that is gone is made anew and filled from the others within a second.
    with ServerProcess(tmp_path / "data", disks=disks, args=["--require-disks"]) as server:
        project = published(server.endpoint)
        eventually(lambda: states(server.endpoint)["publish-success"], "MEASURED")
        parts_add_up(server.endpoint, project, {""})
        eventually(lambda: states(server.endpoint)["create-subscription-time"], "MEASURED")
        assert states(server.endpoint)["router-assignment"] == "NOT_APPLICABLE"
        assert not [rule for rule in firing(server.endpoint) if "Disk" in rule]  # a busy machine may have others
        aside = disks[2].rename(tmp_path / "aside")
        eventually(lambda: "DiskDead" in firing(server.endpoint), True)
        before = firing(server.endpoint)["DiskDead"]
        acknowledge = urllib.request.Request(
            f"http://{server.endpoint}/admin/v1/alerts/{before}:acknowledge", data=b'{"by": "ana"}', method="POST"
        )
        urllib.request.urlopen(acknowledge, timeout=30).close()
        server.kill9()
        aside.rename(disks[2])
        server.start()
        (alert,) = [one for one in asked(server.endpoint, "alerts")["alerts"] if one["rule"] == "DiskDead"]
        assert (alert["alert"], alert["state"], alert["acknowledgedBy"]) == (before, "ACKNOWLEDGED", "ana")
        assert totals(server.endpoint, project) == {"": 100}


def test_workers_are_watched_as_one_server(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", args=["--workers", "2"]) as server:
        project = published(server.endpoint)
        parts_add_up(server.endpoint, project, {"worker-1", "worker-2"})
        eventually(lambda: states(server.endpoint)["router-assignment"], "MEASURED")


def test_one_process_watches_over_a_cluster_and_every_proxy_answers(cluster) -> None:
    names = set(cluster.local.settings().processes)
    project = published(cluster.proxies[0])
    for proxy in cluster.proxies:
        parts_add_up(proxy, project, names)
        assert sum(totals(proxy, project, "region").values()) == 100
        assert states(proxy)["publish-success"] == "MEASURED"
        eventually(lambda proxy=proxy: states(proxy)["router-assignment"], "MEASURED")
