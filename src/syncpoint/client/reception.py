"""Receiving from one subscription: a stream that is opened again, leases, acknowledgements.

Place: under every form in which a subscriber hands out messages; on an event loop. `held_messages` decides.
Promises: messages wait in `waiting` until they are taken, from any thread; their leases are extended from the moment
they come. When a stream breaks, what waits is dropped and given back, since it comes again; what was taken stays leased
as far as the server lets it, and its acknowledgements are still sent, first to where it came from. A refusal that lasts
(no such subscription, no right) ends it, with `error`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.model.wording import counted
from syncpoint.base.runtime.backoff import Backoff
from syncpoint.client.client_errors import AcknowledgeStatus
from syncpoint.client.client_options import PASSING, FlowControl
from syncpoint.client.held_messages import HeldMessages, Known, LeaseCall
from syncpoint.client.received_messages import LeaseChange, Message, MessageBatch, changes_of
from syncpoint.client.service_link import ServiceLink
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.status import ack_outcomes
from syncpoint.wire.transport.client import ClientStream

GATHER_S: Final = 0.005
"""How long acknowledgements wait for others, where many messages may be held."""
GATHER_FROM: Final = 200
CALL_S: Final = 30.0
HANG_UP_S: Final = 2.0
END_S: Final = 10.0
"""How long an end waits for the answers to its last acknowledgements."""


class Reception:
    """Made on its loop. `arrived` is called there when there is something to take, or when it is over."""

    def __init__(
        self, link: ServiceLink, subscription: str, flow: FlowControl, arrived: Callable[[], None] = lambda: None
    ) -> None:
        self.subscription = subscription
        self.batches: deque[MessageBatch] = deque()
        self.acked: deque[Message] = deque()  # see `LeaseChanges`
        self.waiting: deque[LeaseChange] = deque()
        self.over = False
        self.error: SyncpointError | None = None
        self.ordered = False  # whether the subscription keeps the order of keys, as far as is known
        self._link, self._flow = link, flow
        self.arrived = arrived
        self._loop = asyncio.get_running_loop()
        self._held = HeldMessages(flow, random.random)
        self._woken = self._stopped = self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._quiet = asyncio.Event()  # something was answered, or became done
        self._pausing = 0  # switches under way
        self._stream: ClientStream | None = None
        self._may_receive = asyncio.Event()
        self._may_receive.set()
        self._receiving = self._loop.create_task(self._keep_receiving())
        self._leasing = self._loop.create_task(self._keep_leases())

    # -- from any thread ---------------------------------------------------------------------------------------------

    def take(self) -> MessageBatch | None:
        """The next batch, if there is one."""
        try:
            return self.batches.popleft()
        except IndexError:
            return None

    def wake(self) -> None:
        """Something was appended to `acked` or `waiting`."""
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._gather)
            except RuntimeError:  # the loop is closed
                with suppress(IndexError):  # several threads may come here at once
                    self._give_up()

    @property
    def gives_back(self) -> bool:
        """Whether what is not being handled is to be given back, since this is over, or moves to another address."""
        return self.over or self._pausing > 0

    @property
    def done(self) -> bool:
        """Whether it is over, and nothing of it is held or waits to be sent."""
        return self.over and not self._held.messages and self._held.idle

    # -- on the loop -------------------------------------------------------------------------------------------------

    async def stop(self, drain_s: float = 0.0) -> None:
        """Receive no more: what waits is given back; what was taken may be handled for `drain_s`, and the answers to
        acknowledgements are waited for, END_S at most. Later ones are still sent while the link is open.
        """
        if self._stopped:
            return
        self._stopped = True
        self.finish()
        await self._until(lambda: not self._held.messages, drain_s)
        await self._hang_up()
        await self.flush()
        self._receiving.cancel()
        self._leasing.cancel()
        await asyncio.gather(self._receiving, self._leasing, return_exceptions=True)

    def finish(self) -> None:
        """Hand out nothing more: the beginning of `stop`, which may come later."""
        self.over = True
        self._give_back()
        self.arrived()

    async def flush(self, within_s: float = END_S) -> bool:
        """Send acknowledgements, and wait for the answers; returns whether they all came."""
        self._look()
        return await self._until(lambda: self._held.idle, within_s)

    async def close(self) -> None:
        """Give up what is still to be sent, after `stop`."""
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._closed = True
        self._give_up()

    async def switch(self, move: Callable[[], Any], drain_s: float) -> None:
        """Receive nothing, let what was taken be handled, and its acknowledgements be answered, for `drain_s`; then
        `move`, and go on.
        """
        self._pausing += 1
        self._may_receive.clear()
        try:
            self._give_back()
            self.arrived()
            self._held.extend(time.monotonic(), every=True)  # what was taken stays ours without the stream
            await self.flush(drain_s)
            await self._hang_up()
            await self._until(lambda: not self._held.messages and self._held.idle, drain_s)
            await move()
        finally:
            self._pausing -= 1
            if not self._pausing:
                self._may_receive.set()

    async def _until(self, reached: Callable[[], bool], within_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not reached():
                    self._quiet.clear()
                    await self._quiet.wait()
        return reached()

    async def _hang_up(self) -> None:
        """End the stream from this side. What is on its way comes first, and is given back: an exactly-once
        subscription would lend it to nobody else before its lease is over.
        """
        stream = self._stream
        if stream is None:
            return
        with suppress(TimeoutError, SyncpointError):
            async with asyncio.timeout(HANG_UP_S):
                await stream.end()
                while self._stream is stream:
                    self._quiet.clear()
                    await self._quiet.wait()
        stream.cancel()

    # -- messages ----------------------------------------------------------------------------------------------------

    async def _keep_receiving(self) -> None:
        backoff = Backoff(0.1, 3.0)
        while not self.over:
            await self._may_receive.wait()
            address = self._link.present
            try:
                await self._receive(address, backoff)
            except SyncpointError as error:
                if error.code not in PASSING:
                    self._end(error)
                    return
                self._link.failed(address, error)
                self._link.trouble(f"{self.subscription} is received again soon", error)
            finally:
                self._give_back()
            await asyncio.sleep(backoff.failed(random.random))

    async def _receive(self, address: str, backoff: Backoff) -> None:
        link, flow = self._link, self._flow
        self._stream = stream = link.stream(methods.SUBSCRIBER.StreamingPull, address)
        link.waits(1)
        try:
            await stream.send(
                pubsub.StreamingPullRequest(
                    subscription=self.subscription,
                    stream_ack_deadline_seconds=flow.lease_duration,
                    max_outstanding_messages=flow.max_messages,
                    max_outstanding_bytes=flow.max_bytes,
                ).SerializeToString()
            )
            parse = methods.SUBSCRIBER.StreamingPull.response.FromString
            while (payload := await stream.receive()) is not None:
                link.answered(address)
                backoff.succeeded()
                response = parse(payload)
                self.ordered = response.subscription_properties.message_ordering_enabled
                if response.received_messages:
                    self._took(MessageBatch(response.received_messages, address, time.monotonic(), self))
        finally:
            link.waits(-1)
            stream.cancel()
            self._stream = None
            self._quiet.set()

    def _took(self, batch: MessageBatch) -> None:
        self._held.took(batch)
        self.batches.append(batch)
        if self.gives_back:
            self._give_back()
        else:
            self.arrived()

    def _give_back(self) -> None:
        """What waits is delivered again, here or elsewhere."""
        while (batch := self.take()) is not None:
            batch.nack()

    def _end(self, error: SyncpointError) -> None:
        self.error, self.over = error, True
        self._leasing.cancel()
        self.arrived()

    # -- leases ------------------------------------------------------------------------------------------------------

    async def _keep_leases(self) -> None:
        while True:
            await asyncio.sleep(self._flow.lease_duration / 12)
            self._held.extend(time.monotonic())
            self._look()

    def _gather(self) -> None:
        if self._flow.max_messages < GATHER_FROM or any(one.outcome is not None for one in tuple(self.waiting)):
            self._look()
        else:
            self._loop.call_later(GATHER_S, self._look)

    def _changes(self) -> list[LeaseChange]:
        self._woken = False
        return changes_of(self)

    def _give_up(self) -> None:
        """What is not acknowledged by now is delivered again."""
        self._held.change(self._changes(), time.monotonic())
        self._resolve(self._held.give_up())

    def _look(self) -> None:
        if self._closed:
            self._give_up()
            return
        now_s = time.monotonic()
        self._held.change(self._changes(), now_s)
        for call in self._held.calls(now_s):
            task = self._loop.create_task(self._send(call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._timer is not None:
            self._timer.cancel()
        wake_s = self._held.wake_s
        self._timer = None if wake_s is None else self._loop.call_later(max(0.0, wake_s - now_s), self._look)
        self._quiet.set()

    async def _send(self, call: LeaseCall) -> None:
        if call.seconds is None:
            path: methods.Method = methods.SUBSCRIBER.Acknowledge
            request: Any = pubsub.AcknowledgeRequest(subscription=self.subscription, ack_ids=call.ack_ids)
        else:
            path = methods.SUBSCRIBER.ModifyAckDeadline
            request = pubsub.ModifyAckDeadlineRequest(
                subscription=self.subscription, ack_ids=call.ack_ids, ack_deadline_seconds=call.seconds
            )
        try:
            await self._link.call(path, request.SerializeToString(), CALL_S, call.origin)
        except SyncpointError as error:
            known = self._held.failed(call, error, time.monotonic(), self._link.present)
            if not ack_outcomes(error):  # which say what became of each id
                kind = "acknowledged" if call.seconds is None else "extended or given back"
                what = f"{counted(len(call.ack_ids), 'message')} of {self.subscription}"
                self._link.trouble(f"{what} could not be {kind}", error)
        else:
            known = self._held.answered(call)
        self._resolve(known)
        self._look()

    def _resolve(self, known: list[Known]) -> None:
        for outcome, error in known:
            if error is None:
                outcome.set_result(AcknowledgeStatus.SUCCESS)
            else:
                outcome.set_exception(error)
