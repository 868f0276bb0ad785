"""Tenants: owners, the projects they own together, and bounds that those projects inherit.

Place: settings of the catalog, changed by `front.api.tenant_admin`; asked when topics are created or changed, and when
an owner calls. Nobody asks on the path of a message: a topic's record holds the regions in force.
Promise: a project belongs to at most one tenant. A topic without a storage policy has the regions of its tenant.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument
from syncpoint.base.model.names import project_of
from syncpoint.catalog.access.disaster_classes import PREFIX as CLASSES
from syncpoint.catalog.access.disaster_classes import UNDECLARED, DeclaredClass, as_demanded, read_class
from syncpoint.catalog.access.quotas import UNBOUNDED, Quota
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Setting, Topic
from syncpoint.wire.protobuf.messages import pubsub

PREFIX: Final = "tenant:"
SERVER: Final = "server"
"""The resource above all projects."""
RESOURCE: Final = "tenants/"
"""What grants of owners hold on: tenants/NAME. It has no policy; the tenant names its owners."""
TENANTS_MAX: Final = 1000
TENANT_PROJECTS_MAX: Final = 1000
OWNERS_MAX: Final = 100
REGIONS_MAX: Final = 100
_NAME = re.compile(r"[a-z][a-z0-9-]{1,61}[a-z0-9]", re.ASCII)
_SHOWN = 5  # of topics that are in the way


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant. `owners`: members as policies store them; `quota`: of all its projects together; `project_quotas`: of
    single ones, set by its owners; `weight`: its share of turns against that of others; `version`: how often it was
    changed.
    """

    name: str
    display_name: str = ""
    owners: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    quota: Quota = UNBOUNDED
    project_quotas: Mapping[str, Quota] = field(default_factory=dict)
    weight: int = 1
    created_ns: int = 0
    updated_ns: int = 0
    version: int = 0

    def setting(self) -> Setting:
        """The form that is stored."""
        value = {
            "display_name": self.display_name,
            "owners": self.owners,
            "projects": self.projects,
            "regions": self.regions,
            "quota": _stored(self.quota),
            "project_quotas": {project: _stored(quota) for project, quota in self.project_quotas.items()},
            "weight": self.weight,
            "created_ns": self.created_ns,
            "updated_ns": self.updated_ns,
            "version": self.version,
        }
        return Setting(PREFIX + self.name, json.dumps(value, separators=(",", ":")).encode())

    def quota_of(self, project: str) -> Quota:
        """What its owners have set for one of its projects."""
        return self.project_quotas.get(project, UNBOUNDED)

    @property
    def etag(self) -> str:
        """Changes with every version; a later tenant of the same name never has an earlier one."""
        return hashlib.sha256(self.setting().value).hexdigest()[:16]


def read_tenant(key: str, value: bytes) -> Tenant:
    """A stored tenant; fields of later versions are left out."""
    found = json.loads(value)
    return Tenant(
        key.removeprefix(PREFIX),
        found["display_name"],
        tuple(found["owners"]),
        tuple(found["projects"]),
        tuple(found["regions"]),
        _quota(found.get("quota", {})),
        {project: _quota(quota) for project, quota in found.get("project_quotas", {}).items()},
        int(found.get("weight", 1)),
        int(found["created_ns"]),
        int(found["updated_ns"]),
        int(found["version"]),
    )


def _stored(quota: Quota) -> dict[str, float]:
    return {kind: bound for kind, bound in quota._asdict().items() if bound}


def _quota(found: Mapping[str, float]) -> Quota:
    return Quota._make(found.get(kind, 0) for kind in Quota._fields)


def parse_tenant(name: str) -> str:
    """Check a tenant's name. Raises `InvalidArgument`."""
    if _NAME.fullmatch(name) is None:
        raise InvalidArgument(
            "name",
            f"{name[:100]!r} must have 3 to 63 lowercase letters, digits and hyphens, as in acme-eu: a letter first, no"
            " hyphen last",
        )
    return name


