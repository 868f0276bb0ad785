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
from syncpoint.node.health_pages import console_address
from syncpoint.node.running import log_to_stderr, run_until_signal, serve_until
from syncpoint.node.settings import ServeSettings
from syncpoint.node.solo.node import Node

if TYPE_CHECKING:
    from syncpoint.node.workers.parent import Parent


FAILED, PORT_TAKEN = 1, 2


def run(settings: ServeSettings, announce: Callable[[str], None] = lambda endpoint: None) -> int:
    """Serve until SIGTERM or SIGINT; returns 0, FAILED or PORT_TAKEN. Prints `syncpoint ready on HOST:PORT`, and
    where the console is, once it answers, and passes the address to `announce`."""
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
    """The options when missing disks may hold the only copy of data; empty when there is another cause."""
    if not error.facts.get("missing"):
        return ""
    named = [word for disk in settings.disks for word in ("--disk", str(disk))] or ["--data", str(settings.data)]
    command = shlex.join(["syncpoint", "log", "recover", *named])
    return f"""
Nothing was changed. You have two options:
  1. Bring the missing disks back (mount them, or give the folders where they are) and start again. Nothing is lost.
  2. If the disks are lost for good, list the persisted messages and acknowledgements that may be lost with them:
       {command}
     This changes nothing. Add --accept-loss to give them up permanently; then the server starts."""


def _in_words(error: OSError, settings: ServeSettings) -> str:
    """An error of the operating system, with the setting that caused it."""
    if error.errno == errno.EADDRINUSE:
        return f"port {settings.port} of {settings.host} is in use; choose another one with --port (0: any free port)"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{settings.host} is not an address of this machine"
    if error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}"
    return str(error)


async def _serve(settings: ServeSettings, announce: Callable[[str], None], stopping: asyncio.Event) -> None:
    node = _node(settings)

    def ready() -> None:
        announce(node.endpoint)
        print(f"syncpoint ready on {node.endpoint}{_console(node.endpoint, settings)}", flush=True)

    await serve_until(stopping, node, ready)


def _console(endpoint: str, settings: ServeSettings) -> str:
    found = console_address(endpoint, tls=settings.tls_cert is not None)
    return f" (console: {found})" if found else ""


def _node(settings: ServeSettings) -> Node | Parent:
    """One process that does everything, or the parent of those that do."""
    if settings.workers:
        from syncpoint.node.workers.parent import Parent

        return Parent(settings)
    return Node(settings)
