"""/metrics of the processes of a cluster: each shows its roles, and together they count every message."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from urllib.request import urlopen

import pytest

from syncpoint.testing.rigs import official
from syncpoint.wire.protobuf.messages import admin
from tests.kit.scraping import page, scraped, soon

pytestmark = pytest.mark.shows("metrics")

SHOWN = {
    "storage": "syncpoint_disk_server_written_bytes_total",
    "publish-forwarder": "syncpoint_publish_messages_total",
    "subscribe-forwarder": "syncpoint_gather_sources",
    "router": "syncpoint_router_answered_total",
    "proxy": "syncpoint_proxy_published_total",
}


def test_every_process_shows_its_roles_and_all_together_every_message(cluster):
    processes = cluster.local.settings().processes
    addresses = {name: one.metrics for name, one in processes.items()}

    def counted(name, *labels):
        """The numbers of a family, all processes added up."""
        return sum(
            value
            for address in addresses.values()
            for found, value in scraped(address, name).items()
            if set(labels) <= set(found)
        )

    for name, settings in processes.items():
        text = page(settings.metrics)
        assert [role for role, family in SHOWN.items() if f"# TYPE {family} " in text] == list(settings.roles), name
    project = f"m{uuid.uuid4().hex[:8]}"
    topic, subscription = f"projects/{project}/topics/orders", f"projects/{project}/subscriptions/billing"
    before = counted("syncpoint_publish_messages_total")
    api = official.Api(cluster.proxies[0])
    api.create_topic({"name": topic})
    api.create_subscription({"name": subscription, "topic": topic})
    for _ in range(20):
        api.publish({"topic": topic, "messages": [{"data": b"x" * 100}] * 10})
    got = []
    while len(got) < 200:
        found = api.pull({"subscription": subscription, "max_messages": 200}, timeout=10)
        got += [one.ack_id for one in found.received_messages]
    api.acknowledge({"subscription": subscription, "ack_ids": got[:150]})
    soon(lambda: counted("syncpoint_publish_messages_total") - before, 200)
    soon(lambda: counted("syncpoint_topic_messages_total", project, "orders"), 200)
    soon(lambda: counted("syncpoint_subscription_acknowledged_total", project, "billing"), 150)
    soon(lambda: counted("syncpoint_subscription_backlog_messages", project, "billing"), 50)
    soon(lambda: scraped(cluster.proxies[0], "syncpoint_member"), {(): 1})
    assert scraped(cluster.proxies[0], "syncpoint_calls_total")["OK", "clients", "Publisher.Publish"] >= 20
    assert counted("syncpoint_metrics_failures_total") == 0
    api.close()


def test_a_proxy_shows_all_processes_and_top_says_that_it_asked_them(cluster):
    with urlopen(f"http://{cluster.proxies[0]}/metrics/cluster", timeout=20) as answer:
        text = answer.read().decode()
    named = re.findall(r'^syncpoint_process_info\{process="([^"]+)"', text, re.MULTILINE)
    assert set(named) == set(cluster.local.settings().processes)
    command = [sys.executable, "-m", "syncpoint.programs.cli", "--endpoint", cluster.proxies[0], "top", "--once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert f"{cluster.proxies[0]}, all processes of its cluster, over" in done.stderr
    assert all(name in done.stdout for name in named)


OF_A_DAY = (
    "syncpoint_members", "syncpoint_member", "syncpoint_chains", "syncpoint_chains_owned", "syncpoint_chains_open",
    "syncpoint_chain_disk", "syncpoint_disk_server_chains", "syncpoint_disk_server_connections",
    "syncpoint_disk_server_free_bytes", "syncpoint_disk_server_syncs_total",
    "syncpoint_disk_server_written_bytes_total",
    "syncpoint_gather_peers", "syncpoint_gather_peers_up", "syncpoint_gather_sources", "syncpoint_gather_subscriptions",
    "syncpoint_proxy_published_total", "syncpoint_proxy_relayed_total",
    "syncpoint_proxy_responses_total", "syncpoint_proxy_routed_subscriptions", "syncpoint_proxy_routed_topics",
    "syncpoint_proxy_routers_asked_total", "syncpoint_proxy_streams", "syncpoint_router_answered_total",
    "syncpoint_router_leads", "syncpoint_router_subscriptions", "syncpoint_router_topics", "syncpoint_router_watchers",
    "syncpoint_router_written_total",
)  # fmt: skip


def test_the_numbers_of_each_role_follow_what_clients_do(cluster, enter):
    """Nothing sets them but a topic, its subscription, a stream and messages."""
    space = enter(cluster.proxies[0])
    topic, subscription = space.pair()
    stream = space.stream(subscription)
    space.publish(topic, *[b"x" * 100] * 10)
    space.ack(subscription, *stream.wait(10, within=60))
    addresses = [one.metrics for one in cluster.local.settings().processes.values()]

    def still():
        texts = [page(address) for address in addresses]
        shows = [re.compile(rf"^{name}(?:{{.*}})? [^0\n]", re.MULTILINE) for name in OF_A_DAY]
        return [name for name, one in zip(OF_A_DAY, shows, strict=True) if not any(map(one.search, texts))]

    soon(still, [])


@pytest.mark.shows("tenants")
def test_a_tenant_reads_its_series_of_all_processes_at_any_proxy(cluster):
    own, other = (f"t{uuid.uuid4().hex[:8]}" for _ in range(2))
    api = official.Api(cluster.proxies[0])
    for project in (own, other):
        api.create_topic({"name": f"projects/{project}/topics/orders"})
        api.publish({"topic": f"projects/{project}/topics/orders", "messages": [{"data": b"x"}] * 7})
    tenant = {"name": own, "projects": [f"projects/{own}"]}
    cluster.admin("CreateTenant", admin.CreateTenantRequest(tenant=tenant))
    for proxy in cluster.proxies:
        soon(lambda proxy=proxy: _tenant_messages(proxy, own), 7)
        text = page(proxy, f"/tenants/{own}/metrics")
        assert other not in text
        assert "process=" in text
    cluster.admin("UpdateTenant", admin.UpdateTenantRequest(tenant={"name": own}, update_mask={"paths": ["projects"]}))
    cluster.admin("DeleteTenant", admin.DeleteTenantRequest(name=own))
    api.close()


def _tenant_messages(proxy, tenant):
    text = page(proxy, f"/tenants/{tenant}/metrics")
    return sum(int(one) for one in re.findall(r"^syncpoint_topic_messages_total{.*} (\d+)$", text, re.M))
