"""Rules that every published message obeys, and the texts of their refusals.

Place: the kernel checks all of these rules and takes its texts from here. Code that has to parse a PublishRequest
before the kernel sees it, for transforms, schemas or sealing, uses the functions below, so that a client reads the same
text from either.
Promise: texts keep the words that official clients and the emulator's users look for, such as "request_size is too
large".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from syncpoint.base.model import limits
from syncpoint.base.model.errors import InvalidArgument

REQUEST_TOO_LARGE: Final = (
    f"request_size is too large: the maximum is {limits.PUBLISH_REQUEST_BYTES_MAX} bytes. Publish in smaller batches."
)
NO_MESSAGES: Final = "No messages to publish. Set at least one message."
TOO_MANY_MESSAGES: Final = (
    f"Too many messages to publish: the maximum is {limits.PUBLISH_MESSAGES_MAX} per request. Publish in smaller"
    " batches."
)
EMPTY: Final = "Some messages are empty. Each message must have data or at least one attribute."
TOO_MANY_ATTRIBUTES: Final = f"must not have more than {limits.MESSAGE_ATTRIBUTES_MAX} entries"
KEY_EMPTY: Final = "keys must not be empty"
KEY_TOO_LONG: Final = f"keys must not be longer than {limits.ATTRIBUTE_KEY_BYTES_MAX} bytes"
VALUE_TOO_LONG: Final = f"values must not be longer than {limits.ATTRIBUTE_VALUE_BYTES_MAX} bytes"
KEY_RESERVED: Final = "keys must not begin with goog, which is reserved"
ATTRIBUTES_NOT_UTF8: Final = "keys and values must be valid UTF-8"
ORDERING_KEY_TOO_LONG: Final = f"must not be longer than {limits.ORDERING_KEY_BYTES_MAX} bytes"
ORDERING_KEYS_DIFFER: Final = (
    "must be the same ordering key for all messages of a request. Publish one request per ordering key."
)
NOT_UTF8: Final = "must be valid UTF-8"
TTL_INVALID: Final = (
    "sys.TimeToLive must be a duration above 0 in the form [days.]hours:minutes[:seconds[.fraction]], such as 00:05:00"
)
SCHEDULE_INVALID: Final = "sys.ScheduledEnqueueTimeUtc must be an RFC 3339 time, such as 2026-11-23T18:00:00Z"

FIELD_PROBLEMS: Final = (
    (".attributes", TOO_MANY_ATTRIBUTES),
    (".attributes", KEY_EMPTY),
    (".attributes", KEY_TOO_LONG),
    (".attributes", VALUE_TOO_LONG),
    (".attributes", KEY_RESERVED),
    (".attributes", ATTRIBUTES_NOT_UTF8),
    (".ordering_key", ORDERING_KEY_TOO_LONG),
    (".ordering_key", NOT_UTF8),
)
"""What can be wrong with attributes and ordering keys, in the order of the kernel's numbers: (field, problem)."""


class Content(Protocol):
    """The fields of a PubsubMessage of which one must be set."""

    data: bytes

    @property
    def attributes(self) -> object: ...


def check_size(request: bytes | memoryview, room: int = 0) -> None:
    """Raise `InvalidArgument` for a PublishRequest that is larger than the limit by more than `room` bytes."""
    if len(request) > limits.PUBLISH_REQUEST_BYTES_MAX + room:
        raise InvalidArgument("request", REQUEST_TOO_LARGE)


def check_messages(messages: Sequence[Content]) -> None:
    """Raise `InvalidArgument` for no messages, too many, or an empty one."""
    if not messages:
        raise InvalidArgument("messages", NO_MESSAGES)
    if len(messages) > limits.PUBLISH_MESSAGES_MAX:
        raise InvalidArgument("messages", TOO_MANY_MESSAGES)
    for index, message in enumerate(messages):
        if not message.data and not message.attributes:
            raise InvalidArgument(f"messages[{index}]", EMPTY)
