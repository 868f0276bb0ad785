"""Drills, of syncpoint.admin.v1: what the program that runs one reports, and word for it to stop.

Place: beside `project_admin`, over the catalog, in which drills are settings; `programs.disaster` runs them.
Promise: of a project one drill runs at a time, until the time by which it has rolled back. What is kept of a drill that
ended is not changed any more.
"""

from __future__ import annotations

import re
from typing import Final

from syncpoint.base.model.errors import FailedPrecondition, NotFound
from syncpoint.base.model.names import parse_project
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Setting
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.options_admin import admin_table
from syncpoint.front.api.validate import refused
from syncpoint.wire.protobuf.messages import admin
from syncpoint.wire.transport.calls import Methods

PREFIX: Final = "drill:"
KEPT_MAX: Final = 100
"""Drills of one project; the oldest are forgotten."""
TEXT_MAX: Final = 1_000
LIMIT_S: Final = 24 * 3600
_ID = re.compile(r"[a-z][a-z0-9-]{1,61}[a-z0-9]", re.ASCII)


class DrillAdmin:
    """The methods on messages; `methods()` serves them on bytes."""

    def __init__(self, control: ControlPlane) -> None:
        self._control, self._catalog = control, control.catalog

    def methods(self) -> Methods:
        """The method table."""
        return admin_table(
            self._control,
            {
                "RecordDrill": self.record,
                "GetDrill": self.get,
                "ListDrills": self.list,
                "AbortDrill": self.abort,
            },
        )

    async def record(self, request: admin.RecordDrillRequest) -> admin.Drill:
        """RecordDrill. The answer has what somebody else has asked for since."""
        wanted, now_ns = request.drill, self._control.clock.time_ns()
        project = parse_project(wanted.project)
        self._check(wanted, now_ns)
        known = drills_of(self._catalog, project)
        before = next((one for one in known if one.drill == wanted.drill), None)
        kept = admin.Drill()
        kept.CopyFrom(wanted)
        if before is not None:
            if before.state != admin.Drill.RUNNING:
                raise FailedPrecondition(f"The drill {wanted.drill} has ended. Give another one another id.")
            if wanted.state == admin.Drill.RUNNING and wanted.deadline != before.deadline:  # no retry
                raise FailedPrecondition(f"The drill {wanted.drill} is running already. Give this one another id.")
            kept.abort = before.abort
            kept.start_time.CopyFrom(before.start_time)
        else:
            for one in known:
                if one.state == admin.Drill.RUNNING and one.deadline.ToNanoseconds() > now_ns:
                    raise FailedPrecondition(
                        f"The drill {one.drill} of {project} runs until {one.deadline.ToJsonString()} at most. Wait for"
                        " it, or stop it with `syncpoint drill abort`."
                    )
            kept.abort = False
            kept.start_time.FromNanoseconds(now_ns)
        kept.DiscardUnknownFields()
        kept.ClearField("end_time")
        if kept.state != admin.Drill.RUNNING:
            kept.end_time.FromNanoseconds(now_ns)
        gone = [] if before is not None else known[KEPT_MAX - 1 :]
        changes = [CatalogChange.delete(Setting(_key(one))) for one in gone]
        await self._control.commit([*changes, CatalogChange.put(Setting(_key(kept), kept.SerializeToString()))])
        return kept

    async def get(self, request: admin.GetDrillRequest) -> admin.Drill:
        """GetDrill."""
        return self._found(request.project, request.drill)

    async def list(self, request: admin.ListDrillsRequest) -> admin.ListDrillsResponse:
        """ListDrills."""
        return admin.ListDrillsResponse(drills=drills_of(self._catalog, parse_project(request.project)))

    async def abort(self, request: admin.AbortDrillRequest) -> admin.Drill:
        """AbortDrill. Its program rolls back within a second, and reports that."""
        found = self._found(request.project, request.drill)
        if found.state != admin.Drill.RUNNING:
            raise FailedPrecondition(f"The drill {found.drill} has ended already.")
        found.abort = True
        await self._control.commit([CatalogChange.put(Setting(_key(found), found.SerializeToString()))])
        return found

    def _found(self, project: str, drill: str) -> admin.Drill:
        stored = self._catalog.setting(f"{PREFIX}{parse_project(project)}/{drill}")
        if stored is None:
            raise NotFound(drill, f"Drill not found (resource={project}/drills/{drill}).")
        return admin.Drill.FromString(stored)

    @staticmethod
    def _check(wanted: admin.Drill, now_ns: int) -> None:
        if _ID.fullmatch(wanted.drill) is None:
            raise refused("drill.drill", "drill must have 3 to 63 lowercase letters, digits and hyphens")
        for field in ("kind", "target", "reason"):
            if len(getattr(wanted, field)) > TEXT_MAX:
                raise refused(f"drill.{field}", f"{field} must not have more than {TEXT_MAX} characters")
        if wanted.state not in (admin.Drill.RUNNING, admin.Drill.DONE, admin.Drill.ABORTED):
            raise refused("drill.state", "state must be RUNNING, DONE or ABORTED")
        if wanted.deadline.ToNanoseconds() > now_ns + LIMIT_S * 10**9:
            raise refused("drill.deadline", "deadline must be within a day")


def drills_of(catalog: Catalog, project: str) -> list[admin.Drill]:
    """The drills of projects/P that are kept, the latest first."""
    keys = catalog.settings_named(f"{PREFIX}{project}/")
    found = [admin.Drill.FromString(catalog.setting(key) or b"") for key in keys]
    return sorted(found, key=lambda one: one.start_time.ToNanoseconds(), reverse=True)


def _key(one: admin.Drill) -> str:
    return f"{PREFIX}{one.project}/{one.drill}"
