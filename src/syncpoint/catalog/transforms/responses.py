"""Responses with messages on their way to a subscriber, where the subscription has transforms.

Place: the last station before the transport, after sealed data is opened. The subscriber gets what is left of a
response; the caller acknowledges what was dropped and gives back what failed.
Promise: a message that cannot be transformed is as one that its subscriber refused: it is delivered again, after the
back-off of the subscription, and goes to its dead letter topic in the end. One that was not tried, because of those
that came with it or because nothing can be run now, is given back as if it had never been lent. No response becomes
larger than `RESPONSE_BYTES_MAX` by transforms, unless by a single message: clients take 20 MB, and end their
subscriber for good when more comes. A stream is sent several instead, an answer to a pull is what fits, and the others
are given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import NamedTuple

from syncpoint.base.model.limits import RESPONSE_BYTES_MAX
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.catalog.transforms.errors import NotTried, SandboxUnavailable, TransformError
from syncpoint.catalog.transforms.message_transforms import Transformer
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub

log = logging.getLogger(__name__)

ACK_IDS_FIELD, MODIFY_IDS_FIELD = 2, 4  # of the requests by which a subscriber answers
PAUSE_S = 1.0  # where nothing can be run, or what fails is none of a message: what is given back comes again at once

Response = pubsub.PullResponse | pubsub.StreamingPullResponse


class TransformedResponse(NamedTuple):
    """`responses`: what is left, at least one. `dropped`, `failed`, `untried`: ack ids. Ids of messages whose key
    waits for one that failed are in none of them: the forwarder that lent them takes them back with that one.
    """

    responses: tuple[bytes, ...]
    dropped: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()
    messages: int = 0  # as many as there were before

    def turn(self) -> bytes:
        """What to report about the messages that are not in it, to a forwarder that waits for it before lending
        more."""
        turn = internal.TurnRequest(done=True, dropped=self.dropped, failed=self.failed, untried=self.untried)
        encoded: bytes = turn.SerializeToString()
        return encoded

    def requests(self, subscription: str) -> Iterator[tuple[str, int, bytes]]:
        """Yield follow-up requests for dropped and failed messages, as (method, field of the ack ids, request)."""
        if self.dropped:
            request = pubsub.AcknowledgeRequest(subscription=subscription, ack_ids=self.dropped)
            yield methods.SUBSCRIBER.Acknowledge, ACK_IDS_FIELD, request.SerializeToString()
        if self.failed:
            refusal = pubsub.ModifyAckDeadlineRequest(subscription=subscription, ack_ids=self.failed)
            yield methods.SUBSCRIBER.ModifyAckDeadline, MODIFY_IDS_FIELD, refusal.SerializeToString()
        if self.untried:
            given_back = internal.TakeBackRequest(subscription=subscription, ack_ids=self.untried)
            yield methods.DELIVERIES.TakeBack, MODIFY_IDS_FIELD, given_back.SerializeToString()


async def transformed_response(
    transformer: Transformer, record: Subscription, kind: type[Response], response: bytes
) -> TransformedResponse:
    """A serialised response of this kind, after the transforms of the subscription."""
    parsed = kind.FromString(response)
    received = list(parsed.received_messages)
    if not received:
        return TransformedResponse((response,))
    try:
        outcomes = await transformer.transformed(record, [one.message for one in received])
    except SandboxUnavailable as error:
        log.warning("messages of %s cannot be transformed now: %s", record.name, error)
        outcomes = [NotTried(str(error))] * len(received)
        await asyncio.sleep(PAUSE_S)
    except Exception:  # unexpected, and no reason to end the stream they were lent to, again and again
        log.exception("messages of %s cannot be transformed", record.name)
        outcomes = [TransformError("internal error")] * len(received)
        await asyncio.sleep(PAUSE_S)
    dropped: list[str] = []
    failed: list[str] = []
    untried: list[str] = []
    waiting: set[str] = set()  # keys of which a message comes again: later ones must not overtake it
    parts = _ResponseParts(kind)
    del parsed.received_messages[:]
    for one, outcome in zip(received, outcomes, strict=True):
        key = one.message.ordering_key
        if key in waiting:
            continue
        if isinstance(outcome, TransformError):
            log.debug("a message of %s cannot be transformed: %s", record.name, outcome)
            (untried if isinstance(outcome, NotTried) else failed).append(one.ack_id)
            if record.ordered and key:
                waiting.add(key)
        elif outcome is None:
            dropped.append(one.ack_id)
        else:
            one.message.CopyFrom(outcome)
            if kind is pubsub.PullResponse and not parts.fits(one):
                untried.append(one.ack_id)
                if record.ordered and key:
                    waiting.add(key)
            else:
                parts.add(one)
    return TransformedResponse(
        parts.responses(parsed.SerializeToString()), tuple(dropped), tuple(failed), tuple(untried), len(received)
    )


def held_back(kind: type[Response], response: bytes) -> TransformedResponse:
    """A response whose messages are all given back as if they had never been lent."""
    parsed = kind.FromString(response)
    ids = tuple(one.ack_id for one in parsed.received_messages)
    del parsed.received_messages[:]
    return TransformedResponse((parsed.SerializeToString(),), untried=ids, messages=len(ids))


class _ResponseParts:
    """Messages, in as many responses as they need."""

    def __init__(self, kind: type[Response]) -> None:
        self._kind, self._size = kind, 0
        self._parts: list[list[pubsub.ReceivedMessage]] = [[]]

    def fits(self, message: pubsub.ReceivedMessage) -> bool:
        """Whether it may be in one response with those that came before."""
        return not self._parts[-1] or self._size + message.ByteSize() <= RESPONSE_BYTES_MAX

    def add(self, message: pubsub.ReceivedMessage) -> None:
        if not self.fits(message):
            self._parts.append([])
            self._size = 0
        self._parts[-1].append(message)
        self._size += message.ByteSize()

    def responses(self, rest: bytes) -> tuple[bytes, ...]:
        """`rest`: the other fields of each."""
        return tuple(self._kind(received_messages=part).SerializeToString() + rest for part in self._parts)
