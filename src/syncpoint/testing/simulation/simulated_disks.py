"""Simulated disks: the shipped disk service over files in memory, and the shipped client of it without sockets.

Place: what `diskserver.disk_server` and `diskserver.command_channel` are in production. Above it the shipped
`RemoteFiles` and `RemoteDisk` wait, ask again and give up; below it the shipped `DiskService` checks fencing tokens.
What it knows of bad behaviour: servers die in the middle of a command, hang, lose their power with all that was not
synced, and are out of reach of some; disks fail, fill up, lie, are slow, hang, rot and are wiped; a command or its
answer is lost on the way.
"""

from __future__ import annotations

import errno
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.file_content import cut
from syncpoint.base.runtime.files import DiskFenced
from syncpoint.base.runtime.random import Random
from syncpoint.log.diskserver.command_channel import ChannelLost, CommandChannel, Patience
from syncpoint.log.diskserver.disk_service import Busy, DiskService, ServedChannel
from syncpoint.log.diskserver.protocol import LOOKUPS, DiskOp, Hello, Reply, Request, Status
from syncpoint.log.diskserver.remote_disk import DiskAddress, RemoteDisk, Where
from syncpoint.log.diskserver.remote_files import RemoteFiles
from syncpoint.log.storage.settings import Durability
from syncpoint.testing.rigs.memory_files import FailOn, MemoryFiles
from syncpoint.testing.simulation.loop import SimProcess, here
from syncpoint.testing.simulation.sim_threads import Killed, SimCondition, SimLock, in_sim_thread, pause

QUICK = Patience(connect_s=0.5, silence_s=1.0, give_up_s=1.5, retry_s=0.1, quiet_s=0.3)
_STEP_S = 0.15
_SHARE_MIN = 65  # small, so that the small messages of a simulation are shared; a frame's header is not
_WRITER = "syncpoint-write-"
_WRITES = (DiskOp.CHANGE, DiskOp.FDATASYNC)
_QUIET_OPS = {*LOOKUPS, DiskOp.LEAVE, DiskOp.CLOSE}  # change nothing of what is stored


class _Died(BaseException):
    """The server died in the middle of a command."""


