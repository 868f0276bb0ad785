"""Subscribers: `Subscriber` for threads, `AsyncSubscriber` for coroutines.

Place: what applications use to receive. Both hold a link to the service and a `Reception` for each subscription that is
being received.
Promises: a message is delivered again until it is acknowledged; while it is held here, nobody else gets it. How far a
subscription is handled is kept by the server, so that a subscriber that fails over or starts anew goes on from there.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from syncpoint.client.callback_work import Callback, CallbackThreads, KeyedWork
from syncpoint.client.client_future import ClientFuture
from syncpoint.client.client_options import FlowControl
from syncpoint.client.loop_thread import LoopThread
from syncpoint.client.received_messages import Message, MessageBatch
from syncpoint.client.reception import Reception
from syncpoint.client.service_link import DRAIN_S, Connecting, ServiceLink, log
from syncpoint.front.client.credentials import CallCredentials

WORKERS: Final = 10
CONCURRENCY: Final = 100

Tls = ssl.SSLContext | str | Path
Shown = CallCredentials | str | Path


def subscription_path(project: str, subscription: str) -> str:
    """The full name of a subscription."""
    return f"projects/{project}/subscriptions/{subscription}"


class _Receptions:
    """Everything that is received over one link; on its loop."""

    def __init__(self, connecting: Connecting) -> None:
        self.link = ServiceLink(connecting)
        self.link.return_to = self.switch_to
        self._open: list[Reception] = []

    def begin(self, subscription: str, flow: FlowControl, arrived: Callable[[], None]) -> Reception:
        self._open = [one for one in self._open if not one.done]
        self._open.append(Reception(self.link, subscription, flow, arrived))
        return self._open[-1]

    async def switch_to(self, address: str, drain_s: float = DRAIN_S) -> None:
        """All move together: the last one that is ready lets the link switch."""
        self.link.check_known(address)
        if address == self.link.present:
            return
        running = [one for one in self._open if not one.over]
        moved = asyncio.Event()
        left = len(running)

        async def move() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                await self.link.switch_to(address, drain_s)
                moved.set()
            await moved.wait()

        if running:
            await asyncio.gather(*(one.switch(move, drain_s) for one in running))
        else:
            await self.link.switch_to(address, drain_s)

    async def close(self) -> None:
        await asyncio.gather(*(one.stop() for one in self._open))
        await asyncio.gather(*(one.flush() for one in self._open))
        await asyncio.gather(*(one.close() for one in self._open))
        await self.link.close()


class AsyncSubscriber:
    """Receives in coroutines of one event loop; an async context manager."""

    def __init__(
        self,
        addresses: Sequence[str] | str | None = None,
        *,
        flow_control: FlowControl | None = None,
        tls: Tls | None = None,
        credentials: Shown | None = None,
        prefer_first: bool = False,
    ) -> None:
        """`addresses`: HOST:PORT, one or several (see `Connecting.of` for what the environment gives). Raises
        `InvalidArgument`.
        """
        self._connecting = Connecting.of(addresses, tls=tls, credentials=credentials, prefer_first=prefer_first)
        self._flow = flow_control or FlowControl()
        self._made: _Receptions | None = None

    async def __aenter__(self) -> Self:
        self._receptions()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    subscription_path = staticmethod(subscription_path)

    @property
    def address(self) -> str:
        """Where messages come from now."""
        return self._receptions().link.present

    @property
    def repeats(self) -> int:
        """How many calls and streams failed for a moment, and were made again."""
        return self._receptions().link.troubles

    async def batches(
        self, subscription: str, *, flow_control: FlowControl | None = None, timeout: float | None = None
    ) -> AsyncGenerator[MessageBatch, None]:
        """Batches as they come, until nothing has come for `timeout` seconds, or without end. What is left when the
        iteration ends is given back. Raises `SyncpointError` for a refusal that lasts.
        """
        arrived = asyncio.Event()
        reception = self._receptions().begin(subscription, flow_control or self._flow, arrived.set)
        try:
            while True:
                batch = reception.take()
                if batch is not None:
                    yield batch
                    continue
                if reception.over:
                    if reception.error is not None:
                        raise reception.error
                    return
                arrived.clear()
                if not reception.batches and not reception.over:
                    try:
                        await asyncio.wait_for(arrived.wait(), timeout)
                    except TimeoutError:
                        return
        finally:
            await reception.stop()

    async def messages(
        self, subscription: str, *, flow_control: FlowControl | None = None, timeout: float | None = None
    ) -> AsyncGenerator[Message, None]:
        """As `batches`, one message after the other."""
        found = self.batches(subscription, flow_control=flow_control, timeout=timeout)
        try:
            async for batch in found:
                for message in batch:
                    yield message
        finally:
            await found.aclose()

    async def subscribe(
        self,
        subscription: str,
        callback: Callable[[Message], Awaitable[object]],
        *,
        flow_control: FlowControl | None = None,
        concurrency: int = CONCURRENCY,
    ) -> None:
        """Call back for each message, `concurrency` of them at once, those of an ordering key one after the other,
        until the task is cancelled. A message whose callback raises is given back. Raises `SyncpointError` for a
        refusal that lasts.
        """
        work, changed = KeyedWork(), asyncio.Condition()

        async def keep_working() -> None:
            while True:
                async with changed:
                    await changed.wait_for(lambda: work.ready)
                    message = work.ready.popleft()
                try:
                    await callback(message)
                except Exception:
                    log.exception("The callback failed; message %s is given back.", message.message_id)
                    message.nack()
                except asyncio.CancelledError:
                    message.nack()
                    raise
                async with changed:
                    work.handled(message)
                    changed.notify_all()

        workers = [asyncio.ensure_future(keep_working()) for _ in range(concurrency)]
        found = self.batches(subscription, flow_control=flow_control)
        try:
            async for batch in found:
                async with changed:
                    work.offer(batch)
                    changed.notify_all()
                    await changed.wait_for(lambda: len(work.ready) < concurrency)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            for message in work.drop():
                message.nack()
            await found.aclose()

    async def switch_to(self, address: str, drain_s: float = DRAIN_S) -> None:
        """Receive from another one of the addresses from now on. What was not handed out is given back; what was may be
        handled, and its acknowledgements are answered, for `drain_s` before the move. Raises `ValueError`.
        """
        await self._receptions().switch_to(address, drain_s)

    async def close(self) -> None:
        """Give back what was not handed out, send acknowledgements, and close the connections."""
        await self._receptions().close()

    def _receptions(self) -> _Receptions:
        if self._made is None:
            self._made = _Receptions(self._connecting)
        return self._made


class StreamingPullFuture(ClientFuture[None]):
    """What `subscribe` returns: `result` waits for its end, and `cancel` brings that about."""

    def __init__(self, stop: Callable[[], None]) -> None:
        super().__init__()
        self._stop = stop

    def cancel(self) -> bool:
        """Stop receiving: messages whose callbacks have not begun are given back, those under way are waited for by
        `result`.
        """
        if self.done():
            return False
        self._stop()
        return True


class Subscriber:
    """Receives in threads; a context manager."""

    def __init__(
        self,
        addresses: Sequence[str] | str | None = None,
        *,
        flow_control: FlowControl | None = None,
        tls: Tls | None = None,
        credentials: Shown | None = None,
        prefer_first: bool = False,
    ) -> None:
        """As `AsyncSubscriber`."""
        connecting = Connecting.of(addresses, tls=tls, credentials=credentials, prefer_first=prefer_first)
        self._flow = flow_control or FlowControl()
        self._thread = LoopThread("syncpoint-subscriber")
        self._closed = False
        self._ends: dict[threading.Thread, StreamingPullFuture] = {}

        async def make() -> _Receptions:
            return _Receptions(connecting)

        self._receptions = self._thread.run(make())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    subscription_path = staticmethod(subscription_path)

    @property
    def address(self) -> str:
        """Where messages come from now."""
        return self._receptions.link.present

    def batches(
        self, subscription: str, *, flow_control: FlowControl | None = None, timeout: float | None = None
    ) -> Iterator[MessageBatch]:
        """As `AsyncSubscriber.batches`."""
        changed = threading.Condition()

        def arrived() -> None:
            with changed:
                changed.notify_all()

        reception = self._begin(subscription, flow_control, arrived)
        try:
            while True:
                batch = reception.take()
                if batch is not None:
                    yield batch
                    continue
                with changed:
                    came = changed.wait_for(lambda: reception.batches or reception.over, timeout)
                if not came:
                    return
                if reception.over and not reception.batches:
                    if reception.error is not None:
                        raise reception.error
                    return
        finally:
            if not self._closed:
                self._thread.run(reception.stop())

    def messages(
        self, subscription: str, *, flow_control: FlowControl | None = None, timeout: float | None = None
    ) -> Iterator[Message]:
        """As `batches`, one message after the other."""
        for batch in self.batches(subscription, flow_control=flow_control, timeout=timeout):
            yield from batch

    def subscribe(
        self,
        subscription: str,
        callback: Callback,
        *,
        flow_control: FlowControl | None = None,
        workers: int = WORKERS,
        await_callbacks_on_shutdown: bool = True,
    ) -> StreamingPullFuture:
        """Call back for each message in one of `workers` threads; messages of an ordering key one after the other. A
        message whose callback raises is given back.
        """
        threads = CallbackThreads(callback, workers)
        stopping = threading.Event()
        future = StreamingPullFuture(stopping.set)

        def arrived() -> None:
            if threads.arrived():
                stopping.set()

        async def finish() -> None:
            reception.finish()

        def end() -> None:
            stopping.wait()
            with suppress(RuntimeError):  # the subscriber was closed first
                self._thread.run(finish())
                if await_callbacks_on_shutdown:
                    threads.join()
                self._thread.run(reception.stop())
            self._ends.pop(threading.current_thread(), None)
            if reception.error is not None:
                future.set_exception(reception.error)
            else:
                future.set_result(None)

        reception = self._begin(subscription, flow_control, arrived)
        threads.start(reception)
        arrived()
        thread = threading.Thread(target=end, name="syncpoint-subscription-end", daemon=True)
        self._ends[thread] = future
        thread.start()
        return future

    def switch_to(self, address: str, drain_s: float = DRAIN_S) -> None:
        """As `AsyncSubscriber.switch_to`."""
        self._thread.run(self._receptions.switch_to(address, drain_s))

    def close(self) -> None:
        """Give back what was not handed out, send acknowledgements, and close the connections. Callbacks under way are
        waited for, DRAIN_S at most.
        """
        if self._closed or self._thread.forked:
            return
        self._thread.check(waits=True)
        self._closed = True
        end_s = time.monotonic() + DRAIN_S
        for thread, future in list(self._ends.items()):
            future.cancel()
            thread.join(max(0.0, end_s - time.monotonic()))
        try:
            self._thread.run(self._receptions.close())
        finally:
            self._thread.stop()

    def _begin(self, subscription: str, flow: FlowControl | None, arrived: Callable[[], None]) -> Reception:
        async def begin() -> Reception:
            return self._receptions.begin(subscription, flow or self._flow, arrived)

        return self._thread.run(begin())
