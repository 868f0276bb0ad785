"""Acknowledgements on a stream for messages that another forwarder lent than the one that serves the stream now.

Place: beside `pull_relay`, above `unary_relay`. The forwarder that serves a stream changes, and a client may
acknowledge on one stream what came on another or by a pull; only who lent a message knows its lease.
Promise: such ack ids and deadlines go where unary ones go, and the client of an exactly-once subscription receives
their confirmation. What reached nobody is unknown, to be tried again, and not failed. Ids whose lender is gone, and
what is no ack id, stay in the request: the forwarder that serves the stream judges them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from google.protobuf.message import DecodeError

from syncpoint.base.kernel import split
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.model.limits import MODIFY_DEADLINE_SECONDS_MAX
from syncpoint.broker.subscribe.lease_holder import lender_in
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.front.proxy.unary_relay import ACK_IDS_FIELD, ACKNOWLEDGE, MODIFY, MODIFY_IDS_FIELD, UnaryRelay
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.status import ack_outcomes

log = logging.getLogger(__name__)


class StrayAcks(NamedTuple):
    """Ack ids of other forwarders; `modified` by the seconds asked for."""

    acknowledged: list[str]
    modified: dict[int, list[str]]


def part(request: bytes, is_elsewhere: Callable[[int], bool]) -> tuple[bytes, StrayAcks | None]:
    """A StreamingPullRequest without the ack ids whose lender is elsewhere, and those; the request as it is if there
    are none, or if it is not legal: the forwarder that serves the stream reports what is wrong with it.
    """
    try:
        numbers = {*split.by_lender(request, ACK_IDS_FIELD)[1], *split.by_lender(request, MODIFY_IDS_FIELD)[1]}
        if not any(map(is_elsewhere, numbers)):
            return request, None
        asked = pubsub.StreamingPullRequest.FromString(request)
    except (Malformed, DecodeError):
        return request, None
    seconds, ids = list(asked.modify_deadline_seconds), list(asked.modify_deadline_ack_ids)
    if len(seconds) != len(ids) or not all(0 <= one <= MODIFY_DEADLINE_SECONDS_MAX for one in seconds):
        return request, None

    def strays(ack_id: str) -> bool:
        lender = lender_in(ack_id.encode())
        return lender is not None and is_elsewhere(lender)

    found = StrayAcks([one for one in asked.ack_ids if strays(one)], {})
    asked.ack_ids[:] = [one for one in asked.ack_ids if not strays(one)]
    del asked.modify_deadline_seconds[:], asked.modify_deadline_ack_ids[:]
    for ack_id, wanted in zip(ids, seconds, strict=True):
        if strays(ack_id):
            found.modified.setdefault(wanted, []).append(ack_id)
        else:
            asked.modify_deadline_seconds.append(wanted)
            asked.modify_deadline_ack_ids.append(ack_id)
    rest: bytes = asked.SerializeToString()
    return rest, found


async def bring(
    relay: UnaryRelay, record: Subscription, strays: StrayAcks, confirm: Callable[[pubsub.StreamingPullResponse], None]
) -> None:
    """Bring them to who lent the messages. Raises `InvalidArgument` for a text that is no ack id."""
    name = record.name
    if strays.acknowledged:
        request = pubsub.AcknowledgeRequest(subscription=name, ack_ids=strays.acknowledged)
        good, invalid, unknown = await _brought(
            relay, record, ACKNOWLEDGE, request.SerializeToString(), ACK_IDS_FIELD, strays.acknowledged
        )
        confirm(
            pubsub.StreamingPullResponse(
                acknowledge_confirmation=pubsub.StreamingPullResponse.AcknowledgeConfirmation(
                    ack_ids=good, invalid_ack_ids=invalid, temporary_failed_ack_ids=unknown
                )
            )
        )
    for seconds, ids in strays.modified.items():
        modify = pubsub.ModifyAckDeadlineRequest(subscription=name, ack_ids=ids, ack_deadline_seconds=seconds)
        good, invalid, unknown = await _brought(
            relay, record, MODIFY, modify.SerializeToString(), MODIFY_IDS_FIELD, ids
        )
        confirm(
            pubsub.StreamingPullResponse(
                modify_ack_deadline_confirmation=pubsub.StreamingPullResponse.ModifyAckDeadlineConfirmation(
                    ack_ids=good, invalid_ack_ids=invalid, temporary_failed_ack_ids=unknown
                )
            )
        )


async def _brought(
    relay: UnaryRelay, record: Subscription, path: str, request: bytes, field: int, ids: list[str]
) -> tuple[list[str], list[str], list[str]]:
    """Ids that succeeded, that failed for good, and that are unknown."""
    try:
        await relay.to_holders(record, path, request, field)
    except SyncpointError as error:
        outcomes = ack_outcomes(error)
        if not outcomes:
            if error.code is Code.INVALID_ARGUMENT:
                raise
            log.info("acknowledgements of %s did not reach who lent the messages: %s", record.name, error)
            return [], [], ids
        unknown = [one for one in ids if outcomes.get(one, "").startswith("TRANSIENT_")]
        invalid = [one for one in ids if one in outcomes and one not in unknown]
        return [one for one in ids if one not in outcomes], invalid, unknown
    return ids, [], []
