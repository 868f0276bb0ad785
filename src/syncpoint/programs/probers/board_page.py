"""Where the board is read: `/metrics` for a collector, `/probers.json` for a console, and a file.

Place: a port of the prober program, and of bridges, which have another board; nobody is asked who he is, so it should
be an address that only those reach who may know.
Promise: a reader gets what stood on the board after some run; a reader of the file never finds half of it.
"""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Protocol

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.watch.metrics.exposition import CONTENT_TYPE, written
from syncpoint.watch.metrics.family import Samples

JSON_TYPE: Final = "application/json"


class ShownBoard(Protocol):
    """What is shown."""

    def as_dict(self) -> dict[str, Any]: ...

    def samples(self) -> Samples: ...


class BoardPage:
    """The texts of a board, made when it changes; `serve` answers with them in threads of its own."""

    def __init__(self, board: ShownBoard, file: Path | None = None, page: str = "/probers.json") -> None:
        self._board, self._file, self._page = board, file, page
        self._texts: dict[str, tuple[str, bytes]] = {}
        self._server: ThreadingHTTPServer | None = None
        self.renew()

    def renew(self) -> None:
        """The board has changed. Raises `OSError` for a file that cannot be written."""
        status = json.dumps(self._board.as_dict(), indent=2).encode() + b"\n"
        self._texts = {
            "/metrics": (CONTENT_TYPE, written(self._board.samples())),
            self._page: (JSON_TYPE, status),
        }
        if self._file is not None:
            beside = self._file.with_name(f".{self._file.name}.new")
            beside.write_bytes(status)
            os.replace(beside, self._file)

    def text(self, path: str) -> tuple[str, bytes] | None:
        """Content type and body of what is at a path."""
        return self._texts.get(path)

    def serve(self, host: str, port: int) -> int:
        """Open the port; returns its number. Raises `FailedPrecondition`."""
        texts, there = self.text, f"/metrics and {self._page} are here.\n".encode()

        class BoardHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = texts(self.path.partition("?")[0])
                kind, body = found or ("text/plain", there)
                self.send_response(200 if found else 404)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nobody wants to read who scraped."""

        try:
            self._server = ThreadingHTTPServer((host, port), BoardHandler)
        except OSError as error:
            raise FailedPrecondition(f"no metrics can be served at {host}:{port}: {error.strerror}") from error
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        return int(self._server.server_port)

    def close(self) -> None:
        """Close the port, if one was opened."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
