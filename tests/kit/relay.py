"""A relay between a client and a server: what passes is delayed, refused, lost, doubled or changed as a test says.

`FaultyRelay` speaks gRPC and knows the methods of Pub/Sub and of administration; `FaultyPushes` passes on pushes, which
are HTTP. Both run in threads of their own. Without faults they change nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from email.message import Message
from functools import partial
from typing import Any

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.transport.calls import Call, Methods, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.client import Channel, ClientStream
from syncpoint.wire.transport.server import serve
from syncpoint.wire.transport.tasks import unary_async
from tests.kit.in_threads import HttpThread, LoopThread

SERVICES = (methods.PUBLISHER, methods.SUBSCRIBER, methods.ADMIN)


@dataclass
class RelayFault:
    """What becomes of the calls of one method whose request names something that `about` matches.

    `error`: they are refused with this; `swallow`: they are answered, and the server gets nothing of them; `request`,
    `answer`: change a message in place, and return for how many seconds it is held up (None: not at all). `skip`: so
    many calls pass first; `times`: so many are hit (None: all). Of a stream, each message passes `answer`.
    """

    method: Method
    about: str = ""
    error: Code | None = None
    swallow: bool = False
    request: Callable[[Any], float | None] | None = None
    answer: Callable[[Any], float | None] | None = None
    skip: int = 0
    times: int | None = None
    seen: int = field(default=0, init=False)
    hits: int = field(default=0, init=False)

    def meets(self, method: str, named: str) -> bool:
        """Whether a call is hit; counts."""
        if method != self.method or not re.search(self.about, named):
            return False
        self.seen += 1
        if self.seen <= self.skip or (self.times is not None and self.hits >= self.times):
            return False
        self.hits += 1
        return True


class FaultyRelay(LoopThread):
    """See the module. Use it as a context manager; `endpoint` is where clients connect."""

    def __init__(self, target: str, faults: Sequence[RelayFault] = ()) -> None:
        self.faults = list(faults)
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        super().__init__()
        self._tasks: set[asyncio.Task[None]] = set()

    async def opened(self) -> None:
        self._channel = Channel(self._host, self._port)
        table: dict[bytes, Unary | Streaming] = {}
        for method in (one for service in SERVICES for one in service):
            if not method.is_streaming:
                table[method.encode()] = unary_async(partial(self._unary, method))
        table[methods.SUBSCRIBER.StreamingPull.encode()] = Streaming(self._stream)
        served: Methods = table
        self._server = await serve(served)
        self.endpoint = f"127.0.0.1:{self._server.port}"

    async def closed(self) -> None:
        await self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channel.close()

    async def _unary(self, method: Method, call: Call, body: bytes) -> bytes:
        hit = [one for one in self.faults if one.meets(method, body.decode(errors="replace"))]
        for one in hit:
            if one.error is not None:
                raise SyncpointError(one.error, "refused by a fault")
            if one.swallow:
                return b""
        for one in hit:
            if one.request is not None:
                message = method.request.FromString(body)
                await _held(one.request(message))
                body = message.SerializeToString()
        left = None if call.deadline is None else max(0.01, call.deadline - self.loop.time())
        answer = await self._channel.unary(method, body, timeout=left)
        for one in hit:
            if one.answer is not None:
                message = method.response.FromString(answer)
                await _held(one.answer(message))
                answer = message.SerializeToString()
        return answer

    def _stream(self, call: StreamingCall) -> None:
        there = self._channel.stream(methods.SUBSCRIBER.StreamingPull)
        hit: list[RelayFault] = []
        known = False

        async def pass_on(payload: bytes) -> None:
            nonlocal known
            request = pubsub.StreamingPullRequest.FromString(payload)
            if not known:
                known = True
                hit.extend(one for one in self.faults if one.meets(methods.SUBSCRIBER.StreamingPull, str(request)))
                refusal = next((one.error for one in hit if one.error is not None), None)
                if refusal is not None:
                    call.finish(SyncpointError(refusal, "refused by a fault"))
                    there.cancel()
                    return
            with contextlib.suppress(SyncpointError):  # the other side says how it ended
                await there.send(payload)

        waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        call.on_message = waiting.put_nowait
        call.on_end = lambda: waiting.put_nowait(None)
        call.on_cancel = there.cancel
        self._start(_pumped(waiting, pass_on, there))
        self._start(self._back(call, there, hit))

    async def _back(self, call: StreamingCall, there: ClientStream, hit: Sequence[RelayFault]) -> None:
        try:
            while (payload := await there.receive()) is not None:
                for one in hit:
                    if one.answer is not None:
                        message = pubsub.StreamingPullResponse.FromString(payload)
                        await _held(one.answer(message))
                        payload = message.SerializeToString()
                call.send(payload)
            call.finish()
        except SyncpointError as error:
            call.finish(error)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _pumped(
    waiting: asyncio.Queue[bytes | None], pass_on: Callable[[bytes], Coroutine[Any, Any, None]], there: ClientStream
) -> None:
    while (payload := await waiting.get()) is not None:
        await pass_on(payload)
    with contextlib.suppress(SyncpointError):
        await there.end()


async def _held(seconds: float | None) -> None:
    if seconds:
        await asyncio.sleep(seconds)


@dataclass
class PushFault:
    """What becomes of pushes: held up for so many seconds, passed on so often."""

    delay_s: float = 0.0
    times: int = 1


class FaultyPushes(HttpThread):
    """A port that passes pushes on to another one; `url` is where it is."""

    def __init__(self, target_port: int, fault: PushFault | None = None) -> None:
        self._target, self._fault = f"http://127.0.0.1:{target_port}", fault or PushFault()
        self._whole = threading.Lock()
        super().__init__(self._pass_on)

    def _pass_on(self, path: str, headers: Message, body: bytes) -> tuple[int, bytes]:
        time.sleep(self._fault.delay_s)
        with self._whole:  # a push has come as often as it shall before the next one comes: the receiver may go then
            return [self._passed_on(path, body) for _ in range(self._fault.times)][-1], b""

    def _passed_on(self, path: str, body: bytes) -> int:
        request = urllib.request.Request(f"{self._target}{path}", body)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 502
