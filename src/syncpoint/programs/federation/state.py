"""The state folder of a federation: who runs it, what its flows say, and what its queries need.

    lock, supervisor.json    who runs, since when, how many executors
    flows.json               last report of the job on Spark about each flow; after a run, what could not be finished
    queries/NAME/            of a streaming query while it runs: its flows, and Spark's checkpoint
    files/FLOW/              Spark's checkpoint of a flow that reads files: it alone knows which of them are copied
    takeovers.json           keys that were taken from sites that did not answer
    acks.json                how the exchange of acknowledgements goes, by flow and subscription
    accepted/FLOW            losses at the source that a user has accepted and the job has not yet seen
    paused/FLOW              flows that a user has stopped, until they are resumed
    logs/                    output of the processes of Spark

Files are replaced whole, so a reader never sees half of one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.node.locks import FolderLocks


@dataclass(frozen=True, slots=True)
class FlowState:
    """The state of one flow as reported by the job: starting, running, paused, failed. `batch_s`: how long the newest
    batch took. `counts`: read, passed, refused, bytes_read, bytes_written. `lag`, `rows`: of a flow from or to a
    stream, of which no server knows them; None: not known yet.
    """

    state: str
    error: str = ""
    batches: int = 0
    batch_s: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)  # of a pattern's steps, since the job began
    lag: int | None = None
    rows: int = 0  # since the job began


@dataclass(frozen=True, slots=True)
class SupervisorState:
    """Who runs the federation. Times in seconds since 1970; `job` 0: Spark does not run."""

    pid: int
    file: str
    started: float
    job: int = 0
    executors: int = 0
    wanted: int = 0
    starts: int = 0
    failures: int = 0
    woke_s: float = 0.0  # from the sight of new messages to a running Spark, the last time
    lags: Mapping[str, int] = field(default_factory=dict)
    standby: bool = False  # another program runs the federation


class StateFolder:
    """Access the state folder of a federation."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._locks = FolderLocks()
        self._flows_said: dict[str, FlowState] | None = None

    def take(self) -> None:
        """Be the one that runs it. Raises `FailedPrecondition` when somebody else does."""
        try:
            self._locks.take(self.path)
        except FailedPrecondition:
            running = self.supervisor()
            who = f" (process {running.pid})" if running is not None else ""
            raise FailedPrecondition(f"the federation in {self.path} already runs{who}") from None
        for name in ("queries", "logs"):
            (self.path / name).mkdir(exist_ok=True)
        self.forget_flows()

    def release(self, unable: Mapping[str, str] | None = None) -> None:
        """Nobody runs it any more. Of what it was `unable` to finish, by flow, the error stays until the next run."""
        (self.path / "supervisor.json").unlink(missing_ok=True)
        self.forget_flows()
        if unable:
            self.say_flows({name: FlowState("failed", why) for name, why in unable.items()})
        self._locks.release()

    def query(self, name: str) -> Path:
        """The folder of a streaming query."""
        return self.path / "queries" / name

    def files(self, flow: str) -> Path:
        """The checkpoint of a flow that reads files."""
        return self.path / "files" / flow

    def clear_queries(self) -> None:
        """Forget the queries of an earlier job: flows go on where their targets and their cursors are. So do those of a
        release that kept a checkpoint for each flow.
        """
        for name in ("queries", "checkpoints"):
            shutil.rmtree(self.path / name, ignore_errors=True)

    def accept(self, flow: str, lost: str) -> None:
        """Let the job restart a flow after the lost messages."""
        (self.path / "accepted").mkdir(parents=True, exist_ok=True)
        (self.path / "accepted" / flow).write_text(lost)

    def accepted(self, flow: str) -> bool:
        """Whether a loss of this flow was accepted since it was last begun."""
        return (self.path / "accepted" / flow).exists()

    def begin_anew(self, flow: str) -> None:
        """A flow whose loss was accepted begins: the next loss is to be accepted anew."""
        (self.path / "accepted" / flow).unlink(missing_ok=True)

    def pause(self, flow: str) -> None:
        """Let a flow copy nothing until it is resumed, no matter who runs the federation."""
        (self.path / "paused").mkdir(parents=True, exist_ok=True)
        (self.path / "paused" / flow).touch()

    def resume(self, flow: str) -> bool:
        """Let it go on; whether it was paused."""
        try:
            (self.path / "paused" / flow).unlink()
        except FileNotFoundError:
            return False
        return True

    def paused(self) -> frozenset[str]:
        """The flows that are paused."""
        try:
            return frozenset(os.listdir(self.path / "paused"))
        except FileNotFoundError:
            return frozenset()

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    def say(self, state: SupervisorState) -> None:
        """Replace what is known of the supervisor."""
        self._write("supervisor.json", asdict(state))

    def supervisor(self) -> SupervisorState | None:
        """Who runs it; None when nobody does."""
        found = self._read("supervisor.json")
        if found is None or not Path(f"/proc/{found['pid']}").exists():
            return None
        return SupervisorState(**found)

    def forget_flows(self) -> None:
        """Clear the states: a new job has reported nothing yet."""
        self._flows_said = None
        (self.path / "flows.json").unlink(missing_ok=True)

    def say_flows(self, flows: Mapping[str, FlowState]) -> None:
        """Replace the states of the flows, if they differ from those written last."""
        if flows != self._flows_said:
            self._write("flows.json", {name: asdict(state) for name, state in flows.items()})
            self._flows_said = dict(flows)

    def flows(self) -> dict[str, FlowState]:
        """The last report of the job, by flow."""
        known = FlowState.__dataclass_fields__
        return {
            name: FlowState(
                **{key: value for key, value in content.items() if key in known}
            )  # others: of another version
            for name, content in (self._read("flows.json") or {}).items()
        }

    def say_acks(self, states: list[dict[str, Any]]) -> None:
        """Replace what is known of the exchange of acknowledgements."""
        self._write("acks.json", states)

    def acks(self) -> list[dict[str, Any]]:
        """How the exchange of acknowledgements went when it was last written."""
        return list(self._read("acks.json") or [])

    def say_takeovers(self, records: list[dict[str, Any]]) -> None:
        """Replace what is known of keys that were taken from sites that did not answer."""
        self._write("takeovers.json", records)

    def takeovers(self) -> list[dict[str, Any]]:
        """Keys that were taken from sites that did not answer, the newest last."""
        return list(self._read("takeovers.json") or [])

    def _write(self, name: str, content: Any) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / f".{name}.{os.getpid()}"
        temporary.write_text(json.dumps(content))
        temporary.replace(self.path / name)

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return None
