"""The command line against a real server: a user's first ten minutes, as separate processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syncpoint.testing.server_process import ServerProcess

pytestmark = pytest.mark.shows("cli")

Run = Callable[..., subprocess.CompletedProcess[str]]


def command(endpoint: str, tmp_path: Path, project: str) -> Run:
    """Runs `syncpoint ...` against a server, in a project of its own."""
    env = os.environ | {
        "PUBSUB_EMULATOR_HOST": endpoint,
        "PUBSUB_PROJECT_ID": project,
        "SYNCPOINT_CONFIG": str(tmp_path / "config.toml"),
        "SYNCPOINT_DATA": str(tmp_path / "data"),
    }

    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "syncpoint.programs.cli", *words]
        done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    return run


@pytest.fixture
def run(endpoint: str, tmp_path: Path) -> Run:
    return command(endpoint, tmp_path, f"p{uuid.uuid4().hex[:16]}")


def ask(run: Run, *words: str) -> Any:
    return json.loads(run(*words, "--format", "json").stdout)


def test_publish_pull_ack(run):
    run("topics", "create", "orders")
    run("subscriptions", "create", "billing", "--topic", "orders", "--ack-deadline", "60")
    (message_id,) = ask(run, "topics", "publish", "orders", "--message", "hello", "--attribute", "a=1")["messageIds"]
    (received,) = ask(run, "subscriptions", "pull", "billing", "--wait")
    assert received["message"]["data"] == "aGVsbG8="
    assert received["message"]["attributes"] == {"a": "1"}
    assert received["message"]["messageId"] == message_id
    run("subscriptions", "ack", "billing", "--ack-ids", received["ackId"])
    assert ask(run, "subscriptions", "pull", "billing") == []


@pytest.fixture
def begin(endpoint: str, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Begins `syncpoint ...` in a project, and returns once it reports that it follows."""
    begun = []

    def start(project: str, *words: str) -> subprocess.Popen[str]:
        env = os.environ | {"PUBSUB_EMULATOR_HOST": endpoint, "PUBSUB_PROJECT_ID": project}
        env["SYNCPOINT_CONFIG"] = str(tmp_path / "config.toml")
        line = [sys.executable, "-m", "syncpoint.programs.cli", *words]
        made = subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        begun.append(made)
        assert made.stderr is not None
        assert "Ctrl-C ends it" in made.stderr.readline()
        return made

    yield start
    for one in begun:
        one.kill()
        one.communicate()


def test_messages_are_followed_until_a_signal_or_a_reader_that_leaves(endpoint, tmp_path, begin):
    project = f"p{uuid.uuid4().hex[:16]}"
    run = command(endpoint, tmp_path, project)
    run("topics", "create", "orders")
    run("subscriptions", "create", "billing", "--topic", "orders")
    run("topics", "publish", "orders", "--message", "old", "--attribute", "region=eu")
    tail = begin(project, "tail", "orders", "--last", "5", "--filter", 'attributes.region = "eu"', "--format", "lines")
    follow = begin(project, "subscriptions", "pull", "billing", "--follow", "--auto-ack", "--format", "lines")
    for region in ("us", "eu"):
        run("topics", "publish", "orders", "--message", f"new {region}", "--attribute", f"region={region}")
    assert [tail.stdout.readline() for _ in range(2)] == ["old\n", "new eu\n"]
    assert sorted(follow.stdout.readline() for _ in range(3)) == ["new eu\n", "new us\n", "old\n"]
    assert len(ask(run, "subscriptions", "list")) == 2
    tail.send_signal(signal.SIGINT)
    follow.send_signal(signal.SIGTERM)
    assert (tail.wait(60), follow.wait(60)) == (0, 0)
    assert (tail.stdout.read(), follow.stdout.read()) == ("", "")
    assert [one["name"].rpartition("/")[2] for one in ask(run, "subscriptions", "list")] == ["billing"]
    assert ask(run, "subscriptions", "pull", "billing") == []
    # Held without --auto-ack, and given back when the reader leaves.
    run("topics", "publish", "orders", "--message", "kept")
    held = begin(project, "subscriptions", "pull", "billing", "--follow", "--format", "json")
    assert json.loads(held.stdout.readline())["message"]["data"] == "a2VwdA=="
    held.stdout.close()
    assert held.wait(60) == 0
    assert "kept" in run("subscriptions", "pull", "billing", "--wait", "--auto-ack").stdout


