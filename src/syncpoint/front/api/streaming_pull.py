"""Subscriber.StreamingPull: one long call per subscriber, messages down, acknowledgements and keep-alives up.

Place: where a message leaves, and its acknowledgement comes in. Each stream is a consumer of its subscription; the
transport signals when it can take more. Every response carries the subscription's properties, because clients copy them
from each one. The server ends a stream only with an error the official clients retry (UNAVAILABLE) or one that is final
(NOT_FOUND, FAILED_PRECONDITION, INVALID_ARGUMENT); it answers OK only to a half-close.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from syncpoint.base.kernel.errors import BadAckId
from syncpoint.base.model.errors import InvalidArgument, SyncpointError, Unavailable
from syncpoint.base.model.flow import FlowLimit, FlowLimits
from syncpoint.base.model.limits import (
    ACK_DEADLINE_SECONDS_MAX,
    ACK_DEADLINE_SECONDS_MIN,
    RESPONSE_BYTES_MAX,
)
from syncpoint.broker.subscribe.confirm import Confirmed
from syncpoint.broker.subscribe.consumer import Consumer
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.front.api.connected_clients import STREAM_NAME, OpenPull
from syncpoint.front.api.subscriber import ACK_IDS_FIELD, bad_ack_id, check_new_deadline, check_pulled, ended, usable
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub
from syncpoint.wire.protobuf.pull_properties import PROPERTIES
from syncpoint.wire.protobuf.serving import parsed
from syncpoint.wire.transport.calls import Methods, Streaming, StreamingCall

MODIFY_IDS_FIELD = 4
_HEAD = bytes((ACK_IDS_FIELD << 3 | 2, 48))  # in front of each ack id
_STEP = len(_HEAD) + 48
TRY_AGAIN = "The service was unable to fulfill your request. Please try again. [code=8a75]"


def only_ack_ids(request: bytes) -> bool:
    """Whether a request has nothing but whole ack ids, as most have: they are all of one length, so none of it needs to
    be decoded to see that.
    """
    count, rest = divmod(len(request), _STEP)
    return not rest and count > 0 and request[::_STEP] == _HEAD[:1] * count and request[1::_STEP] == _HEAD[1:] * count


class StreamingPullService:
    """All open streaming pulls."""

    def __init__(self, forwarder: SubscribeForwarder, limits: FlowLimits) -> None:
        self.forwarder, self.limits = forwarder, limits
        self.streams: dict[PullStream, None] = {}  # in the order of their coming
        self.named: Callable[[StreamingCall], str] = lambda stream: f"{id(stream):x}"  # among all streams
        limits.on_change = self.limits_changed

    def methods(self) -> Methods:
        return {methods.SUBSCRIBER.StreamingPull.encode(): Streaming(self.open, methods.PUBLISHER.Publish.encode())}

    def internal_methods(self) -> Methods:
        """For proxies of the cluster."""
        return {methods.DELIVERIES.LendInTurns.encode(): Streaming(self.open_in_turns)}

    def open(self, stream: StreamingCall) -> None:
        self.streams[PullStream(stream, self)] = None

    def open_in_turns(self, stream: StreamingCall) -> None:
        self.streams[PullInTurns(stream, self)] = None

    def open_pulls(self, subscription: str) -> Iterator[OpenPull]:
        """Streams of clients, for who shows them."""
        for one in self.streams:
            if one.record is not None and one.record.name == subscription:
                yield OpenPull(one.stream, one.first, self.named(one.stream))

    def held(self, subscription: int) -> Iterator[internal.HeldStream]:
        """What is outstanding on each stream of a subscription that has a name."""
        delivery = self.forwarder.deliveries.get(subscription)
        if delivery is None:
            return
        for one in self.streams:
            consumer, record, name = one.consumer, one.record, self.named(one.stream)
            if name and consumer is not None and record is not None and record.incarnation == subscription:
                messages, nbytes = delivery.table.outstanding(consumer.number)
                yield internal.HeldStream(stream=name, messages=messages, bytes=nbytes)

    def limits_changed(self) -> None:
        """Open streams take over limits that were changed."""
        for stream in self.streams:
            stream.take_limits()


class PullStream:
    """One subscriber's stream."""

    lends = False  # to who pushes or exports, and still has what it was sent when the stream is over

    def __init__(self, stream: StreamingCall, service: StreamingPullService) -> None:
        self.stream, self.service, self.forwarder = stream, service, service.forwarder
        self.record: Subscription | None = None
        self.consumer: Consumer | None = None
        self.answers_pings = self.half_closed = self.over = False
        self.first = pubsub.StreamingPullRequest()  # without what it acknowledged
        self.confirming = 0  # acknowledgements whose confirmation is still to be sent
        self.asked = FlowLimit()  # what the subscriber wants outstanding at most
        stream.on_message = self.message
        stream.on_end = self.on_half_close
        stream.on_cancel = self.cancelled
        stream.on_writable = self.writable
        stream.on_drain = lambda: self.end(Unavailable(TRY_AGAIN))

    # -- from the subscriber -----------------------------------------------------------------------------------------

    def message(self, request: bytes) -> None:
        if self.over:
            return
        try:
            first = self.record is None
            if not first and only_ack_ids(request):
                self._acknowledge(self._newest_usable(), request)
                return
            asked = parsed(pubsub.StreamingPullRequest, request)
            if first:
                self._begin(asked)
            else:
                self._check_later(asked)
            if asked.ack_ids or asked.modify_deadline_ack_ids or asked.modify_deadline_seconds:
                self._take_acks(asked, request)
            elif self.answers_pings and not first:
                self.stream.send(self._properties())  # a keep-alive, or a changed deadline: it was received
        except SyncpointError as error:
            self.end(error)

    def _begin(self, asked: pubsub.StreamingPullRequest) -> None:
        check_first(asked)
        record = usable(self.forwarder, asked.subscription)
        _check_pulled(record)
        self.forwarder.check_free(record)
        self.record = record
        self.answers_pings = asked.protocol_version >= 1
        self.first = pubsub.StreamingPullRequest(
            client_id=asked.client_id,
            max_outstanding_messages=asked.max_outstanding_messages,
            max_outstanding_bytes=asked.max_outstanding_bytes,
        )
        self.asked = FlowLimit(max(0, asked.max_outstanding_messages), max(0, asked.max_outstanding_bytes))
        max_messages, max_bytes = self._room(record)
        self.consumer = self.forwarder.join(
            record,
            self._send,
            max_messages=max_messages,
            max_bytes=max_bytes,
            deadline_s=asked.stream_ack_deadline_seconds,
            gone=self._gone,
            changed=self._changed,
        )

    def _room(self, record: Subscription) -> tuple[int, int]:
        """Messages and bytes that may be outstanding here: what was asked for, within the limit of a subscriber."""
        limit = self.service.limits.of_subscriber(record.name)
        return min(self.asked.messages_max, limit.messages_max), min(self.asked.bytes_max, limit.bytes_max)

    def take_limits(self) -> None:
        """The limits were changed."""
        if self.consumer is not None and self.record is not None:
            self.consumer.max_messages, self.consumer.max_bytes = self._room(self.record)
            self.forwarder.wake(self.record.incarnation)

    def _check_later(self, asked: pubsub.StreamingPullRequest) -> None:
        assert self.consumer is not None
        if asked.subscription:
            raise InvalidArgument("", "subscription may only be set in first message")
        for name in ("max_outstanding_messages", "max_outstanding_bytes", "protocol_version"):
            if getattr(asked, name):
                raise InvalidArgument("", f"{name} may only be set in first message")
        if asked.client_id not in ("", self.first.client_id):
            raise InvalidArgument("", "client_id may only be set in first message")
        if asked.stream_ack_deadline_seconds:
            _check_deadline(asked.stream_ack_deadline_seconds)
            self.consumer.deadline_s = asked.stream_ack_deadline_seconds

    def _take_acks(self, asked: pubsub.StreamingPullRequest, request: bytes) -> None:
        seconds = list(asked.modify_deadline_seconds)
        if len(seconds) != len(asked.modify_deadline_ack_ids):
            raise InvalidArgument("", "ack IDs and deadlines must have the same size")
        for value in seconds:
            check_new_deadline("modify_deadline_seconds", value)
        record = self._newest_usable()
        if asked.ack_ids:
            self._acknowledge(record, request)
        try:
            if seconds:
                failed = {f.decode() for f in self.forwarder.modify(record, request, MODIFY_IDS_FIELD, seconds)}
                if record.exactly_once:
                    kind = pubsub.StreamingPullResponse.ModifyAckDeadlineConfirmation
                    good = [one for one in asked.modify_deadline_ack_ids if one not in failed]
                    confirmation = kind(ack_ids=good, invalid_ack_ids=sorted(failed))
                    self._respond(modify_ack_deadline_confirmation=confirmation)
        except BadAckId as bad:
            raise bad_ack_id(bad) from None

    def _newest_usable(self) -> Subscription:
        """The subscription as it is now. Raises what ends the stream where it is gone."""
        assert self.record is not None
        record = self.forwarder.catalog.subscription_by_incarnation(self.record.incarnation)
        if record is None or record.detached:
            raise ended(self.forwarder, self.record)
        return record

    def _acknowledge(self, record: Subscription, request: bytes) -> None:
        """What a request acknowledges."""
        confirmed: Confirmed | None = None
        if record.exactly_once:
            confirmed = self._confirm(list(parsed(pubsub.StreamingPullRequest, request).ack_ids))
            self.confirming += 1  # if it is refused, the stream ends
        try:
            self.forwarder.acknowledge(record, request, ACK_IDS_FIELD, confirmed)
        except BadAckId as bad:
            raise bad_ack_id(bad) from None

    def _confirm(self, ack_ids: list[str]) -> Confirmed:
        def confirmed(failed: list[bytes], unknown: list[bytes]) -> None:
            invalid, unsure = {one.decode() for one in failed}, {one.decode() for one in unknown}
            good = [one for one in ack_ids if one not in invalid and one not in unsure]
            kind = pubsub.StreamingPullResponse.AcknowledgeConfirmation
            self._respond(
                acknowledge_confirmation=kind(
                    ack_ids=good, invalid_ack_ids=sorted(invalid), temporary_failed_ack_ids=sorted(unsure)
                )
            )
            self.confirming -= 1
            if self.half_closed and not self.confirming:
                self.end(None)

        return confirmed

    # -- to the subscriber -------------------------------------------------------------------------------------------

    def _send(self, parts: Sequence[bytes], serials: Sequence[int]) -> None:
        assert self.consumer is not None
        self.stream.send([*parts, self._properties()], token=serials)
        self.consumer.writable = self.stream.writable

    def _properties(self) -> bytes:
        """The subscription's flags as they are now, serialised so that they can follow the messages of a response."""
        record = self._newest()
        return PROPERTIES[record.exactly_once, record.ordered]

    def _newest(self) -> Subscription:
        assert self.record is not None
        return self.forwarder.catalog.subscription_by_incarnation(self.record.incarnation) or self.record

    def _respond(self, **fields: Any) -> None:
        if not self.stream.cancelled and not self.over:
            self.stream.send(pubsub.StreamingPullResponse(**fields).SerializeToString() + self._properties())

    # -- the end -----------------------------------------------------------------------------------------------------

    def writable(self) -> None:
        if self.consumer is not None and self.record is not None:
            self.consumer.writable = True
            self.forwarder.wake(self.record.incarnation)

    def on_half_close(self) -> None:
        """No more messages; the end comes once what was acknowledged is confirmed."""
        if self.record is None:
            self.end(InvalidArgument("", "first message must set subscription"))
            return
        self.half_closed = True
        if self.confirming:
            self._leave(stays=self._handed_over)
        else:
            self.end(None)

    @property
    def _handed_over(self) -> bool:
        """Whether a half-close is a proxy's, whose client goes on elsewhere; where its client ends, it cancels."""
        return STREAM_NAME in self.stream.metadata

    def cancelled(self) -> None:
        self._leave(stays=False)

    def _changed(self) -> None:
        """Clients copy the properties from each response: they learn of a change at once."""
        if self.stream.cancelled or self.over or self.record is None:
            return
        before, self.record = self.record, self._newest()
        try:
            _check_pulled(self.record)
        except SyncpointError as error:
            self.end(error)
            return
        if (before.exactly_once, before.ordered) != (self.record.exactly_once, self.record.ordered):
            self.stream.send(self._properties())

    def _gone(self) -> None:
        assert self.record is not None
        self.end(ended(self.forwarder, self.record))

    def end(self, error: SyncpointError | None) -> None:
        """Finish the call: OK only after a half-close."""
        over, self.over = self.over, True
        self._leave(stays=isinstance(error, Unavailable) or (error is None and self._handed_over))
        if not over and not self.stream.cancelled:
            self.stream.finish(error)

    def _leave(self, *, stays: bool) -> None:
        """Leave the subscription, however the stream ended; what turns out later to be unsent is given back, too.

        `stays`: the subscriber goes on by another stream, so all that was sent arrives and is still its own. Otherwise
        what was not sent is withdrawn, and free at once; so is what it never reported as received.
        """
        self.service.streams.pop(self, None)
        consumer, self.consumer = self.consumer, None
        if self.record is None:
            return
        back = [] if stays else self.stream.take_back()
        unsent = [serial for token in back if isinstance(token, list) for serial in token]
        self.forwarder.leave(self.record, consumer, unsent, over=not (stays or self.lends))


