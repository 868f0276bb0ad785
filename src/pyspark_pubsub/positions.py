"""Asking the server where sources begin and end, and where a reader is to start.

Place: on the driver, between the options and `offsets`.
Promise: a starting position is written once in one of few ways and means the same in batch and stream.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pyspark_pubsub.errors import DataLossError, OptionError
from pyspark_pubsub.offsets import Listing, Offsets, SourceOffsets, SourceRange
from pyspark_pubsub.options import Options
from pyspark_pubsub.rpc import BlockingChannel, pb
from pyspark_pubsub.suggestions import suggesting
from syncpoint.wire.protobuf import methods

EARLIEST, LATEST, TIME, SNAPSHOT, OFFSETS = "earliest", "latest", "time", "snapshot", "offsets"


@dataclass(frozen=True)
class Position:
    """One way to say where to begin (or end). `micros`: since 1970, UTC."""

    kind: str
    micros: int = 0
    snapshot: str = ""
    offsets: Mapping[int, int] = field(default_factory=dict)


def parse_position(options: Options, name: str) -> Position:
    """The value of the option `startingPosition` or `endingPosition`. Raises OptionError, also for a start in the
    future, since offsets of what is not published yet are unknown, and messages before that time would be read.
    """
    spelled = options.spelled(name) or name
    found = _position(options, options[name], spelled)
    if name == "startingPosition" and found.kind == TIME and found.micros > time.time_ns() // 1000:
        raise OptionError(
            f"The option {spelled} lies ahead: {options[name]}. Start the query once that time has come, or begin at"
            f" latest and filter by publish_time."
        )
    return found


def _position(options: Options, text: str, spelled: str) -> Position:
    if text.lower() in (EARLIEST, LATEST):
        return Position(text.lower())
    if text.startswith("{"):
        return _json_offsets(spelled, text, options["topic"])
    if text.startswith(("projects/", "snapshot:")):
        return Position(SNAPSHOT, snapshot=options.qualified(text.removeprefix("snapshot:"), "snapshots"))
    if text.isdigit():
        return Position(TIME, micros=int(text) * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"The option {spelled} is earliest, latest, a time (2026-01-31T12:00:00Z, or milliseconds since 1970), a"
            f' snapshot (projects/P/snapshots/S), or offsets by source ({{"7": 1200}}), not {text!r}.'
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return Position(TIME, micros=(since.days * 86_400 + since.seconds) * 10**6 + since.microseconds)


def _json_offsets(spelled: str, text: str, topic: str) -> Position:
    try:
        found = json.loads(text)
        name, inner = next(iter(found.items()), ("", None))
        if isinstance(inner, dict):  # as Kafka's source writes them: by topic first
            if len(found) > 1 or name not in (topic, topic.rpartition("/")[2]):
                raise OptionError(f"The option {spelled} has offsets of {', '.join(found)}, but {topic!r} is read.")
            found = inner
        return Position(OFFSETS, offsets={int(source): int(offset) for source, offset in found.items()})
    except OptionError:
        raise
    except (ValueError, TypeError, AttributeError):
        text = f'The option {spelled} has offsets that are not JSON of the form {{"SOURCE": OFFSET}}.'
        raise OptionError(text) from None


class Positions:
    """Questions of one reader to one server."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.channel = BlockingChannel(options.access)

    def ask(
        self,
        position: Position | None = None,
        *,
        first: bool = False,
        processed: Offsets | None = None,
        reader: str = "",
    ) -> tuple[Listing, list[SourceRange]]:
        """The topic's sources now, their `start` filled for `position`, and what the cursor has lost.

        `first`: the reader begins. `processed`: what it has processed for good. `reader`: its identity, if it wants the
        subscription for itself. Raises CallError, NameNotFound,
        OptionError.
        """
        request = self._request(position, reader)
        if self.options["cursor"] and (first or processed is not None):
            request.cursor.name = self.options["cursor"]
            request.cursor.retention_seconds = int(self.options["cursorRetention"])
            request.cursor.retention_bytes = self.options["cursorRetentionBytes"]
            request.cursor.expiration_seconds = int(self.options["cursorExpiration"])
            request.first = first
        if processed is not None and (self.options["cursor"] or reader):
            request.topic_incarnation = processed.incarnation
            for number, end in processed.sources.items():
                request.processed.add(source=number, end=end, chain=processed.chains.get(number, 0))
            request.generation = processed.generation
        if processed is not None:
            request.known.extend(processed.sources)
        with suggesting(self.channel, request.topic, request.subscription, request.snapshot):
            answer = pb.Positions.FromString(self.channel.call(methods.LOG_READER.GetPositions, request))
        listing = Listing(
            answer.topic,
            answer.topic_incarnation,
            answer.universe,
            tuple(
                SourceOffsets(s.source, s.epoch, s.chain, s.begin, s.end, s.sealed, s.start, s.mean_bytes)
                for s in answer.sources
            ),
            answer.generation,
            {one.source: one.end for one in answer.ended},
        )
        lost = [SourceRange(found.source, found.begin, found.end) for found in answer.lost]
        return _placed(listing, position), lost

    def release(self, reader: str) -> None:
        """Give the subscription free for other consumers."""
        request = pb.ReleaseSubscriptionRequest(subscription=self.options["subscription"], exclusive_reader=reader)
        self.channel.call(methods.LOG_READER.ReleaseSubscription, request)

    def _request(self, position: Position | None, reader: str) -> Any:
        options = self.options
        request = pb.GetPositionsRequest(topic=options["topic"], subscription=options["subscription"])
        if reader:
            request.exclusive_reader = reader
            request.exclusive_seconds = options["exclusiveTime"]
        if position is None:
            return request
        if position.kind == LATEST:
            request.latest = True
        elif position.kind == TIME:
            request.time.FromMicroseconds(position.micros)
        elif position.kind == SNAPSHOT:
            request.snapshot = position.snapshot
        elif position.kind == EARLIEST and options["subscription"]:
            request.backlog = True
        return request


def _placed(listing: Listing, position: Position | None) -> Listing:
    """Starts that the server does not fill: the oldest message, or offsets by source (-2 the oldest, -1 the end)."""
    if position is None or position.kind != OFFSETS:
        return listing
    known = {source.number: source for source in listing.sources}
    for number, offset in position.offsets.items():
        source = known.get(number)
        if source is None:
            raise OptionError(f"{listing.topic} has no source {number}; it has {sorted(known)}.")
        if not (offset in (-1, -2) or source.begin <= offset <= source.end):
            raise DataLossError(
                f"Source {number} of {listing.topic} has the offsets {source.begin} to {source.end}, not {offset}."
            )
    starts = {number: _start(known[number], offset) for number, offset in position.offsets.items()}
    sources = tuple(replace(source, start=starts.get(source.number, source.begin)) for source in listing.sources)
    return replace(listing, sources=sources)


def _start(source: SourceOffsets, offset: int) -> int:
    return {-2: source.begin, -1: source.end}.get(offset, offset)


def losses(topic: str, lost: Iterable[SourceRange]) -> str:
    """Lost ranges in words."""
    words = ", ".join(
        f"source {gap.source} offsets {gap.begin} to {'its end' if gap.end is None else gap.end}" for gap in lost
    )
    return f"Messages of {topic} were deleted before they were read: {words}."
