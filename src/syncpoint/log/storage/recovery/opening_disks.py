"""The disks of one opening: locked, read, and given up where they fail while the others suffice.

Place: held by `Recovery`; every step reads and changes disks through it.
Promise: two processes never open the same disks; a disk with another writer ends the opening, whatever the other disks
say; once the disks that are left could not acknowledge, nothing is decided any more. A disk whose machine was restarted
since it was read is not taken for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from syncpoint.base.runtime.files import DiskFenced, Files
from syncpoint.log.storage.disk.disk_identity import DiskIdentity, Marks, merge_marks
from syncpoint.log.storage.errors import GO_ON, CopiesChanged, DisksMissing, Fenced, ForeignDisk
from syncpoint.log.storage.layout import LOCK_FILE
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.recovery.scan import DiskScan, FoundCopy, scan_disk

Together = Callable[[Sequence[Callable[[], Any]]], list[Any]]
"""See `Workers.together`."""


@dataclass(slots=True)
class Recovered:
    """What opening found and did; plain values for the log and for tools."""

    universe: int = 0
    log_counter: int = 0
    disks: list[str] = field(default_factory=list)  # incarnation of each disk, "" for a failed one
    logs: dict[int, int] = field(default_factory=dict)  # log -> last position
    scanned: list[str] = field(default_factory=list)  # segments whose frames had to be read
    cut: list[str] = field(default_factory=list)  # tails nobody was promised
    lost: list[str] = field(default_factory=list)  # promised entries that are nowhere, accepted by setting
    incomplete: list[str] = field(default_factory=list)  # copies to be completed in the background
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class DiskState:
    """One disk as recovery leaves it."""

    slot: int
    root: str
    identity: DiskIdentity | None = None
    error: Exception | None = None
    lock: int | None = None
    scan: DiskScan | None = None
    fresh: bool = False  # a new incarnation: holds nothing yet
    restarts: int = 0  # of its machine, when it was read


class OpeningDisks:
    """`all`: by slot; `marks`, `universe`: what those that were read agree on; `recovered`: where notes are taken."""

    def __init__(self, roots: Sequence[str], rule: AckRule, files: Files, together: Together) -> None:
        self.all = [DiskState(slot, root) for slot, root in enumerate(roots)]
        self.rule = rule
        self.files = files
        self.together = together
        self.recovered = Recovered()
        self.marks = Marks()
        self.universe = 0

    @property
    def good(self) -> list[DiskState]:
        return [disk for disk in self.all if disk.error is None]

    def fail(self, disk: DiskState, error: Exception) -> None:
        """Go on without a disk. Raises `Fenced` where it has another writer, `DisksMissing` where the rest is not
        enough.
        """
        disk.error = error
        self.recovered.notes.append(f"disk {disk.root} failed while opening: {error}")
        if isinstance(error, DiskFenced):
            raise Fenced(f"disk {disk.root} has another writer: {error}", disks=[disk.root]) from error
        if not self.rule.can_acknowledge([one.slot for one in self.good]):
            raise DisksMissing(
                f"{len(self.good)} of {len(self.all)} disks are usable, too few to acknowledge messages;"
                f" failed: {', '.join(f'{d.root} ({d.error})' for d in self.all if d.error)}",
                disks=[one.root for one in self.all if one.error],
            ) from error

    def on(self, disks: Sequence[DiskState], act: Callable[[DiskState], None]) -> None:
        """Do something on these disks at once; those on which it fails are given up. A fence is reported first."""
        outcomes = zip(disks, self.together([partial(act, disk) for disk in disks]), strict=True)
        for disk, outcome in sorted(outcomes, key=lambda one: not isinstance(one[1], DiskFenced)):
            if isinstance(outcome, OSError):
                self.fail(disk, outcome)
            elif isinstance(outcome, Exception):
                raise outcome

    def read(self, universe: int | None, new_universe: Callable[[], int]) -> None:
        """Lock and read all disks, and refuse those of another universe than is wanted."""
        waiting = list(self.all)
        while waiting and all(disk.lock is None for disk in self.good):
            self.on([waiting.pop(0)], self._lock_disk)  # of two processes one has the first lock; the other ends there
        self.on(self.good, self._read_disk)
        universes: dict[int, list[str]] = {} if universe is None else {universe: ["expected"]}
        for disk in self.good:
            if disk.identity is not None:
                universes.setdefault(disk.identity.universe, []).append(disk.root)
        if len(universes) > 1:
            text = "; ".join(f"{number}: {', '.join(names)}" for number, names in sorted(universes.items()))
            raise ForeignDisk(f"the disks belong to different servers (universes): {text}", universes=sorted(universes))
        self.universe = next(iter(universes)) if universes else new_universe()
        for disk in self.good:
            assert disk.scan is not None
            foreign = [copy for copy in disk.scan.copies if copy.header.universe != self.universe]
            disk.scan.copies = [copy for copy in disk.scan.copies if copy.header.universe == self.universe]
            self.recovered.notes += [f"{copy.path} belongs to another server and is left unchanged" for copy in foreign]
        self.marks = merge_marks(d.scan.marks for d in self.good if d.scan is not None and d.scan.marks is not None)

    def _lock_disk(self, disk: DiskState) -> None:
        try:
            self.files.let_go(disk.root)
            self.files.mkdir(disk.root)
            self.files.hold(disk.root)
            disk.lock = self.files.open(f"{disk.root}/{LOCK_FILE}", create=True)
            self.files.lock(disk.lock)
        except BlockingIOError as error:
            raise ForeignDisk(f"disk {disk.root} is in use by another process") from error

    def _read_disk(self, disk: DiskState) -> None:
        if disk.lock is None:
            self._lock_disk(disk)
        try:
            disk.restarts = self.files.restarts(disk.root)
            disk.scan = scan_disk(self.files, disk.root, disk.slot)
        except ValueError as error:
            raise ForeignDisk(f"disk {disk.root}: {error}. {GO_ON}") from error
        disk.identity = disk.scan.identity

    def copies(self) -> list[FoundCopy]:
        """All copies, misplaced ones first, so that one in its place wins."""
        found = [copy for disk in self.good if disk.scan is not None for copy in disk.scan.copies]
        return sorted(found, key=lambda copy: not copy.misplaced)

    def refuse_restarted(self, disk: DiskState) -> None:
        """Raises `CopiesChanged` where the disk's machine may have lost what it had not synced."""
        if self.files.restarts(disk.root) != disk.restarts:
            raise CopiesChanged(f"the machine of disk {disk.root} restarted during recovery", disks=[disk.root])

    def release(self) -> None:
        """Give the disks' locks back."""
        for disk in self.all:
            if disk.lock is not None:
                lock, disk.lock = disk.lock, None
                with suppress(OSError):  # the disk may be out of reach
                    self.files.close(lock)
