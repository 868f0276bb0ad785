"""What a subscription has acknowledged at one site, as sets of offsets by source; and what two sites both did.

Place: under `key_watch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from syncpoint.base.kernel.acks import AckSet
from syncpoint.base.model.identity import format_message_id
from syncpoint.broker.pipeline.ack_books import held_runs
from syncpoint.wire.protobuf.messages import pipeline

Acked = dict[int, AckSet]
"""Acknowledged offsets by source, in the offsets of the site that published them."""


class AckedSets(NamedTuple):
    """`topic`: UNIVERSE/INCARNATION of the topic whose offsets these are; `generation`: of seeks."""

    topic: str
    generation: int
    acked: Acked


def ask_all(call: Callable[[Any], Any], subscription: str, link: str) -> AckedSets:
    """Ask a site until nothing is left; `link`: "" for its own messages. Raises `SyncpointError`."""
    acked: Acked = {}
    known: dict[int, pipeline.KnownAcks] = {}
    generation = 0
    while True:
        asked = pipeline.AckChangesRequest(subscription=subscription, link=link, generation=generation)
        asked.known.extend(known.values())
        answer = call(asked)
        if answer.generation != generation:
            known, acked, generation = {}, {}, answer.generation
        for one in answer.sources:
            acked.setdefault(one.source, AckSet()).add_runs(one.runs)
            known[one.source] = pipeline.KnownAcks(source=one.source, count=one.count, prefix=one.prefix)
        if not answer.more:
            return AckedSets(answer.source_topic, generation, acked)


def both(one: Acked, other: Acked, without: Acked) -> Acked:
    """What is in two, and not in a third."""
    found: Acked = {}
    for source, held in one.items():
        there = other.get(source)
        common = AckSet()
        if there is None:
            continue
        for begin, length in held.runs():
            for first, count in held_runs(there, begin, begin + length):
                common.add(first, first + count)
        for begin, length in without[source].runs() if source in without else ():
            common.remove(begin, begin + length)
        if len(common):
            found[source] = common
    return found


def message_ids(topic: str, acked: Acked, most: int) -> list[str]:
    """The ids of these messages, of the first ones where they are many."""
    universe = int(topic.partition("/")[0], 16)
    found: list[str] = []
    for source, held in sorted(acked.items()):
        for begin, length in held.runs():
            for offset in range(begin, begin + min(length, most - len(found))):
                found.append(format_message_id(universe, source, offset))
    return found


def encoded(acked: Acked) -> dict[str, str]:
    """Write sets for a state file."""
    return {str(source): held.encode().hex() for source, held in acked.items()}


def decoded(stored: Mapping[str, str]) -> Acked:
    """Read such sets."""
    return {int(source): AckSet.decode(bytes.fromhex(held)) for source, held in stored.items()}
