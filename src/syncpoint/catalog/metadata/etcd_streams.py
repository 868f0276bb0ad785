"""What stays open between a process and etcd: watches and leases.

Place: made by `etcd.EtcdStore`.
Promise: a watch goes on after its last event on whichever member answers, and misses nothing: where events may have
been compacted away it yields `Resync`. A lease is as in `lease`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.runtime.clock import Clock
from syncpoint.catalog.metadata.contract import Event, Resync, StoreError, StoreUnavailable
from syncpoint.catalog.metadata.etcd_client import KEEP_ALIVE, REVOKE, WATCH, EtcdClient, EtcdRefused, is_old_token
from syncpoint.catalog.metadata.lease import RENEWALS, KeptLease
from syncpoint.catalog.metadata.store_client import ATTEMPT_S, DEADLINE_S
from syncpoint.wire.protobuf.messages import etcd as etcdpb
from syncpoint.wire.transport.network import AnyStream

log = logging.getLogger(__name__)


class EtcdWatch:
    """`begin`, `end`: etcd's keys; `plain`: how many bytes of a key stand before ours."""

    def __init__(
        self,
        client: EtcdClient,
        bounds: tuple[bytes, bytes],
        plain: int,
        from_revision: int,
        newest: Callable[[], Awaitable[int]],
        closed: Callable[[EtcdWatch], None],
    ) -> None:
        self._client, self._bounds, self._plain, self._newest, self._on_close = client, bounds, plain, newest, closed
        self._next = max(1, from_revision)
        self._stream: AnyStream | None = None
        self._at = 0
        self._closed = asyncio.Event()

    async def next(self) -> list[Event] | Resync:
        events: list[Event] = []  # pieces of one answer
        while not self._closed.is_set():
            try:
                stream = self._stream or await self._open()
                data = await stream.receive()
                if data is None:
                    raise SyncpointError(Code.UNAVAILABLE, "The watch ended.")
                answer = etcdpb.WatchResponse.FromString(data)
                self._client.check(answer.header)
                if answer.canceled and not answer.compact_revision:
                    raise SyncpointError(Code.UNAVAILABLE, f"The watch was cancelled: {answer.cancel_reason}")
            except (SyncpointError, StoreUnavailable) as error:
                events.clear()
                await self._lost(error)
                continue
            if answer.canceled:
                self.stop()
                revision = await self._listed()
                self._next = revision + 1
                return Resync(revision)
            events += [self._event(event) for event in answer.events if event.kv.mod_revision >= self._next]
            if answer.fragment:
                continue
            if events:
                self._next = events[-1].revision + 1
                return events
            if not answer.created:
                self._next = max(self._next, answer.header.revision + 1)  # nothing has happened up to here
        raise StoreUnavailable("the watch is closed")

    async def close(self) -> None:
        self._closed.set()
        self.stop()
        self._on_close(self)

    def stop(self) -> None:
        """End the stream; the next `next` opens another one."""
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None

    async def _open(self) -> AnyStream:
        stream, self._at = await self._client.stream(WATCH)
        begin, end = self._bounds
        # One revision earlier than wanted: at the very revision up to which it was compacted, etcd may have dropped
        # a deletion without notifying a watch that begins there.
        create = etcdpb.WatchCreateRequest(
            key=begin, range_end=end, start_revision=max(1, self._next - 1), progress_notify=True, fragment=True
        )
        self._stream = stream
        try:
            await stream.send(etcdpb.WatchRequest(create_request=create).SerializeToString())
        except BaseException:
            self.stop()
            raise
        return stream

    async def _lost(self, error: Exception) -> None:
        self.stop()
        if self._closed.is_set():
            return
        log.info("a watch of etcd goes on elsewhere: %s", error)
        if is_old_token(error) or "permission denied" in str(error):
            self._client.forget_token()
        else:
            self._client.leave(self._at)
        await asyncio.sleep(ATTEMPT_S)

    async def _listed(self) -> int:
        while not self._closed.is_set():
            try:
                return await self._newest()
            except StoreUnavailable:
                await asyncio.sleep(ATTEMPT_S)
        raise StoreUnavailable("the watch is closed")

    def _event(self, event: Any) -> Event:
        value = None if event.type == etcdpb.Event.DELETE else event.kv.value
        return Event(event.kv.mod_revision, event.kv.key[self._plain :].decode(), value)


class EtcdLease(KeptLease):
    """A lease of etcd, renewed over a stream of its own."""

    def __init__(
        self,
        client: EtcdClient,
        clock: Clock,
        granted: Any,
        ttl_s: float,
        sent: float,
        ended: Callable[[KeptLease], None],
    ) -> None:
        self._client = client
        super().__init__(clock, granted.ID, ttl_s, float(granted.TTL), sent, ended)

    async def revoke(self) -> None:
        self.over()
        try:
            request = etcdpb.LeaseRevokeRequest(ID=self.id)
            await self._client.call(REVOKE, request, "LeaseRevokeResponse", deadline_s=DEADLINE_S)
        except EtcdRefused as error:
            if error.code is not Code.NOT_FOUND:
                raise StoreUnavailable(str(error)) from error

    async def _keep(self) -> None:
        while True:
            try:
                stream, at = await self._client.stream(KEEP_ALIVE)
            except (SyncpointError, StoreUnavailable) as error:
                log.info("lease %d is not renewed: %s", self.id, error)
                await asyncio.sleep(ATTEMPT_S)
                continue
            try:
                while await self._renew(stream):
                    await asyncio.sleep(self.granted_s / RENEWALS)
                self.over()
                return
            except (SyncpointError, TimeoutError, StoreError) as error:
                log.info("lease %d is not renewed: %s", self.id, error)
                if is_old_token(error):
                    self._client.forget_token()
                else:
                    self._client.leave(at)
            finally:
                stream.cancel()
            await asyncio.sleep(ATTEMPT_S)

    async def _renew(self, stream: AnyStream) -> bool:
        sent = self._clock.monotonic()
        async with asyncio.timeout(max(0.5, self.granted_s / RENEWALS / 2)):
            await stream.send(etcdpb.LeaseKeepAliveRequest(ID=self.id).SerializeToString())
            data = await stream.receive()
        if data is None:
            raise SyncpointError(Code.UNAVAILABLE, "The renewals ended.")
        answer = etcdpb.LeaseKeepAliveResponse.FromString(data)
        self._client.check(answer.header)
        if answer.TTL <= 0:
            return False
        self.renewed(sent)
        return True
