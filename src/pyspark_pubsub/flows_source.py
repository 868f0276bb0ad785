"""The stream reader of many topics at once: the flows of a file, each where it stands, in common batches.

Place: made by `DefaultSource` for the option `flows`; on the driver, like the reader of one topic in `source`.
Promise: what each flow reads in a batch stands in the batch's offsets, and nothing of those that read nothing. Flows
that have nothing to read cost one call for all of them, made the less often the longer it takes. What stops one flow (a
loss, a topic that is gone) is said beside the file, and the others go on; a server that does not answer stops all.
A batch has bounds as a whole, shared fairly among the flows that have something.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyspark_pubsub import offsets as plans
from pyspark_pubsub.checkpoint import FlowPlan, plans_from_json, plans_to_json
from pyspark_pubsub.errors import SERVER_IS_GONE, CallError, DataLossError, OptionError
from pyspark_pubsub.flows_file import FlowsFile, SharedFlow
from pyspark_pubsub.offsets import Listing, Offsets, SourceRange
from pyspark_pubsub.options import Options
from pyspark_pubsub.positions import Positions, losses, parse_position
from pyspark_pubsub.rpc import BlockingChannel, pb
from pyspark_pubsub.slices import Slice, SliceGroup
from pyspark_pubsub.source import rows_of, slices
from syncpoint.wire.protobuf import methods

PAUSE_LOOKS = 30  # the pause after a look without news, in lengths of the look
IDLE_S, IDLE_LOOKS = 30.0, 100  # and of so many, once nothing was found for so long
PAUSE_MAX_S = 1.0
TOUCH_S = 600.0  # how often a flow without anything to read refreshes its cursor
GROUP_ROWS, GROUP_SLICES = 2000, 16  # pieces that are smaller share a task

log = logging.getLogger("pyspark_pubsub")


@dataclass
class _Standing:
    """A flow of the file, as far as this query has brought it. `at` None: it has not begun."""

    flow: SharedFlow
    at: Offsets | None = None
    moved: bool = False  # the cursor does not know yet how far it is
    asked_at: float = 0.0
    listing: Listing | None = field(default=None, repr=False)


class FlowsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Read the sources of many flows in one query."""

    def __init__(
        self,
        options: Options,
        schema: StructType,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options, self._schema, self._clock, self._sleep = options, schema, clock, sleep
        self._file = FlowsFile(options["flows"])
        self._standings: dict[str, _Standing] = {}
        self._not_before = self._found_at = 0.0
        self._behind = 0
        self._bounds: dict[str, Listing] | None = (
            None  # of a stream that ends: what each flow was seen to have at first
        )

    def initialOffset(self) -> dict[str, Any]:
        """No flow has read anything."""
        return plans_to_json({})

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing is read in this run that a flow has not when it is first asked about."""
        self._bounds = {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Nothing that Spark could say: `latestOffset` keeps to the options."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; `start` again when there is nothing to read. Raises CallError, OptionError."""
        if self._bounds is None:
            self._sleep(
                max(0.0, self._not_before - self._clock())
            )  # Spark asks anew at once, which costs more than this
        now = self._clock()
        if self._file.read():
            self._take_over(plans_from_json(start))
            self._file.say_seen()
        for one in self._asked(now):
            self._ask(one, now)
        planned = self._plan()
        if not planned:
            took = self._clock() - now
            looks = IDLE_LOOKS if now - self._found_at >= IDLE_S else PAUSE_LOOKS
            self._not_before = now + took + min(took * looks, PAUSE_MAX_S) * (len(self._standings) > 1)
            return start
        self._found_at = now
        for name, plan in planned.items():
            self._standings[name].at, self._standings[name].moved = plan.at, True
        return plans_to_json(planned)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the query's progress: how many flows there are, and how much waits after the batch planned last."""
        return {"flows": len(self._standings), "messagesBehind": self._behind}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What the batch that ends at `end` reads; small pieces share a task."""
        found: list[InputPartition] = []
        small: list[Slice] = []
        for name, plan in plans_from_json(end).items():
            for piece in self._pieces(name, plan):
                if piece.end - piece.begin >= GROUP_ROWS:
                    if any(one.flow == piece.flow for one in small):  # a topic's pieces become visible in their order
                        found.append(_group(small))
                        small = []
                    found.append(piece)
                    continue
                if len(small) >= GROUP_SLICES or sum(one.end - one.begin for one in small) >= GROUP_ROWS:
                    found.append(_group(small))
                    small = []
                small.append(piece)
        if small:
            found.append(_group(small))
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The batches of a partition."""
        return rows_of(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing, as for one topic."""

    # -- flows come and go -----------------------------------------------------------------------------------------

    def _take_over(self, before: Mapping[str, FlowPlan]) -> None:
        """The file was replaced: those under a run that is known stay where they are."""
        known, self._standings = self._standings, {}
        for name, flow in self._file.flows.items():
            one = known.get(name)
            if one is None or one.flow.run != flow.run:
                one = _Standing(flow)
                plan = before.get(name)
                if flow.at:
                    one.at, one.moved = Offsets.from_json(json.loads(flow.at)), True
                if plan is not None and plan.run == flow.run:
                    one.at, one.moved = plan.at, True
            self._standings[name] = one

    def _asked(self, now: float) -> list[_Standing]:
        """Those about which something is to be learned. One alone is simply asked."""
        for name in self._file.failures():
            self._standings.pop(name, None)
        every = list(self._standings.values())
        if len(every) <= 1 or all(one.at is None or one.moved for one in every):
            return every
        waiting = self._waiting(every[0].flow.topic)
        if waiting is None:
            return every
        return [
            one
            for one in every
            if one.at is None
            or one.moved
            or waiting.get((one.flow.topic, one.flow.name), 1)
            or now - one.asked_at >= TOUCH_S
        ]

    def _waiting(self, topic: str) -> dict[tuple[str, str], int] | None:
        """How much waits after each cursor of the project; None: that may not be asked of a whole project."""
        request = pb.ListCursorsRequest(project="/".join(topic.split("/")[:2]))
        try:
            answer = BlockingChannel(self._options.access).call(methods.LOG_READER.ListCursors, request)
        except CallError as error:
            if error.code in SERVER_IS_GONE:
                raise
            return None
        found = pb.ListCursorsResponse.FromString(answer).cursors
        return {(one.topic, one.name): one.lag_messages + len(one.lost) for one in found}

    def _ask(self, one: _Standing, now: float) -> None:
        """Learn where the topic is, and tell the cursor where the flow is; note beside the file what stops the flow."""
        try:
            asks = Positions(self._options_of(one.flow))
            if one.at is None:
                listing, _ = asks.ask(parse_position(asks.options, "startingPosition"), first=True)
                one.at = plans.initial(listing)
            else:
                listing, lost = asks.ask(processed=one.at)
                plans.check_same(one.at, listing)
                self._check_lost(one, listing.topic, lost or plans.lost_before(one.at, listing, kept=one.flow.cursor))
            if self._bounds is not None:
                listing = self._bounds.setdefault(one.flow.name, listing)
            one.listing, one.moved, one.asked_at = _until(listing, one.flow.until), False, now
        except (CallError, DataLossError, OptionError) as error:
            if isinstance(error, CallError) and error.code in SERVER_IS_GONE:
                raise
            log.warning("The flow %s stands still: %s", one.flow.name, error)
            self._file.fail(one.flow, f"{type(error).__module__}.{type(error).__qualname__}: {error}")
            del self._standings[one.flow.name]

    def _options_of(self, flow: SharedFlow) -> Options:
        cursor = flow.name if flow.cursor else ""
        return self._options.replaced({"topic": flow.topic, "cursor": cursor, "startingPosition": flow.start})

    def _check_lost(self, one: _Standing, topic: str, lost: list[SourceRange]) -> None:
        if not lost:
            return
        if self._options["failOnDataLoss"]:
            raise DataLossError(losses(topic, lost))
        log.warning("%s Continuing after them.", losses(topic, lost))

    # -- batches ---------------------------------------------------------------------------------------------------

    def _plan(self) -> dict[str, FlowPlan]:
        """How far each flow reads in the next batch; those that read nothing are not in it."""
        able: list[tuple[_Standing, Offsets, Listing, int]] = []
        for one in self._standings.values():
            if one.at is not None and one.listing is not None and (rows := plans.available(one.at, one.listing)):
                able.append((one, one.at, one.listing, rows))
        wants = [rows for _, _, _, rows in able]
        self._behind = sum(wants)
        sizes = [rows * _mean(listing) for _, _, listing, rows in able]
        turn = int(self._clock() * 1000)
        shares = zip(
            _shared(wants, self._options["maxRowsPerTrigger"], turn),
            _shared(sizes, self._options["maxBytesPerTrigger"], turn),
            strict=True,
        )
        found: dict[str, FlowPlan] = {}
        for (one, at, listing, _), (rows, size) in zip(able, shares, strict=True):
            if not rows or not size:
                continue
            after = plans.plan(at, listing, rows, size)
            if after is not at:
                found[one.flow.name] = FlowPlan(one.flow.run, after)
                self._behind -= sum(after.sources[number] - begin for number, begin in after.begins.items())
        return found

    def _pieces(self, name: str, plan: FlowPlan) -> list[Slice]:
        standing = self._standings.get(name)
        listing = standing.listing if standing is not None else None
        means = {s.number: s.mean_bytes for s in listing.sources} if listing else {}
        most, least = self._options["maxRowsPerPartition"], self._options["minPartitions"]
        pieces = plans.split(plan.at.ranges(), means, most, least)
        return slices(self._options, self._schema, plan.at, pieces, flow=name)


def _shared(wants: Sequence[int], budget: int, turn: int) -> list[int]:
    return plans.fair(wants, budget, turn) if budget else list(wants)


def _mean(listing: Listing) -> int:
    return max((one.mean_bytes for one in listing.sources), default=0) or plans.MEAN_BYTES


def _until(listing: Listing, until: str) -> Listing:
    """The listing without what follows the end of the flow, if it has one."""
    if not until:
        return listing
    ends = {int(source): int(end) for source, end in json.loads(until).items()}
    kept = (one for one in listing.sources if one.number in ends)
    return replace(
        listing,
        sources=tuple(replace(one, end=max(one.begin, min(one.end, ends[one.number])), sealed=True) for one in kept),
    )


def _group(small: Sequence[Slice]) -> InputPartition:
    return small[0] if len(small) == 1 else SliceGroup(list(small))
