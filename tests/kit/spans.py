"""A tracer that keeps what it is given."""

from __future__ import annotations

from syncpoint.base.runtime.clock import Clock, ManualClock
from syncpoint.base.tracing.trace_context import TraceContext
from syncpoint.base.tracing.tracer import FinishedSpan


class KeptSpans:
    """See `Tracer`. `beginning`: what `begun` returns."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.spans: list[FinishedSpan] = []
        self.beginning: TraceContext | None = None

    def record(self, span: FinishedSpan) -> None:
        self.spans.append(span)

    def begun(self) -> TraceContext | None:
        return self.beginning

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]
