"""Tests of users' programs: fixtures of pytest, a base class for unittest, and a class shaped as testcontainers' are.

Each is used by a suite of its own, in a process of its own, as users run theirs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from google.api_core.exceptions import NotFound

from syncpoint.testing import SyncpointContainer, SyncpointTestCase
from syncpoint.testing.server_process import ServerFailed

pytestmark = pytest.mark.shows("cli")

SUITE = '''
import os
from google.cloud import pubsub_v1

servers, projects = set(), set()


def uses(server):
    """The same names in each test: every project is fresh."""
    servers.add(server.process.pid)
    projects.add(server.project)
    assert os.environ["PUBSUB_PROJECT_ID"] == server.project
    publisher = pubsub_v1.PublisherClient()
    publisher.create_topic(name=server.topic("orders"))
    assert [one.name for one in publisher.list_topics(project=f"projects/{server.project}")] == [server.topic("orders")]
    publisher.transport.close()


def test_one(syncpoint_project):
    uses(syncpoint_project)


def test_two(syncpoint_project):
    uses(syncpoint_project)
    syncpoint_project.kill()  # the next test gets a server that runs


def test_three(syncpoint_project):
    uses(syncpoint_project)
    assert len(projects) == 3
    assert len(servers) == 2
    print("PIDS", *servers)


def test_the_environment_is_as_before():
    assert "PUBSUB_EMULATOR_HOST" not in os.environ
'''

CASE = """
import unittest
from google.cloud import pubsub_v1
from syncpoint.testing import SyncpointTestCase


class Orders(SyncpointTestCase):
    def test_arrive(self):
        publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
        topic, billing = self.syncpoint.topic("orders"), self.syncpoint.subscription("billing")
        publisher.create_topic(name=topic)
        subscriber.create_subscription(name=billing, topic=topic)
        publisher.publish(topic, b"hello").result()
        got = subscriber.pull(subscription=billing, max_messages=1).received_messages
        self.assertEqual([one.message.data for one in got], [b"hello"])
        print("PIDS", self.syncpoint.process.pid)

    def test_begin_with_nothing(self):
        publisher = pubsub_v1.PublisherClient()
        publisher.create_topic(name=self.syncpoint.topic("orders"))


if __name__ == "__main__":
    unittest.main()
"""


def finished(folder: Path, *words: str) -> str:
    """The output of a program that went well, outside of this suite."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PUBSUB", "SYNCPOINT"))}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def are_gone(printed: str) -> bool:
    """Whether the processes that a suite named have ended."""
    (line,) = [line for line in printed.splitlines() if "PIDS" in line]
    pids = [int(word) for word in line.partition("PIDS")[2].split()]
    end = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    return bool(pids) and not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_pytest_has_one_server_and_a_fresh_project_for_each_test(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(SUITE)
    printed = finished(tmp_path, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:randomly")
    assert "4 passed" in printed
    assert are_gone(printed)


def test_unittest_has_a_base_class(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(CASE)
    printed = finished(tmp_path, "test_orders.py")
    assert "Ran 2 tests" in printed
    assert are_gone(printed)


def test_a_class_of_tests_restarts_a_server_that_a_test_ended() -> None:
    class Case(SyncpointTestCase):
        def runTest(self) -> None:
            return None

    case = Case()
    Case.setUpClass()
    try:
        case.setUp()
        first = case.syncpoint
        first.kill()
        case.setUp()
        assert case.syncpoint.process.running
        assert case.syncpoint.project != first.project
    finally:
        case.doCleanups()
        Case.doClassCleanups()
    assert not first.process.running


def test_a_container_without_docker() -> None:
    with SyncpointContainer(project="shop") as container:
        host, port = container.get_container_host_ip(), container.get_exposed_port(8085)
        assert container.get_emulator_host() == f"{host}:{port}"
        publisher, subscriber = container.get_publisher_client(), container.get_subscriber_client()
        topic, billing = publisher.topic_path("shop", "orders"), subscriber.subscription_path("shop", "billing")
        publisher.create_topic(name=topic)
        subscriber.create_subscription(name=billing, topic=topic)
        publisher.publish(topic, b"hello").result(30)
        got = subscriber.pull(subscription=billing, max_messages=1).received_messages
        assert [one.message.data for one in got] == [b"hello"]
        with SyncpointContainer() as other, pytest.raises(NotFound):
            other.get_publisher_client().get_topic(topic=topic)
        subscriber.close()
        publisher.transport.close()
        assert b"syncpoint ready on" in container.get_logs()[0]
        data = container._process.data
        assert data.is_dir()
    assert not data.exists()
    container.stop()  # twice is no error


def test_a_container_that_does_not_start_says_why() -> None:
    container = SyncpointContainer(args=["--tls-client-ca", __file__])
    with pytest.raises(ServerFailed, match="--tls-client-ca needs --tls-cert"):
        container.start()
    container.stop()
