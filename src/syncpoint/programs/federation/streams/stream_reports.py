"""How far flows with a stream are, as far as no server of ours knows: what the job on Spark last said of them.

Place: between `servers.progress_of` and whoever shows it. Without a job, what a stream has is
not known, and said to be so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from syncpoint.programs.federation.servers import FlowProgress
from syncpoint.programs.federation.state import FlowState


def with_reports(progress: Sequence[FlowProgress], flows: Mapping[str, FlowState]) -> list[FlowProgress]:
    """Add lag and row counts to the progress of flows that read or write streams."""
    return [_with(one, flows.get(one.flow.name)) for one in progress]


def _with(progress: FlowProgress, said: FlowState | None) -> FlowProgress:
    link = progress.flow.link
    if said is None or not link.streams:
        return progress
    if link.source.stream is not None:
        return replace(progress, lag=said.lag)
    return replace(progress, rows=said.rows)
