"""Giving up what is lost: the only way out of a permanent loss of too many disks (protocol rule 14).

Place: library of `syncpoint log recover`; the disks are open in no other process. Never called by a server.
Promise: `assess` changes nothing. `accept` first writes on every disk that is left what is given up, by whom and when
(`audit/loss-....json`), and only then opens, so that a store with a loss always records it.
What is at risk is reported as message ids where they are known: a hole between two batches of a source, or everything
after the last one that was found. Acknowledgements may be lost as well: messages may come again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from syncpoint.base.model.identity import format_message_id
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.file_content import replace_file
from syncpoint.base.runtime.files import Files
from syncpoint.base.runtime.random import Random
from syncpoint.log.storage.errors import StorageError
from syncpoint.log.storage.index import DamagedIndex, IndexRecord
from syncpoint.log.storage.layout import audit_dir
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.record import MESSAGE_KINDS
from syncpoint.log.storage.recovery.recover import Recovery
from syncpoint.log.storage.recovery.scan import newest_header, scan_disk
from syncpoint.log.storage.settings import KnownStore, StorageSettings
from syncpoint.log.storage.store import EntryKind, Store

Span = tuple[int, int | None]  # first offset, and the one after the last; None: nobody knows how many


@dataclass(slots=True)
class Losses:
    """What opening these disks would give up. Plain values, for people and for the audit file."""

    problems: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)  # incarnations of members that are needed and not here
    at_risk: list[dict[str, Any]] = field(default_factory=list)  # by source: first and last message id
    disks: list[str] = field(default_factory=list)  # in slot order
    rule: dict[str, Any] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        return bool(self.problems)

    def to_values(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


def arrange(disks: Sequence[Path | str], files: Files) -> tuple[list[str], AckRule]:
    """The disks in slot order, and the ack rule of their newest segment; new folders take the slots that are left.

    Raises `ValueError` when the newest segment is about another number of disks.
    """
    roots = [str(disk) for disk in disks]
    scans = [scan_disk(files, root, slot) for slot, root in enumerate(roots)]
    headers = [copy.header for scan in scans for copy in scan.copies]
    if not headers:
        return roots, AckRule.single(len(roots))
    newest = newest_header(copy for scan in scans for copy in scan.copies)
    if newest is None:
        newest = max(headers, key=lambda header: (header.log, header.seq))
    if len(newest.rule) != len(roots):
        raise ValueError(
            f"the newest segment was written on {len(newest.members)} disks, but {len(roots)} are given; give an empty"
            " folder for each disk that is lost for good"
        )
    slots: list[str | None] = [None] * len(roots)
    rest = []
    for root, scan in zip(roots, scans, strict=True):
        mine = scan.identity.incarnation if scan.identity is not None else None
        if mine in newest.members:
            slots[newest.members.index(mine)] = root
        else:
            rest.append(root)
    return [root if root is not None else rest.pop(0) for root in slots], newest.rule


def assess(roots: Sequence[str], rule: AckRule, *, files: Files, random: Random) -> Losses:
    """What would be lost, were these disks all there will ever be. Nothing is changed. Raises `StorageError`."""
    settings = StorageSettings(accept_loss=True)
    recovery = Recovery(roots, rule, settings, files, random)
    try:
        recovery.look()
        found = Losses(
            list(recovery.disks.recovered.lost), list(recovery.members.absent), [], list(roots), rule.to_values()
        )
        if found.any:
            found.at_risk = [
                _ids(recovery.disks.universe, source, span) for source, span in sorted(_at_risk(recovery).items())
            ]
        return found
    finally:
        recovery.disks.release()


def accept(
    losses: Losses, environment: Environment, *, who: Mapping[str, str], settings: StorageSettings | None = None
) -> list[str]:
    """Open the disks without what is lost, and close them again; returns the audit files. Raises `StorageError`."""
    rule = AckRule.from_values(losses.rule)
    files, clock = environment.files, environment.clock
    written = _audit(losses, files, clock, {"state": "accepted", **who})
    inbox: list[Callable[[], None]] = []
    store = Store.open(
        losses.disks,
        replace(settings or StorageSettings(), accept_loss=True),
        replace(environment, notify=inbox.append),
        KnownStore(rule=rule),
    )
    store.close()
    while inbox:
        inbox.pop(0)()
    if store.failure is not None:
        raise StorageError(f"the disks failed while the loss was accepted: {store.failure}")
    _audit(losses, files, clock, {"state": "done", "log": store.log_counter, **who}, written)
    return written


def _audit(
    losses: Losses, files: Files, clock: Clock, more: Mapping[str, object], paths: Sequence[str] = ()
) -> list[str]:
    """Write the same file on every disk that takes it; at least one has to."""
    now = clock.time_ns()
    content = json.dumps({"time_ns": now, **more, **losses.to_values()}, indent=1, sort_keys=True).encode()
    written = []
    failed: OSError | None = None
    for path in paths or [f"{audit_dir(root)}/loss-{now}.json" for root in losses.disks]:
        try:
            files.mkdir(path.rpartition("/")[0])
            replace_file(files, path, content)
            files.sync_dir(path.rpartition("/")[0].rpartition("/")[0])
            written.append(path)
        except OSError as error:
            failed = error
    if not written:
        raise StorageError(f"the audit file cannot be written on any disk: {failed}")
    return written


# --------------------------------------------------------------------------------------------------- message ids


def _ids(universe: int, source: int, spans: Sequence[Span]) -> dict[str, Any]:
    def name(span: Span) -> str:
        first = format_message_id(universe, source, span[0])
        if span[1] is None:
            return f"{first} and later"
        return first if span[1] == span[0] + 1 else f"{first} to {format_message_id(universe, source, span[1] - 1)}"

    known = [span[1] - span[0] for span in spans if span[1] is not None]
    return {
        "source": source,
        "ids": [name(span) for span in spans],
        "count": sum(known),
        "open": len(known) < len(spans),
    }


class _SourceLosses:
    """How far a source was seen, and how many losses the log had until then."""

    __slots__ = ("end", "losses")

    def __init__(self) -> None:
        self.end = self.losses = 0


def _at_risk(recovery: Recovery) -> dict[int, list[Span]]:
    """Holes in the sources that a loss may explain, and the open ends of the log whose members are missing."""
    risky: dict[int, list[Span]] = {}
    covered: dict[int, list[tuple[int, int]]] = {}
    newest = max((segment.log for segment, _ in recovery.loaded.segments), default=0)
    logs = sorted({segment.log for segment, _ in recovery.loaded.segments} | {log for log, _ in recovery.decision.gone})
    for log in logs:
        sources: dict[int, _SourceLosses] = {}
        losses = 0
        for record, lost in _in_order(recovery, log):
            losses += lost
            if record is None:
                continue
            end = record.first_offset + record.count
            covered.setdefault(record.source, []).append((record.first_offset, end))
            if record.kind != EntryKind.MESSAGES:
                continue
            seen = sources.setdefault(record.source, _SourceLosses())
            if record.first_offset > seen.end and seen.losses < losses:
                risky.setdefault(record.source, []).append((seen.end, record.first_offset))
            seen.end, seen.losses = max(seen.end, end), losses
        cut_off = bool(recovery.members.absent) and log == newest
        for source, seen in sources.items():
            if cut_off or seen.losses < losses:
                risky.setdefault(source, []).append((seen.end, None))
    for record in (record for holes in recovery.loaded.holes.values() for record in holes):
        if record.kind in MESSAGE_KINDS:
            risky.setdefault(record.source, []).append((record.first_offset, record.first_offset + record.count))
    found = {source: list(_without(_joined(spans), covered.get(source, []))) for source, spans in risky.items()}
    return {source: spans for source, spans in found.items() if spans}


def _in_order(recovery: Recovery, log: int) -> Iterator[tuple[IndexRecord | None, int]]:
    """The message records of a log in the order of their positions, each with the losses just before it."""
    segments = {segment.seq: (segment, tail) for segment, tail in recovery.loaded.segments if segment.log == log}
    gone = {seq for one, seq in recovery.decision.gone if one == log}
    for seq in sorted({*segments, *gone}):
        if seq not in segments:
            yield None, 1
            continue
        segment, tail = segments[seq]
        records: list[IndexRecord] = []
        with suppress(DamagedIndex):  # `look` read every index, or built it from the frames
            records = sorted(recovery.loaded.catalog.index(segment).messages(), key=lambda record: record.ordinal)
        lost = [] if (log, seq) in recovery.loaded.holes else list(tail.lost)  # its index lists what is in the holes
        for record in records:
            before = [position for position in lost if position < segment.first_position + record.ordinal]
            lost = lost[len(before) :]
            yield record, len(before)
        if lost:
            yield None, len(lost)


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Merge spans, so that no offset is listed twice."""
    joined: list[Span] = []
    for first, end in sorted(spans, key=lambda span: span[0]):
        if joined and (joined[-1][1] is None or first <= joined[-1][1]):
            begin, reach = joined[-1]
            joined[-1] = (begin, None if reach is None or end is None else max(reach, end))
        else:
            joined.append((first, end))
    return joined


def _without(spans: Sequence[Span], covered: Sequence[tuple[int, int]]) -> Iterator[Span]:
    """What of `spans` is not `covered` after all, by a copy made later."""
    for first, end in spans:
        begin = first
        for low, high in sorted(covered):
            if high <= begin or (end is not None and low >= end):
                continue
            if end is not None and low > begin:
                yield begin, low
            begin = max(begin, high)
        if end is None or begin < end:
            yield begin, end
