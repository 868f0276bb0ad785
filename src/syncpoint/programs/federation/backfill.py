"""Backfill: messages of a range that a flow has not copied, brought to its target, once.

Place: `syncpoint federation backfill`; beside the flow, which goes on. Machine (`missing`) and driver.
Promise: what the flow, or an earlier backfill, has at the target is not copied again, as far as the target still knows
it; run again, also after it was killed anywhere, it does what is missing. Two at a time: the later one wins, and the
earlier one commits nothing any more. What the flow will copy by itself is left to it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument
from syncpoint.base.model.spans import OffsetRange, joined
from syncpoint.programs.federation.flow_options import access, reading, writing
from syncpoint.programs.federation.flow_plan import Flow
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import Runtime
from syncpoint.programs.federation.transform import CARRIED, prepared
from syncpoint.wire.protobuf.messages import pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """`ranges`: what is to be read, one of each source; `present`: what of it is at the target already; `link`: the
    name of the record of what this run stores.
    """

    ranges: tuple[OffsetRange, ...]
    present: tuple[OffsetRange, ...]
    link: str

    @property
    def messages(self) -> int:
        """How many are to be read that are not at the target; those that the flow leaves out are among them."""
        return sum(one.end - one.begin for one in self.ranges) - sum(one.end - one.begin for one in self.present)


def queries_of(flow: Flow) -> str:
    """The name under which all backfills of a flow are fenced."""
    return f"{flow.name}.backfill"


def missing(
    link: Any, positions: Any, wanted: Iterable[OffsetRange], mapped: Mapping[int, Sequence[OffsetRange]]
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Return the wanted ranges that the flow will not copy by itself, and the parts of them that the target already
    has. `link`: the flow as its target knows it; `positions`: of the source; `mapped`: by source, the ranges at the
    target, from the flow (up to its end) and from backfills.
    """
    committed = {one.source: one for one in link.committed}
    base = {one.source: one.begin for one in link.base}
    chains = {one.source: one.chain for one in positions.sources}
    newest: dict[int, int] = {}
    for one in link.committed:
        newest[one.chain] = max(one.source, newest.get(one.chain, 0))
    ranges, present = [], []
    for span in wanted:
        known, end = committed.get(span.source), span.end
        found = list(mapped.get(span.source, ()))
        if known is not None:
            end = min(end, known.end)
            # An epoch that is decided may not be in the map yet: offsets above all that it has count as copied.
            reached = min(known.end, max([one.end for one in found] + [base.get(span.source, known.begin)]))
            found.append(OffsetRange(span.source, reached, known.end))
        elif span.source > newest.get(chains.get(span.source, 0), -1):
            continue  # the flow has not come to it yet, and will
        there, begin = merged(found), span.begin
        for one in there:  # most have been copied without a hole: nothing of that is read again
            if one.begin <= begin < one.end:
                begin = one.end
        for one in reversed(there):
            if one.begin < end <= one.end:
                end = one.begin
        if begin < end:
            ranges.append(OffsetRange(span.source, begin, end))
            present += [part for one in there if (part := _within(one, begin, end)) is not None]
    return ranges, present


