"""The key of a chain's owner in the metadata: claimed, confirmed, given up, each by one compare-and-set.

Place: under `ownership_driver`, which turns outcomes into events of the machine.
Promise: the key is under this process's lease and has the epoch the chain was opened with. An outcome that is unknown
is read before anything is concluded from it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from syncpoint.base.model.cluster import ChainOwner
from syncpoint.catalog.metadata.contract import (
    Compare,
    Delete,
    Indeterminate,
    KeyValue,
    Operation,
    Put,
    StoreError,
    StoreUnavailable,
    TxnResult,
    absent,
    unchanged,
)
from syncpoint.catalog.metadata.layout import EPOCHS, OWNERS
from syncpoint.catalog.metadata.store_client import RETRY_S, SharedLease, SharedStore
from syncpoint.cluster.control.membership import Membership

log = logging.getLogger(__name__)


class OwnerKeys:
    """Keys of the chains that one process owns."""

    def __init__(self, store: SharedStore, membership: Membership) -> None:
        self._store = store
        self._membership = membership

    async def claim(self, chain: int, seen: int, step: int) -> tuple[int, int] | None:
        """Become the owner, in an epoch `step` above the last one: (epoch, revision), or None if another was faster.

        `seen`: the revision of the owner's key as it is known, 0 for none. Raises `StoreError`, or `ValueError` when
        the lease has ended.
        """
        owner_key, epoch_key, lease = OWNERS.key(chain), EPOCHS.key(chain), self._membership.lease
        known = await self._store.get(epoch_key)
        epoch = step + (0 if known is None else int(known.value))
        value = self._value(epoch)
        revision = await self._txn_known(
            [absent(owner_key) if seen == 0 else unchanged(owner_key, seen), _is_value(epoch_key, known)],
            [Put(owner_key, value, _id(lease)), Put(epoch_key, b"%d" % epoch)],
            owner_key,
            value,
        )
        return None if revision is None else (epoch, revision)

    async def confirm(self, chain: int, epoch: int) -> int | None:
        """Put the key back after it went with a lease: its revision, or None if a later epoch has begun. Raises as
        `claim`.
        """
        owner_key, epoch_key = OWNERS.key(chain), EPOCHS.key(chain)
        value = self._value(epoch)
        revision = await self._txn_known(
            [absent(owner_key), Compare(epoch_key, "value", "=", b"%d" % epoch)],
            [Put(owner_key, value, _id(self._membership.lease))],
            owner_key,
            value,
        )
        if revision is None:
            found = await self._store.get(owner_key)
            if found is not None and found.value == value:
                revision = found.revision
        return revision

    async def release(self, chain: int, epoch: int) -> None:
        """Give a chain up, for as long as it takes while the lease lives: the key would go with it."""
        while True:
            try:
                await self.yield_once(chain, epoch)
                return
            except StoreError as error:
                lease = self._membership.lease
                if lease is None or lease.lost.is_set():
                    return
                log.info("chain %d cannot be released yet: %s", chain, error)
                await asyncio.sleep(RETRY_S)

    async def yield_once(self, chain: int, epoch: int) -> None:
        """Remove the key if it is still this one. Raises `StoreError`."""
        owner_key = OWNERS.key(chain)
        await self._store.txn([Compare(owner_key, "value", "=", self._value(epoch))], [Delete(owner_key)])

    async def _txn_known(
        self, compares: Sequence[Compare], puts: Sequence[Operation], key: str, value: bytes
    ) -> int | None:
        """The revision at which `key` has `value`; None when the conditions do not hold. An unknown outcome is read;
        raises `Indeterminate` where the key does not have the value yet: it may come to that later, as long as the
        conditions hold.
        """
        try:
            result: TxnResult = await self._store.txn(compares, puts)
            return result.revision if result.ok else None
        except Indeterminate as unknown:
            while True:
                try:
                    found = await self._store.get(key)
                except StoreError:
                    await asyncio.sleep(RETRY_S)
                    continue
                if found is None or found.value != value:
                    raise unknown
                return found.revision

    def _value(self, epoch: int) -> bytes:
        me = self._membership.me
        return ChainOwner(me.name, me.incarnation, epoch, me.address).encode()


def _id(lease: SharedLease | None) -> int:
    if lease is None:
        raise StoreUnavailable("no lease")
    return lease.id


def _is_value(key: str, known: KeyValue | None) -> Compare:
    return absent(key) if known is None else Compare(key, "value", "=", known.value)
