"""Metrics by OTLP on a node, with workers and in a cluster: a collector receives the numbers that the pages show."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from syncpoint.testing.rigs import etcd, official
from syncpoint.testing.server_process import ServerProcess
from tests.kit.clusters import Kit, Shape
from tests.kit.otlp_numbers import numbers_of
from tests.kit.otlp_receiver import OtlpReceiver, attributes_of
from tests.kit.scraping import page, soon

pytestmark = pytest.mark.shows("metrics")

TOPIC, SUBSCRIPTION = "projects/shop/topics/orders", "projects/shop/subscriptions/billing"
MESSAGES, ACKNOWLEDGED = 200, 150
ORDERS, BILLING = (("project", "shop"), ("topic", "orders")), (("project", "shop"), ("subscription", "billing"))
EXPECTED = {
    ("syncpoint_publish_messages_total", ()): MESSAGES,
    ("syncpoint_topic_messages_total", ORDERS): MESSAGES,
    ("syncpoint_subscription_acknowledged_total", BILLING): ACKNOWLEDGED,
    ("syncpoint_subscription_backlog_messages", BILLING): MESSAGES - ACKNOWLEDGED,
}
PERSIST = "syncpoint_publish_persist_seconds"
Sums = Counter[tuple[str, tuple[tuple[str, str], ...]]]


@contextlib.contextmanager
def house(name: str, folder: Path, url: str) -> Iterator[tuple[str, list[str], int]]:
    """Where clients call, where the pages are, and how many processes export."""
    if name == "cluster":
        changes = {"metrics": {"otlp": url, "interval_s": 1}}
        shape = Shape(clusters=1, disks=1, forwarders=1, routers=1, proxies=1)
        kit = Kit(folder, shape, changes)
        try:
            kit.up()
            pages = [one.metrics for one in kit.local.settings().processes.values()]
            yield kit.proxies[0], pages, len(pages)
        finally:
            kit.down()
        return
    workers = ["--workers", "2"] if name == "workers" else []
    args = ["--otlp-metrics", url, "--otlp-metrics-interval", "1", *workers]
    with ServerProcess(args=args).start(180) as server:
        yield server.endpoint, [server.endpoint], 2 if workers else 1


def shown(pages: list[str]) -> Sums:
    """The pages' numbers, those of all processes added up."""
    sums: Sums = Counter()
    for address in pages:
        for family in text_string_to_metric_families(page(address)):
            for one in family.samples:
                if one.labels.get("le") != "+Inf":  # which is the count
                    labels = one.labels.items() - {("process", one.labels.get("process"))}
                    sums[one.name, tuple(sorted(labels))] += one.value
    return sums


def received(collector: OtlpReceiver) -> Sums:
    """The numbers of the newest export of each process, added up."""
    newest = {
        attributes_of(part.resource.attributes)["service.instance.id"]: export
        for export in list(collector.metrics)
        for part in export.resource_metrics
    }
    sums: Sums = Counter()
    for export in newest.values():
        for (name, labels), value in numbers_of(export).items():
            sums[name, tuple(sorted(labels))] += value
    return sums


@pytest.mark.parametrize("name", ["node", "workers", "cluster"])
def test_a_collector_receives_what_the_pages_show(name: str, tmp_path: Path) -> None:
    if name == "cluster" and (reason := etcd.why_not()):
        pytest.skip(reason)
    with OtlpReceiver() as collector, house(name, tmp_path, collector.url) as (endpoint, pages, processes):
        api = official.Api(endpoint)
        api.create_topic({"name": TOPIC})
        api.create_subscription({"name": SUBSCRIPTION, "topic": TOPIC, "ack_deadline_seconds": 600})
        for _ in range(MESSAGES // 10):
            api.publish({"topic": TOPIC, "messages": [{"data": b"x" * 100}] * 10})
        got: list[str] = []
        while len(got) < MESSAGES:
            found = api.pull({"subscription": SUBSCRIPTION, "max_messages": MESSAGES}, timeout=60)
            got += [one.ack_id for one in found.received_messages]
        api.acknowledge({"subscription": SUBSCRIPTION, "ack_ids": got[:ACKNOWLEDGED]})
        api.close()

        def counted(sums: Sums) -> dict[object, float]:
            return {one: sums[one] for one in EXPECTED}

        soon(lambda: counted(received(collector)), EXPECTED)
        soon(lambda: counted(shown(pages)), EXPECTED)

        def differ() -> list[object]:
            """Where the histogram differs from the pages', bucket by bucket; entries of other topics may still come."""
            there, here = received(collector), shown(pages)
            names = {one for one in (*there, *here) if one[0].startswith(PERSIST)}
            assert len(names) > 10
            return [one for one in names if abs(there[one] - here[one]) > 1e-9]

        soon(differ, [])
        soon(lambda: len({str(export.resource_metrics[0].resource) for export in list(collector.metrics)}), processes)
