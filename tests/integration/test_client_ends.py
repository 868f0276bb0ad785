"""Ends and edges of `syncpoint.client`: closed while at work, nobody there, forked, asked who it is."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from contextlib import aclosing
from pathlib import Path

import pytest
from click.testing import CliRunner

from syncpoint.base.runtime.ports import free_ports
from syncpoint.client import (
    AcknowledgeError,
    AsyncPublisher,
    AsyncSubscriber,
    Code,
    Message,
    Publisher,
    Subscriber,
    SyncpointError,
)
from syncpoint.programs.cli.main import cli
from syncpoint.testing.rigs.certificates import Authority
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerProcess
from tests.integration.conftest import Space

pytestmark = pytest.mark.shows("client")

TOPIC, SUBSCRIPTION = "projects/demo/topics/orders", "projects/demo/subscriptions/billing"


def nobody() -> str:
    """An address where nobody listens."""
    (port,) = free_ports(1)
    return f"127.0.0.1:{port}"


def test_what_could_not_be_sent_before_the_end_fails() -> None:
    publisher = Publisher(nobody())
    outcomes = [publisher.publish(TOPIC, b"x", ordering_key=key) for key in ("", "k")]
    publisher.stop(timeout=0.2)
    for outcome in outcomes:
        error = outcome.exception(1)
        assert isinstance(error, SyncpointError)
        assert error.code is Code.CANCELLED
    publisher.stop()
    with pytest.raises(RuntimeError, match="closed"):
        publisher.flush()


def test_who_waits_for_room_is_woken_by_the_end() -> None:
    from syncpoint.client import PublishFlowControl

    publisher = Publisher(nobody(), flow_control=PublishFlowControl(message_limit=1))
    publisher.publish(TOPIC, b"x")
    errors: list[BaseException] = []

    def publish() -> None:
        try:
            publisher.publish(TOPIC, b"y")
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=publish)
    thread.start()
    eventually(lambda: publisher._driver._room._waiters)  # type: ignore[attr-defined]
    publisher.stop(timeout=0.1)
    thread.join(20)
    assert [str(one) for one in errors] == ["the publisher is stopped"]


def test_a_subscriber_whose_server_is_away_can_be_closed() -> None:
    with Subscriber(nobody()) as subscriber:
        assert list(subscriber.messages(SUBSCRIPTION, timeout=0.2)) == []
        future = subscriber.subscribe(SUBSCRIPTION, lambda message: message.ack())
    assert future.result(5) is None

    async def work() -> None:
        async with AsyncSubscriber(nobody()) as other:
            assert [one async for one in other.messages(SUBSCRIPTION, timeout=0.2)] == []

    asyncio.run(work())


def test_a_call_that_would_wait_for_itself_is_refused(space: Space) -> None:
    topic = space.topic()
    errors: list[str] = []

    def called(outcome: object) -> None:
        try:
            publisher.stop()
        except RuntimeError as error:
            errors.append(str(error))

    with Publisher(space.endpoint) as publisher:
        publisher.publish(topic, b"x").add_done_callback(called)
        publisher.flush()
        eventually(lambda: errors)
        assert publisher.publish(topic, b"still there").result(20)
    assert "must not be made in a callback" in errors[0]


def test_a_process_that_was_forked_makes_its_own(space: Space) -> None:
    program = (
        "import os, sys\n"
        "from syncpoint.client import Publisher\n"
        f"publisher = Publisher({space.endpoint!r})\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        f"        publisher.publish({space.topic()!r}, b'x')\n"
        "    except RuntimeError as error:\n"
        "        print(error)\n"
        "    sys.exit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "forked" in run.stdout


def test_a_close_waits_for_callbacks_under_way_and_late_acknowledgements_fail(space: Space) -> None:
    topic, subscription = space.pair(ack_deadline_seconds=600)
    space.publish(topic, b"slow", b"late")
    begun = threading.Event()
    kept: list[Message] = []

    def callback(message: Message) -> None:
        if message.data == b"late":
            kept.append(message)
            return
        begun.set()
        time.sleep(0.3)
        message.ack()

    with Subscriber(space.endpoint) as subscriber:
        subscriber.subscribe(subscription, callback)
        assert begun.wait(20)
        eventually(lambda: kept)
    with pytest.raises(AcknowledgeError, match="closed first"):
        kept[0].ack_with_response().result(5)
    got = space.pull(subscription)
    assert [one.message.data for one in got] == [b"late"]


def test_one_who_must_say_who_he_is_does_so_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, key = Authority(tmp_path / "ca"), tmp_path / "admin.json"
    run = CliRunner().invoke
    words = ["iam", "init", str(tmp_path / "auth.yaml"), "--owner", "admin@demo.example", "--key-file", str(key)]
    assert run(cli, [*words, "--project", "demo"]).exit_code == 0
    cert, private = authority.issue("server")
    files = ("--tls-cert", str(cert), "--tls-key", str(private), "--auth", str(tmp_path / "auth.yaml"))
    with ServerProcess(tmp_path / "data", args=files) as server:
        common = ["--endpoint", server.endpoint, "--tls-ca", str(authority.ca), "--credentials", str(key)]
        common += ["--project", "demo"]
        assert run(cli, ["topics", "create", "orders", *common]).exit_code == 0
        assert run(cli, ["subscriptions", "create", "billing", "--topic", "orders", *common]).exit_code == 0
        with Publisher(server.endpoint, tls=authority.ca) as publisher, pytest.raises(SyncpointError) as caught:
            publisher.publish(TOPIC, b"x").result(20)
        assert caught.value.code is Code.UNAUTHENTICATED
        monkeypatch.setenv("SYNCPOINT_CREDENTIALS", str(key))
        monkeypatch.setenv("SYNCPOINT_ADDRESSES", server.endpoint)

        async def work() -> list[bytes]:
            async with AsyncPublisher(tls=authority.ca) as publisher:
                await publisher.publish(TOPIC, b"shown")
            async with AsyncSubscriber(tls=authority.ca) as subscriber:
                async with aclosing(subscriber.messages(SUBSCRIPTION)) as messages:  # type: ignore[type-var]
                    async for message in messages:
                        message.ack()
                        return [message.data]
                raise AssertionError("it has ended")

        assert asyncio.run(work()) == [b"shown"]
