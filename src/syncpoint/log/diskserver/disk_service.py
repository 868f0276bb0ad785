"""The disk service: executes the commands of chain owners on the folders of this process's disks.

Place: below `disk_server`, which has the sockets and threads; on `Files`, so that simulations run it without either.
Promise: a command is executed only under the highest token the chain ever had here, only when it comes on the newest
connection of its channel, and only once: the same one sent again after a lost connection gets the same answer. A token
is answered for only when it is durable and nothing is executed under a lower one any more.
Threads: any number; what concerns one channel waits in line.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from syncpoint.base.runtime.files import DiskFenced, Files
from syncpoint.log.diskserver.commands import Handles, execute
from syncpoint.log.diskserver.fencing import ChainFolders, FencingRecord, FencingToken
from syncpoint.log.diskserver.payload_cache import PayloadCache
from syncpoint.log.diskserver.protocol import LOOKUPS, DiskOp, Hello, Reply, Request, Status
from syncpoint.log.storage.disk.paced_files import DiskTurns, paced

WAIT_S = 1.0  # for a command under way; the caller asks again
OPENING_S = 10.0  # after a chain was taken over: its new owner reads without turns


class Busy(Exception):
    """A command of before has not ended."""


class ServedChannel:
    """One line of commands of one owner; its newest connection counts. Made by `DiskService.hello`."""

    def __init__(self, chain: _Chain, token: FencingToken) -> None:
        self.chain = chain
        self.token = token
        self.attempt = 0
        self.lock = threading.Lock()
        self.seq = 0
        self.reply = Reply()


class _Chain:
    """One chain on one disk: its token, what runs under it, and its open files."""

    def __init__(self, number: int, disk: str, folders: ChainFolders, record: FencingRecord | None) -> None:
        self.number = number
        self.disk = disk
        self.folders = folders
        self.folder = folders.folder(number)
        self.record = record  # what is on the disk
        self.token = record.token if record is not None else FencingToken(0, 0)
        self.durability = record.durability if record is not None else ""
        self.changed = threading.Condition()
        self.running = 0
        self.opening_until = 0.0  # monotonic seconds, where reads take turns
        self.handles: Handles = {}
        self.channels: dict[int, ServedChannel] = {}


class DiskService:
    """Serves the chains in the folders `disks` (name -> path). `server`: a number no other life of a process has.

    `wait_s`: how long a command waits for bytes that come with another disk's. `required`: see `ChainFolders`. `turns`:
    by disk, those that are read in turns, where threads may wait.
    """

    def __init__(
        self,
        disks: Mapping[str, str],
        files: Files,
        boot: str,
        server: int,
        *,
        wait_s: float = 0.0,
        required: bool = False,
        turns: Mapping[str, DiskTurns] = MappingProxyType({}),
    ) -> None:
        self.server = server
        self._turns = turns
        self.bytes_written = 0
        self.syncs = 0
        self._kept = PayloadCache(wait_s)
        self._plain = files
        self._files = paced(files, {disks[name]: of for name, of in turns.items()})
        self._folders = {name: ChainFolders(path, files, boot, required=required) for name, path in disks.items()}
        self._chains: dict[tuple[str, int], _Chain] = {}
        self._locks = {name: threading.Lock() for name in disks}  # one each: a disk that hangs holds up no other
        self._free: dict[str, int] = {}  # as asked for last

    def start(self) -> None:
        """Make the folders, and end deletions that were cut short. Raises `OSError`."""
        for name, folders in self._folders.items():
            folders.begin()
            self._free[name] = self._files.free_bytes(folders.root)
            for chain in folders.chains():
                if folders.is_dead(chain):
                    folders.delete(chain)

    def hello(self, hello: Hello) -> ServedChannel:
        """Raise the token, durably, and give the channel. Raises `DiskFenced`, `Busy`, `OSError`."""
        chain = self._chain(hello)
        token = FencingToken(hello.epoch, hello.session)
        with chain.changed:
            if token < chain.token:
                raise _fenced(chain, token)
            if token > chain.token:
                chain.token, chain.durability = token, hello.durability
                chain.channels = {}
            record = chain.record
            if record is None or record.token != token or record.clean or record.boot != chain.folders.boot:
                self._adopt(chain)
            channel = chain.channels.setdefault(hello.channel, ServedChannel(chain, token))
            if hello.attempt > channel.attempt:
                channel.attempt = hello.attempt  # at once, so that nothing of the old connection is begun any more
        if not channel.lock.acquire(timeout=WAIT_S):
            raise Busy
        channel.lock.release()
        return channel

    def _chain(self, hello: Hello) -> _Chain:
        folders = self._folders.get(hello.disk)
        if folders is None:
            raise FileNotFoundError(errno.ENOENT, f"disk {hello.disk!r} is not served here")
        if not 0 < hello.chain < 10**10:
            raise ValueError(f"{hello.chain} is not a chain number; use 1 to {10**10 - 1}")
        with self._locks[hello.disk]:
            chain = self._chains.get((hello.disk, hello.chain))
            if chain is None:
                folders.reopen()
                if folders.is_dead(hello.chain):
                    raise DiskFenced(errno.ESTALE, f"chain {hello.chain} was deleted")
                chain = _Chain(hello.chain, hello.disk, folders, folders.load(hello.chain))
                self._chains[hello.disk, hello.chain] = chain
            return chain

    def _adopt(self, chain: _Chain) -> None:
        """Wait until nothing runs under an older token, close its files, and write the new one."""
        fresh = chain.record is None or chain.record.token != chain.token
        if fresh:
            if not chain.changed.wait_for(lambda: chain.running == 0, WAIT_S):
                raise Busy
            self._close_files(chain)
            self._kept.forget(chain.number)
            chain.folders.hold_new(chain.number)
            if chain.disk in self._turns:
                chain.opening_until = self._turns[chain.disk].clock.monotonic() + OPENING_S
        record = FencingRecord(chain.token, chain.durability, chain.folders.boot, clean=False)
        chain.folders.store(chain.number, record)
        chain.folders.hold(chain.number)
        chain.record = record

    def _close_files(self, chain: _Chain) -> None:
        handles, chain.handles = chain.handles, {}
        for handle, _ in handles.values():
            with suppress(OSError):  # nothing was promised by closing
                self._files.close(handle)

    def run(self, channel: ServedChannel, attempt: int, request: Request) -> Reply:
        """Execute one command of the connection `attempt` of a channel. Data with names must stay unchanged."""
        self._kept.keep(
            channel.chain.number, channel.token.epoch, request.changes
        )  # at once: other disks need not wait
        with channel.lock:
            if attempt != channel.attempt:
                return Reply(Status.STALE, seq=request.seq)
            if request.seq == channel.seq:
                return channel.reply
            changes = self._kept.complete(channel.chain.number, channel.token.epoch, request.changes)
            if changes is None:
                return Reply(Status.LACKING, seq=request.seq)
            request = request._replace(changes=changes)
            chain = channel.chain
            with chain.changed:
                alone = request.op in (DiskOp.LEAVE, DiskOp.DELETE)  # they close files that others may be using
                if alone and not chain.changed.wait_for(lambda: chain.running == 0, WAIT_S):
                    return Reply(Status.ERROR, errno.EBUSY, payload=b"a command has not ended", seq=request.seq)
                if channel.token != chain.token or request.epoch != chain.token.epoch:  # perhaps only by now
                    text = str(_fenced(chain, channel.token).strerror).encode()
                    return Reply(Status.FENCED, errno.ESTALE, payload=text, seq=request.seq)
                chain.running += 1
            try:
                reply = self._execute(chain, request)._replace(seq=request.seq)
            except OSError as error:
                text = (error.strerror or str(error)).encode()
                reply = Reply(Status.ERROR, error.errno or errno.EIO, payload=text, seq=request.seq)
            finally:
                with chain.changed:
                    chain.running -= 1
                    if not chain.running:
                        chain.changed.notify_all()
            if request.op not in LOOKUPS:
                channel.seq, channel.reply = request.seq, reply
            return reply

    def _execute(self, chain: _Chain, request: Request) -> Reply:
        if request.op == DiskOp.LEAVE:
            return self._leave(chain, clean=bool(request.a))
        if request.op == DiskOp.TOMBSTONE:
            chain.folders.tombstone(chain.number)
            return Reply()
        if request.op == DiskOp.DELETE:
            self._close_files(chain)
            chain.folders.delete(chain.number)
            with self._locks[chain.disk]:
                self._chains.pop((chain.disk, chain.number), None)
            return Reply()
        if request.op == DiskOp.MKDIR and chain.record is not None:
            chain.folders.hold_new(chain.number)
            chain.folders.ensure(chain.number, chain.record)
        reply = self._on_disk(chain, request)
        self.bytes_written += sum(change.size for change in request.changes)
        self.syncs += request.op == DiskOp.FDATASYNC
        if request.op == DiskOp.FREE_BYTES:
            self._free[chain.disk] = reply.a
        return reply

    def _on_disk(self, chain: _Chain, request: Request) -> Reply:
        """Reads of a disk yield to its syncs. A chain that is being opened is read at once: it is not served yet."""
        turns, files = self._turns.get(chain.disk), self._files
        if turns is not None and request.op == DiskOp.FDATASYNC:
            return turns.write(lambda: execute(files, chain.folder, chain.handles, request))
        if turns is not None and request.op == DiskOp.PREAD and turns.clock.monotonic() < chain.opening_until:
            files = self._plain
        return execute(files, chain.folder, chain.handles, request)

    def _leave(self, chain: _Chain, *, clean: bool) -> Reply:
        """A session that continues after this must say hello again, which ends the cleanness."""
        self._close_files(chain)
        channels, chain.channels = chain.channels, {}
        for channel in channels.values():
            channel.attempt = -1
        if clean and chain.record is not None and not chain.record.clean:
            record = chain.record._replace(clean=True)
            chain.folders.ensure(chain.number, record)
            chain.folders.store(chain.number, record)
            chain.record = record
        return Reply()

    def stop(self) -> None:
        """Sync what is open and note that all of it is there; no command runs any more."""
        for chain in list(self._chains.values()):
            if chain.record is None or chain.record.token != chain.token:
                continue
            with suppress(OSError):  # then it counts as not clean, which is the truth
                for handle, writable in chain.handles.values():
                    if writable:
                        self._files.fdatasync(handle)
                self._leave(chain, clean=True)
            self._close_files(chain)

    def quarantine(self, known: Collection[int]) -> dict[str, list[int]]:
        """Set aside, on all disks, the chains that are not `known`; those opened by somebody here stay."""
        moved = {}
        for name, folders in self._folders.items():
            with self._locks[name]:
                opened = {number for disk, number in list(self._chains) if disk == name}
                moved[name] = folders.quarantine(known, opened)
        return moved

    def status(self) -> dict[str, Any]:
        """Plain values for tools; nothing is asked of the disks, so this never hangs."""
        disks: dict[str, Any] = {}
        for name, folders in self._folders.items():
            chains = {
                number: {"epoch": chain.token.epoch, "open_files": len(chain.handles), "channels": len(chain.channels)}
                for (disk, number), chain in list(self._chains.items())
                if disk == name
            }
            disks[name] = {"path": folders.root, "chains": chains, "free_bytes": self._free.get(name, 0)}
            if name in self._turns:
                disks[name] |= self._turns[name].figures()
        return {"server": self.server, "bytes_written": self.bytes_written, "syncs": self.syncs, "disks": disks}


def _fenced(chain: _Chain, token: FencingToken) -> DiskFenced:
    return DiskFenced(
        errno.ESTALE, f"chain {chain.number} on disk {chain.disk} has epoch {chain.token.epoch}, not {token.epoch}"
    )
