"""`syncpoint serve`: run a node until a signal ends it."""

import asyncio
import logging
import signal
import sys

import uvloop

from syncpoint.model.errors import SyncpointError
from syncpoint.node.process import Node
from syncpoint.node.settings import ServeSettings


def run(settings: ServeSettings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. Prints `syncpoint ready on HOST:PORT` once it answers."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        uvloop.run(_serve(settings))
    except SyncpointError as error:
        print(f"syncpoint can not start: {error.message}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"syncpoint can not start: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(settings: ServeSettings) -> None:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    node = Node(settings)
    await node.start()
    print(f"syncpoint ready on {node.endpoint}", flush=True)
    await stopping.wait()
    await node.stop()
