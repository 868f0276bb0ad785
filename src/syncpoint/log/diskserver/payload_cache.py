"""Payload cache: bytes that several disks of one server need travel to it once.

    first disk    WRITE with a name and how many others will ask ──► written there, and kept in the server's memory
    the others    COPY with that name                            ──► written from there

Place: `SentPayloads` at the forwarder, used by `remote_disk`; `PayloadCache` at the server, used by `disk_service`.
Promise: what a COPY writes is what the WRITE of its name brought, under the same chain and epoch, since the last
new fencing token. A server that has it not (any more) does nothing and says so (`LACKING`), and all is sent. Each disk
stays on its own otherwise: its command, its number, its token, its errors, its answer. Neither side keeps more than
its bound.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from syncpoint.log.diskserver.protocol import ChangeKind, FileChange

SHARE_MIN = 8 << 10  # bytes; what is smaller is sent to each disk
SENT_MAX = 16 << 20  # per chain and server: older data is sent again
KEPT_MAX = 64 << 20  # per server
TAKERS_MAX = 255


class _Name:
    """One buffer at one server. It is held here, so that its identity stays its own."""

    __slots__ = ("data", "left", "number")

    def __init__(self, number: int, data: bytes, left: int) -> None:
        self.number = number
        self.data = data
        self.left = left


class SentPayloads:
    """Which buffers went to which server already, for one opening of a chain. Any thread.

    A buffer is known by being the very same object: the log gives all its disks the same entries.
    """

    def __init__(self, first_name: int, share_min: int = SHARE_MIN) -> None:
        """`first_name`: names go up from here; greater than any of an earlier opening under the same epoch.

        `share_min`: smaller buffers are not shared.
        """
        self.share_min = share_min
        self._next = first_name
        self._lock = threading.Lock()
        self._disks: dict[int, set[str]] = {}  # life of a server -> our disks there
        self._names: dict[int, dict[int, _Name]] = {}  # life of a server -> identity of a buffer, oldest first
        self._held: dict[int, int] = {}  # life of a server -> bytes

    def found(self, server: int, root: str) -> None:
        """A disk is served by this life of a server."""
        with self._lock:
            self._drop(root, server)
            self._disks.setdefault(server, set()).add(root)

    def lost(self, root: str) -> None:
        """A disk was given up: nobody waits for it."""
        with self._lock:
            self._drop(root, 0)

    def _drop(self, root: str, but: int) -> None:
        for server, roots in list(self._disks.items()):
            if server != but:
                roots.discard(root)
                if len(roots) < 2:
                    self._names.pop(server, None)
                    self._held.pop(server, None)
                if not roots:
                    del self._disks[server]

    def name(self, server: int, changes: Sequence[FileChange]) -> Sequence[FileChange]:
        """The changes as they are to be sent to this life of a server."""
        with self._lock:
            takers = len(self._disks.get(server, ())) - 1
            if not 0 < takers <= TAKERS_MAX:
                return changes
            names = self._names.setdefault(server, {})
            return [
                self._name(server, names, takers, one)
                if one.kind == ChangeKind.WRITE and one.size >= self.share_min and type(one.data) is bytes
                else one
                for one in changes
            ]

    def _name(self, server: int, names: dict[int, _Name], takers: int, change: FileChange) -> FileChange:
        data = change.data
        assert type(data) is bytes
        known = names.get(id(data))
        if known is not None:
            known.left -= 1
            if not known.left:
                self._forget(server, names, id(data))
            return FileChange(ChangeKind.COPY, change.offset, change.size, b"", known.number)
        number, self._next = self._next, self._next + 1
        names[id(data)] = _Name(number, data, takers)
        self._held[server] = self._held.get(server, 0) + len(data)
        while self._held[server] > SENT_MAX:
            self._forget(server, names, next(iter(names)))
        return change._replace(name=number, takers=takers)

    def _forget(self, server: int, names: dict[int, _Name], identity: int) -> None:
        self._held[server] -= len(names.pop(identity).data)


class _Data:
    """Bytes that others will ask for."""

    __slots__ = ("data", "left")

    def __init__(self, change: FileChange) -> None:
        self.data = change.data
        self.left = change.takers


class PayloadCache:
    """What commands brought for other disks. Any thread."""

    def __init__(self, wait_s: float) -> None:
        """`wait_s`: for bytes that may still be on their way, on another connection."""
        self.bytes = 0
        self._wait_s = wait_s
        self._came = threading.Condition()
        self._kept: dict[tuple[int, int, int], _Data] = {}  # chain, epoch, name; oldest first

    def keep(self, chain: int, epoch: int, changes: Sequence[FileChange]) -> None:
        """Keep what is named and written. The data must stay unchanged."""
        named = [one for one in changes if one.takers and one.kind == ChangeKind.WRITE]
        if not named:
            return
        with self._came:
            for one in named:
                self._drop((chain, epoch, one.name))
                self._kept[chain, epoch, one.name] = _Data(one)
                self.bytes += one.size
            while self.bytes > KEPT_MAX:
                self._drop(next(iter(self._kept)))
            self._came.notify_all()

    def complete(self, chain: int, epoch: int, changes: Sequence[FileChange]) -> Sequence[FileChange] | None:
        """The changes with what they only name; None when something is not here, and does not come soon."""
        wanted = [((chain, epoch, one.name), one.size) for one in changes if one.kind == ChangeKind.COPY]
        if not wanted:
            return changes
        with self._came:
            if not self._came.wait_for(lambda: all(key in self._kept for key, _ in wanted), self._wait_s):
                return None
            found = {key[2]: self._kept[key] for key, _ in wanted}
            if any(len(found[name].data) != size for (_, _, name), size in wanted):
                return None
            for key, _ in wanted:
                found[key[2]].left -= 1
                if found[key[2]].left <= 0:
                    self._drop(key)
            return [
                FileChange(ChangeKind.WRITE, one.offset, one.size, found[one.name].data)
                if one.kind == ChangeKind.COPY
                else one
                for one in changes
            ]

    def _drop(self, key: tuple[int, int, int]) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self.bytes -= len(found.data)

    def forget(self, chain: int) -> None:
        """The chain has a new fencing token: nothing sent under an older one is written any more."""
        with self._came:
            for key in [key for key in self._kept if key[0] == chain]:
                self._drop(key)
