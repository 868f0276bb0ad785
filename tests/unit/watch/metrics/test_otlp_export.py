"""Metrics by OTLP: the numbers of the page, as a collector receives them; one that is away costs exports alone."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.parser import text_string_to_metric_families

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.histogram import Histogram
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.watch.metrics.exposition import Exposition, written
from syncpoint.watch.metrics.family import MetricKind, QuickCollector, Samples
from syncpoint.watch.metrics.family_table import FAMILIES
from syncpoint.watch.metrics.otlp_export import (
    EXPORTED,
    FAILED,
    MetricsExportSettings,
    OtlpMetrics,
    OtlpThread,
    checked_export,
    export_of,
    metrics_data,
)
from tests.kit.otlp_numbers import NumbersByLabels, numbers_of
from tests.kit.otlp_receiver import OtlpReceiver, attributes_of

EXPORTS = "syncpoint_metrics_exports_total"


def on_page(samples: Samples) -> NumbersByLabels:
    """The page's numbers, in the form of `numbers_of`."""
    families = text_string_to_metric_families(written(samples).decode())
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in families
        for one in family.samples
        if one.labels.get("le") != "+Inf"  # which is the count
    }


@given(st.data())
def test_a_collector_receives_the_numbers_of_the_page(data: st.DataObject) -> None:
    samples, whole = Samples(FAMILIES), st.integers(0, 2**40)
    for family in data.draw(st.lists(st.sampled_from(FAMILIES), unique=True, max_size=12)):
        labels = [data.draw(st.text('abc/é"\\ ', min_size=1, max_size=5)) for _ in family.labels]
        if family.kind is MetricKind.HISTOGRAM:
            histogram = Histogram()
            for seconds in data.draw(st.lists(st.floats(0, 1000), max_size=8)):
                histogram.note(seconds)
            samples.put_histogram(family.name, histogram, *labels)
        elif family.kind is MetricKind.SUMMARY:
            samples.put_summary(family.name, data.draw(whole), data.draw(whole), *labels)
        else:
            samples.put(family.name, data.draw(whole), *labels)
    sent = encode_metrics(metrics_data(samples, Resource({}), InstrumentationScope("s"), 1, 2))
    assert numbers_of(sent) == on_page(samples)


def test_kinds_units_and_times() -> None:
    samples = Samples(FAMILIES)
    samples.put("syncpoint_publish_messages_total", 7)
    samples.put("syncpoint_catalog_topics", 3)
    samples.put_histogram("syncpoint_publish_persist_seconds", Histogram())
    sent = encode_metrics(metrics_data(samples, Resource({}), InstrumentationScope("s"), 1, 2))
    found = {one.name: one for part in sent.resource_metrics for scope in part.scope_metrics for one in scope.metrics}
    counter, gauge = found["syncpoint_publish_messages_total"], found["syncpoint_catalog_topics"]
    histogram = found["syncpoint_publish_persist_seconds"]
    assert counter.sum.is_monotonic
    cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert counter.sum.aggregation_temporality == histogram.histogram.aggregation_temporality == cumulative
    assert [(one.start_time_unix_nano, one.time_unix_nano) for one in counter.sum.data_points] == [(1, 2)]
    assert gauge.WhichOneof("data") == "gauge"
    assert (counter.unit, histogram.unit) == ("", "s")
    assert counter.description == next(one.meaning for one in FAMILIES if one.name == counter.name)


class Rising(QuickCollector):
    """A counter that grows whenever it is read."""

    name = "rising"

    def __init__(self) -> None:
        self.read = 0

    def collect(self, samples: Samples) -> None:
        self.read += 1
        samples.put("syncpoint_publish_messages_total", self.read)


async def exported(url: str) -> tuple[OtlpMetrics, dict[str, float]]:
    """Start, stop, and how many exports there were."""
    exposition = Exposition(FAMILIES, [Rising()])
    export = export_of(MetricsExportSettings(url), exposition, "p-1", "9.9", ManualClock(), asyncio.to_thread)
    assert export is not None
    export.start()
    await export.stop()
    samples = Samples(FAMILIES)
    export.collect(samples)
    return export, {row.labels[0]: row.value for row in samples.rows[EXPORTS]}


def test_a_process_that_stops_exports_what_it_has() -> None:
    with OtlpReceiver() as collector:
        _, exports = asyncio.run(exported(collector.url + "/"))
        assert exports == {EXPORTED: 1, FAILED: 0}
        (sent,) = collector.metrics
    assert numbers_of(sent)["syncpoint_publish_messages_total", frozenset()] == 1
    resource = attributes_of(sent.resource_metrics[0].resource.attributes)
    assert resource["service.name"] == "syncpoint"
    assert resource["service.instance.id"] == "p-1"
    assert resource["service.version"] == "9.9"


def test_a_collector_that_is_away_costs_an_export() -> None:
    with OtlpReceiver() as collector:
        url = collector.url
    _, exports = asyncio.run(exported(url))
    assert exports == {EXPORTED: 0, FAILED: 1}


def test_without_a_collector_there_is_no_export() -> None:
    nothing: Any = None
    assert export_of(MetricsExportSettings(), nothing, "p", "1", ManualClock(), nothing) is None


@pytest.mark.parametrize(
    ("otlp", "interval_s", "field"),
    [("collector:4318", None, "url"), ("http://c:4318", 0.5, "every"), ("", 5.0, "every")],
)
def test_settings_that_cannot_be_meant_name_their_field(otlp: str, interval_s: float | None, field: str) -> None:
    with pytest.raises(InvalidArgument, match=field):
        checked_export(otlp, interval_s, "url", "every")
    assert checked_export("http://c:4318", None, "url", "every").interval_s == 60


def test_a_program_exports_from_a_thread_and_once_more_in_the_end() -> None:
    rising = Rising()
    changing = iter([True])

    def samples() -> Samples:
        if next(changing, False):
            raise RuntimeError("dictionary changed size during iteration")
        found = Samples(FAMILIES)
        rising.collect(found)
        return found

    with OtlpReceiver() as collector:
        thread = OtlpThread(MetricsExportSettings(collector.url, 0.05), samples, "host/federation")
        thread.start()
        end = time.monotonic() + 30
        while len(collector.metrics) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        thread.stop()
        sent = [numbers_of(one)["syncpoint_publish_messages_total", frozenset()] for one in collector.metrics]
    assert sent == list(range(1, rising.read + 1))
    assert len(sent) >= 3


def test_a_program_goes_on_while_its_collector_is_away() -> None:
    thread = OtlpThread(MetricsExportSettings("http://127.0.0.1:1", 60), lambda: Samples(FAMILIES), "host/probers")
    thread.start()
    thread.stop()
