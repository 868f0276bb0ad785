"""What takes spans, and how many: the limits that keep tracing small whatever clients ask for.

Place: handed to the rooms that make spans; `otlp_tracer` exports what it is given.
Promise: `record` and the questions return at once; none of them raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.random import Random
from syncpoint.base.tracing.trace_context import TraceContext

SPANS_S_MAX: Final = 500
MESSAGES_MAX: Final = 16  # of one request, entry or response
PUBLISH: Final = "publish"
PERSIST: Final = "persist"
DELIVER: Final = "deliver"
PUSH: Final = "push"
ACK: Final = "ack"
NACK: Final = "nack"

AttributeValue = str | int | float | bool


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """Where spans go, and what share of the publishes that no client traces begins a trace. `otlp`: the collector's
    http or https address; "": nothing is traced."""

    otlp: str = ""
    ratio: float = 0.0


def checked_tracing(otlp: str, ratio: float, otlp_field: str, ratio_field: str) -> TracingSettings:
    """Settings as users write them. Raises `InvalidArgument` that names one of the fields."""
    if otlp and not otlp.startswith(("http://", "https://")):
        raise InvalidArgument(otlp_field, "must be the address of a collector, such as http://127.0.0.1:4318")
    if not 0 <= ratio <= 1:
        raise InvalidArgument(ratio_field, "must be a number from 0 to 1")
    if ratio and not otlp:
        raise InvalidArgument(ratio_field, f"needs {otlp_field}: where spans go")
    return TracingSettings(otlp, ratio)


def named(operation: str, resource: str) -> dict[str, AttributeValue]:
    """The attributes of every span, by OpenTelemetry's conventions for messaging; `resource`: a topic or a
    subscription, in full.
    """
    project, name = (*resource.split("/")[1::2], "", "")[:2]
    of = "messaging.destination.name" if operation in (PUBLISH, PERSIST) else "messaging.destination.subscription.name"
    return {
        "messaging.system": "gcp_pubsub",
        "messaging.operation.name": operation,
        of: name,
        "gcp.project_id": project,
    }


@dataclass(frozen=True, slots=True)
class FinishedSpan:
    """One span. Times in nanoseconds since 1970; `server`: it answers a call; `failure`: why it failed."""

    name: str
    context: TraceContext
    parent: TraceContext | None
    begun_ns: int
    ended_ns: int
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    server: bool = False
    failure: str = ""


class Tracer(Protocol):
    """Take finished spans, and decide which calls begin a trace."""

    def record(self, span: FinishedSpan) -> None:
        """Take a span that is over."""
        ...

    def begun(self) -> TraceContext | None:
        """A new trace for what nobody traces; None where it is not chosen."""
        ...

    @property
    def clock(self) -> Clock: ...


class SpanLimits:
    """How many spans a second are taken, and which publishes begin a trace."""

    def __init__(self, ratio: float, clock: Clock, random: Random, spans_s_max: int = SPANS_S_MAX) -> None:
        self.dropped = 0
        self._ratio, self._clock, self._random, self._spans_s_max = ratio, clock, random, spans_s_max
        self._second, self._spans = 0, 0

    def admits(self) -> bool:
        """Whether one more is taken now."""
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second, self._spans = second, 0
        self._spans += 1
        if self._spans > self._spans_s_max:
            self.dropped += 1
            return False
        return True

    def begun(self) -> TraceContext | None:
        if not self._ratio or self._random.random() >= self._ratio:
            return None
        ids = self._random.token(24)
        return TraceContext(int.from_bytes(ids[:16]) or 1, int.from_bytes(ids[16:]) or 1, True)
