"""Bugs planted into fencing, quorums, recovery and the handing over of keys. Listed in `planted_bugs`.

Each patch takes out what a rule of the protocol asks for, in the shipped modules as they are now.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from syncpoint.base.model.delivery import Batch
from syncpoint.broker.publish.chain import chain as chain_module
from syncpoint.broker.publish.facts import recovery as publish_recovery
from syncpoint.broker.publish.facts.ledger import Ledger
from syncpoint.broker.publish.grants import dispatch as dispatch_module
from syncpoint.broker.publish.grants import holders as holders_module
from syncpoint.broker.publish.grants.holders import SourceHolders
from syncpoint.broker.publish.intake import follow
from syncpoint.broker.publish.intake.ingress import PublishIngress
from syncpoint.broker.subscribe.fetch import FetchCursor
from syncpoint.broker.subscribe.served_subscriptions import ServedSubscriptions
from syncpoint.broker.subscribe.source_reader import SourceReader
from syncpoint.broker.subscribe.subscription_view import SubscriptionView
from syncpoint.log.diskserver.disk_service import DiskService, ServedChannel
from syncpoint.log.diskserver.protocol import DiskOp, Hello, Reply, Request
from syncpoint.log.storage import record as record_module
from syncpoint.log.storage import segment as segment_module
from syncpoint.log.storage.disk.disk_set import DiskSet
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.recovery import find_tail
from syncpoint.log.storage.recovery import members as members_module
from syncpoint.testing.simulation.planted import (
    HEAVY,
    LASTING_TWO,
    SINGLE,
    SPREAD,
    STRICT_TWO,
    THREE,
    planted,
    together,
)
from syncpoint.testing.simulation.scaled import patched


@planted(THREE, "takeover", "hang", "crash", seed=4)
def no_epoch_check() -> AbstractContextManager[None]:
    """A disk executes whatever anybody sends."""
    hello, run = DiskService.hello, DiskService.run

    def any_hello(self: DiskService, asked: Hello) -> ServedChannel:
        known = self._chain(asked).token
        if (asked.epoch, asked.session) < known:
            asked = asked._replace(epoch=known.epoch, session=known.session)
        return hello(self, asked)

    def any_run(self: DiskService, channel: ServedChannel, attempt: int, request: Request) -> Reply:
        channel.token = channel.chain.token
        return run(self, channel, attempt, request._replace(epoch=channel.token.epoch))

    return patched(DiskService, hello=any_hello, run=any_run)


@planted(THREE, "takeover", "crash", seed=0)
def recovery_that_does_not_fence() -> AbstractContextManager[None]:
    """A new owner shuts the old one out only when it writes to a file for the first time, not before it reads."""
    run = DiskService.run

    def late_run(self: DiskService, channel: ServedChannel, attempt: int, request: Request) -> Reply:
        chain = channel.chain
        held = chain.token
        if (
            request.op in (DiskOp.CHANGE, DiskOp.FDATASYNC)
            and request.changes
            and channel.token >= getattr(chain, "wrote", channel.token)
        ):
            chain.wrote = channel.token  # type: ignore[attr-defined]
        if channel.token >= getattr(chain, "wrote", channel.token):
            chain.token = channel.token
        try:
            return run(self, channel, attempt, request)
        finally:
            chain.token = held

    return patched(DiskService, run=late_run)


@planted(THREE, "crash", "power cut", "partition from disks", "takeover", "disk slow", seed=10)
def ack_before_quorum() -> AbstractContextManager[None]:
    """What one disk holds counts as persisted."""
    persisted = AckRule.persisted

    def enough(self: AckRule, slots: Any) -> bool:
        return persisted(self, [1 if slot in slots else 0 for slot in range(len(self.clusters))]) > 0

    return patched(AckRule, persisted=lambda self, positions: max(positions), can_acknowledge=enough)


@planted(THREE, "crash", "disk rots", "takeover", "disk slow", "power cut", seed=10)
def truncate_at_any_bad_checksum() -> AbstractContextManager[None]:
    """A log ends where the frames of its first copy end, whatever was synced and whatever others hold."""
    right = find_tail._scanned

    def first_only(log: int, seq: int, found: Any, tables: Any, must_end: Any, synced: int) -> Any:
        slot = min(tables)
        return right(log, seq, found, {slot: tables[slot]}, must_end, 0)

    return patched(find_tail, _scanned=first_only)


@planted(SPREAD, "split of disks", seed=76)
def rule_2() -> AbstractContextManager[None]:
    """Any majority of the disks counts as enough to read from, and to go on with."""

    def majority(self: AckRule, slots: Any) -> bool:
        return len(slots) > len(self) // 2

    return patched(AckRule, is_read_set=majority, can_acknowledge=majority)


@planted(THREE, "replaced at the worst time", beyond=True, seed=0)
def rule_3() -> AbstractContextManager[None]:
    """Disks that were not there count as those that were: their "no such entry" is believed."""

    def anybody(members: Any, holders: Any) -> list[int]:
        return list(range(len(members)))

    return patched(members_module, slots_of=anybody)


@planted(SINGLE, "crash", "power cut", "takeover", "power cut in a command", seed=27)
def rule_4() -> AbstractContextManager[None]:
    """Frames are not bound to their place."""

    def nowhere(universe: int, log: int, incarnation: int) -> int:
        return 0

    return together(patched(record_module, place_seed=nowhere), patched(segment_module, place_seed=nowhere))


@planted(HEAVY, "disk hung", "disk slow", seed=0)
def rule_8() -> AbstractContextManager[None]:
    """A disk that lags too much stays in the live stream."""
    return patched(DiskSet, _drop_if_enough=lambda self, writer: None)


@planted(SINGLE, "crash", "takeover", "close", seed=0)
def rule_12() -> AbstractContextManager[None]:
    """Recovery merges acknowledgements over seeks."""

    merge, right = Ledger.merge, publish_recovery.replay

    def merged(self: Ledger, state: Ledger) -> None:
        held = self.acks if state.generation > self.generation else {}
        merge(self, state)
        for source, found in held.items():
            self.of(source).union(found)

    def replay(store: Any) -> Any:
        with patched(Ledger, merge=merged):
            return right(store)

    return patched(chain_module, replay=replay)


@planted(SINGLE, "crash", "takeover", seed=7)
def rule_16() -> AbstractContextManager[None]:
    """Where a subscription starts is confirmed from memory."""
    begin = follow.Follower._begin

    def unwritten(self: Any, record: Any) -> None:
        forwarder = self.forwarder
        append = forwarder.commit.append_fact
        forwarder.commit.append_fact = lambda *arguments: None
        try:
            begin(self, record)
        finally:
            del forwarder.commit.append_fact
            assert forwarder.commit.append_fact == append

    return patched(follow.Follower, _begin=unwritten, confirm=lambda self, done: done(None))


@planted(STRICT_TWO, "metadata outage", seed=97)
def rule_18() -> AbstractContextManager[None]:
    """A chain takes keys although others have not sealed what they have of them."""
    seal_others = PublishIngress._seal_others

    async def at_once(self: PublishIngress, topic: int) -> None:
        async def sealed(topic: int, epoch: int, chain: int) -> None:
            """Nobody is asked."""

        self._sealed = sealed
        await seal_others(self, topic)

    return patched(PublishIngress, _seal_others=at_once)


@planted(SINGLE, "takeover", "disk slow", seed=3)
def a_source_ends_early() -> AbstractContextManager[None]:
    """A sealed source is reported to have ended while messages of it wait for the disks."""
    whole = {"is_whole": lambda source: source.sealed}
    return together(patched(dispatch_module, **whole), patched(holders_module, **whole))


@planted(SINGLE, "close", "takeover", seed=0)
def nobody_goes_on() -> AbstractContextManager[None]:
    """A source that turns out to have ended wakes nobody: what comes after it waits until something else happens."""

    def read(self: SourceReader, cursor: FetchCursor, batches: Sequence[Batch] | Exception) -> None:
        if isinstance(batches, Exception):
            cursor.failed(self._state.now())
            self._state.stalled = True
            return
        cursor.received(batches)
        if batches:
            self._state.wake()

    return patched(SourceReader, _read=read)


@planted(LASTING_TWO, "subscribe forwarder parted", seed=87)
def an_epoch_begins_unknowing() -> AbstractContextManager[None]:
    """Keys of a new epoch are delivered by who has not learned what others still have of the one before."""

    def once_is_enough(self: ServedSubscriptions, served: SubscriptionView) -> list[int]:
        known = set(self.peers.directory.chains_of(served.topic)) | (served.registered or frozenset())
        return [chain for chain in known if chain not in served.answered]

    return together(
        patched(ServedSubscriptions, lacking=once_is_enough),
        patched(SourceHolders, on_ranks_changed=lambda self, topic: None),
    )
