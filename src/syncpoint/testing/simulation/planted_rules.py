"""Bugs planted into ledgers, deletion and grants: each takes one rule out, in the shipped modules as they are now.

Listed in `planted_bugs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from syncpoint.base.model.identity import log_of
from syncpoint.broker.publish.chain import chain as chain_module
from syncpoint.broker.publish.commit.append import AckBatch
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts import recovery as publish_recovery
from syncpoint.broker.publish.facts.ledger import Ledger
from syncpoint.broker.publish.facts.source import Source, SourceTable
from syncpoint.broker.publish.grants import grants as grants_module
from syncpoint.broker.publish.grants.grants import Grants
from syncpoint.broker.publish.intake.follow import Follower
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.catalog.metadata.records import CatalogChange, ChangeOp, Subscription
from syncpoint.log.storage.disk.listed_segments import ListedSegments
from syncpoint.log.storage.errors import CopiesUnreachable
from syncpoint.log.storage.index import DamagedIndex
from syncpoint.log.storage.record import EntryKind
from syncpoint.log.storage.recovery.trim import Trim
from syncpoint.testing.simulation.planted import ABSENT, EMPTYING, ROLLING, SEEKING, SINGLE, SMALL, planted, together
from syncpoint.testing.simulation.scaled import patched

_EVERYTHING = 1 << 62


@planted(EMPTYING, "close", "takeover", seed=2)
def a_seek_while_nothing_is_stored_is_left_aside() -> AbstractContextManager[None]:
    """A ledger that outlived its topic's last message stays in the generation it was in."""
    right = Follower.changed

    def changed(self: Follower, change: CatalogChange) -> None:
        record = change.record
        topic = record.topic_incarnation if isinstance(record, Subscription) and not record.detached else None
        if topic is None or change.op is ChangeOp.DELETE or self.forwarder.sources.of_topic(topic):
            right(self, change)

    def open_source(self: Follower, topic: int, epoch: int) -> Source:
        for record in self.catalog.subscriptions_of(topic):
            self._begin(record)
        return self.forwarder.open_source(topic, epoch, self.catalog.revision)

    return patched(Follower, changed=changed, open_source=open_source)


@planted(SINGLE, "crash", "takeover", "close", seed=4)
def a_start_counts_in_every_generation() -> AbstractContextManager[None]:
    """What is older than a subscription counts as acknowledged at every opening, wherever it was moved to."""
    merge, right = Ledger.merge, publish_recovery.replay

    def merged(self: Ledger, state: Ledger) -> None:
        merge(self, state)
        for source, offset in state.start.items():
            if offset:
                self.of(source).add(0, offset)

    def replay(store: Any) -> Any:
        with patched(Ledger, merge=merged):
            return right(store)

    return patched(chain_module, replay=replay)


@planted(SEEKING, "dies behind its disks", seed=96)
def a_seek_is_seen_before_it_is_persisted() -> AbstractContextManager[None]:
    """What a seek came to is served from memory, though the next owner may come to something else. What keeps whoever
    reads from going on behind acknowledgements that are not persisted is out as well: it would hide most of the damage.
    """
    right = PublishForwarder.replace_acks

    def at_once(self: PublishForwarder, subscription: int, *arguments: Any) -> None:
        right(self, subscription, *arguments)
        del self.server._resets[subscription]
        listener = self.server._listeners.get(subscription)
        if listener is not None:
            listener.on_reset()

    return together(
        patched(PublishForwarder, replace_acks=at_once),
        patched(AckBatch, unpersisted=lambda self, subscription, source: None),
    )


@planted(ROLLING, "accident", "hang of a subscribe forwarder", seed=2)
def a_failed_look_deletes() -> AbstractContextManager[None]:
    """A look at a segment that ended in an exception is gone on with, by what it had found until then."""
    judge, step = Trim._judge, Trim.step

    def judged(self: Trim, look: Any, live: Any, budget: int) -> tuple[int, bool]:
        try:
            used, finished = judge(self, look, live, budget)
        except (DamagedIndex, CopiesUnreachable, OSError):
            raise
        except BaseException:
            self._failed = look  # type: ignore[attr-defined]
            raise
        if finished:
            look.seen = look.segment.messages
        return used, finished

    def stepped(self: Trim, live: Any, report: Any, *basis: Any) -> Any:
        self._failed = None  # type: ignore[attr-defined]
        try:
            return step(self, live, report, *basis)
        except BaseException:
            self._look = getattr(self, "_failed", None)
            raise

    return patched(Trim, _judge=judged, step=stepped)


@planted(EMPTYING, "crash", "takeover", "maintainers starved", seed=3)
def forgotten_sources_come_back() -> AbstractContextManager[None]:
    """What is found of a source that was forgotten is taken for something nobody knows, and kept."""
    return patched(SourceTable, was_deleted=lambda self, number: False)


@planted(ROLLING, "close", "back when given up", seed=42)
def segments_are_listed_that_no_disk_has() -> AbstractContextManager[None]:
    """What is full in memory is noted as something that every later opening must find."""
    return patched(ListedSegments, _is_promised=lambda self, segment, closed: segment.sealed_by > 0)


@planted(ROLLING, "crash", "disk slow", "power cut", seed=0)
def rule_7() -> AbstractContextManager[None]:
    """The original of what is copied forward is deleted before the copies are persisted."""
    right = Trim._go_on_moving

    def hasty(self: Trim, report: Any, dead: Any) -> None:
        synced, self._synced = self._synced, lambda: _EVERYTHING
        try:
            right(self, report, dead)
        finally:
            self._synced = synced

    return patched(Trim, _go_on_moving=hasty)


@planted(SINGLE, "takeover", "crash", seed=0)
def rule_11() -> AbstractContextManager[None]:
    """What was acknowledged of a source of an earlier log is not read back."""
    right = publish_recovery.replay

    return patched(chain_module, replay=lambda store: right(_OwnAcks(store)))  # type: ignore[arg-type]


class _OwnAcks:
    """A store whose logs say nothing of what was acknowledged of earlier ones."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def replay(self) -> Iterator[Any]:
        for entry in self._store.replay():
            if entry.kind != EntryKind.ACKS:
                yield entry
            elif mine := [one for one in records.decode_acks(entry.payload) if log_of(one.source) == entry.log]:
                yield entry._replace(payload=b"".join(records.encode_acks(mine)))


@planted(SMALL, "subscribe forwarder parted", "hang of a subscribe forwarder", "takeover", seed=11)
def rule_17() -> AbstractContextManager[None]:
    """Messages are granted anew before the old grant is over, and acknowledgements count under any."""
    return together(
        patched(grants_module, GRANT_S=0.3, RECONNECT_S=0.1),
        patched(Grants, may_acknowledge=lambda self, subscription, source, grant: True),
    )


@planted(ABSENT, "takeover", seed=1)
def rule_19() -> AbstractContextManager[None]:
    """Sources are granted to who has nobody to deliver to."""
    right = Grants.attach

    def attach(self: Grants, subscription: int, holder: int, wanted: bool, claims: Any, now: float) -> Any:
        return right(self, subscription, holder, True, claims, now)

    return patched(Grants, attach=attach, set_demand=lambda self, subscription, holder, wanted, now: [])
