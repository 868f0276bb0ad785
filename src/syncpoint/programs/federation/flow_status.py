"""How a federation is, as a table: what each flow has copied, what waits, what stops it.

Place: `syncpoint federation status` and the live table of `run`. The servers are asked, so it is true whether the
federation runs or not, and from any machine that has the file.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from syncpoint.base.model.wording import counted
from syncpoint.programs.federation.servers import FlowProgress
from syncpoint.programs.federation.state import FlowState, SupervisorState

_STYLES = {
    "running": "green",
    "waiting": "dim",
    "idle": "dim",
    "paused": "yellow",
    "blocked": "red",
    "failed": "red",
    "unknown": "yellow",
}


DEFAULT_FILE = Path("federation.yaml")
"""The file of commands that name none."""


def advised(words: str, file: Path) -> str:
    """A command of `syncpoint federation` that acts on this file, as it is to be typed."""
    return f"`syncpoint federation {words}{'' if file == DEFAULT_FILE else f' {shlex.quote(str(file))}'}`"


def state_of(
    progress: FlowProgress, flow: FlowState | None, running: bool, file: Path = DEFAULT_FILE
) -> tuple[str, str]:
    """One word for a flow, and what to say about it."""
    accept = f"accept-gap {progress.flow.name}"
    if progress.paused:
        return "paused", f"until {advised(f'resume {progress.flow.name}', file)}"
    if progress.gap:
        return "blocked", f"a gap before {progress.gap}: {advised(accept, file)}"
    if progress.error:
        return "unknown", progress.error
    if flow is not None and flow.state == "failed" and (running or progress.lag != 0):
        # Now; or when it was run the last time, and what failed still waits. Who noted it knew of no file.
        return "failed", flow.error.replace(advised(accept, DEFAULT_FILE), advised(accept, file))
    if running and flow is not None:
        return "running", ""
    return ("waiting" if progress.lag else "idle"), ""


def as_dict(progress: FlowProgress, flow: FlowState | None, running: bool, file: Path = DEFAULT_FILE) -> dict[str, Any]:
    """One flow for programs."""
    state, remark = state_of(progress, flow, running, file)
    counted_there = {
        "rows": progress.rows,
        "bytes": progress.bytes,
        "epochs": progress.epochs,
        "duplicatesDropped": progress.duplicates_dropped,
        "gapsRefused": progress.gaps_refused,
        "messagesSkipped": progress.skipped,
        "committedAt": progress.committed_at,
    }
    return {
        "flow": progress.flow.name,
        "source": f"{progress.flow.link.source.name}/{progress.flow.source_topic}",
        "target": f"{progress.flow.link.target.name}/{progress.flow.target_topic}",
        "state": state,
        "lagMessages": progress.lag,
        "lagBytes": progress.lag_bytes,
        **(counted_there if progress.target_known else dict.fromkeys(counted_there)),
        "steps": dict(flow.counts) if flow is not None else {},
        "remark": remark,
    }


NARROW = 100
"""A terminal of fewer columns has no room for what the name of a flow or the log shows as well."""


def table(
    progress: Sequence[FlowProgress],
    flows: Mapping[str, FlowState],
    supervisor: SupervisorState | None,
    columns: int = NARROW,
    absent: Mapping[str, str] | None = None,
    file: Path = DEFAULT_FILE,
) -> RenderableType:
    """The whole, for a terminal with this number of columns. `absent`: remarks on tasks whose topic does not exist."""
    running = supervisor is not None and bool(supervisor.job)
    wide = columns >= NARROW
    padding = (0, 1) if wide else (0, 1, 0, 0)  # three blanks between columns, as in every table, or two
    made = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=padding, header_style="bold")
    made.add_column("FLOW", overflow="fold")  # the only one that may be broken, and never shortened
    for heading in ("FROM", "TO", "STATE") if wide else ("STATE",):
        made.add_column(heading, no_wrap=True)
    for heading in ("LAG", "COPIED", "MB", "DROPPED", "GAPS", "BATCH")[: 6 if wide else 5]:
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column("COMMITTED", no_wrap=True)
    remarks = []
    for one in progress:
        flow = flows.get(one.flow.name)
        state, remark = state_of(one, flow, running, file)
        if remark:
            remarks.append(Text(f"{one.flow.name}: {remark}", style=_STYLES[state]))
        ways = [one.flow.link.source.name, one.flow.link.target.name]
        batch = f"{flow.batch_s * 1000:.0f} ms" if running and flow is not None and flow.batches else ""
        figures = [
            f"{one.rows:,}",
            f"{one.bytes / 1e6:,.1f}",
            f"{one.duplicates_dropped:,}",
            f"{one.gaps_refused:,}",
        ]
        made.add_row(
            one.flow.name,
            *(ways if wide else []),
            Text(state, style=_STYLES[state]),
            "?" if one.lag is None else f"{one.lag:,}",
            *(figures if one.target_known else ["?"] * len(figures)),
            *([batch] if wide else []),
            _ago(one.committed_at) if one.target_known else "?",
        )
    if not running and "Spark" in flows:
        remarks.append(Text(f"Spark: {flows['Spark'].error}", style=_STYLES["failed"]))
    remarks += [Text(f"{task}: {why}", style=_STYLES["unknown"]) for task, why in (absent or {}).items()]
    return Group(made, *remarks, Text(_who(supervisor, file), style="dim"))


def _who(supervisor: SupervisorState | None, file: Path) -> str:
    if supervisor is None:
        return f"It is not running here; {advised('run', file)} starts it."
    if supervisor.standby:
        return f"Process {supervisor.pid} stands by."
    spark = counted(supervisor.executors, "executor") if supervisor.job else "Spark is idle"
    failures = f", {supervisor.failures} failed" if supervisor.failures else ""
    return f"Process {supervisor.pid}: {spark}; Spark was started {counted(supervisor.starts, 'time')}{failures}."


def _ago(when: float) -> str:
    if not when:
        return "never"
    seconds = max(0.0, time.time() - when)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
