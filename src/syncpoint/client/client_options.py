"""What users of the client choose: how messages are batched, held back, tried again and received.

Place: handed to publishers and subscribers; plain values. Names and meanings are those of Google's client where it has
them, so that settings can be carried over.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from syncpoint.base.model.errors import Code

REQUEST_MESSAGES_MAX: Final = 1_000
REQUEST_BYTES_MAX: Final = 10_000_000
"""Of a Publish request, as the server has them."""


class LimitExceededBehavior(Enum):
    """What `publish` does where a limit of `PublishFlowControl` is reached."""

    IGNORE = "ignore"
    BLOCK = "block"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """When waiting messages become a request: as soon as one of these is reached. `max_latency` in seconds."""

    max_messages: int = 100
    max_bytes: int = 1_000_000
    max_latency: float = 0.01

    def __post_init__(self) -> None:
        if not 1 <= self.max_messages <= REQUEST_MESSAGES_MAX:
            raise ValueError(f"max_messages must be from 1 to {REQUEST_MESSAGES_MAX}, and is {self.max_messages}")
        if not 1 <= self.max_bytes <= REQUEST_BYTES_MAX:
            raise ValueError(f"max_bytes must be from 1 to {REQUEST_BYTES_MAX}, and is {self.max_bytes}")
        if self.max_latency < 0:
            raise ValueError(f"max_latency must not be negative, and is {self.max_latency}")


@dataclass(frozen=True, slots=True)
class PublishFlowControl:
    """How much a publisher holds that is not stored yet, and what happens beyond it."""

    message_limit: int = 100_000
    byte_limit: int = 100 << 20
    limit_exceeded_behavior: LimitExceededBehavior = LimitExceededBehavior.BLOCK

    def __post_init__(self) -> None:
        if self.message_limit < 1 or self.byte_limit < 1:
            raise ValueError("message_limit and byte_limit must be at least 1")


@dataclass(frozen=True, slots=True)
class ClientRetry:
    """How a call that failed for a moment is made again. All in seconds but `multiplier`; `timeout`: of one attempt,
    `deadline`: over all of them, from the first on.
    """

    initial: float = 0.1
    multiplier: float = 1.3
    maximum: float = 60.0
    timeout: float = 60.0
    deadline: float = 600.0


@dataclass(frozen=True, slots=True)
class FlowControl:
    """How much of a subscription is held here at once, neither acknowledged nor given back; and, in seconds, how long a
    message is kept at most (`max_lease_duration`), for how long it is leased each time (`lease_duration`), and how long
    an acknowledgement with a response is tried again (`ack_timeout`).
    """

    max_messages: int = 10_000
    max_bytes: int = 100 << 20
    max_lease_duration: float = 3600.0
    lease_duration: int = 60
    ack_timeout: float = 60.0

    def __post_init__(self) -> None:
        if self.max_messages < 1 or self.max_bytes < 1:
            raise ValueError("max_messages and max_bytes must be at least 1")
        if not 10 <= self.lease_duration <= 600:
            raise ValueError(f"lease_duration must be from 10 to 600 seconds, and is {self.lease_duration}")


PASSING: Final = frozenset(
    {
        Code.ABORTED,
        Code.CANCELLED,
        Code.DEADLINE_EXCEEDED,
        Code.INTERNAL,
        Code.RESOURCE_EXHAUSTED,
        Code.UNAVAILABLE,
        Code.UNKNOWN,
    }
)
"""Codes after which a call is made again, as Google's clients do."""
