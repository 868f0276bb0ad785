"""Readers that have a subscription to themselves: a stream reads its topic by offsets and acknowledges ranges.

Place: `reading` gives the calls of readers to one of two: `NodeReaders` where one process delivers everything,
`ChainReaders` in one of many chains, where a proxy has written the hold (`proxy.exclusive_readers`).
Promise: while a reader's calls come in time nobody else is delivered anything, over restarts, too: the hold stands in
the catalog (`metadata.reader_holds`). A reader is refused while others are attached or hold messages. A seek ends what
a reader has: it is refused until it begins anew where the seek went.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.model.errors import Aborted, FailedPrecondition, ResetBySeek, Unimplemented
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.catalog.metadata.reader_holds import drop_hold, hold_of, new_hold, put_hold, wanted_s, written_hold
from syncpoint.catalog.metadata.records import CatalogChange, Subscription

LET_GO_S = 2.0  # for subscribe forwarders to let go of what nobody consumes from
LOOK_S = 0.05

Commit = Callable[[Sequence[CatalogChange]], Awaitable[object]]


class ExclusiveReaders(Protocol):
    """Who may read a subscription alone, where LogReader is served."""

    async def take(self, record: Subscription, reader: str, seconds: float) -> None:
        """A reader takes the subscription, or goes on having it. Raises `SyncpointError` where it cannot."""

    async def release(self, record: Subscription, reader: str) -> None:
        """The reader is done. Idempotent; a reader that does not have it changes nothing."""


class NodeReaders:
    """Manage exclusive readers on a single node, where `subscribe` delivers everything.

    `commit` changes the catalog in the turn of the call.
    """

    def __init__(self, publish: PublishForwarder, subscribe: SubscribeForwarder, commit: Commit) -> None:
        self.publish, self.subscribe, self._commit = publish, subscribe, commit
        self.catalog, self.clock = subscribe.catalog, publish.clock

    async def take(self, record: Subscription, reader: str, seconds: float) -> None:
        wanted_s(seconds)
        now_ns = self.clock.time_ns()
        hold = hold_of(self.catalog, record.incarnation, now_ns)
        self.subscribe.used[record.incarnation] = self.subscribe.clock.monotonic()
        if hold is None or hold.reader != reader:
            self.subscribe.check_free(record)
            self._check_unused(record)
        elif hold.lasts(seconds, now_ns):
            return
        hold = new_hold(reader, seconds, now_ns)
        await self._commit(put_hold(self.catalog, record.incarnation, hold, now_ns))

    def _check_unused(self, record: Subscription) -> None:
        delivery = self.subscribe.deliveries.get(record.incarnation)
        if delivery is None:
            return
        messages, _ = delivery.table.total()
        if delivery.consumers or messages:
            raise others_consume(record, len(delivery.consumers), messages)
        self.subscribe.removed(record.incarnation)  # what it read ahead would be delivered again later

    async def release(self, record: Subscription, reader: str) -> None:
        hold = written_hold(self.catalog, record.incarnation)
        if hold is not None and hold.reader == reader:
            await self._commit([drop_hold(record.incarnation)])


class ChainReaders:
    """Manage exclusive readers in one chain of a cluster: the hold is already in the catalog, and takes effect once no
    chain delivers to others. `attached`: returns the subscribe forwarders that serve a subscription from this chain.
    """

    def __init__(self, publish: PublishForwarder, attached: Callable[[int], Collection[int]]) -> None:
        self.publish, self._attached = publish, attached

    async def take(self, record: Subscription, reader: str, seconds: float) -> None:
        """Grant the reader exclusive use in this chain.

        Raises `Aborted` if the local catalog names another reader or none.
        """
        hold = written_hold(self.publish.catalog, record.incarnation)
        if hold is None or hold.reader != reader:
            raise Aborted(
                f"{reader} is not the exclusive reader of {record.name} in this process's catalog. Try again."
            )
        end = self.publish.clock.monotonic() + LET_GO_S
        while others := len(self._attached(record.incarnation)):
            if self.publish.clock.monotonic() >= end:
                raise FailedPrecondition(
                    f"The subscription {record.name} has other consumers: {others} subscribe forwarders deliver it. An"
                    " exclusive reader allows no others: stop them, wait until their messages are acknowledged or their"
                    " ack deadlines expire, and start again."
                )
            await asyncio.sleep(LOOK_S)

    async def release(self, record: Subscription, reader: str) -> None:
        raise Unimplemented("ReleaseSubscription")


def others_consume(record: Subscription, consumers: int, messages: int) -> FailedPrecondition:
    """Why a subscription cannot be had alone now."""
    return FailedPrecondition(
        f"The subscription {record.name} has other consumers: {consumers} are attached and {messages} messages are"
        " outstanding. An exclusive reader allows no others: stop them, wait until their messages are acknowledged or"
        " their ack deadlines expire, and start again."
    )


def check_generation(publish: PublishForwarder, record: Subscription, generation: int) -> None:
    """Raises `FailedPrecondition` when what a reader has processed is of before a seek."""
    ledger = publish.ledgers.get(record.incarnation)
    if ledger is not None and generation != ledger.generation:
        raise ResetBySeek(
            f"The subscription {record.name} was reset by a seek while this stream read it (seek {ledger.generation};"
            " the"
            f" stream's offsets are of {generation}). Stop the stream and restart it with a new checkpoint and"
            " without a"
            " starting position: it then reads what the seek left unacknowledged."
        )


def acknowledge(publish: PublishForwarder, record: Subscription, ends: dict[int, int]) -> None:
    """Everything before these ends, by source, is processed, in the generation of now. Raises `Unavailable` when that
    cannot be stored.
    """
    publish.commit.check_writable()
    ledger = publish.ledgers.get(record.incarnation)
    if ledger is None:  # of a chain where nothing of the topic is left
        return
    for source, end in ends.items():
        if end > 0 and not ledger.covers(source, 0, end):
            publish.server.acknowledge(
                record.incarnation, ledger.generation, source, encode_runs([(0, end)]), _nobody_waits, urgent=False
            )


def _nobody_waits(error: Exception | None) -> None:
    """A lost acknowledgement comes again with the reader's next call."""
