"""Calls about pipelines to the owners of chains, through adoption and hand-over, and streams that are relayed to them.

Place: under `pipeline_reading` and `pipeline_writing`; at the other end is `pipeline.mounting`.
Promise: who calls a chain waits, within its deadline, until somebody has it open, and receives UNAVAILABLE, naming the
chain, when that is too late. A call that is underway when its chain gets another owner is made again there; a stream is
ended with UNAVAILABLE. Messages pass in order and as they are; a side that is slow slows the other one down.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from syncpoint.base.model.cluster import ChainOwner
from syncpoint.base.model.errors import Code, SyncpointError, Unavailable, Unprocessed
from syncpoint.base.runtime.tasks import Tasks, stop
from syncpoint.broker.pipeline.mounting import CHAIN, REVISION
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.front.proxy.retrying import PAUSES_S, stepped
from syncpoint.wire.transport.calls import CallContext, Streaming, StreamingCall
from syncpoint.wire.transport.client import MetadataItems
from syncpoint.wire.transport.network import AnyStream
from syncpoint.wire.transport.stream_state import Message

DEADLINE_S = 30.0  # of callers who name none
LOOK_S = 0.4  # members and rules may have changed, and no owner

_Value = TypeVar("_Value")
log = logging.getLogger(__name__)


class ChainCalls:
    """Send pipeline calls to the owners of chains, through changes of ownership, and relay streams to them."""

    def __init__(self, view: ClusterView, peers: PeerChannels, catalog: Catalog) -> None:
        self._view, self._peers, self._catalog = view, peers, catalog
        self._changed: asyncio.Future[None] | None = None
        view.owners.listeners.append(lambda chains: self._wake())

    async def call(self, chain: int, path: str, request: bytes, deadline: float, *, again: bool = True) -> bytes:
        """The answer of a chain's owner. `again`: the call may be made twice; otherwise it is made again only where the
        first one surely did nothing. Raises `SyncpointError`.
        """
        turns, reason = 0, "no process has it open"
        while (left_s := deadline - _now()) > 0:
            owner = self._view.owner(chain)
            if owner is not None:
                channel = self._peers.channel(owner.address)
                call = channel.unary(path, request, metadata=self._named(chain), timeout=stepped(left_s))
                try:
                    return await self.while_owner(chain, owner, call)
                except SyncpointError as error:
                    if error.code is not Code.UNAVAILABLE or not (again or isinstance(error, Unprocessed)):
                        raise
                    reason = error.message
            await self._change(min(left_s, PAUSES_S[min(turns, len(PAUSES_S) - 1)]))
            turns += 1
        raise Unavailable(f"Chain {chain} did not answer in time: {reason}. Try again.")

    async def owner(self, chain: int, deadline: float) -> ChainOwner:
        """Who has a chain open. Raises `Unavailable` when nobody has in time."""
        while (owner := self._view.owner(chain)) is None:
            await self.change(deadline, f"chain {chain}")
        return owner

    async def change(self, deadline: float, what: str) -> None:
        """Return when some chain has another owner, or it is time to look. Raises `Unavailable`, saying that nobody has
        `what` open.
        """
        left_s = deadline - _now()
        if left_s <= 0:
            raise Unavailable(f"No process has {what} open now. Try again.")
        await self._change(min(left_s, LOOK_S))

    def stream(self, chain: int, owner: ChainOwner, path: str) -> AnyStream:
        """A stream to a chain's owner; to be given to `close`."""
        return self._peers.stream(owner.address, path, self._named(chain))

    def close(self, owner: ChainOwner, stream: AnyStream) -> None:
        """A stream is over, or given up."""
        stream.cancel()
        self._peers.unpin(owner.address)

    async def while_owner(self, chain: int, owner: ChainOwner, work: Coroutine[None, None, _Value]) -> _Value:
        """What a coroutine returns. Raises `Unavailable` when the chain gets another owner before it does."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait((task, self._next_change()), return_when=asyncio.FIRST_COMPLETED)
                if not task.done() and self._view.owner(chain) != owner:
                    raise Unavailable(f"Chain {chain} is moving to another owner. Try again.")
            return task.result()
        finally:
            await stop([task])

    def _named(self, chain: int) -> MetadataItems:
        return ((CHAIN, b"%d" % chain), (REVISION, b"%d" % self._catalog.revision))

    async def _change(self, seconds: float) -> None:
        await asyncio.wait((self._next_change(),), timeout=seconds)

    def _next_change(self) -> asyncio.Future[None]:
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)


class RelayedStream:
    """A client's stream, for a coroutine: what came is received, what is sent waits until the client takes it."""

    def __init__(self, stream: StreamingCall) -> None:
        self.stream = stream
        self._came: deque[bytes] = deque()
        self._ended = False
        self._moved = asyncio.Event()
        stream.on_message, stream.on_end = self._message, self._end
        stream.on_writable = self._moved.set

    async def receive(self) -> bytes | None:
        """The next message; None after the last one."""
        while not self._came:
            if self._ended:
                return None
            await self._move()
        message = self._came.popleft()
        self.stream.keep(-len(message))
        return message

    async def send(self, message: Message) -> None:
        """Send a message, once the client takes more."""
        while not self.stream.writable:
            await self._move()
        self.stream.send(message)

    async def _move(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def _message(self, message: bytes) -> None:
        self.stream.keep(len(message))
        self._came.append(message)
        self._moved.set()

    def _end(self) -> None:
        self._ended = True
        self._moved.set()


class Relays:
    """All streams that are relayed now."""

    def __init__(self) -> None:
        self._tasks = Tasks()

    def method(self, work: Callable[[RelayedStream], Awaitable[None]]) -> Streaming:
        """A method with streams, written as a coroutine. Its end is that of the stream."""

        def handler(stream: StreamingCall) -> None:
            client = RelayedStream(stream)

            async def run() -> None:
                await work(client)

            task = self._tasks.start(run())
            task.add_done_callback(lambda task: stream.finish(_end_of(task)))
            stream.on_cancel = stream.on_drain = task.cancel

        return Streaming(handler)

    async def close(self) -> None:
        """End them."""
        await self._tasks.stop()


def _end_of(task: asyncio.Task[None]) -> SyncpointError | None:
    """How the stream ends that a task has relayed."""
    if task.cancelled():
        return Unavailable("The proxy is stopping. Continue at another one.")
    error = task.exception()
    if error is None or isinstance(error, SyncpointError):
        return error
    log.error("relaying a stream failed", exc_info=error)
    return SyncpointError(Code.INTERNAL, "Internal error.")


def deadline_of(call: CallContext) -> float:
    """When the caller of a method gives up, in the time of the loop."""
    return _now() + DEADLINE_S if call.deadline is None else call.deadline


def _now() -> float:
    return asyncio.get_running_loop().time()
