"""A collector that takes OTLP over HTTP and keeps what it was sent."""

from __future__ import annotations

import gzip
import threading
import time
from email.message import Message
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.kit.in_threads import HttpThread


class OtlpReceiver(HttpThread):
    """`url` is where it listens."""

    def __init__(self) -> None:
        self._exports: list[Any] = []
        self.metrics: list[Any] = []
        self._lock = threading.Lock()
        super().__init__(self._take)

    def _take(self, path: str, headers: Message, body: bytes) -> tuple[int, bytes]:
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        with self._lock:
            if path == "/v1/traces":
                self._exports.append(ExportTraceServiceRequest.FromString(body))
            elif path == "/v1/metrics":
                self.metrics.append(ExportMetricsServiceRequest.FromString(body))
        return 200, b""

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
