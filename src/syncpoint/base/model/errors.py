"""The errors a client can receive, each with its gRPC status code.

Place: raised by any room that refuses or fails a request; turned into a gRPC status (or an HTTP one) only at the edge,
by `transport` and `wire`.
Promise: `code` is what the client's retry table sees, `message` is the text it is shown, `details` are
`google.protobuf.Any` messages already serialised, so that no room needs protobuf to raise an error.
Leaves to `wire.status`: building those details.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import ClassVar, Final

#: The domain of the reasons by which our own processes, and clients that care, recognise a refusal.
DOMAIN: Final = "syncpoint"


class Code(IntEnum):
    """Status codes of gRPC, with their numbers on the wire (grpc/doc/statuscodes.md)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class SyncpointError(Exception):
    """A failure with a status code; the base of everything a client may receive.

    `details`: serialised `google.protobuf.Any` messages, in the order in which clients should see them.
    """

    def __init__(self, code: Code, message: str, details: Iterable[bytes] = ()) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.details: tuple[bytes, ...] = tuple(details)

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        # Subclasses have constructors of their own; pickling goes by the plain values instead.
        return _rebuild, (type(self), self.code, self.message, self.details, self.__dict__.copy())


def _rebuild(
    kind: type[SyncpointError], code: Code, message: str, details: tuple[bytes, ...], state: dict[str, object]
) -> SyncpointError:
    error = kind.__new__(kind)
    SyncpointError.__init__(error, code, message, details)
    error.__dict__.update(state)
    return error


class InvalidArgument(SyncpointError):
    """The request itself is wrong and will stay wrong. `field` is the path of the field, "" when none is to blame."""

    field = problem = ""

    def __init__(self, field: str, problem: str, details: Iterable[bytes] = ()) -> None:
        super().__init__(Code.INVALID_ARGUMENT, f"{field}: {problem}" if field else problem, details)
        self.field = field
        self.problem = problem


def not_a(message: str) -> InvalidArgument:
    """For bytes that are no message of that name."""
    return InvalidArgument("", f"The request is not a valid {message}.")


class NotFound(SyncpointError):
    """The named resource does not exist."""

    resource = ""

    def __init__(self, resource: str, message: str | None = None) -> None:
        super().__init__(Code.NOT_FOUND, message or f"Resource not found (resource={resource}).")
        self.resource = resource


class AlreadyExists(SyncpointError):
    """The name is taken."""

    resource = ""

    def __init__(self, resource: str) -> None:
        super().__init__(Code.ALREADY_EXISTS, f"Resource already exists in the project (resource={resource}).")
        self.resource = resource


class _Coded(SyncpointError):
    """An error that is nothing but its code and a text."""

    _code = Code.UNKNOWN

    def __init__(self, message: str, details: Iterable[bytes] = ()) -> None:
        super().__init__(self._code, message, details)


class FailedPrecondition(_Coded):
    """The state of the resource does not allow the request; asking again without a change is useless."""

    _code = Code.FAILED_PRECONDITION


def suspended(topic: str, *, elsewhere: bool = False) -> FailedPrecondition:
    """For what is published to a topic while that is suspended; `elsewhere`: because another site takes publishes."""
    if elsewhere:
        return FailedPrecondition(
            f"The project has the class billing, and another site takes publishes of it (resource={topic}): a publish"
            " here would be a second writer. Publish there, or move the writer with `syncpoint projects set-class`."
        )
    return FailedPrecondition(f"The topic is suspended for sending (resource={topic}). Resume it, then publish again.")


def detached(subscription: str) -> FailedPrecondition:
    """For a use of a subscription that was detached from its topic."""
    return FailedPrecondition(
        f"The subscription is detached from its topic (resource={subscription}). Create another one to receive"
        " messages."
    )


class _Reasoned(FailedPrecondition):
    """A refusal that other processes recognise by its reason, a `google.rpc.ErrorInfo` among its details; `received`
    gives it its type back. What decides never looks at an error's text."""

    reason: ClassVar[str]

    def __init__(self, message: str) -> None:
        super().__init__(message, (_error_info(self.reason),))


class StaleEpoch(_Reasoned):
    """The caller's assignment of keys to chains is not the one this chain goes by."""

    reason = "STALE_EPOCH"


