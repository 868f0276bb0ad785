"""`syncpoint run`: one process of a cluster until a signal ends it, or another process has its name."""

import asyncio
import contextlib
import logging
import sys
from functools import partial
from pathlib import Path

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.private_files import keep_private
from syncpoint.catalog.metadata.contract import StoreError
from syncpoint.cluster.control.membership import Membership
from syncpoint.node.cluster.logs import Bounded
from syncpoint.node.cluster.process import ClusterProcess
from syncpoint.node.cluster.settings import ClusterSettings, ProcessSettings
from syncpoint.node.running import log_to_stderr, run_until_signal

START_FAILED = 1
NAME_LOST = 3
STOP_S = 30.0


class NameLost(Exception):
    """Another process has registered under the name of this one."""


def run_process(settings: ClusterSettings, process: ProcessSettings, ready_file: Path | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code. What is wrong stands on standard error then, in one line."""
    log_to_stderr()
    for handler in logging.getLogger().handlers:
        handler.addFilter(Bounded())
    name_process(process.name)
    watching = [settings.monitor.data] if settings.monitor and settings.monitor.process == process.name else []
    try:
        keep_private(*process.disks.values(), *watching)
        run_until_signal(partial(_serve, settings, process, ready_file))
    except NameLost as error:
        print(f"{process.name} ends: {error}", file=sys.stderr)
        return NAME_LOST
    except SyncpointError as error:
        return _not_started(process, error.message)
    except StoreError as error:
        return _not_started(
            process, f"cannot reach metadata at {', '.join(settings.etcd) or settings.metadata}: {error}"
        )
    except OSError as error:
        return _not_started(process, str(error))
    return 0


def _not_started(process: ProcessSettings, why: str) -> int:
    print(f"{process.name} cannot start: {why}", file=sys.stderr)
    return START_FAILED


def name_process(name: str) -> None:
    """What `ps` and `top` show, 15 letters of it; where the kernel does not offer it, the interpreter's name stays."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name[:15])


async def _serve(
    settings: ClusterSettings, process: ProcessSettings, ready_file: Path | None, stopping: asyncio.Event
) -> None:
    settings.check_files(process.roles)
    node = ClusterProcess(settings, process)
    await node.start()
    print(f"{process.name} ready on {node.named_address}", flush=True)
    if node.public_address:
        print(f"syncpoint ready on {node.public_address}", flush=True)
    if ready_file is not None:
        ready_file.write_text(node.public_address or node.named_address)
    membership = node.common.membership
    if not await _until_superseded(membership, stopping):
        await node.stop()
        return
    with contextlib.suppress(TimeoutError):  # the disks have shut it out, its end does the rest
        async with asyncio.timeout(STOP_S):
            await node.stop()
    by = membership.successor
    raise NameLost(f"another process, at {by.address if by else 'an unknown address'}, has registered under this name")


async def _until_superseded(membership: Membership, stopping: asyncio.Event) -> bool:
    """Wait for either; whether the name was lost."""
    waiting = [asyncio.ensure_future(one.wait()) for one in (stopping, membership.superseded)]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for one in waiting:
        one.cancel()
    return not stopping.is_set()
