"""What messages become: of another broker for a topic, and of a subscription for another broker.

Place: between what receives and what sends. Promise: what is returned for a topic is within the limits of a publish, so
that one message is never the reason for which a server refuses a request with others in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from syncpoint.base.model import limits
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.names import parse_topic
from syncpoint.client.client_options import REQUEST_BYTES_MAX
from syncpoint.programs.bridge.bridge_file import FIELD, IncomingRule, OutgoingRule

RESERVED: Final = ("sys.", "mqtt.", "rabbitmq.", "bridge.", "goog")
"""What the name of a foreign header may not begin with: devices neither give orders to the server nor pose as the
bridge."""
MESSAGE_ID: Final = "sys.MessageId"
SERVER_ID: Final = "sys.serverMessageId"
ORDERING_KEY: Final = "sys.orderingKey"
REASON: Final = "bridge.reason"
SOURCE: Final = "bridge.source"
REASON_CHARACTERS_MAX: Final = 250
MESSAGE_ID_MAX: Final = 128
OVERHEAD_BYTES: Final = 200_000  # attributes and names at their limits


class UnfitMessage(ValueError):
    """The target cannot take the message; the text has the reason."""


@dataclass(frozen=True)
class ForeignMessage:
    """One message of another broker. `where`: what it was sent to, in words; `values`: the fields of templates."""

    where: str
    data: bytes
    values: Mapping[str, str]
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ShapedMessage:
    """What is published."""

    topic: str
    data: bytes
    key: str = ""
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BridgedMessage:
    """What is sent to another broker. `id`: the server's; `given`: what the broker has fields for, by its attribute's
    name; `headers`: the rest.
    """

    rule: OutgoingRule
    target: str
    data: bytes
    id: str
    key: str
    given: Mapping[str, str]
    headers: Mapping[str, str]


def user_attributes(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Attributes of what senders named themselves."""
    return {f"user.{name}" if name.startswith(RESERVED) else name: value for name, value in pairs}


def topic_path(project: str, name: str) -> str:
    """The full name of a topic; `project` completes a short one. Raises `UnfitMessage`."""
    topic = name if name.startswith("projects/") else f"projects/{project}/topics/{name}"
    try:
        parse_topic(topic)
    except InvalidArgument as error:
        raise UnfitMessage(error.message) from error
    return topic


def shaped(message: ForeignMessage, rule: IncomingRule, project: str) -> ShapedMessage:
    """What the message becomes; `project` completes short names. Raises `UnfitMessage`."""
    topic = _filled(rule.topic, message.values) or ""
    if not rule.topic.startswith("projects/"):  # else a sender could name a topic of any project
        topic = f"projects/{project}/topics/{topic}"
    topic = topic_path(project, topic)
    attributes = dict(message.attributes)
    identity = _filled(rule.id, message.values)
    if identity:
        if len(identity) > MESSAGE_ID_MAX:
            raise UnfitMessage(f"its id has {len(identity)} characters, of at most {MESSAGE_ID_MAX}")
        attributes[MESSAGE_ID] = identity
    found = ShapedMessage(topic, message.data, _filled(rule.key, message.values) or "", attributes)
    _check(found)
    return found


def outgoing(
    data: bytes, key: str, message_id: str, attributes: Mapping[str, str], rule: OutgoingRule, kind: str
) -> BridgedMessage:
    """What a message of a subscription becomes for a broker of that kind. Raises `UnfitMessage`."""
    values = {"key": key, "message_id": message_id} | {f"attribute.{name}": one for name, one in attributes.items()}
    target = "" if kind == "rabbitmq" and rule.target == "{key}" and not key else _filled(rule.target, values)
    if target is None:
        lacks = next(one for one in FIELD.findall(rule.target) if not values.get(one))
        raise UnfitMessage(f"it lacks {{{lacks}}}, of which its target is made")
    given = {name: one for name, one in attributes.items() if name.startswith(f"{kind}.") or name == MESSAGE_ID}
    headers = {name: one for name, one in attributes.items() if name not in given}
    headers[SERVER_ID] = message_id
    if key:
        headers[ORDERING_KEY] = key
    return BridgedMessage(rule, target, data, message_id, key, given, headers)


def letter(topic: str, source: str, reason: str, data: bytes, attributes: Mapping[str, str]) -> ShapedMessage:
    """The dead letter of a message: its data, as many of its attributes as a message may have, and why it is one.
    Raises `UnfitMessage` where even that is too large.
    """
    kept = {
        name: one
        for name, one in attributes.items()
        if 1 <= len(name.encode()) <= limits.ATTRIBUTE_KEY_BYTES_MAX
        and len(one.encode()) <= limits.ATTRIBUTE_VALUE_BYTES_MAX
        and not name.startswith("sys.")
        and not name.startswith("goog")
    }
    room = limits.MESSAGE_ATTRIBUTES_MAX - 2
    found = dict(list(kept.items())[:room])
    found |= {REASON: reason[:REASON_CHARACTERS_MAX], SOURCE: source[:REASON_CHARACTERS_MAX]}
    made = ShapedMessage(topic, data, attributes=found)
    _check(made)
    return made


def _filled(template: str, values: Mapping[str, str]) -> str | None:
    """The template with its fields filled; None where the message lacks one of them."""
    if any(not values.get(one) for one in FIELD.findall(template)):
        return None
    return FIELD.sub(lambda one: values[one[1]], template)


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