class SimDiskServer:
    """One process that serves disks, over its many lives."""

    def __init__(self, farm: DiskFarm, name: str, disks: tuple[str, ...]) -> None:
        self.farm, self.name, self.disks = farm, name, disks
        self.files = MemoryFiles()
        self.alive, self.hung = True, False
        self.room = 0  # of each of its disks; 0: any
        self.slow: dict[str, float] = {}  # disk -> seconds a command takes; inf: it hangs
        self.lives = self.boots = 0
        self._epochs: dict[tuple[str, int], int] = {}  # the highest epoch answered for, whoever forgets it
        self._destroyed: set[str] = set()  # disks that do not know their tokens any more; a living server does
        self.service: DiskService
        self.start()

    def start(self) -> None:
        """A new life."""
        self.lives += 1
        self._epochs = {key: epoch for key, epoch in self._epochs.items() if key[0] not in self._destroyed}
        self._destroyed.clear()
        places = {name: f"/{name}" for name in self.disks}
        self.service = DiskService(places, self.files, f"boot-{self.name}-{self.boots}", self.farm.next_life())
        self.alive, self.hung = True, False
        self.service.start()

    @property
    def calm(self) -> bool:
        """Whether it does what it is asked for at once."""
        return self.alive and not (self.hung or self.slow or self.files.faults)

    def kill(self) -> None:
        """kill -9: what was written stays."""
        self.alive = self.hung = False
        self.files.kill()

    def power_cut(self) -> None:
        """What was not synced is lost, torn or mixed up."""
        self.alive = self.hung = False
        self.boots += 1
        self.files.power_cut(self.farm.random)

    def loses(self, disk: str) -> None:
        """A disk loses what it has promised to keep: after the server's next start it
        takes an owner that is late for the current one. The other disks refuse that owner.
        """
        self._destroyed.add(disk)

    def die_within(self, calls: int, *, power: bool) -> None:
        """Die before one of the next calls to the file system, in the middle of whatever command it belongs to."""
        left = calls

        def fault(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                if power:
                    self.power_cut()
                else:
                    self.kill()
                self.farm.on_death(self)
                raise _Died

        self.files.faults.append(fault)

    def die_before_sync(self, then: Callable[[], None]) -> None:
        """Die when something of a log is written and not synced."""

        def fault(operation: str, path: str) -> None:
            if operation == "fdatasync" and "/logs/" in path:
                self.kill()
                self.farm.on_death(self)
                then()
                raise _Died

        self.files.faults.append(fault)

    def fail(
        self, disk: str, number: int = errno.EIO, operations: tuple[str, ...] = (), times: int | None = None
    ) -> None:
        """Calls on a disk fail."""
        self.files.faults.append(FailOn(f"/{disk}", number, operations, times=times))

    def limit(self, room: int) -> None:
        """Set the size of its disks in bytes; 0: unlimited."""
        self.room = room
        self.files.capacity.clear()
        if room:
            self.files.capacity.update({f"/{disk}": room for disk in self.disks})

    def heal(self) -> None:
        """Everything about it is well again; what was destroyed stays destroyed."""
        self.files.faults.clear()
        self.files.lying.clear()
        self.limit(self.room)
        self.slow.clear()
        self.hung = False
        if not self.alive:
            self.start()

    def hello(self, hello: Hello) -> ServedChannel:
        """Raises what the service does, and `ChannelLost` when it dies of it."""
        try:
            channel = self.service.hello(hello)
        except _Died:
            raise ChannelLost(f"{self.name} died") from None
        key = (hello.disk, hello.chain)
        self._epochs[key] = max(self._epochs.get(key, 0), hello.epoch)
        return channel

    def run(self, channel: ServedChannel, attempt: int, request: Request) -> Reply:
        """Execute a command, and see that nobody writes who must not any more.

        A command that was executed before, and is sent again, is answered from memory and touches nothing. Under a
        token that is over in the meantime its answer is still true: it was executed, and synced if it said so, before
        the new token was answered for, so recovery, which reads after that, has seen it (protocol rule 13).
        """
        again = request.seq == channel.seq
        try:
            reply = self.service.run(channel, attempt, request)
        except _Died:
            raise ChannelLost(f"{self.name} died") from None
        if reply.status == Status.OK and request.op not in _QUIET_OPS and not again:
            self.farm.commands += 1
            chain = channel.chain
            if request.epoch < self._epochs.get((chain.disk, chain.number), 0):
                self.farm.intruders.append(
                    f"{self.name}/{chain.disk}: {DiskOp(request.op).name} of chain {chain.number} under epoch"
                    f" {request.epoch} after epoch {self._epochs[chain.disk, chain.number]} had begun"
                )
        return reply


@dataclass
class _Strike:
    """A fault that is due after some calls (`DiskFarm.after`)."""

    process: SimProcess
    left: int
    act: Callable[[], None]
    writes: bool


class DiskFarm:
    """All servers of disks, and what lies between them and the processes."""

    def __init__(self, random: Random, clock: Clock, parted: Callable[[str, str], bool]) -> None:
        self.random, self.clock, self.parted = random, clock, parted
        self.servers: dict[str, SimDiskServer] = {}
        self.cut_chance = 0.0  # that a command or its answer is lost
        self.farewell_chance = 0.0  # the same of who is done with a disk and reports its server
        self.lost_before = self.lost_after = 0
        self.commands = 0
        self.intruders: list[str] = []  # who wrote although somebody else had taken over
        self.on_death: Callable[[SimDiskServer], None] = lambda server: None
        self.on_given_up: list[Callable[[SimProcess, SimDiskServer], None]] = []
        self._lives = 0
        self._strikes: list[_Strike] = []

    def after(self, process: SimProcess, commands: int, act: Callable[[], None], *, writes: bool = False) -> None:
        """Do something before a process's next command but so many; `writes`: of those that change something."""
        self._strikes.append(_Strike(process, commands, act, writes))

    def command_of(self, process: SimProcess, op: int) -> None:
        """A process sends a command."""
        for one in self._strikes[:]:
            if one.process is process and (op in _WRITES or not one.writes):
                one.left -= 1
                if one.left < 0:
                    self._strikes.remove(one)
                    one.act()

    def serve(self, name: str, disks: tuple[str, ...]) -> SimDiskServer:
        """A new server."""
        server = self.servers[name] = SimDiskServer(self, name, disks)
        return server

    def next_life(self) -> int:
        self._lives += 1
        return self._lives

    def files(
        self,
        places: Mapping[str, DiskAddress | Where],
        chain: int,
        epoch: int,
        durability: str = Durability.SYNC,
        patience: Patience = QUICK,
    ) -> SimFiles:
        """The files of a chain, for the process whose code is running."""
        process = here()
        assert process is not None, "files are opened by processes"
        return SimFiles(self, process, places, chain, epoch, durability, patience)


class SimFiles(RemoteFiles):
    """The shipped remote files over channels without sockets."""

    def __init__(
        self,
        farm: DiskFarm,
        process: SimProcess,
        places: Mapping[str, DiskAddress | Where],
        chain: int,
        epoch: int,
        durability: str,
        patience: Patience,
    ) -> None:
        super().__init__(
            places,
            chain,
            epoch,
            farm.clock,
            durability=durability,
            patience=patience,
            share_min=_SHARE_MIN,
        )
        self._farm, self._process = farm, process
        self._held: Counter[str] = Counter()
        self._lock = SimLock(self._held, "")  # type: ignore[assignment]
        for root, disk in list(self._disks.items()):
            self._disks[root] = _SimDisk(
                root,
                disk._where,
                disk._hello,
                farm.clock,
                patience,
                None,
                self._silent,
                self._sent,
                held=self._held,
                farm=farm,
                process=process,
            )

    def open(self, path: str, *, create: bool = False, write: bool = True) -> int:
        number = super().open(path, create=create, write=write)
        found = self._handles[number]
        found.lock = SimLock(self._held, found.disk.root)  # type: ignore[assignment]
        return number

    def abandon(self, root: str) -> None:
        super().abandon(root)
        place = self._disks[root]._where()
        for act in list(self._farm.on_given_up) if place is not None else ():
            assert place is not None
            act(self._process, self._farm.servers[place.host])

    def calm(self, worker: str) -> bool:
        """Whether nothing that this worker does has to wait: a writer for its own disk, others for any."""
        if worker.startswith(_WRITER):
            return self._is_calm(list(self._disks.values())[int(worker.removeprefix(_WRITER))])
        return all(self._is_calm(disk) for disk in self._disks.values())

    def _is_calm(self, disk: RemoteDisk) -> bool:
        place, farm = disk._where(), self._farm
        if place is None or farm.cut_chance or self._held[disk.root]:
            return False
        server = farm.servers.get(place.host)
        return server is not None and server.calm and not farm.parted(self._process.name, server.name)


class _SimDisk(RemoteDisk):
    """The shipped waiting and asking again, on channels of the simulation."""

    def __init__(self, *arguments: object, held: Counter[str], farm: DiskFarm, process: SimProcess) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._farm, self._process = farm, process
        self._changed = SimCondition()  # type: ignore[assignment]
        self._resolving = SimLock(held, self.root)  # type: ignore[assignment]

    def _take(self, generation: int, give_up_s: float) -> tuple[CommandChannel, Any]:
        if not self._free:
            self._channels += 1
            self._free.append(SimCommandChannel(self._channels, self._patience, self._farm, self._process))
        return super()._take(generation, give_up_s)


class SimCommandChannel(CommandChannel):
    """One line of commands, carried by hand."""

    def __init__(self, number: int, patience: Patience, farm: DiskFarm, process: SimProcess) -> None:
        super().__init__(number, None, patience)
        self._farm, self._process = farm, process
        self._far: tuple[SimDiskServer, DiskService, ServedChannel, int] | None = None

    @property
    def connected(self) -> bool:
        return self._far is not None

    def connect(self, host: str, port: int, hello: Hello) -> None:
        self.break_off()
        self._attempt += 1
        self._live()
        server = self._farm.servers.get(host)
        self._travel()
        if server is None or not server.alive:
            raise ChannelLost(f"{host} refuses")
        waited = 0.0
        while server.hung or self._farm.parted(self._process.name, host):
            if waited >= self._patience.connect_s:
                raise ChannelLost(f"{host} does not answer")
            pause(_STEP_S)
            waited += _STEP_S
            self._live()
        if not server.alive:
            raise ChannelLost(f"{host} refuses")
        try:
            channel = server.hello(hello._replace(channel=self.number, attempt=self._attempt))
        except DiskFenced as error:
            raise DiskFenced(errno.ESTALE, str(error.strerror or error)) from None
        except Busy:
            raise ChannelLost("an earlier command has not ended") from None
        except FileNotFoundError as error:
            raise OSError(error.errno or errno.EIO, str(error.strerror)) from None
        self.server, self.boot = server.service.server, f"boot-{server.name}-{server.boots}"
        self._far = (server, server.service, channel, self._attempt)

    def exchange(self, request: Request) -> Reply:
        far, farm = self._far, self._farm
        self._live()
        if far is None:
            raise ChannelLost("not connected")
        server, _, channel, attempt = far
        farm.command_of(self._process, request.op)
        self._travel()
        self._wait(far, channel.chain.disk)
        chance = max(farm.cut_chance, farm.farewell_chance if request.op == DiskOp.LEAVE else 0.0)
        if chance and farm.random.random() < chance:
            farm.lost_before += 1
            self.break_off()
            raise ChannelLost("the connection broke")
        try:
            reply = server.run(channel, attempt, request)
        except ChannelLost:
            self.break_off()
            raise
        self._travel()
        self._live()
        if chance and farm.random.random() < chance:
            farm.lost_after += 1
            self._give(request, reply, whole=False)
            self.break_off()
            raise ChannelLost("the connection broke before the answer came")
        self._wait(far, None)
        if reply.status == Status.STALE or reply.seq != request.seq:
            self.break_off()
            raise ChannelLost("the connection was replaced")
        self._give(request, reply, whole=True)
        return reply

    @staticmethod
    def _give(request: Request, reply: Reply, *, whole: bool) -> None:
        """What was read, to who wants each piece as it comes; of an answer that breaks off the first ones."""
        if request.take is not None and reply.status == Status.OK and reply.seq == request.seq and reply.payload:
            pieces = cut(bytes(reply.payload), request.sizes)
            for piece in pieces if whole else pieces[: len(pieces) // 2]:
                request.take(piece)

    def break_off(self) -> None:
        self._far = None

    def _travel(self) -> None:
        """The way to the server, or back. Only simulated threads have the time for it, and only sometimes."""
        if in_sim_thread() and self._farm.random.random() < 0.1:
            pause(self._farm.random.random() ** 2 * 0.004)

    def _live(self) -> None:
        if not self._process.alive:
            raise Killed

    def _wait(self, far: tuple[SimDiskServer, DiskService, ServedChannel, int], disk: str | None) -> None:
        """Until the server answers and its disk has had its time; raises `ChannelLost` after too long a silence."""
        server, service, _, _ = far
        silent, worked = 0.0, 0.0
        while True:
            step_s = _STEP_S
            self._live()
            if self._far is not far:
                raise ChannelLost("hung up")
            if not server.alive or server.service is not service:
                self.break_off()
                raise ChannelLost(f"{server.name} died")
            if server.hung or self._farm.parted(self._process.name, server.name):
                if silent >= self._patience.silence_s:
                    self.break_off()
                    raise ChannelLost(f"{server.name} is silent")
                silent += _STEP_S
            elif disk is not None and worked < server.slow.get(disk, 0.0):
                silent = 0.0  # it says that it works on it
                step_s = min(server.slow[disk], 0.5)
                worked += step_s
            else:
                return
            if not in_sim_thread():  # time does not pass on the loop's thread
                silent, worked = self._patience.silence_s, math.inf
            pause(step_s)
