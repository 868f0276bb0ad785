"""The metadata store of this process, for other processes: `remote` is the other end.

Place: where a cluster lives on one machine or has one process that keeps everything (no etcd): that process serves its
SQLite file by this.
Promise: the contract of `store_client`, over the transport. Events older than the last `EVENTS_KEPT` revisions are
forgotten as time goes by.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.catalog.metadata.contract import (
    Compare,
    Delete,
    Event,
    Indeterminate,
    KeyValue,
    Operation,
    Put,
    Resync,
    StoreUnavailable,
)
from syncpoint.catalog.metadata.embedded import EmbeddedStore
from syncpoint.catalog.metadata.local import LocalShared, LocalWatch
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.transport.calls import Call, Methods, Streaming, StreamingCall, Unary

STORE = b"store"  # metadata item: which store the caller means
EVENTS_KEPT = 10_000
_PIECE_BYTES = 1 << 20  # of one message of a watch

log = logging.getLogger(__name__)


class MetadataService:
    """`methods`: what to serve. `close` ends the watches; the store belongs to the caller that opened it."""

    def __init__(self, store: EmbeddedStore, clock: Clock, *, events_kept: int = EVENTS_KEPT) -> None:
        self._store, self._events_kept = store, events_kept
        self._shared = LocalShared(store, clock)
        self._tasks = Tasks()
        unary: dict[methods.Method, Callable[[Any], Message]] = {
            methods.METADATA.Get: self._get,
            methods.METADATA.Range: self._range,
            methods.METADATA.Txn: self._txn,
            methods.METADATA.Count: self._count,
            methods.METADATA.Grant: self._grant,
            methods.METADATA.KeepAlive: self._keep_alive,
            methods.METADATA.Revoke: self._revoke,
            methods.METADATA.Compact: self._compact,
            methods.METADATA.GetStatus: self._status,
        }
        self.methods: Methods = {
            **{path.encode(): self._method(path.request, answer) for path, answer in unary.items()},
            methods.METADATA.Watch.encode(): Streaming(self._watch),
        }

    async def close(self) -> None:
        """No more events for anybody."""
        await self._tasks.stop()
        await self._shared.close()

    def _method(self, kind: type[Message], answer: Callable[[Any], Message]) -> Unary:
        def handle(call: Call, payload: bytes) -> None:
            self._check(call.metadata)
            try:
                call.reply(answer(kind.FromString(payload)).SerializeToString())
            except ValueError as error:
                raise SyncpointError(Code.INVALID_ARGUMENT, str(error)) from error
            except StoreUnavailable as error:
                raise SyncpointError(Code.ABORTED, str(error)) from error
            except Indeterminate as error:
                raise SyncpointError(Code.UNKNOWN, str(error)) from error

        return Unary(handle)

    def _check(self, metadata: dict[bytes, bytes]) -> None:
        wanted = metadata.get(STORE)
        if wanted is not None and wanted != self._store.cluster_id.encode():
            text = f"This is metadata store {self._store.cluster_id}, not {wanted.decode('ascii', 'replace')}."
            raise SyncpointError(Code.FAILED_PRECONDITION, text)

    def _get(self, request: internal.MetadataGetRequest) -> internal.MetadataGetResponse:
        found = self._store.get(request.key)
        return internal.MetadataGetResponse(item=None if found is None else _item(found))

    def _range(self, request: internal.MetadataRangeRequest) -> internal.MetadataRangeResponse:
        after = request.after if request.HasField("after") else None
        page = self._store.range(request.prefix, after=after, limit=request.limit)
        return internal.MetadataRangeResponse(items=map(_item, page.items), revision=page.revision, more=page.more)

    def _txn(self, request: internal.MetadataTxnRequest) -> internal.MetadataTxnResponse:
        compares = [
            Compare(one.key, one.what, one.relation, getattr(one, one.WhichOneof("operand") or "value"))  # type: ignore[arg-type]
            for one in request.compares
        ]
        then, orelse = (list(map(_operation, side)) for side in (request.then, request.orelse))
        result = self._store.txn(compares, then, orelse)
        if result.revision - self._store.compacted > 2 * self._events_kept:
            self._store.compact(result.revision - self._events_kept)
        return internal.MetadataTxnResponse(ok=result.ok, revision=result.revision)

    def _count(self, request: internal.MetadataCountRequest) -> internal.MetadataCountResponse:
        return internal.MetadataCountResponse(value=self._store.counter(request.key, by=request.by))

    def _grant(self, request: internal.MetadataGrantRequest) -> internal.MetadataGrantResponse:
        return internal.MetadataGrantResponse(id=self._store.lease(request.ttl_s).id)

    def _keep_alive(self, request: internal.MetadataLeaseRequest) -> internal.MetadataLeaseResponse:
        return internal.MetadataLeaseResponse(alive=self._store.keep_alive(request.id))

    def _revoke(self, request: internal.MetadataLeaseRequest) -> internal.MetadataLeaseResponse:
        return internal.MetadataLeaseResponse(alive=self._store.revoke(request.id))

    def _compact(self, request: internal.MetadataCompactRequest) -> internal.MetadataCompactResponse:
        self._store.compact(request.before)
        return internal.MetadataCompactResponse()

    def _status(self, request: internal.MetadataStatusRequest) -> internal.MetadataStatusResponse:
        return internal.MetadataStatusResponse(store=self._store.cluster_id, **self._store.status()._asdict())

    # -- watches -----------------------------------------------------------------------------------------------------

    def _watch(self, stream: StreamingCall) -> None:
        self._check(stream.metadata)
        stream.on_message = lambda payload: self._begin(stream, payload)

    def _begin(self, stream: StreamingCall, payload: bytes) -> None:
        request = internal.MetadataWatchRequest.FromString(payload)
        stream.on_message = None
        watch = self._shared.watch(request.prefix, from_revision=request.from_revision)
        stream.on_cancel = self._tasks.start(self._send_changes(stream, watch)).cancel

    async def _send_changes(self, stream: StreamingCall, watch: LocalWatch) -> None:
        writable = asyncio.Event()
        try:
            while True:
                found = await watch.next()
                if isinstance(found, Resync):
                    pieces = [internal.MetadataWatchResponse(resync=found.revision)]
                else:
                    pieces = _pieces(found)
                for piece in pieces:
                    while not stream.writable:
                        writable.clear()
                        stream.on_writable = writable.set
                        await writable.wait()
                    stream.send(piece.SerializeToString())
        except StoreUnavailable as error:
            stream.finish(SyncpointError(Code.UNAVAILABLE, str(error)))
        except asyncio.CancelledError:
            stream.finish(SyncpointError(Code.UNAVAILABLE, "The metadata store is stopping."))
            raise
        finally:
            await watch.close()


def _item(found: KeyValue) -> internal.MetadataKeyValue:
    return internal.MetadataKeyValue(**{**found._asdict(), "lease": found.lease or 0})


def _operation(stored: internal.MetadataOperation) -> Operation:
    return Put(stored.key, stored.value, stored.lease or None) if stored.HasField("value") else Delete(stored.key)


def _pieces(events: list[Event]) -> list[internal.MetadataWatchResponse]:
    """The events in messages of moderate size, of which all but the last say that more follows."""
    pieces, size = [internal.MetadataWatchResponse()], 0
    for event in events:
        if size > _PIECE_BYTES:
            pieces[-1].more = True
            pieces.append(internal.MetadataWatchResponse())
            size = 0
        pieces[-1].events.add(revision=event.revision, key=event.key, value=event.value)
        size += len(event.key) + len(event.value or b"")
    return pieces
