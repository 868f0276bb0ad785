"""Methods of the interface that no servicer provides: each answers UNIMPLEMENTED with its name.

Place: the bottom of the node's method table; whatever is served lies above it.
"""

from __future__ import annotations

from syncpoint.model.errors import Unimplemented
from syncpoint.transport.calls import Call, Streaming, StreamingCall, Unary
from syncpoint.wire import methods

SERVICES = (methods.PUBLISHER, methods.SUBSCRIBER, methods.SCHEMAS, methods.IAM)


def unimplemented_methods() -> dict[bytes, Unary | Streaming]:
    """Every method of these services as one that is not served. Lay the served ones over it."""
    return {
        path.encode(): Streaming(_refuse_stream) if path.is_streaming else Unary(_refuse)
        for service in SERVICES
        for path in service
    }


def _refuse(call: Call, request: bytes) -> None:
    raise Unimplemented(call.path.decode("ascii", "replace"))


def _refuse_stream(stream: StreamingCall) -> None:
    raise Unimplemented(stream.path.decode("ascii", "replace"))
