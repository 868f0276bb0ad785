"""Bugs planted where messages wait for their time, in the shipped modules as they are now. Listed in `planted_bugs`."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.broker.publish.commit import commit
from syncpoint.broker.publish.commit.commit import GroupCommit
from syncpoint.broker.publish.facts.message_ids import MessageIds
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.publish.facts.scheduled import Scheduled, ScheduledMessages
from syncpoint.broker.publish.facts.source import Source
from syncpoint.catalog.metadata.records import Topic
from syncpoint.testing.simulation.planted import SINGLE, planted
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.scheduled_runs import run_scheduled
from syncpoint.testing.simulation.topology import Topology

_right, _kind = ScheduledMessages.reconcile, MessageIds.kinds
KEYED = Topology(clusters=3, disks=1, chains=2)


@planted(SINGLE, "crash", "takeover", seed=0, run=run_scheduled)
def an_adopter_publishes_again() -> AbstractContextManager[None]:
    """Facts of what was published, which stand in front of it, count for nothing."""

    def forgetful(
        self: ScheduledMessages,
        fired: Iterable[bytes],
        unsure: Container[bytes],
        sources: Mapping[int, Source],
        exists: Callable[[int], bool],
    ) -> None:
        _right(self, (), unsure, sources, exists)

    return patched(ScheduledMessages, reconcile=forgetful)


@planted(SINGLE, "crash", "takeover", seed=0, run=run_scheduled)
def checkpoints_forget_what_waits() -> AbstractContextManager[None]:
    """A checkpoint holds nothing of what waits."""

    def nothing(self: ScheduledMessages) -> Iterator[bytes]:
        return iter(())

    return patched(ScheduledMessages, facts=nothing)


@planted(SINGLE, "clock jump", seed=0, run=run_scheduled)
def publishing_by_the_wall_clock() -> AbstractContextManager[None]:
    """One clock that is ahead lets messages come early."""
    return patched(TrustedClock, sure_ns=TrustedClock.time_ns)


@planted(KEYED, "crash", "takeover", seed=17, run=run_scheduled)
def the_chain_of_a_key_publishes_again() -> AbstractContextManager[None]:
    """Plant a bug: the chain of a key does not recognize messages that it has published, by their scheduled ids."""

    def unknown(self: MessageIds, topic: Topic, request: bytes, origin: PublishOrigin) -> Sequence[str]:
        return () if origin is PublishOrigin.FIRING else _kind(self, topic, request, origin)

    return patched(MessageIds, kinds=unknown)


@planted(KEYED, "crash", "takeover", seed=25, run=run_scheduled)
def what_has_left_is_cancelled() -> AbstractContextManager[None]:
    """That another chain may have published it is not known to who cancels."""

    def stays(self: ScheduledMessages, one: Scheduled) -> bool:
        return False

    return patched(ScheduledMessages, leaves=stays)


@planted(SINGLE, "crash", "takeover", seed=3, run=partial(run_scheduled, full=True))
def a_full_entry_is_written_in_the_middle_of_a_request() -> AbstractContextManager[None]:
    """Where an entry is full, what the turn has so far is written before anything is noted of it."""
    right = GroupCommit.add

    def add(self: GroupCommit, source: Source, *rest: Any) -> None:
        entry = self._last.get(source.number)
        if entry is not None and entry.count >= commit.ENTRY_MESSAGES_MAX:
            self.append_pending()
        right(self, source, *rest)

    return patched(GroupCommit, add=add)
