"""What a tenant reads of the metrics: of its own projects everything, of others and of the server nothing."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from syncpoint.base.model.errors import InvalidArgument, NotFound
from syncpoint.base.model.histogram import Histogram
from syncpoint.catalog.access.tenant_book import Tenant, TenantBook
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.watch.metrics.exposition import written
from syncpoint.watch.metrics.family import Family, MetricKind, Samples
from syncpoint.watch.metrics.gathered import merged
from syncpoint.watch.metrics.tenant_text import TenantTexts, project_series, with_process

pytestmark = [pytest.mark.shows("tenants"), pytest.mark.shows("metrics")]

FAMILIES = (
    Family("syncpoint_total", MetricKind.COUNTER, "", (), "Of all."),
    Family("syncpoint_topic_total", MetricKind.COUNTER, "", ("project", "topic"), "Of topics."),
    Family("syncpoint_google_seconds", MetricKind.HISTOGRAM, "seconds", ("project_id", "topic_id"), "As Google's."),
    Family("syncpoint_calls_total", MetricKind.COUNTER, "", ("method",), "Of calls."),
)


def text_of(*projects, process=""):
    samples = Samples(FAMILIES)
    samples.put("syncpoint_total", 7)
    samples.put("syncpoint_calls_total", 3, 'x",project="a')
    for number, project in enumerate(projects):
        samples.put("syncpoint_topic_total", number, project, "orders")
        samples.put_histogram("syncpoint_google_seconds", Histogram(), project, "orders")
    return written(samples, process)


def series(text):
    return [one for family in text_string_to_metric_families(text.decode()) for one in family.samples]


def projects_in(text):
    return {one.labels.get("project", one.labels.get("project_id")) for one in series(text)}


def test_only_series_of_these_projects_are_shown() -> None:
    found = project_series(text_of("a", "b", "aa", "_other"), ["projects/a"])
    assert projects_in(found) == {"a"}
    assert {one.name for one in series(found)} == {
        "syncpoint_topic_total", "syncpoint_google_seconds_bucket", "syncpoint_google_seconds_count",
        "syncpoint_google_seconds_sum",
    }  # fmt: skip
    assert b"# HELP syncpoint_topic_total Of topics.\n# TYPE syncpoint_topic_total counter\n" in found
    assert b"syncpoint_calls_total" not in found
    assert project_series(text_of("a", "b"), []) == b""


def test_series_of_several_processes_are_one_text_with_their_names() -> None:
    parts = [project_series(text_of("a", "b"), process=name) for name in ("w1", "w2")]
    found = project_series(merged(parts), ["projects/b"])
    assert {one.labels["process"] for one in series(found)} == {"w1", "w2"}
    assert projects_in(found) == {"b"}
    assert found.count(b"# HELP syncpoint_topic_total ") == 1


_NAMES = st.text(st.sampled_from('ab",={}\\ \n'), min_size=1, max_size=6)


@given(st.lists(_NAMES, max_size=5, unique=True), st.sets(_NAMES, max_size=3))
def test_no_name_is_taken_for_another(shown, own) -> None:
    """Whatever is in labels: names of projects have no such characters, but other labels may."""
    found = project_series(text_of(*shown), [f"projects/{one}" for one in own if not set(one) & set('"\\\n')])
    assert projects_in(found) <= own


class Source:
    """The metrics of everything."""

    def __init__(self):
        self.asked = 0

    async def text(self):
        self.asked += 1
        return text_of("a", "b")


def test_a_tenant_reads_its_own_and_costs_one_text_a_second() -> None:
    catalog, source = Catalog(), Source()
    tenants = (Tenant("acme", projects=("projects/a",)), Tenant("other", projects=("projects/b",)))
    for change in catalog.assign(CatalogChange.put(one.setting()) for one in tenants):
        catalog.apply(change)

    async def now(work):
        return work()

    async def run():
        texts = TenantTexts(lambda: source, TenantBook(catalog), now)
        found = [await texts.text("acme") for _ in range(5)]
        assert (source.asked, len(set(found)), projects_in(found[0])) == (1, 1, {"a"})
        assert projects_in(await texts.text("other")) == {"b"}
        for name, error in (("none", NotFound), ("Acme", InvalidArgument)):
            with pytest.raises(error):
                await texts.text(name)

    asyncio.run(run())


def test_all_samples_of_a_process_are_named_after_it() -> None:
    text = b'# HELP a b\na 1\nb{c="d"} 2\nh_bucket{le="+Inf"} 3\n'
    named = b'# HELP a b\na{process="p-1"} 1\nb{process="p-1",c="d"} 2\nh_bucket{process="p-1",le="+Inf"} 3\n'
    assert with_process(text, "p-1") == named
