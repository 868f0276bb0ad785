"""Who is connected to a subscription, and who publishes to a topic: gathered from all processes that clients call.

Place: a part of syncpoint.admin.v1, mounted by `node` beside the others; each process knows its own clients, see
`connected_clients`, and subscribe forwarders what is outstanding with them.
Promise: who does not answer is named, so that nobody takes "not known" for "nobody". Addresses and principals are shown
only to who may see the server (`PERMISSION`), everything else to who may see the topic or the subscription.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple

from syncpoint.base.model.errors import SyncpointError
from syncpoint.catalog.access.permission_needs import SERVER
from syncpoint.front.api.iam import Callers
from syncpoint.front.api.options_admin import OptionsAdmin
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, internal
from syncpoint.wire.protobuf.serving import parsed
from syncpoint.wire.transport.calls import Call, Methods
from syncpoint.wire.transport.tasks import unary_fair

PERMISSION: Final = "syncpoint.server.get"
SHOWN_MAX: Final = 1000

ListClients = Callable[[internal.ClientsRequest], Awaitable[internal.ClientsResponse]]
ClientsOf = Callable[[], Mapping[str, ListClients]]
"""Of each process that clients call, by its name, how its clients are asked for."""
HeldStreams = Callable[[int], Awaitable[tuple[Iterable[internal.HeldStream], list[str]]]]
"""What is outstanding on the streams of a subscription, and who did not report."""


class _Gathered(NamedTuple):
    """The clients of all processes; `unknown`: who did not answer."""

    clients: list[internal.SeenClient]
    more: int
    unknown: list[str]


class ClientAdmin:
    """The methods on messages; `methods()` serves them on bytes. `callers` None: callers are not identified."""

    def __init__(
        self, options: OptionsAdmin, clients: ClientsOf, held: HeldStreams, callers: Callers | None = None
    ) -> None:
        self._options, self._clients, self._held, self._callers = options, clients, held, callers

    def methods(self) -> Methods:
        """The method table."""

        async def subscribers(call: Call, request: bytes) -> bytes:
            found = await self.list_subscription_clients(parsed(admin.ListSubscriptionClientsRequest, request))
            found.addresses_hidden = self._hide(call, found.clients)
            return found.SerializeToString()

        async def publishers(call: Call, request: bytes) -> bytes:
            found = await self.list_topic_publishers(parsed(admin.ListTopicPublishersRequest, request))
            found.addresses_hidden = self._hide(call, found.publishers)
            return found.SerializeToString()

        return {
            methods.ADMIN.ListSubscriptionClients.encode(): unary_fair(subscribers),
            methods.ADMIN.ListTopicPublishers.encode(): unary_fair(publishers),
        }

    async def list_subscription_clients(
        self, request: admin.ListSubscriptionClientsRequest
    ) -> admin.ListSubscriptionClientsResponse:
        """ListSubscriptionClients, with addresses. Raises `NotFound`."""
        record = self._options.subscription(request.subscription)
        found, (held, silent) = await asyncio.gather(
            self._gathered(internal.ClientsRequest(subscription=record.name)), self._held(record.incarnation)
        )
        outstanding = {one.stream: one for one in held}
        for seen in found.clients:
            if seen.stream and (out := outstanding.get(seen.stream)) is not None:
                seen.client.outstanding_messages, seen.client.outstanding_bytes = out.messages, out.bytes
        streams = [one.client for one in found.clients if one.client.kind == admin.ConnectedClient.STREAM]
        pulls = [one.client for one in found.clients if one.client.kind != admin.ConnectedClient.STREAM]
        streams.sort(key=lambda one: one.connect_time.ToNanoseconds())
        pulls.sort(key=lambda one: one.last_call_time.ToNanoseconds(), reverse=True)
        clients = [*streams, *pulls]
        return admin.ListSubscriptionClientsResponse(
            clients=clients[:SHOWN_MAX],
            more=found.more + max(0, len(clients) - SHOWN_MAX),
            unknown=[*found.unknown, *silent],
        )

    async def list_topic_publishers(
        self, request: admin.ListTopicPublishersRequest
    ) -> admin.ListTopicPublishersResponse:
        """ListTopicPublishers, with addresses. Raises `NotFound`."""
        record = self._options.topic(request.topic)
        found = await self._gathered(internal.ClientsRequest(topic=record.name))
        clients = [one.client for one in found.clients]
        clients.sort(key=lambda one: one.last_call_time.ToNanoseconds(), reverse=True)
        return admin.ListTopicPublishersResponse(
            publishers=clients[:SHOWN_MAX],
            more=found.more + max(0, len(clients) - SHOWN_MAX),
            unknown=found.unknown,
        )

    async def _gathered(self, asked: internal.ClientsRequest) -> _Gathered:
        asked.clients_max = SHOWN_MAX

        async def one(name: str, ask: ListClients) -> internal.ClientsResponse | str:
            try:
                return await ask(asked)
            except (SyncpointError, OSError) as error:
                return f"{name} does not report its clients ({error})"

        answers = await asyncio.gather(*(one(name, ask) for name, ask in sorted(self._clients().items())))
        known = [answer for answer in answers if not isinstance(answer, str)]
        return _Gathered(
            [client for answer in known for client in answer.clients],
            sum(answer.more for answer in known),
            [answer for answer in answers if isinstance(answer, str)],
        )

    def _hide(self, call: Call, clients: Iterable[admin.ConnectedClient]) -> bool:
        """Whether the caller may not see who they are; then that is left out."""
        if self._callers is None or self._callers.holds(call, PERMISSION, SERVER):
            return False
        for one in clients:
            one.ClearField("peer")
            one.ClearField("principal")
        return True
