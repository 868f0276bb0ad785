"""The text: what Prometheus makes of it, when it is made, and what a collector that fails takes with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from syncpoint.base.model.histogram import Histogram
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.watch.metrics import family_table
from syncpoint.watch.metrics.exposition import Exposition, FoundSamples
from syncpoint.watch.metrics.family import Family, MetricKind, QuickCollector, Samples
from tests.kit.tools import tool

FAMILIES = (
    Family("things_total", MetricKind.COUNTER, "", ("name",), "Things."),
    Family("now", MetricKind.GAUGE, "", (), "Now."),
    Family("old_count", MetricKind.UNTYPED, "", (), "Under a name of others."),
    Family("sizes", MetricKind.SUMMARY, "", (), "How many, and how much."),
    Family("took_seconds", MetricKind.HISTOGRAM, "seconds", (), "How long."),
)


class Things(QuickCollector):
    name = "things"

    def __init__(self) -> None:
        self.number, self.broken, self.took = 0, False, Histogram((1.0, 2.0))

    def collect(self, samples: Samples) -> None:
        samples.put("now", 1.5)
        if self.broken:
            raise RuntimeError("a fault")
        samples.put("things_total", self.number, 'a "name"\n\\')
        samples.put("old_count", 7)
        samples.put_summary("sizes", 2, 300)
        samples.put_histogram("took_seconds", self.took)


async def at_once(work: Callable[[], Any]) -> Any:
    return work()


def read(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = list(text_string_to_metric_families(text.decode()))
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in found for one in family.samples}


def test_a_parser_reads_what_was_put() -> None:
    things = Things()
    things.number = 3
    things.took.note(1.5, 2)
    things.took.note(9.0)
    text = asyncio.run(Exposition(FAMILIES, [things], blocking=at_once).text())
    found = read(text)
    assert found["things_total", (("name", 'a "name"\n\\'),)] == 3
    assert (found["now", ()], found["old_count", ()]) == (1.5, 7)
    assert (found["sizes_count", ()], found["sizes_sum", ()]) == (2, 300)
    buckets = [found["took_seconds_bucket", (("le", bound),)] for bound in ("1.0", "2.0", "+Inf")]
    assert buckets == [0, 2, 3]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FoundSamples(asyncio.run(Exposition(FAMILIES, [things]).look())))
    theirs = read(generate_latest(registry))
    assert found.keys() == theirs.keys(), "the writer of prometheus-client says the same"
    assert (found["took_seconds_count", ()], found["took_seconds_sum", ()]) == (3, 12.0)


def test_the_text_is_made_once_for_all_who_ask_within_its_time() -> None:
    async def main() -> None:
        things = Things()
        exposition = Exposition(FAMILIES, [things], fresh_s=0.05, blocking=at_once)
        first, second = await asyncio.gather(exposition.text(), exposition.text())
        things.number = 1
        assert first == second == await exposition.text()
        await asyncio.sleep(0.06)
        found = read(await exposition.text())
        assert found["things_total", (("name", 'a "name"\n\\'),)] == 1
        assert found["syncpoint_metrics_texts_total", ()] == 1

    run_simulated(ManualClock(), main())


def test_a_collector_that_fails_takes_its_own_families_alone(caplog: pytest.LogCaptureFixture) -> None:
    broken, sound = Things(), Things()
    broken.broken, sound.name = True, "sound"
    found = read(asyncio.run(Exposition(FAMILIES, [broken, sound], blocking=at_once).text()))
    assert found["syncpoint_metrics_failures_total", (("collector", "things"),)] == 1
    assert found["syncpoint_metrics_failures_total", (("collector", "sound"),)] == 0
    assert found["things_total", (("name", 'a "name"\n\\'),)] == 0
    assert "the metrics of things cannot be read" in caplog.text


@pytest.mark.parametrize("put", [("nobody_knows", 1.0), ("now", 1.0, "label"), ("took_seconds", 1.0)])
def test_what_the_table_does_not_say_is_refused(put: tuple[Any, ...]) -> None:
    with pytest.raises((KeyError, ValueError)):
        Samples(FAMILIES).put(*put)


def test_the_table_is_in_order_and_mistakes_in_one_are_found() -> None:
    assert family_table.problems(family_table.FAMILIES) == []
    wrong = Family("Wrong_total", MetricKind.GAUGE, "seconds", (), "no sentence")
    assert len(family_table.problems([wrong, wrong])) == 3
    assert family_table.problems([Family("a_total", MetricKind.GAUGE, "", (), "It.")]) != []
    assert family_table.problems([Family("a", MetricKind.GAUGE, "bytes", (), "It.")]) != []


def test_the_page_shows_the_table() -> None:
    page = tool("metrics_page")
    assert page.main(["--check"]) == 0, "docs/metrics.md is not what the families say: make metrics"
    assert page.renewed(page.PAGE.read_text().replace("syncpoint_calls_total", "other")) == page.PAGE.read_text()
    with pytest.raises(SystemExit, match="no place"):
        page.renewed("# nothing")
