"""`syncpoint run`: one process of a cluster until a signal ends it."""

import asyncio
import contextlib
import logging
import signal
import sys
from pathlib import Path

import uvloop

from syncpoint.model.errors import SyncpointError
from syncpoint.node.cluster.process import ClusterProcess
from syncpoint.node.cluster.settings import ClusterSettings, ProcessSettings


def run_process(settings: ClusterSettings, process: ProcessSettings, ready_file: Path | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    _name_process(process.name)
    try:
        uvloop.run(_serve(settings, process, ready_file))
    except SyncpointError as error:
        print(f"{process.name} can not start: {error.message}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{process.name} can not start: {error}", file=sys.stderr)
        return 1
    return 0


def _name_process(name: str) -> None:
    """What `ps` and `top` show, 15 letters of it; where the kernel does not offer it, the interpreter's name stays."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name[:15])


async def _serve(settings: ClusterSettings, process: ProcessSettings, ready_file: Path | None) -> None:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    node = ClusterProcess(settings, process)
    await node.start()
    print(f"{process.name} ready on {node.address}", flush=True)
    if node.public_address:
        print(f"syncpoint ready on {node.public_address}", flush=True)
    if ready_file is not None:
        ready_file.write_text(node.public_address or node.address)
    await stopping.wait()
    await node.stop()
