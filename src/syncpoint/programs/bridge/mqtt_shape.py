"""Messages of MQTT: which rule takes them, and what of them are attributes.

Place: beside `message_shape`, which makes messages of topics of what is returned.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from paho.mqtt.client import MQTTMessage

from syncpoint.programs.bridge.bridge_file import IncomingRule
from syncpoint.programs.bridge.message_shape import ForeignMessage, user_attributes

CONTENT_TYPE = "mqtt.contentType"
RESPONSE_TOPIC = "mqtt.responseTopic"
CORRELATION = "mqtt.correlationData"


def matches(pattern: str, topic: str) -> bool:
    """Whether an MQTT filter matches a topic; wildcards match no topic of the broker itself ($SYS)."""
    if topic.startswith("$") and not pattern.startswith("$"):
        return False
    wanted, levels = pattern.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted = wanted[:-1]
        if len(levels) < len(wanted):
            return False
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(one in ("+", level) for one, level in zip(wanted, levels, strict=True))


def rule_for(rules: Sequence[IncomingRule], topic: str) -> IncomingRule | None:
    """The first that matches."""
    return next((one for one in rules if matches(one.matched, topic)), None)


def foreign(packet: MQTTMessage) -> ForeignMessage:
    """A message as it came."""
    found, topic = packet.properties, packet.topic
    pairs: list[tuple[str, str]] = list(getattr(found, "UserProperty", ()))
    values = {"topic": topic} | {f"property.{name}": value for name, value in pairs}
    values |= {str(number): level for number, level in enumerate(topic.split("/"), 1)}
    attributes = user_attributes(pairs) | {"mqtt.topic": topic}
    if packet.retain:
        attributes["mqtt.retained"] = "true"
    for name, given in ((CONTENT_TYPE, "ContentType"), (RESPONSE_TOPIC, "ResponseTopic")):
        if text := getattr(found, given, ""):
            attributes[name] = text
    if correlation := getattr(found, "CorrelationData", b""):
        attributes[CORRELATION] = base64.b64encode(correlation).decode()
    return ForeignMessage(f"the MQTT topic {topic!r}", bytes(packet.payload), values, attributes)
