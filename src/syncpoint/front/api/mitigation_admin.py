"""Mitigation and headroom, for operators: what was drained by itself and why; what losing a zone would mean.

Place: a part of syncpoint.admin.v1 in clusters, mounted by `cluster_admin`. What is shown of mitigation is what the
router that leads has written into the metadata.
"""

from __future__ import annotations

import json

from syncpoint.catalog.metadata.contract import Delete, Put
from syncpoint.catalog.metadata.layout import MITIGATION_PAUSED, MITIGATION_STATUS
from syncpoint.catalog.metadata.store_client import answered
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.headroom import BUSY_MAX, headroom
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.options_admin import Handlers, admin_table
from syncpoint.wire.protobuf.messages import admin
from syncpoint.wire.transport.calls import Methods


class MitigationAdmin:
    """These methods on messages; `methods()` serves them on bytes."""

    def __init__(self, control: ControlPlane, view: ClusterView) -> None:
        self._control, self._view = control, view

    def methods(self) -> Methods:
        """The method table."""
        table: Handlers = {
            "GetMitigation": self.get_mitigation,
            "PauseMitigation": self.pause_mitigation,
            "ResumeMitigation": self.resume_mitigation,
            "GetHeadroom": self.get_headroom,
        }
        return admin_table(self._control, table)

    async def get_mitigation(self, request: admin.GetMitigationRequest) -> admin.Mitigation:
        """GetMitigation."""
        found = await answered(self._view.store.get(MITIGATION_STATUS))
        paused = await answered(self._view.store.get(MITIGATION_PAUSED)) is not None
        status = {} if found is None else json.loads(found.value)
        answer = admin.Mitigation(mode=status.get("mode", "off"), paused=paused)
        for name, verdict in sorted(status.get("health", {}).items()):
            answer.processes.add(name=name, verdict=verdict)
        for one in reversed(status.get("records", [])):
            record = answer.records.add(
                action=one["action"], process=one["process"], reason=one["reason"], outcome=one["outcome"]
            )
            record.time.FromNanoseconds(one["time_ns"])
        return answer

    async def pause_mitigation(self, request: admin.PauseMitigationRequest) -> admin.Mitigation:
        """PauseMitigation: from the next look on nothing is changed. Doing it again changes nothing."""
        await answered(self._view.store.txn([], [Put(MITIGATION_PAUSED, request.comment.encode())]))
        return await self.get_mitigation(admin.GetMitigationRequest())

    async def resume_mitigation(self, request: admin.ResumeMitigationRequest) -> admin.Mitigation:
        """ResumeMitigation. Doing it again changes nothing."""
        await answered(self._view.store.txn([], [Delete(MITIGATION_PAUSED)]))
        return await self.get_mitigation(admin.GetMitigationRequest())

    async def get_headroom(self, request: admin.GetHeadroomRequest) -> admin.Headroom:
        """GetHeadroom."""
        rows = [
            admin.RoleHeadroom(
                domain=one.domain,
                role=one.role,
                members=one.members,
                left=one.left,
                busy=one.busy,
                busy_after=one.busy_after,
                short=one.short,
                unknown=one.unknown,
            )
            for one in headroom(self._view)
        ]
        return admin.Headroom(rows=rows, busy_max=BUSY_MAX)
