"""Where flows start and continue: by their targets and cursors, and for new ones by the file.

Place: asked by the job whenever a flow joins a query. No checkpoint of Spark is needed for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.programs.federation.flow_plan import Flow
from syncpoint.programs.federation.servers import Servers, source_of


@dataclass(frozen=True, slots=True)
class FlowStart:
    """Where a flow begins, or goes on: a starting position; or, if it is not "", offsets as the `pubsub` source writes
    them, so that what is gone between there and what is stored is found. `stream`: what is read, if that is no topic of
    ours (`pyspark_pubsub.stream_plans`).
    """

    position: str
    offsets: str = ""
    stream: str = ""


def begin_at(servers: Servers, flow: Flow) -> str:
    """The `startingPosition` of a flow that begins anew: where its target is, if it has copied anything, after
    gaps; else by the file. Raises `SyncpointError`.
    """
    found = servers.link_of(flow)
    positions = servers.positions_of(flow)
    if found is None or found.source_topic != f"{positions.universe}/{positions.topic_incarnation}":
        return flow.link.change.start  # of another topic under the same name: the target refuses it
    ends = {one.source: one.end for one in found.committed}
    newest: dict[int, int] = {}
    for one in found.committed:
        newest[one.chain] = max(one.source, newest.get(one.chain, 0))
    starts: dict[str, int] = {}
    for one in positions.sources:
        if one.source in ends:
            starts[str(one.source)] = min(max(ends[one.source], one.begin), one.end)
        elif one.source < newest.get(one.chain, 0):
            starts[str(one.source)] = one.end  # the link has gone on to a later one of the chain
    return json.dumps(starts) if starts else "earliest"


def starts(servers: Servers, flows: Sequence[Flow]) -> dict[str, FlowStart | SyncpointError]:
    """Where flows go on, by name, or why that is not known: where the target is, of those that have copied
    anything; where the cursor is, of those that have only begun; the others start as the file defines. Asks once about
    all cursors of a project, and about all links of a target.
    """
    sources = {source_of(flow): flow.link for flow in flows}
    cursors = {key: servers.cursors_in(link.source, link.source_project) for key, link in sources.items()}
    targets = {flow.link.target.name: flow.link.target for flow in flows}
    links = {name: servers.links_at(target) for name, target in targets.items()}
    found: dict[str, FlowStart | SyncpointError] = {}
    for flow in flows:
        known, there = cursors[source_of(flow)], links[flow.link.target.name]
        if isinstance(there, SyncpointError):
            found[flow.name] = there
        elif isinstance(known, SyncpointError) and known.code is not Code.PERMISSION_DENIED:
            found[flow.name] = known
        else:
            try:
                begun = isinstance(known, SyncpointError) or flow.name in known
                found[flow.name] = _start(servers, flow, there.get(flow.name), begun)
            except SyncpointError as error:
                found[flow.name] = error
    return found


def _start(servers: Servers, flow: Flow, link: Any, begun: bool) -> FlowStart:
    """`link`: as the target knows it; None: not at all. `begun`: there may be a cursor."""
    start = flow.link.change.start
    if link is None and not begun:
        return FlowStart(start)
    positions = servers.positions_of(flow)
    places = {one.source: (one.epoch, one.chain) for one in positions.sources}
    if link is not None:
        if link.source_topic != f"{positions.universe}/{positions.topic_incarnation}":
            return FlowStart(start)  # of another topic under the same name: the target refuses it
        ends = {one.source: one.end for one in link.committed}
        places |= {one.source: places.get(one.source, (0, one.chain)) for one in link.committed}
    else:
        cursor = servers.cursor(flow)  # after the positions: a source that is not ahead of it now was read to its end
        if cursor is None:
            return FlowStart(start)
        ends = {one.source: one.end for one in positions.sources} | {one.source: one.begin for one in cursor.ranges}
        places |= {one.source: places.get(one.source, (0, one.chain)) for one in cursor.ranges}
    ends = {source: ends[source] for source in sorted(ends, key=lambda source: (places[source], source))}
    at = {
        "v": 1,
        "topic": positions.topic,
        "incarnation": positions.topic_incarnation,
        "universe": positions.universe,
        "sources": {str(source): end for source, end in ends.items()},
        "from": {str(source): end for source, end in ends.items()},
        "places": {str(source): list(places[source]) for source in ends},
    }
    return FlowStart(start, json.dumps(at))
