"""The attributes of a dead letter, which letters are wanted, and what is published again of one.

Place: pure functions under `letter_admin`, beside `subscribe.dead_letter`, which writes what is read here.
Promise: the attributes of a letter may have been written by anybody who may publish to its topic: nothing but what is
shown and selected depends on it.
"""

from __future__ import annotations

from contextlib import suppress

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.reserved import COUNTS
from syncpoint.base.rules.sql_compile import Filter, compile_filter
from syncpoint.base.rules.sql_values import RuleError
from syncpoint.base.rules.system_properties import RuleMessage
from syncpoint.broker.subscribe.dead_letter import DESCRIPTION, MESSAGE_ID, PREFIX, REASON, SOURCE, TOO_OFTEN
from syncpoint.wire.protobuf.messages import admin, pubsub, well_known

REDRIVEN_FROM, REDRIVES = "sys.RedrivenFrom", "sys.RedriveCount"
"""Attributes of what was published again: the id of the message that became the first letter, and how often it was."""

_COUNT, _PUBLISHED = f"{PREFIX}DeliveryCount", f"{PREFIX}TopicPublishTime"
_OF_LETTERS = (
    _COUNT, f"{PREFIX}Subscription", f"{PREFIX}SubscriptionProject", _PUBLISHED, REASON, DESCRIPTION, SOURCE, MESSAGE_ID
)  # fmt: skip
_TIME_NS_MAX = (1 << 63) - 1


def since_ns_of(asked: admin.DeadLetterSelection) -> int:
    """From when on letters are wanted."""
    return _nanoseconds(asked.start_time)


class LetterSelection:
    """Which letters are wanted. Raises `InvalidArgument` for a filter without meaning."""

    def __init__(self, asked: admin.DeadLetterSelection) -> None:
        self._source, self._reason, self._ids = asked.source, asked.reason, frozenset(asked.message_ids)
        self._filter = _filter(asked.filter) if asked.filter else None
        self._end_ns = _nanoseconds(asked.end_time) if asked.HasField("end_time") else _TIME_NS_MAX

    def takes(self, message: pubsub.PubsubMessage) -> bool:
        """Whether it is one of them."""
        if message.publish_time.ToNanoseconds() >= self._end_ns:
            return False
        if self._ids and message.message_id not in self._ids:
            return False
        if self._source and source_of(message) != self._source:
            return False
        if self._reason and reason_of(message) != self._reason:
            return False
        if self._filter is None:
            return True
        seen = RuleMessage(
            dict(message.attributes), message.message_id, message.ordering_key, message.publish_time.ToNanoseconds()
        )
        try:
            return self._filter(seen, str) is True
        except RuleError:
            return False


def source_of(message: pubsub.PubsubMessage) -> str:
    """The subscription that a letter names as its source."""
    attributes = message.attributes
    if SOURCE in attributes:
        return attributes[SOURCE]
    project, name = attributes.get(f"{PREFIX}SubscriptionProject"), attributes.get(f"{PREFIX}Subscription")
    return f"projects/{project}/subscriptions/{name}" if project and name else ""


def reason_of(message: pubsub.PubsubMessage) -> str:
    """Why it is one; letters of earlier versions say so only where it was not delivered too often."""
    return message.attributes.get(REASON) or (TOO_OFTEN if _COUNT in message.attributes else "")


def letter_of(message: pubsub.PubsubMessage) -> admin.DeadLetter:
    """As the admin API shows it."""
    shown = admin.DeadLetter(message=message)
    attributes = shown.message.attributes
    shown.source, shown.reason = source_of(shown.message), reason_of(shown.message)
    shown.description = attributes.get(DESCRIPTION) or ""
    shown.original_message_id = attributes.get(MESSAGE_ID) or ""
    shown.delivery_attempts = _number(attributes.get(_COUNT))
    shown.redrives = _number(attributes.get(REDRIVES))
    with suppress(ValueError):
        shown.original_publish_time.FromJsonString(attributes.get(_PUBLISHED) or "")
    return shown


def published_again(letter: pubsub.PubsubMessage) -> pubsub.PubsubMessage:
    """The message that a letter was, to be published anew: without what made it a letter, and with its lineage."""
    message = pubsub.PubsubMessage.FromString(letter.SerializeToString())
    message.ClearField("message_id")
    message.ClearField("publish_time")
    attributes = message.attributes
    first = attributes.get(REDRIVEN_FROM) or attributes.get(MESSAGE_ID) or letter.message_id
    redrives = _number(attributes.get(REDRIVES)) + 1
    for name in (*_OF_LETTERS, *COUNTS):
        attributes.pop(name, None)
    attributes[REDRIVEN_FROM], attributes[REDRIVES] = first, str(redrives)
    return message


def _nanoseconds(moment: well_known.Timestamp) -> int:
    return max(0, min(moment.seconds * 1_000_000_000 + moment.nanos, _TIME_NS_MAX))


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0


def _filter(text: str) -> Filter:
    from syncpoint.base.rules.sql_parser import parse_filter  # its parser is large: only who asks by SQL loads it

    try:
        return compile_filter(parse_filter(text, "selection.filter"))
    except InvalidArgument as error:
        raise InvalidArgument("selection.filter", error.message) from None
