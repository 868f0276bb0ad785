"""Which chains hold anything of a topic: open/TOPIC/CHAIN in the metadata.

Place: a publish forwarder registers before a chain's first publish of a topic; whoever must ask "every chain of a
topic" reads it. This is half of the sync point (protocol rule 16): registered first, then the catalog read at a
revision that no change committed before the registration exceeds. So a subscription is either known to the source from
its first message, or its creation finds the chain registered and waits for it.
Promise: what is registered stays until its owner, still owner, says that nothing is left. A removal names the very
registration it is meant for, by its revision: one that arrives late, after the next registration, removes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from syncpoint.base.model.cluster import ChainOwner, Member
from syncpoint.base.model.errors import MetadataSilent, SyncpointError, Unavailable
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.catalog.metadata.catalog import CatalogCopy
from syncpoint.catalog.metadata.contract import TXN_OPS_MAX, Compare, Delete, Put, StoreError, unchanged
from syncpoint.catalog.metadata.layout import HEAD, OPEN, OWNERS
from syncpoint.catalog.metadata.store_client import SharedStore, answered, read_all

_ATTEMPTS = 5
_RETRY_S = 0.1
_PATIENCE_S = 3.0  # how long a publish waits for the metadata; then it is refused, so that its client can try again
_SILENT_S = 0.5  # the same, once they have not: what is underway goes on, and says when they do
_COPY_S = 5.0  # how long the copy of the catalog may lag behind before a registration counts as failed


class _Flush:
    """Registrations that are written together. `written`: they are, or will not be."""

    __slots__ = ("answer", "written")

    def __init__(self) -> None:
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.written = asyncio.Event()


class Registration:
    """Registers for one process, `me` once it is a member. What is asked in one turn of the loop shares its
    transactions."""

    def __init__(self, store: SharedStore, catalog: CatalogCopy, me: Callable[[], Member]) -> None:
        self._store, self._catalog, self._me = store, catalog, me
        self._waiting: dict[str, None] = {}
        self._next: _Flush | None = None
        self._silent = False  # the metadata have not answered somebody in time, and not since
        self._leaving: set[str] = set()  # to be removed, and not registered again since
        self._lock = asyncio.Lock()  # a registration never overtakes an earlier removal
        self._reading: asyncio.Task[dict[int, set[int]] | SyncpointError] | None = None
        self._reads = asyncio.Lock()
        self._tasks = Tasks()

    async def register(self, topic: int, chain: int) -> int:
        """Return the catalog revision a new source of this topic begins at: registered before, reached by the copy of
        this process. Raises `Unavailable`, and `MetadataSilent` within seconds where the metadata do not answer. The
        chain may be registered later all the same; registering too much, or again, does no harm.
        """
        flush = self._next
        if flush is None:
            flush = self._next = _Flush()
            self._tasks.start(self._flush(flush))
        self._waiting[OPEN.key(topic, chain)] = None
        self._leaving.discard(OPEN.key(topic, chain))
        try:
            async with asyncio.timeout(_SILENT_S if self._silent else _PATIENCE_S):
                await flush.written.wait()
        except TimeoutError:
            self._silent = True
            raise MetadataSilent("The metadata store does not answer.") from None
        return await asyncio.shield(flush.answer)

    async def unregister(self, topic: int, chain: int, epoch: int, still: Callable[[], bool] = lambda: True) -> bool:
        """Nothing of the topic is left in the chain, which this process owns under `epoch`; False when it does not own
        it any more, or has registered it again. Raises `Unavailable`; the caller tries again some time. `still` is
        asked right before the removal is sent, which happens only after the metadata have answered: up to then the
        chain is registered, and stays so if the answer is no.

        Whatever becomes of it, it is void once the chain has been registered again: every registration is a write of
        the key, and only the one that was read here is deleted.
        """
        me = self._me()
        owner = ChainOwner(me.name, me.incarnation, epoch, me.address).encode()
        key = OPEN.key(topic, chain)
        self._leaving.add(key)
        async with self._lock:
            if key not in self._leaving:
                return False
            self._leaving.discard(key)
            found = await answered(self._store.get(key))
            if found is None:
                return True
            if not still():
                return False
            compares = [Compare(OWNERS.key(chain), "value", "=", owner), unchanged(key, found.revision)]
            return (await answered(self._store.txn(compares, [Delete(key)]))).ok

    async def _flush(self, flush: _Flush) -> None:
        answer = flush.answer
        try:
            async with self._lock:
                keys, self._waiting, self._next = list(self._waiting), {}, None
                revision = await self._write(keys)
            self._silent = False
            flush.written.set()
            # Without the lock: a copy of the catalog that is stuck holds up those who wait for it, and nobody else.
            await self._reached(revision)
        except Exception as error:
            answer.set_exception(error)
            answer.exception()  # reported to callers that still wait; if nobody does, there is nothing to report
        else:
            answer.set_result(revision)
        finally:
            flush.written.set()

    async def registered(self, chain: int) -> Collection[int]:
        """Topics a chain, which this process owns, is registered for now. The copy of the catalog here has since
        reached a revision that no change committed before exceeds: a source of one of them may be opened as after
        `register`. Raises `Unavailable`.
        """
        if self._reading is None:
            self._reading = self._tasks.start(self._read())
        found = await asyncio.shield(self._reading)
        if isinstance(found, SyncpointError):
            raise found
        return found.get(chain, ())

    async def _read(self) -> dict[int, set[int]] | SyncpointError:
        """Topics by chain. Who asks while it is read for others needs another look, and shares that."""
        async with self._reads:
            self._reading = None
            chains: dict[int, set[int]] = {}
            try:
                found, _ = await answered(read_all(self._store, OPEN))
                await self._reached(await answered(head_revision(self._store)))
            except SyncpointError as error:
                return error
            for item in found:
                topic, chain = OPEN.numbers(item.key)
                chains.setdefault(chain, set()).add(topic)
            return chains

    async def _reached(self, revision: int) -> None:
        try:
            async with asyncio.timeout(_COPY_S):
                await self._catalog.at(revision)
        except TimeoutError:
            raise Unavailable(
                f"This process's copy of the catalog has not reached revision {revision} yet. Try again."
            ) from None

    async def _write(self, keys: list[str]) -> int:
        for attempt in range(_ATTEMPTS):
            try:
                for begin in range(0, len(keys), TXN_OPS_MAX):
                    await self._store.txn([], [Put(key, b"{}") for key in keys[begin : begin + TXN_OPS_MAX]])
                return await head_revision(self._store)
            except StoreError as error:
                if attempt == _ATTEMPTS - 1:
                    raise MetadataSilent(f"The metadata store does not answer: {error}") from error
                await asyncio.sleep(_RETRY_S * 2**attempt)
        raise AssertionError("the last attempt returns or raises")


async def registered_chains(store: SharedStore, topic: int) -> list[int]:
    """Chains registered for a topic now. Raises `StoreUnavailable`."""
    prefix = OPEN.under(topic)
    found, _ = await read_all(store, prefix)
    return sorted(prefix.number(item.key) for item in found)


async def head_revision(store: SharedStore) -> int:
    """The newest revision of the catalog now."""
    head = await store.get(HEAD)
    return 0 if head is None else int(head.value.split()[0])
