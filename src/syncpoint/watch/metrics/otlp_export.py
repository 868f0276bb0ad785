"""Metrics as OTLP: what `/metrics` shows, sent to an OpenTelemetry collector again and again (the extra `otel`).

Place: beside the page for Prometheus, in each server and program where an operator names a collector; the packages
are imported then and not before. Without one, nothing is imported and nothing runs.
Promise: rooms are read as for the page, in turns of the event loop; encoding and sending are done in a thread beside
it, one export at a time. A collector that is slow or away costs exports, which are counted, and nothing else: counters
are sent as they stand, so the next export makes up for those that were lost.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import syncpoint
from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.watch.metrics.family import Family, MetricKind, QuickCollector, Sample, Samples

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import DataPointT, Metric, MetricsData

INSTALL: Final = "pip install 'syncpoint[otel]'"
PATH: Final = "/v1/metrics"
INTERVAL_S: Final = 60.0
TIMEOUT_S: Final = 5.0  # of one export with all its attempts; a process that stops waits for its last one as long
UNITS: Final = {"seconds": "s", "bytes": "By"}  # UCUM, as OpenTelemetry has it
EXPORTED, FAILED = "exported", "failed"
FAMILIES: Final = (
    Family(
        "syncpoint_metrics_exports_total",
        MetricKind.COUNTER,
        "",
        ("result",),
        "OTLP metrics exports, by outcome: exported or failed. The next export includes the data of a failed one.",
    ),
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MetricsExportSettings:
    """`otlp`: the collector's http or https address; "": nothing is exported. `interval_s`: from one export to the
    next."""

    otlp: str = ""
    interval_s: float = INTERVAL_S


def checked_export(otlp: str, interval_s: float | None, otlp_field: str, interval_field: str) -> MetricsExportSettings:
    """Settings as users write them; None: not given. Raises `InvalidArgument` that names one of the fields."""
    if otlp and not otlp.startswith(("http://", "https://")):
        raise InvalidArgument(otlp_field, "must be the address of a collector, such as http://127.0.0.1:4318")
    if interval_s is None:
        return MetricsExportSettings(otlp)
    if interval_s < 1:
        raise InvalidArgument(interval_field, "must be at least one second")
    if not otlp:
        raise InvalidArgument(interval_field, f"requires {otlp_field}, the address to send metrics to")
    return MetricsExportSettings(otlp, interval_s)


class MetricsLook(Protocol):
    """What can be read as a whole; see `Exposition`."""

    async def look(self) -> Samples: ...


class OtlpExporter:
    """Send samples to a collector. `process`: the resource's `service.instance.id`. Blocks; one export at a time."""

    def __init__(self, otlp: str, process: str, version: str, time_ns: Callable[[], int]) -> None:
        """Raises `FailedPrecondition` where the packages are not installed."""
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.metrics.export import MetricExportResult
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        except ImportError as error:
            raise FailedPrecondition(f"exporting metrics needs {error.name}: {INSTALL}") from error
        self._time_ns, self._begun_ns = time_ns, time_ns()
        resource = {"service.name": "syncpoint", "service.version": version, "service.instance.id": process}
        self._of = Resource.create(resource), InstrumentationScope("syncpoint", version)
        self._exporter = OTLPMetricExporter(endpoint=otlp.rstrip("/") + PATH, timeout=TIMEOUT_S)
        self._good = MetricExportResult.SUCCESS
        self.close = self._exporter.shutdown

    def send(self, samples: Samples) -> bool:
        """Whether the collector took them."""
        try:
            data = metrics_data(samples, *self._of, self._begun_ns, self._time_ns())
            return self._exporter.export(data) is self._good
        except Exception:  # the SDK logs what it expects, and reports that it failed
            log.exception("metrics cannot be exported")
            return False