def test_bench_counts_each_message_and_leaves_nothing_behind(run):
    published = ask(run, "bench", "pub", "--messages", "1050", "--size", "50", "--keys", "3")
    assert (published["messages"], published["payloadBytes"]) == (1050, 52500)
    assert published["latencySeconds"]["max"] >= published["latencySeconds"]["p50"] > 0
    assert ask(run, "topics", "list") == ask(run, "subscriptions", "list") == []
    paced = ask(run, "bench", "pub", "--for", "1", "--rate", "200", "--batch", "1", "--size", "10")
    assert 0 < paced["messages"] <= 200, "as many as were due"
    run("bench", "pub", "--messages", "1000", "--keep")
    (kept,) = ask(run, "subscriptions", "list")
    received = ask(run, "bench", "sub", "--subscription", kept["name"], "--messages", "1000", "--connections", "2")
    assert received["messages"] == 1000
    nothing = run("bench", "sub", "--subscription", kept["name"], "--idle", "0.5", code=1)
    assert "bench pub --keep" in nothing.stderr
    assert "one of --subscription and --topic" in run("bench", "sub", code=2).stderr
    run("bench", "sub", "--topic", kept["topic"], "--idle", "0.3", code=1)
    assert len(ask(run, "subscriptions", "list")) == 1


def test_modify_ack_deadline_gives_a_message_back(run):
    run("topics", "create", "orders")
    run("subscriptions", "create", "billing", "--topic", "orders", "--ack-deadline", "600")
    run("topics", "publish", "orders", "--message", "again")
    (first,) = ask(run, "subscriptions", "pull", "billing", "--wait")
    run("subscriptions", "modify-ack-deadline", "billing", "--ack-ids", first["ackId"], "--ack-deadline", "0")
    (second,) = ask(run, "subscriptions", "pull", "billing", "--wait", "--auto-ack")
    assert second["message"] == first["message"]
    assert second["ackId"] != first["ackId"]


def test_filter_and_update(run):
    run("topics", "create", "orders", "--labels", "team=shop")
    run("subscriptions", "create", "europe", "--topic", "orders", "--message-filter", 'attributes.region = "eu"')
    run("topics", "publish", "orders", "--message", "no", "--attribute", "region=us")
    run("topics", "publish", "orders", "--message", "yes", "--attribute", "region=eu")
    assert "yes" in run("subscriptions", "pull", "europe", "--wait", "--auto-ack").stdout
    run(
        "subscriptions",
        "update",
        "europe",
        "--ack-deadline",
        "77",
        "--update-labels",
        "a=b",
        "--expiration-period",
        "never",
    )
    found = ask(run, "subscriptions", "describe", "europe")
    assert found["ackDeadlineSeconds"] == 77
    assert found["labels"] == {"a": "b"}
    assert found["filter"] == 'attributes.region = "eu"'
    run("topics", "update", "orders", "--message-retention-duration", "1h", "--clear-labels")
    topic = ask(run, "topics", "describe", "orders")
    assert topic["messageRetentionDuration"] == "3600s"
    assert "labels" not in topic


