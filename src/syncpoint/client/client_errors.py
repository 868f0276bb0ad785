"""Errors that the client raises by itself; all others are a `SyncpointError` with the server's code and text.

Place: raised by publishers and subscribers. Names are those of Google's client where it has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from syncpoint.base.model.errors import SyncpointError


class FlowControlLimitError(Exception):
    """A limit of `PublishFlowControl` is reached, and its behavior is ERROR."""


class MessageTooLargeError(ValueError):
    """A message that no request has room for."""


class PausedOrderingKeyError(Exception):
    """A message of this ordering key could not be stored; `resume_publish` lets later ones through."""

    def __init__(self, topic: str, ordering_key: str) -> None:
        super().__init__(
            f"An earlier message with the ordering key {ordering_key!r} could not be stored in {topic}. Publish that"
            " one again, or give it up; resume_publish(topic, ordering_key) lets later ones through."
        )
        self.topic, self.ordering_key = topic, ordering_key


class BulkPublishError(Exception):
    """Some messages of `publish_many` could not be stored. `ids`: by place, None for what is not known to be stored;
    `error`: what the first of these failed with.
    """

    def __init__(self, ids: Sequence[str | None], error: Exception) -> None:
        missing = sum(one is None for one in ids)
        super().__init__(f"{missing} of {len(ids)} messages are not known to be stored: {error}")
        self.ids, self.error = list(ids), error


class AcknowledgeStatus(Enum):
    """What became of an acknowledgement."""

    SUCCESS = 1
    PERMISSION_DENIED = 2
    FAILED_PRECONDITION = 3
    INVALID_ACK_ID = 4
    OTHER = 5


class AcknowledgeError(Exception):
    """An acknowledgement did not count: the message comes again, or did before. `cause`: the server's refusal."""

    def __init__(self, status: AcknowledgeStatus, cause: SyncpointError | None = None) -> None:
        super().__init__(f"{status.name}: {cause.message}" if cause is not None else status.name)
        self.error_code, self.cause = status, cause
