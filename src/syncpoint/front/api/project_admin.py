"""Projects, of syncpoint.admin.v1: which class of disaster recovery is declared, and what is known of how it is kept.

Place: beside `tenant_admin`, over the catalog, in which classes and outcomes are settings.
Promise: a class is declared once every topic concerned is as it demands; until then the call fails and is repeated.
A project's class, homes and outcomes are shown to its own readers and to the owners of its tenant alone.
"""

from __future__ import annotations

import asyncio
from typing import Final

from syncpoint.base.model.errors import Aborted, NotFound
from syncpoint.base.model.names import parse_project, project_of
from syncpoint.catalog.access.disaster_classes import RECONCILED, TERMS, DeclaredClass, declared
from syncpoint.catalog.access.tenant_book import RESOURCE, SERVER, TenantBook, parse_tenant
from syncpoint.catalog.metadata import home_sites
from syncpoint.catalog.metadata.records import CatalogChange, Setting
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api import pages
from syncpoint.front.api.drill_admin import drills_of
from syncpoint.front.api.options_admin import admin_table
from syncpoint.front.api.topic_following import topics_follow
from syncpoint.front.api.validate import refused
from syncpoint.wire.protobuf.messages import admin
from syncpoint.wire.transport.calls import Methods

FINDINGS_MAX: Final = 100
STEP: Final = 1_000
"""Topics of a project in one turn of the loop."""
HOMES_MAX: Final = 1_000