def test_snapshot_and_seek(run):
    run("topics", "create", "orders")
    run("subscriptions", "create", "billing", "--topic", "orders")
    run("topics", "publish", "orders", "--message", "kept")
    run("snapshots", "create", "before", "--subscription", "billing")
    run("subscriptions", "pull", "billing", "--wait", "--auto-ack")
    assert ask(run, "subscriptions", "pull", "billing") == []
    run("subscriptions", "seek", "billing", "--snapshot", "before")
    assert "kept" in run("subscriptions", "pull", "billing", "--wait", "--auto-ack").stdout
    assert len(ask(run, "snapshots", "list")) == 1
    run("snapshots", "update", "before", "--update-labels", "a=b")
    assert ask(run, "snapshots", "describe", "before")["labels"] == {"a": "b"}
    run("snapshots", "delete", "before")


def test_lists_and_deletes(run):
    run("topics", "create", "one", "two")
    run("subscriptions", "create", "s-one", "s-two", "--topic", "one")
    assert [topic["name"].rpartition("/")[2] for topic in ask(run, "topics", "list")] == ["one", "two"]
    assert len(ask(run, "topics", "list-subscriptions", "one")) == 2
    assert "s-one" in run("subscriptions", "list").stdout
    run("topics", "delete", "one")
    assert ask(run, "subscriptions", "describe", "s-one")["topic"] == "_deleted-topic_"
    run("subscriptions", "delete", "s-one", "s-two")
    run("topics", "delete", "two")
    assert ask(run, "topics", "list") == []


def test_what_goes_wrong_is_reported(run):
    assert "NOT_FOUND" in run("topics", "describe", "absent", code=3).stderr
    run("topics", "create", "orders")
    assert "ALREADY_EXISTS" in run("topics", "create", "orders", code=4).stderr
    assert "3 to 255" in run("topics", "create", "x", code=1).stderr
    assert "syncpoint serve" in run("topics", "list", "--endpoint", "127.0.0.1:1", code=5).stderr


def test_operations(run):
    assert ask(run, "server", "describe")["version"]
    (disk,) = ask(run, "disks", "list")["disks"]
    assert disk["state"] == "OK"
    run("topics", "create", "orders")
    run("subscriptions", "create", "billing", "--topic", "orders")
    run("topics", "publish", "orders", "--message", "x")
    assert int(ask(run, "subscriptions", "state", "billing")["backlogMessages"]) == 1
    assert ask(run, "topics", "state", "orders")["sources"]
    assert "system" in run("limits", "get").stdout


def test_limits_are_kept_over_a_restart(boot, tmp_path):
    server: ServerProcess = boot()
    run = command(server.endpoint, tmp_path, "p")
    run("limits", "set", "topic", "--topic", "orders", "--messages", "123")
    server.restart()
    assert ask(run, "limits", "get")["topics"]["projects/p/topics/orders"]["messages"] == "123"


def test_doctor_beside_a_running_server(boot, tmp_path):
    server: ServerProcess = boot()
    run = command(server.endpoint, tmp_path, "p")
    found = run("doctor", "--port", str(server.port), "--data", str(server.data)).stdout
    assert "a server answers" in found


def test_a_second_server_says_what_is_in_its_way(boot, tmp_path):
    server: ServerProcess = boot()
    run = command(server.endpoint, tmp_path, "p")
    same_port = run("serve", "--port", str(server.port), "--data", str(tmp_path / "other"), code=1)
    assert "syncpoint doctor" in same_port.stderr
    same_data = run("serve", "--port", "0", "--data", str(server.data), code=1)
    assert str(server.data) in same_data.stderr


def test_the_fixture(syncpoint_server, tmp_path):
    assert os.environ["PUBSUB_EMULATOR_HOST"] == syncpoint_server.endpoint
    run = command(syncpoint_server.endpoint, tmp_path, syncpoint_server.project)
    run("topics", "create", "orders")
    syncpoint_server.kill()
    assert "syncpoint serve" in run("topics", "list", code=5).stderr
    syncpoint_server.restart()
    assert ask(run, "topics", "list") == [{"name": syncpoint_server.topic("orders"), "state": "ACTIVE"}]
    assert syncpoint_server.stop() == 0
