"""Sends what a `PublishQueue` decides, on an event loop; messages come from any thread.

Place: under both publishers. Promise: an outcome is known once the server has answered, or when it is given up; it is
set outside of the lock, so that whatever waits for it may publish again.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.client.client_errors import FlowControlLimitError
from syncpoint.client.client_options import BatchSettings, ClientRetry, LimitExceededBehavior, PublishFlowControl
from syncpoint.client.publish_queue import OutgoingRequest, PublishEntry, PublishQueue
from syncpoint.client.service_link import ServiceLink
from syncpoint.wire.protobuf import methods

STOPPED: Final = "the publisher is stopped"


class PublishDriver:
    """Made on its loop; `submit` and what waits for room may be called from other threads."""

    def __init__(self, link: ServiceLink, batch: BatchSettings, flow: PublishFlowControl, retry: ClientRetry) -> None:
        self._link, self._flow, self._retry = link, flow, retry
        self._loop = asyncio.get_running_loop()
        self._queue = PublishQueue(batch, retry, random.random)
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._waiting: set[asyncio.Future[None]] = set()  # of coroutines
        self._woken = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.stopped = False

    def submit(
        self,
        topic: str,
        ordering_key: str,
        entry: PublishEntry,
        behavior: LimitExceededBehavior = LimitExceededBehavior.IGNORE,
    ) -> None:
        """Take encoded messages. `behavior`: at the limits of flow control; BLOCK is for threads that are not the
        loop's. Raises `FlowControlLimitError`, `PausedOrderingKeyError`, and `RuntimeError` where it is stopped.
        """
        with self._lock:
            if behavior is not LimitExceededBehavior.IGNORE and not self._fits(entry):
                self._refuse(behavior)
                if behavior is LimitExceededBehavior.BLOCK:
                    self._room.wait_for(lambda: self.stopped or self._fits(entry))
            if self.stopped:
                raise RuntimeError(STOPPED)
            if self._queue.add(topic, ordering_key, entry, time.monotonic()) and not self._woken:
                self._woken = True
                self._loop.call_soon_threadsafe(self._look)

    async def room(self, entry: PublishEntry, behavior: LimitExceededBehavior) -> None:
        """Wait for room for this, in a coroutine, where that is the behavior. Raises `FlowControlLimitError`."""
        while True:
            with self._lock:
                if self.stopped or behavior is LimitExceededBehavior.IGNORE or self._fits(entry):
                    return
                self._refuse(behavior)
                waiting: asyncio.Future[None] = self._loop.create_future()
                self._waiting.add(waiting)
            try:
                await waiting
            finally:
                self._waiting.discard(waiting)

    @property
    def behavior(self) -> LimitExceededBehavior:
        """What single messages do at the limits."""
        return self._flow.limit_exceeded_behavior

    def resume(self, topic: str, ordering_key: str) -> None:
        """Take messages of a paused key again."""
        with self._lock:
            self._queue.resume(topic, ordering_key)

    async def flush(self) -> None:
        """Send what is here, and wait until nothing is any more. Outcomes say what became of it."""
        while True:
            with self._lock:
                if not self._queue.messages:
                    return
                self._queue.flush(time.monotonic())
                waiting: asyncio.Future[None] = self._loop.create_future()
                self._waiting.add(waiting)
            self._look()
            await waiting

    async def stop(self, timeout_s: float | None) -> bool:
        """Take nothing more, and send what is here, for `timeout_s` at most; what is left then fails with CANCELLED.
        Returns whether all outcomes were known by then.
        """
        with self._lock:
            self.stopped = True
            self._room.notify_all()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.flush(), timeout_s)
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with self._lock:
            left = self._queue.give_up()
        error = SyncpointError(Code.CANCELLED, "The publisher was stopped first. It is not known whether it is stored.")
        for entry in left:
            if not entry.outcome.done():
                entry.outcome.set_exception(error)
        return not left

    def _fits(self, entry: PublishEntry) -> bool:
        queue, flow = self._queue, self._flow
        if not queue.messages:
            return True  # what is larger than the limit goes alone
        return (
            queue.messages + entry.count <= flow.message_limit and queue.nbytes + len(entry.encoded) <= flow.byte_limit
        )

    def _refuse(self, behavior: LimitExceededBehavior) -> None:
        flow = self._flow
        if behavior is LimitExceededBehavior.ERROR:
            raise FlowControlLimitError(
                f"{self._queue.messages:,} messages of {self._queue.nbytes:,} bytes wait to be stored: the limits are"
                f" {flow.message_limit:,} and {flow.byte_limit:,}. Publish later, or with larger limits."
            )

    def _look(self) -> None:
        with self._lock:
            self._woken = False
            requests = self._queue.due(time.monotonic())
            wake_s = self._queue.wake_s
        for request in requests:
            task = self._loop.create_task(self._send(request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if wake_s is None else self._loop.call_later(max(0.0, wake_s - time.monotonic()), self._look)

    async def _send(self, request: OutgoingRequest) -> None:
        publish = methods.PUBLISHER.Publish
        try:
            answer = await self._link.call(publish, request.encoded(), self._retry.timeout)
            ids = list(publish.response.FromString(answer).message_ids)
            if len(ids) != request.messages:
                raise SyncpointError(Code.DATA_LOSS, f"{len(ids)} ids for {request.messages} messages")
        except SyncpointError as error:
            with self._lock:
                failed = self._queue.failed(request, error, time.monotonic())
            if not failed:
                self._link.trouble(f"messages for {request.lane.topic} are sent again soon", error)
            for entry in failed:
                if not entry.outcome.done():  # a coroutine that waited for it may have been cancelled
                    entry.outcome.set_exception(error)
        else:
            with self._lock:
                self._queue.answered(request, time.monotonic())
            self._answer(request.entries, ids)
        self._freed()
        self._look()

    def _answer(self, entries: Iterable[PublishEntry], ids: list[str]) -> None:
        at = 0
        for entry in entries:
            if not entry.outcome.done():
                entry.outcome.set_result(ids[at] if entry.single else ids[at : at + entry.count])
            at += entry.count

    def _freed(self) -> None:
        with self._lock:
            self._room.notify_all()
            waiting = [one for one in self._waiting if not one.done()]
        for one in waiting:
            one.set_result(None)
