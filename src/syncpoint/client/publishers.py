"""Publishers: `Publisher` for threads, `AsyncPublisher` for coroutines.

Place: what applications use to publish. Both hold a link to the service and a `PublishDriver`.
Promises: an id is returned once the message is on the server's disks. Messages of a topic and ordering key are stored
in the order in which they were given, over every retry; after one that could not be stored, its key is paused. A call
that failed for a moment is made again, so that a message may be stored twice (see docs/client.md).
"""

from __future__ import annotations

import asyncio
import atexit
import ssl
from collections.abc import AsyncIterable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from syncpoint.client.bulk_pieces import BulkPiece, BulkPieces, OutgoingMessage, chunks
from syncpoint.client.client_errors import BulkPublishError, PausedOrderingKeyError
from syncpoint.client.client_future import ClientFuture
from syncpoint.client.client_options import BatchSettings, ClientRetry, LimitExceededBehavior, PublishFlowControl
from syncpoint.client.loop_thread import LoopThread
from syncpoint.client.message_encoding import encode_message
from syncpoint.client.publish_driver import PublishDriver
from syncpoint.client.publish_queue import PublishEntry
from syncpoint.client.service_link import DRAIN_S, Connecting, ServiceLink
from syncpoint.front.client.credentials import CallCredentials

EXIT_S: Final = 10.0
"""How long the end of the program waits for what a publisher that was not stopped still has."""
CHUNK: Final = 4_000

Tls = ssl.SSLContext | str | Path
Shown = CallCredentials | str | Path


def topic_path(project: str, topic: str) -> str:
    """The full name of a topic."""
    return f"projects/{project}/topics/{topic}"


class _BulkOutcomes:
    """The pieces of one `publish_many` and what becomes of them."""

    def __init__(self) -> None:
        self._sent: list[tuple[range | list[int], ClientFuture[list[str]]]] = []

    def entry(self, piece: BulkPiece) -> PublishEntry:
        outcome: ClientFuture[list[str]] = ClientFuture()
        self._sent.append((piece.places, outcome))
        return PublishEntry(piece.encoded, len(piece.places), outcome)

    async def known(self) -> None:
        """Wait until all outcomes are."""
        for _, outcome in self._sent:
            await asyncio.wait((asyncio.wrap_future(outcome),))

    def ids(self, count: int) -> list[str]:
        """All ids, in order. Waits for them, and raises `BulkPublishError`."""
        if count == sum(len(places) for places, _ in self._sent) and all(type(one) is range for one, _ in self._sent):
            found: list[str] = []
            for _, outcome in self._sent:
                if outcome.exception() is not None:
                    break
                found += outcome.result()
            else:
                return found
        ids: list[Any] = [None] * count
        first: BaseException | None = None
        for places, outcome in self._sent:
            error = outcome.exception()
            if error is not None:
                first = first or error
                continue
            for place, one in zip(places, outcome.result(), strict=True):
                ids[place] = one
        if first is not None:
            assert isinstance(first, Exception)
            raise BulkPublishError(ids, first) from first
        return ids


class AsyncPublisher:
    """Publishes from coroutines of one event loop; an async context manager."""

    def __init__(
        self,
        addresses: Sequence[str] | str | None = None,
        *,
        batch_settings: BatchSettings | None = None,
        flow_control: PublishFlowControl | None = None,
        retry: ClientRetry | None = None,
        tls: Tls | None = None,
        credentials: Shown | None = None,
        prefer_first: bool = False,
    ) -> None:
        """`addresses`: HOST:PORT, one or several (see `Connecting.of` for what the environment gives). Raises
        `InvalidArgument`.
        """
        self._connecting = Connecting.of(addresses, tls=tls, credentials=credentials, prefer_first=prefer_first)
        self._settings = batch_settings or BatchSettings(), flow_control or PublishFlowControl(), retry or ClientRetry()
        self._made: tuple[ServiceLink, PublishDriver] | None = None

    async def __aenter__(self) -> Self:
        self._parts()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    topic_path = staticmethod(topic_path)

    @property
    def address(self) -> str:
        """Where messages are sent now."""
        return self._parts()[0].present

    @property
    def repeats(self) -> int:
        """How many calls failed for a moment, and were made again."""
        return self._parts()[0].troubles

    async def publish(self, topic: str, data: bytes, ordering_key: str = "", **attributes: str) -> str:
        """Publish a message and return its id. Several calls at once share requests. Raises `SyncpointError`,
        `PausedOrderingKeyError`, `FlowControlLimitError` and `MessageTooLargeError`.
        """
        _, driver = self._parts()
        outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        entry = PublishEntry(encode_message(data, ordering_key, attributes), 1, outcome, single=True)
        await driver.room(entry, driver.behavior)
        driver.submit(topic, ordering_key, entry)
        found: str = await outcome
        return found

    async def publish_many(
        self,
        topic: str,
        messages: Iterable[bytes | OutgoingMessage] | AsyncIterable[bytes | OutgoingMessage],
        ordering_key: str = "",
    ) -> list[str]:
        """Publish all of these, and return their ids in the same order. Raises `BulkPublishError`."""
        _, driver = self._parts()
        pieces, outcomes = BulkPieces(ordering_key), _BulkOutcomes()

        async def send(found: Iterable[BulkPiece]) -> None:
            for piece in found:
                entry = outcomes.entry(piece)
                await driver.room(entry, LimitExceededBehavior.BLOCK)
                _submit(driver, topic, piece, entry)

        if isinstance(messages, AsyncIterable):
            async for message in messages:
                await send(pieces.add([message]))
        else:
            for chunk in chunks(messages, CHUNK):
                await send(pieces.add(chunk))
        await send(pieces.rest())
        await outcomes.known()
        return outcomes.ids(pieces.count)

    def resume_publish(self, topic: str, ordering_key: str) -> None:
        """Take messages of this key again, after one could not be stored."""
        self._parts()[1].resume(topic, ordering_key)

    async def flush(self) -> None:
        """Send what waits, and return once all outcomes are known."""
        await self._parts()[1].flush()

    async def switch_to(self, address: str, drain_s: float = DRAIN_S) -> None:
        """Publish to another one of the addresses from now on; returns once what is under way at the one before is
        stored, or after `drain_s`. Order per key is kept. Raises `ValueError`.
        """
        await self._parts()[0].switch_to(address, drain_s)

    async def stop(self, timeout: float | None = None) -> None:
        """Send what waits, for this many seconds at most, and close the connections."""
        link, driver = self._parts()
        await driver.stop(timeout)
        await link.close()

    def _parts(self) -> tuple[ServiceLink, PublishDriver]:
        if self._made is None:
            link = ServiceLink(self._connecting)
            self._made = link, PublishDriver(link, *self._settings)
        return self._made


