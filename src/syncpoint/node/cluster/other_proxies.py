"""What every proxy of a cluster, or every worker, knows for itself, asked of all of them: clients, audit logs.

Place: beside `proxy_role`; the console and the admin API show the answers as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from syncpoint.base.model.cluster import PROXY
from syncpoint.base.model.errors import FailedPrecondition, Unavailable
from syncpoint.catalog.access.access import Access
from syncpoint.cluster.control.cluster_queries import DEADLINE_S
from syncpoint.front.api.client_admin import ClientsOf, ListClients
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.watch.console.audit_trail import AuditLogs
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods

PAGE_S: Final = 5.0
VERIFY_S: Final = 30.0
_Ask = TypeVar("_Ask")


def clients_of_all(context: ClusterContext, own: ListClients) -> ClientsOf:
    """Return the clients of this and all other client-facing processes, registered or not."""

    async def ask(address: str, asked: internal.ClientsRequest) -> internal.ClientsResponse:
        body = asked.SerializeToString()
        answer = await context.peers.call(address, methods.PROCESS.ListClients, body, timeout_s=DEADLINE_S)
        return internal.ClientsResponse.FromString(answer)

    async def away(asked: internal.ClientsRequest) -> internal.ClientsResponse:
        raise Unavailable("The process is not registered: it is not running, or is cut off from the cluster.")

    return lambda: _by_name(context, own, lambda address: partial(ask, address), away)


def audit_logs(context: ClusterContext, access: Access | None) -> AuditLogs | None:
    """Return the audit logs of this and all other client-facing processes, running or not; None if none is kept."""
    own = access.audit if access is not None else None
    if own is None:
        return None

    async def ask(address: str, asked: internal.AuditRequest) -> internal.AuditResponse:
        body, patience_s = asked.SerializeToString(), VERIFY_S if asked.verify else PAGE_S
        answer = await context.peers.call(address, methods.PROCESS.ReadAudit, body, timeout_s=patience_s)
        return internal.AuditResponse.FromString(answer)

    async def away(asked: internal.AuditRequest) -> internal.AuditResponse:
        raise Unavailable("The process is not running; read its log on its machine.")

    return lambda: _by_name(context, own.answer, lambda address: partial(ask, address), away)


def audit_methods(access: Access | None) -> Methods:
    """What other processes may ask of the log of this one."""

    async def read(asked: internal.AuditRequest) -> internal.AuditResponse:
        if access is None or access.audit is None:
            raise FailedPrecondition("This process keeps no audit log.")
        return await access.audit.answer(asked)

    return served({methods.PROCESS.ReadAudit: read})


def _by_name(context: ClusterContext, own: _Ask, ask: Callable[[str], _Ask], away: _Ask) -> Mapping[str, _Ask]:
    named = {name: away for name, one in context.settings.processes.items() if PROXY in one.roles}
    running = {one.name: ask(one.address) for one in context.view.with_role(PROXY)}
    return {**named, **running, context.process.name: own}
