"""Dead letters by hand in a cluster: messages given up at the forwarder that lent them, and letters published again.

Place: called by `api.letter_admin` in a proxy.
"""

from __future__ import annotations

from collections.abc import Callable

from syncpoint.base.kernel.leases import list_ids
from syncpoint.base.model.errors import Code, SyncpointError, Unavailable
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.front.proxy.unary_relay import MODIFY_IDS_FIELD, UnaryRelay
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal

PUBLISH_S = 20.0


class ProxyLetters:
    """Move and publish dead letters in a cluster.

    `own_address`: the address of this process, which accepts publishes from other processes; None until it has joined.
    """

    def __init__(self, peers: PeerChannels, own_address: Callable[[], str | None], relay: UnaryRelay) -> None:
        self._peers, self._own_address, self._relay = peers, own_address, relay

    async def give_up(self, record: Subscription, request: internal.DeadLetterRequest) -> internal.DeadLetterResponse:
        """At each process that lent some of the messages. Raises `InvalidArgument` for what is no ack id."""
        path, answer = methods.DELIVERIES.DeadLetter, internal.DeadLetterResponse()
        found = await self._relay.asked_of_holders(record, path, request.SerializeToString(), MODIFY_IDS_FIELD)
        errors = [one for _, one in found if isinstance(one, SyncpointError)]
        if len(errors) == len(found) or any(one.code is Code.INVALID_ARGUMENT for one in errors):
            raise errors[0]
        for part, one in found:
            if isinstance(one, SyncpointError):
                for ack_id in list_ids(part, MODIFY_IDS_FIELD):
                    answer.failed.add(ack_id=ack_id.decode(), reason=one.message)
            else:
                answer.failed.extend(internal.DeadLetterResponse.FromString(one).failed)
        return answer

    async def publish(self, topic: str, request: bytes) -> bytes:
        """As other processes publish what came in before: with its data sealed as it is."""
        address = self._own_address()
        if address is None:
            raise Unavailable("This process has not joined its cluster yet. Try again.")
        return await self._peers.call(address, methods.PUBLISHER.Publish, request, timeout_s=PUBLISH_S)
