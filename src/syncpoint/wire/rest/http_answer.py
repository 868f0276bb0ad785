"""An answer as HTTP/1.1 writes it.

Place: between an ASGI application, which sends messages, and `http1`, which writes what h11 makes of events.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any

import h11


class HttpAnswer:
    """The answer to one request: what the application sends becomes what h11 writes."""

    def __init__(self, write: Callable[..., Awaitable[None]], leaving: Callable[[], bool], *, bare: bool) -> None:
        """`write` takes events; `leaving`: no further request is taken; `bare`: the answer has no body."""
        self.begun = False
        self._write, self._leaving, self._bare = write, leaving, bare
        self._head: h11.Response | None = None

    async def send(self, message: Any) -> None:
        """ASGI."""
        if message["type"] == "http.response.start":
            closing = [(b"connection", b"close")] if self._leaving() else []
            headers = [*dated(), *message.get("headers", ()), *closing]
            self._head = response(message["status"], headers)
        elif message["type"] == "http.response.body":
            events: list[h11.Event] = [] if self._head is None else [self._head]
            self.begun, self._head = True, None
            if (body := message.get("body", b"")) and not self._bare:
                events.append(h11.Data(data=body))
            if not message.get("more_body", False):
                events.append(h11.EndOfMessage())
            await self._write(*events)


def response(status: int, headers: list[tuple[bytes, bytes]]) -> h11.Response:
    """The head of an answer, with the usual words."""
    return h11.Response(status_code=status, headers=headers, reason=http.client.responses.get(status, "").encode())


_date: tuple[int, bytes] = (0, b"")


def dated() -> list[tuple[bytes, bytes]]:
    """The header field `date`, made once a second."""
    global _date
    now = int(time.time())
    if now != _date[0]:
        _date = now, formatdate(now, usegmt=True).encode()
    return [(b"date", _date[1])]
