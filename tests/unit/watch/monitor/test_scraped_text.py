"""Texts become numbers, and numbers become increases: each event counted once, whatever dies or is missing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from syncpoint.base.model.histogram import Histogram
from syncpoint.watch.metrics.exposition import written
from syncpoint.watch.metrics.family import Family, MetricKind, Samples
from syncpoint.watch.monitor.increases import Look, ProcessIncreases
from syncpoint.watch.monitor.scraped_text import ScrapedSeries, ScrapedText

KNOWN = (
    Family("things_total", MetricKind.COUNTER, "", ("name",), "Things."),
    Family("now", MetricKind.GAUGE, "", ("name", "kind"), "Now."),
    Family("took_seconds", MetricKind.HISTOGRAM, "seconds", (), "How long."),
    Family("others_total", MetricKind.COUNTER, "", (), "Not wanted."),
)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\r\x85\u2028\u2029\x1c\x1d\x1e\x0b\x0c"), max_size=8)


@given(st.dictionaries(NAMES, st.floats(0, 1e9), max_size=4), st.lists(st.floats(0, 700), max_size=5))
def test_what_prometheus_reads_is_read(named: dict[str, float], notes: list[float]) -> None:
    samples = Samples(KNOWN)
    for name, value in named.items():
        samples.put("things_total", value, name)
        samples.put("now", -value, name, 'a"b')
    took = Histogram()
    for seconds in notes:
        took.note(seconds)
    samples.put_histogram("took_seconds", took)
    samples.put("others_total", 1)
    text = written(samples)
    expected = {
        (one.name, tuple(sorted({**one.labels, "process": "p"}.items()))): one.value
        for family in text_string_to_metric_families(text.decode())
        for one in family.samples
        if family.name != "others"
    }
    reader = ScrapedText(lambda name: name != "others_total", {"process": "p"})
    for _ in range(2):  # the second time by what was remembered
        found = reader.read(text)
        assert {(one.name, one.labels): value for one, value in found.items()} == expected
    assert {one.name for one in found if not one.counts} == ({"now"} if named else set())


def grown(process: ProcessIncreases, now_s: float, **numbers: float) -> dict[str, float]:
    look: Look = {}
    process.take({ScrapedSeries(name, (), True): value for name, value in numbers.items()}, now_s, look)
    return {name: by_labels[()] for name, by_labels in look.items()}


def test_only_what_happens_from_now_on_is_counted_of_a_process_that_ran_before() -> None:
    process = ProcessIncreases()
    assert grown(process, 0, a=100) == {"a": 0}
    assert grown(process, 10, a=103, b=2) == {"a": 3, "b": 2}


def test_all_is_counted_of_one_that_began_with_the_monitor() -> None:
    assert grown(ProcessIncreases(fresh=True), 0, a=100) == {"a": 100}


def test_a_counter_that_fell_began_anew() -> None:
    process = ProcessIncreases(fresh=True)
    grown(process, 0, a=100)
    assert grown(process, 10, a=7) == {"a": 7}


def test_a_series_that_was_missing_goes_on() -> None:
    process = ProcessIncreases(fresh=True)
    grown(process, 0, a=100, b=1, c=1)
    grown(process, 10, b=1)
    assert grown(process, 20, a=105) == {"a": 5}
