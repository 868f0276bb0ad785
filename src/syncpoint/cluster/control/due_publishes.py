"""Due publishes: what was scheduled in one chain goes to the chain that takes its ordering key now.

Place: called by `publish.keyed_firing` of every chain of a process of a cluster.
Promise: one try to the owner of now, in the epoch of now; who calls tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from syncpoint.base.model.errors import Unavailable
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.publish.intake.envelope import PublishBatch, write_publish
from syncpoint.broker.router.assignment import TopicAssignment
from syncpoint.broker.router.rendezvous import pick_chain
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.wire.protobuf import methods

TIMEOUT_S = 5.0
FIRST_BATCH: Final = 1 << 62
"""Where the numbers of these batches begin: a proxy in the same process has the same sender, and counts from 1 on."""


class DuePublishes:
    """Publish due messages at the chain of their key.

    `assignments(topic)`: the chains that share the topic's keys; `sender`: identifies this process.
    """

    def __init__(
        self,
        view: ClusterView,
        peers: PeerChannels,
        assignments: Callable[[int], TopicAssignment | None],
        sender: int,
    ) -> None:
        self._view, self._peers, self._assignments, self._sender = view, peers, assignments, sender
        self._batches = FIRST_BATCH

    async def publish(self, topic: int, key: bytes, request: bytes) -> bytes:
        assignment = self._assignments(topic)
        if assignment is None or not assignment.chains:
            raise Unavailable(f"No chain takes the ordering keys of topic {topic} now.")
        chain = pick_chain(topic, key, assignment.chains)
        owner = self._view.owner(chain)
        if owner is None:
            raise Unavailable(f"Chain {chain}, which takes the key, has no owner now.")
        self._batches += 1
        batch = PublishBatch(
            chain, assignment.epoch, True, self._sender, self._batches, False, request, topic,
            origin=PublishOrigin.FIRING,
        )  # fmt: skip
        message = write_publish(batch)
        return await self._peers.call(owner.address, methods.CHAINS.Publish, message, timeout_s=TIMEOUT_S)
