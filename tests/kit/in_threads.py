"""A loop and an HTTP server in threads of their own, for stand-ins that a test talks to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, TypeVar

Result = TypeVar("Result")


class LoopThread:
    """A context manager; subclasses begin in `opened` and end in `closed`, on the loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    async def opened(self) -> None: ...

    async def closed(self) -> None: ...

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self.opened())
        return self

    def __exit__(self, *raised: object) -> None:
        self.run(self.closed())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, Result], within_s: float = 60) -> Result:
        """The result of a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(within_s)


class HttpThread:
    """A context manager; serves POST from the beginning, on a free port of 127.0.0.1.

    `answer`: path, headers and body of a request -> status and body of the answer.
    """

    def __init__(self, answer: Callable[[str, Message, bytes], tuple[int, bytes]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = self.rfile.read(length)
                if len(body) < length:  # the sender was killed
                    self.close_connection = True
                    return
                status, content = answer(self.path, self.headers, body)
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Not wanted."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Take no more."""
        self._server.shutdown()
        self._server.server_close()