class OtherTopic(_Reasoned):
    """Meant for a former or a later topic of the same name."""

    reason = "OTHER_TOPIC"


class OtherSchema(_Reasoned):
    """The messages were checked against other schema settings of the topic than those that hold."""

    reason = "OTHER_SCHEMA"


class ResetBySeek(_Reasoned):
    """A seek moved the subscription while the caller was reading it."""

    reason = "RESET_BY_SEEK"


class ResourceExhausted(_Coded):
    """A quota, a queue or a disk is full; the request was not carried out."""

    _code = Code.RESOURCE_EXHAUSTED


class Unavailable(_Coded):
    """The outcome is unknown, or the service cannot answer now; trying again later is right."""

    _code = Code.UNAVAILABLE


class Unprocessed(Unavailable):
    """Certainly not begun: the server reported so, or was never reached. The call may be made again, also elsewhere."""


class ConnectionRefused(Unprocessed):
    """The host lives and nobody listens at the address: the process that did has ended."""


class MetadataSilent(Unavailable):
    """What was asked needs the metadata, which do not answer: nothing of it was done. Recognised by its reason."""

    reason: ClassVar[str] = "METADATA_SILENT"

    def __init__(self, message: str) -> None:
        super().__init__(message, (_error_info(self.reason),))


class GivenUp(Unavailable):
    """The process asked can no longer do it; asking again there does not help."""


class OutOfRange(_Coded):
    """A number lies outside of the range the resource has."""

    _code = Code.OUT_OF_RANGE


class Aborted(_Coded):
    """Lost against a concurrent change; the caller may read again and retry."""

    _code = Code.ABORTED


class Conflict(Aborted):
    """Another process changed the catalog first; our copy has caught up, and the request must be checked again."""


class Internal(_Coded):
    """A broken promise of ours."""

    _code = Code.INTERNAL


class DeadlineExceeded(_Coded):
    """The caller's deadline passed first; the outcome may be unknown."""

    _code = Code.DEADLINE_EXCEEDED


class Cancelled(_Coded):
    """The caller gave up."""

    _code = Code.CANCELLED


class PermissionDenied(_Coded):
    """The caller is known, and may not."""

    _code = Code.PERMISSION_DENIED


class Unauthenticated(_Coded):
    """The caller is not known."""

    _code = Code.UNAUTHENTICATED


class DataLoss(_Coded):
    """Stored data cannot be read back from any copy."""

    _code = Code.DATA_LOSS


class Unimplemented(SyncpointError):
    """A method or a setting that is not served (yet). `what` is a method path or the name of a setting."""

    what = ""

    def __init__(self, what: str) -> None:
        text = f"Method {what} is not implemented." if what.startswith("/") else f"{what} is not implemented."
        super().__init__(Code.UNIMPLEMENTED, text)
        self.what = what


def _error_info(reason: str) -> bytes:
    """A `google.rpc.ErrorInfo` of ours in an `Any`, serialised here because this room needs no protobuf."""

    def field(number: int, content: bytes) -> bytes:
        return bytes((number << 3 | 2, len(content))) + content

    info = field(1, reason.encode()) + field(2, DOMAIN.encode())
    return field(1, b"type.googleapis.com/google.rpc.ErrorInfo") + field(2, info)


_BY_REASON: dict[bytes, type[SyncpointError]] = {
    **{_error_info(one.reason): one for one in _Reasoned.__subclasses__()},
    _error_info(MetadataSilent.reason): MetadataSilent,
}
_BY_CODE: dict[int, type[SyncpointError]] = {
    Code.INVALID_ARGUMENT: InvalidArgument,
    Code.NOT_FOUND: NotFound,
    Code.ALREADY_EXISTS: AlreadyExists,
    Code.UNIMPLEMENTED: Unimplemented,
    **{one._code: one for one in _Coded.__subclasses__()},
}


def received(code: int, message: str, details: Iterable[bytes] = ()) -> SyncpointError:
    """What another process answered with, with the type of its reason, or its code."""
    details = tuple(details)
    kind = next((_BY_REASON[one] for one in details if one in _BY_REASON), _BY_CODE.get(code, SyncpointError))
    return _rebuild(kind, Code(code) if code in Code._value2member_map_ else Code.UNKNOWN, message, details, {})
