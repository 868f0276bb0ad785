"""The parent of the workers: it keeps the metadata, starts the workers, and starts again those that die.

Place: `syncpoint serve --workers K`. The parent handles no message: clients talk to the workers, which share the port.
Promise: the ready line is printed when every chain is open. A worker that dies is started again, and its chain is open
elsewhere in the meantime; one that lost its lease and lives is killed, so that others may have its chains. When the
parent dies the workers end; one that is started before they have waits for that, since they have its port until then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys

from syncpoint.base.model.errors import FailedPrecondition, Unavailable
from syncpoint.base.runtime.backoff import Backoff
from syncpoint.base.runtime.clock import Clock, SystemClock
from syncpoint.base.runtime.random import Random, SystemRandom
from syncpoint.base.runtime.tasks import stop
from syncpoint.catalog.metadata.layout import CHAINS, MEMBERS, OWNERS
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.service import MetadataService
from syncpoint.catalog.metadata.sqlite import SqliteStore
from syncpoint.catalog.metadata.store_client import read_all
from syncpoint.node.locks import FolderLocks
from syncpoint.node.settings import ServeSettings
from syncpoint.node.workers.folder import prepare
from syncpoint.node.workers.plan import BEGIN_AGAIN, Plan, worker_name
from syncpoint.watch.metrics.scraped_page import metrics_port, say_where
from syncpoint.wire.transport.network import join_address, split_address
from syncpoint.wire.transport.server import Server, serve

READY_S = 60.0
STOP_S = 30.0
LOOK_S = 0.5
LOOK_LIFE_S = 0.05
HUNG_S = 1.0  # without a membership, after having had one

log = logging.getLogger(__name__)


class Parent:
    """A started group of workers. `endpoint` is HOST:PORT for clients."""

    def __init__(self, settings: ServeSettings, clock: Clock | None = None, random: Random | None = None) -> None:
        self.settings = settings
        self.clock, self.random = clock or SystemClock(), random or SystemRandom()
        self._secret = self.random.token(32).hex().encode()  # a header's value
        self.pids: dict[int, int] = {}
        self._locks = FolderLocks()
        self._ports: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._opened, self._broken = False, ""
        self._ready: dict[int, asyncio.Event] = {}
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Return when clients can publish. Raises `SyncpointError` and `OSError`."""
        try:
            await self._follow_earlier_life()
            self._ports.append(reserve_port(self.settings.host, self.settings.port))
            await self._start()
        except BaseException:
            self._stopping.set()
            for pid in self.pids.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._let_go_of_ports()
            raise

    async def _follow_earlier_life(self) -> None:
        """Wait until the workers of a parent that was killed have ended: they inherited the lock of its life."""
        folder, until, said = self.settings.data / "workers", self.clock.monotonic() + READY_S, False
        self._locks.take(folder)
        while True:
            try:
                self._life = self._locks.take(folder / "life")
                return
            except FailedPrecondition:
                if self.clock.monotonic() > until:
                    raise FailedPrecondition(
                        f"workers of an earlier server on {self.settings.data} did not end within {READY_S:g} s."
                        " End the remaining processes `syncpoint.node.workers.worker`."
                    ) from None
            if not said:
                log.warning("waiting for workers of the previous server to end")
                said = True
            await asyncio.sleep(LOOK_LIFE_S)

    async def _start(self) -> None:
        settings = self.settings
        self._store = SqliteStore(settings.data / "cluster.sqlite", clock=self.clock, random=self.random)
        self.shared = LocalShared(self._store, self.clock)
        self._service = MetadataService(self._store, self.clock)
        self._server: Server = await serve(self._service.methods, "127.0.0.1", 0, secret=self._secret)
        public, metrics = join_address(settings.host, self._ports[0].getsockname()[1]), ""
        if settings.metrics:
            host, port = split_address(settings.metrics)
            with metrics_port(settings.metrics):
                self._ports.append(reserve_port(host, port))
            port = self._ports[-1].getsockname()[1]
            metrics = join_address(host, port)
            say_where(host, port)
        self.plan = Plan(settings, join_address("127.0.0.1", self._server.port), public, metrics)
        await prepare(self.plan, self.shared, self.clock, self.random)
        loop = asyncio.get_running_loop()
        for number in range(1, settings.workers + 1):
            self._ready[number] = asyncio.Event()
            self._tasks.append(loop.create_task(self._keep(number)))
        await self._all_open()
        self._tasks.append(loop.create_task(self._watch_leases()))

    async def stop(self) -> None:
        """End the workers, drained, then close the metadata."""
        self._stopping.set()
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        keeping = self._tasks[: self.settings.workers]
        if keeping:
            _, late = await asyncio.wait(keeping, timeout=STOP_S)
            if late:
                log.warning("killing %d workers: they did not end within %g s", len(late), STOP_S)
                for pid in self.pids.values():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.wait(late)
        await stop(self._tasks)
        await self._service.close()
        await self._server.close()
        self._store.close()
        self._let_go_of_ports()
        self._locks.release()

    def _let_go_of_ports(self) -> None:
        for port in self._ports:
            port.close()

    @property
    def endpoint(self) -> str:
        return self.plan.public

    # -- workers -----------------------------------------------------------------------------------------------------

    async def _keep(self, number: int) -> None:
        """Run a worker again and again."""
        backoff = Backoff(0.1, 5.0)
        while not self._stopping.is_set():
            began = self.clock.monotonic()
            code = await self._run(number)
            if not self._opened and not self._ready[number].is_set() and code != BEGIN_AGAIN:
                self._broken = f"{worker_name(number)} ended with code {code} while starting; see its output"
                return
            self._ready[number].clear()
            if self._stopping.is_set():
                return
            if self.clock.monotonic() - began > backoff.most_s:
                backoff.succeeded()
            log.warning("%s ended with code %d; restarting it", worker_name(number), code)
            await asyncio.sleep(backoff.failed())

    async def _run(self, number: int) -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "syncpoint.node.workers.worker", str(number)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(self._life,),
            start_new_session=True,  # Ctrl-C is for the parent, which notifies the workers
        )
        self.pids[number] = process.pid
        assert process.stdin is not None
        process.stdin.write(self._secret.hex().encode() + b"\n" + self.plan.encode() + b"\n")
        if self._stopping.is_set():
            process.terminate()
        try:
            assert process.stdout is not None
            while line := await process.stdout.readline():
                if line.strip() == b"ready":
                    self._ready[number].set()
            return await process.wait()
        finally:
            if self.pids.get(number) == process.pid:
                del self.pids[number]

    async def _all_open(self) -> None:
        """Wait until every worker is ready and every chain is open."""
        try:
            async with asyncio.timeout(READY_S):
                while not await self._is_open():
                    if self._broken:
                        raise Unavailable(self._broken)
                    await asyncio.sleep(0.02)
            self._opened = True
        except TimeoutError:
            raise Unavailable(f"the workers were not ready within {READY_S:g} s; see their output") from None

    async def _is_open(self) -> bool:
        if not all(ready.is_set() for ready in self._ready.values()):
            return False
        return len((await read_all(self.shared, OWNERS))[0]) >= len((await read_all(self.shared, CHAINS))[0])

    async def _watch_leases(self) -> None:
        """A worker that is no member any more, and lives, holds its disks: others can have them once it is dead."""
        missing: dict[tuple[int, int], float] = {}
        while True:
            await asyncio.sleep(LOOK_S)
            members = {MEMBERS.name(item.key) for item in (await read_all(self.shared, MEMBERS))[0]}
            now = self.clock.monotonic()
            lost = {
                (number, pid): missing.get((number, pid), now)
                for number, pid in self.pids.items()
                if self._ready[number].is_set() and worker_name(number) not in members
            }
            missing = lost
            for (number, pid), since in lost.items():
                if now - since >= HUNG_S and not self._stopping.is_set():
                    log.warning("killing %s: it does not renew its lease", worker_name(number))
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


def reserve_port(host: str, port: int) -> socket.socket:
    """A socket that keeps a port for the workers and listens on nothing. Raises `OSError` when it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as alone:  # SO_REUSEPORT would share the port with another server of the same user
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        alone.bind((host, port))
        port = alone.getsockname()[1]
    kept = socket.socket(family)
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    kept.bind((host, port))
    return kept
