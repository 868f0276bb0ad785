"""What can go wrong between Spark and a server, in words that say what to do next.

Place: raised by `http2` and `rpc`, by planning and by tasks; Spark shows the text to the user.
Promise: a text names the server, the call and the next step, and never holds a token or the content of a key.
"""

from __future__ import annotations

OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = 0, 1, 2, 3, 4, 5
PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE = 7, 8, 9, 10, 11
UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS, UNAUTHENTICATED = 12, 13, 14, 15, 16

SERVER_IS_GONE = (UNAVAILABLE, DEADLINE_EXCEEDED)
"""Failures that say nothing about what was asked."""

CODES = {
    OK: "OK",
    CANCELLED: "CANCELLED",
    UNKNOWN: "UNKNOWN",
    INVALID_ARGUMENT: "INVALID_ARGUMENT",
    DEADLINE_EXCEEDED: "DEADLINE_EXCEEDED",
    NOT_FOUND: "NOT_FOUND",
    6: "ALREADY_EXISTS",
    PERMISSION_DENIED: "PERMISSION_DENIED",
    RESOURCE_EXHAUSTED: "RESOURCE_EXHAUSTED",
    FAILED_PRECONDITION: "FAILED_PRECONDITION",
    ABORTED: "ABORTED",
    OUT_OF_RANGE: "OUT_OF_RANGE",
    UNIMPLEMENTED: "UNIMPLEMENTED",
    INTERNAL: "INTERNAL",
    UNAVAILABLE: "UNAVAILABLE",
    DATA_LOSS: "DATA_LOSS",
    UNAUTHENTICATED: "UNAUTHENTICATED",
}

ADVICE = {
    INVALID_ARGUMENT: "Correct what the text names; the options of this source and sink are in `syncpoint docs spark`.",
    NOT_FOUND: "Check the names of topic, subscription and snapshot (projects/P/topics/T), and that they exist on this"
    " server.",
    PERMISSION_DENIED: "The credentials named by token.file, token.env or tls.cert may not do this.",
    UNAUTHENTICATED: "Name the credentials with token.file or token.env, or a client certificate with tls.cert and"
    " tls.key.",
    UNIMPLEMENTED: "The server does not offer data pipelines: check that `endpoint` is a Syncpoint server of this"
    " release.",
    UNAVAILABLE: "Check that the server runs at `endpoint` and is reachable from the driver and every executor;"
    " `patienceSeconds` sets how long to keep trying.",
    DEADLINE_EXCEEDED: "The server is slow or gone; `callSeconds` sets how long one call may take.",
    ABORTED: "A later run of this query has taken over, and this one must end: only one run of a checkpoint may write.",
    RESOURCE_EXHAUSTED: "A limit of the server was met; smaller batches (fetchBytes, maxBytesPerTrigger) may help.",
    FAILED_PRECONDITION: "See the text for what stands against it.",
    OUT_OF_RANGE: "See the text for the offsets.",
    DATA_LOSS: "The server found damaged data; its own log shows where.",
}


class OptionError(ValueError):
    """An option is unknown, missing, or has a value that it may not have."""


class SchemaError(ValueError):
    """The columns to be read or written are not those of messages."""


class DataLossError(RuntimeError):
    """Messages between two offsets are gone, or the topic or server is another one than before."""


class FlowRefused(RuntimeError):
    """What a target did not take of a flow that has its query for itself; the text begins with the error's own name."""


class CallError(RuntimeError):
    """A call failed. `code`: of gRPC; `text`: the server's message; `details`: serialised `google.protobuf.Any`s.

    `unsent`: the server has certainly not begun to work on the call.
    """

    def __init__(
        self, code: int, text: str, details: tuple[bytes, ...] = (), *, where: str = "", unsent: bool = False
    ) -> None:
        self.code, self.text, self.details, self.where, self.unsent = code, text, details, where, unsent
        advice = ADVICE.get(code, "")
        if text and advice and not text.endswith((".", "!", "?")):
            text += "."
        name = CODES.get(code, f"code {code}")
        super().__init__(
            " ".join(part for part in (f"{where}: {name}:" if where else f"{name}:", text, advice) if part)
        )

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.code, self.text, self.details, self.where, self.unsent)

    def at(self, where: str) -> CallError:
        """Return this failure with its server and method added to the message."""
        return CallError(self.code, self.text, self.details, where=where, unsent=self.unsent)


class NameNotFound(CallError):
    """A topic, subscription, snapshot or schema that an option names is not there; the text has names that are."""

    def __init__(self, text: str) -> None:
        super().__init__(NOT_FOUND, text)
        self.args = (text,)

    def __reduce__(self) -> tuple[object, ...]:
        return NameNotFound, (self.text,)


def _rebuild(code: int, text: str, details: tuple[bytes, ...], where: str, unsent: bool) -> CallError:
    return CallError(code, text, details, where=where, unsent=unsent)
