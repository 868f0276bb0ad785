"""An endpoint that push subscriptions push to, or a model: an HTTP server of this machine."""

from __future__ import annotations

import base64
import json
import queue
import time
from email.message import Message
from typing import Any

from tests.kit.in_threads import HttpThread

WAIT_S = 30.0


class Endpoint(HttpThread):
    """What arrives, answered with `status` and `answer` after a while."""

    def __init__(self) -> None:
        self.status, self.answer, self.delay_s = 204, b"", 0.0
        self.requests: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()
        super().__init__(self._take)
        self.url += "/push"

    def _take(self, path: str, headers: Message, body: bytes) -> tuple[int, bytes]:
        status, answer = self.status_of(body), self.answer
        time.sleep(self.delay_s)
        self.requests.put(({name.lower(): value for name, value in headers.items()}, body))
        return status, answer

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