class PullInTurns(PullStream):
    """The stream of a proxy that transforms: nothing is lent until it has reported what became of the newest response.
    One that pushes or exports asks for each response (`lends`), and reports by calls what became of messages.
    """

    _destination = b""  # where they go, by what the proxy knows

    def message(self, request: bytes) -> None:
        if self.over:
            return
        try:
            turn = parsed(internal.TurnRequest, request)
            if turn.HasField("request"):
                super().message(turn.request)
            if turn.done and self.record is not None:
                self._done(self.record, request)
            if turn.HasField("lend"):
                self._lend(turn.lend)
        except BadAckId as bad:
            self.end(bad_ack_id(bad))
        except SyncpointError as error:
            self.end(error)

    def _done(self, record: Subscription, request: bytes) -> None:
        self.forwarder.take_outcome(record, request)
        if not self.lends:
            self._next_turn(record)

    def _next_turn(self, record: Subscription) -> None:
        if self.consumer is not None:
            self.consumer.transforming = False
            self.forwarder.wake(record.incarnation)

    def _lend(self, asked: internal.LendRequest) -> None:
        self._destination = asked.destination
        if self.record is None:
            record = usable(self.forwarder, asked.subscription)
            self.forwarder.check_free(record)
            self.record, self.lends = record, True
            self.consumer = self.forwarder.join(
                record,
                self._send,
                max_messages=0,
                max_bytes=RESPONSE_BYTES_MAX,
                deadline_s=asked.seconds,
                gone=self._gone,
                changed=self._changed,
                uses=False,
            )
            self.consumer.by_response = True
        self._check_destination()
        if self.consumer is not None:
            self.consumer.max_messages, self.consumer.deadline_s = asked.messages, asked.seconds
        self._next_turn(self.record)

    def _changed(self) -> None:
        if not self.lends:
            super()._changed()
            return
        try:
            self._check_destination()
        except SyncpointError as error:
            self.end(error)

    def _check_destination(self) -> None:
        """Raises `Unavailable` where the proxy would send messages elsewhere than is known here: one of the two learns
        of a change later. What was lent before goes where it was lent for.
        """
        if self._destination and self._destination != self._newest().destination:
            raise Unavailable(TRY_AGAIN)

    def take_limits(self) -> None:
        if not self.lends:
            super().take_limits()

    def _send(self, parts: Sequence[bytes], serials: Sequence[int]) -> None:
        assert self.consumer is not None
        self.consumer.transforming = True
        super()._send(parts, serials)


def check_first(asked: pubsub.StreamingPullRequest) -> None:
    """Check the first request of a stream as far as it goes by itself. Raises `InvalidArgument`."""
    if not asked.subscription:
        raise InvalidArgument("", "first message must set subscription")
    if not asked.stream_ack_deadline_seconds:
        raise InvalidArgument("", "first message must set stream_ack_deadline_seconds")
    _check_deadline(asked.stream_ack_deadline_seconds)


def _check_pulled(record: Subscription) -> None:
    check_pulled(record, f"Subscription is a push subscription: (resource={record.name}).")


def _check_deadline(seconds: int) -> None:
    low, high = ACK_DEADLINE_SECONDS_MIN, ACK_DEADLINE_SECONDS_MAX
    if not low <= seconds <= high:
        raise InvalidArgument("", f"stream_ack_deadline_seconds must be between {low} and {high} seconds")