def merged(spans: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Merge the spans of one source, in order and without overlap."""
    found = [one for one in spans if one.begin < one.end]
    return [OffsetRange(found[0].source, *one) for one in joined(one[1:] for one in found)]


def _within(span: OffsetRange, begin: int, end: int) -> OffsetRange | None:
    cut = span._replace(begin=max(span.begin, begin), end=min(span.end, end))
    return cut if cut.begin < cut.end else None


class Backfill:
    """One run, of one flow."""

    def __init__(self, servers: Servers, flow: Flow) -> None:
        self.servers, self.flow, self.run = servers, flow, uuid.uuid4().hex

    def plan(self, begin: str, end: str, *, only_look: bool = False) -> BackfillPlan:
        """What is to be done, after which no earlier backfill of the flow can do anything any more; `only_look`: which
        changes nothing. `begin`, `end`: earliest, latest, a time, or offsets as JSON. Raises `SyncpointError`.
        """
        flow, target = self.flow, self.flow.link.target
        link = self._link(flow.name)
        if link is None:
            raise FailedPrecondition(
                f"{flow.name} has not copied anything yet, and starts at {flow.link.change.start}: run it first, then"
                " backfill what is before that."
            )
        positions = self.servers.positions_of(flow)
        if link.source_topic != f"{positions.universe}/{positions.topic_incarnation}":
            raise FailedPrecondition(f"{flow.source_topic} is not the topic that {flow.name} has copied.")
        wanted = self._wanted(begin, end)
        if not only_look:
            self.servers.ensure_target(flow)
            self._fence()
        links = self.servers.call(target, "EpochWriter.ListLinks", pipeline.ListLinksRequest()).links
        before = [one.name.removeprefix(f"{queries_of(flow)}.") for one in links]
        numbers = sorted(int(number) for number in before if number.isdigit())
        mine = [f"{queries_of(flow)}.{number}" for number in numbers]
        link = next(one for one in links if one.name == flow.name)  # as it is now, after the fence
        ends = {one.source: one.end for one in link.committed}
        mapped = {}
        for span in wanted:
            # Of the flow up to its end: above all that the map has of it, it counts as copied.
            whole = span._replace(end=max(span.end, ends.get(span.source, 0)))
            found = list(self._mapped(flow.name, whole)) or list(self._mapped(flow.name, whole._replace(begin=0)))
            mapped[span.source] = [*found, *(one for name in mine for one in self._mapped(name, span))]
        ranges, present = missing(link, positions, wanted, mapped)
        return BackfillPlan(tuple(ranges), tuple(present), f"{queries_of(flow)}.{1 + max(numbers, default=0)}")

    def copy(self, plan: BackfillPlan, spark: SparkSession, runtime: Runtime, folder: Path) -> int:
        """Do it; how many messages were stored. Raises `FailedPrecondition` when it stops, or another one began."""
        from pyspark_pubsub.flows_file import FlowsFile, SharedFlow

        flow, link = self.flow, self.flow.link
        starts, ends = ({str(one.source): one[at] for one in plan.ranges} for at in (1, 2))
        file = FlowsFile(folder / "flows.json")
        shared = SharedFlow(
            plan.link,
            flow.source_topic,
            self.run,
            "" if link.steps.topics else flow.target_topic,
            json.dumps(starts),
            until=json.dumps(ends),
            query=queries_of(flow),
            cursor=False,
        )
        file.write([shared])
        source = {**reading(link, runtime, file.path), "columns": ",".join(CARRIED)}
        frame = spark.readStream.format("pubsub").options(**source).load()
        frame = prepared(_without(frame, plan.present, spark), link, flow)
        writer = frame.writeStream.format("pubsub").queryName(plan.link).outputMode("append")
        writer = writer.options(**writing(link, file.path, folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        for error in file.failures().values():
            raise FailedPrecondition(f"The backfill failed and can be run again: {error}")
        stored = self._link(plan.link)
        return int(stored.rows) if stored is not None else 0

    # -- what servers say ------------------------------------------------------------------------------------------

    def _link(self, name: str) -> Any:
        request = pipeline.ListLinksRequest(name=name)
        found = self.servers.call(self.flow.link.target, "EpochWriter.ListLinks", request).links
        return found[0] if found else None

    def _wanted(self, begin: str, end: str) -> list[OffsetRange]:
        """The range by sources. Raises `InvalidArgument`, and what calls raise."""
        from pyspark_pubsub.errors import CallError, DataLossError, OptionError
        from pyspark_pubsub.options import READ, Options
        from pyspark_pubsub.positions import LATEST, Positions, parse_position

        found = []
        for text in (begin, end):
            options = Options(
                {**access(self.flow.link.source), "topic": self.flow.source_topic, "startingPosition": text}, READ
            )
            try:
                position = parse_position(options, "startingPosition")
                listing, _ = Positions(options).ask(position)
            except (OptionError, DataLossError) as error:
                raise InvalidArgument("from" if text == begin else "to", str(error)) from None
            except CallError as error:
                raise FailedPrecondition(str(error)) from None
            latest = position.kind == LATEST
            found.append({one.number: one.end if latest else one.start for one in listing.sources})
        begins, ends = found
        spans = [OffsetRange(source, begins[source], ends.get(source, begins[source])) for source in begins]
        return [one for one in spans if one.begin < one.end]

    def _fence(self) -> None:
        """No earlier run may write any more, and what one has decided is finished: an epoch of its own, of nothing."""
        request = pipeline.CommitEpochRequest(run=pipeline.Run(query=queries_of(self.flow), run=self.run))
        request.topic = self.flow.target_topic
        self.servers.call(self.flow.link.target, "EpochWriter.CommitEpoch", request)

    def _mapped(self, link: str, span: OffsetRange) -> Iterator[OffsetRange]:
        """What the target has of a range, by the record of a link."""
        at = span.begin
        while at < span.end:
            request = pipeline.MapOffsetsRequest(link=link, source=span.source, begin=at, end=span.end)
            answer = self.servers.call(self.flow.link.target, "EpochWriter.MapOffsets", request)
            for one in answer.mappings:
                part = getattr(one, "from")
                yield OffsetRange(span.source, part.begin, part.end)
            at = answer.next_offset


def _without(frame: DataFrame, present: Sequence[OffsetRange], spark: SparkSession) -> DataFrame:
    """The rows that are not at the target, in their order: Spark keeps what is there as a table beside each task."""
    if not present:
        return frame
    from pyspark.sql.functions import broadcast, col

    spans = spark.createDataFrame(
        [tuple(one) for one in present], "there_source bigint, there_begin bigint, there_end bigint"
    )
    within = (
        (col("source") == col("there_source"))
        & (col("offset") >= col("there_begin"))
        & (col("offset") < col("there_end"))
    )
    return frame.join(broadcast(spans), within, "left_anti")
