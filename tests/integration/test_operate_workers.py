"""`serve --workers`: several processes behind one port, on the folder of one server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from syncpoint.front.client.client import Client
from syncpoint.testing.rigs import official
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf.messages import admin
from tests.integration.test_operate_backup import drain, publish
from tests.integration.test_operate_import import check, check_epochs, fill, write_epochs

pytestmark = pytest.mark.shows("workers")

TOPIC, SUB = "projects/p/topics/busy", "projects/p/subscriptions/busy"


def workers_of(parent: int) -> dict[str, int]:
    """The workers of a parent by name."""
    listed = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(parent)], capture_output=True, text=True).stdout
    return {line.split()[1]: int(line.split()[0]) for line in listed.splitlines() if "worker-" in line}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "data", args=["--workers", "2"])
    yield server
    server.close()


def patiently(api: official.Api, body: bytes) -> str:
    """Publish as Google's clients do, which try UNAVAILABLE again."""

    def once() -> str:
        try:
            return str(api.publish({"topic": TOPIC, "messages": [{"data": body}]}).message_ids[0])
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return ""

    return str(eventually(once))


@pytest.mark.long
def test_the_folder_of_one_server_is_taken_over(tmp_path: Path) -> None:
    single = ServerProcess(tmp_path / "data").start()
    try:
        api, sent, acked = fill(official.Api(single.endpoint), lambda: again(single))
        api.close()
        write_epochs(single.endpoint)
    finally:
        single.close()
    several = ServerProcess(tmp_path / "data", args=["--workers", "2"]).start()
    try:
        assert len(workers_of(several.pid or 0)) == 2
        api = official.Api(several.endpoint)
        check(api, sent, acked)
        check_epochs(several.endpoint)
        later = publish(api, TOPIC_OF_FILL, b"kept over a restart")
        api.close()
    finally:
        several.close()
    plain = ServerProcess(tmp_path / "data").start()  # the folder says that it is run by workers
    try:
        assert len(workers_of(plain.pid or 0)) == 2
        api = official.Api(plain.endpoint)
        assert drain(api, "projects/p/subscriptions/plain", 1) == later
        api.close()
    finally:
        plain.close()


TOPIC_OF_FILL = "projects/p/topics/orders"


def again(server: ServerProcess) -> official.Api:
    server.restart()
    return official.Api(server.endpoint)


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)])
def test_a_worker_that_dies_or_hangs_is_replaced(node: ServerProcess, number: signal.Signals) -> None:
    node.start()
    api = official.Api(node.endpoint)
    api.create_topic({"name": TOPIC})
    api.create_subscription({"name": SUB, "topic": TOPIC})
    sent: dict[bytes, str] = {}
    before = workers_of(node.pid or 0)
    for name, pid in sorted(before.items()):
        for at in range(20):
            body = b"%s %d" % (name.encode(), at)
            sent[body] = patiently(api, body)
            if at == 5:
                os.kill(pid, number)
            if at > 5:
                time.sleep(0.05)
        eventually(lambda old=pid, who=name: workers_of(node.pid or 0).get(who, old) != old)
        eventually(lambda: len(set(sent.values())) == len(sent))
    assert len(workers_of(node.pid or 0)) == 2
    found = drain(api, SUB, len(sent))
    assert sent.items() <= found.items()
    api.close()


def test_workers_end_with_their_parent(node: ServerProcess) -> None:
    node.start()
    pids = workers_of(node.pid or 0).values()
    assert len(pids) == 2
    node.kill9()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    node.start()
    assert node.terminate() == 0


def _runs(pid: int) -> bool:
    """Whether a process has not ended; one that nobody has collected yet has."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def test_a_server_that_is_started_again_waits_for_the_workers_of_one_that_was_killed(node: ServerProcess) -> None:
    """They have the port for as long as they live, and may be busy."""
    node.start()
    pids = workers_of(node.pid or 0).values()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    node.kill9()
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(node.start)
        try:
            eventually(lambda: "waiting for workers of the previous server" in node.logs() or started.done())
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        started.result()
    assert not any(_runs(pid) for pid in pids)
    assert node.terminate() == 0


def test_disks_list_reports_how_the_disks_of_workers_are(node: ServerProcess) -> None:
    """Which no process serves to others: the workers that write them report."""
    node.start()
    with Client(node.endpoint) as client:

        def states() -> list[str]:
            answer = client.call("Admin.ListDisks", admin.ListDisksRequest())
            return [f"{one.path} {one.state} {one.HasField('free_bytes')}" for one in answer.disks]

        expected = [f"{node.data / 'disk-1'} {admin.Disk.OK} True"]
        assert eventually(lambda: states() == expected)
