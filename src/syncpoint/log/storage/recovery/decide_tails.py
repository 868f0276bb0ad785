"""Decide what every log has, from all disks of an opening, and refuse where something promised is on none of them.

Place: after `members` found that enough disks are here; `find_tail` decides about one log.
Promise: changes nothing. A disk that fails while its frames are read is left out, and all is decided anew without it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from syncpoint.log.storage.errors import CopiesChanged, DisksMissing, StorageDamaged
from syncpoint.log.storage.recovery.find_tail import LogTail, find_tail
from syncpoint.log.storage.recovery.members import Members
from syncpoint.log.storage.recovery.opening_disks import OpeningDisks
from syncpoint.log.storage.recovery.scan import FoundCopy, FrameTable, scan_frames


class _DiskLeft(CopiesChanged):
    """A disk that others decided by is not there any more: decide anew without it."""


class TailDecision:
    """`tails`: what each log has; `gone`: (log, segment) that must exist and are on no disk."""

    def __init__(self, disks: OpeningDisks, members: Members, accept_loss: bool) -> None:
        self.tails: list[LogTail] = []
        self.gone: list[tuple[int, int]] = []
        self._disks = disks
        self._members = members
        self._accept_loss = accept_loss

    def make(self, known_disks: Collection[str]) -> None:
        """Decide by what enough disks say; where one leaves while it is read, without it. Raises `StorageError`."""
        while True:
            self._members.check(known_disks)
            try:
                self._decide(frozenset())
            except _DiskLeft:
                continue
            self._refuse_losses()
            return

    def make_again(self, rescan: frozenset[tuple[int, int]]) -> None:
        """Decide anew, with the frames of these segments read, whose index cannot be."""
        self._decide(rescan)
        self._refuse_losses()

    def _decide(self, rescan: frozenset[tuple[int, int]]) -> None:
        marks = self._disks.marks
        by_log: dict[int, list[FoundCopy]] = {}
        self.tails = []
        for copy in self._disks.copies():
            if not marks.is_removed(copy.header.log, copy.header.seq):
                by_log.setdefault(copy.header.log, []).append(copy)
        for log in sorted(by_log):
            removed = partial(marks.need_not_be_there, log)
            promised = partial(marks.is_live, log)
            segments = frozenset(seq for one, seq in rescan if one == log)
            self.tails.append(find_tail(log, by_log[log], removed, promised, self._scan_frames, segments))

    def _scan_frames(self, copies: Sequence[FoundCopy]) -> list[FrameTable]:
        """All disks at once, the copies of one disk one after the other."""
        by_slot: dict[int, list[FoundCopy]] = {}
        for copy in copies:
            by_slot.setdefault(copy.slot, []).append(copy)
        tables: dict[str, FrameTable] = {}

        def scan(mine: Sequence[FoundCopy]) -> None:
            for copy in mine:
                tables[copy.path] = scan_frames(self._disks.files, copy)

        left = None
        outcomes = self._disks.together([partial(scan, mine) for mine in by_slot.values()])
        for slot, outcome in zip(by_slot, outcomes, strict=True):
            if isinstance(outcome, OSError):
                disk = self._disks.all[slot]
                self._disks.fail(disk, outcome)
                left = _DiskLeft(f"disk {disk.root} failed while frames were read: {outcome}")
            elif isinstance(outcome, Exception):
                raise outcome
        if left is not None:
            raise left
        return [tables[copy.path] for copy in copies]

    def _refuse_losses(self) -> None:
        found = {tail.log: [s.seq for s in tail.segments] + [c.header.seq for c in tail.void] for tail in self.tails}
        missing = {(tail.log, seq) for tail in self.tails for seq in tail.missing}
        self.gone = sorted(missing.union(self._disks.marks.missing(found)))
        lost = [f"segment {seq} of log {log} is missing on every disk" for log, seq in self.gone]
        for tail in self.tails:
            for segment in tail.segments:
                if segment.lost:
                    paths = ", ".join(copy.path for copy in segment.copies.values())
                    spans = _spans_text(segment.lost)
                    lost.append(f"positions {spans} of log {tail.log} were acknowledged but are damaged in {paths}")
        if lost and not self._accept_loss:
            away = self._members.away()
            if away:
                raise DisksMissing(
                    f"{'; '.join(lost)}. Disks that may have it are missing: {', '.join(away)}. Nothing was changed."
                    " Bring them back, or accept the loss explicitly if they are lost for good.",
                    missing=away,
                    lost=lost,
                )
            raise StorageDamaged(
                "refusing to open: " + "; ".join(lost) + ". Nothing was changed. Bring back disks that may have the"
                " data, or accept the loss explicitly.",
                lost=lost,
            )
        known = self._disks.recovered.lost
        self._disks.recovered.lost = [*known, *(one for one in lost if one not in known)]


def _spans_text(positions: Sequence[int]) -> str:
    return str(positions[0]) if len(positions) == 1 else f"{positions[0]}-{positions[-1]} ({len(positions)})"