class Publisher:
    """Publishes from any number of threads; a context manager."""

    def __init__(
        self,
        addresses: Sequence[str] | str | None = None,
        *,
        batch_settings: BatchSettings | None = None,
        flow_control: PublishFlowControl | None = None,
        retry: ClientRetry | None = None,
        tls: Tls | None = None,
        credentials: Shown | None = None,
        prefer_first: bool = False,
    ) -> None:
        """As `AsyncPublisher`."""
        connecting = Connecting.of(addresses, tls=tls, credentials=credentials, prefer_first=prefer_first)
        settings = batch_settings or BatchSettings(), flow_control or PublishFlowControl(), retry or ClientRetry()
        self._thread = LoopThread("syncpoint-publisher")

        async def make() -> tuple[ServiceLink, PublishDriver]:
            link = ServiceLink(connecting)
            return link, PublishDriver(link, *settings)

        self._link, self._driver = self._thread.run(make())
        atexit.register(self._at_exit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    topic_path = staticmethod(topic_path)

    @property
    def address(self) -> str:
        """Where messages are sent now."""
        return self._link.present

    def publish(self, topic: str, data: bytes, ordering_key: str = "", **attributes: str) -> ClientFuture[str]:
        """Publish a message; the outcome is its id, or the error for which it was given up. Raises
        `FlowControlLimitError`, `MessageTooLargeError`, `PausedOrderingKeyError`, and `RuntimeError` once stopped.
        """
        self._thread.check()
        outcome: ClientFuture[str] = ClientFuture()
        entry = PublishEntry(encode_message(data, ordering_key, attributes), 1, outcome, single=True)
        self._driver.submit(topic, ordering_key, entry, self._driver.behavior)
        return outcome

    def publish_many(
        self, topic: str, messages: Iterable[bytes | OutgoingMessage], ordering_key: str = ""
    ) -> list[str]:
        """Publish all of these, and return their ids in the same order. Raises `BulkPublishError`."""
        self._thread.check(waits=True)
        pieces, outcomes = BulkPieces(ordering_key), _BulkOutcomes()

        def send(found: Iterable[BulkPiece]) -> None:
            for piece in found:
                _submit(self._driver, topic, piece, outcomes.entry(piece), LimitExceededBehavior.BLOCK)

        for chunk in chunks(messages, CHUNK):
            send(pieces.add(chunk))
        send(pieces.rest())
        return outcomes.ids(pieces.count)

    def resume_publish(self, topic: str, ordering_key: str) -> None:
        """Take messages of this key again, after one could not be stored."""
        self._driver.resume(topic, ordering_key)

    def flush(self) -> None:
        """Send what waits, and return once all outcomes are known."""
        self._thread.run(self._driver.flush())

    def switch_to(self, address: str, drain_s: float = DRAIN_S) -> None:
        """As `AsyncPublisher.switch_to`."""
        self._thread.run(self._link.switch_to(address, drain_s))

    def stop(self, timeout: float | None = None) -> None:
        """Send what waits, for this many seconds at most, and close the connections."""
        if self._driver.stopped or self._thread.forked:
            return
        self._thread.check(waits=True)
        atexit.unregister(self._at_exit)
        try:
            self._thread.run(self._driver.stop(timeout))
            self._thread.run(self._link.close())
        finally:
            self._thread.stop()

    def _at_exit(self) -> None:
        self.stop(EXIT_S)


def _submit(
    driver: PublishDriver,
    topic: str,
    piece: BulkPiece,
    entry: PublishEntry,
    behavior: LimitExceededBehavior = LimitExceededBehavior.IGNORE,
) -> None:
    """Give a piece to the driver; one that it does not take has failed, as others may later."""
    try:
        driver.submit(topic, piece.ordering_key, entry, behavior)
    except PausedOrderingKeyError as error:
        entry.outcome.set_exception(error)
