"""Properties of the system, as rules name them by "sys.": what of a message each of them is.

Place: between messages and rules. A publisher sets most of them as attributes of the same name, sys.TimeToLive say,
which every official client can; the others are what the server knows of the message.
Promise: the table below is all there is; a name that is not in it is refused when the rule is made.
Source: the system properties of Azure Service Bus messages.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from syncpoint.base.model.reserved import FORWARD_COPIES, LETTERS
from syncpoint.base.rules.sql_values import Value, calculate, number_of, span_of, time_of

PREFIX = "sys."
RULE_NAME = "RuleName"
"""The attribute of a copy that names the rule whose action made it."""


class Origin(enum.Enum):
    """Where the value of a property comes from, and whether an action may set it."""

    ATTRIBUTE = "the attribute of this name"
    MESSAGE_ID = "the attribute of this name; without one, the message's id"
    ORDERING_KEY = "the ordering key"
    PUBLISH_TIME = "the publish time"
    OFFSET = "the message's offset in its source"
    EXPIRY = "publish time and time to live together"
    SERVER_ATTRIBUTE = "the attribute of this name, which the server writes"


@dataclass(frozen=True, slots=True)
class SystemProperty:
    """One line of the table. `read` makes a value of an attribute's text; None where the text is none. `older`: another
    name of it, understood in rules, under which a publisher may set it, too.
    """

    name: str
    origin: Origin
    read: Callable[[str], Value] = str
    older: str = ""

    @property
    def settable(self) -> bool:
        """Whether SET and REMOVE may name it."""
        return self.origin in (Origin.ATTRIBUTE, Origin.MESSAGE_ID)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that may hold it; the first that a message has counts."""
        return (PREFIX + self.name, PREFIX + self.older) if self.older else (PREFIX + self.name,)


TABLE = {
    one.name: one
    for one in (
        SystemProperty("MessageId", Origin.MESSAGE_ID),
        SystemProperty("CorrelationId", Origin.ATTRIBUTE),
        SystemProperty("Subject", Origin.ATTRIBUTE, older="Label"),
        SystemProperty("To", Origin.ATTRIBUTE),
        SystemProperty("ReplyTo", Origin.ATTRIBUTE),
        SystemProperty("ReplyToSessionId", Origin.ATTRIBUTE),
        SystemProperty("ContentType", Origin.ATTRIBUTE),
        SystemProperty("TimeToLive", Origin.ATTRIBUTE, span_of),
        SystemProperty("ScheduledEnqueueTimeUtc", Origin.ATTRIBUTE, time_of),
        SystemProperty("SessionId", Origin.ORDERING_KEY),
        SystemProperty("PartitionKey", Origin.ORDERING_KEY),
        SystemProperty("EnqueuedTimeUtc", Origin.PUBLISH_TIME),
        SystemProperty("SequenceNumber", Origin.OFFSET),
        SystemProperty("ExpiresAtUtc", Origin.EXPIRY),
        SystemProperty("DeadLetterReason", Origin.SERVER_ATTRIBUTE),
        SystemProperty("DeadLetterErrorDescription", Origin.SERVER_ATTRIBUTE),
        SystemProperty("DeadLetterSource", Origin.SERVER_ATTRIBUTE),
        SystemProperty("ForwardHops", Origin.SERVER_ATTRIBUTE, number_of),
        SystemProperty("ScheduledMessageId", Origin.SERVER_ATTRIBUTE),
    )
}
SERVER_WRITTEN = frozenset(PREFIX + one.name for one in TABLE.values() if one.origin is Origin.SERVER_ATTRIBUTE) | {
    LETTERS,
    FORWARD_COPIES,
}
"""Attributes that no action changes, however it spells them."""
_NAMES = {spelt.lower(): one.name for one in TABLE.values() for spelt in (one.name, one.older) if spelt}


def system_name(name: str) -> str | None:
    """The name in the table for one written in any case; None if there is none."""
    return _NAMES.get(name.lower())


def folded(name: str) -> str:
    """A name as names are compared: letter by letter without case, no other letter being equal to one of ASCII."""
    if name.isascii():
        return name.lower()
    return "".join(
        low if len(low := letter.lower()) == 1 and (letter.isascii() or not low.isascii()) else letter
        for letter in name
    )


@dataclass(slots=True)
class RuleMessage:
    """What a rule sees of a message. `offset`: its number in its source; `body`: fields of its data, by name, where
    somebody tries a rule on it, and never else.
    """

    attributes: Mapping[str, str]
    message_id: str = ""
    ordering_key: str = ""
    publish_time_ns: int = 0
    offset: int = 0
    body: Mapping[str, object] | None = None
    _folded: dict[str, str] | None = dataclasses.field(default=None, init=False, repr=False)

    def user(self, name: str) -> str | None:
        """An attribute, whatever the case of its name; of several the one that is written so, or sorts first."""
        value = self.attributes.get(name)
        if value is not None:
            return value
        if self._folded is None:
            self._folded = {folded(key): self.attributes[key] for key in sorted(self.attributes, reverse=True)}
        return self._folded.get(folded(name))

    def field(self, path: Sequence[str]) -> Value:
        """A field of the body, one name for each level; None where there is none, and where it has fields itself."""
        found: object = self.body
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found if isinstance(found, bool | int | float | str | datetime | timedelta) else None

    def changed(self, attributes: Mapping[str, str]) -> None:
        """From now on the message has these attributes, which may be the same object, changed."""
        self.attributes, self._folded = attributes, None

    def system(self, name: str) -> Value:
        """A property of the system; None where the message has none. Raises `RuleError` for one beyond all times."""
        known = TABLE[name]
        match known.origin:
            case Origin.ORDERING_KEY:
                return self.ordering_key or None
            case Origin.PUBLISH_TIME:
                return _time(self.publish_time_ns)
            case Origin.OFFSET:
                return self.offset
            case Origin.EXPIRY:
                lives = self.system("TimeToLive")
                return calculate("+", _time(self.publish_time_ns), lives)
        text = self.user(PREFIX + name)
        if text is None and known.older:
            text = self.user(PREFIX + known.older)
        if text is None:
            return self.message_id or None if known.origin is Origin.MESSAGE_ID else None
        return known.read(text)


def _time(nanoseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)
