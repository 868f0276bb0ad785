"""`syncpoint serve`: run a node until a signal ends it."""

from __future__ import annotations

import asyncio
import errno
import shlex
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.private_files import keep_private
from syncpoint.log.storage.errors import DisksMissing
from syncpoint.node.running import log_to_stderr, run_until_signal, serve_until
from syncpoint.node.settings import ServeSettings
from syncpoint.node.solo.node import Node

if TYPE_CHECKING:
    from syncpoint.node.workers.parent import Parent


FAILED, PORT_TAKEN = 1, 2


def run(settings: ServeSettings, announce: Callable[[str], None] = lambda endpoint: None) -> int:
    """Serve until SIGTERM or SIGINT; returns 0, FAILED or PORT_TAKEN. Prints `syncpoint ready on HOST:PORT` once it
    answers, and passes the address to `announce`."""
    log_to_stderr()
    try:
        keep_private(*settings.disk_folders)
        run_until_signal(partial(_serve, settings, announce))
    except DisksMissing as error:
        print(f"syncpoint cannot start: {error.message}{ways_out(error, settings)}", file=sys.stderr)
        return FAILED
    except SyncpointError as error:
        print(f"syncpoint cannot start: {error.message}", file=sys.stderr)
        return FAILED
    except OSError as error:
        print(f"syncpoint cannot start: {_in_words(error, settings)}", file=sys.stderr)
        return PORT_TAKEN if error.errno == errno.EADDRINUSE else FAILED
    return 0


def ways_out(error: DisksMissing, settings: ServeSettings) -> str:
    """What can be done where disks are gone that may hold what nobody else has; empty where others are in the way."""
    if not error.facts.get("missing"):
        return ""
    named = [word for disk in settings.disks for word in ("--disk", str(disk))] or ["--data", str(settings.data)]
    command = shlex.join(["syncpoint", "log", "recover", *named])
    return f"""
No message was touched. There are two ways out:
  1. Bring the missing disks back (mount them, or name the folders where they are), and start again: nothing is lost.
  2. If they are gone for good, see what may be lost with them: messages that were acknowledged, and acknowledgements.
       {command}
     lists them and changes nothing. With --accept-loss at its end they are given up for ever, and the server starts."""


def _in_words(error: OSError, settings: ServeSettings) -> str:
    """What the operating system refused, said with what it was asked for."""
    if error.errno == errno.EADDRINUSE:
        return f"port {settings.port} of {settings.host} is taken; choose another one with --port (0: any free one)"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{settings.host} is no address of this machine"
    if error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}"
    return str(error)


async def _serve(settings: ServeSettings, announce: Callable[[str], None], stopping: asyncio.Event) -> None:
    node = _node(settings)

    def ready() -> None:
        announce(node.endpoint)
        print(f"syncpoint ready on {node.endpoint}", flush=True)

    await serve_until(stopping, node, ready)


def _node(settings: ServeSettings) -> Node | Parent:
    """One process that does everything, or the parent of those that do."""
    if settings.workers:
        from syncpoint.node.workers.parent import Parent

        return Parent(settings)
    return Node(settings)
