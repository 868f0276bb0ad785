"""The disk service: executes the commands of chain owners on the folders of this process's disks.

Place: below `server`, which has the sockets and threads; on `Files`, so that simulations run it without either.
Promise: a command is executed only under the highest claim the chain ever had here, only when it comes on the newest
connection of its lane, and only once: the same one sent again after a lost connection gets the same answer. A claim
is answered for only when it is durable and nothing is executed under a lower one any more.
Threads: any number; what concerns one lane waits in line.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from syncpoint.runtime.files import DiskFenced, Files
from syncpoint.storage.remote.claims import Claim, Claims, Record
from syncpoint.storage.remote.execute import Handles, execute
from syncpoint.storage.remote.shares import Kept
from syncpoint.storage.remote.wire import LOOKUPS, Hello, Op, Reply, Request, Status

WAIT_S = 1.0  # for a command under way; the caller asks again


class Busy(Exception):
    """A command of before has not ended."""


class Lane:
    """One line of commands of one owner; its newest connection counts. Made by `DiskService.hello`."""

    def __init__(self, chain: _Chain, claim: Claim) -> None:
        self.chain = chain
        self.claim = claim
        self.attempt = 0
        self.lock = threading.Lock()
        self.seq = 0
        self.reply = Reply()


class _Chain:
    """One chain on one disk: its claim, what runs under it, and its open files."""

    def __init__(self, number: int, disk: str, claims: Claims, record: Record | None) -> None:
        self.number = number
        self.disk = disk
        self.claims = claims
        self.folder = claims.folder(number)
        self.record = record  # what is on the disk
        self.claim = record.claim if record is not None else Claim(0, 0)
        self.durability = record.durability if record is not None else ""
        self.changed = threading.Condition()
        self.running = 0
        self.handles: Handles = {}
        self.lanes: dict[int, Lane] = {}


class DiskService:
    """Serves the chains in the folders `disks` (name -> path). `server`: a number no other life of a process has.

    `wait_s`: how long a command waits for bytes that come with the command of another disk. `required`: see `Claims`.
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
    ) -> None:
        self.server = server
        self.bytes_written = 0
        self.syncs = 0
        self._kept = Kept(wait_s)
        self._files = files
        self._claims = {name: Claims(path, files, boot, required=required) for name, path in disks.items()}
        self._chains: dict[tuple[str, int], _Chain] = {}
        self._locks = {name: threading.Lock() for name in disks}  # one each: a disk that hangs holds up no other
        self._free: dict[str, int] = {}  # as asked for last

    def start(self) -> None:
        """Make the folders, and end deletions that were cut short. Raises `OSError`."""
        for name, claims in self._claims.items():
            claims.begin()
            self._free[name] = self._files.free_bytes(claims.root)
            for chain in claims.chains():
                if claims.is_dead(chain):
                    claims.delete(chain)

    def hello(self, hello: Hello) -> Lane:
        """Raise the claim, durably, and give the lane. Raises `DiskFenced`, `Busy`, `OSError`."""
        chain = self._chain(hello)
        claim = Claim(hello.epoch, hello.session)
        with chain.changed:
            if claim < chain.claim:
                raise _fenced(chain, claim)
            if claim > chain.claim:
                chain.claim, chain.durability = claim, hello.durability
                chain.lanes = {}
            record = chain.record
            if record is None or record.claim != claim or record.clean or record.boot != chain.claims.boot:
                self._adopt(chain)
            lane = chain.lanes.setdefault(hello.lane, Lane(chain, claim))
            if hello.attempt > lane.attempt:
                lane.attempt = hello.attempt  # at once, so that nothing of the old connection is begun any more
        if not lane.lock.acquire(timeout=WAIT_S):
            raise Busy
        lane.lock.release()
        return lane

    def _chain(self, hello: Hello) -> _Chain:
        claims = self._claims.get(hello.disk)
        if claims is None:
            raise FileNotFoundError(errno.ENOENT, f"no disk {hello.disk!r} is served here")
        if not 0 < hello.chain < 10**10:
            raise ValueError(f"no chain has the number {hello.chain}")
        with self._locks[hello.disk]:
            chain = self._chains.get((hello.disk, hello.chain))
            if chain is None:
                claims.look_again()
                if claims.is_dead(hello.chain):
                    raise DiskFenced(errno.ESTALE, f"chain {hello.chain} was deleted")
                chain = _Chain(hello.chain, hello.disk, claims, claims.load(hello.chain))
                self._chains[hello.disk, hello.chain] = chain
            return chain

    def _adopt(self, chain: _Chain) -> None:
        """Wait until nothing runs under an older claim, close its files, and write the new one."""
        fresh = chain.record is None or chain.record.claim != chain.claim
        if fresh:
            if not chain.changed.wait_for(lambda: chain.running == 0, WAIT_S):
                raise Busy
            self._close_files(chain)
            self._kept.forget(chain.number)
            chain.claims.hold_new(chain.number)
        record = Record(chain.claim, chain.durability, chain.claims.boot, clean=False)
        chain.claims.store(chain.number, record)
        chain.claims.hold(chain.number)
        chain.record = record

    def _close_files(self, chain: _Chain) -> None:
        handles, chain.handles = chain.handles, {}
        for handle, _ in handles.values():
            with suppress(OSError):  # nothing was promised by closing
                self._files.close(handle)

    def run(self, lane: Lane, attempt: int, request: Request) -> Reply:
        """Execute one command that came on the connection `attempt` of a lane. Data with names must stay unchanged."""
        self._kept.keep(lane.chain.number, lane.claim.epoch, request.changes)  # at once: other disks need not wait
        with lane.lock:
            if attempt != lane.attempt:
                return Reply(Status.STALE, seq=request.seq)
            if request.seq == lane.seq:
                return lane.reply
            changes = self._kept.complete(lane.chain.number, lane.claim.epoch, request.changes)
            if changes is None:
                return Reply(Status.LACKING, seq=request.seq)
            request = request._replace(changes=changes)
            chain = lane.chain
            with chain.changed:
                if lane.claim != chain.claim or request.epoch != chain.claim.epoch:
                    text = str(_fenced(chain, lane.claim).strerror).encode()
                    return Reply(Status.FENCED, errno.ESTALE, payload=text, seq=request.seq)
                alone = request.op in (Op.LEAVE, Op.DELETE)  # they close files that others may be using
                if alone and not chain.changed.wait_for(lambda: chain.running == 0, WAIT_S):
                    return Reply(Status.ERROR, errno.EBUSY, payload=b"a command has not ended", seq=request.seq)
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
                lane.seq, lane.reply = request.seq, reply
            return reply

    def _execute(self, chain: _Chain, request: Request) -> Reply:
        if request.op == Op.LEAVE:
            return self._leave(chain, clean=bool(request.a))
        if request.op == Op.TOMBSTONE:
            chain.claims.tombstone(chain.number)
            return Reply()
        if request.op == Op.DELETE:
            self._close_files(chain)
            chain.claims.delete(chain.number)
            with self._locks[chain.disk]:
                self._chains.pop((chain.disk, chain.number), None)
            return Reply()
        if request.op == Op.MKDIR and chain.record is not None:
            chain.claims.hold_new(chain.number)
            chain.claims.ensure(chain.number, chain.record)
        reply = execute(self._files, chain.folder, chain.handles, request)
        self.bytes_written += sum(change.size for change in request.changes)
        self.syncs += request.op == Op.FDATASYNC
        if request.op == Op.FREE_BYTES:
            self._free[chain.disk] = reply.a
        return reply

    def _leave(self, chain: _Chain, *, clean: bool) -> Reply:
        """Whoever goes on after this has to say hello again, which ends the cleanness."""
        self._close_files(chain)
        lanes, chain.lanes = chain.lanes, {}
        for lane in lanes.values():
            lane.attempt = -1
        if clean and chain.record is not None and not chain.record.clean:
            record = chain.record._replace(clean=True)
            chain.claims.ensure(chain.number, record)
            chain.claims.store(chain.number, record)
            chain.record = record
        return Reply()

    def stop(self) -> None:
        """Sync what is open and note that all of it is there; no command runs any more."""
        for chain in list(self._chains.values()):
            if chain.record is None or chain.record.claim != chain.claim:
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
        for name, claims in self._claims.items():
            with self._locks[name]:
                opened = {number for disk, number in list(self._chains) if disk == name}
                moved[name] = claims.quarantine(known, opened)
        return moved

    def status(self) -> dict[str, Any]:
        """Plain values for tools; nothing is asked of the disks, so this never hangs."""
        disks: dict[str, Any] = {}
        for name, claims in self._claims.items():
            chains = {
                number: {"epoch": chain.claim.epoch, "open_files": len(chain.handles), "lanes": len(chain.lanes)}
                for (disk, number), chain in list(self._chains.items())
                if disk == name
            }
            disks[name] = {"path": claims.root, "chains": chains, "free_bytes": self._free.get(name, 0)}
        return {"server": self.server, "bytes_written": self.bytes_written, "syncs": self.syncs, "disks": disks}


def _fenced(chain: _Chain, claim: Claim) -> DiskFenced:
    return DiskFenced(
        errno.ESTALE, f"chain {chain.number} on disk {chain.disk} has epoch {chain.claim.epoch}, not {claim.epoch}"
    )
