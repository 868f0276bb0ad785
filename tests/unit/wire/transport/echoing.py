"""Methods that tests of limits call."""

from __future__ import annotations

from syncpoint.wire.transport.calls import Call, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.frames import ErrorCode

CALM = ErrorCode.ENHANCE_YOUR_CALM


def methods(calls: list | None = None) -> dict[bytes, Unary | Streaming]:
    """Echo answers, Hold never does, Chat is a stream that only listens."""
    held: list[Call | StreamingCall] = [] if calls is None else calls
    return {
        b"/t.T/Echo": Unary(lambda call, request: call.reply(request)),
        b"/t.T/Hold": Unary(lambda call, request: held.append(call)),
        b"/t.T/Chat": Streaming(held.append),
    }
