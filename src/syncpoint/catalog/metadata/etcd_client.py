"""Calls to a cluster of etcd: one member at a time, another one when it does not answer.

Place: under `etcd`; knows endpoints, tokens and failures, nothing of keys.
Promise: a call ends with its answer, or with `StoreUnavailable` (surely not carried out, or only reading), with
`Indeterminate` (it may have been), or with `EtcdRefused` (etcd checked it and refused). A member that is dead, paused
or cut off by the network is left within about three seconds, and every stream on it ends, so that it is opened again
elsewhere. While no member answers, a few tries a second are made, however many wait; all of them go on as soon as one
is answered.
Leaves to the caller: to open streams again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from syncpoint.base.model.errors import Code, SyncpointError, Unprocessed
from syncpoint.base.runtime.random import Random
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.catalog.metadata.contract import Indeterminate, StoreUnavailable
from syncpoint.catalog.metadata.store_client import ATTEMPT_S
from syncpoint.catalog.metadata.turns import Turns
from syncpoint.wire.protobuf.messages import etcd as etcdpb
from syncpoint.wire.transport.network import AnyChannel, AnyStream, Network
from syncpoint.wire.transport.stream_state import TOO_LARGE

RANGE, TXN, COMPACT = "/etcdserverpb.KV/Range", "/etcdserverpb.KV/Txn", "/etcdserverpb.KV/Compact"
WATCH = "/etcdserverpb.Watch/Watch"
GRANT, REVOKE = "/etcdserverpb.Lease/LeaseGrant", "/etcdserverpb.Lease/LeaseRevoke"
KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"
AUTHENTICATE, STATUS = "/etcdserverpb.Auth/Authenticate", "/etcdserverpb.Maintenance/Status"

_READ_S = 1.5  # one attempt
_WRITE_S = 1.5
_QUIET_S = 1.5  # after the last answer a member is asked for one; a lease that is renewed brings answers more often
_PROBE_ANSWER_S = 1.5
_LEADER = (b"hasleader", b"true")  # a member that knows no leader answers so at once

# Said before anything is proposed to the cluster, so nothing was carried out.
_NOT_BEGUN = ("etcdserver: no leader", "etcdserver: too many requests", "etcdserver: not capable")
_FULL = "database space exceeded"
_OLD_TOKEN = ("invalid auth token", "revision of auth store is old")
_REFUSALS = (Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.OUT_OF_RANGE, Code.FAILED_PRECONDITION, Code.ALREADY_EXISTS)

log = logging.getLogger(__name__)


class AnswerTooLarge(Exception):
    """An answer is more than this process takes in one message: ask for less."""


class EtcdRefused(Exception):
    """etcd's answer is no, and will stay so."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


class User(NamedTuple):
    """Who calls, where etcd wants to know."""

    name: str
    password: str


