"""What a process of a cluster publishes on behalf of the service: dead letters, delivery records.

Place: between the roles and the proxies, which take it as they take anybody's publish.
Promise: it is tried with up to three proxies, those of the own region where there are any; what is answered then is
what is known.
"""

from __future__ import annotations

from typing import Protocol

from syncpoint.base.model.cluster import PROXY
from syncpoint.base.model.errors import Code, SyncpointError, Unavailable
from syncpoint.broker.router.rendezvous import order
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.node.cluster.settings import ProcessSettings
from syncpoint.wire.protobuf import methods

PUBLISH_S = 10.0


class PublishingProcess(Protocol):
    """Who publishes."""

    process: ProcessSettings
    view: ClusterView
    peers: PeerChannels

    def address_of(self, name: str) -> str | None: ...


async def publish_by_proxy(context: PublishingProcess, topic: str, request: bytes) -> bytes:
    """Have a PublishRequest for `topic` published. Raises `SyncpointError`."""
    region = context.process.region
    proxies = context.view.with_role(PROXY)
    names = order(topic.encode(), [one.name for one in proxies if one.region == region])
    error: SyncpointError = Unavailable("no proxy is there to publish by")
    for name in (names or [one.name for one in proxies])[:3]:
        address = context.address_of(name)
        if address is None:
            continue
        try:
            return await context.peers.call(address, methods.PUBLISHER.Publish, request, timeout_s=PUBLISH_S)
        except SyncpointError as failed:
            error = failed
            if error.code is not Code.UNAVAILABLE:
                break
    raise error
