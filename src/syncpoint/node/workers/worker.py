"""One worker: a cluster's process with every role, on the disks of this machine.

Started by the parent as `python -m syncpoint.node.workers.worker NUMBER`. It says `ready` on standard output when
it can be called, and ends, draining, at SIGTERM or when the parent is gone (its standard input ends).
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from dataclasses import dataclass
from functools import partial

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.private_files import keep_private
from syncpoint.catalog.metadata.contract import StoreError
from syncpoint.node.cluster.cluster_environment import ClusterEnvironment
from syncpoint.node.cluster.process import ClusterProcess
from syncpoint.node.cluster.serve import name_process
from syncpoint.node.running import log_to_stderr, run_until_signal, serve_until
from syncpoint.node.workers.local_files import open_local
from syncpoint.node.workers.plan import BEGIN_AGAIN, Plan
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.network import Listening, Network, TcpNetwork
from syncpoint.wire.transport.server import Fallback, serve


class SharedPort(TcpNetwork):
    """A listener on a port that all workers listen on; the kernel spreads connections over them."""

    async def serve(self, methods: Methods, host: str, port: int, on_fallback: Fallback | None = None) -> Listening:
        return await serve(
            methods, host, port, tls=self._server_tls, on_fallback=on_fallback, shared=True, unsent=self._unsent
        )


@dataclass(frozen=True)
class WorkerEnvironment(ClusterEnvironment):
    """The environment of a worker: all of them listen on one port."""

    one_server: bool = True

    def public_network(self, tls: ssl.SSLContext | None) -> Network:
        return SharedPort(server_tls=tls, unsent=self.unsent)


def run(number: int, plan: Plan, secret: bytes) -> int:
    """Until asked to end; returns the exit code. `secret`: what the processes of this server know each other by.

    BEGIN_AGAIN: on a busy machine the parent did not answer in time.
    """
    process = plan.process(number)
    log_to_stderr(process.name)
    name_process(process.name)
    try:
        keep_private()
        run_until_signal(partial(_serve, number, plan, secret))
    except (SyncpointError, OSError) as error:
        print(f"{process.name} cannot run: {error}", file=sys.stderr)
        return 1
    except StoreError as error:
        print(f"{process.name} cannot start yet: {error}", file=sys.stderr)
        return BEGIN_AGAIN
    return 0


async def _serve(number: int, plan: Plan, secret: bytes, stopping: asyncio.Event) -> None:
    await asyncio.get_running_loop().connect_read_pipe(lambda: _Parent(stopping), sys.stdin)
    environment = WorkerEnvironment(
        network=TcpNetwork(secret=secret),
        drain_s=plan.serve.drain_s,
        open_files=lambda record, epoch, _: open_local(
            record, epoch, plan.disks, required=plan.serve.storage.require_disks
        ),
    )
    process = ClusterProcess(plan.cluster(), plan.process(number), environment)
    await serve_until(stopping, process, lambda: print("ready", flush=True))


class _Parent(asyncio.Protocol):
    """The pipe whose other end the parent holds as long as it lives."""

    def __init__(self, gone: asyncio.Event) -> None:
        self._gone = gone

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()


if __name__ == "__main__":
    # Standard input, which no list of processes shows: a line each.
    sent_secret, sent_plan = sys.stdin.readline(), sys.stdin.readline()
    sys.exit(run(int(sys.argv[1]), Plan.decode(sent_plan), bytes.fromhex(sent_secret)))