class ProjectAdmin:
    """The methods on messages; `methods()` serves them on bytes."""

    def __init__(self, control: ControlPlane) -> None:
        self._control, self._catalog = control, control.catalog
        self._tenants = TenantBook(control.catalog)

    def methods(self) -> Methods:
        """The method table."""
        return admin_table(
            self._control,
            {
                "ListDisasterClasses": self.list_classes,
                "SetDisasterClass": self.set_class,
                "ListClassedProjects": self.list_classed,
                "GetProject": self.get,
                "ReportReconciliation": self.report,
            },
        )

    async def list_classes(self, request: admin.ListDisasterClassesRequest) -> admin.ListDisasterClassesResponse:
        """ListDisasterClasses."""
        return admin.ListDisasterClassesResponse(classes=[_terms(name) for name in TERMS])

    async def set_class(self, request: admin.SetDisasterClassRequest) -> admin.DisasterClass:
        """SetDisasterClass. An empty class takes back what was declared there."""
        resource = self._resource(request)
        wanted = request.disaster_class
        known = self._tenants.classes.get(resource)
        holding = self._tenants.class_of(resource) if resource.startswith("projects/") else known
        if wanted.HasField("since") and (holding is None or wanted.since.ToNanoseconds() != holding.since_ns):
            raise Aborted(f"{resource} was declared anew in the meantime; read its class again.")
        if wanted.name or wanted.writer:
            one = declared(wanted.name, wanted.writer)
            if known is None or known[:2] != one[:2]:
                one = one._replace(since_ns=self._control.clock.time_ns())
                await self._control.commit([CatalogChange.put(one.setting(resource))])
        elif known is not None:
            await self._control.commit([CatalogChange.delete(known.setting(resource))])
        await topics_follow(self._control, self._tenants)
        return _message(self._tenants.classes.get(resource))

    async def list_classed(self, request: admin.ListClassedProjectsRequest) -> admin.ListClassedProjectsResponse:
        """ListClassedProjects."""
        page = pages.asked(request.page_size, request.page_token, "classed projects")
        names = sorted(one for one in self._tenants.classed_projects() if page.after is None or one > page.after)
        found = [
            admin.ClassedProject(project=one, disaster_class=_message(self._tenants.class_of(one)))
            for one in names[: page.size + 1]
        ]
        shown, token = pages.cut(
            found, page, "classed projects", lambda one: one.project, admin.ClassedProject.ByteSize
        )
        return admin.ListClassedProjectsResponse(projects=shown, next_page_token=token)

    async def get(self, request: admin.GetProjectRequest) -> admin.Project:
        """GetProject."""
        project = parse_project(request.project)
        self._check_tenant(project, request.tenant)
        tenant, one = self._tenants.of(project), self._tenants.class_of(project)
        answer = admin.Project(
            project=project,
            tenant="" if tenant is None else tenant.name,
            disaster_class=_message(one),
            terms=_terms(one.name),
        )
        kept: set[str] = set()
        some = self._catalog.topics_in(project, None, STEP)
        while some:
            recorded = [one.options.records_topic for one in some if one.options.records_topic]
            answer.topics += len(some)
            answer.recorded_topics += len(recorded)
            kept.update(recorded)
            await asyncio.sleep(0)
            some = self._catalog.topics_in(project, some[-1].name, STEP)
        answer.records_topics.extend(sorted(kept))
        self._add_homes(answer)
        if (stored := self._catalog.setting(RECONCILED + project)) is not None:
            answer.last_reconciliation.MergeFromString(stored)
        if drills := drills_of(self._catalog, project):
            answer.last_drill.CopyFrom(drills[0])
        answer.lacking.extend(_lacking(answer, one))
        return answer

    async def report(self, request: admin.ReportReconciliationRequest) -> admin.Reconciliation:
        """ReportReconciliation."""
        project, kept = parse_project(request.project), admin.Reconciliation()
        kept.CopyFrom(request.reconciliation)
        if kept.findings_total < len(kept.findings):
            raise refused("reconciliation.findings_total", "findings_total must not be less than what is named")
        del kept.findings[FINDINGS_MAX:], kept.unknown[FINDINGS_MAX:]
        kept.time.FromNanoseconds(self._control.clock.time_ns())
        await self._control.commit([CatalogChange.put(Setting(RECONCILED + project, kept.SerializeToString()))])
        return kept

    def _resource(self, request: admin.SetDisasterClassRequest) -> str:
        if request.tenant or request.resource.startswith("projects/"):
            project = parse_project(request.resource)
            self._check_tenant(project, request.tenant)
            return project
        if request.resource.startswith(RESOURCE):
            name = parse_tenant(request.resource.removeprefix(RESOURCE))
            if self._tenants.find(name) is None:
                raise NotFound(request.resource)
        elif request.resource != SERVER:
            raise refused(
                "resource", f"resource: {request.resource[:100]!r} is not {SERVER}, tenants/NAME or projects/P"
            )
        return request.resource

    def _check_tenant(self, project: str, name: str) -> None:
        tenant = self._tenants.of(project)
        if name and (tenant is None or tenant.name != name):
            raise NotFound(project, f"{project} is not a project of tenant {name}.")

    def _add_homes(self, answer: admin.Project) -> None:
        for key in self._catalog.settings_named(home_sites.PREFIX):
            record = self._catalog.subscription_by_incarnation(int(key.removeprefix(home_sites.PREFIX)))
            if record is None or project_of(record.name) != answer.project or len(answer.homes) >= HOMES_MAX:
                continue
            if (home := home_sites.home_of(self._catalog, record.incarnation)) is not None:
                answer.homes.add(subscription=record.name, site=home.site, home=home.home, epoch=home.epoch)


def _message(one: DeclaredClass | None) -> admin.DisasterClass:
    if one is None:
        return admin.DisasterClass()
    made = admin.DisasterClass(name=one.name, writer=one.writer, source=one.source)
    if one.since_ns:
        made.since.FromNanoseconds(one.since_ns)
    return made


def _terms(name: str) -> admin.DisasterClassTerms:
    return admin.DisasterClassTerms(**TERMS[name]._asdict())


def _lacking(answer: admin.Project, one: DeclaredClass) -> list[str]:
    """What this site alone can tell is not as the class demands it."""
    if not one.records:
        return []
    found = []
    if answer.last_reconciliation.findings_total:
        found.append(f"The last reconciliation found {answer.last_reconciliation.findings_total} messages amiss.")
    elif not answer.HasField("last_reconciliation"):
        found.append("It was never reconciled: start `syncpoint federation run`, or `projects reconcile --every 24h`.")
    if one.writer == "recovering":
        found.append("Both publishes and links are admitted: declare --writer here once the other site's tail is here.")
    return found
