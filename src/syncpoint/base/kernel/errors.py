"""Exceptions that the kernel raises.

Place: thrown by the modules that read bytes of clients; the rooms above turn them into answers (INVALID_ARGUMENT).
Promise: whatever bytes come in, one of these comes out, or a result; state is changed only when nothing is raised.
Never compiled, so that compiled and uncompiled modules raise the same classes.
"""

from __future__ import annotations


class Malformed(ValueError):
    """The bytes are not what they claim to be: broken protobuf, a torn batch, runs that go nowhere."""


class Invalid(ValueError):
    """A well-formed request that breaks a rule of the API: `field` is a path such as `messages[3].attributes`."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"


class BadAckId(ValueError):
    """`ack_id` was not written by this subscription: wrong length, wrong alphabet, or wrong tag."""

    def __init__(self, ack_id: bytes) -> None:
        super().__init__(ack_id)
        self.ack_id = ack_id

    def __str__(self) -> str:
        shown = self.ack_id[:100].decode("utf-8", "replace")
        return f"Invalid ack id (ack_id={shown}{'…' if len(self.ack_id) > 100 else ''})"
