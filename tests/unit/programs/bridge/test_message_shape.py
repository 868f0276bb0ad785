"""What an MQTT message becomes, and which no topic can take."""

from __future__ import annotations

import pytest

from syncpoint.programs.bridge.bridge_file import IncomingRule
from syncpoint.programs.bridge.message_shape import MqttMessage, UnfitMessage, matches, rule_for, shaped

RULE = IncomingRule("plant/+/#", "from-{2}", "{topic}", "{2}/{property.id}")
MESSAGE = MqttMessage("plant/oven/heat", b"21", (("id", "7"), ("unit", "C")))


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
    rules = [IncomingRule("$share/bridges/a/+", "one"), IncomingRule("#", "two")]
    assert [rule_for(rules, one) for one in ("a/b", "b")] == rules
    assert rule_for(rules[:1], "b") is None


def test_templates_take_levels_and_user_properties() -> None:
    found = shaped(MESSAGE, RULE, "p")
    assert (found.topic, found.key, found.data) == ("projects/p/topics/from-oven", "plant/oven/heat", b"21")
    assert found.attributes == {"id": "7", "unit": "C", "mqtt.topic": MESSAGE.topic, "sys.MessageId": "oven/7"}


def test_a_message_that_lacks_a_field_has_no_key_and_no_id() -> None:
    rule = IncomingRule("#", "projects/q/topics/all", "{property.key}", "{property.id}")
    found = shaped(MqttMessage("plant", b""), rule, "p")
    assert (found.topic, found.key, found.attributes) == ("projects/q/topics/all", "", {"mqtt.topic": "plant"})


def test_a_device_cannot_give_orders_to_the_server_or_pretend_to_be_the_bridge() -> None:
    forged = (("sys.MessageId", "x"), ("mqtt.topic", "other"), ("googclient_x", "y"))
    found = shaped(MqttMessage("plant", b"", forged), IncomingRule("#", "all"), "p")
    assert found.attributes == {
        "user.sys.MessageId": "x",
        "user.mqtt.topic": "other",
        "user.googclient_x": "y",
        "mqtt.topic": "plant",
    }


def test_what_mqtt_says_of_a_message_becomes_attributes() -> None:
    message = MqttMessage("a", b"", (), True, "text/plain", "answers/1", b"\x00\xff")
    assert shaped(message, IncomingRule("#", "all"), "p").attributes == {
        "mqtt.topic": "a",
        "mqtt.retained": "true",
        "mqtt.contentType": "text/plain",
        "mqtt.responseTopic": "answers/1",
        "mqtt.correlationData": "AP8=",
    }


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (MqttMessage("plant/oven here/x", b""), "oven here"),
        (MqttMessage("plant", b""), "Invalid"),
        (MqttMessage("plant/oven/x", bytes(10_000_000)), "10,000,000 bytes"),
        (MqttMessage("plant/oven/x", b"", (("note", "é" * 600),)), "attribute note"),
        (MqttMessage("plant/oven/x", b"", (("", "v"),)), "name must have"),
        (MqttMessage("plant/oven/x", b"", tuple((f"n{one}", "") for one in range(100))), "101 attributes"),
        (MqttMessage("plant/oven/x", b"", (("id", "i" * 128),)), "133 characters"),
        (MqttMessage(f"plant/oven/{'x' * 1024}", b""), "ordering key"),
    ],
)
def test_what_no_topic_can_take_is_said(message: MqttMessage, text: str) -> None:
    with pytest.raises(UnfitMessage, match=text):
        shaped(message, RULE, "p")
