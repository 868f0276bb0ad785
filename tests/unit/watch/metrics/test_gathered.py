"""The metrics of workers as one text: families once, samples of all; who does not answer is counted."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.model.histogram import Histogram
from syncpoint.watch.metrics.exposition import written
from syncpoint.watch.metrics.family import Family, MetricKind, Samples
from syncpoint.watch.metrics.gathered import FAMILIES, GatheredText, merged

KNOWN = (
    Family("things_total", MetricKind.COUNTER, "", ("name",), "Things,\nof all kinds."),
    Family("now", MetricKind.GAUGE, "", (), "Now."),
    Family("took_seconds", MetricKind.HISTOGRAM, "seconds", (), "How long."),
)
Rows = set[tuple[str, str, tuple[tuple[str, str], ...], float]]


def rows(text: bytes) -> Rows:
    return {
        (family.name, one.name, tuple(sorted(one.labels.items())), one.value)
        for family in text_string_to_metric_families(text.decode())
        for one in family.samples
    }


@st.composite
def texts(draw: st.DrawFn) -> list[bytes]:
    """One of each worker, each with families of its own."""
    made = []
    for number in range(draw(st.integers(0, 4))):
        samples = Samples(KNOWN)
        for name in draw(st.sets(st.text(min_size=1, max_size=5))):
            samples.put("things_total", draw(st.integers(0, 9)), name)
        if draw(st.booleans()):
            samples.put("now", draw(st.integers(0, 9)))
        if draw(st.booleans()):
            took = Histogram()
            took.note(draw(st.floats(0, 9)))
            samples.put_histogram("took_seconds", took)
        made.append(written(samples, f"worker-{number}"))
    return made


@given(texts())
def test_merged_texts_have_every_sample_and_each_family_once(given_texts: list[bytes]) -> None:
    text = merged(given_texts)
    assert rows(text) == set().union(*map(rows, given_texts))
    heads = [line for line in text.split(b"\n") if line.startswith(b"# TYPE")]
    assert len(heads) == len(set(heads))


class Text:
    """One of a worker."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    async def text(self) -> bytes:
        return self._text


def worker(number: int) -> bytes:
    samples = Samples(KNOWN)
    samples.put("now", number)
    return written(samples, f"worker-{number}")


def test_a_worker_that_does_not_answer_takes_its_own_samples_alone_and_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def ask(address: str) -> bytes:
        if address == "there:3":
            raise Unavailable("it is not there")
        return worker(2)

    async def main() -> tuple[bytes, Samples]:
        others = {"worker-2": "there:2", "worker-3": "there:3"}
        gathered = GatheredText(Text(worker(1)), lambda: others, ask)
        text, samples = await gathered.text(), Samples(FAMILIES)
        gathered.collect(samples)
        return text, samples

    caplog.set_level("INFO")
    text, samples = asyncio.run(main())
    assert {(labels, value) for _, _, labels, value in rows(text)} == {
        ((("process", "worker-1"),), 1.0),
        ((("process", "worker-2"),), 2.0),
    }
    (counted,) = samples.rows.values()
    assert {one.labels: one.value for one in counted} == {("worker-2",): 0, ("worker-3",): 1}
    assert "the metrics of worker-3 are missing" in caplog.text
