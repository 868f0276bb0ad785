"""The endpoint to which pushes of P7 come: a port of the prober itself.

Place: opened once for a prober program; a run asks for an address of its own below it.
Promise: what comes for a run that is over is answered with 404, so that the subscription keeps it until it is deleted.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from syncpoint.wire.protobuf.messages import pubsub

BODY_BYTES_MAX: Final = 1 << 20

OnPush = Callable[[Any, str], None]
"""Takes a message and the subscription that the push names; called in a thread of its own."""


class PushReceiver:
    """Receive the pushes of prober P7. `url`: the base URL for servers; "": the port itself."""

    def __init__(self, host: str, port: int, url: str = "") -> None:
        """Raises `OSError`."""
        self._runs: dict[str, OnPush] = {}
        receiver = self

        class PushHandler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = self.headers.get("content-length", "")
                if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
                    self.close_connection = True
                    self.answer(411)
                    return
                self.answer(receiver.take(self.path.rpartition("/")[2], self.rfile.read(int(length))))

            def answer(self, status: int) -> None:
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """The driver reports what matters."""

        self._server = ThreadingHTTPServer((host, port), PushHandler)
        self._server.daemon_threads = True
        shown = f"[{host}]" if ":" in host else host
        self.url = (url or f"http://{shown}:{self._server.server_port}").rstrip("/")
        threading.Thread(target=self._server.serve_forever, name="pushes", daemon=True).start()

    @contextmanager
    def of_run(self, run: str, on_push: OnPush) -> Iterator[str]:
        """The address for a run's pushes, within it."""
        self._runs[run] = on_push
        try:
            yield f"{self.url}/{run}"
        finally:
            del self._runs[run]

    def take(self, run: str, body: bytes) -> int:
        """The status that a push is answered with."""
        on_push = self._runs.get(run)
        if on_push is None:
            return 404
        try:
            found = json.loads(body)
            message = found["message"]
            came = pubsub.PubsubMessage(
                data=base64.b64decode(message.get("data", ""), validate=True),
                attributes=message.get("attributes", {}),
                message_id=message["messageId"],
                ordering_key=message.get("orderingKey", ""),
            )
            on_push(came, found["subscription"])
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
            return 400
        return 204

    def close(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
