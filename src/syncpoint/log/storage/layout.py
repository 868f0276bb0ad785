"""The table of contents of a disk folder: one line per fact kept there.

    disk.json                      who this disk is: universe, incarnation, format
    marks.json                     what may be gone, what must be there: reserved log counter, removed, live segments
    disk.json.unclean              the identity before a machine stopped with writes that were acknowledged unsynced
    readmitted                     the disk came back as a new incarnation, with segments of an earlier one
    lock                           held by the process that has the disk open
    logs/<counter>/<seq>.seg       the segments of a log, by number
    pool/<number>.free             spare segments, pre-written or recycled
    pool/*.keep                    small files that stay until the file system has not one free byte
    *.spare                        the other one of two files that take turns, see `runtime.file_content`
    quarantine/<stamp>/...         what was set aside and is not deleted by itself
    audit/loss-<time>.json         what an operator gave up with `log recover --accept-loss`

Place: the only module that spells paths of a disk.
"""

from __future__ import annotations

DISK_FILE = "disk.json"
MARKS_FILE = "marks.json"
LOCK_FILE = "lock"
READMITTED_FILE = "readmitted"
UNCLEAN_FILE = f"{DISK_FILE}.unclean"
FORMAT = 1
_NAMES = (DISK_FILE, MARKS_FILE, UNCLEAN_FILE, READMITTED_FILE, "logs", "pool", "quarantine", "audit")


def is_of_disk(name: str) -> bool:
    """Whether a name in a disk's folder stands for something that goes where the disk goes: all but the lock."""
    return name.removesuffix(".spare") in _NAMES


def logs_dir(root: str) -> str:
    return f"{root}/logs"


def log_dir(root: str, log: int) -> str:
    return f"{root}/logs/{log:010d}"


def segment_path(root: str, log: int, seq: int) -> str:
    return f"{root}/logs/{log:010d}/{seq:08d}.seg"


def pool_dir(root: str) -> str:
    return f"{root}/pool"


def quarantine_dir(root: str) -> str:
    return f"{root}/quarantine"


def audit_dir(root: str) -> str:
    return f"{root}/audit"


def parse_log(name: str) -> int | None:
    """The counter a folder under `logs` stands for, or None for a foreign name."""
    return int(name) if len(name) == 10 and name.isdecimal() else None


def parse_segment(name: str) -> int | None:
    """The number of a segment file, or None for a foreign name."""
    stem = name[:8]
    return int(stem) if name == stem + ".seg" and len(stem) == 8 and stem.isdecimal() else None
