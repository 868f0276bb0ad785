"""Delivery records and flows of a cluster and of a server with workers, reconciled: nothing to name on a clean topic,
faults of processes and tasks are named, and what was lent when recording began is not known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_pubsub.rpc import close_idle
from syncpoint.base.model.identity import parse_message_id
from syncpoint.programs.analytics.reconciliation import reconcile
from syncpoint.programs.clusters.local import LocalCluster, Shape
from syncpoint.testing.rigs.etcd import why_not
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerProcess
from tests.kit.delivery_faults.sitecustomize import DROPPED, LENT_TWICE, SKIPPED
from tests.spark.federation_kit import Site
from tests.spark.test_analytics import copied, federation, flow_of
from tests.spark.test_delivery_records import FAULTS, concluded, drained, noted, nothing, published, recorded

pytestmark = [pytest.mark.long, pytest.mark.shows("analytics")]  # the same on a server: `test_delivery_records.py`

SHAPE = Shape(clusters=1, disks=3, forwarders=1, routers=1, proxies=1)
MESSAGES = 20


@pytest.fixture(params=["workers", "cluster"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Processes that do wrong with subscriptions called `faulty`. What a subscribe forwarder has seen acknowledged it
    does not deliver again, whatever the ledger has forgotten.
    """
    if request.param == "cluster" and why_not():
        pytest.skip("etcd is not installed (Debian: apt-get install etcd-server)")
    with ExitStack() as stack:
        stack.callback(close_idle)
        path = os.pathsep.join([str(FAULTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        server: Any
        if request.param == "workers":
            server = ServerProcess(tmp_path / "data", args=["--workers", "2"], env={"PYTHONPATH": path})
            found = Site("a", server.start())
        else:
            cluster = LocalCluster(tmp_path / "cluster")
            cluster.create(SHAPE)
            stack.callback(cluster.down)
            stack.enter_context(pytest.MonkeyPatch.context()).setenv("PYTHONPATH", path)
            server = SimpleNamespace(endpoint=cluster.up()[0], close=lambda: None)
            found = Site("a", server)
        stack.callback(found.close)
        yield found


def test_what_many_processes_did_is_reconciled(spark: Any, site: Site, tmp_path: Path) -> None:
    clean, faulty = "projects/fed/subscriptions/clean", "projects/fed/subscriptions/faulty"
    topic = site.topic("clean")
    site.api.create_subscription({"name": clean, "topic": topic, "ack_deadline_seconds": 600})
    early = published(site, topic, 3)
    lent: list[Any] = []

    def all_lent() -> bool:
        request = {"subscription": clean, "max_messages": 10, "return_immediately": True}
        lent.extend(site.api.pull(request).received_messages)
        return len(lent) == len(early)

    eventually(all_lent, 30, "messages are lent before they are recorded")
    recorded(site, "clean", create=False)
    site.api.acknowledge({"subscription": clean, "ack_ids": [one.ack_id for one in lent]})
    ids = published(site, topic, MESSAGES)
    assert sorted(drained(site, clean, MESSAGES)) == sorted(ids)
    noted(site, topic, ids[-1], "acknowledged")
    result = concluded(spark, site, topic)
    assert result.clean, result
    assert (result.stored, result.recorded, result.unknown) == (MESSAGES + 3, MESSAGES + 3, 3)

    wrong = recorded(site, "wrong", faulty)
    ids = published(site, wrong, MESSAGES)
    by_offset = {parse_message_id(one)[2]: one for one in ids}
    drained(site, faulty, MESSAGES - 2)
    noted(site, wrong, *published(site, wrong, 1), "persisted")
    result = concluded(spark, site, wrong)
    assert {(one.kind, one.hop, one.message_id) for one in result.anomalies} == {
        ("never delivered", "deliver", by_offset[SKIPPED]),
        ("acknowledged without delivery", "acknowledge", by_offset[DROPPED]),
        ("delivered twice", "deliver", by_offset[LENT_TWICE]),
    }
    assert (sum(result.counts.values()), result.unknown) == (3, 0)

    both = {"a": site, "b": site}
    _, found = federation(both, tmp_path, "clean")
    flow = flow_of(found)
    site.topic("clean-copy")
    missing, altered = early[1], early[2]
    copied(spark, both, flow, tmp_path, f"CASE WHEN message_id = '{altered}' THEN 'x' ELSE data END", missing)
    flows = reconcile(spark, flow, nothing)
    assert {(one.kind, one.message_id) for one in flows.anomalies} == {("missing", missing), ("altered", altered)}
    assert (flows.expected, flows.right) == (MESSAGES + 3, MESSAGES + 1)
