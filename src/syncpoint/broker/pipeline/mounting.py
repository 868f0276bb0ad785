"""Pipelines on chains: the reading and the writing side of every chain that is open in a process, and their methods.

Place: `Pipelines.mount` is given to the host of chains (`publish.chain.ChainContext`); its methods stand in the table
of every publish forwarder process, for proxies. Which chain is meant, and the revision of the catalog by which it is to
be judged at least, a call has in its metadata, so requests and frames pass through a proxy as they are.
Promise: a chain that is not open here is refused as UNAVAILABLE, with nothing done; when a chain ends, so do the
streams of its readers and writers. Positions are reported only by who still owns the chain when it reports them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, SyncpointError, Unavailable
from syncpoint.base.runtime.child_processes import Apart, at_once
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.broker.pipeline.ack_exchange import AckExchange
from syncpoint.broker.pipeline.cursor_names import cursors_of
from syncpoint.broker.pipeline.exclusive_readers import ChainReaders
from syncpoint.broker.pipeline.home import HomeRecords
from syncpoint.broker.pipeline.homes import link_key, query_key
from syncpoint.broker.pipeline.reading import LogReader
from syncpoint.broker.pipeline.writing import EpochWriter
from syncpoint.broker.publish.chain.chain import Chain
from syncpoint.broker.publish.chain.host import ChainHost
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.keep.upkeep import TICK_S
from syncpoint.catalog.metadata.catalog import CatalogCopy
from syncpoint.wire.protobuf.methods import ACK_EXCHANGE, EPOCH_WRITER, LOG_READER, Method
from syncpoint.wire.protobuf.serving import parsed
from syncpoint.wire.transport.calls import Call, CallContext, Methods, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.stream_state import Message
from syncpoint.wire.transport.tasks import unary_async

CHAIN, REVISION = b"syncpoint-chain", b"syncpoint-revision"  # of a call's metadata
UNARY = (
    *(LOG_READER[name] for name in ("GetPositions", "ListCursors", "DeleteCursor")),
    *(EPOCH_WRITER[name] for name in ("CommitEpoch", "AbortEpoch", "ListLinks", "AcceptGap", "MapOffsets")),
    *(ACK_EXCHANGE[name] for name in ("AckChanges", "MergeAcks")),
)
STREAMS = (LOG_READER.ReadRange, EPOCH_WRITER.Stage)
READ_S = 0.5  # between two ticks of a reading side
TIDY_S = 60.0  # between two looks for stages and queries that nobody uses
OBEYED_MS = (
    100  # how long after its disks have obeyed it, an owner reports positions: no other one can have reported any since
)

log = logging.getLogger(__name__)


class ChainHome:
    """`home.Home` of a chain: the metadata say what is at home there, its ingress opens sources."""

    def __init__(self, chain: Chain, homes: HomeRecords) -> None:
        self._chain, self._homes = chain, homes
        self.queries: Collection[str] = ()  # those in the chain's log
        self.links: Collection[str] = ()
        self.elsewhere: set[str] = set()  # keys of some of them: the metadata name another chain

    def knows(self, query: str, link: str) -> bool:
        return not self.elsewhere and query in self.queries and (not link or link in self.links)

    async def admit(self, query: str, link: str) -> None:
        asked = [("query", query, query_key(query), query in self.queries)]
        if link:
            asked.append(("link", link, link_key(link), link in self.links))
        for kind, name, key, known in asked:
            if key in self.elsewhere or (not known and await self._homes.chain_at(key) != self._chain.number):
                raise FailedPrecondition(f"The {kind} {name} is not assigned to chain {self._chain.number}.")

    async def pin(self, topics: Collection[int]) -> None:
        pinned: list[int] = []
        try:
            for topic in sorted(topics):
                await self._chain.ingress.pin(topic)
                pinned.append(topic)
        except BaseException as error:
            self.unpin(pinned)
            if isinstance(error, SyncpointError):
                raise Unavailable(f"Chain {self._chain.number} cannot accept messages now: {error.message}") from error
            raise

    def unpin(self, topics: Collection[int]) -> None:
        for topic in topics:
            self._chain.ingress.unpin(topic)

    def open_source(self, topic: int) -> Source:
        return self._chain.ingress.open_pinned(topic)

    def note_load(self, topic: int, messages: int, nbytes: int) -> None:
        self._chain.ingress.note_load(topic, messages, nbytes)


class ChainPipelines:
    """Both sides of one chain; `publish.chain.Mounted`."""

    def __init__(self, chain: Chain, homes: HomeRecords, apart: Apart = at_once) -> None:
        loop = asyncio.get_running_loop()
        self._chain, self._homes = chain, homes
        self._clock = chain.context.environment.clock
        self.home = ChainHome(chain, homes)
        alone = ChainReaders(chain.forwarder, chain.holders.grants.attached)
        self.reader = LogReader(chain.forwarder, alone, loop.call_soon)
        self.writer = EpochWriter(chain.forwarder, loop.call_soon, loop.call_later, self.home, apart=apart)
        self.home.queries, self.home.links = self.writer.state.queries, self.writer.state.links
        self.acks = AckExchange(chain.forwarder, self.writer.state)
        self.unary = {**self.reader.unary(), **self.writer.unary(), **self.acks.unary()}
        self.streams = {LOG_READER.ReadRange: self.reader.read_range, EPOCH_WRITER.Stage: self.writer.stage}
        self._left: set[str] = set()  # queries whose records are gone
        self._releasing: asyncio.Task[None] | None = None
        self._read_at = self._tidy_at = self._clock.monotonic()
        self._recovered = self._closed = False

    def methods(self) -> Methods:
        """The methods of all services, for who serves this chain alone."""
        return {**self.reader.methods(), **self.writer.methods(), **self.acks.methods()}

    async def recover(self) -> None:
        """Claim the home records and finish decided epochs."""
        keys = {*map(query_key, self.home.queries), *map(link_key, self.home.links)}
        self.home.elsewhere = await self._homes.claim(self._chain.number, keys)
        for key in sorted(self.home.elsewhere):
            log.error("%s is in the log of chain %d, and at home in another one", key, self._chain.number)
        await self.writer.finish_decided()
        self.acks.recover()
        self._recovered = True

    def opening(self, topic: int) -> None:
        """Create the topic's cursors in this chain before its first message, so that they hold all messages."""
        for name, limits in cursors_of(self._chain.forwarder.catalog, topic).items():
            self.reader.ensure(topic, name, limits)

    def tick(self) -> None:
        now = self._clock.monotonic()
        if self._closed or not self._recovered or self._chain.forwarder.commit.failed is not None:
            return
        if now >= self._read_at:
            self._read_at = now + READ_S - TICK_S / 2
            self.reader.tick()
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_S
            self.writer.tidy(self._left.__contains__)
            self.acks.tidy()
            self._left.intersection_update(self.home.queries)
            self.writer.leaving.intersection_update(self.home.queries)
            silent = self.writer.state.silent(self._chain.forwarder.clock.sure_ns())
            if silent and self._releasing is None:
                self._releasing = asyncio.get_running_loop().create_task(self._release_homes(silent))

    async def _release_homes(self, queries: list[str]) -> None:
        """Their records go first, and nobody may use them in the meantime: a query never has two homes."""
        self.writer.leaving.update(queries)
        try:
            await self._homes.release(self._chain.number, map(query_key, queries))
            self._left.update(queries)
        except SyncpointError as error:
            log.info("queries of chain %d are forgotten later: %s", self._chain.number, error)
        finally:
            self._releasing = None

    def close(self, error: SyncpointError) -> None:
        self._closed = True
        if self._releasing is not None:
            self._releasing.cancel()
        self.reader.close(error)
        self.writer.close(error)


