"""What a process shows of reconciliations: findings, and when one is overdue."""

import pytest

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.catalog.access.disaster_classes import RECONCILED, RECONCILED_EVERY_S, declared
from syncpoint.catalog.access.tenant_book import Tenant
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Setting
from syncpoint.watch.metrics.exposition import written
from syncpoint.watch.metrics.family import Samples
from syncpoint.watch.metrics.recovery_families import FAMILIES, RecoveryRoom
from syncpoint.wire.protobuf.messages import admin

pytestmark = pytest.mark.shows("disaster-classes")


def shown(room):
    samples = Samples(FAMILIES)
    room.collect(samples)
    lines = written(samples, "").decode().splitlines()
    return dict(line.removeprefix("syncpoint_reconciliation_").rsplit(" ", 1) for line in lines if line[0] != "#")


def test_a_billing_project_is_overdue_a_day_after_it_was_declared_or_reconciled() -> None:
    catalog, clock = Catalog(), ManualClock()
    room = RecoveryRoom(catalog, clock)

    def put(*settings):
        for change in catalog.assign([CatalogChange.put(one) for one in settings]):
            catalog.apply(change)

    assert shown(room) == {}
    put(Tenant("acme", projects=("projects/a",)).setting(), declared("geo", "").setting("projects/g"))
    put(declared("billing", "")._replace(since_ns=clock.time_ns()).setting("tenants/acme"))
    assert shown(room) == {'overdue{project="a"}': "0"}
    clock.advance(RECONCILED_EVERY_S + 1)
    assert shown(room) == {'overdue{project="a"}': "1"}
    last = admin.Reconciliation(findings_total=3)
    last.time.FromNanoseconds(clock.time_ns())
    put(Setting(RECONCILED + "projects/a", last.SerializeToString()))
    assert shown(room) == {'overdue{project="a"}': "0", 'findings{project="a"}': "3"}
