"""Where messages to push come from in a cluster: subscribe forwarders lend them, as they lend to a client that pulls.

Place: behind the pushes of this process, over `unary_relay`, which finds the forwarder, follows it when it dies, opens
sealed data and brings ack ids to who lent the message.
Promise: at most as many messages are asked for as there is room. What was lent and went nowhere counts as no delivery.
What cannot be said to a forwarder within `ACK_S` is not said: the lease ends by itself, and the message comes again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from syncpoint.metadata.records import Subscription
from syncpoint.model.errors import Code, SyncpointError
from syncpoint.proxy.unary_relay import ACK_IDS_FIELD, ACKNOWLEDGE, MODIFY, MODIFY_IDS_FIELD, UnaryRelay
from syncpoint.push.feed import Received
from syncpoint.push.pusher import Lent
from syncpoint.runtime.tasks import Tasks, stop
from syncpoint.wire import methods
from syncpoint.wire.messages import internal, pubsub

PAUSE_S = 1.0  # after a failure
IDS_MAX = 1_000  # in one request
END_S = 2.0  # for what is still to be said when the process ends
_ENDED = frozenset({Code.NOT_FOUND, Code.FAILED_PRECONDITION, Code.PERMISSION_DENIED})

log = logging.getLogger(__name__)


class PushFeeds:
    """Opens feeds; see `syncpoint.push.feed.OpenFeed`."""

    def __init__(self, relay: UnaryRelay) -> None:
        self.relay, self.saying, self.asking = relay, Tasks(), Tasks()

    def open(
        self,
        record: Subscription,
        lease_s: int,
        received: Received,
        gone: Callable[[], None],
        held: Callable[[], int],
        free: Callable[[], int] | None = None,
    ) -> RelayedFeed:
        """A feed of one subscription."""
        return RelayedFeed(self, record, lease_s, received, gone, held, free)

    async def close(self) -> None:
        """Send what still waits, and leave nothing behind."""
        await self.asking.stop()
        saying = list(self.saying)
        if saying:
            _, late = await asyncio.wait(saying, timeout=END_S)
            await stop(late)


class RelayedFeed:
    """See `syncpoint.push.feed.Feed`. One call that asks for messages is open at a time."""

    def __init__(
        self,
        feeds: PushFeeds,
        record: Subscription,
        lease_s: int,
        received: Received,
        gone: Callable[[], None],
        held: Callable[[], int],
        free: Callable[[], int] | None,
    ) -> None:
        self._free = free
        self._feeds, self._relay, self._record, self._lease_s = feeds, feeds.relay, record, lease_s
        self._received, self._gone, self._held = received, gone, held
        self._messages = 0
        self._closed = False
        self._asking: asyncio.Task[None] | None = None

    # -- what the pusher says ----------------------------------------------------------------------------------------

    def set_room(self, messages: int) -> None:
        self._messages = messages
        self._go_on()

    def set_lease(self, seconds: int) -> None:
        self._lease_s = seconds

    def acknowledge(self, ack_ids: Sequence[str]) -> None:
        name = self._record.name
        for ids in _parts(ack_ids):
            self._say(ACKNOWLEDGE, pubsub.AcknowledgeRequest(subscription=name, ack_ids=ids), ACK_IDS_FIELD)

    def refuse(self, ack_ids: Sequence[str]) -> None:
        self._modify(ack_ids, 0)

    def extend(self, ack_ids: Sequence[str]) -> None:
        self._modify(ack_ids, self._lease_s)

    def give_back(self, ack_ids: Sequence[str]) -> None:
        for ids in _parts(ack_ids):
            request = internal.TakeBackRequest(subscription=self._record.name, ack_ids=ids)
            self._say(methods.DELIVERIES.TakeBack, request, MODIFY_IDS_FIELD)

    def close(self) -> None:
        """A call that is open ends by itself; what it brings is given back."""
        self._closed = True

    def _modify(self, ack_ids: Sequence[str], seconds: int) -> None:
        for ids in _parts(ack_ids):
            request = pubsub.ModifyAckDeadlineRequest(
                subscription=self._record.name, ack_ids=ids, ack_deadline_seconds=seconds
            )
            self._say(MODIFY, request, MODIFY_IDS_FIELD)

    def _say(self, path: str, request: Any, field: int) -> None:
        self._feeds.saying.start(
            self._said(self._relay.to_holders(self._record, path, request.SerializeToString(), field))
        )
        self._go_on()

    async def _said(self, work: Coroutine[Any, Any, bytes]) -> None:
        try:
            await work
        except SyncpointError as error:
            log.info("messages of %s come again when their deadline ends: %s", self._record.name, error)

    # -- what comes --------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if not self._closed and self._asking is None and self._room() > 0:
            self._asking = self._feeds.asking.start(self._ask())

    def _room(self) -> int:
        return 0 if self._free is not None and self._free() <= 0 else self._messages - self._held()

    async def _ask(self) -> None:
        """Ask as long as there is room."""
        try:
            while not self._closed and (room := self._room()) > 0:
                try:
                    self._take(await self._asked(room))
                except SyncpointError as error:
                    if error.code in _ENDED and not self._closed:
                        self._closed = True
                        self._gone()
                        return
                    log.debug("%s: no forwarder lends messages now: %s", self._record.name, error)
                    await asyncio.sleep(PAUSE_S)
        finally:
            self._asking = None

    async def _asked(self, messages: int) -> list[Lent]:
        request = internal.LendRequest(subscription=self._record.name, messages=messages, seconds=self._lease_s)
        task = asyncio.current_task()
        assert task is not None
        serving = await self._relay.serving.find(self._record.name)
        if serving.incarnation != self._record.incarnation:
            raise SyncpointError(Code.NOT_FOUND, "The subscription was made anew.")
        answer = await self._relay.lent(
            serving, methods.DELIVERIES.Lend, request.SerializeToString(), None, drained=task.cancel
        )
        response = pubsub.PullResponse.FromString(answer)
        return [Lent(one.ack_id, one.message, one.delivery_attempt) for one in response.received_messages]

    def _take(self, lent: list[Lent]) -> None:
        if lent and self._closed:
            self.give_back([one.ack_id for one in lent])
        elif lent:
            self._received(lent)


def _parts(ack_ids: Sequence[str]) -> list[Sequence[str]]:
    return [ack_ids[at : at + IDS_MAX] for at in range(0, len(ack_ids), IDS_MAX)]
