"""A bridge between a real MQTT broker and a server: what it makes of messages, and what is left of them after kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syncpoint.testing.rigs.certificates import Authority
from syncpoint.testing.server_process import ServerProcess
from tests.integration.conftest import Space
from tests.kit.mqtt import MISSING, MOSQUITTO, PERSISTENT, BridgeProcess, Device, Mosquitto, until

pytestmark = [pytest.mark.skipif(MOSQUITTO is None, reason=MISSING), pytest.mark.shows("mqtt")]
LOAD = 1500


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path / "broker", *PERSISTENT, "max_inflight_messages 0") as started:
        yield started


def content(broker: Mosquitto, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"version": 1, "mqtt": {"broker": broker.address, "client_id": "bridge"}, "in": list(rules)} | more


def unique(space: Space) -> str:
    """A topic that drops duplicates."""
    topic = space.topic()
    window = {"topic": topic, "duplicate_detection_window": {"seconds": 600}}
    space.asked("UpdateTopicOptions", options=window, update_mask={"paths": ["duplicate_detection_window"]})
    return topic


def test_a_message_has_what_mqtt_says_of_it(space: Space, broker: Mosquitto, tmp_path: Path) -> None:
    subscription = space.subscription(space.topic("from-oven"), enable_message_ordering=True)
    rule = {"filter": "plant/+/#", "topic": "from-{2}", "key": "{topic}", "id": "{property.id}"}
    device = Device(broker)
    device.send("plant/oven/limit", b"250", retain=True).wait_for_publish(20)
    bridge = BridgeProcess(tmp_path / "bridge", space.endpoint, space.project, content(broker, rule, unfit="drop"))
    with bridge:
        bridge.until("storedMessages", 1)
        given = {"ContentType": "text/plain", "ResponseTopic": "answers", "CorrelationData": b"\x00"}
        user = [("id", "7"), ("sys.MessageId", "forged")]
        for qos in (1, 2, 1):
            device.send("plant/oven/heat", b"21", qos=qos, UserProperty=user, **given).wait_for_publish(20)
        device.send("plant/oven/heat", b"", UserProperty=[("note", "x" * 2000)]).wait_for_publish(20)
        bridge.until("storedMessages", 4)
        bridge.until("droppedMessages", 1)
        until(lambda: len(broker.acknowledged("bridge")) == 2, broker.text)
        assert bridge.stop() == 0
    device.close()
    limit, *heats = [one.message for one in space.pull(subscription, 4, ack=True)]
    assert (limit.data, limit.ordering_key) == (b"250", "plant/oven/limit")
    assert dict(limit.attributes) == {"mqtt.topic": "plant/oven/limit", "mqtt.retained": "true"}
    for one in heats:
        assert (one.data, one.ordering_key) == (b"21", "plant/oven/heat")
        assert dict(one.attributes) == {
            "id": "7",
            "user.sys.MessageId": "forged",
            "sys.MessageId": "7",
            "mqtt.topic": "plant/oven/heat",
            "mqtt.contentType": "text/plain",
            "mqtt.responseTopic": "answers",
            "mqtt.correlationData": "AA==",
        }
    assert "the attribute note has more than 1,024 bytes" in bridge.output()


def typed(space: Space, short: str) -> str:
    """A topic that takes JSON with a name only."""
    definition = {"type": "record", "name": "One", "fields": [{"name": "name", "type": "string"}]}
    schema = space.api.create_schema(
        {
            "parent": f"projects/{space.project}",
            "schema_id": "one",
            "schema": {"type_": "AVRO", "definition": json.dumps(definition)},
        }
    )
    return space.topic(short, schema_settings={"schema": schema.name, "encoding": "JSON"})


def judged(space: Space, subscription: str, expected: set[str]) -> None:
    """Every message that is expected is stored, and none twice."""
    got = Counter(one.message.data.decode() for one in space.rest(subscription))
    assert expected - set(got) == set(), "lost"
    assert [one for one, count in got.items() if count > 1] == [], "twice"


def test_killed_bridges_lose_nothing_and_store_nothing_twice(
    boot: Callable[..., ServerProcess], enter: Callable[[str], Space], broker: Mosquitto, tmp_path: Path
) -> None:
    """Killed while publishes are under way: at a server that stores them later, at a dead one, and at a quick one."""
    server = boot()
    space = enter(server.endpoint)
    topic = unique(space)
    subscription = space.subscription(topic)
    rule = {"filter": "load/#", "topic": topic, "id": "{property.id}"}
    bridge = BridgeProcess(tmp_path / "bridge", space.endpoint, space.project, content(broker, rule))
    with bridge:
        device = Device(broker)
        for begin, number in ((0, signal.SIGSTOP), (500, signal.SIGKILL), (1000, 0)):
            os.kill(server.pid or 0, number)
            for one in range(begin, begin + 500):
                device.send(f"load/{one}", b"%d" % one, UserProperty=[("id", str(one))])
            if number:
                bridge.until("heldMessages", 300)
            bridge.kill()
            if number == signal.SIGSTOP:
                os.kill(server.pid or 0, signal.SIGCONT)
            elif number == signal.SIGKILL:
                server.restart(hard=True)
            bridge.start()
        until(lambda: len(broker.acknowledged("bridge")) == LOAD, bridge.status)
        assert bridge.stop() == 0
        device.close()
    judged(enter(server.endpoint), subscription, {str(one) for one in range(LOAD)})


def test_of_a_killed_broker_all_that_was_acknowledged_is_stored(
    space: Space, broker: Mosquitto, tmp_path: Path
) -> None:
    topic = unique(space)
    subscription = space.subscription(topic)
    rule = {"filter": "load/#", "topic": topic, "id": "{property.id}"}
    bridge = BridgeProcess(tmp_path / "bridge", space.endpoint, space.project, content(broker, rule))
    with bridge:
        device = Device(broker)
        for number in range(LOAD):
            name = str(number)
            device.send(f"load/{name}", name.encode(), UserProperty=[("id", name)])
            if number % 500 == 250:
                until(lambda: broker.acknowledged("bridge"), broker.text)
                broker.kill()
                time.sleep(0.1)
                broker.start()
        bridge.until("connects", 2)
        last = device.send("load/last", b"last", UserProperty=[("id", "last")])
        last.wait_for_publish(60)
        until(lambda: "load/last" in broker.acknowledged("bridge"), lambda: (bridge.status(), bridge.output()))
        assert bridge.stop() == 0
        device.close()
    judged(space, subscription, {one.removeprefix("load/") for one in broker.acknowledged("bridge")})


def test_what_is_not_stored_is_asked_for_again_in_the_order_of_its_key(
    space: Space, broker: Mosquitto, tmp_path: Path
) -> None:
    rule = {"filter": "plant/#", "topic": "late", "key": "{topic}"}
    bridge = BridgeProcess(tmp_path / "bridge", space.endpoint, space.project, content(broker, rule))
    with bridge:
        device = Device(broker)
        for number in range(50):
            device.send(f"plant/{number % 2}", b"%d" % number).wait_for_publish(20)
        bridge.until("failedMessages", 50)
        assert bridge.status()["storedMessages"] == 0
        topic = space.topic("late", message_retention_duration={"seconds": 600})
        bridge.until("storedMessages", 50)
        assert bridge.stop() == 0
        device.close()
    subscription = space.subscription(topic, enable_message_ordering=True)
    space.api.seek({"subscription": subscription, "time": {"seconds": 0}})
    found: dict[str, list[int]] = {}
    for one in space.stream(subscription).wait(50):
        found.setdefault(one.message.ordering_key, []).append(int(one.message.data))
    assert found == {f"plant/{n}": list(range(n, 50, 2)) for n in range(2)}


def test_a_message_that_no_topic_can_take_ends_the_bridge_and_stays_at_the_broker(
    space: Space, broker: Mosquitto, tmp_path: Path
) -> None:
    space.topic("all-of-it")
    rule = {"filter": "#", "topic": "all-of-it"}
    bridge = BridgeProcess(tmp_path / "bridge", space.endpoint, space.project, content(broker, rule))
    with bridge:
        device = Device(broker)
        device.send("a", b"", UserProperty=[("note", "x" * 2000)]).wait_for_publish(20)
        assert bridge.ended() == 1
        device.close()
    assert "a message of the MQTT topic 'a' is not taken: the attribute note has more" in bridge.output()
    assert broker.acknowledged("bridge") == set()


def test_what_a_topic_refuses_becomes_a_dead_letter_and_what_it_takes_keeps_its_order(
    space: Space, broker: Mosquitto, tmp_path: Path
) -> None:
    subscription = space.subscription(typed(space, "strict"), enable_message_ordering=True)
    letters = space.subscription(space.topic("letters"), "letters")
    given = content(broker, {"filter": "#", "topic": "strict", "key": "{1}"}, dead_letters="letters")
    with BridgeProcess(tmp_path / "bridge", space.endpoint, space.project, given) as bridge:
        device = Device(broker)
        for number in range(60):
            data = b"no JSON" if number % 10 == 5 else json.dumps({"name": str(number)}).encode()
            device.send(f"oven-{number % 2}", data, UserProperty=[("number", str(number))])
        device.send("oven-0", b"x", UserProperty=[("note", "x" * 2000), ("number", "60")]).wait_for_publish(20)
        until(lambda: bridge.status().get("storedMessages", 0) >= 54, bridge.output)
        bridge.until("deadLetters", 7)
        until(lambda: bridge.status()["heldMessages"] == 0, bridge.output)
        assert bridge.stop() == 0
        device.close()
    found: dict[str, list[int]] = {}
    for one in space.pull(subscription, 54, ack=True):
        found.setdefault(one.message.ordering_key, []).append(int(one.message.attributes["number"]))
    kept = {key: list(dict.fromkeys(numbers)) for key, numbers in found.items()}  # what came again is left out
    assert kept == {f"oven-{n}": [one for one in range(n, 60, 2) if one % 10 != 5] for n in range(2)}
    dead = {one.message.attributes["number"]: one.message for one in space.pull(letters, 7, ack=True)}
    assert set(dead) == {"5", "15", "25", "35", "45", "55", "60"}
    assert dead["5"].data == b"no JSON"
    assert "strict refuses it" in dead["5"].attributes["bridge.reason"]
    assert (dead["60"].attributes["bridge.source"], "note" in dead["60"].attributes) == (
        "the MQTT topic 'oven-0'",
        False,
    )


def test_a_broker_with_certificates_and_passwords(space: Space, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    cert, key = authority.issue("broker")
    shown, shown_key = authority.issue("bridge")
    passwords, secret = tmp_path / "passwords", tmp_path / "secret"
    secret.write_text("s3cret\n")
    subprocess.run(["mosquitto_passwd", "-c", "-b", str(passwords), "bridge", "s3cret"], check=True, timeout=30)
    listener = (f"cafile {authority.ca}", f"certfile {cert}", f"keyfile {key}", "require_certificate true")
    known = ("allow_anonymous false", f"password_file {passwords}")
    subscription = space.subscription(space.topic("all-of-it"))
    with Mosquitto(tmp_path / "broker", *PERSISTENT, listener=(*listener, *known)) as broker:
        tls = {"ca": str(authority.ca), "cert": str(shown), "key": str(shown_key)}
        given = content(broker, {"filter": "$SYS/broker/version", "topic": "all-of-it"})
        given["mqtt"] |= {"tls": tls, "user": "bridge", "password_file": str(secret)}
        bridge = BridgeProcess(tmp_path / "bridge", space.endpoint, space.project, given)
        with bridge:
            bridge.until("storedMessages", 1)
            assert bridge.stop() == 0
    (found,) = space.pull(subscription, 1, ack=True)
    assert found.message.attributes["mqtt.topic"] == "$SYS/broker/version"
