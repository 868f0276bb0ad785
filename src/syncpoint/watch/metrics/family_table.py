"""The table: every family that any process shows, in the order of docs/metrics.md.

Place: the one list that the page is made from and that tests compare with what moves. A family is added beside its
collector, and is in here by that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from syncpoint.watch.metrics import (
    bridge_families,
    call_families,
    exposition,
    federation_families,
    gateway_families,
    gathered,
    log_families,
    otlp_export,
    prober_families,
    process_families,
    publish_families,
    recovery_families,
    risk_families,
    role_families,
    service_families,
    subscription_families,
)
from syncpoint.watch.metrics.family import Family, MetricKind


class Chapter(NamedTuple):
    """Families that are shown together."""

    title: str
    families: tuple[Family, ...]


CHAPTERS: Final = (
    Chapter("Calls and listeners", call_families.FAMILIES),
    Chapter("Publishing", publish_families.FAMILIES),
    Chapter("Logs and disks", log_families.FAMILIES),
    Chapter("At risk", risk_families.FAMILIES),
    Chapter("Subscriptions", subscription_families.FAMILIES),
    Chapter("Catalog, pushes, exports, schemas, transforms, delivery records, access", service_families.FAMILIES),
    Chapter("Projects", recovery_families.FAMILIES),
    Chapter("Workers and the processes of a cluster", role_families.FAMILIES),
    Chapter(
        "The process",
        (*process_families.FAMILIES, *exposition.FAMILIES, *gathered.FAMILIES, *otlp_export.FAMILIES),
    ),
    Chapter("Federation", federation_families.FAMILIES),
    Chapter("Gateway", gateway_families.FAMILIES),
    Chapter("Bridges", bridge_families.FAMILIES),
    Chapter("Probers", prober_families.FAMILIES),
)
FAMILIES: Final = tuple(family for chapter in CHAPTERS for family in chapter.families)


def page() -> str:
    """The lists of docs/metrics.md."""
    return "".join(_lines())


def _lines() -> Iterator[str]:
    for chapter in CHAPTERS:
        yield f"## {chapter.title}\n"
        for one in chapter.families:
            if not one.name.startswith("pubsub_"):  # Google's names have a table of their own
                labels = f"{{{','.join(one.labels)}}}" if one.labels else ""
                histogram = "histogram. " * (one.kind is MetricKind.HISTOGRAM)
                yield f"- `{one.name}{labels}`: {histogram}{one.meaning}\n"
        yield "\n"


def problems(families: Iterable[Family]) -> list[str]:
    """What is wrong with a table; nothing, it is hoped."""
    known: set[str] = set()
    found = []
    for one in families:
        if one.name in known:
            found.append(f"{one.name} is defined twice")
        known.add(one.name)
        if one.problem:
            found.append(f"{one.name}: {one.problem}")
    return found