class TenantBook:
    """The tenants of a catalog, by name and by project."""

    def __init__(self, catalog: Catalog) -> None:
        self._by_name: dict[str, Tenant] = {}
        self._by_project: dict[str, Tenant] = {}
        self._catalog = catalog
        self.classes: dict[str, DeclaredClass] = {}
        """Classes of disaster recovery, by what they are declared for: server, tenants/NAME, projects/P."""
        self.changes = 0
        """How many there have been; what was found before may be otherwise after one."""
        catalog.follow_settings(PREFIX, self._notice)
        catalog.follow_settings(CLASSES, self._notice_class)

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Tenant | None:
        """The tenant of that name."""
        return self._by_name.get(name)

    def of(self, project: str) -> Tenant | None:
        """The tenant that projects/P belongs to."""
        return self._by_project.get(project)

    @property
    def any_quota(self) -> bool:
        """Whether any tenant has a quota, or one of its projects."""
        return any(any(one.quota) or one.project_quotas for one in self._by_name.values())

    def after(self, name: str | None) -> Iterator[Tenant]:
        """Tenants in order of name, those after `name`."""
        return (self._by_name[one] for one in sorted(self._by_name) if name is None or one > name)

    def class_of(self, project: str) -> DeclaredClass:
        """The class of disaster recovery in force for projects/P: the innermost that is declared."""
        if not self.classes:
            return UNDECLARED
        tenant = self.of(project)
        places = (project, "" if tenant is None else RESOURCE + tenant.name, SERVER)
        return next((self.classes[one] for one in places if one in self.classes), UNDECLARED)

    def classed_projects(self) -> set[str]:
        """Projects for which a class is declared, by themselves or by their tenant."""
        found = {one for one in self.classes if one.startswith("projects/")}
        for name in self.classes:
            tenant = self._by_name.get(name.removeprefix(RESOURCE)) if name.startswith(RESOURCE) else None
            found.update(() if tenant is None else tenant.projects)
        return found

    def records_topics(self) -> set[str]:
        """The topics that delivery records of others go to."""
        return {one.options.records_topic for one in self._catalog.topics() if one.options.records_topic}

    def check_records_kept(self, name: str, verb: str) -> None:
        """Raise `FailedPrecondition` where a project of the class billing keeps delivery records in this topic."""
        for one in self._catalog.topics() if any(found.records for found in self.classes.values()) else ():
            if one.options.records_topic == name and self.class_of(project_of(one.name)).records:
                raise FailedPrecondition(
                    f"{name} cannot be {verb}: it keeps the delivery records of {one.name}, which the class billing of"
                    f" {project_of(one.name)} demands. Give that topic another records_topic first."
                )

    def within(self, record: Topic, targets: Collection[str] | None = None) -> Topic:
        """The topic with the regions in force: its own, or those of its tenant; and as the class of its project demands
        it. `targets`: `records_topics` of now, for who asks about many. Raises `FailedPrecondition` if its own are not
        among the tenant's."""
        if self.classes or record.options.writer:
            one, takes = self.class_of(project_of(record.name)), False
            if one.records or one.writer:
                takes = record.name in (self.records_topics() if targets is None else targets)
            record = as_demanded(record, one, takes_records=takes)
        return self._within_regions(record)

    def _within_regions(self, record: Topic) -> Topic:
        tenant = self.of(project_of(record.name))
        own = own_regions(record)
        if tenant is None or not tenant.regions:
            return record if record.regions == own else replace(record, regions=own)
        if outside := [one for one in own if one not in tenant.regions]:
            raise FailedPrecondition(
                f"message_storage_policy.allowed_persistence_regions: {', '.join(outside)[:200]} is outside the regions"
                f" of tenant {tenant.name}: {', '.join(tenant.regions)[:200]}. Use some of these, or none to have all."
            )
        regions = own or tenant.regions
        return record if record.regions == regions else replace(record, regions=regions)

    def _notice_class(self, key: str, value: bytes | None) -> None:
        self.changes += 1
        resource = key.removeprefix(CLASSES)
        if value is None:
            self.classes.pop(resource, None)
        else:
            self.classes[resource] = read_class(resource, value)

    def _notice(self, key: str, value: bytes | None) -> None:
        self.changes += 1
        known = self._by_name.pop(key.removeprefix(PREFIX), None)
        for project in () if known is None else known.projects:
            if self._by_project.get(project) is known:  # two may change places within one commit
                del self._by_project[project]
        if value is not None:
            tenant = read_tenant(key, value)
            self._by_name[tenant.name] = tenant
            self._by_project.update(dict.fromkeys(tenant.projects, tenant))


def own_regions(record: Topic) -> tuple[str, ...]:
    """The regions that the topic's own storage policy allows; none: it has no such policy."""
    if not record.regions:
        return ()
    return tuple(pubsub.Topic.FromString(record.config).message_storage_policy.allowed_persistence_regions)


def check_topics(catalog: Catalog, projects: Collection[str], regions: Collection[str]) -> None:
    """Raise `FailedPrecondition`, which names them, where topics of these projects allow other regions than these."""
    if not regions:
        return
    outside = [
        record.name
        for record in catalog.topics()
        if record.regions and project_of(record.name) in projects and not set(own_regions(record)) <= set(regions)
    ]
    if outside:
        more = f" and {len(outside) - _SHOWN} more" if len(outside) > _SHOWN else ""
        raise FailedPrecondition(
            f"allowed_regions: the message_storage_policy of {', '.join(sorted(outside)[:_SHOWN])}{more} allows regions"
            f" outside {', '.join(regions)[:200]}. Change these topics first."
        )


def outdated(catalog: Catalog, tenants: TenantBook) -> list[Topic]:
    """Topics whose regions are not those in force, as they should be."""
    targets = tenants.records_topics() if tenants.classes else ()
    return [record for known in catalog.topics() if (record := tenants.within(known, targets)) is not known]
