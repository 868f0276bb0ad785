"""An endpoint that push subscriptions push to, or a model: an HTTP server of this machine."""

from __future__ import annotations

import base64
import json
import queue
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

WAIT_S = 30.0


class Endpoint:
    """What arrives, answered with `status` and `answer` after a while."""

    def __init__(self) -> None:
        self.status, self.answer, self.delay_s = 204, b"", 0.0
        self.requests: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = self.rfile.read(length)
                if len(body) < length:  # whoever sent it was killed
                    self.close_connection = True
                    return
                status, answer = endpoint.status_of(body), endpoint.answer
                time.sleep(endpoint.delay_s)
                endpoint.requests.put(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(status)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Not wanted."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/push"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take no more."""
        self.server.shutdown()
        self.server.server_close()

    def status_of(self, body: bytes) -> int:
        """The status with which a request with this body is answered."""
        return self.status

    def next(self) -> tuple[dict[str, str], bytes]:
        """Headers and body of the next request."""
        return self.requests.get(timeout=WAIT_S)

    def next_body(self) -> dict[str, Any]:
        """The body of the next request, which is JSON."""
        found: dict[str, Any] = json.loads(self.next()[1])
        return found

    def next_data(self) -> bytes:
        """The data of the next message."""
        return base64.b64decode(self.next_body()["message"]["data"])
