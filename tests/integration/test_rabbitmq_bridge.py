"""A bridge from a real RabbitMQ node to a server: what it makes of messages, and what is left of them after kills."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pika
import pytest

from syncpoint.testing.server_process import ServerProcess
from tests.integration.conftest import Space
from tests.kit.mqtt import BridgeProcess, until
from tests.kit.rabbitmq import MISSING, RABBITMQ, RabbitNode

pytestmark = [pytest.mark.skipif(RABBITMQ is None, reason=MISSING), pytest.mark.shows("rabbitmq")]
LOAD = 1500
UNIQUE = {"duplicate_detection_window": {"seconds": 600}}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    with RabbitNode(tmp_path_factory.mktemp("rabbitmq") / "node") as started:
        yield started


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)[-200:]


def content(node: RabbitNode, way: str, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"version": 1, "rabbitmq": {"broker": node.address, "positions": "positions.json"}, way: list(rules)} | more


def unique(space: Space) -> str:
    """A topic that drops duplicates."""
    topic = space.topic()
    space.asked("UpdateTopicOptions", options={"topic": topic} | UNIQUE, update_mask={"paths": list(UNIQUE)})
    return topic


def test_a_message_of_a_queue_has_the_properties_of_amqp(
    space: Space, node: RabbitNode, queue: str, tmp_path: Path
) -> None:
    node.declare(queue, "quorum")
    subscription = space.subscription(space.topic("orders"), enable_message_ordering=True)
    letters = space.subscription(space.topic("letters"), "letters")
    rule = {"queue": queue, "topic": "orders", "key": "{header.customer}", "id": "{message_id}"}
    headers = {"customer": "c1", "count": 3, "paid": True, "raw": b"\xff", "sys.MessageId": "forged", "list": [1, "a"]}
    headers["price"] = Decimal("1.5")
    given = {"content_type": "text/plain", "correlation_id": "c", "priority": 3, "timestamp": 5}
    with node.channel() as channel:
        channel.queue_declare(queue, passive=True)
        properties = pika.BasicProperties(headers=headers, message_id="7", delivery_mode=2, **given)
        channel.basic_publish("", queue, b"\x00\xff", properties, mandatory=True)
        channel.basic_publish("", queue, b"2", pika.BasicProperties(headers={"note": "x" * 2000}), mandatory=True)
        made = content(node, "in", rule, dead_letters="letters")
        with BridgeProcess(tmp_path / "bridge", space.endpoint, space.project, made) as bridge:
            bridge.until("storedMessages", 1)
            bridge.until("deadLetters", 1)
            assert bridge.stop() == 0
        assert channel.queue_declare(queue, passive=True).method.message_count == 0
    (found,) = [one.message for one in space.pull(subscription, 1, ack=True)]
    assert (found.data, found.ordering_key) == (b"\x00\xff", "c1")
    assert dict(found.attributes) == {
        "customer": "c1",
        "count": "3",
        "price": "1.5",
        "paid": "true",
        "raw": "/w==",
        "list": '[1, "a"]',
        "user.sys.MessageId": "forged",
        "sys.MessageId": "7",
        "rabbitmq.queue": queue,
        "rabbitmq.routingKey": queue,
        "rabbitmq.messageId": "7",
        "rabbitmq.contentType": "text/plain",
        "rabbitmq.correlationId": "c",
        "rabbitmq.priority": "3",
        "rabbitmq.timestamp": "5",
    }
    (letter,) = [one.message for one in space.pull(letters, 1, ack=True)]
    assert (letter.data, letter.attributes["bridge.source"]) == (b"2", f"the queue {queue!r}")
    assert "note has more than 1,024 bytes" in letter.attributes["bridge.reason"]


def stored(space: Space, subscription: str) -> dict[str, list[int]]:
    """The numbers of all messages by key, in the order of their delivery."""
    found: dict[str, list[int]] = {}
    for one in space.rest(subscription):
        found.setdefault(one.message.ordering_key, []).append(int(one.message.data))
    return found


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_kills_of_everything_lose_nothing_store_identified_messages_once_and_keep_the_order_of_keys(
    boot: Callable[..., ServerProcess],
    enter: Callable[[str], Space],
    node: RabbitNode,
    kind: str,
    tmp_path: Path,
) -> None:
    server = boot()
    space = enter(server.endpoint)
    topic = unique(space)
    subscription = space.subscription(topic, enable_message_ordering=True)
    queue = node.declare(f"kills-{kind}", kind)
    rule = {"topic": topic, "key": "{header.key}"}
    rule |= {"stream": queue} if kind == "stream" else {"queue": queue, "id": "{message_id}"}
    bridge = BridgeProcess(tmp_path / "bridge", space.endpoint, space.project, content(node, "in", rule))

    def send(begin: int) -> None:
        with node.channel() as channel:
            for number in range(begin, begin + LOAD // 3):
                headers = {"key": f"k{number % 3}"}
                properties = pika.BasicProperties(headers=headers, message_id=str(number), delivery_mode=2)
                channel.basic_publish("", queue, b"%d" % number, properties)

    with bridge:
        os.kill(server.pid or 0, signal.SIGSTOP)
        send(0)
        bridge.until("heldMessages", 300)
        bridge.kill()  # the server stores what is on its way later
        os.kill(server.pid or 0, signal.SIGCONT)
        bridge.start()
        send(LOAD // 3)
        server.restart(hard=True)
        send(2 * LOAD // 3)
        node.kill()
        node.start()
        space = enter(server.endpoint)
        bridge.until("connects", 2)
        end = space.subscription(topic, "end")
        with node.channel() as channel:
            channel.basic_publish("", queue, b"-1", pika.BasicProperties(message_id="end", delivery_mode=2))
        while space.pull(end, 1, ack=True, within=60.0)[-1].message.data != b"-1":
            pass
        until(lambda: bridge.status()["heldMessages"] == 0, bridge.output)
        assert bridge.stop() == 0
    found = stored(space, subscription)
    assert found.pop("") == [-1]
    assert found == {f"k{key}": list(range(key, LOAD, 3)) for key in range(3)}


def test_a_message_that_is_not_stored_comes_again_in_the_order_of_its_key(
    space: Space, node: RabbitNode, queue: str, tmp_path: Path
) -> None:
    node.declare(queue)
    rule = {"queue": queue, "topic": "late", "key": "{routing_key}"}
    with node.channel() as channel:
        for number in range(50):
            channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=2))
    with BridgeProcess(tmp_path / "bridge", space.endpoint, space.project, content(node, "in", rule)) as bridge:
        bridge.until("failedMessages", 50)
        topic = space.topic("late", message_retention_duration={"seconds": 600})
        bridge.until("storedMessages", 50)
        assert bridge.stop() == 0
    subscription = space.subscription(topic, enable_message_ordering=True)
    space.api.seek({"subscription": subscription, "time": {"seconds": 0}})
    assert stored(space, subscription) == {queue: list(range(50))}
