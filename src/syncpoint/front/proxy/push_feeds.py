"""Where messages to push come from in a cluster: subscribe forwarders lend them, as they lend to a client that pulls.

Place: feeds the pushes and exports of this process. Messages come by streams that lend in turns; `unary_relay` brings
ack ids to who lent the message.
Promise: at most as many messages are asked for as there is room. What was lent and went nowhere counts as no delivery.
What cannot be reported to a forwarder within `ACK_S` is not reported: the lease ends by itself, and the message comes
again. A stream is one holder of ordering keys: it is lent more of a key while some of it is out. So it ends as soon as
some of what came in order is refused or given back, and what arrives on it after that is given back, too: the forwarder
learns of the one and lends the other at the same time, and what comes later must not overtake what comes again. The
stream after it is another holder, to which nothing of a key is lent before what became of all that is out of it is
known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from syncpoint.base.model.cluster import Member
from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.runtime.tasks import Tasks, stop
from syncpoint.broker.inner.feed import FeedTerms
from syncpoint.broker.inner.lent import lent_by
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.front.proxy.forwarder_stream import END_S, ForwarderStream, ForwarderStreams
from syncpoint.front.proxy.unary_relay import ACK_IDS_FIELD, ACKNOWLEDGE, MODIFY, MODIFY_IDS_FIELD
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub
from syncpoint.wire.transport.network import AnyStream

IDS_MAX = 1_000  # in one request

log = logging.getLogger(__name__)


class PushFeeds:
    """Opens feeds; see `syncpoint.broker.inner.feed.OpenFeed`."""

    def __init__(self, streams: ForwarderStreams) -> None:
        self.streams, self.saying, self.asking = streams, Tasks(), Tasks()

    def open(self, terms: FeedTerms) -> RelayedFeed:
        """A feed of one subscription."""
        return RelayedFeed(self, terms)

    async def close(self) -> None:
        """Send what still waits, and leave nothing running."""
        if self.asking:
            await asyncio.wait(list(self.asking), timeout=END_S)
        await self.asking.stop()
        saying = list(self.saying)
        if saying:
            _, late = await asyncio.wait(saying, timeout=END_S)
            await stop(late)


class RelayedFeed(ForwarderStream):
    """A `syncpoint.broker.inner.feed.Feed` from subscribe forwarders of other processes."""

    def __init__(self, feeds: PushFeeds, terms: FeedTerms) -> None:
        super().__init__(feeds.streams, feeds.streams.relay.spread)
        self._feeds, self._terms = feeds, terms
        self._wanted, self._lease_s = terms.record, terms.lease_s
        self._messages = 0
        self._wake = asyncio.Event()  # there is room, or the stream is to end

    # -- what the pusher reports -------------------------------------------------------------------------------------

    def set_room(self, messages: int) -> None:
        self._messages = messages
        self._go_on()

    def set_lease(self, seconds: int) -> None:
        self._lease_s = seconds

    def acknowledge(self, ack_ids: Sequence[str]) -> None:
        name = self._wanted.name
        for ids in _parts(ack_ids):
            self._report(ACKNOWLEDGE, pubsub.AcknowledgeRequest(subscription=name, ack_ids=ids), ACK_IDS_FIELD)

    def refuse(self, ack_ids: Sequence[str]) -> None:
        self._part()
        self._modify(ack_ids, 0)

    def extend(self, ack_ids: Sequence[str]) -> None:
        self._modify(ack_ids, self._lease_s)

    def give_back(self, ack_ids: Sequence[str]) -> None:
        self._part()
        for ids in _parts(ack_ids):
            request = internal.TakeBackRequest(subscription=self._wanted.name, ack_ids=ids)
            self._report(methods.DELIVERIES.TakeBack, request, MODIFY_IDS_FIELD)

    def close(self) -> None:
        """A stream that is open ends; what it still brings is given back."""
        self._left = True
        self._close_behind()

    drain = close

    def _part(self) -> None:
        """What comes in order does not go on where it was broken off."""
        if self._wanted.ordered:
            self._close_behind()

    def _modify(self, ack_ids: Sequence[str], seconds: int) -> None:
        for ids in _parts(ack_ids):
            request = pubsub.ModifyAckDeadlineRequest(
                subscription=self._wanted.name, ack_ids=ids, ack_deadline_seconds=seconds
            )
            self._report(MODIFY, request, MODIFY_IDS_FIELD)

    def _report(self, path: str, request: Any, field: int) -> None:
        self._feeds.saying.start(
            self._reported(self.streams.relay.to_holders(self._wanted, path, request.SerializeToString(), field))
        )
        self._go_on()

    async def _reported(self, work: Coroutine[Any, Any, bytes]) -> None:
        try:
            await work
        except SyncpointError as error:
            log.info("messages of %s come again when their deadline ends: %s", self._wanted.name, error)

    # -- what comes --------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._left or self._room() <= 0:
            return
        self._wake.set()
        if self._running is None:
            self.streams.add(self)
            self._running = self._feeds.asking.start(self._run())

    def _room(self) -> int:
        terms = self._terms
        return 0 if terms.free is not None and terms.free() <= 0 else self._messages - terms.held()

    async def _subscription(self) -> Subscription:
        record = await self.streams.serving.find(self._wanted.name)
        if record.incarnation != self._wanted.incarnation:
            raise SyncpointError(Code.NOT_FOUND, "The subscription was deleted and created again.")
        return record

    async def _relay(self, record: Subscription, member: Member) -> None:
        try:
            with self._opened_at(member, methods.DELIVERIES.LendInTurns) as upstream:
                self._upstream = upstream
                while await self._has_room():
                    lend = internal.LendRequest(
                        subscription=record.name,
                        messages=self._room(),
                        seconds=self._lease_s,
                        destination=self.streams.serving.current(record).destination,
                    )
                    await upstream.send(internal.TurnRequest(lend=lend).SerializeToString())
                    response = await upstream.receive()
                    if response is None:
                        return
                    await self._take(record, member, upstream, response)
        finally:
            if record.ordered and not self._left:
                self._terms.parted()

    async def _has_room(self) -> bool:
        """Wait until there is; False when the stream is to end."""
        while not self._closes and self._room() <= 0:
            self._wake.clear()
            await self._wake.wait()
        return not self._closes

    def _close_behind(self) -> None:
        super()._close_behind()
        self._wake.set()

    async def _take(self, record: Subscription, member: Member, upstream: AnyStream, response: bytes) -> None:
        """Take a response, with its data opened and transformed, or give it back."""
        relay, found = self.streams.relay, None
        try:
            opened = await self._unsealed(response)
            if not self._left and relay.serving.current(record).transforms:
                found = await relay.transformed(record, pubsub.StreamingPullResponse, opened)
        except asyncio.CancelledError:
            relay.give_back(record, member, [response])
            raise
        if self._closes:
            relay.give_back(record, member, [response])
            return
        for part in (opened,) if found is None else found.responses:
            self._terms.received(lent_by(pubsub.StreamingPullResponse.FromString(part)))
        if found is not None:
            await self._say(record, upstream, found)

    def _finish(self, error: SyncpointError | None) -> None:
        self.streams.open_streams.pop(self, None)
        if not self._left:
            self._left = True
            log.debug("%s: the feed ends: %s", self._wanted.name, error)
            self._terms.gone()


def _parts(ack_ids: Sequence[str]) -> list[Sequence[str]]:
    return [ack_ids[at : at + IDS_MAX] for at in range(0, len(ack_ids), IDS_MAX)]
