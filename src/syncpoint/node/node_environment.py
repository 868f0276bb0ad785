"""The environment of a node: everything through which it reaches the machine it runs on.

Place: handed to `solo.node.Node`; a simulation puts its own in the place of files, threads, locks and sockets.
"""

from __future__ import annotations

import gc
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from syncpoint.base.kernel.memory import keep_freed_memory
from syncpoint.base.runtime.child_processes import ChildProcesses
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.random import Random
from syncpoint.broker.push.push_driver import Sender
from syncpoint.catalog.metadata.contract import MetadataStore
from syncpoint.node.locks import FolderLocks
from syncpoint.node.metadata import open_metadata
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.network import Listening
from syncpoint.wire.transport.server import Fallback, serve


class Locks(Protocol):
    """One server per folder."""

    def take(self, folder: Path) -> object:
        """Raises `FailedPrecondition` when another server has it."""
        ...

    def release(self) -> None: ...


class Serve(Protocol):
    """Answer calls at an address."""

    async def __call__(
        self,
        methods: Methods,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        limits: TransportLimits,
        on_fallback: Fallback | None,
    ) -> Listening: ...


def freeze_memory() -> None:
    """What a start leaves lives as long as the process: later collections need not look at it."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class ProcessEnvironment(Environment):
    """What any process that serves is handed. `freeze_memory` is called after the start; `push_sender`: what posts to
    push endpoints, instead of HTTP.
    """

    apart: ChildProcesses = field(default_factory=ChildProcesses)
    freeze_memory: Callable[[], None] = freeze_memory
    push_sender: Sender | None = None


@dataclass(frozen=True)
class NodeEnvironment(ProcessEnvironment):
    """The external dependencies of a node, replaced in simulations. `keep_memory` is called before the start."""

    make_locks: Callable[[], Locks] = FolderLocks
    open_metadata: Callable[[Path, Clock, Random], MetadataStore] = open_metadata
    serve: Serve = serve
    keep_memory: Callable[[], object] = keep_freed_memory
