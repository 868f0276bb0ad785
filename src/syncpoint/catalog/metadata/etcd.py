"""The metadata store of a cluster of machines: etcd, version 3.4 or later.

Place: what members, owners, assignments and the catalog stand in when there is more than one machine. `etcd_client` is
the way there, `etcd_streams` what stays open.
Promise: the contract of `store_client`. Revisions are those of etcd, so they begin above 1. All keys stand under one
prefix, so that an etcd may serve others as well; `PREFIX.identity` beside it is drawn once and distinguishes this store
from any other.
Leaves to the operator: to let etcd forget old revisions (`--auto-compaction-retention`), and its backups.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Sequence
from operator import eq, gt, lt, ne
from typing import Any

from syncpoint.base.model.errors import Code
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.random import Random
from syncpoint.catalog.metadata.contract import (
    RANGE_MAX,
    Compare,
    Delete,
    Indeterminate,
    KeyValue,
    MetadataStatus,
    Operation,
    Page,
    Put,
    StoreUnavailable,
    TxnResult,
    absent,
    check_size,
    unchanged,
)
from syncpoint.catalog.metadata.etcd_client import (
    COMPACT,
    GRANT,
    RANGE,
    STATUS,
    TXN,
    AnswerTooLarge,
    EtcdClient,
    EtcdRefused,
    User,
)
from syncpoint.catalog.metadata.etcd_streams import EtcdLease, EtcdWatch
from syncpoint.catalog.metadata.lease import KeptLease
from syncpoint.catalog.metadata.store_client import DEADLINE_S
from syncpoint.wire.protobuf.messages import etcd as etcdpb
from syncpoint.wire.transport.network import Network

PREFIX = "syncpoint/"

_RELATIONS = {"=": (eq, "EQUAL"), "!=": (ne, "NOT_EQUAL"), "<": (lt, "LESS"), ">": (gt, "GREATER")}
_TARGETS = {
    "revision": ("MOD", "mod_revision"),
    "create_revision": ("CREATE", "create_revision"),
    "version": ("VERSION", "version"),
    "value": ("VALUE", "value"),
}
_IDENTITY = "identity"

log = logging.getLogger(__name__)


async def open_etcd(
    endpoints: Sequence[str],
    network: Network,
    *,
    clock: Clock,
    random: Random,
    user: User | None = None,
    prefix: str = PREFIX,
    deadline_s: float = DEADLINE_S,
) -> EtcdStore:
    """The store at these endpoints (HOST:PORT), which gets its identity now if it has none.

    Raises `StoreUnavailable`. TLS is the network's matter. The prefix ends with "/".
    """
    if not prefix.endswith("/"):
        raise ValueError("the prefix of all keys ends with /")
    client = EtcdClient(endpoints, network, random, user=user)
    beside = EtcdStore(client, clock, f"{prefix[:-1]}.".encode(), "")
    try:
        found = await beside.get(_IDENTITY, deadline_s=deadline_s)
        if found is None:
            drawn = Put(_IDENTITY, random.token(16).hex().encode())
            with contextlib.suppress(Indeterminate):  # it is read again, no matter which process wrote it
                await beside.txn([absent(_IDENTITY)], [drawn], deadline_s=deadline_s)
            found = await beside.get(_IDENTITY, deadline_s=deadline_s)
        if found is None:
            raise StoreUnavailable("etcd did not keep the identity of the store")
    except BaseException:
        await client.close()
        raise
    return EtcdStore(client, clock, prefix.encode(), found.value.decode())


class EtcdStore:
    """A metadata store on etcd, for clusters. Created by `open_etcd`; used from one event loop."""

    def __init__(self, client: EtcdClient, clock: Clock, prefix: bytes, identity: str) -> None:
        self._client, self._clock, self._prefix, self._identity = client, clock, prefix, identity
        self._compacted = 0
        self._leases: set[KeptLease] = set()
        self._watches: set[EtcdWatch] = set()

    @property
    def cluster_id(self) -> str:
        return self._identity

    async def get(self, key: str, *, deadline_s: float = DEADLINE_S) -> KeyValue | None:
        request = etcdpb.RangeRequest(key=self._prefix + key.encode())
        found = await self._call(RANGE, request, "RangeResponse", deadline_s)
        return self._key_value(found.kvs[0]) if found.kvs else None

    async def range(
        self, prefix: str, *, after: str | None = None, limit: int = RANGE_MAX, deadline_s: float = DEADLINE_S
    ) -> Page:
        begin, end = self._bounds(prefix)
        if after is not None:
            begin = max(begin, self._prefix + after.encode() + b"\0")
        request = etcdpb.RangeRequest(key=begin, range_end=end, limit=max(1, min(limit, RANGE_MAX)))
        if begin >= end:  # `after` follows the prefix: only the revision is wanted
            request = etcdpb.RangeRequest(key=begin, count_only=True)
        while True:
            try:
                found = await self._client.call(RANGE, request, "RangeResponse", deadline_s=deadline_s)
                break
            except AnswerTooLarge as error:  # etcd counts keys, not bytes
                if request.limit <= 1:
                    raise StoreUnavailable(f"a value of etcd is larger than this process takes: {error}") from error
                request.limit = max(1, request.limit // 8)
            except EtcdRefused as error:
                raise ValueError(f"etcd refuses: {error}") from error
        return Page([self._key_value(item) for item in found.kvs], found.header.revision, found.more)

    async def txn(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        orelse: Sequence[Operation] = (),
        *,
        deadline_s: float = DEADLINE_S,
    ) -> TxnResult:
        check_size(then)
        check_size(orelse)
        deadline = asyncio.get_running_loop().time() + deadline_s
        # For etcd no condition on the value of an absent key holds. Those that should are replaced by a condition on
        # being absent, or are left as they are, by what is seen before; `seen` is a condition of the whole, too.
        doubtful = [one for one in compares if one.what == "value" and _RELATIONS[one.relation][0](b"", one.operand)]
        while True:
            seen, known = [], []
            for compare in doubtful:
                there = await self.get(compare.key, deadline_s=deadline - asyncio.get_running_loop().time())
                state = Compare(compare.key, "version", "=" if there is None else ">", 0)
                seen.append(state)
                known += [state] if there is None else [state, compare]
            sure = [one for one in compares if one not in doubtful]
            request = etcdpb.TxnRequest(compare=map(self._compare, sure + known), success=map(self._operation, then))
            otherwise = [self._operation(op) for op in orelse]
            if doubtful:
                inner = etcdpb.TxnRequest(compare=map(self._compare, seen), success=otherwise)
                otherwise = [etcdpb.RequestOp(request_txn=inner)]
            request.failure.extend(otherwise)
            rest = deadline - asyncio.get_running_loop().time()
            answer = await self._call(TXN, request, "TxnResponse", rest, writes=True)
            if answer.succeeded or not doubtful or answer.responses[0].response_txn.succeeded:
                return TxnResult(answer.succeeded, answer.header.revision)

    async def counter(self, key: str, *, by: int = 1, deadline_s: float = DEADLINE_S) -> int:
        if by < 1:
            raise ValueError("a counter only goes up")
        deadline = asyncio.get_running_loop().time() + deadline_s
        while True:
            found = await self.get(key, deadline_s=deadline - asyncio.get_running_loop().time())
            value = (0 if found is None else int(found.value)) + by
            rest = deadline - asyncio.get_running_loop().time()
            try:
                before = unchanged(key, 0 if found is None else found.revision)
                if (await self.txn([before], [Put(key, b"%d" % value)], deadline_s=rest)).ok:
                    return value
            except Indeterminate as error:  # if it was applied, that number is nobody's
                log.info("counter %s is drawn again: %s", key, error)

    async def lease(self, ttl_s: float, *, deadline_s: float = DEADLINE_S) -> EtcdLease:
        if not ttl_s > 0:
            raise ValueError("a lease needs a length")
        sent = self._clock.monotonic()
        # Asked again when there is no answer: a lease that nobody knows of ends by itself.
        request = etcdpb.LeaseGrantRequest(TTL=math.ceil(ttl_s))
        granted = await self._call(GRANT, request, "LeaseGrantResponse", deadline_s)
        if not granted.ID:
            raise StoreUnavailable(f"etcd gives no lease: {granted.error}")
        lease = EtcdLease(self._client, self._clock, granted, ttl_s, sent, self._leases.discard)
        self._leases.add(lease)
        return lease

    def watch(self, prefix: str, *, from_revision: int) -> EtcdWatch:
        watch = EtcdWatch(
            self._client, self._bounds(prefix), len(self._prefix), from_revision, self._newest, self._watches.discard
        )
        self._watches.add(watch)
        return watch

    async def compact(self, before: int, *, deadline_s: float = DEADLINE_S) -> None:
        revision = min(before - 1, await self._newest(deadline_s))
        if revision < 1:
            return
        try:
            await self._client.call(
                COMPACT, etcdpb.CompactionRequest(revision=revision), "CompactionResponse", deadline_s=deadline_s
            )
        except EtcdRefused as error:
            if error.code is not Code.OUT_OF_RANGE:  # it has been done already
                raise StoreUnavailable(f"etcd does not compact: {error}") from error
        self._compacted = max(self._compacted, revision + 1)

    async def status(self, *, deadline_s: float = DEADLINE_S) -> MetadataStatus:
        """`compacted` is what this process has asked for."""
        begin, end = self._bounds("")
        request = etcdpb.RangeRequest(key=begin, range_end=end, count_only=True)
        found = await self._call(RANGE, request, "RangeResponse", deadline_s)
        status = await self._call(STATUS, etcdpb.StatusRequest(), "StatusResponse", deadline_s)
        return MetadataStatus(found.header.revision, self._compacted, found.count, status.dbSize)

    async def close(self) -> None:
        for watch in list(self._watches):
            await watch.close()
        await asyncio.gather(*(lease.stop() for lease in self._leases), return_exceptions=True)
        await self._client.close()

    async def _newest(self, deadline_s: float = DEADLINE_S) -> int:
        request = etcdpb.RangeRequest(key=self._prefix, count_only=True)
        found = await self._call(RANGE, request, "RangeResponse", deadline_s)
        return int(found.header.revision)

    async def _call(self, path: str, request: Any, answer: str, deadline_s: float, *, writes: bool = False) -> Any:
        try:
            return await self._client.call(path, request, answer, deadline_s=deadline_s, writes=writes)
        except EtcdRefused as error:
            raise ValueError(f"etcd refuses: {error}") from error

    def _bounds(self, prefix: str) -> tuple[bytes, bytes]:
        """All keys with a prefix: from it to before the first that is greater. No key ends in the byte 255."""
        begin = self._prefix + prefix.encode()
        return begin, begin[:-1] + bytes([begin[-1] + 1])

    def _key_value(self, item: Any) -> KeyValue:
        key = item.key[len(self._prefix) :].decode()
        return KeyValue(key, item.value, item.create_revision, item.mod_revision, item.version, item.lease or None)

    def _compare(self, compare: Compare) -> Any:
        target, field = _TARGETS[compare.what]
        operand: dict[str, Any] = {field: compare.operand}
        return etcdpb.Compare(
            result=_RELATIONS[compare.relation][1], target=target, key=self._prefix + compare.key.encode(), **operand
        )

    def _operation(self, op: Operation) -> Any:
        key = self._prefix + op.key.encode()
        if isinstance(op, Delete):
            return etcdpb.RequestOp(request_delete_range=etcdpb.DeleteRangeRequest(key=key))
        return etcdpb.RequestOp(request_put=etcdpb.PutRequest(key=key, value=op.value, lease=op.lease or 0))
