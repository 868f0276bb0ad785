"""The manifest of an archive: which files there are, what is in them, and that they are what they were.

    DIR/manifest.json        all that follows, replaced whole after every part
    DIR/parts/000001/*.parquet

A part is a stretch of a topic: ranges of offsets, source after source in the order of keys. Parts never change; the
next run of the same archive adds parts after them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from syncpoint.base.model.errors import Code, FailedPrecondition, InvalidArgument, SyncpointError

VERSION = 1
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets [begin, end) of one source; `epoch` and `chain` are its place in the order of keys."""

    source: int
    begin: int
    end: int
    epoch: int = 0
    chain: int = 0


@dataclass(frozen=True, slots=True)
class File:
    """One file of a part; the path starts at the archive's folder."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """One part: as many rows as its stretches have offsets."""

    number: int
    rows: int
    stretches: tuple[Stretch, ...]
    files: tuple[File, ...]


@dataclass(slots=True)
class Manifest:
    """What stands in manifest.json."""

    topic: str
    incarnation: int
    universe: str
    columns: tuple[str, ...]
    parts: list[ArchivePart] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def ends(self) -> dict[int, int]:
        """How far each source is archived."""
        ends: dict[int, int] = {}
        for part in self.parts:
            for one in part.stretches:
                ends[one.source] = max(one.end, ends.get(one.source, 0))
        return ends

    def reached(self) -> dict[int, int]:
        """Return the positions by source, without sources that were replaced by a later one of their chain or of a
        later epoch.
        """
        places = {one.source: (one.epoch, one.chain) for part in self.parts for one in part.stretches}
        newest: dict[tuple[int, int], int] = {}
        for source, place in places.items():
            newest[place] = max(source, newest.get(place, 0))
        epoch = max((epoch for epoch, _ in newest), default=0)
        return {source: self.ends()[source] for (of, _), source in newest.items() if of == epoch}

    def save(self, folder: Path) -> None:
        """Replace the file; it is on the disk when this returns."""
        temporary = folder / ".manifest.json"
        with temporary.open("w", encoding="utf-8") as out:
            json.dump({"version": VERSION, **asdict(self)}, out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(folder / "manifest.json")
        sync_folder(folder)


def load(folder: Path) -> Manifest | None:
    """The manifest of an archive; None where there is none yet. Raises `InvalidArgument` when it cannot be used."""
    try:
        found = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InvalidArgument(str(folder / "manifest.json"), f"is not a manifest: {error}") from None
    if found.get("version") != VERSION:
        raise InvalidArgument(
            str(folder / "manifest.json"), f"has version {found.get('version')!r}; this release reads {VERSION}"
        )
    parts = [
        ArchivePart(
            one["number"],
            one["rows"],
            tuple(Stretch(**stretch) for stretch in one["stretches"]),
            tuple(File(**file) for file in one["files"]),
        )
        for one in found["parts"]
    ]
    return Manifest(found["topic"], found["incarnation"], found["universe"], tuple(found["columns"]), parts)


def file_of(folder: Path, path: Path) -> File:
    """A file that was written: its size and checksum. It is on the disk when this returns."""
    with path.open("rb") as source:
        os.fsync(source.fileno())
    return File(str(path.relative_to(folder)), path.stat().st_size, _sha256(path))


def verify(folder: Path, manifest: Manifest, on_part: Callable[[ArchivePart], Any] = lambda part: None) -> None:
    """Read every file and compare. Raises `FailedPrecondition` when one is missing, `SyncpointError` (DATA_LOSS) when
    one is not what it was; each names the file.
    """
    for part in manifest.parts:
        verify_part(folder, part)
        on_part(part)


def verify_part(folder: Path, part: ArchivePart) -> None:
    """Check the files of one part. Raises `FailedPrecondition`."""
    for file in part.files:
        path = folder / file.path
        if not path.exists():
            raise FailedPrecondition(f"{path} is missing; the manifest names it.")
        if path.stat().st_size != file.bytes or _sha256(path) != file.sha256:
            raise SyncpointError(Code.DATA_LOSS, f"{path} was modified after archiving: its checksum differs.")


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
