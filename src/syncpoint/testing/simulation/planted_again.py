"""Bugs that were in the product once, planted again: named by what they break. Listed in `planted_bugs`.

Each patch takes out what mended it, in the shipped modules as they are now.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.broker.publish.chain.host import ChainHost
from syncpoint.broker.publish.grants import sessions
from syncpoint.broker.publish.grants.dispatch import SourceDispatcher
from syncpoint.broker.publish.grants.holders import SourceHolders
from syncpoint.broker.publish.grants.sessions import Sessions
from syncpoint.broker.subscribe import fetch, source_reader
from syncpoint.broker.subscribe.lease import LeaseManager
from syncpoint.broker.subscribe.served_subscriptions import ServedSubscriptions
from syncpoint.catalog.metadata.contract import Compare
from syncpoint.cluster.control import registration
from syncpoint.log.diskserver.remote_disk import RemoteDisk
from syncpoint.log.storage.copy_reader import CopyReader
from syncpoint.log.storage.disk import begin_log
from syncpoint.log.storage.disk.segment_catalog import Segment
from syncpoint.log.storage.errors import CopiesUnreachable, StorageDamaged
from syncpoint.log.storage.index import IndexRecord
from syncpoint.log.storage.recovery import members
from syncpoint.log.storage.recovery.members import Members
from syncpoint.log.storage.segment import NOBODY
from syncpoint.testing.simulation.planted import EMPTYING, LASTING, SMALL, THREE, planted, together
from syncpoint.testing.simulation.scaled import patched


@planted(THREE, "disks lost in an opening", seed=17)
def a_log_begins_on_too_few_disks() -> AbstractContextManager[None]:
    """A header is durable before it is asked whether the log can acknowledge, and names only who is there."""
    right = begin_log._refuse_few

    def at_last(log: Any, recovery: Any, writers: Any) -> None:
        asked, recovery.asked_before = getattr(recovery, "asked_before", False), True
        if asked:
            right(log, recovery, writers)

    def newest(copies: Any) -> Any:
        headers = [copy.header for copy in copies]
        return max(headers, key=lambda header: (header.log, header.seq), default=None)

    def only_here(self: Members) -> list[bytes]:
        return [NOBODY] * len(self._disks.all)

    return together(
        patched(begin_log, _refuse_few=at_last),
        patched(Members, names=only_here),
        patched(members, newest_header=newest),
    )


@planted(SMALL, "subscribe forwarder parted", "hang of a subscribe forwarder", seed=26)
def late_words_count() -> AbstractContextManager[None]:
    """What an older stream of a subscribe forwarder still had to say displaces the living one."""

    def anybody(self: Sessions, session: Any) -> Any:
        return self.known.get(session.incarnation)

    right = SourceHolders.attach

    def attach(self: SourceHolders, session: Any, *arguments: Any) -> None:
        self._sessions[session.incarnation] = session
        right(self, session, *arguments)

    def on_data(self: SourceDispatcher, subscription: int, source: int) -> None:
        key = (subscription, source)
        if self.progress.is_waiting(key) and self.holders.session_of(subscription, source) is None:
            self.progress.notified(key)
        news(self, subscription, source)

    news = SourceDispatcher.on_data
    return together(
        patched(Sessions, of=anybody), patched(SourceHolders, attach=attach), patched(SourceDispatcher, on_data=on_data)
    )


@planted(SMALL, "subscribe forwarder parted", "crash of a subscribe forwarder", seed=9)
def a_late_hello_ends_the_living() -> AbstractContextManager[None]:
    """The Hello that comes in last is taken for that of the newest life of a subscribe forwarder; who is displaced by
    it is not reported.
    """
    right = ChainHost.session_began

    def silent(self: ChainHost, session: Any, member: str) -> None:
        for known in self._sessions:
            if known.member == member and known.session is not None and known.session is not session:
                known.session = None
        right(self, session, member)

    return together(
        patched(sessions, _is_older=lambda session, known: False),
        patched(ChainHost, session_began=silent, heeds=lambda self, session: True),
    )


@planted(SMALL, "disk server hung", "partition from disks", seed=23)
def what_is_passed_over_is_taken_for_acknowledged() -> AbstractContextManager[None]:
    """Entries that are whole on a disk that is late or away are called damaged, and never asked for again.

    One of both does no harm that lasts: what is only out of reach is not passed over, and what is passed over is asked
    for again. So both are taken out.
    """

    def nothing(batches: Any) -> tuple[tuple[int, int], ...]:
        return ()

    frames = CopyReader.frames

    def damaged(self: CopyReader, segment: Segment, records: Sequence[IndexRecord]) -> Any:
        try:
            return frames(self, segment, records)
        except CopiesUnreachable:
            one = records[0]
            raise StorageDamaged(
                "it is on no disk in good order", resume_offset=one.first_offset + one.count, log=segment.log,
                segment=segment.seq, position=segment.first_position + one.ordinal, source=one.source,
                first_offset=one.first_offset,
            ) from None  # fmt: skip

    return together(
        patched(source_reader, passed_over=nothing),
        patched(fetch, passed_over=nothing),
        patched(CopyReader, frames=damaged),
    )


@planted(THREE, "farewells lost", "disk server hung", "disk fails", seed=11)
def a_lock_stays_with_a_lost_farewell() -> AbstractContextManager[None]:
    """A disk whose server did not answer the farewell is left under the session that holds its lock."""

    right = RemoteDisk.leave

    def same(self: RemoteDisk, new_session: Any, *, clean: bool) -> None:
        right(self, lambda: self._hello.session, clean=clean)

    return patched(RemoteDisk, leave=same)


@planted(EMPTYING, "metadata in doubt", "takeover", seed=180)
def a_late_removal_removes_the_next_registration() -> AbstractContextManager[None]:
    """A removal is meant for whatever is registered when it arrives."""

    def whatever(key: str, revision: int) -> Compare:
        return Compare(key, "revision", ">", -1)

    return patched(registration, unchanged=whatever)


@planted(LASTING, "island left behind", seed=4)
def strict_delivery_goes_on_without_ownership() -> AbstractContextManager[None]:
    """Who is cut off from the chain's disks hands out messages of exactly-once and ordered subscriptions, and who was
    granted them lends them.
    """
    return together(
        patched(ServedSubscriptions, doubt_unowned=lambda self, served, now: None),
        patched(SourceHolders, owned_age_ms=lambda self: 0),
    )


@planted(LASTING, "subscribe forwarder falls silent", seed=1)
def an_acknowledgement_fails_by_our_own_word() -> AbstractContextManager[None]:
    """One that was under way when its source was granted anew is reported as failed, whatever became of it."""

    def failed(self: LeaseManager, record: Any) -> None:
        if record.waiting is not None:
            record.waiting.lost(record.source)

    return patched(LeaseManager, _doubt=failed)


@planted(LASTING, "subscribe forwarder falls silent", seed=1)
def what_was_tried_before_fails_by_a_refusal() -> AbstractContextManager[None]:
    """An acknowledgement that may have counted the first time is reported as failed when it is refused the second."""
    right = LeaseManager._recorded

    def recorded(self: LeaseManager, record: Any, error: Exception | None) -> None:
        right(self, record._replace(maybe=False), error)

    return patched(LeaseManager, _recorded=recorded)


@planted(SMALL, "clock jump", "takeover", seed=1)
def one_clock_says_what_is_too_old() -> AbstractContextManager[None]:
    """What is stamped, and deleted for its age, is so by one reading of one wall clock."""
    return patched(
        TrustedClock,
        sure_ns=lambda self: self._clock.time_ns(),
        time_ns=lambda self: self._clock.time_ns(),
    )
