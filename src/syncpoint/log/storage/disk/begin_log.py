"""Begin a log: a maintainer and a writer for every disk, then the first header on enough of them.

Place: called by `disk_set` when a store is opened, after `recovery` sealed what earlier lives left.
Promise: nothing is written before it is sure that the log could acknowledge, and would be known to whoever reads the
old one; the same holds of the disks on which the header then lies. A disk that fails now stays a member, as one that
may come back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.files import DiskFenced
from syncpoint.base.runtime.step_workers import Workers
from syncpoint.log.storage.disk.disk_writer import DiskWriter
from syncpoint.log.storage.disk.maintenance import DiskMaintainer
from syncpoint.log.storage.disk.segment_pool import SegmentPool
from syncpoint.log.storage.errors import DisksMissing, Fenced
from syncpoint.log.storage.log import Log
from syncpoint.log.storage.recovery.recover import Recovery

MakeWriter = Callable[[int, bytes, SegmentPool], DiskWriter]


def open_disks(
    recovery: Recovery, maintainers: Sequence[DiskMaintainer], make_writer: MakeWriter, workers: Workers
) -> list[DiskWriter | None]:
    """A writer for every disk that can be used. Raises `Fenced`."""

    def read(maintainer: DiskMaintainer) -> None:
        maintainer.pool.open()
        maintainer.refresh()
        maintainer.note_identity()

    disks = recovery.disks.all
    usable = [disk.slot for disk in disks if disk.error is None and disk.identity is not None]
    outcomes = workers.together([partial(read, maintainers[slot]) for slot in usable])
    for slot, error in zip(usable, outcomes, strict=True):
        disk, maintainer = disks[slot], maintainers[slot]
        if isinstance(error, OSError):
            _refuse_fenced(disk.root, error)
            disk.error = error
        elif error is not None:
            raise error
        elif disk.identity is not None:
            copies = [] if disk.scan is None else disk.scan.copies
            maintainer.coming_back.disks = {disk.identity.incarnation, *(copy.header.disk for copy in copies)}
            maintainer.writer = make_writer(slot, disk.identity.incarnation, maintainer.pool)
    return [maintainer.writer for maintainer in maintainers]


def begin_log(
    log: Log, recovery: Recovery, writers: Sequence[DiskWriter | None], workers: Workers, clock: Clock
) -> None:
    """Write the first header. Raises `DisksMissing`, `Fenced`."""
    fragment, segment = log.fragment, log.segment
    opened = [writer for writer in writers if writer is not None]
    _refuse_few(log, recovery, opened)
    answered_at = clock.monotonic()

    def begin(writer: DiskWriter) -> None:
        writer.open_now(segment, fragment.members, fragment.rule, fragment.away)
        writer.answered_at = answered_at

    outcomes = workers.together([partial(begin, writer) for writer in opened])
    failed = [(writer, error) for writer, error in zip(opened, outcomes, strict=True) if error is not None]
    try:
        for writer, error in sorted(failed, key=lambda one: not isinstance(one[1], DiskFenced)):
            if not isinstance(error, OSError):
                raise error
            opened.remove(writer)
            writer.error = error
            writer.given_up = True
            log.dropped(writer)
            _refuse_fenced(writer.root, error)
        _refuse_few(log, recovery, opened)
    except Exception:
        for one in writers:
            if one is not None:
                one.release()
        raise
    log.fit()
    recovery.disks.recovered.disks = ["" if w is None or w.error else w.incarnation.hex() for w in writers]


def _refuse_few(log: Log, recovery: Recovery, writers: Sequence[DiskWriter]) -> None:
    held = {writer.incarnation for writer in writers}
    enough = log.fragment.rule.can_acknowledge([writer.slot for writer in writers])
    if not enough or not recovery.members.known_to_old(held):
        failed = ", ".join(f"{one.root} ({one.error})" for one in recovery.disks.all if one.error)
        raise DisksMissing(f"too few disks can start the new log; failed: {failed or 'none'}", log=log.counter)


def _refuse_fenced(root: str, error: OSError) -> None:
    if isinstance(error, DiskFenced):
        raise Fenced(f"disk {root} has another writer: {error}", disks=[root]) from error
