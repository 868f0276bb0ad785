"""Lanes of a subscription in one log: where each of them starts and stops in the sources that are here.

Place: under `follow`, which writes what comes of it. A lane begins when the subscription's rules are changed
(`metadata.entity_options`), and what is published from then on is its own; a stopped one keeps what came before.
Promise: a lane that takes the place of another one starts where that one stops, so a message is in one of them. A
source that was opened at or after the revision of a change belongs to what the change has made, all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syncpoint.broker.publish.facts.ledger import LaneBounds, Ledger, copy_lanes
from syncpoint.broker.publish.facts.source import Source
from syncpoint.catalog.metadata.entity_options import RuleLane, lanes_of
from syncpoint.catalog.metadata.records import Subscription


def is_followed(ledger: Ledger, record: Subscription) -> bool:
    """Whether a ledger has the lanes of a record, and no others, stopped as they are there."""
    wanted = {lane.number: bool(lane.stopped) for lane in lanes_of(record.options) if not lane.dropped}
    return wanted == {lane: bounds.stop is not None for lane, bounds in ledger.lanes.items()}


def state_of(ledger: Ledger, record: Subscription, sources: Sequence[Source]) -> Ledger:
    """A ledger as it is with the lanes of a record."""
    state = Ledger(ledger.subscription, ledger.generation, start=dict(ledger.start), renewed_ns=ledger.renewed_ns)
    state.acks = {number: acks.copy() for number, acks in ledger.acks.items()}
    state.lanes = dict(ledger.lanes) or {0: LaneBounds()}
    wanted = {lane.number: lane for lane in lanes_of(record.options)}
    for lane in _to_begin(wanted, state.lanes):
        begin_lane(state, lane, wanted, sources)
    for number, bounds in list(state.lanes.items()):
        found = wanted.get(number)
        if found is None or found.dropped:
            state.drop_lane(number)
        elif found.stopped and bounds.stop is None:
            state.set_lane(number, bounds._replace(stop=_places(sources, found.stopped)))
    return state


def begin_lane(state: Ledger, lane: RuleLane, lanes: Mapping[int, RuleLane], sources: Sequence[Source]) -> None:
    """Add a lane: with the rest of those that it is a copy of, or where the log ends.

    Recovery brings lanes back that were dropped when a copy of them began. What was acknowledged since is in the copy
    alone, so of a lane and its copy the copy counts. `lanes`: those of the record, by number.
    """
    known = {one for one in lane.copy_of if one in state.lanes}
    copied = known.difference(*(lanes[one].copy_of for one in known if one in lanes))
    state.set_lane(lane.number, LaneBounds({} if copied else _places(sources, lane.revision)))
    for source in sources if copied else ():
        if source.revision < lane.revision:
            copy_lanes(state.of(source.number), copied, lane.number, source.end)


def _to_begin(wanted: dict[int, RuleLane], known: Mapping[int, LaneBounds]) -> list[RuleLane]:
    """Lanes that are not in a ledger yet, in the order of their numbers; dropped ones only where others copy them."""
    new = {number for number, lane in wanted.items() if number not in known and not lane.dropped}
    for number in sorted(wanted, reverse=True):
        if number in new:
            new |= {one for one in wanted[number].copy_of if one in wanted and one not in known}
    return [wanted[number] for number in sorted(new)]


def _places(sources: Sequence[Source], revision: int) -> dict[int, int]:
    """Where the sources end that were there before a revision; the others are after it as a whole."""
    return {one.number: one.end if one.revision < revision else 0 for one in sources}
