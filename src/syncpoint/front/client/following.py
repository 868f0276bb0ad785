"""A subscription's messages for as long as they are wanted, each acknowledged after it was handled.

Place: under `subscriptions pull --follow` and `syncpoint tail`; one stream, and calls beside it.
Promises: a message is acknowledged only after its handler has returned; what was received and not handled is given back
at the end; leases are extended while a handler waits, so that nobody else gets the messages in the meantime. A stream
that breaks is opened again: what was not acknowledged until then comes again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Any

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.runtime.backoff import Backoff
from syncpoint.front.client.traffic import AGAIN, CALL_S, IDS_MAX, LEASE_S, Target
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.client import Channel, ClientStream

OUTSTANDING_MESSAGES, OUTSTANDING_BYTES = 1_000, 16 << 20
EXTEND_S = LEASE_S / 3
END_S = 2.0
"""How long the end waits for a handler, and for the last answers."""

Handler = Callable[[Sequence[pubsub.ReceivedMessage]], Awaitable[int]]
"""Returns how many of its messages count."""


class Following:
    """Receives from a subscription. `messages`: how many are wanted; without `acknowledge`, all of them are
    held until the end. `trouble` is given what failed and is tried again.
    """

    def __init__(
        self,
        target: Target,
        subscription: str,
        handle: Handler,
        *,
        messages: float = inf,
        acknowledge: bool = True,
        trouble: Callable[[SyncpointError], None] = lambda error: None,
    ) -> None:
        self.handled = 0
        self._target, self._subscription, self._handle = target, subscription, handle
        self._messages, self._acknowledges, self._trouble = messages, acknowledge, trouble
        self._held: dict[str, None] = {}  # ack ids of what is neither acknowledged nor given back
        self._waiting: list[pubsub.ReceivedMessage] = []
        self._came = asyncio.Event()
        self._over = False

    async def run(self, over: asyncio.Event) -> None:
        """Until `over`, or until there were as many messages as wanted. Raises `SyncpointError`, and what the handler
        raises.
        """
        channel = self._target.open()
        handling = asyncio.create_task(self._keep_handling(channel))
        tasks: list[asyncio.Task[Any]] = [
            handling,
            asyncio.create_task(self._keep_receiving(channel)),
            asyncio.create_task(self._keep_leases(channel)),
            asyncio.create_task(over.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self._over = True
            self._came.set()
            await asyncio.wait([handling], timeout=END_S)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._set_deadline(channel, 0)
            await channel.close()

    async def _keep_handling(self, channel: Channel) -> None:
        while not self._over and self.handled < self._messages:
            if not self._waiting:
                self._came.clear()
                await self._came.wait()
                continue
            count = int(min(IDS_MAX, self._messages - self.handled))
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
            self.handled += await self._handle(batch)
            if self._acknowledges:
                await self._acknowledge(channel, [one.ack_id for one in batch])

    async def _acknowledge(self, channel: Channel, ack_ids: list[str]) -> None:
        request = pubsub.AcknowledgeRequest(subscription=self._subscription, ack_ids=ack_ids).SerializeToString()
        backoff = Backoff(0.1, 5.0)
        while True:
            try:
                await self._call(channel, methods.SUBSCRIBER.Acknowledge, request)
                break
            except SyncpointError as error:
                self._trouble(error)
                if error.code is Code.FAILED_PRECONDITION:
                    break  # exactly once: the lease was over, and the message comes again
                if error.code not in AGAIN:
                    raise
            await asyncio.sleep(backoff.failed(random.random))
        for ack_id in ack_ids:
            self._held.pop(ack_id, None)

    async def _keep_receiving(self, channel: Channel) -> None:
        backoff = Backoff(0.1, 5.0)
        while True:  # a server may end a stream at any time
            stream = channel.stream(methods.SUBSCRIBER.StreamingPull, self._target.metadata())
            try:
                await self._receive(stream, backoff)
            except SyncpointError as error:
                if error.code not in AGAIN:
                    raise
                self._trouble(error)
            finally:
                stream.cancel()
            self._waiting.clear()  # their leases ended with the stream: they come again
            self._held.clear()
            await asyncio.sleep(backoff.failed(random.random))

    async def _receive(self, stream: ClientStream, backoff: Backoff) -> None:
        await stream.send(
            pubsub.StreamingPullRequest(
                subscription=self._subscription,
                stream_ack_deadline_seconds=LEASE_S,
                max_outstanding_messages=int(max(1, min(OUTSTANDING_MESSAGES, self._messages - self.handled))),
                max_outstanding_bytes=OUTSTANDING_BYTES,
            ).SerializeToString()
        )
        while (payload := await stream.receive()) is not None:
            got = pubsub.StreamingPullResponse.FromString(payload).received_messages
            self._held.update(dict.fromkeys(one.ack_id for one in got))
            self._waiting += got
            self._came.set()
            backoff.succeeded()

    async def _keep_leases(self, channel: Channel) -> None:
        while True:
            await asyncio.sleep(EXTEND_S)
            await self._set_deadline(channel, LEASE_S)

    async def _set_deadline(self, channel: Channel, seconds: int) -> None:
        """Set the deadline of everything that is held; 0 gives it back."""
        ids = list(self._held)
        for begin in range(0, len(ids), IDS_MAX):
            request = pubsub.ModifyAckDeadlineRequest(
                subscription=self._subscription, ack_ids=ids[begin : begin + IDS_MAX], ack_deadline_seconds=seconds
            )
            try:
                await self._call(channel, methods.SUBSCRIBER.ModifyAckDeadline, request.SerializeToString())
            except SyncpointError as error:  # at worst they come again, or once their leases are over
                self._trouble(error)
                return

    async def _call(self, channel: Channel, method: str, request: bytes) -> None:
        timeout_s = END_S if self._over else CALL_S
        await channel.unary(method, request, metadata=self._target.metadata(), timeout=timeout_s)
