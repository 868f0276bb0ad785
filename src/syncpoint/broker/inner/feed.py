"""Where what the service consumes itself comes from: a subscriber like any other.

Place: between the driver and a subscribe forwarder in this process. `Feed` is what the driver needs of it; another
process's forwarder can implement one, too.
Promise: what is given back was never delivered, and counts as no attempt. A feed that is closed still passes on what
becomes of the messages that are under way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from syncpoint.broker.inner.lent import Lent, lent_by
from syncpoint.broker.subscribe.consumer import Consumer
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.wire.protobuf.messages import pubsub

OUTSTANDING_BYTES_MAX = 64 << 20  # of one subscription
_UNBOUNDED = 1 << 62
_ACK_IDS, _MODIFY_ACK_IDS = 2, 4  # fields of the requests


class Feed(Protocol):
    """Messages of one subscription, lent. Any of it may raise `SyncpointError`: nothing was done, and the
    lease's deadline does the rest."""

    def set_room(self, messages: int) -> None: ...
    def set_lease(self, seconds: int) -> None: ...
    def acknowledge(self, ack_ids: Sequence[str]) -> None: ...
    def refuse(self, ack_ids: Sequence[str]) -> None: ...
    def give_back(self, ack_ids: Sequence[str]) -> None: ...
    def extend(self, ack_ids: Sequence[str]) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FeedTerms:
    """Who consumes a subscription, and how much. `lease_s`: seconds that messages are lent for; `received` takes
    messages, `gone` is called at the end; `held`: how many messages are held now; `free`: for how many bytes there is
    room (None: for as many as may be outstanding). `parted` is called when what comes from now on is lent to another
    holder of ordering keys: nothing of a key before all that is held of it has ended.
    """

    record: Subscription
    lease_s: int
    received: Callable[[Sequence[Lent]], None]
    gone: Callable[[], None]
    held: Callable[[], int]
    free: Callable[[], int] | None = None
    parted: Callable[[], None] = lambda: None


OpenFeed = Callable[[FeedTerms], Feed]
"""Become a subscriber, without room at first. Raises `SyncpointError`."""


def open_feed(forwarder: SubscribeForwarder, terms: FeedTerms) -> Feed:
    """An `OpenFeed` once the forwarder, which counts by itself, is given; one holder of ordering keys while it is open.
    Raises `SyncpointError`.
    """
    forwarder.check_free(terms.record)
    return _ForwarderFeed(forwarder, terms)


class _ForwarderFeed:
    def __init__(self, forwarder: SubscribeForwarder, terms: FeedTerms) -> None:
        self._forwarder, self._record, self._received = forwarder, terms.record, terms.received
        self._lease_s = terms.lease_s
        self._consumer: Consumer | None = forwarder.join(
            terms.record,
            self._send,
            max_messages=0,
            max_bytes=OUTSTANDING_BYTES_MAX if terms.free is None else _UNBOUNDED,
            deadline_s=terms.lease_s,
            gone=terms.gone,
            uses=False,
            beside=terms.free,
        )

    def _send(self, parts: Sequence[bytes], serials: Sequence[int]) -> None:
        response = pubsub.StreamingPullResponse.FromString(b"".join(parts))
        self._received(lent_by(response))

    def set_room(self, messages: int) -> None:
        if self._consumer is not None:
            self._consumer.max_messages = messages
            self._forwarder.wake(self._record.incarnation)

    def set_lease(self, seconds: int) -> None:
        self._lease_s = seconds
        if self._consumer is not None:
            self._consumer.deadline_s = seconds

    def acknowledge(self, ack_ids: Sequence[str]) -> None:
        if self._ended():
            return
        request = pubsub.AcknowledgeRequest(ack_ids=ack_ids).SerializeToString()
        self._forwarder.acknowledge(self._record, request, _ACK_IDS, None)

    def refuse(self, ack_ids: Sequence[str]) -> None:
        self._modify(ack_ids, 0)

    def give_back(self, ack_ids: Sequence[str]) -> None:
        self._modify(ack_ids, 0, delivered=False)

    def extend(self, ack_ids: Sequence[str]) -> None:
        self._modify(ack_ids, self._lease_s)

    def _modify(self, ack_ids: Sequence[str], seconds: int, *, delivered: bool = True) -> None:
        if self._ended():
            return
        request = pubsub.ModifyAckDeadlineRequest(ack_ids=ack_ids).SerializeToString()
        self._forwarder.modify(self._record, request, _MODIFY_ACK_IDS, seconds, delivered=delivered, uses=False)

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            self._forwarder.leave(self._record, consumer)

    def _ended(self) -> bool:
        """Whether the subscription is gone, and all that was lent with it."""
        known = self._forwarder.catalog.subscription_by_incarnation(self._record.incarnation)
        return known is None or known.detached
