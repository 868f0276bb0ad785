"""A collector that takes OTLP over HTTP and keeps what it was sent."""

from __future__ import annotations

import gzip
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class OtlpReceiver:
    """`url` is where it listens. A context manager."""

    def __init__(self) -> None:
        receiver = self
        self._exports: list[Any] = []
        self.metrics: list[Any] = []
        self._lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                with receiver._lock:
                    if self.path == "/v1/traces":
                        receiver._exports.append(ExportTraceServiceRequest.FromString(body))
                    elif self.path == "/v1/metrics":
                        receiver.metrics.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def spans(self) -> list[tuple[str, Any]]:
        """All spans so far: which process sent it, and the span."""
        with self._lock:
            return [
                (attributes_of(part.resource.attributes).get("service.instance.id", ""), span)
                for one in self._exports
                for part in one.resource_spans
                for scope in part.scope_spans
                for span in scope.spans
            ]

    def soon(self, *names: str, within_s: float = 40) -> list[tuple[str, Any]]:
        """All spans, once there is one of each name."""
        end = time.monotonic() + within_s
        while not {span.name for _, span in self.spans()} >= set(names):
            assert time.monotonic() < end, sorted(span.name for _, span in self.spans())
            time.sleep(0.2)
        return self.spans()


def attributes_of(pairs: Any) -> dict[str, Any]:
    """Attributes as plain values."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in pairs}