class Pipelines:
    """The methods of LogReader, EpochWriter and AckExchange for all chains of a process."""

    def __init__(self, homes: HomeRecords, shared: CatalogCopy, apart: Apart = at_once) -> None:
        self._homes, self._shared, self._apart = homes, shared, apart
        self._tasks = Tasks()

    def mount(self, chain: Chain) -> ChainPipelines:
        return ChainPipelines(chain, self._homes, self._apart)

    def methods(self, host: ChainHost) -> Methods:
        """By path; a call names its chain."""
        table: dict[bytes, Unary | Streaming] = {}
        for path in UNARY:
            table[path.encode()] = unary_async(partial(self._unary, host, path))
        for path in STREAMS:
            table[path.encode()] = Streaming(partial(self._stream, host, path))
        return table

    async def _unary(self, host: ChainHost, path: Method, call: Call, request: bytes) -> Message:
        await self._caught_up(call)
        chain, mounted = _asked(host, call)
        answer = await mounted.unary[path](parsed(path.request, request))
        if path == LOG_READER.GetPositions and chain.holders.owned_age_ms() > OBEYED_MS:
            await chain.confirm()  # a later owner may have more: only who can still write the log knows all of it
        encoded: bytes = answer.SerializeToString()
        return encoded

    async def _caught_up(self, call: CallContext) -> None:
        await self._shared.at(_number(call, REVISION))

    def _stream(self, host: ChainHost, path: Method, stream: StreamingCall) -> None:
        try:
            _, mounted = _asked(host, stream)
            behind = _number(stream, REVISION) > self._shared.catalog.revision
        except SyncpointError as error:
            stream.finish(error)
            return
        if not behind:
            mounted.streams[path](stream)
            return
        late = _Late(stream, lambda: _asked(host, stream)[1].streams[path](stream))
        late.task = self._tasks.start(late.run(self._caught_up(stream)))
        stream.on_cancel = late.cancel


class _Late:
    """A stream whose method begins later: what comes in the meantime is kept for it."""

    def __init__(self, stream: StreamingCall, begin: Callable[[], None]) -> None:
        self._stream, self._begin = stream, begin
        self._came: deque[bytes] = deque()
        self._ended = False
        self.task: asyncio.Task[None] | None = None
        stream.on_message, stream.on_end = self._message, self._end

    def _message(self, message: bytes) -> None:
        self._stream.keep(len(message))
        self._came.append(message)

    def _end(self) -> None:
        self._ended = True

    def cancel(self) -> None:
        """The caller is gone."""
        if self.task is not None:
            self.task.cancel()

    async def run(self, ready: Awaitable[None]) -> None:
        """Begin once `ready` is done."""
        stream = self._stream
        try:
            await ready
            stream.on_cancel = None
            self._begin()
        except SyncpointError as error:
            stream.finish(error)
            return
        while self._came:
            message = self._came.popleft()
            stream.keep(-len(message))
            if stream.on_message is not None:
                stream.on_message(message)
        if self._ended and stream.on_end is not None:
            stream.on_end()


def _asked(host: ChainHost, call: CallContext) -> tuple[Chain, ChainPipelines]:
    chain = host.chain(_number(call, CHAIN))
    mounted = chain.mounted
    assert isinstance(mounted, ChainPipelines)
    return chain, mounted


def _number(call: CallContext, name: bytes) -> int:
    value = call.metadata.get(name, b"")
    if not value.isdigit():
        raise InvalidArgument(name.decode(), "must be set to a number in the call's metadata")
    return int(value)
