"""What messages become, and which their target cannot take."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from syncpoint.programs.bridge.bridge_file import IncomingRule, OutgoingRule
from syncpoint.programs.bridge.message_shape import ForeignMessage, UnfitMessage, letter, outgoing, shaped
from syncpoint.programs.bridge.mqtt_shape import foreign, matches, rule_for
from syncpoint.programs.bridge.mqtt_sink import published
from syncpoint.programs.bridge.rabbit_shape import header_text

RULE = IncomingRule("from-{2}", "{topic}", "{2}/{property.id}", "plant/+/#")


def mqtt(topic: str, data: bytes, pairs: Sequence[tuple[str, str]] = (), **given: Any) -> ForeignMessage:
    """A message of an MQTT broker; `given`: its properties, and `retain`."""
    packet = MQTTMessage(topic=topic.encode())
    packet.payload, packet.retain = data, given.pop("retain", False)
    properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    for name, value in given.items():
        setattr(properties, name, value)
    if pairs:
        properties.UserProperty = list(pairs)
    packet.properties = properties
    return foreign(packet)


MESSAGE = mqtt("plant/oven/heat", b"21", (("id", "7"), ("unit", "C")))


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/b/c", False),
        ("a/+", "a/b", True),
        ("a/+", "a", False),
        ("a/+", "a/", True),
        ("+/b", "/b", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/#", "ab", False),
        ("#", "a/b", True),
        ("#", "$SYS/load", False),
        ("+/load", "$SYS/load", False),
        ("$SYS/#", "$SYS/load", True),
    ],
)
def test_filters_match_as_in_the_standard(pattern: str, topic: str, expected: bool) -> None:
    assert matches(pattern, topic) is expected


def test_the_first_rule_that_matches_counts_also_that_of_a_shared_subscription() -> None:
    rules = [IncomingRule("one", filter="$share/bridges/a/+"), IncomingRule("two", filter="#")]
    assert [rule_for(rules, one) for one in ("a/b", "b")] == rules
    assert rule_for(rules[:1], "b") is None


def test_templates_take_levels_and_user_properties() -> None:
    found = shaped(MESSAGE, RULE, "p")
    assert (found.topic, found.key, found.data) == ("projects/p/topics/from-oven", "plant/oven/heat", b"21")
    assert found.attributes == {"id": "7", "unit": "C", "mqtt.topic": "plant/oven/heat", "sys.MessageId": "oven/7"}


def test_a_message_that_lacks_a_field_has_no_key_and_no_id() -> None:
    rule = IncomingRule("projects/q/topics/all", "{property.key}", "{property.id}")
    found = shaped(mqtt("plant", b""), rule, "p")
    assert (found.topic, found.key, found.attributes) == ("projects/q/topics/all", "", {"mqtt.topic": "plant"})


def test_a_device_cannot_give_orders_to_the_server_or_pretend_to_be_the_bridge() -> None:
    forged = (("sys.MessageId", "x"), ("mqtt.topic", "other"), ("googclient_x", "y"))
    found = shaped(mqtt("plant", b"", forged), IncomingRule("all"), "p")
    assert found.attributes == {
        "user.sys.MessageId": "x",
        "user.mqtt.topic": "other",
        "user.googclient_x": "y",
        "mqtt.topic": "plant",
    }


def test_what_mqtt_says_of_a_message_becomes_attributes() -> None:
    message = mqtt(
        "a", b"", retain=True, ContentType="text/plain", ResponseTopic="answers/1", CorrelationData=b"\x00\xff"
    )
    assert shaped(message, IncomingRule("all"), "p").attributes == {
        "mqtt.topic": "a",
        "mqtt.retained": "true",
        "mqtt.contentType": "text/plain",
        "mqtt.responseTopic": "answers/1",
        "mqtt.correlationData": "AP8=",
    }


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (mqtt("plant/oven here/x", b""), "oven here"),
        (mqtt("plant", b""), "Invalid"),
        (mqtt("plant/oven/x", bytes(10_000_000)), "10,000,000 bytes"),
        (mqtt("plant/oven/x", b"", (("note", "é" * 600),)), "attribute note"),
        (mqtt("plant/oven/x", b"", (("", "v"),)), "name must have"),
        (mqtt("plant/oven/x", b"", tuple((f"n{one}", "") for one in range(100))), "101 attributes"),
        (mqtt("plant/oven/x", b"", (("id", "i" * 128),)), "133 characters"),
        (mqtt(f"plant/oven/{'x' * 1024}", b""), "ordering key"),
    ],
)
def test_what_no_topic_can_take_is_said(message: ForeignMessage, text: str) -> None:
    with pytest.raises(UnfitMessage, match=text):
        shaped(message, RULE, "p")


def test_a_message_for_another_broker_has_its_fields_apart_from_its_headers() -> None:
    given = {"mqtt.contentType": "text/plain", "rabbitmq.type": "t", "unit": "C", "sys.MessageId": "7"}
    found = outgoing(b"x", "k", "1", given, OutgoingRule("s", "plant/{key}/{attribute.unit}/{message_id}"), "mqtt")
    assert (found.target, found.data, found.key) == ("plant/k/C/1", b"x", "k")
    assert found.given == {"mqtt.contentType": "text/plain", "sys.MessageId": "7"}
    assert found.headers == {"rabbitmq.type": "t", "unit": "C", "sys.serverMessageId": "1", "sys.orderingKey": "k"}


def test_a_message_without_a_key_has_an_empty_routing_key_and_no_mqtt_topic() -> None:
    assert outgoing(b"", "", "1", {}, OutgoingRule("s", "{key}"), "rabbitmq").target == ""
    with pytest.raises(UnfitMessage, match=r"lacks \{key\}"):
        outgoing(b"", "", "1", {}, OutgoingRule("s", "{key}"), "mqtt")


def test_correlation_data_of_mqtt_must_be_base64() -> None:
    for text in ("AP8", "é"):
        message = outgoing(b"", "k", "1", {"mqtt.correlationData": text}, OutgoingRule("s", "{key}"), "mqtt")
        with pytest.raises(UnfitMessage, match="is not base64"):
            published(message)


def test_headers_of_amqp_become_texts() -> None:
    given = ["a", b"b", b"\xff", True, None, 1.5, Decimal("1.50"), {"n": [Decimal("0.1"), b"c"]}]
    found = [header_text(one) for one in given]
    assert found == ["a", "b", "/w==", "true", "null", "1.5", "1.50", '{"n": ["0.1", "c"]}']


def test_a_dead_letter_keeps_what_a_message_may_have() -> None:
    given = {f"n{one}": "" for one in range(200)} | {"note": "x" * 2000, "sys.MessageId": "7"}
    found = letter("projects/p/topics/dead", "the queue 'q'", "r" * 2000, b"x", given)
    assert len(found.attributes) == 100
    assert (found.attributes["bridge.source"], len(found.attributes["bridge.reason"])) == ("the queue 'q'", 250)
    assert not {"note", "sys.MessageId"} & set(found.attributes)
    with pytest.raises(UnfitMessage, match="10,000,000 bytes"):
        letter("projects/p/topics/dead", "", "", bytes(10_000_000), {})
