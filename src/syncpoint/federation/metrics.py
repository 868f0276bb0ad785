"""Metrics of the flows and of Spark, in the format of Prometheus.

Names begin with `syncpoint_federation_`; each flow is a label, with the clusters it goes between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from syncpoint.federation.servers import FlowProgress
from syncpoint.federation.state import FlowState, SupervisorState

PREFIX = "syncpoint_federation_"
LABELS = ("flow", "source", "target")


class Metrics(Collector):
    """What was last put is what is reported."""

    def __init__(self) -> None:
        self._progress: Sequence[FlowProgress] = ()
        self._state: SupervisorState | None = None
        self._flows: Mapping[str, FlowState] = {}
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def put(self, progress: Sequence[FlowProgress], state: SupervisorState, flows: Mapping[str, FlowState]) -> None:
        """Replace what is reported."""
        self._progress, self._state, self._flows = progress, state, flows

    def serve(self, host: str, port: int) -> int:
        """Answer GET /metrics from now on; returns the port."""
        server, _ = start_http_server(port, addr=host or "127.0.0.1", registry=self.registry)
        return int(server.server_port)

    def text(self) -> str:
        """All of it, as it is served."""
        return generate_latest(self.registry).decode()

    def collect(self) -> Iterator[Any]:
        """See `Collector`."""
        yield self._gauge("lag_messages", "Messages that are not copied yet.", lambda one: one.lag)
        yield self._gauge("lag_bytes", "Bytes that are not copied yet (an estimate).", lambda one: one.lag_bytes)
        yield self._counter("rows", "Messages copied.", lambda one: one.rows)
        yield self._counter("bytes", "Bytes copied.", lambda one: one.bytes)
        yield self._counter("epochs", "Epochs committed.", lambda one: one.epochs)
        yield self._counter("duplicates_dropped", "Messages that were there.", lambda one: one.duplicates_dropped)
        yield self._counter("gaps_refused", "Epochs refused for a gap in front of them.", lambda one: one.gaps_refused)
        yield self._counter("messages_skipped", "Messages in gaps that were accepted.", lambda one: one.skipped)
        yield self._gauge("blocked", "1 while a gap stops the flow.", lambda one: int(bool(one.gap)))
        batch = GaugeMetricFamily(f"{PREFIX}batch_seconds", "How long the newest batch took.", labels=["flow"])
        for name, flow in self._flows.items():
            batch.add_metric([name], flow.batch_s)
        yield batch
        if self._state is not None:
            executors = GaugeMetricFamily(f"{PREFIX}executors", "Executors that run.")
            executors.add_metric([], self._state.executors)
            yield executors
            starts = CounterMetricFamily(f"{PREFIX}starts", "How often Spark was started.")
            starts.add_metric([], self._state.starts)
            yield starts
            failures = CounterMetricFamily(f"{PREFIX}failures", "How often the job on Spark died.")
            failures.add_metric([], self._state.failures)
            yield failures

    def _gauge(self, name: str, text: str, value: Any) -> Any:
        return self._filled(GaugeMetricFamily(PREFIX + name, text, labels=LABELS), value)

    def _counter(self, name: str, text: str, value: Any) -> Any:
        return self._filled(CounterMetricFamily(PREFIX + name, text, labels=LABELS), value)

    def _filled(self, family: Any, value: Any) -> Any:
        for one in self._progress:
            found = value(one)
            if found is not None:
                link = one.flow.link
                family.add_metric([one.flow.name, link.source.name, link.target.name], found)
        return family
