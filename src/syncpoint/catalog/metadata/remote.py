"""The metadata store of another process: the other end of `service`.

Place: in every process of a cluster whose metadata is one SQLite file.
Promise: the contract of `store_client`. While the serving process is away, calls wait for it within their deadline,
watches resume where they were, and leases live on if it is back in time: the store begins their length anew. However
many calls and watches wait for it, it is tried some times a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.message import Message

from syncpoint.base.model.errors import Code, SyncpointError, Unprocessed
from syncpoint.base.runtime.clock import Clock
from syncpoint.catalog.metadata.contract import (
    RANGE_MAX,
    Compare,
    Event,
    Indeterminate,
    KeyValue,
    MetadataStatus,
    Operation,
    Page,
    Put,
    Resync,
    StoreUnavailable,
    TxnResult,
)
from syncpoint.catalog.metadata.lease import RENEWALS, KeptLease
from syncpoint.catalog.metadata.service import STORE
from syncpoint.catalog.metadata.store_client import ATTEMPT_S, DEADLINE_S
from syncpoint.catalog.metadata.turns import Turns
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.transport.network import AnyChannel, AnyStream, Network

_READ_S = 2.0  # one attempt

log = logging.getLogger(__name__)


async def open_remote(address: str, network: Network, *, clock: Clock, deadline_s: float = DEADLINE_S) -> RemoteShared:
    """The store that the process at HOST:PORT serves. Raises `StoreUnavailable`."""
    channel, turns = network.channel(address), Turns()
    try:
        status = await _call(
            channel, turns, methods.METADATA.GetStatus, internal.MetadataStatusRequest(), deadline_s, ()
        )
    except BaseException:
        await channel.close()
        raise
    return RemoteShared(channel, clock, status.store, turns)


async def _call(
    channel: AnyChannel,
    turns: Turns,
    method: methods.Method,
    request: Message,
    deadline_s: float,
    metadata: tuple[tuple[bytes, bytes], ...],
    *,
    writes: bool = False,
) -> Any:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + deadline_s
    payload = request.SerializeToString()
    problem = "the deadline had passed"
    while True:
        rest = deadline - loop.time()
        if rest <= 0:
            raise StoreUnavailable(f"the metadata store does not answer: {problem}")
        if not await turns.mine(rest):
            continue
        rest = max(0.0, deadline - loop.time())
        attempt_s = round(rest if writes else min(rest, _READ_S), 1) or 0.1
        try:
            data = await channel.unary(method, payload, metadata=metadata, timeout=attempt_s)
        except SyncpointError as error:
            problem = str(error)
            if error.code is Code.INVALID_ARGUMENT:
                turns.came()
                raise ValueError(error.message) from error
            if error.code in (Code.FAILED_PRECONDITION, Code.ABORTED):
                turns.came()
                raise StoreUnavailable(error.message) from error
            turns.silent()
            if writes and not isinstance(error, Unprocessed):
                raise Indeterminate(f"the metadata store did not confirm the change: {problem}") from error
            await asyncio.sleep(ATTEMPT_S)
        else:
            turns.came()
            return method.response.FromString(data)


class RemoteShared:
    """A client of another process's metadata store. Created by `open_remote`; used from one event loop."""

    def __init__(self, channel: AnyChannel, clock: Clock, identity: str, turns: Turns) -> None:
        self._channel, self._clock, self._identity = channel, clock, identity
        self.turns = turns
        self._metadata = ((STORE, identity.encode()),)
        self._leases: set[KeptLease] = set()
        self._watches: set[RemoteWatch] = set()

    @property
    def cluster_id(self) -> str:
        return self._identity

    async def get(self, key: str, *, deadline_s: float = DEADLINE_S) -> KeyValue | None:
        found = await self.call(methods.METADATA.Get, internal.MetadataGetRequest(key=key), deadline_s)
        return _key_value(found.item) if found.HasField("item") else None

    async def range(
        self, prefix: str, *, after: str | None = None, limit: int = RANGE_MAX, deadline_s: float = DEADLINE_S
    ) -> Page:
        request = internal.MetadataRangeRequest(prefix=prefix, after=after, limit=limit)
        found = await self.call(methods.METADATA.Range, request, deadline_s)
        return Page([_key_value(item) for item in found.items], found.revision, found.more)

    async def txn(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        orelse: Sequence[Operation] = (),
        *,
        deadline_s: float = DEADLINE_S,
    ) -> TxnResult:
        request = internal.MetadataTxnRequest(
            compares=map(_compare, compares), then=map(_operation, then), orelse=map(_operation, orelse)
        )
        answer = await self.call(methods.METADATA.Txn, request, deadline_s, writes=True)
        return TxnResult(answer.ok, answer.revision)

    async def counter(self, key: str, *, by: int = 1, deadline_s: float = DEADLINE_S) -> int:
        # Asked again when there is no answer: a number that was drawn and not received is nobody's.
        answer = await self.call(methods.METADATA.Count, internal.MetadataCountRequest(key=key, by=by), deadline_s)
        return int(answer.value)

    async def lease(self, ttl_s: float, *, deadline_s: float = DEADLINE_S) -> RemoteLease:
        sent = self._clock.monotonic()
        answer = await self.call(methods.METADATA.Grant, internal.MetadataGrantRequest(ttl_s=ttl_s), deadline_s)
        lease = RemoteLease(self, self._clock, answer.id, ttl_s, sent, self._leases.discard)
        self._leases.add(lease)
        return lease

    def watch(self, prefix: str, *, from_revision: int) -> RemoteWatch:
        watch = RemoteWatch(self, prefix, from_revision, self._watches.discard)
        self._watches.add(watch)
        return watch

    async def compact(self, before: int, *, deadline_s: float = DEADLINE_S) -> None:
        await self.call(methods.METADATA.Compact, internal.MetadataCompactRequest(before=before), deadline_s)

    async def status(self, *, deadline_s: float = DEADLINE_S) -> MetadataStatus:
        found = await self.call(methods.METADATA.GetStatus, internal.MetadataStatusRequest(), deadline_s)
        return MetadataStatus(found.revision, found.compacted, found.keys, found.bytes)

    async def close(self) -> None:
        self.turns.close()
        for watch in list(self._watches):
            await watch.close()
        await asyncio.gather(*(lease.stop() for lease in self._leases), return_exceptions=True)
        await self._channel.close()

    async def call(self, method: methods.Method, request: Message, deadline_s: float, *, writes: bool = False) -> Any:
        """One call of the service. Reads, and what may well happen twice, are asked again until the deadline."""
        return await _call(self._channel, self.turns, method, request, deadline_s, self._metadata, writes=writes)

    def stream(self, method: methods.Method) -> AnyStream:
        """A stream of the service."""
        return self._channel.stream(method, self._metadata)


