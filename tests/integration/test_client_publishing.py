"""Publishers of `syncpoint.client` and a server: what is confirmed is stored, in the order of keys, also over kills."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from syncpoint.client import (
    AsyncPublisher,
    BatchSettings,
    BulkPublishError,
    ClientRetry,
    Code,
    FlowControlLimitError,
    LimitExceededBehavior,
    OutgoingMessage,
    PausedOrderingKeyError,
    Publisher,
    PublishFlowControl,
    SyncpointError,
)
from syncpoint.testing.server_process import ServerProcess
from tests.integration.conftest import Space

pytestmark = pytest.mark.shows("client")


def test_a_message_is_published_as_it_was_given(space: Space) -> None:
    topic, subscription = space.pair()
    with Publisher(space.endpoint) as publisher:
        ids = [
            publisher.publish(topic, b"plain").result(20),
            publisher.publish(topic, b"keyed", ordering_key="k", color="red", size="xl").result(20),
            publisher.publish(topic, b"", only="attributes").result(20),
        ]
    got = {one.message.message_id: one.message for one in space.pull(subscription, 3)}
    assert [got[one].data for one in ids] == [b"plain", b"keyed", b""]
    assert (got[ids[1]].ordering_key, dict(got[ids[1]].attributes)) == ("k", {"color": "red", "size": "xl"})
    assert dict(got[ids[2]].attributes) == {"only": "attributes"}


def test_many_threads_share_requests_and_keep_the_order_of_their_keys(space: Space) -> None:
    topic, subscription = space.pair(enable_message_ordering=True)
    with Publisher(space.endpoint, batch_settings=BatchSettings(max_messages=10)) as publisher:

        def publish(key: str) -> None:
            for number in range(200):
                publisher.publish(topic, b"%d" % number, ordering_key=key)

        threads = [threading.Thread(target=publish, args=(f"k{n}",)) for n in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        publisher.flush()
    found: dict[str, list[int]] = {}
    for one in space.stream(subscription).wait(1000):
        found.setdefault(one.message.ordering_key, []).append(int(one.message.data))
    assert found == {f"k{n}": list(range(200)) for n in range(5)}


def test_ids_of_many_messages_are_returned_in_the_order_given(space: Space) -> None:
    topic, subscription = space.pair()
    messages: list[Any] = [b"%d" % n for n in range(2500)]
    messages[7] = OutgoingMessage(b"7", "key", {"n": "7"})
    with Publisher(space.endpoint) as publisher:
        ids = publisher.publish_many(topic, iter(messages))
    got = {one.message.message_id: int(one.message.data) for one in space.pull(subscription, 2500, ack=True)}
    assert [got[one] for one in ids] == list(range(2500))


def test_an_error_is_returned_and_pauses_its_key_alone(space: Space) -> None:
    topic = space.topic()
    with Publisher(space.endpoint) as publisher:
        with pytest.raises(SyncpointError) as caught:
            publisher.publish(topic, b"x", ordering_key="k", **{"k" * 257: "too long"}).result(20)
        assert caught.value.code is Code.INVALID_ARGUMENT
        with pytest.raises(PausedOrderingKeyError, match="resume_publish"):
            publisher.publish(topic, b"x", ordering_key="k")
        with pytest.raises(BulkPublishError) as bulk:
            publisher.publish_many(topic, [b"lost", OutgoingMessage(b"stored", "other")], "k")
        assert bulk.value.ids[0] is None
        assert bulk.value.ids[1]
        publisher.resume_publish(topic, "k")
        assert publisher.publish(topic, b"x", ordering_key="k").result(20)
        with pytest.raises(SyncpointError) as caught:
            publisher.publish(space.path("topics", "nowhere"), b"x").result(20)
        assert caught.value.code is Code.NOT_FOUND
    with pytest.raises(RuntimeError, match="stopped"):
        publisher.publish(topic, b"x")


def test_flow_control_blocks_or_raises_as_wished(space: Space) -> None:
    topic, subscription = space.pair()
    slow = BatchSettings(max_messages=10, max_latency=0.2)
    flow = PublishFlowControl(message_limit=3, limit_exceeded_behavior=LimitExceededBehavior.ERROR)
    waits = BatchSettings(max_messages=10, max_latency=60)
    with Publisher(space.endpoint, batch_settings=waits, flow_control=flow) as publisher:
        for _ in range(3):
            publisher.publish(topic, b"x")
        with pytest.raises(FlowControlLimitError, match="the limits are 3 and"):
            publisher.publish(topic, b"x")
    with Publisher(space.endpoint, batch_settings=slow, flow_control=PublishFlowControl(message_limit=3)) as publisher:
        outcomes = [publisher.publish(topic, b"x") for _ in range(9)]
        assert sum(one.done() for one in outcomes) >= 6
    assert len(space.pull(subscription, 12)) == 12


def test_coroutines_publish_and_share_requests(space: Space) -> None:
    topic, subscription = space.pair()

    async def work() -> tuple[list[str], list[str]]:
        async def some() -> Any:
            for n in range(30):
                yield b"some-%d" % n

        async with AsyncPublisher(space.endpoint, flow_control=PublishFlowControl(message_limit=20)) as publisher:
            found = await asyncio.gather(*(publisher.publish(topic, b"%d" % n) for n in range(100)))
            with pytest.raises(SyncpointError):
                await publisher.publish(space.path("topics", "nowhere"), b"x")
            return found, await publisher.publish_many(topic, some())

    ids, more = asyncio.run(work())
    got = {one.message.message_id: one.message.data for one in space.pull(subscription, 130)}
    assert [got[one] for one in ids] == [b"%d" % n for n in range(100)]
    assert [got[one] for one in more] == [b"some-%d" % n for n in range(30)]


def test_the_end_of_a_program_sends_what_its_publisher_still_has(space: Space) -> None:
    topic, subscription = space.pair()
    program = (
        "from syncpoint.client import *\n"
        f"publisher = Publisher({space.endpoint!r}, batch_settings=BatchSettings(max_latency=30))\n"
        f"publisher.publish({topic!r}, b'last words')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert space.pull(subscription)[0].message.data == b"last words"


def test_what_was_confirmed_is_there_after_kills_and_keys_are_in_order(
    boot: Callable[..., ServerProcess], enter: Callable[[str], Space]
) -> None:
    server = boot()
    space = enter(server.endpoint)
    topic, subscription = space.pair(enable_message_ordering=True)
    confirmed: list[tuple[str, int]] = []
    stop = threading.Event()
    with Publisher(server.endpoint, retry=ClientRetry(maximum=0.5)) as publisher:

        def publish() -> None:
            number = 0
            while not stop.is_set():
                outcomes = {
                    (key, n): publisher.publish(topic, b"%d" % n, ordering_key=key)
                    for n in range(number, number + 50)
                    for key in ("a", "b")
                }
                number += 50
                for named, outcome in outcomes.items():
                    outcome.result(120)
                    confirmed.append(named)

        thread = threading.Thread(target=publish)
        thread.start()
        for _ in range(3):
            before = len(confirmed)
            while len(confirmed) < before + 200:
                time.sleep(0.01)
            server.kill9()
            server.start()
        stop.set()
        thread.join()
    found: dict[str, list[int]] = {"a": [], "b": []}
    stream = enter(server.endpoint)
    stream.project = space.project
    received = stream.stream(subscription)
    wanted = set(confirmed)
    end = time.monotonic() + 60
    while wanted - {(one.message.ordering_key, int(one.message.data)) for one in list(received.messages)}:
        assert time.monotonic() < end
        time.sleep(0.1)
    for one in received.messages:
        found[one.message.ordering_key].append(int(one.message.data))
    for numbers in found.values():
        firsts = list(dict.fromkeys(numbers))  # what was sent again may be there twice
        assert firsts == sorted(firsts)
