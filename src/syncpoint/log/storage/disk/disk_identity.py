"""Who a disk is, and what may be missing from it: `disk.json` and `marks.json`.

Place: read first and written first when a store opens; marks are written again whenever segments are removed.
Promise (protocol rules 3 and 7): a disk whose content was lost never passes as itself, because its incarnation was
lost with it; a segment is deleted only under a tombstone in `marks.json`, and what the marks list as live and no disk
holds is reported, never taken for deleted. Both files are replaced atomically and carry a checksum; a damaged one
counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from syncpoint.base.model.spans import joined
from syncpoint.base.runtime.file_content import overwrite_file, read_file, replace_file
from syncpoint.base.runtime.files import Files
from syncpoint.log.storage.checksum import checked_content, checked_json
from syncpoint.log.storage.layout import DISK_FILE, FORMAT, MARKS_FILE

_MARKS_ROOM = 16 * 1024  # bytes of the file at least: deletion goes on where the disk has none left

SEQ_MAX = 2**63 - 1  # above the number of every segment

Span = tuple[int, int]  # first and last, both inside


@dataclass(frozen=True, slots=True)
class DiskIdentity:
    """One incarnation of one disk."""

    universe: int
    incarnation: bytes  # 16 random bytes


@dataclass(slots=True)
class Marks:
    """What is known of segments without looking at them."""

    version: int = 0
    reserved: int = 0  # log counters up to here were handed out
    removed_logs: list[Span] = field(default_factory=list)
    removed: dict[int, list[Span]] = field(default_factory=dict)  # segments of logs that still have others
    live: dict[int, list[Span]] = field(default_factory=dict)
    given_up: dict[int, list[Span]] = field(default_factory=dict)  # lost, and the operator knows; welcome if found

    def is_removed(self, log: int, seq: int) -> bool:
        """Whether there is a tombstone for the segment."""
        return contains(self.removed_logs, log) or contains(self.removed.get(log, ()), seq)

    def need_not_be_there(self, log: int, seq: int) -> bool:
        """Whether nobody misses the segment: it was removed, or given up as lost."""
        return self.is_removed(log, seq) or contains(self.given_up.get(log, ()), seq)

    def give_up(self, log: int, seq: int) -> None:
        self.given_up[log] = add_span(self.given_up.get(log, []), (seq, seq))

    def remove(self, log: int, seq: int, *, final: bool = False) -> None:
        """A segment is gone. `final`: the log ended with it, so whatever a disk has after it is void for ever."""
        if not contains(self.removed_logs, log):
            self.removed[log] = add_span(self.removed.get(log, []), (seq, SEQ_MAX if final else seq))

    def remove_log(self, log: int) -> None:
        """The whole log is gone, with all segments it may have had."""
        self.removed_logs = add_span(self.removed_logs, (log, log))
        self.removed.pop(log, None)
        self.given_up.pop(log, None)

    def is_live(self, log: int, seq: int) -> bool:
        """Whether a store has promised that the segment is there."""
        return contains(self.live.get(log, ()), seq)

    def missing(self, found: Mapping[int, Iterable[int]]) -> list[tuple[int, int]]:
        """(log, segment) pairs that were live when this was written and are neither removed nor `found` by log."""
        lost = []
        for log, spans in self.live.items():
            have = set(found.get(log, ()))
            for first, last in spans:
                for seq in range(first, last + 1):
                    if seq not in have and not self.need_not_be_there(log, seq):
                        lost.append((log, seq))
        return sorted(lost)


def contains(spans: Iterable[Span], number: int) -> bool:
    """Whether a number lies in one of the spans."""
    return any(first <= number <= last for first, last in spans)


def add_span(spans: Iterable[Span], new: Span) -> list[Span]:
    """Sorted spans with `new` among them, neighbours joined."""
    return joined([*spans, new], 1)


def to_spans(numbers: Iterable[int]) -> list[Span]:
    """Whole numbers as spans."""
    return joined(((number, number) for number in numbers), 1)


def merge_marks(many: Iterable[Marks]) -> Marks:
    """What all disks know together: every tombstone counts, the newest list of live segments holds."""
    merged = Marks()
    for marks in sorted(many, key=lambda one: one.version):
        merged.version = marks.version
        merged.reserved = max(merged.reserved, marks.reserved)
        merged.live = dict(marks.live)
        for span in marks.removed_logs:
            merged.removed_logs = add_span(merged.removed_logs, span)
        for mine, others in ((merged.removed, marks.removed), (merged.given_up, marks.given_up)):
            for log, spans in others.items():
                for span in spans:
                    mine[log] = add_span(mine.get(log, []), span)
    merged.removed = {log: spans for log, spans in merged.removed.items() if not contains(merged.removed_logs, log)}
    merged.given_up = {log: spans for log, spans in merged.given_up.items() if not contains(merged.removed_logs, log)}
    return merged


def encode_identity(identity: DiskIdentity) -> bytes:
    return checked_json({"format": FORMAT, "incarnation": identity.incarnation.hex(), "universe": identity.universe})


def decode_identity(data: bytes | None) -> DiskIdentity | None:
    """The identity, or None when the file is absent or damaged. Raises `ValueError` for an unknown format."""
    fields = checked_content(data)
    if fields is None:
        return None
    if fields.get("format") != FORMAT:
        raise ValueError(f"{DISK_FILE} has format {fields.get('format')}; this version reads {FORMAT}")
    return DiskIdentity(int(str(fields["universe"])), bytes.fromhex(str(fields["incarnation"])))


def encode_marks(marks: Marks) -> bytes:
    def by_log(spans_by_log: Mapping[int, Iterable[Span]]) -> dict[str, list[list[int]]]:
        return {str(log): [list(span) for span in spans] for log, spans in spans_by_log.items()}

    fields: dict[str, object] = {
        "version": marks.version,
        "reserved": marks.reserved,
        "removed_logs": [list(span) for span in marks.removed_logs],
        "removed": by_log(marks.removed),
        "live": by_log(marks.live),
    }
    if marks.given_up:
        fields["given_up"] = by_log(marks.given_up)
    return checked_json(fields)


def decode_marks(data: bytes | None) -> Marks | None:
    """The marks, or None when the file is absent or damaged."""
    fields = checked_content(data)
    if fields is None:
        return None

    def spans(value: object) -> list[Span]:
        assert isinstance(value, list)
        return [(int(first), int(last)) for first, last in value]

    def by_log(value: object) -> dict[int, list[Span]]:
        assert isinstance(value, dict)
        return {int(log): spans(some) for log, some in value.items()}

    return Marks(
        int(str(fields["version"])),
        int(str(fields["reserved"])),
        spans(fields["removed_logs"]),
        by_log(fields["removed"]),
        by_log(fields["live"]),
        by_log(fields.get("given_up", {})),
    )


def read_identity(files: Files, root: str) -> DiskIdentity | None:
    return decode_identity(read_file(files, f"{root}/{DISK_FILE}"))


def write_identity(files: Files, root: str, identity: DiskIdentity) -> None:
    """From then on the folder is this disk's as long as the file is there."""
    content = encode_identity(identity)
    if read_file(files, f"{root}/{DISK_FILE}") != content:  # a full disk that keeps its name needs no room for it
        replace_file(files, f"{root}/{DISK_FILE}", content)
    files.anchor(root, DISK_FILE)


def read_marks(files: Files, root: str) -> Marks | None:
    return decode_marks(read_file(files, f"{root}/{MARKS_FILE}"))


def write_marks(files: Files, root: str, content: bytes) -> None:
    overwrite_file(files, f"{root}/{MARKS_FILE}", content, _MARKS_ROOM)
