"""Exposition: the collectors of a process become one text in the format of Prometheus.

Place: one in each process; served by `scraped_page`.
Promise: however often it is asked for, the text is made once a second at most, and by one at a time. Rooms are read on
the thread of the event loop, in a turn each; the text is written in a thread beside it. A collector that fails takes
nothing with it but its own families, is logged, and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
    UnknownMetricFamily,
)
from prometheus_client.registry import Collector

from syncpoint.base.model.histogram import Histogram
from syncpoint.watch.metrics.family import Family, MetricKind, RoomCollector, Sample, Samples
from syncpoint.watch.metrics.kept_text import FRESH_S, KeptText

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
FAMILIES: Final = (
    Family(
        "syncpoint_metrics_texts_total",
        MetricKind.COUNTER,
        "",
        (),
        "Metrics pages generated rather than served from the cache.",
    ),
    Family("syncpoint_metrics_seconds", MetricKind.HISTOGRAM, "seconds", (), "Time to generate a metrics page."),
    Family(
        "syncpoint_metrics_samples",
        MetricKind.GAUGE,
        "",
        (),
        "Samples on this page, excluding those about the page itself.",
    ),
    Family("syncpoint_metrics_bytes", MetricKind.GAUGE, "bytes", (), "Size of the previous page."),
    Family(
        "syncpoint_metrics_failures_total",
        MetricKind.COUNTER,
        "",
        ("collector",),
        "Collector failures; its metrics are missing from that page.",
    ),
)

log = logging.getLogger(__name__)


class Exposition:
    """Write the metrics of this process as text.

    `families`: all that may be put; `process`: a label of every sample, where the texts of several processes are shown
    as one; `blocking` runs the writing of the text.
    """

    def __init__(
        self,
        families: Iterable[Family],
        collectors: Sequence[RoomCollector],
        *,
        process: str = "",
        fresh_s: float = FRESH_S,
        blocking: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]] = asyncio.to_thread,
    ) -> None:
        self.families = (*families, *FAMILIES)
        self.collectors = list(collectors)
        self._process, self._blocking = process, blocking
        self._kept = KeptText(self._made, fresh_s)
        self._texts = self._length = 0
        self._took = Histogram()
        self._failures = {one.name: 0 for one in collectors}

    async def text(self) -> bytes:
        """The response to a scraper."""
        return await self._kept.get()

    async def _made(self) -> bytes:
        loop = asyncio.get_running_loop()
        began = loop.time()
        samples = await self.look()
        text: bytes = await self._blocking(lambda: written(samples, self._process))
        self._texts, self._length = self._texts + 1, len(text)
        self._took.note(loop.time() - began)
        return text

    async def look(self) -> Samples:
        """Read all rooms now."""
        samples = Samples(self.families)
        for collector in self.collectors:
            part = Samples(self.families)
            try:
                await collector.prepare()
                collector.collect(part)
            except Exception:
                log.exception("the metrics of %s cannot be read", collector.name)
                self._failures[collector.name] = self._failures.get(collector.name, 0) + 1
                continue
            for name, rows in part.rows.items():
                samples.rows.setdefault(name, []).extend(rows)
            await asyncio.sleep(0)
        count = sum(len(rows) for rows in samples.rows.values())
        samples.put("syncpoint_metrics_samples", count)
        samples.put("syncpoint_metrics_texts_total", self._texts)
        samples.put("syncpoint_metrics_bytes", self._length)
        samples.put_histogram("syncpoint_metrics_seconds", self._took)
        for name, failures in self._failures.items():
            samples.put("syncpoint_metrics_failures_total", failures, name)
        return samples


class FoundSamples(Collector):
    """Samples as prometheus-client takes them."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def collect(self) -> Iterator[Metric]:
        for name, rows in self.samples.rows.items():
            yield metric(self.samples.families[name], rows)


def written(samples: Samples, process: str = "") -> bytes:
    """The text; any thread. What `FoundSamples` and `generate_latest` make, in less time. `process`: a label of all."""
    return "".join(_lines(samples, [f'process="{_escaped(process)}"'] if process else [])).encode()


def _lines(samples: Samples, everywhere: Sequence[str]) -> Iterator[str]:
    for name, rows in samples.rows.items():
        family = samples.families[name]
        yield f"# HELP {name} {_escaped(family.meaning, quotes=False)}\n# TYPE {name} {family.kind}\n"
        for row in rows:
            own = [f'{label}="{_escaped(value)}"' for label, value in zip(family.labels, row.labels, strict=True)]
            labels = [*everywhere, *own]
            shown = f"{{{','.join(labels)}}}" if labels else ""
            if row.histogram is not None:
                for bound, below in _buckets(row.histogram):
                    within = ",".join((*labels, f'le="{bound}"'))
                    yield f"{name}_bucket{{{within}}} {below}\n"
                yield f"{name}_count{shown} {row.histogram.count}\n{name}_sum{shown} {row.histogram.total}\n"
            elif family.kind is MetricKind.SUMMARY:
                yield f"{name}_count{shown} {row.value}\n{name}_sum{shown} {row.total}\n"
            else:
                yield f"{name}{shown} {row.value}\n"


def _escaped(text: str, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def metric(family: Family, rows: Iterable[Sample]) -> Metric:
    """One family with its samples."""
    name, meaning, labels = family.name, family.meaning, family.labels
    if family.kind is MetricKind.HISTOGRAM:
        histogram = HistogramMetricFamily(name, meaning, labels=labels)
        for row in rows:
            assert row.histogram is not None
            histogram.add_metric(row.labels, list(_buckets(row.histogram)), row.histogram.total)
        return histogram
    if family.kind is MetricKind.SUMMARY:
        summary = SummaryMetricFamily(name, meaning, labels=labels)
        for row in rows:
            summary.add_metric(row.labels, int(row.value), row.total)
        return summary
    made: CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily
    if family.kind is MetricKind.COUNTER:
        made = CounterMetricFamily(name, meaning, labels=labels)
    elif family.kind is MetricKind.GAUGE:
        made = GaugeMetricFamily(name, meaning, labels=labels)
    else:
        made = UnknownMetricFamily(name, meaning, labels=labels)
    for row in rows:
        made.add_metric(row.labels, row.value)
    return made


def _buckets(found: Histogram) -> Iterator[tuple[str, float]]:
    """Upper bound, and how many notes are not above it."""
    below = 0
    for bound, count in zip((*map(str, found.bounds), "+Inf"), found.counts, strict=True):
        below += count
        yield bound, below
