"""Families of projects that must survive disasters: whether what they had adds up, and whether that was asked lately.

Place: in every process with a port for clients; the outcomes are settings of the catalog.
Promise: a project of the class billing that nobody has reconciled for more than a day is overdue, from the day on
which the class was declared.
"""

from __future__ import annotations

from typing import Final

from syncpoint.base.model.names import short_id
from syncpoint.base.runtime.clock import Clock
from syncpoint.catalog.access.disaster_classes import RECONCILED, RECONCILED_EVERY_S
from syncpoint.catalog.access.tenant_book import TenantBook
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.watch.metrics.family import Family, MetricKind, QuickCollector, Samples
from syncpoint.wire.protobuf.messages import admin

_G = MetricKind.GAUGE
FAMILIES: Final = (
    Family(
        "syncpoint_reconciliation_findings", _G, "", ("project",),
        "Messages that did not add up in the last reconciliation of a project.",
    ),
    Family(
        "syncpoint_reconciliation_overdue", _G, "", ("project",),
        "1 while a project of the class billing was not reconciled for 26 hours.",
    ),
)  # fmt: skip


class RecoveryRoom(QuickCollector):
    """Projects whose class demands reconciliations, and those that were reconciled."""

    name = "recovery"

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self._tenants, self._clock = TenantBook(catalog), clock
        self._last: dict[str, tuple[int, int]] = {}  # by project: when, in ns since 1970, and how many findings
        catalog.follow_settings(RECONCILED, self._notice)

    def collect(self, samples: Samples) -> None:
        due_ns = self._clock.time_ns() - int(RECONCILED_EVERY_S * 1e9)
        for project in sorted(self._tenants.classed_projects()):
            one = self._tenants.class_of(project)
            if one.records:
                at_ns = max(self._last.get(project, (0, 0))[0], one.since_ns)
                samples.put("syncpoint_reconciliation_overdue", int(at_ns < due_ns), short_id(project))
        for project, (_, found) in self._last.items():
            samples.put("syncpoint_reconciliation_findings", found, short_id(project))

    def _notice(self, key: str, value: bytes | None) -> None:
        project = key.removeprefix(RECONCILED)
        if value is None:
            self._last.pop(project, None)
        else:
            last = admin.Reconciliation.FromString(value)
            self._last[project] = last.time.ToNanoseconds(), last.findings_total
