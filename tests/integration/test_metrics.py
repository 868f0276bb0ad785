"""/metrics of a real server: the official client's calls move it exactly; who may read it; its port of its own."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from syncpoint.cli.main import cli
from syncpoint.client.credentials import Credentials
from syncpoint.runtime.ports import free_ports
from syncpoint.testing import official
from syncpoint.testing.server_process import ServerProcess

TOPIC, SUB = "projects/shop/topics/orders", "projects/shop/subscriptions/billing"


def scraped(address: str, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one name, by the values of their labels, in the order of the names of these."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        assert answer.headers["content-type"].startswith("text/plain")
        found = text_string_to_metric_families(answer.read().decode())
    return {
        tuple(label for _, label in sorted(one.labels.items())): one.value
        for family in found
        for one in family.samples
        if one.name == name
    }


def within(address: str, name: str, expected: dict[tuple[str, ...], float]) -> None:
    """Soon a name shows exactly this: texts are kept for a second, surveys of backlogs for two."""
    end = time.monotonic() + 15
    while (found := scraped(address, name)) != expected:
        assert time.monotonic() < end, (name, found, expected)
        time.sleep(0.5)


def test_calls_of_the_official_client_are_counted_exactly() -> None:
    (port,) = free_ports(1)
    with ServerProcess(args=["--metrics", f"127.0.0.1:{port}"]) as server:
        api = official.Api(server.endpoint)
        api.create_topic({"name": TOPIC})
        api.create_subscription({"name": SUB, "topic": TOPIC})
        for _ in range(4):
            api.publish({"topic": TOPIC, "messages": [{"data": b"x" * 100}] * 25})
        got: list[str] = []
        while len(got) < 30:
            found = api.pull({"subscription": SUB, "max_messages": 30 - len(got)}, timeout=10)
            got += [one.ack_id for one in found.received_messages]
        api.acknowledge({"subscription": SUB, "ack_ids": got})
        for address in (server.endpoint, f"127.0.0.1:{port}"):
            within(address, "syncpoint_publish_messages_total", {(): 100})
            within(address, "syncpoint_topic_messages_total", {("shop", "orders"): 100})
            within(address, "pubsub_topic_send_request_count", {("shop", "success", "orders"): 4})
            within(address, "syncpoint_subscription_messages_total", {("shop", "billing"): 30})
            within(address, "pubsub_subscription_ack_message_count", {("shop", "billing"): 30})
            within(address, "pubsub_subscription_num_undelivered_messages", {("shop", "billing"): 70})
            calls = scraped(address, "syncpoint_calls_total")
            assert calls["OK", "clients", "Publisher.Publish"] == 4
            assert scraped(address, "syncpoint_metrics_failures_total").keys() != set()
            assert set(scraped(address, "syncpoint_metrics_failures_total").values()) == {0}
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/projects/shop/topics", timeout=10)
        api.close()


def test_with_access_control_it_asks_who_calls(tmp_path: Path) -> None:
    auth, key = str(tmp_path / "auth.yaml"), str(tmp_path / "key")
    made = CliRunner().invoke(cli, ["iam", "init", auth, "--owner", "admin@demo.example", "--key-file", key])
    assert made.exit_code == 0, made.output
    with ServerProcess(tmp_path / "data", args=["--auth", auth]) as server:
        page = urllib.request.Request(f"http://{server.endpoint}/metrics")
        for _ in range(2):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(page, timeout=10)
        page.add_header("authorization", f"Bearer {Credentials(tmp_path / 'key').token()}")
        with urllib.request.urlopen(page, timeout=10) as answer:
            text = answer.read().decode()
    assert 'syncpoint_access_refused_total{reason="no_credentials"} 2\n' in text


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    refused = CliRunner().invoke(cli, ["serve", "--data", str(tmp_path), "--metrics", "9100"])
    assert refused.exit_code == 2
    assert "HOST:PORT" in refused.output
    refused = CliRunner().invoke(cli, ["serve", "--data", str(tmp_path), "--workers", "2", "--metrics", "127.0.0.1:0"])
    assert refused.exit_code == 2
    assert "--workers" in refused.output