class EtcdClient:
    """`endpoints`: HOST:PORT of the members. TLS is the network's."""

    def __init__(self, endpoints: Sequence[str], network: Network, random: Random, *, user: User | None = None) -> None:
        if not endpoints:
            raise ValueError("etcd needs at least one endpoint")
        self._endpoints = list(endpoints)
        self._network = network
        self._user = user
        self._token: bytes | None = None
        self._at = random.randrange(0, len(endpoints))
        self._channels: dict[int, AnyChannel] = {}
        self._closing, self._probing = Tasks(), Tasks()
        self._cluster = 0
        self._closed = False
        self._seen_at = 0.0
        self._turns = Turns(len(endpoints), random.random)

    async def call(self, path: str, request: Any, answer: str, *, deadline_s: float, writes: bool = False) -> Any:
        """One unary call; `answer` names the message of the response."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + deadline_s
        payload = request.SerializeToString()
        problem = "the deadline had passed"
        while True:
            rest = deadline - loop.time()
            if rest <= 0 or self._closed:
                raise StoreUnavailable("the store is closed" if self._closed else f"etcd does not answer: {problem}")
            if not await self._turns.mine(rest):
                continue
            at, token = self._at, self._token
            try:
                metadata = await self._metadata(rest)
                attempt_s = round(min(rest, _WRITE_S if writes else _READ_S), 1) or 0.1
                data = await self._channel(at).unary(path, payload, metadata=metadata, timeout=attempt_s)
            except SyncpointError as error:
                problem = f"{self._endpoints[at]}: {error}"
                if error.code is Code.PERMISSION_DENIED or "user name is empty" in error.message:
                    raise StoreUnavailable(f"etcd denied access: {problem}") from error
                if error.code is Code.RESOURCE_EXHAUSTED and error.message.startswith(TOO_LARGE):
                    self._turns.came()
                    raise AnswerTooLarge(error.message) from error
                if error.code in _REFUSALS and not is_old_token(error):
                    self._turns.came()
                    raise EtcdRefused(error.code, error.message) from error
                if is_old_token(error) and self._user is not None:
                    self._token = None if self._token == token else self._token
                elif writes and not _not_begun(error):
                    self._leave_after(at, error)
                    raise Indeterminate(f"etcd did not confirm the change: {problem}") from error
                else:
                    self._leave_after(at, error)
                await asyncio.sleep(ATTEMPT_S)
                continue
            return self._checked(getattr(etcdpb, answer).FromString(data))

    async def stream(self, path: str) -> tuple[AnyStream, int]:
        """A new stream to the present member, and that member's number for `leave`. Raises SyncpointError or
        `StoreUnavailable`."""
        if not await self._turns.mine(_READ_S):
            raise StoreUnavailable("etcd does not answer and is retried several times a second")
        metadata = await self._metadata(_READ_S)
        if not self._probing and not self._closed:
            self._probing.start(self._probe())
        at = self._at
        return self._channel(at).stream(path, metadata), at

    def leave(self, at: int) -> None:
        """Go to another member if `at` is still the present one; what is open there ends."""
        if at != self._at:
            return
        self._turns.silent()
        self._seen_at = asyncio.get_running_loop().time()
        self._at = (at + 1) % len(self._endpoints)
        channel = self._channels.pop(at, None)
        if channel is not None:
            log.info("etcd: left %s for %s", self._endpoints[at], self._endpoints[self._at])
            self._closing.start(channel.close())

    def forget_token(self) -> None:
        """Drop a rejected token, so that the next call requests a new one."""
        self._token = None

    async def close(self) -> None:
        """End everything."""
        self._closed = True
        self._turns.close()
        await self._probing.stop()
        for channel in list(self._channels.values()):
            await channel.close()
        await self._closing.ended()

    def check(self, header: Any) -> None:
        """Raises `StoreUnavailable` when an answer came from another cluster than those before it."""
        if self._cluster and header.cluster_id and header.cluster_id != self._cluster:
            raise StoreUnavailable(f"an endpoint belongs to etcd cluster {header.cluster_id:x}, not {self._cluster:x}")
        self._cluster = self._cluster or header.cluster_id
        self._came()

    def _came(self) -> None:
        self._seen_at = asyncio.get_running_loop().time()
        self._turns.came()

    def _checked(self, answer: Any) -> Any:
        self.check(answer.header)
        return answer

    def _channel(self, at: int) -> AnyChannel:
        if self._closed:
            raise SyncpointError(Code.UNAVAILABLE, "The store is closed.")
        channel = self._channels.get(at)
        if channel is None:
            channel = self._channels[at] = self._network.channel(self._endpoints[at])
        return channel

    def _leave_after(self, at: int, error: SyncpointError) -> None:
        """A member without a leader may be as good as any in a moment; the others wait for the same election."""
        if error.message.startswith("etcdserver: "):
            if at == self._at and len(self._endpoints) > 1 and error.message.startswith(_NOT_BEGUN[0]):
                self.leave(at)
        else:
            self.leave(at)

    async def _metadata(self, deadline_s: float) -> tuple[tuple[bytes, bytes], ...]:
        if self._user is None:
            return (_LEADER,)
        if self._token is None:
            request = etcdpb.AuthenticateRequest(name=self._user.name, password=self._user.password)
            at = self._at
            try:
                data = await self._channel(at).unary(
                    AUTHENTICATE, request.SerializeToString(), timeout=round(min(deadline_s, _READ_S), 1) or 0.1
                )
            except SyncpointError as error:
                # A name or a password that is not taken will not be taken later either.
                if error.code in _REFUSALS:
                    raise StoreUnavailable(f"etcd rejected the user name or password: {error.message}") from error
                raise Unprocessed(f"Not authenticated: {error.message}") from error
            self._token = etcdpb.AuthenticateResponse.FromString(data).token.encode()
        return (_LEADER, (b"token", self._token))

    async def _probe(self) -> None:
        """Notice that the present member is paused or gone, also while all that is open there only listens."""
        request = etcdpb.RangeRequest(key=b"\0", serializable=True, count_only=True).SerializeToString()
        loop = asyncio.get_running_loop()
        self._seen_at = loop.time()
        while True:
            quiet_s = loop.time() - self._seen_at
            if quiet_s < _QUIET_S:
                await asyncio.sleep(_QUIET_S - quiet_s + 0.01)
                continue
            at = self._at
            try:
                await self._channel(at).unary(
                    RANGE, request, metadata=await self._metadata(_PROBE_ANSWER_S), timeout=_PROBE_ANSWER_S
                )
                self._came()
            except SyncpointError as error:
                self._seen_at = loop.time()  # the next probe comes in its time, whatever this one came to
                if error.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
                    self._leave_after(at, error)
            except StoreUnavailable as error:
                self._seen_at = loop.time()
                log.warning("etcd: %s", error)


def is_old_token(error: Exception) -> bool:
    """Whether a new token would help."""
    if isinstance(error, SyncpointError) and error.code is Code.UNAUTHENTICATED:
        return True
    return any(text in str(error) for text in _OLD_TOKEN)


def _not_begun(error: SyncpointError) -> bool:
    """Whether a call that failed so was surely not carried out."""
    if isinstance(error, Unprocessed) or error.code is Code.UNAUTHENTICATED:
        return True
    return error.message.startswith(_NOT_BEGUN) or _FULL in error.message
