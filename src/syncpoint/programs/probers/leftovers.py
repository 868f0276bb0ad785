"""Leftovers of dead probers: subscriptions and topics whose run is long over.

Place: run by `prober_driver` now and then, at the first endpoint that answers.
Promise: only what names of `probe_names` say is over is deleted; standing topics stay, and so does what a living prober
uses.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.model.names import short_id
from syncpoint.programs.probers.probe_names import expired
from syncpoint.programs.probers.probe_run import ProbedEndpoint
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.transport.client import Channel

CALL_S: Final = 10.0

log = logging.getLogger(__name__)


async def remove(endpoint: ProbedEndpoint, project: str, now: float) -> int:
    """Delete what is over, and return how much that was. `now`: seconds since 1970. Raises `SyncpointError`."""
    channel = endpoint.target.open()
    try:
        subscriptions = await _listed(channel, endpoint, methods.SUBSCRIBER.ListSubscriptions, project, "subscriptions")
        topics = await _listed(channel, endpoint, methods.PUBLISHER.ListTopics, project, "topics")
        removed = 0
        for name in subscriptions:
            if expired(short_id(name), now):
                gone = pubsub.DeleteSubscriptionRequest(subscription=name)
                removed += await _deleted(channel, endpoint, methods.SUBSCRIBER.DeleteSubscription, gone)
        for name in topics:
            if expired(short_id(name), now):
                removed += await _deleted(
                    channel, endpoint, methods.PUBLISHER.DeleteTopic, pubsub.DeleteTopicRequest(topic=name)
                )
        if removed:
            log.info("deleted %d leftover topics and subscriptions of dead probers", removed)
        return removed
    finally:
        await channel.close()


async def _listed(channel: Channel, endpoint: ProbedEndpoint, method: Method, project: str, field: str) -> list[str]:
    names: list[str] = []
    token = ""
    while True:
        request = method.request(project=f"projects/{project}", page_size=1_000, page_token=token)
        answer = await _called(channel, endpoint, method, request)
        names += [one.name for one in getattr(answer, field)]
        token = answer.next_page_token
        if not token:
            return names


async def _deleted(channel: Channel, endpoint: ProbedEndpoint, method: Method, request: Any) -> int:
    try:
        await _called(channel, endpoint, method, request)
    except SyncpointError as error:
        if error.code is not Code.NOT_FOUND:
            raise
        return 0  # another prober was faster
    return 1


async def _called(channel: Channel, endpoint: ProbedEndpoint, method: Method, request: Any) -> Any:
    answer = await channel.unary(
        method, request.SerializeToString(), metadata=endpoint.target.metadata(), timeout=CALL_S
    )
    return method.response.FromString(answer)
