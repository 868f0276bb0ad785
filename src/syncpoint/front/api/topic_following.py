"""Topics follow what is decided above them: the regions of a tenant, the class of disaster recovery of a project.

Place: under `tenant_admin` and `project_admin`, which change that, and `admin_handlers`, which makes topics.
Promise: what was decided is persisted before topics follow, in parts; when that fails half way, the next change
carries on. A topic that must have delivery records never lacks the topic that they go to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from syncpoint.base.model.errors import Aborted, Conflict
from syncpoint.base.model.names import project_of
from syncpoint.catalog.access.disaster_classes import RECORDS_RETENTION_S, records_topic_of
from syncpoint.catalog.access.tenant_book import TenantBook, outdated
from syncpoint.catalog.metadata.commit_size import in_parts
from syncpoint.catalog.metadata.records import CatalogChange, Topic
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api import topics
from syncpoint.front.api.catalog_retries import ATTEMPTS_MAX
from syncpoint.wire.protobuf.messages import pubsub


async def topics_follow(control: ControlPlane, tenants: TenantBook) -> None:
    """Bring every topic to what is in force. Raises `Aborted`, `Unavailable`."""
    for _ in range(ATTEMPTS_MAX):
        try:
            await _carry_out(control, tenants)
        except Conflict:
            continue
        return
    raise Aborted("Other callers kept changing the catalog while topics followed the change. Try again.")


async def _carry_out(control: ControlPlane, tenants: TenantBook) -> None:
    catalog = control.catalog
    for part in in_parts([CatalogChange.put(record) for record in outdated(catalog, tenants)]):
        # Each as it is now: others had their turn.
        current = (catalog.topic(change.record.name) for change in part)
        targets = tenants.records_topics()
        pairs = [(known, tenants.within(known, targets)) for known in current if known is not None]
        records = [record for known, record in pairs if record is not known]
        made = lacking_records(control, tenants, records)
        await control.commit([*made, *map(CatalogChange.put, records)])


def lacking_records(control: ControlPlane, tenants: TenantBook, records: Iterable[Topic]) -> list[CatalogChange]:
    """The topics that delivery records of these go to because of a class, where they do not exist yet."""
    projects = dict.fromkeys(
        project
        for one in records
        if one.options.records_topic == records_topic_of(project := project_of(one.name))
        and control.catalog.topic(one.options.records_topic) is None
    )
    return [CatalogChange.put(_records_topic(control, tenants, project)) for project in projects]


def _records_topic(control: ControlPlane, tenants: TenantBook, project: str) -> Topic:
    wanted = pubsub.Topic(name=records_topic_of(project))
    wanted.message_retention_duration.seconds = RECORDS_RETENTION_S
    made = tenants.within(topics.new_topic(wanted, control.clock.time_ns()))
    return replace(made, incarnation=control.next_incarnation())