class OtlpMetrics(QuickCollector):
    """Export a server's metrics as OTLP, and count the exports. `blocking` runs an export beside the event loop."""

    name = "OTLP export"

    def __init__(
        self,
        settings: MetricsExportSettings,
        looked_at: MetricsLook,
        process: str,
        version: str,
        clock: Clock,
        blocking: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]] = asyncio.to_thread,
    ) -> None:
        """Raises `FailedPrecondition` where the packages are not installed."""
        self._exporter = OtlpExporter(settings.otlp, process, version, clock.time_ns)
        self._looked_at, self._blocking = looked_at, blocking
        self._interval_s = settings.interval_s
        self._exports = {EXPORTED: 0, FAILED: 0}
        self._tasks = Tasks()

    def start(self) -> None:
        """Begin to export."""
        self._tasks.start(self._run())

    async def stop(self) -> None:
        """Export once more, so that nothing counted is missing, and end."""
        await self._tasks.stop()
        await self._export()
        self._exporter.close()

    def collect(self, samples: Samples) -> None:
        for result, count in self._exports.items():
            samples.put("syncpoint_metrics_exports_total", count, result)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._export()

    async def _export(self) -> None:
        samples = await self._looked_at.look()
        well = await self._blocking(lambda: self._exporter.send(samples))
        self._exports[EXPORTED if well else FAILED] += 1


class OtlpThread:
    """Export what a program measures, from a thread. `samples` is called there. Failed exports are logged."""

    def __init__(self, settings: MetricsExportSettings, samples: Callable[[], Samples], process: str) -> None:
        """Raises `FailedPrecondition` where the packages are not installed."""
        self._exporter = OtlpExporter(settings.otlp, process, syncpoint.__version__, time.time_ns)
        self._interval_s, self._samples = settings.interval_s, samples
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self.start = self._thread.start

    def stop(self) -> None:
        """Export once more, so that nothing counted is missing, and end."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        over = False
        while not over:
            over = self._ended.wait(self._interval_s)
            try:
                self._exporter.send(self._samples())
            except Exception:  # the program may have been changing what it measures
                log.exception("metrics cannot be read")
        self._exporter.close()


def metrics_data(samples: Samples, resource: Any, scope: Any, begun_ns: int, now_ns: int) -> MetricsData:
    """All samples as the SDK exports them; any thread. Families, labels and numbers are those of the page."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics

    found = [_metric(samples.families[name], rows, begun_ns, now_ns) for name, rows in samples.rows.items()]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, found, "")], "")])


def _metric(family: Family, rows: Iterable[Sample], begun_ns: int, now_ns: int) -> Metric:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Histogram, Metric, Sum

    cumulative = AggregationTemporality.CUMULATIVE
    points: Sequence[DataPointT] = [_point(family, row, begun_ns, now_ns) for row in rows]
    data: Any
    if family.kind is MetricKind.GAUGE:
        data = Gauge(points)  # type: ignore[arg-type]
    elif family.kind in (MetricKind.HISTOGRAM, MetricKind.SUMMARY):
        data = Histogram(points, cumulative)  # type: ignore[arg-type]
    else:
        data = Sum(points, cumulative, is_monotonic=True)  # type: ignore[arg-type]
    return Metric(family.name, family.meaning, UNITS.get(family.unit, family.unit), data)


def _point(family: Family, row: Sample, begun_ns: int, now_ns: int) -> DataPointT:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint

    labels = dict(zip(family.labels, row.labels, strict=True))
    if family.kind in (MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.UNTYPED):
        return NumberDataPoint(labels, begun_ns, now_ns, row.value)
    if row.histogram is None:  # a summary without quantiles is a histogram of one bucket
        counts, bounds, total = [int(row.value)], [], row.total
    else:
        counts, bounds, total = row.histogram.counts, list(row.histogram.bounds), row.histogram.total
    unset: Any = None  # smallest and largest are not kept
    return HistogramDataPoint(labels, begun_ns, now_ns, sum(counts), total, counts, bounds, unset, unset)


def export_of(
    settings: MetricsExportSettings,
    looked_at: MetricsLook,
    process: str,
    version: str,
    clock: Clock,
    blocking: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]],
) -> OtlpMetrics | None:
    """The export of a process; None where there is no collector. Raises `FailedPrecondition`."""
    return OtlpMetrics(settings, looked_at, process, version, clock, blocking) if settings.otlp else None
