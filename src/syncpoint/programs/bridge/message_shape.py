"""What an MQTT message becomes: topic, ordering key and attributes, by the rule that matches.

Place: between `mqtt_driver`, which receives, and the publisher. Promise: what is returned is within the limits of a
publish, so that one message is never the reason for which a server refuses a request with others in it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from syncpoint.base.model import limits
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.names import parse_topic
from syncpoint.client.client_options import REQUEST_BYTES_MAX
from syncpoint.programs.bridge.bridge_file import FIELD, IncomingRule

RESERVED: Final = ("sys.", "mqtt.", "goog")
"""What a user property's name may not begin with: devices neither give orders to the server nor pose as the bridge."""
MESSAGE_ID: Final = "sys.MessageId"
MESSAGE_ID_MAX: Final = 128
OVERHEAD_BYTES: Final = 200_000  # attributes and names at their limits


class UnfitMessage(ValueError):
    """No topic can take the message; the text has the reason."""


@dataclass(frozen=True)
class MqttMessage:
    """One message of the broker. `properties`: those of the user, in order; a name may come twice."""

    topic: str
    data: bytes
    properties: Sequence[tuple[str, str]] = ()
    retained: bool = False
    content_type: str = ""
    response_topic: str = ""
    correlation: bytes = b""


@dataclass(frozen=True)
class ShapedMessage:
    """What is published."""

    topic: str
    data: bytes
    key: str = ""
    attributes: dict[str, str] = field(default_factory=dict)


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


def shaped(message: MqttMessage, rule: IncomingRule, project: str) -> ShapedMessage:
    """What the message becomes; `project` completes short names. Raises `UnfitMessage`."""
    values = {"topic": message.topic} | {f"property.{name}": value for name, value in message.properties}
    values |= {str(number): level for number, level in enumerate(message.topic.split("/"), 1)}
    topic = _filled(rule.topic, values) or ""
    if not topic.startswith("projects/"):
        topic = f"projects/{project}/topics/{topic}"
    try:
        parse_topic(topic)
    except InvalidArgument as error:
        raise UnfitMessage(error.message) from error
    found = ShapedMessage(topic, message.data, _filled(rule.key, values) or "", _attributes(message))
    identity = _filled(rule.id, values)
    if identity:
        if len(identity) > MESSAGE_ID_MAX:
            raise UnfitMessage(f"its id has {len(identity)} characters, of at most {MESSAGE_ID_MAX}")
        found.attributes[MESSAGE_ID] = identity
    _check(found)
    return found


def _filled(template: str, values: dict[str, str]) -> str | None:
    """The template with its fields filled; None where the message lacks one of them."""
    if any(not values.get(one) for one in FIELD.findall(template)):
        return None
    return FIELD.sub(lambda one: values[one[1]], template)


def _attributes(message: MqttMessage) -> dict[str, str]:
    found = {f"user.{name}" if name.startswith(RESERVED) else name: value for name, value in message.properties}
    found["mqtt.topic"] = message.topic
    if message.retained:
        found["mqtt.retained"] = "true"
    if message.content_type:
        found["mqtt.contentType"] = message.content_type
    if message.response_topic:
        found["mqtt.responseTopic"] = message.response_topic
    if message.correlation:
        found["mqtt.correlationData"] = base64.b64encode(message.correlation).decode()
    return found


def _check(one: ShapedMessage) -> None:
    if len(one.data) > REQUEST_BYTES_MAX - OVERHEAD_BYTES:
        raise UnfitMessage(f"it has {len(one.data):,} bytes, of at most {REQUEST_BYTES_MAX - OVERHEAD_BYTES:,}")
    if len(one.key.encode()) > limits.ORDERING_KEY_BYTES_MAX:
        raise UnfitMessage(f"its ordering key has more than {limits.ORDERING_KEY_BYTES_MAX:,} bytes")
    if len(one.attributes) > limits.MESSAGE_ATTRIBUTES_MAX:
        raise UnfitMessage(f"it has {len(one.attributes)} attributes, of at most {limits.MESSAGE_ATTRIBUTES_MAX}")
    for name, value in one.attributes.items():
        if not 1 <= len(name.encode()) <= limits.ATTRIBUTE_KEY_BYTES_MAX:
            raise UnfitMessage(f"a user property's name must have 1 to {limits.ATTRIBUTE_KEY_BYTES_MAX} bytes")
        if len(value.encode()) > limits.ATTRIBUTE_VALUE_BYTES_MAX:
            raise UnfitMessage(f"the attribute {name} has more than {limits.ATTRIBUTE_VALUE_BYTES_MAX:,} bytes")
