"""Bridges from subscriptions to a real MQTT broker and a real RabbitMQ node: what arrives there, also after kills."""

from __future__ import annotations

import queue
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from syncpoint.testing.server_process import ServerProcess
from tests.integration.conftest import Space
from tests.kit.mqtt import MISSING, MOSQUITTO, PERSISTENT, BridgeProcess, Mosquitto, until
from tests.kit.rabbitmq import MISSING as NO_RABBITMQ
from tests.kit.rabbitmq import RABBITMQ, RabbitNode

pytestmark = pytest.mark.shows("bridges-out")
with_mqtt = pytest.mark.skipif(MOSQUITTO is None, reason=MISSING)
with_rabbitmq = pytest.mark.skipif(RABBITMQ is None, reason=NO_RABBITMQ)
LOAD = 900
SENT = re.compile(r"Received PUBLISH from bridge \(d\d, q\d, r\d, m\d+, 'load/(k\d)/(\d+)'")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    with RabbitNode(tmp_path_factory.mktemp("rabbitmq") / "node") as started:
        yield started


def to_mqtt(broker: Mosquitto, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"version": 1, "mqtt": {"broker": broker.address, "client_id": "bridge"}, "out": list(rules)} | more


def to_rabbitmq(node: RabbitNode, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"version": 1, "rabbitmq": {"broker": node.address}, "out": list(rules)} | more


def drained(space: Space, subscription: str, bridge: BridgeProcess) -> None:
    """Wait until the bridge holds nothing, end it, and see that nothing is left to deliver."""
    until(lambda: bridge.status()["heldMessages"] == 0, bridge.output)
    assert bridge.stop() == 0, bridge.output()
    assert space.pull_once(subscription, wait=1.0) == []


@with_mqtt
def test_mqtt_messages_have_topics_and_properties_and_what_is_refused_becomes_a_dead_letter(
    space: Space, tmp_path: Path
) -> None:
    access = tmp_path / "access"
    access.write_text("topic readwrite plant/#\n")
    topic, subscription = space.pair(enable_message_ordering=True)
    letters = space.subscription(space.topic("letters"), "letters")
    got: queue.SimpleQueue[MQTTMessage] = queue.SimpleQueue()
    rules = [
        {"subscription": "sub", "topic": "{attribute.to}", "qos": 2, "retain": True, "expiry": "1h"},
        {"subscription": space.subscription(topic, "other", filter="attributes:q1"), "topic": "{attribute.to}/1"},
    ]
    with Mosquitto(tmp_path / "broker", "allow_anonymous true", f"acl_file {access}") as broker:
        device = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
        device.on_message = lambda _, __, message: got.put(message)
        device.connect("127.0.0.1", broker.port)
        device.subscribe("plant/#", 2)
        device.loop_start()
        given = {"mqtt.contentType": "text/plain", "mqtt.correlationData": "AP8=", "mqtt.topic": "old", "unit": "C"}
        made = to_mqtt(broker, *rules, dead_letters="letters")
        with BridgeProcess(tmp_path / "bridge", space.endpoint, space.project, made) as bridge:
            (wanted,) = space.publish(topic, b"\x00\xff", key="k", attributes={"to": "plant/oven"} | given)
            space.publish(topic, b"denied", key="k", attributes={"to": "secret", "q1": ""})
            space.publish(topic, b"wild", attributes={"to": "plant/#"})
            space.publish(topic, b"lost", attributes={"unit": "C"})
            space.publish(topic, b"last", key="k", attributes={"to": "plant/last"})
            one, last = got.get(timeout=20), got.get(timeout=20)
            bridge.until("deadLetters", 5 - 1)
            bridge.until("storedMessages", 2)
            drained(space, subscription, bridge)
        device.disconnect()
        device.loop_stop()
    assert (one.topic, one.payload, one.qos, last.payload) == ("plant/oven", b"\x00\xff", 2, b"last")
    properties: Any = one.properties
    assert (properties.ContentType, properties.CorrelationData) == ("text/plain", b"\x00\xff")
    assert 3_000 < properties.MessageExpiryInterval <= 3_600, "less what it waited at the broker"
    users = {"to": "plant/oven", "unit": "C", "sys.serverMessageId": wanted, "sys.orderingKey": "k"}
    assert dict(properties.UserProperty) == users
    reasons = [(one.message.data, one.message.attributes["bridge.reason"]) for one in space.pull(letters, 4, ack=True)]
    assert sorted((data, reason.partition(":")[0]) for data, reason in reasons) == [
        (b"denied", "the MQTT broker"),
        (b"denied", "the MQTT broker"),
        (b"lost", "it lacks {attribute.to}, of which its target is made"),
        (b"wild", "no message can be sent to the MQTT topic 'plant/#'"),
    ]


