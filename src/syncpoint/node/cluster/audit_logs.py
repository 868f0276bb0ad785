"""The audit logs of all proxies of a cluster, or of all workers: each keeps its own, and reads those of the others.

Place: beside `proxy_role`; the console shows them as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from syncpoint.access.access import Access
from syncpoint.console.audit_trail import AuditLogs, ReadAudit
from syncpoint.model.cluster import PROXY
from syncpoint.model.errors import FailedPrecondition
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.transport.calls import Methods
from syncpoint.wire import methods
from syncpoint.wire.messages import internal
from syncpoint.wire.serving import served

ANSWER_S: Final = 20.0


def audit_methods(access: Access | None) -> Methods:
    """What other processes may ask of the log of this one."""

    async def read(asked: internal.AuditRequest) -> internal.AuditResponse:
        if access is None or access.audit is None:
            raise FailedPrecondition("This process keeps no audit log.")
        return await access.audit.answer(asked)

    return served({methods.PROCESS.ReadAudit: read})


def audit_logs(context: ClusterContext, access: Access | None) -> AuditLogs | None:
    """Of this process and of all others that clients call; None where none is kept."""
    own = access.audit if access is not None else None
    if own is None:
        return None

    async def ask(address: str, asked: internal.AuditRequest) -> internal.AuditResponse:
        body = asked.SerializeToString()
        answer = await context.peers.call(address, methods.PROCESS.ReadAudit, body, timeout_s=ANSWER_S)
        return internal.AuditResponse.FromString(answer)

    def logs() -> Mapping[str, ReadAudit]:
        name = context.process.name
        members = [seen.value for seen in context.view.members.items.values()]
        others = {one.name: partial(ask, one.address) for one in members if PROXY in one.roles and one.name != name}
        return {name: own.answer, **others}

    return logs
