"""How far flows with a stream are, where no server of ours knows: as last reported by the job on Spark.

Place: between `servers.progress_of` and its displays. Without a job, what a stream has is
unknown, and shown as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from syncpoint.programs.federation.servers import FlowProgress
from syncpoint.programs.federation.state import FlowState


def with_reports(progress: Sequence[FlowProgress], flows: Mapping[str, FlowState]) -> list[FlowProgress]:
    """Add lag and row counts to the progress of flows that read or write streams."""
    return [_with(one, flows.get(one.flow.name)) for one in progress]


def _with(progress: FlowProgress, reported: FlowState | None) -> FlowProgress:
    link = progress.flow.link
    if reported is None or not link.streams:
        return progress
    if link.source.stream is not None:
        return replace(progress, lag=reported.lag)
    return replace(progress, rows=reported.rows)
