"""The tracer that exports by OTLP over HTTP, with opentelemetry-sdk (the extra `otel`).

Place: made by `node` where an operator names a collector; the packages are imported then and not before.
Promise: a collector that is slow, away or broken costs spans, which the SDK's log reports, and nothing else.
"""

from __future__ import annotations

import logging
from typing import Any

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.random import Random
from syncpoint.base.tracing.trace_context import TraceContext
from syncpoint.base.tracing.tracer import FinishedSpan, SpanLimits, TracingSettings

INSTALL = "pip install 'syncpoint[otel]'"
TRACES = "/v1/traces"

log = logging.getLogger(__name__)


class OtlpTracer:
    """Export spans by OTLP over HTTP, with opentelemetry-sdk.

    `process`: the name of this process, used as the spans' `service.instance.id`.
    """

    def __init__(self, settings: TracingSettings, process: str, version: str, clock: Clock, random: Random) -> None:
        """Raises `FailedPrecondition` where the packages are not installed."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        except ImportError as error:
            raise FailedPrecondition(f"tracing needs {error.name}: {INSTALL}") from error
        resource = {"service.name": "syncpoint", "service.version": version, "service.instance.id": process}
        self.clock = clock
        self._limits = SpanLimits(settings.ratio, clock, random)
        self._resource, self._scope = Resource.create(resource), InstrumentationScope("syncpoint", version)
        self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=settings.otlp.rstrip("/") + TRACES))
        self.begun = self._limits.begun

    def record(self, span: FinishedSpan) -> None:
        if not self._limits.admits():
            return
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanKind, Status, StatusCode

        self._processor.on_end(
            ReadableSpan(
                name=span.name,
                context=_sdk_context(span.context, remote=False),
                parent=None if span.parent is None else _sdk_context(span.parent, remote=True),
                resource=self._resource,
                attributes=span.attributes,
                kind=SpanKind.SERVER if span.server else SpanKind.INTERNAL,
                start_time=span.begun_ns,
                end_time=max(span.ended_ns, span.begun_ns),
                instrumentation_scope=self._scope,
                status=Status(StatusCode.ERROR, span.failure) if span.failure else Status(StatusCode.UNSET),
            )
        )

    def close(self) -> None:
        """Export what is left; a collector that does not answer is waited for some seconds."""
        if self._limits.dropped:
            log.info("syncpoint_trace_spans_dropped %d: more than are taken in a second", self._limits.dropped)
        self._processor.shutdown()  # type: ignore[no-untyped-call]


def _sdk_context(context: TraceContext, *, remote: bool) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(context.trace_id, context.span_id, remote, TraceFlags(TraceFlags.SAMPLED))


def tracer_of(settings: TracingSettings, process: str, version: str, clock: Clock, random: Random) -> OtlpTracer | None:
    """The tracer of a process; None where nothing is traced. Raises `FailedPrecondition`."""
    return OtlpTracer(settings, process, version, clock, random) if settings.otlp else None
