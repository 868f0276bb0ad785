"""What a served disk knows of each chain besides the chain's own files: who may write, and whether all of it is synced.

    chains/<number>/fencing.json     epoch and session of the owner, durability, boot of the machine, clean or not
    chains/<number>/...            the chain's folder, see `storage.layout`
    tombstones/<number>            the chain may be deleted
    quarantine/<number>-<stamp>/   chains nobody knew; never deleted by itself

Place: below `disk_service`; on `Files`, so that simulations run it.
Promise: a fencing token that was answered for is durable, and a lower one is never accepted again, whatever restarts.
Where a machine restarted under an `async` or `memory` chain that was not synced to the end, the file that records which
disk this is is set aside, so that the disk counts as unknown (protocol rule 3).
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from typing import NamedTuple

from syncpoint.base.runtime.file_content import overwrite_file, read_file, replace_file
from syncpoint.base.runtime.files import Files, FolderExchanged
from syncpoint.log.storage.checksum import checked_content, checked_json
from syncpoint.log.storage.layout import DISK_FILE
from syncpoint.log.storage.settings import Durability

CHAINS = "chains"  # the folder that every disk has had since it was served first
FENCING_FILE = "fencing.json"
UNCLEAN = ".unclean"
_FILE_ROOM = 1024  # bytes of the file: it is written again on a disk without one free byte


class FencingToken(NamedTuple):
    """Order the owners of a disk: the greater token wins. `session` orders the sessions of one owner."""

    epoch: int
    session: int


class FencingRecord(NamedTuple):
    """The content of `fencing.json`."""

    token: FencingToken
    durability: str
    boot: str
    clean: bool

    def encode(self) -> bytes:
        """The stored form."""
        return checked_json(self._asdict())


def decode_record(data: bytes) -> FencingRecord | None:
    """None for a damaged one."""
    try:
        values = checked_content(data) or {}
        return FencingRecord(FencingToken(*values["token"]), values["durability"], values["boot"], values["clean"])
    except (ValueError, TypeError, KeyError):
        return None


class ChainFolders:
    """The chains of one disk folder. Not for several threads at once for one chain."""

    def __init__(self, root: str, files: Files, boot: str, *, required: bool = False) -> None:
        """`required`: a folder that was emptied or exchanged is not begun anew, but refused until it is back."""
        self.root = root
        self.required = required
        self.boot = boot
        self._files = files

    def folder(self, chain: int) -> str:
        """Where the chain's files lie."""
        return f"{self.root}/chains/{chain:010d}"

    def begin(self) -> None:
        """Make the folder if need be, and hold it. Raises `OSError`."""
        self._files.let_go(self.root)
        self._files.mkdir(f"{self.root}/chains")
        self._files.sync_dir(self.root)
        self._files.hold(self.root)

    def reopen(self) -> None:
        """Begin anew where the folder was deleted or exchanged for an empty one; any other one is not touched.

        Where the disk is required, none is.

        Raises `FolderExchanged`.
        """
        if self.required:
            self.refuse_empty()
            return
        try:
            self._files.stat(self.root)
        except FolderExchanged:
            self._files.hold_new(self.root, ("chains",))
            self._files.mkdir(f"{self.root}/chains")

    def refuse_empty(self) -> None:
        """Raises `FolderExchanged` where the folder is not the one that is held, or has lost its chains."""
        text = "was deleted or replaced"
        try:
            self._files.stat(self.root)
            text = f"has no {CHAINS} folder: it was emptied"
            self._files.stat(f"{self.root}/{CHAINS}")
        except (FolderExchanged, FileNotFoundError):
            raise FolderExchanged(
                errno.ESTALE,
                f"{self.root} {text}, or the disk is not mounted. Mount the disk (require_disks is set).",
                self.root,
            ) from None

    def hold(self, chain: int) -> None:
        """The chain's folder means this very folder from now on, as long as its token is the file it is now."""
        folder = self.folder(chain)
        self._files.hold(folder)
        self._files.anchor(folder, FENCING_FILE)

    def hold_new(self, chain: int) -> None:
        """Where the chain's folder was deleted or emptied, it may be begun anew. Raises `FolderExchanged`."""
        folder = self.folder(chain)
        if self.required:
            self.refuse_empty()
        try:
            self._files.stat(folder)
        except FileNotFoundError:
            return
        except FolderExchanged:
            self.reopen()
            self._files.hold_new(folder, (FENCING_FILE, DISK_FILE))

    def chains(self) -> list[int]:
        """Chains this disk has a folder of."""
        return sorted(int(name) for name in self._list("chains") if name.isdecimal())

    def load(self, chain: int) -> FencingRecord | None:
        """What is known of the chain; None when nothing is. Sets the identity aside where it cannot be believed."""
        data = read_file(self._files, f"{self.folder(chain)}/{FENCING_FILE}")
        if data is None:
            return None
        record = decode_record(data)
        if record is None:
            self._distrust(chain)
            return None
        if record.boot != self.boot and not record.clean and record.durability != Durability.SYNC:
            self._distrust(chain)
        return record

    def store(self, chain: int, record: FencingRecord) -> None:
        """Write it durably, and the folder if it is new."""
        folder = self.folder(chain)
        try:
            self._files.stat(f"{folder}/{FENCING_FILE}")
        except FileNotFoundError:
            self._files.mkdir(folder)
            self._files.sync_dir(f"{self.root}/chains")
            self._files.sync_dir(self.root)
        overwrite_file(self._files, f"{folder}/{FENCING_FILE}", record.encode(), _FILE_ROOM)

    def ensure(self, chain: int, record: FencingRecord) -> None:
        """Write it again where somebody wiped the folder."""
        try:
            self._files.stat(f"{self.folder(chain)}/{FENCING_FILE}")
        except FileNotFoundError:
            self.store(chain, record)
            self.hold(chain)

    def _distrust(self, chain: int) -> None:
        path = f"{self.folder(chain)}/{DISK_FILE}"
        try:
            self._files.rename(path, path + UNCLEAN)
        except FileNotFoundError:
            return
        self._files.sync_dir(self.folder(chain))

    def tombstone(self, chain: int) -> None:
        """The chain may be deleted, and is never opened again. Durable."""
        self._files.mkdir(f"{self.root}/tombstones")
        replace_file(self._files, self._tombstone(chain), b"{}")
        self._files.sync_dir(self.root)

    def is_dead(self, chain: int) -> bool:
        """Whether there is a tombstone."""
        return read_file(self._files, self._tombstone(chain)) is not None

    def _tombstone(self, chain: int) -> str:
        return f"{self.root}/tombstones/{chain:010d}"

    def delete(self, chain: int) -> None:
        """Remove the chain's files. Raises `PermissionError` without a tombstone."""
        if not self.is_dead(chain):
            raise PermissionError(1, f"chain {chain} cannot be deleted: it has no tombstone")
        self._files.let_go(self.folder(chain))
        self._remove(self.folder(chain))
        self._files.sync_dir(f"{self.root}/chains")

    def _remove(self, folder: str) -> None:
        for name in self._names(folder):
            path = f"{folder}/{name}"
            try:
                self._files.unlink(path)
            except (IsADirectoryError, PermissionError, FileNotFoundError):
                self._remove(path)
        try:
            self._files.rmdir(folder)
        except FileNotFoundError:
            return

    def quarantine(self, known: Collection[int], open_now: Collection[int]) -> list[int]:
        """Set chains aside that nobody knows; those with a tombstone and those that are open stay. Returns them."""
        moved = []
        for chain in self.chains():
            if chain in known or chain in open_now or self.is_dead(chain):
                continue
            self._files.mkdir(f"{self.root}/quarantine")
            taken = set(self._list("quarantine"))
            stamp = next(n for n in range(len(taken) + 1) if f"{chain:010d}-{n}" not in taken)
            self._files.rename(self.folder(chain), f"{self.root}/quarantine/{chain:010d}-{stamp}")
            self._files.sync_dir(f"{self.root}/quarantine")
            self._files.sync_dir(f"{self.root}/chains")
            moved.append(chain)
        return moved

    def _list(self, folder: str) -> list[str]:
        return self._names(f"{self.root}/{folder}")

    def _names(self, folder: str) -> list[str]:
        try:
            return self._files.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