class RemoteLease(KeptLease):
    """A lease that is renewed by calls."""

    def __init__(
        self,
        store: RemoteShared,
        clock: Clock,
        number: int,
        ttl_s: float,
        sent: float,
        ended: Callable[[KeptLease], None],
    ) -> None:
        self._store = store
        super().__init__(clock, number, ttl_s, ttl_s, sent, ended)

    async def revoke(self) -> None:
        self.over()
        await self._store.call(methods.METADATA.Revoke, internal.MetadataLeaseRequest(id=self.id), DEADLINE_S)

    async def _keep(self) -> None:
        request = internal.MetadataLeaseRequest(id=self.id)
        while True:
            await asyncio.sleep(self.granted_s / RENEWALS)
            sent = self._clock.monotonic()
            try:
                answer = await self._store.call(methods.METADATA.KeepAlive, request, self.granted_s / RENEWALS)
            except StoreUnavailable as error:
                log.info("lease %d is not renewed: %s", self.id, error)
                continue
            if not answer.alive:
                self.over()
                return
            self.renewed(sent)


class RemoteWatch:
    """A watch that is opened again after its last event."""

    def __init__(
        self, store: RemoteShared, prefix: str, from_revision: int, closed: Callable[[RemoteWatch], None]
    ) -> None:
        self._store, self._prefix, self._next, self._on_close = store, prefix, from_revision, closed
        self._stream: AnyStream | None = None
        self._closed = asyncio.Event()

    async def next(self) -> list[Event] | Resync:
        events: list[Event] = []  # pieces of one answer
        while not self._closed.is_set():
            try:
                stream = self._stream or await self._open()
                data = await stream.receive()
                if data is None:
                    raise SyncpointError(Code.UNAVAILABLE, "The watch ended.")
                self._store.turns.came()
            except SyncpointError as error:
                events.clear()
                self._stop()
                if not self._closed.is_set():
                    log.info("a watch is opened again: %s", error)
                    self._store.turns.silent()
                    await asyncio.sleep(ATTEMPT_S)
                continue
            answer = internal.MetadataWatchResponse.FromString(data)
            if answer.resync:
                self._next = answer.resync + 1
                return Resync(answer.resync)
            events += [
                Event(event.revision, event.key, event.value if event.HasField("value") else None)
                for event in answer.events
            ]
            if events and not answer.more:
                self._next = events[-1].revision + 1
                return events
        raise StoreUnavailable("the watch is closed")

    async def close(self) -> None:
        self._closed.set()
        self._stop()
        self._on_close(self)

    async def _open(self) -> AnyStream:
        if not await self._store.turns.mine(_READ_S):
            raise SyncpointError(
                Code.UNAVAILABLE, "The metadata store does not answer and is retried several times a second."
            )
        self._stream = stream = self._store.stream(methods.METADATA.Watch)
        request = internal.MetadataWatchRequest(prefix=self._prefix, from_revision=self._next)
        await stream.send(request.SerializeToString())
        return stream

    def _stop(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None


def _key_value(item: internal.MetadataKeyValue) -> KeyValue:
    return KeyValue(item.key, item.value, item.create_revision, item.revision, item.version, item.lease or None)


def _compare(compare: Compare) -> internal.MetadataCompare:
    stored = internal.MetadataCompare(key=compare.key, what=compare.what, relation=compare.relation)
    if isinstance(compare.operand, bytes):
        stored.value = compare.operand
    else:
        stored.number = compare.operand
    return stored


def _operation(op: Operation) -> internal.MetadataOperation:
    if isinstance(op, Put):
        return internal.MetadataOperation(key=op.key, value=op.value, lease=op.lease or 0)
    return internal.MetadataOperation(key=op.key)
