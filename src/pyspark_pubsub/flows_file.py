"""The flows that share one streaming query: a file that lists them, and beside it what the query reports about them.

Place: written by who runs the query (federation's job), read by `flows_source` and `flows_sink`, on the driver's
machine.
Promise: the file is replaced as a whole, so nobody sees half of it. A flow is in it under a `run` that is new whenever
it is put there: at the target only the newest run of a flow may write, so whatever a former membership has left behind
is fenced, and positions of a former one are never used.

    flows.json      the flows; `version` grows with every change
    seen            the newest version of which the source has planned: all batches of earlier ones are over
    failed/HASH     what stops one flow, while the others go on
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from pyspark_pubsub.errors import OptionError


@dataclass(frozen=True)
class SharedFlow:
    """One topic on its way. `name`: of the record at the target, and of the cursor; `target` "": rows name their topic;
    `start`: a starting position; `at`: where it goes on instead, offsets as JSON; `until`: where it ends, as JSON ("":
    never); `query`: under which name its epochs are fenced, if not its own; `cursor`: whether the source keeps what is
    not read; `stream`: what it reads, if that is no topic of ours (`stream_plans`).
    """

    name: str
    topic: str
    run: str
    target: str = ""
    start: str = "earliest"
    at: str = ""
    until: str = ""
    query: str = ""
    cursor: bool = True
    stream: str = ""

    @property
    def epochs(self) -> str:
        """The name of the query that its epochs belong to."""
        return self.query or self.name


@dataclass
class StagedFlow:
    """What one task has staged of one flow, under one run of it; `error`: what the server did not take."""

    name: str
    run: str
    staged: bool = False
    error: str = ""


class FlowsFile:
    """Access flows.json at `path`, which lists the flows of a shared query."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.version = 0
        self.flows: dict[str, SharedFlow] = {}
        self._stamp: tuple[int, int] | None = None

    def write(self, flows: Sequence[SharedFlow]) -> int:
        """Replace the flows; the new version."""
        self.version += 1
        self.flows = {one.name: one for one in flows}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = {"version": self.version, "flows": [asdict(one) for one in flows]}
        _replace(self.path, json.dumps(content))
        return self.version

    def read(self) -> bool:
        """Read it when it was replaced since; whether it was. Raises OptionError."""
        try:
            found = os.stat(self.path)
            stamp = found.st_mtime_ns, found.st_ino
            if stamp == self._stamp:
                return False
            content = json.loads(self.path.read_text())
            flows = [SharedFlow(**one) for one in content["flows"]]
            version = int(content["version"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise OptionError(f"The file of flows {self.path} cannot be read: {error}") from None
        self.version, self.flows, self._stamp = version, {one.name: one for one in flows}, stamp
        return True

    # -- beside it -------------------------------------------------------------------------------------------------

    def say_seen(self) -> None:
        """Whatever was planned of an earlier version is over."""
        _replace(self.path.with_name("seen"), str(self.version))

    def seen(self) -> int:
        """The version last seen; 0: none."""
        try:
            return int(self.path.with_name("seen").read_text())
        except FileNotFoundError:
            return 0

    def fail(self, flow: SharedFlow, error: str) -> None:
        """Let one flow stand still, and say why; it is nobody's until it is put into a file under a new run."""
        place = self._failed / _failed_name(flow)
        place.parent.mkdir(parents=True, exist_ok=True)
        _replace(place, error)

    def failures(self) -> dict[str, str]:
        """The flows of the file that stand still, and why."""
        try:
            found = set(os.listdir(self._failed))
        except FileNotFoundError:
            return {}
        names = {name: _failed_name(flow) for name, flow in self.flows.items()}
        return {name: (self._failed / place).read_text() for name, place in names.items() if place in found}

    @property
    def _failed(self) -> Path:
        return self.path.with_name("failed")


def _failed_name(flow: SharedFlow) -> str:
    # A hash: names of flows may be longer than those of files.
    return sha256(f"{flow.name}@{flow.run}".encode()).hexdigest()


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
