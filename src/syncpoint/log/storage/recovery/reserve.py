"""Reserve the next log counter on all disks: of two interrupted recoveries the later one has the higher counter.

Place: the first step of an opening that changes anything, after all decisions.
Promise: the counter is higher than any that a disk which may be away could know; it is reserved on so many disks that
any reader of the old log meets one of them.
"""

from __future__ import annotations

from syncpoint.base.runtime.random import Random
from syncpoint.log.storage.disk.disk_identity import (
    DiskIdentity,
    encode_marks,
    read_identity,
    write_identity,
    write_marks,
)
from syncpoint.log.storage.errors import CopiesChanged, CounterTaken, DisksMissing
from syncpoint.log.storage.layout import DISK_FILE, logs_dir
from syncpoint.log.storage.recovery.decide_tails import TailDecision
from syncpoint.log.storage.recovery.members import Members
from syncpoint.log.storage.recovery.opening_disks import DiskState, OpeningDisks
from syncpoint.log.storage.settings import KnownStore

_COUNTERS_UNKNOWN = 10_000  # left out where absent disks may know later logs: their message ids must not come again


def reserve(disks: OpeningDisks, members: Members, decision: TailDecision, random: Random, known: KnownStore) -> int:
    """The counter of the new log; the known one, if it was handed in. Raises `CounterTaken`, `DisksMissing`."""
    counter = known.counter
    seen = max((copy.header.log for copy in disks.copies()), default=0)
    highest = max(seen, disks.marks.reserved, known.counter_floor)
    if members.absent and counter is None:
        highest += _COUNTERS_UNKNOWN
    if counter is not None and counter <= highest:
        raise CounterTaken(f"log counter {counter} is not above {highest}, the highest on the disks", highest=highest)
    reserved = highest + 1 if counter is None else counter
    marks = disks.marks
    marks.reserved = reserved
    for log, seq in decision.gone:
        marks.give_up(log, seq)
    marks.version += 1
    content = encode_marks(marks)
    for disk in disks.good:
        if disk.identity is None:
            disk.identity = DiskIdentity(disks.universe, random.token(16))
            disk.fresh = True

    def write(disk: DiskState) -> None:
        _claim_identity(disks, disk)
        write_marks(disks.files, disk.root, content)
        disks.files.mkdir(logs_dir(disk.root))
        disks.files.sync_dir(disk.root)

    disks.on(disks.good, write)
    present = {disk.identity.incarnation for disk in disks.good if disk.identity is not None}
    if not members.known_to_old(present):
        raise DisksMissing("too few disks could reserve the next log")
    disks.recovered.universe, disks.recovered.log_counter = disks.universe, reserved
    return reserved


def _claim_identity(disks: OpeningDisks, disk: DiskState) -> None:
    """Write which disk it is where that is new; where it was read, it has to be there still.

    A disk whose machine stopped may have lost what it had not synced. Its server takes the name from it, and nobody
    gives it back.
    """
    assert disk.identity is not None
    assert disk.scan is not None
    found = read_identity(disks.files, disk.root)
    disks.refuse_restarted(disk)
    if disk.fresh or not disk.scan.named:
        write_identity(disks.files, disk.root, disk.identity)
    elif found == disk.identity:
        disks.files.anchor(disk.root, DISK_FILE)
    else:
        raise CopiesChanged(f"disk {disk.root} was replaced after it was read", disks=[disk.root])
