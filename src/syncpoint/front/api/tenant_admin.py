"""Tenants, of syncpoint.admin.v1: made, changed, and what is in force for a project or a topic.

Place: beside `iam`, over the catalog, in which tenants are settings.
Promise: a change is refused whole, or answered once every topic has the regions in force. It is persisted before topics
follow, in parts; when that fails, the next change of any tenant carries on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace

from syncpoint.base.model.errors import (
    Aborted,
    AlreadyExists,
    FailedPrecondition,
    NotFound,
    ResourceExhausted,
)
from syncpoint.base.model.names import parse_project, parse_topic, project_of
from syncpoint.catalog.access.inherited_quotas import INSTALLATION, sources
from syncpoint.catalog.access.policy import Policies, is_deleted, is_member, normal
from syncpoint.catalog.access.quotas import QUOTA_BOUND, UNBOUNDED, Quota
from syncpoint.catalog.access.tenant_book import (
    OWNERS_MAX,
    REGIONS_MAX,
    RESOURCE,
    TENANT_PROJECTS_MAX,
    TENANTS_MAX,
    Tenant,
    TenantBook,
    check_topics,
    own_regions,
    parse_tenant,
)
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api import masks, pages
from syncpoint.front.api.options_admin import admin_table
from syncpoint.front.api.topic_following import topics_follow
from syncpoint.front.api.validate import in_bounds, refused
from syncpoint.wire.protobuf.messages import admin, well_known
from syncpoint.wire.transport.calls import Methods

DISPLAY_NAME_MAX = 100  # characters
WEIGHT_MAX = 100
_MUTABLE = ("display_name", "owners", "projects", "allowed_regions", "quota", "weight")


class TenantAdmin:
    """The methods on messages; `methods()` serves them on bytes. `regions`: of which something may store messages."""

    def __init__(
        self,
        control: ControlPlane,
        policies: Policies,
        regions: Callable[[], Collection[str]],
        metrics: Callable[[str], Awaitable[bytes]],
        quota_of: Callable[[str], Quota] | None = None,
    ) -> None:
        """`metrics`: the text of a tenant. `quota_of`: of the installation, for a project; None: nothing is counted."""
        self._control, self._policies, self._regions = control, policies, regions
        self._metrics, self._quota_of = metrics, quota_of
        self._tenants = TenantBook(control.catalog)

    async def create(self, request: admin.CreateTenantRequest) -> admin.Tenant:
        """CreateTenant."""
        name = parse_tenant(request.tenant.name)
        if self._tenants.find(name) is not None:
            raise AlreadyExists(f"tenants/{name}")
        if len(self._tenants) >= TENANTS_MAX:
            raise ResourceExhausted(f"There are already {TENANTS_MAX} tenants, the maximum. Delete one first.")
        now_ns = self._control.clock.time_ns()
        return await self._put(self._filled(Tenant(name, created_ns=now_ns), request.tenant, _MUTABLE))

    async def get(self, request: admin.GetTenantRequest) -> admin.Tenant:
        """GetTenant."""
        return self._message(self._found(request.name))

    async def list(self, request: admin.ListTenantsRequest) -> admin.ListTenantsResponse:
        """ListTenants."""
        page = pages.asked(request.page_size, request.page_token, "tenants")
        messages = map(self._message, self._tenants.after(page.after))
        found = pages.gathered(messages, page, admin.Tenant.ByteSize)
        tenants, token = pages.cut(found, page, "tenants", lambda one: one.name, admin.Tenant.ByteSize)
        return admin.ListTenantsResponse(tenants=tenants, next_page_token=token)

    async def update(self, request: admin.UpdateTenantRequest) -> admin.Tenant:
        """UpdateTenant. One that changes nothing succeeds, whatever etag it names."""
        known = self._found(request.tenant.name)
        tenant = self._filled(known, request.tenant, masks.checked_paths(request, request.tenant, _MUTABLE))
        if tenant != known:
            _check_etag(known, request.tenant.etag)
        return await self._put(tenant, known)

    async def delete(self, request: admin.DeleteTenantRequest) -> well_known.Empty:
        """DeleteTenant."""
        known = self._found(request.name)
        _check_etag(known, request.etag)
        if known.projects:
            raise FailedPrecondition(
                f"projects: tenant {known.name} still has {', '.join(known.projects)[:200]}. Remove them from it first."
            )
        changes = [CatalogChange.delete(known.setting())]
        if (declared := self._tenants.classes.get(RESOURCE + known.name)) is not None:
            changes.append(CatalogChange.delete(declared.setting(RESOURCE + known.name)))
        await self._control.commit(changes)
        return well_known.Empty()

    async def update_project_quota(self, request: admin.UpdateProjectQuotaRequest) -> admin.Tenant:
        """UpdateProjectQuota."""
        known, project = self._found(request.tenant), parse_project(request.project)
        if project not in known.projects:
            raise NotFound(project, _foreign(project, known.name))
        quota = _quota(request.quota)
        for kind, bound, most in zip(Quota._fields, quota, known.quota, strict=True):
            if most and bound > most:
                raise refused(
                    f"quota.{kind}", f"quota.{kind} must not be more than {most:.15g}, that of tenant {known.name}"
                )
        quotas = {**known.project_quotas, project: quota}
        if quota == UNBOUNDED:
            del quotas[project]
        tenant = replace(known, project_quotas=quotas)
        if tenant != known:
            _check_etag(known, request.etag)
        return await self._put(tenant, known)

    async def read_metrics(self, request: admin.GetTenantMetricsRequest) -> admin.TenantMetrics:
        """GetTenantMetrics."""
        return admin.TenantMetrics(text=(await self._metrics(request.name)).decode())

    async def effective(self, request: admin.GetEffectivePolicyRequest) -> admin.EffectivePolicy:
        """GetEffectivePolicy."""
        is_topic = request.resource.count("/") > 1
        project = project_of(parse_topic(request.resource)) if is_topic else parse_project(request.resource)
        tenant = self._tenants.of(project)
        if request.tenant and (tenant is None or tenant.name != request.tenant):
            raise NotFound(request.resource, _foreign(project, request.tenant))
        regions: tuple[str, ...] = ()
        source = INSTALLATION
        if tenant is not None and tenant.regions:
            regions, source = tenant.regions, "tenant"
        if is_topic:
            record = self._control.catalog.topic(request.resource)
            if record is None:
                raise NotFound(request.resource)
            if own := own_regions(record):
                regions, source = own, "topic"
        settings = [admin.EffectiveSetting(name="allowed_regions", value=", ".join(regions), source=source)]
        if self._quota_of is not None:
            for kind, bound in sources(self._quota_of(project), tenant, project).items():
                value = f"{bound.value:.15g}" if bound.value else ""
                settings.append(admin.EffectiveSetting(name=kind, value=value, source=bound.source))
            weight, source = (1, INSTALLATION) if tenant is None else (tenant.weight, "tenant")
            settings.append(admin.EffectiveSetting(name="weight", value=str(weight), source=source))
        return admin.EffectivePolicy(
            resource=request.resource, tenant="" if tenant is None else tenant.name, settings=settings
        )

    def methods(self) -> Methods:
        """The method table."""
        return admin_table(
            self._control,
            {
                "CreateTenant": self.create,
                "GetTenant": self.get,
                "ListTenants": self.list,
                "UpdateTenant": self.update,
                "DeleteTenant": self.delete,
                "UpdateProjectQuota": self.update_project_quota,
                "GetTenantMetrics": self.read_metrics,
                "GetEffectivePolicy": self.effective,
            },
        )

    # -- changing ----------------------------------------------------------------------------------------------------

    def _filled(self, known: Tenant, wanted: admin.Tenant, paths: Collection[str]) -> Tenant:
        """The tenant with the fields that `paths` name. Raises `InvalidArgument`, `FailedPrecondition`."""
        tenant = known
        if "display_name" in paths:
            if len(wanted.display_name) > DISPLAY_NAME_MAX:
                raise refused("display_name", f"display_name must not be longer than {DISPLAY_NAME_MAX} characters")
            tenant = replace(tenant, display_name=wanted.display_name)
        if "owners" in paths:
            tenant = replace(tenant, owners=self._owners(wanted.owners))
        if "projects" in paths:
            projects = self._projects(known.name, wanted.projects)
            quotas = {project: quota for project, quota in known.project_quotas.items() if project in projects}
            tenant = replace(tenant, projects=projects, project_quotas=quotas)
        if "allowed_regions" in paths:
            tenant = replace(tenant, regions=self._allowed(known, wanted.allowed_regions))
        if kinds := [path for path in paths if path.partition(".")[0] == "quota"]:
            merged = admin.Tenant(quota=_quota_message(known.quota))
            masks.merge(merged, wanted, kinds)
            tenant = replace(tenant, quota=_quota(merged.quota))
        if "weight" in paths:
            in_bounds("weight", wanted.weight, 0, WEIGHT_MAX)
            tenant = replace(tenant, weight=wanted.weight or 1)
        if tenant.projects != known.projects or tenant.regions != known.regions:
            check_topics(self._control.catalog, tenant.projects, tenant.regions)
        return tenant

    def _owners(self, wanted: Iterable[str]) -> tuple[str, ...]:
        owners = _distinct("owners", wanted, OWNERS_MAX)
        for owner in owners:
            kind = owner.partition(":")[0]
            if not is_deleted(owner) and not (is_member(owner) and kind in ("user", "serviceAccount", "group")):
                raise refused("owners", f"owners: {owner!r} is not user:, serviceAccount: or group: and an address")
        return tuple(dict.fromkeys(self._policies.meant(normal(owner)) for owner in owners))

    def _projects(self, name: str, wanted: Iterable[str]) -> tuple[str, ...]:
        projects = _distinct("projects", map(parse_project, wanted), TENANT_PROJECTS_MAX)
        for project in projects:
            other = self._tenants.of(project)
            if other is not None and other.name != name:
                raise FailedPrecondition(f"projects: {project} belongs to tenant {other.name}. Remove it there first.")
        return projects

    def _allowed(self, known: Tenant, wanted: Iterable[str]) -> tuple[str, ...]:
        regions, here = _distinct("allowed_regions", wanted, REGIONS_MAX), self._regions()
        if regions and regions != known.regions and not set(regions) & set(here):
            known_here = f"use a region of {', '.join(sorted(here))}" if here else "this server has no regions"
            raise FailedPrecondition(f"allowed_regions: no server is in {', '.join(regions)[:200]}; {known_here}.")
        return regions

    async def _put(self, tenant: Tenant, known: Tenant | None = None) -> admin.Tenant:
        if tenant != known:
            tenant = replace(tenant, updated_ns=self._control.clock.time_ns(), version=tenant.version + 1)
            await self._control.commit([CatalogChange.put(tenant.setting())])
        await topics_follow(self._control, self._tenants)
        return self._message(tenant)

    # -- shared ------------------------------------------------------------------------------------------------------

    def _found(self, name: str) -> Tenant:
        tenant = self._tenants.find(parse_tenant(name))
        if tenant is None:
            raise NotFound(f"tenants/{name}")
        return tenant

    def _message(self, tenant: Tenant) -> admin.Tenant:
        made = admin.Tenant(
            name=tenant.name,
            display_name=tenant.display_name,
            owners=map(self._policies.shown, tenant.owners),
            projects=tenant.projects,
            allowed_regions=tenant.regions,
            quota=None if tenant.quota == UNBOUNDED else _quota_message(tenant.quota),
            project_quotas={project: _quota_message(quota) for project, quota in tenant.project_quotas.items()},
            weight=tenant.weight,
            etag=tenant.etag,
        )
        made.create_time.FromNanoseconds(tenant.created_ns)
        made.update_time.FromNanoseconds(tenant.updated_ns)
        return made


def _quota(wanted: admin.TenantQuota) -> Quota:
    """Raises `InvalidArgument`."""
    made = Quota._make(getattr(wanted, kind) for kind in Quota._fields)
    for kind, bound in made._asdict().items():
        if not 0 <= bound < QUOTA_BOUND:
            raise refused(f"quota.{kind}", f"quota.{kind} must be 0, which is no bound, or more, and less than 1e15")
    return made


def _quota_message(quota: Quota) -> admin.TenantQuota:
    return admin.TenantQuota(**quota._asdict())


def _foreign(project: str, tenant: str) -> str:
    return f"{project} is not a project of tenant {tenant}."


def _distinct(field: str, values: Iterable[str], most: int) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(values))
    if len(found) > most:
        raise refused(field, f"{field} must not have more than {most} entries, not {len(found)}")
    if "" in found:
        raise refused(field, f"{field} must not have an empty entry")
    return found


def _check_etag(known: Tenant, etag: str) -> None:
    if etag and etag != known.etag:
        raise Aborted(f"Tenant {known.name} was changed since it was read. Read it again, then repeat the change.")
