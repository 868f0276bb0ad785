"""The processes of one environment, examined and restarted: the part of a rollout that touches machines.

Place: under `controller`. Two ways to restart a process: those of `cluster up` on this machine by their folder, all
others by the operator's own command (systemd, ssh, whatever supervises them).
Promise: one process at a time; only processes that the plan names are restarted, and only when it asks for it.
"""

from __future__ import annotations

import asyncio
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from syncpoint.base.model.errors import FailedPrecondition, SyncpointError, Unavailable
from syncpoint.programs.clusters.local import LocalCluster
from syncpoint.programs.clusters.looking import Cluster
from syncpoint.programs.rollout.counters import ProcessCounters, read
from syncpoint.programs.rollout.fleet import Assigned, Fleet
from syncpoint.programs.rollout.parity import ProcessReport, Reports

READ_S: Final = 3.0
OUTPUT_MAX: Final = 500
"""Characters of what a command printed that are kept."""


class OperatedEnvironment:
    """`within_s`: how long the restart of one process may take."""

    def __init__(self, fleet: Fleet, within_s: float) -> None:
        self.fleet, self._within_s = fleet, within_s

    async def look(self) -> tuple[Reports, list[str]]:
        """The report of each process of the file, and problems."""
        found, statuses = await Cluster.of_file(self.fleet.environment.cluster).examine()
        reports = {
            name: None if (one := statuses.get(name)) is None else ProcessReport.of(one)
            for name in self.fleet.processes
        }
        problems: list[str] = found["problems"]
        return reports, problems

    async def counters(self) -> Mapping[str, ProcessCounters | None]:
        """What each process has counted; None of one that does not say so."""
        names = list(self.fleet.processes)
        read = await asyncio.gather(*(asyncio.to_thread(_scraped, self.fleet.metrics_address(name)) for name in names))
        return dict(zip(names, read, strict=True))

    async def restart(self, process: str, assigned: Assigned) -> None:
        """Let one process run what it is to run. Raises `Unavailable` with what went wrong."""
        self.fleet.write()
        try:
            if self.fleet.environment.restart:
                await asyncio.to_thread(self._by_command, process, assigned)
            else:
                await asyncio.to_thread(self._locally, process, assigned)
        except (SyncpointError, OSError, subprocess.SubprocessError) as error:
            text = error.message if isinstance(error, SyncpointError) else str(error)
            raise Unavailable(f"{self.fleet.name}: {process} could not be restarted: {text}") from error

    def _locally(self, process: str, assigned: Assigned) -> None:
        local = LocalCluster(self.fleet.environment.cluster.parent)
        if not local.started(process):
            raise FailedPrecondition("`syncpoint cluster up` did not start it; set `restart` to a command")
        own = assigned.settings == self.fleet.environment.cluster
        local.assign(process, assigned.program, None if own else assigned.settings)
        if local.state(process).state != "down":
            local.stop(process, self._within_s)
        local.start(process)

    def _by_command(self, process: str, assigned: Assigned) -> None:
        values = {
            "process": process,
            "roles": ",".join(self.fleet.processes[process].roles),
            "host": self.fleet.host(process),
            "version": assigned.version,
            "settings": str(assigned.settings),
            "program": " ".join(assigned.program),
        }
        command = [_filled(part, values) for part in self.fleet.environment.restart]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=self._within_s,
            cwd=self.fleet.environment.cluster.parent,
        )
        if done.returncode:
            printed = done.stdout.strip()[-OUTPUT_MAX:] or "no output"
            raise Unavailable(f"{Path(command[0]).name} exited with code {done.returncode}: {printed}")


def _filled(part: str, values: Mapping[str, str]) -> str:
    for key, value in values.items():
        part = part.replace(f"{{{key}}}", value)
    return part


def _scraped(address: str) -> ProcessCounters | None:
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=READ_S) as answer:
            return read(answer.read())
    except (OSError, ValueError):
        return None
