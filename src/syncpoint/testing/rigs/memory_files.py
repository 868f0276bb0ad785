"""Files in memory that behave as badly as disks may: for tests and simulations.

Place: a twin of `os_files.OsFiles`, shipped because the simulation of the whole system runs on it.
What it knows of bad behaviour: what was not synced is lost, torn or reordered sector by sector at a power cut, names
included; calls fail with an error number on the nth call or from then on; a disk lies about syncing; content rots;
folders are wiped; the room is limited.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from syncpoint.base.runtime.file_content import cut, read_opened
from syncpoint.base.runtime.files import Buffer, FileStat, FolderExchanged
from syncpoint.base.runtime.random import Random

SECTOR = 512
Fault = Callable[[str, str], None]
"""Called with (operation, path) before each call; raises the `OSError` it wants to see."""


@dataclass(slots=True)
class _File:
    inode: int
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)  # sectors written since the last sync


@dataclass(slots=True)
class _NameChange:
    """One change of names: everything in `gone` disappears, `there` appears; it happens as a whole or not at all.

    `moved`: the folder that was renamed, and its new path.
    """

    folders: frozenset[str]
    gone: tuple[str, ...]
    there: tuple[tuple[str, int], ...]
    moved: tuple[str, str] | None = None


class MemoryFiles:
    """A whole file system. Paths are absolute; the first part of a path names the disk in `capacity` and `lying`."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.lying: set[str] = set()  # roots whose fdatasync does nothing
        self.capacity: dict[str, int] = {}  # root -> bytes
        self.abandoned: list[str] = []  # roots given up, in order
        self.restarted: dict[str, int] = {}  # root -> how often its machine was seen to have started anew
        self.calls = 0
        self._files: dict[int, _File] = {}
        self._names: dict[str, int] = {}
        self._durable_names: dict[str, int] = {}
        self._changes: list[_NameChange] = []
        self._folders: set[str] = {"/"}
        self._handles: dict[int, tuple[int, str]] = {}
        self._locks: dict[int, int] = {}
        self._held: dict[str, tuple[int, str, int]] = {}  # folder -> how often it was exchanged, its anchor
        self._exchanged: dict[str, int] = {}
        self._next = 1000

    # ----------------------------------------------------------------------------------------------- the protocol

    def _call(self, operation: str, path: str) -> None:
        self.calls += 1
        for fault in self.faults:
            fault(operation, path)

    def _file(self, handle: int) -> tuple[_File, str]:
        try:
            inode, path = self._handles[handle]
        except KeyError:
            raise OSError(errno.EBADF, "no such handle") from None
        return self._files[inode], path

    def hold(self, root: str) -> None:
        self._call("hold", root)
        if root not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", root)
        self._held.pop(root, None)
        self._held[root] = self._times_exchanged(root), "", 0

    def hold_new(self, root: str, strange: Sequence[str]) -> None:
        self._call("hold", root)
        every = [*self._names, *self._folders]
        there = {one.rpartition("/")[2] for one in every if one != "/" and _folder(one) == root}
        if there.intersection(strange):
            raise FolderExchanged(errno.ESTALE, "another folder lies there", root)
        path = root
        while path not in self._folders and path:
            self._folders.add(path)
            path = _folder(path)
        self.hold(root)

    def anchor(self, root: str, name: str) -> None:
        if root in self._held:
            self._held[root] = self._held[root][0], name, self._names.get(f"{root}/{name}", -1)

    def restarts(self, root: str) -> int:
        return self.restarted.get(root, 0)

    def let_go(self, root: str) -> None:
        self._held.pop(root, None)

    def _times_exchanged(self, root: str) -> int:
        return sum(times for one, times in self._exchanged.items() if f"{root}/".startswith(f"{one}/"))

    def _check(self, path: str) -> None:
        """Whether the folder that is held there is still the same."""
        for root, (times, name, inode) in self._held.items():
            if path == root or path.startswith(root + "/"):
                if self._exchanged and times != self._times_exchanged(root):
                    raise FolderExchanged(errno.ESTALE, "the folder was deleted or exchanged", root)
                if name and self._names.get(f"{root}/{name}", -1) != inode:
                    raise FolderExchanged(errno.ESTALE, f"{name} in it was deleted or exchanged", root)

    def open(self, path: str, *, create: bool = False, write: bool = True) -> int:
        self._call("open", path)
        self._check(path)
        inode = self._names.get(path)
        if inode is None:
            if not create or _folder(path) not in self._folders:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._next += 1
            inode = self._next
            self._files[inode] = _File(inode)
            self._names[path] = inode
            self._changes.append(_NameChange(frozenset([_folder(path)]), (), ((path, inode),)))
        self._next += 1
        self._handles[self._next] = (inode, path)
        return self._next

    def close(self, handle: int) -> None:
        self._handles.pop(handle, None)
        self._locks = {inode: holder for inode, holder in self._locks.items() if holder != handle}

    def lock(self, handle: int) -> None:
        file, _ = self._file(handle)
        if file.inode in self._locks:
            raise BlockingIOError(errno.EAGAIN, "locked")
        self._locks[file.inode] = handle

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        file, path = self._file(handle)
        self._call("pread", path)
        return bytes(file.data[offset : offset + size])

    def pread_pieces(self, handle: int, sizes: Sequence[int], offset: int) -> list[bytes]:
        return cut(self.pread(handle, sum(sizes), offset), sizes)

    def pread_path(self, path: str, sizes: Sequence[int], offset: int, take: Callable[[bytes], None]) -> None:
        read_opened(self, path, sizes, offset, take)

    def read_as_asked(self, handle: int) -> None:
        """Nothing is read ahead."""

    def skip_zeros(self, handle: int, offset: int) -> int:
        file, path = self._file(handle)
        self._call("pread", path)
        return max(offset, len(file.data) - len(file.data[offset:].lstrip(b"\0")))

    def pwritev(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
        file, path = self._file(handle)
        self._call("pwritev", path)
        data = b"".join(buffers)
        self._room(path, offset + len(data) - len(file.data))
        if len(file.data) < offset:
            file.data.extend(bytes(offset - len(file.data)))
        file.data[offset : offset + len(data)] = data
        file.dirty.update(range(offset // SECTOR, -(-(offset + len(data)) // SECTOR)))
        return len(data)

    def zero(self, handle: int, offset: int, size: int) -> None:
        self.pwritev(handle, [bytes(size)], offset)

    def _room(self, path: str, more: int) -> None:
        root = _root(path)
        if more > 0 and root in self.capacity and self.free_bytes(path) < more:
            raise OSError(errno.ENOSPC, "no space left", path)

    def fdatasync(self, handle: int) -> None:
        file, path = self._file(handle)
        self._call("fdatasync", path)
        if _root(path) not in self.lying:
            file.durable = bytearray(file.data)
            file.dirty.clear()

    def truncate(self, handle: int, size: int) -> None:
        file, path = self._file(handle)
        self._call("truncate", path)
        self._resize(file, size)

    def allocate(self, handle: int, size: int) -> None:
        file, path = self._file(handle)
        self._call("allocate", path)
        self._room(path, size - len(file.data))
        if size > len(file.data):
            self._resize(file, size)

    def _resize(self, file: _File, size: int) -> None:
        old = len(file.data)
        if size < old:
            del file.data[size:]
        else:
            file.data.extend(bytes(size - old))
        file.dirty.update(range(min(size, old) // SECTOR, -(-max(size, old) // SECTOR)))

    def fstat(self, handle: int) -> FileStat:
        file, _ = self._file(handle)
        return FileStat(len(file.data), file.inode, 1)

    def stat(self, path: str) -> FileStat:
        self._call("stat", path)
        self._check(path)
        if path in self._folders:
            return FileStat(0, hash(path) & 0xFFFF, 1)
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        file = self._files[self._names[path]]
        return FileStat(len(file.data), file.inode, 1)

    def listdir(self, path: str) -> list[str]:
        self._call("listdir", path)
        self._check(path)
        if path not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        every = [*self._names, *self._folders]
        return [one.rpartition("/")[2] for one in every if one != "/" and _folder(one) == path]

    def mkdir(self, path: str) -> None:
        self._call("mkdir", path)
        self._check(path)
        while path not in self._folders and path:
            self._folders.add(path)
            path = _folder(path)

    def rmdir(self, path: str) -> None:
        self._call("rmdir", path)
        self._check(path)
        if self.listdir(path):
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        self._folders.discard(path)

    def rename(self, old: str, new: str) -> None:
        self._call("rename", new)
        self._check(new)
        if old in self._folders:
            self._rename_folder(old, new)
            return
        inode = self._names.pop(old, None)
        if inode is None or _folder(new) not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self._names[new] = inode
        self._changes.append(_NameChange(frozenset([_folder(old), _folder(new)]), (old,), ((new, inode),)))
        held = self._held.get(_folder(new))
        if held is not None and f"{_folder(new)}/{held[1]}" == new:
            self._held[_folder(new)] = *held[:2], inode

    def _rename_folder(self, old: str, new: str) -> None:
        if new in self._folders and self.listdir(new):
            raise OSError(errno.ENOTEMPTY, "not empty", new)
        if _folder(new) not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", new)
        inside = [path for path in self._names if path.startswith(old + "/")]
        there = tuple((new + path[len(old) :], self._names.pop(path)) for path in inside)
        self._names.update(there)
        self._move_folders(old, new)
        ends = frozenset([_folder(old), _folder(new)])
        self._changes.append(_NameChange(ends, tuple(inside), there, (old, new)))

    def _move_folders(self, old: str, new: str) -> None:
        self._folders = {
            new + one[len(old) :] if one == old or one.startswith(old + "/") else one for one in self._folders
        }

    def link(self, old: str, new: str) -> None:
        self._call("link", new)
        self._check(new)
        if new in self._names:
            raise FileExistsError(errno.EEXIST, "there is a file", new)
        if old not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        inode = self._names[new] = self._names[old]
        self._changes.append(_NameChange(frozenset([_folder(new)]), (), ((new, inode),)))

    def unlink(self, path: str) -> None:
        self._call("unlink", path)
        self._check(path)
        if self._names.pop(path, None) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._changes.append(_NameChange(frozenset([_folder(path)]), (path,), ()))

    def sync_dir(self, path: str) -> None:
        self._call("sync_dir", path)
        self._check(path)
        # Names go through a journal: whatever happened before is durable no later.
        last = max((at for at, change in enumerate(self._changes) if path in change.folders), default=-1)
        for change in self._changes[: last + 1]:
            self._make_durable(change)
        del self._changes[: last + 1]

    def _make_durable(self, change: _NameChange) -> None:
        for path in change.gone:
            self._durable_names.pop(path, None)
        self._durable_names.update(change.there)

    def free_bytes(self, path: str) -> int:
        self._call("free_bytes", path)
        self._check(path)
        root = _root(path)
        if root not in self.capacity:
            return 1 << 40
        used = sum(len(self._files[inode].data) for name, inode in self._names.items() if _root(name) == root)
        return max(0, self.capacity[root] - used)

    def abandon(self, root: str) -> None:
        self.abandoned.append(root)
        for handle, (_, path) in list(self._handles.items()):
            if path.startswith(root + "/"):
                self.close(handle)

    # --------------------------------------------------------------------------------------------- bad behaviour

    def power_cut(self, random: Random, roots: Sequence[str] | None = None) -> None:
        """All that was not synced survives sector by sector, or not: nothing, all, a prefix, or any mixture.

        With `roots` only the machine that has these folders loses its power; the process that uses them lives on.
        """

        def hit(path: str) -> bool:
            return roots is None or any(path == root or path.startswith(root + "/") for root in roots)

        changes = [change for change in self._changes if any(map(hit, change.folders))]
        kept_changes = random.randrange(0, len(changes) + 1)
        for change in changes[:kept_changes]:
            self._make_durable(change)
        for change in reversed(changes[kept_changes:]):
            if change.moved is not None:
                self._move_folders(*reversed(change.moved))
        self._changes = [change for change in self._changes if not any(map(hit, change.folders))]
        inodes = {i for names in (self._names, self._durable_names) for path, i in names.items() if hit(path)}
        for inode, file in self._files.items():
            if roots is None or inode in inodes:
                self._cut(file, random)
        kept = {path: inode for path, inode in self._names.items() if not hit(path)}
        self._names = kept | {path: inode for path, inode in self._durable_names.items() if hit(path)}
        if roots is None:
            self.kill()
        for root in roots or ():
            self.abandon(root)
        self._held = {root: held for root, held in self._held.items() if not hit(root)}

    def _cut(self, file: _File, random: Random) -> None:
        mode = random.randrange(0, 4)
        dirty = sorted(file.dirty)
        if mode == 1:
            kept = dirty
        elif mode == 2:
            kept = dirty[: random.randrange(0, len(dirty) + 1)]
        elif mode == 3:
            kept = [sector for sector in dirty if random.random() < 0.5]
        else:
            kept = []
        data = file.durable
        for sector in kept:
            begin = sector * SECTOR
            part = file.data[begin : begin + SECTOR]
            if len(data) < begin + len(part):
                data.extend(bytes(begin + len(part) - len(data)))
            data[begin : begin + len(part)] = part
        file.data = bytearray(data)
        file.durable = data
        file.dirty.clear()

    def kill(self) -> None:
        """The process dies: handles and locks go, everything written stays."""
        self._handles.clear()
        self._locks.clear()
        self._held.clear()
        self.faults.clear()

    def wipe(self, root: str) -> None:
        """The folder is deleted; open handles go on working on files without a name."""
        self._exchanged[root] = self._exchanged.get(root, 0) + 1
        for path in [path for path in self._names if path.startswith(root + "/")]:
            del self._names[path]
            self._durable_names.pop(path, None)
        self._changes = [c for c in self._changes if not any(folder.startswith(root) for folder in c.folders)]
        self._folders = {folder for folder in self._folders if folder != root and not folder.startswith(root + "/")}

    def flip(self, path: str, offset: int, mask: int = 1) -> None:
        """Rot: bits of one byte change, on the disk and in the cache."""
        file = self._files[self._names[path]]
        for data in (file.data, file.durable):
            if offset < len(data):
                data[offset] ^= mask

    def paths(self, root: str) -> list[str]:
        """All files below a folder."""
        return sorted(path for path in self._names if path.startswith(root + "/"))

    def content(self, path: str) -> bytes:
        return bytes(self._files[self._names[path]].data)

    def snapshot(self, root: str) -> dict[str, bytes]:
        """A backup of a folder, for `restore`."""
        return {path: self.content(path) for path in self.paths(root)}

    def restore(self, root: str, backup: dict[str, bytes]) -> None:
        """Somebody else puts an old state of a folder back."""
        self.wipe(root)
        held, self._held = self._held, {}
        self.mkdir(root)
        for path, data in backup.items():
            self.mkdir(_folder(path))
            handle = self.open(path, create=True)
            self.pwritev(handle, [data], 0)
            self.fdatasync(handle)
            self.close(handle)
            self.sync_dir(_folder(path))
        self._held = held


class FailOn:
    """A fault: calls of `operations` below `root` fail with `number`, the nth one (from 0), and all later ones."""

    def __init__(
        self, root: str, number: int, operations: Sequence[str] = (), after: int = 0, times: int | None = None
    ) -> None:
        self.root = root
        self.number = number
        self.operations = frozenset(operations)
        self.left = after
        self.times = times

    def __call__(self, operation: str, path: str) -> None:
        if not path.startswith(self.root + "/") and path != self.root:
            return
        if self.operations and operation not in self.operations:
            return
        if self.left > 0:
            self.left -= 1
            return
        if self.times is not None:
            if self.times == 0:
                return
            self.times -= 1
        raise OSError(self.number, f"injected at {operation}", path)


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _root(path: str) -> str:
    return "/" + path.split("/", 2)[1]
