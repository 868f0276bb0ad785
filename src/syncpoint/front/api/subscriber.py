"""Subscriber: Pull, Acknowledge and ModifyAckDeadline on raw bytes.

Place: where a message leaves, and its acknowledgement comes in. Requests are parsed for their small fields only; ack
ids go to the kernel as they came. An acknowledgement is answered when it is persisted. Limits and texts are Pub/Sub's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from syncpoint.base.kernel.errors import BadAckId
from syncpoint.base.model.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    SyncpointError,
    Unavailable,
    detached,
)
from syncpoint.base.model.limits import (
    ACK_REQUEST_BYTES_MAX,
    MODIFY_DEADLINE_SECONDS_MAX,
    PULL_MESSAGES_MAX,
    PULL_WAIT_SECONDS_MAX,
    RESPONSE_BYTES_MAX,
)
from syncpoint.broker.push.push_config import is_pushed
from syncpoint.broker.subscribe.outstanding_quota import project_of
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.front.api.exports import is_exported
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub
from syncpoint.wire.protobuf.serving import parsed
from syncpoint.wire.protobuf.status import ack_failure, quota_exceeded
from syncpoint.wire.transport.calls import Call, Methods, Unary

ACK_IDS_FIELD = 2
MODIFY_ACK_IDS_FIELD = 4
PULL_AT_ONCE_S = 0.1  # return_immediately: time for one look, on disk if need be
PULL_FIRST_LOOK_S = 2.0  # there, at most: as long as chains have not reported what they have, or what they have is read


def usable(forwarder: SubscribeForwarder, name: str) -> Subscription:
    """The subscription to pull from. Raises `NotFound`, or `FailedPrecondition` for a detached one."""
    record = forwarder.named(name)
    if record.detached:
        raise detached(name)
    return record


def check_pulled(record: Subscription, text: str) -> None:
    """Raise `FailedPrecondition` for a subscription that is pushed, exported or forwarded."""
    if is_pushed(record):
        raise FailedPrecondition(text)
    if is_exported(record):
        raise FailedPrecondition("This method is not supported for this subscription type.")
    if record.options.forward_to:
        raise FailedPrecondition(
            f"Messages are forwarded to {record.options.forward_to}, not delivered (resource={record.name}). Receive"
            " them"
            " from a subscription of that topic."
        )


def check_new_deadline(field: str, seconds: int) -> None:
    if seconds < 0:
        raise InvalidArgument("", "Ack deadline cannot be negative")
    if seconds > MODIFY_DEADLINE_SECONDS_MAX:
        raise InvalidArgument(field, f"must be between 0 and {MODIFY_DEADLINE_SECONDS_MAX} seconds, not {seconds}")


def bad_ack_id(error: BadAckId) -> InvalidArgument:
    return InvalidArgument("", f"Invalid ack id (ack_id={error.ack_id.decode(errors='replace')})")


def ended(forwarder: SubscribeForwarder, record: Subscription) -> SyncpointError:
    """Why a pull of this subscription cannot go on: it was deleted, unless it was detached, or is read alone."""
    known = forwarder.catalog.subscription_by_incarnation(record.incarnation)
    if (known or record).detached:
        return detached(record.name)
    if known is not None:
        try:
            forwarder.check_free(known)
        except SyncpointError as error:
            return error
    return NotFound(record.name)


class SubscriberService:
    """The unary data-plane methods of google.pubsub.v1.Subscriber."""

    def __init__(self, forwarder: SubscribeForwarder) -> None:
        self.forwarder = forwarder
        self._waiting: dict[Callable[[], None], None] = {}  # in the order of their coming

    def drain(self) -> None:
        """Pulls that wait are answered now, with nothing: the server is about to stop."""
        for answer in list(self._waiting):
            answer()

    def methods(self) -> Methods:
        return {
            methods.SUBSCRIBER.Pull.encode(): Unary(self.pull),
            methods.SUBSCRIBER.Acknowledge.encode(): Unary(self.acknowledge),
            methods.SUBSCRIBER.ModifyAckDeadline.encode(): Unary(self.modify_ack_deadline),
        }

    def internal_methods(self) -> Methods:
        """For proxies of the cluster."""
        return {methods.DELIVERIES.TakeBack.encode(): Unary(self.take_back)}

    def pull(self, call: Call, request: bytes) -> None:
        asked = parsed(pubsub.PullRequest, request)
        record = usable(self.forwarder, asked.subscription)
        check_pulled(record, "This method is not supported for this subscription type.")
        if asked.max_messages <= 0:
            raise InvalidArgument("", "No max_messages specified. Set it to 1 or more.")
        wait = PULL_AT_ONCE_S if asked.return_immediately else PULL_WAIT_SECONDS_MAX
        self.forwarder.check_free(record)
        if self.forwarder.quota.room(record) <= 0:  # streams wait instead: their clients would take it for the end
            raise quota_exceeded(project_of(record), "bytes of outstanding messages", 1.0)
        loop = asyncio.get_running_loop()
        at_once = wait <= PULL_AT_ONCE_S
        until = loop.time() + (PULL_FIRST_LOOK_S if at_once else wait)
        if call.deadline is not None:
            left = call.deadline - self.forwarder.clock.monotonic()
            # The empty answer must come before the caller's deadline.
            until = min(until, loop.time() + max(left - 1.0, left / 2))

        def over() -> None:
            timer.cancel()
            self._waiting.pop(empty, None)

        def send(parts: Sequence[bytes], serials: Sequence[int]) -> None:
            over()
            if call.cancelled:
                self.forwarder.leave(record, None, serials)  # while they were transformed
            else:
                call.reply(parts)

        def stop() -> None:
            over()
            self.forwarder.leave(record, consumer)

        def empty() -> None:
            if not consumer.closed:  # otherwise messages were lent and are being transformed: they are the answer
                stop()
                call.reply(b"")

        def gone() -> None:
            over()
            call.fail(ended(self.forwarder, record))

        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            delivery = self.forwarder.deliveries.get(record.incarnation)
            if at_once and delivery is not None and delivery.looking and loop.time() < until:
                timer = loop.call_later(min(PULL_AT_ONCE_S, until - loop.time()), look)
            else:
                empty()

        timer = loop.call_later(PULL_AT_ONCE_S, look) if at_once else loop.call_at(until, empty)
        self._waiting[empty] = None
        call.on_cancel = stop
        consumer = self.forwarder.join(
            record,
            send,
            max_messages=min(asked.max_messages, PULL_MESSAGES_MAX),
            max_bytes=RESPONSE_BYTES_MAX,
            deadline_s=record.ack_deadline_s,
            gone=gone,
            single=True,
        )

    def acknowledge(self, call: Call, request: bytes) -> None:
        asked = parsed(pubsub.AcknowledgeRequest, request)
        record = self._with_ids(asked, request)

        leases = self.forwarder.delivery(record).leases

        def confirmed(failed: list[bytes], unknown: list[bytes]) -> None:
            if unknown and not record.exactly_once:
                why = leases.cannot_record()
                unknown_text = "It is not known whether the acknowledgements were recorded"
                call.fail(Unavailable(f"{unknown_text}: {why.message}" if why is not None else f"{unknown_text}."))
            else:
                _answer(call, failed, unknown)

        try:
            self.forwarder.acknowledge(record, request, ACK_IDS_FIELD, confirmed)
        except BadAckId as bad:
            raise bad_ack_id(bad) from None

    def modify_ack_deadline(self, call: Call, request: bytes) -> None:
        asked = parsed(pubsub.ModifyAckDeadlineRequest, request)
        record = self._with_ids(asked, request)
        seconds = asked.ack_deadline_seconds
        check_new_deadline("ack_deadline_seconds", seconds)
        try:
            pulled = not (
                is_pushed(record) or is_exported(record) or record.options.forward_to
            )  # of others only what succeeds is a use
            failed = self.forwarder.modify(record, request, MODIFY_ACK_IDS_FIELD, seconds, uses=pulled)
        except BadAckId as bad:
            raise bad_ack_id(bad) from None
        _answer(call, failed)

    def take_back(self, call: Call, request: bytes) -> None:
        asked = parsed(internal.TakeBackRequest, request)
        record = usable(self.forwarder, asked.subscription)
        try:
            self.forwarder.modify(record, request, MODIFY_ACK_IDS_FIELD, 0, delivered=False, uses=False)
        except BadAckId as bad:
            raise bad_ack_id(bad) from None
        call.reply(b"")

    def _with_ids(
        self, asked: pubsub.AcknowledgeRequest | pubsub.ModifyAckDeadlineRequest, request: bytes
    ) -> Subscription:
        record = usable(self.forwarder, asked.subscription)
        if not asked.ack_ids:
            raise InvalidArgument("", "No ack ids specified.")
        if len(request) > ACK_REQUEST_BYTES_MAX:
            raise InvalidArgument(
                "ack_ids", f"The request must not be larger than {ACK_REQUEST_BYTES_MAX} bytes. Split it."
            )
        return record


def _answer(call: Call, failed: list[bytes], unknown: Sequence[bytes] = ()) -> None:
    if failed or unknown:
        call.fail(ack_failure(failed, unknown=unknown))
    else:
        call.reply(b"")
