"""/metrics of a real server: the official client's calls move it exactly; who may read it; its port of its own; its
workers."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from syncpoint.base.runtime.ports import free_ports
from syncpoint.front.client.credentials import Credentials
from syncpoint.programs.cli.main import cli
from syncpoint.testing.rigs import official
from syncpoint.testing.server_process import ServerFailed, ServerProcess
from tests.kit.scraping import page, scraped, soon, within

pytestmark = pytest.mark.shows("metrics")

TOPIC, SUB = "projects/shop/topics/orders", "projects/shop/subscriptions/billing"


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


@pytest.mark.parametrize("more", [(), ("--workers", "2")])
def test_a_port_that_is_taken_is_named(more: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ServerFailed, match=f"no metrics can be served at {address}: Address already in use"):
            ServerProcess(args=["--metrics", address, *more]).start()


def test_workers_are_shown_as_one_text_whichever_is_asked() -> None:
    (port,) = free_ports(1)
    with ServerProcess(args=["--workers", "2", "--metrics", f"127.0.0.1:{port}"]) as server:
        assert f"metrics on http://127.0.0.1:{port}/metrics" in server.logs()
        api = official.Api(server.endpoint)
        api.create_topic({"name": TOPIC})
        api.create_subscription({"name": SUB, "topic": TOPIC})
        for number in range(40):
            api.publish({"topic": TOPIC, "messages": [{"data": b"x" * 100, "attributes": {"n": str(number)}}] * 5})
        got: list[str] = []
        while len(got) < 200:
            found = api.pull({"subscription": SUB, "max_messages": 200}, timeout=10)
            got += [one.ack_id for one in found.received_messages]
        api.acknowledge({"subscription": SUB, "ack_ids": got[:150]})
        both = ("worker-1",), ("worker-2",)
        for address in (server.endpoint, f"127.0.0.1:{port}") * 2:  # another connection, perhaps another worker
            within(address, "syncpoint_member", dict.fromkeys(both, 1))
            within(
                address, "syncpoint_chains_owned", dict.fromkeys(both, scraped(address, "syncpoint_chains")[both[0]])
            )
            soon(lambda: sum(scraped(address, "syncpoint_publish_messages_total").values()), 200)  # noqa: B023
            soon(lambda: sum(scraped(address, "syncpoint_subscription_acknowledged_total").values()), 150)  # noqa: B023
            soon(lambda: sum(scraped(address, "syncpoint_subscription_backlog_messages").values()), 50)  # noqa: B023
            assert set(scraped(address, "syncpoint_metrics_failures_total").values()) == {0}
            assert set(scraped(address, "syncpoint_metrics_unanswered_total").values()) == {0}
        text = page(server.endpoint)
        assert text.count("# TYPE syncpoint_chains gauge") == 1, "a family stands there once"
        api.close()
