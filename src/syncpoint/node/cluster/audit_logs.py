"""The audit logs of all proxies of a cluster, or of all workers: each keeps its own, and reads those of the others.

Place: beside `proxy_role`; the console shows them as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from syncpoint.base.model.cluster import PROXY
from syncpoint.base.model.errors import FailedPrecondition, Unavailable
from syncpoint.catalog.access.access import Access
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.watch.console.audit_trail import AuditLogs, ReadAudit
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods

PAGE_S: Final = 5.0
VERIFY_S: Final = 30.0


def audit_methods(access: Access | None) -> Methods:
    """What other processes may ask of the log of this one."""

    async def read(asked: internal.AuditRequest) -> internal.AuditResponse:
        if access is None or access.audit is None:
            raise FailedPrecondition("This process keeps no audit log.")
        return await access.audit.answer(asked)

    return served({methods.PROCESS.ReadAudit: read})


def audit_logs(context: ClusterContext, access: Access | None) -> AuditLogs | None:
    """Return the audit logs of this and all other client-facing processes, running or not; None if none is kept."""
    own = access.audit if access is not None else None
    if own is None:
        return None

    async def ask(address: str, asked: internal.AuditRequest) -> internal.AuditResponse:
        body = asked.SerializeToString()
        patience_s = VERIFY_S if asked.verify else PAGE_S
        answer = await context.peers.call(address, methods.PROCESS.ReadAudit, body, timeout_s=patience_s)
        return internal.AuditResponse.FromString(answer)

    async def away(asked: internal.AuditRequest) -> internal.AuditResponse:
        raise Unavailable("The process is not running; read its log on its machine.")

    def logs() -> Mapping[str, ReadAudit]:
        members = [seen.value for seen in context.view.members.items.values()]
        named = {name: away for name, one in context.settings.processes.items() if PROXY in one.roles}
        running = {one.name: partial(ask, one.address) for one in members if PROXY in one.roles}
        return {**named, **running, context.process.name: own.answer}

    return logs
