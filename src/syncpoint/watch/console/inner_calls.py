"""Methods called for a page of the console, as the caller of that page.

Place: between the console's own pages and the table of methods that the port serves, which has its gate: what a
caller may not do over gRPC or REST is refused here, too.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message
from starlette.requests import Request

from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.rest.app import caller_of
from syncpoint.wire.rest.rest_call import RestCall
from syncpoint.wire.transport.calls import Methods, Unary


async def called(methods: Methods, method: Method, asked: Message, request: Request, timeout_s: float) -> Any:
    """The response. Raises `SyncpointError`: the error of the method or the gate, or that it took too long."""
    unary = methods[method.encode()]
    assert isinstance(unary, Unary)
    head = caller_of(request.scope, method)
    call = RestCall(head.path, head.metadata, timeout_s, head.peer, head.certificate, head.connection)
    try:
        return method.response.FromString(await call.answered(unary, asked.SerializeToString()))
    finally:
        call.end()