@with_mqtt
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt_gets_everything_in_the_order_of_keys_when_everything_is_killed(
    boot: Callable[..., ServerProcess], enter: Callable[[str], Space], tmp_path: Path, qos: int
) -> None:
    server = boot()
    space = enter(server.endpoint)
    topic, subscription = space.pair(enable_message_ordering=True)
    rule = {"subscription": subscription, "topic": "load/{key}/{attribute.number}", "qos": qos}

    def send(space: Space, begin: int) -> None:
        for number in range(begin, begin + LOAD // 3):
            space.publish(topic, b"x", key=f"k{number % 9}", attributes={"number": str(number)})

    with Mosquitto(tmp_path / "broker", *PERSISTENT) as broker:
        bridge = BridgeProcess(tmp_path / "bridge", space.endpoint, space.project, to_mqtt(broker, rule))
        with bridge:
            send(space, 0)
            bridge.kill()
            bridge.start()
            send(space, LOAD // 3)
            broker.kill()
            send(space, 2 * LOAD // 3)
            broker.start()
            server.restart(hard=True)
            space = enter(server.endpoint)
            until(lambda: len(set(SENT.findall(broker.text()))) == LOAD, lambda: (bridge.status(), bridge.output()))
            drained(space, subscription, bridge)
        log = broker.text()
    found: dict[str, dict[int, None]] = {}
    for key, number in SENT.findall(log):
        found.setdefault(key, {})[int(number)] = None
    assert {key: list(numbers) for key, numbers in found.items()} == {
        f"k{n}": list(range(n, LOAD, 9)) for n in range(9)
    }


@with_rabbitmq
def test_rabbitmq_messages_have_headers_and_what_is_returned_becomes_a_dead_letter(
    space: Space, node: RabbitNode, tmp_path: Path
) -> None:
    topic, subscription = space.pair(enable_message_ordering=True)
    letters = space.subscription(space.topic("letters"), "letters")
    rule = {"subscription": "sub", "exchange": "amq.topic", "routing_key": "orders.{key}", "content_type": "text/plain"}
    given = {"rabbitmq.correlationId": "c", "rabbitmq.priority": "3", "rabbitmq.queue": "old", "unit": "C"}
    with node.channel() as channel:
        channel.queue_declare("out", durable=True)
        channel.queue_bind("out", "amq.topic", "orders.k")
        made = to_rabbitmq(node, rule, dead_letters="letters")
        with BridgeProcess(tmp_path / "bridge", space.endpoint, space.project, made) as bridge:
            (first,) = space.publish(topic, b"\x00\xff", key="k", attributes={"sys.MessageId": "7"} | given)
            space.publish(topic, b"unroutable", key="other")
            space.publish(topic, b"long", key="x" * 300)
            space.publish(topic, b"last", key="k")
            bridge.until("deadLetters", 2)
            bridge.until("storedMessages", 2)
            drained(space, subscription, bridge)
        got = [channel.basic_get("out", auto_ack=True) for _ in range(2)]
    (method, properties, data), (_, _, last) = got
    assert (method.exchange, method.routing_key, data, last) == ("amq.topic", "orders.k", b"\x00\xff", b"last")
    assert (properties.message_id, properties.correlation_id, properties.priority) == ("7", "c", 3)
    assert (properties.content_type, properties.delivery_mode) == ("text/plain", 2)
    assert properties.headers == {"unit": "C", "sys.serverMessageId": first, "sys.orderingKey": "k"}
    reasons = {one.message.data: one.message.attributes["bridge.reason"] for one in space.pull(letters, 2, ack=True)}
    returned = "RabbitMQ returns it: NO_ROUTE, exchange 'amq.topic', routing key 'orders.other'"
    assert reasons == {b"unroutable": returned, b"long": "its routing key has more than 255 bytes"}


@with_rabbitmq
def test_rabbitmq_gets_everything_in_the_order_of_keys_when_everything_is_killed(
    boot: Callable[..., ServerProcess], enter: Callable[[str], Space], node: RabbitNode, tmp_path: Path
) -> None:
    server = boot()
    space = enter(server.endpoint)
    topic, subscription = space.pair(enable_message_ordering=True)
    node.declare("load", "quorum")
    rule = {"subscription": subscription, "exchange": "", "routing_key": "load"}

    def send(space: Space, begin: int) -> None:
        for number in range(begin, begin + LOAD // 3):
            space.publish(topic, b"%d" % number, key=f"k{number % 9}")

    with BridgeProcess(tmp_path / "bridge", space.endpoint, space.project, to_rabbitmq(node, rule)) as bridge:
        send(space, 0)
        bridge.kill()
        bridge.start()
        send(space, LOAD // 3)
        node.kill()
        send(space, 2 * LOAD // 3)
        node.start()
        server.restart(hard=True)
        space = enter(server.endpoint)
        found: dict[str, dict[int, None]] = {}
        count = 0
        with node.channel() as channel:
            for _, properties, data in channel.consume("load", auto_ack=True, inactivity_timeout=60):
                assert data is not None, (count, bridge.status(), bridge.output())
                numbers = found.setdefault(properties.headers["sys.orderingKey"], {})
                count += int(data) not in numbers
                numbers[int(data)] = None
                if count == LOAD:
                    break
        drained(space, subscription, bridge)
    assert {key: list(numbers) for key, numbers in found.items()} == {
        f"k{n}": list(range(n, LOAD, 9)) for n in range(9)
    }


@with_rabbitmq
def test_a_full_queue_holds_the_bridge_up_until_there_is_room(space: Space, node: RabbitNode, tmp_path: Path) -> None:
    topic, subscription = space.pair(enable_message_ordering=True)
    node.declare("small", "classic", **{"x-max-length": 3, "x-overflow": "reject-publish"})
    rule = {"subscription": "sub", "exchange": "", "routing_key": "small"}
    with BridgeProcess(tmp_path / "bridge", space.endpoint, space.project, to_rabbitmq(node, rule)) as bridge:
        for number in range(10):
            space.publish(topic, b"%d" % number, key="k")
        bridge.until("failedMessages", 1)
        found = []
        with node.channel() as channel:
            for _, _, data in channel.consume("small", auto_ack=True, inactivity_timeout=30):
                assert data is not None, (found, bridge.status())
                found.append(int(data))
                if len(found) == 10:
                    break
        drained(space, subscription, bridge)
    assert found == list(range(10))


@with_mqtt
def test_without_dead_letters_a_message_that_cannot_be_sent_ends_the_bridge_and_stays(
    space: Space, tmp_path: Path
) -> None:
    topic, subscription = space.pair()
    with Mosquitto(tmp_path / "broker") as broker:
        rule = {"subscription": "sub", "topic": "plant/{attribute.oven}"}
        bridge = BridgeProcess(tmp_path / "bridge", space.endpoint, space.project, to_mqtt(broker, rule))
        with bridge:
            space.publish(topic, b"x")
            assert bridge.ended() == 1
    assert "it lacks {attribute.oven}, of which its target is made. Correct its sender or the file" in bridge.output()
    assert [one.message.data for one in space.pull(subscription, 1, ack=True)] == [b"x"]
