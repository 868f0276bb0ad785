"""The clients of all proxies of a cluster, or of all workers: each knows its own, and asks the others for theirs.

Place: beside `proxy_role`, under `api.client_admin`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from syncpoint.base.model.cluster import PROXY
from syncpoint.base.model.errors import Unavailable
from syncpoint.cluster.control.cluster_queries import DEADLINE_S
from syncpoint.front.api.client_admin import ClientsOf, ListClients
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal


def clients_of_all(context: ClusterContext, own: ListClients) -> ClientsOf:
    """Return the clients of this and all other client-facing processes, registered or not."""

    async def ask(address: str, asked: internal.ClientsRequest) -> internal.ClientsResponse:
        answer = await context.peers.call(
            address, methods.PROCESS.ListClients, asked.SerializeToString(), timeout_s=DEADLINE_S
        )
        return internal.ClientsResponse.FromString(answer)

    async def away(asked: internal.ClientsRequest) -> internal.ClientsResponse:
        raise Unavailable("It is not registered: it does not run, or is cut off.")

    def clients() -> Mapping[str, ListClients]:
        named = {name: away for name, one in context.settings.processes.items() if PROXY in one.roles}
        running = {one.name: partial(ask, one.address) for one in context.view.with_role(PROXY)}
        return {**named, **running, context.process.name: own}

    return clients
