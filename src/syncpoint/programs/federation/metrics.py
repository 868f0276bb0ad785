"""Metrics of the flows and of Spark, in the format of Prometheus.

Place: put by the supervisor after each look; the families stand in `metrics.federation_families`, the format is that of
all processes. Each flow is a label, with the clusters it goes between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from syncpoint.programs.federation.servers import FlowProgress
from syncpoint.programs.federation.state import FlowState, SupervisorState
from syncpoint.watch.metrics.exposition import FoundSamples
from syncpoint.watch.metrics.family import Samples
from syncpoint.watch.metrics.federation_families import FAMILIES, PREFIX


class Metrics(Collector):
    """What was last put is what is reported."""

    def __init__(self) -> None:
        self.samples = Samples(FAMILIES)
        self._takeovers: Sequence[Mapping[str, Any]] = ()
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def put(self, progress: Sequence[FlowProgress], state: SupervisorState, flows: Mapping[str, FlowState]) -> None:
        """Replace what is reported."""
        samples = Samples(FAMILIES)
        for one in progress:
            link = one.flow.link
            labels = (one.flow.name, link.source.name, link.target.name)
            values = {
                "lag_messages": one.lag,
                "lag_bytes": one.lag_bytes,
                "rows_total": one.rows,
                "bytes_total": one.bytes,
                "epochs_total": one.epochs,
                "duplicates_dropped_total": one.duplicates_dropped,
                "gaps_refused_total": one.gaps_refused,
                "messages_skipped_total": one.skipped,
                "blocked": int(bool(one.gap)),
            }
            for name, value in values.items():
                if value is not None:
                    samples.put(PREFIX + name, value, *labels)
        for name, flow in flows.items():
            samples.put(f"{PREFIX}batch_seconds", flow.batch_s, name)
        samples.put(f"{PREFIX}executors", state.executors)
        samples.put(f"{PREFIX}starts_total", state.starts)
        samples.put(f"{PREFIX}failures_total", state.failures)
        for pair in {(one["subscription"], one["lost"]) for one in self._takeovers}:
            found = [one for one in self._takeovers if (one["subscription"], one["lost"]) == pair]
            samples.put(f"{PREFIX}keys_taken_total", sum(one["slots"] for one in found), *pair)
            twice = sum((one["twice"] or 0) + one["lent"] for one in found)
            samples.put(f"{PREFIX}keys_delivered_twice_total", twice, *pair)
        self.samples = samples

    def put_takeovers(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Keys that were taken from sites that did not answer: reported after the next look."""
        self._takeovers = tuple(records)

    def serve(self, host: str, port: int) -> int:
        """Answer GET /metrics from now on; returns the port."""
        server, _ = start_http_server(port, addr=host or "127.0.0.1", registry=self.registry)
        return int(server.server_port)

    def text(self) -> str:
        """All of it, as it is served."""
        return generate_latest(self.registry).decode()

    def collect(self) -> Iterator[Metric]:
        return FoundSamples(self.samples).collect()
