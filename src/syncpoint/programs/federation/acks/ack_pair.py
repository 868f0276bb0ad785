"""One subscription at both ends of a flow: which acknowledgements and seeks go from one end to the other.

Place: a machine; `ack_rounds` makes its calls. It keeps nothing that matters: what each end has is asked of that end,
and what was brought already is only remembered so as not to bring it again. A program that begins anew brings all of
it, as ranges, and what is there changes nothing.
Promises: an acknowledgement is brought in the generation in which it was made, or not at all (protocol rule 28). Of
seeks at both ends the one with the higher stamp, of equal numbers that of the site with the later name, is done at the
other one, and all of its state follows (rule 30): both ends come to the same, however calls are lost or repeated. An
end that does not know the newest home of the subscription learns of it before anything else. Snapshots come before
acknowledgements (`snapshot_pair`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.model.key_homes import SLOTS, SlotHome, Slots, later, ranges_of, slots_of
from syncpoint.catalog.metadata.home_sites import fill_ranges, ranges_in
from syncpoint.programs.federation.acks.snapshot_pair import AckCall, OriginLinks, SiteEnd, SnapshotPair
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline

MERGED_BYTES_MAX = 1 << 20
EXCHANGE = methods.ACK_EXCHANGE


class RoundResult(NamedTuple):
    """What came of one round: offsets that were news at an end, whether a seek was followed, whether to go on at once,
    and why nothing could be done ("": it could).
    """

    brought: int = 0
    followed: bool = False
    again: bool = False
    waits: str = ""


Stamp = tuple[int, str]


def stamp_of(report: pipeline.AckChangesResponse, site: str) -> Stamp:
    """Which seek a subscription stands at: the one it has followed, or a later one of its own site."""
    own = report.generation - report.stamped_generation
    return (report.stamp.number + own, site) if own else (report.stamp.number, report.stamp.site)


@dataclass(slots=True)
class _Brought:
    """What one end has reported, and the other one has."""

    known: dict[int, tuple[int, int]] = field(default_factory=dict)

    def asked(self) -> Iterable[pipeline.KnownAcks]:
        for source, (count, prefix) in self.known.items():
            yield pipeline.KnownAcks(source=source, count=count, prefix=prefix)

    def has(self, sources: Iterable[pipeline.AckedSource]) -> None:
        for one in sources:
            self.known[one.source] = one.count, one.prefix


class AckPair:
    """`source`, `target`: the ends of the flow, whose record at the target is named `link`. `others`: messages that do
    not come by it, and both ends have.
    """

    def __init__(self, link: str, source: SiteEnd, target: SiteEnd, others: Sequence[OriginLinks] = ()) -> None:
        self.link, self.source, self.target = link, source, target
        self.snapshots = SnapshotPair((source, target), [OriginLinks("", link), *others])
        self._generations = (0, 0)
        self._from_source, self._from_target = _Brought(), _Brought()

    def round(self) -> Generator[AckCall, Any, RoundResult]:
        """Yields calls, and is sent what they return, or thrown the `SyncpointError` they raise."""
        try:
            there = yield self._ask(True)
            here = yield self._ask(False)
        except SyncpointError as error:
            if error.code is Code.NOT_FOUND:
                return RoundResult(waits=error.message)
            raise
        homes = home_slots(there), home_slots(here)
        newest = later(*homes)
        for at_source, slots in zip((True, False), homes, strict=True):
            if newest != slots:
                yield self._let_home(at_source, newest)
        if homes[0] != homes[1]:
            return RoundResult(again=True)
        stamps = stamp_of(there, self.source.site), stamp_of(here, self.target.site)
        if stamps[0] != stamps[1]:
            at_source = stamps[0] < stamps[1]
            yield self._follow(at_source, there, here, max(stamps))
            return RoundResult(followed=True, again=True)
        if self._generations != (there.generation, here.generation):
            self._generations = there.generation, here.generation
            known = bool(self._from_source.known or self._from_target.known)
            self._from_source, self._from_target = _Brought(), _Brought()
            if known:  # what was asked for is only what these sets lack
                return RoundResult(again=True)
        if not (yield from self.snapshots.round(there, here)):
            return RoundResult(again=True)
        brought = yield from self._bring(False, there, here, self._from_source)
        brought += yield from self._bring(True, here, there, self._from_target)
        return RoundResult(brought, again=there.more or here.more)

    def _ask(self, at_source: bool) -> AckCall:
        end, had = (self.source, self._from_source) if at_source else (self.target, self._from_target)
        asked = pipeline.AckChangesRequest(
            subscription=end.subscription,
            link="" if at_source else self.link,
            generation=self._generations[0 if at_source else 1],
            known=had.asked(),
            snapshots_seen=self.snapshots.seen(at_source),
        )
        return AckCall(at_source, EXCHANGE.AckChanges, asked)

    def _let_home(self, at_source: bool, newest: Slots) -> AckCall:
        """An end that missed newer decisions learns of them first: it may have been away then (rule 33)."""
        end = self.source if at_source else self.target
        return AckCall(at_source, EXCHANGE.SetHome, keys_request(end, newest))

    def _follow(self, at_source: bool, there: Any, here: Any, stamp: Stamp) -> AckCall:
        end, moved, ahead = (self.source, there, here) if at_source else (self.target, here, there)
        asked = pipeline.FollowSeekRequest(
            subscription=end.subscription,
            generation=moved.generation,
            stamp=pipeline.SeekStamp(number=stamp[0], site=stamp[1]),
        )
        if ahead.HasField("seek_time"):
            asked.time.CopyFrom(ahead.seek_time)
        return AckCall(at_source, EXCHANGE.FollowSeek, asked)

    def _bring(self, at_source: bool, report: Any, other: Any, had: _Brought) -> Generator[AckCall, Any, int]:
        """Merge what one end has reported into the other one."""
        end, newly = self.source if at_source else self.target, 0
        for part in _parts(report.sources):
            asked = pipeline.MergeAcksRequest(
                subscription=end.subscription,
                link="" if at_source else self.link,
                generation=other.generation,
                source_topic=report.source_topic,
                sources=[pipeline.AckedRuns(source=one.source, runs=one.runs) for one in part if one.runs],
            )
            answer = yield AckCall(at_source, EXCHANGE.MergeAcks, asked)
            newly += answer.newly
            if not answer.refused:
                had.has(part)
        return newly


def home_request(end: SiteEnd, home: str, epoch: int) -> pipeline.SetHomeRequest:
    """The request that lets one end know which site delivers."""
    return pipeline.SetHomeRequest(subscription=end.subscription, site=end.site, home=home, epoch=epoch)


def keys_request(end: SiteEnd, slots: Slots, instead_of: str = "") -> pipeline.SetHomeRequest:
    """The request that lets one end know which site delivers which keys; `instead_of`: see there."""
    ranges = ranges_of(slots)
    if len(ranges) == 1 and not (ranges[0].at.taken_from or instead_of):
        return home_request(end, ranges[0].at.home, ranges[0].at.epoch)
    asked = pipeline.SetHomeRequest(subscription=end.subscription, site=end.site, instead_of=instead_of)
    fill_ranges(asked.keys, ranges)
    return asked


def home_slots(report: pipeline.AckChangesResponse | pipeline.SetHomeResponse) -> list[SlotHome]:
    """Which site delivers which keys, as one end knows it."""
    if report.keys:
        return slots_of(ranges_in(report.keys))
    epoch = report.home_epoch if isinstance(report, pipeline.AckChangesResponse) else report.epoch
    return [SlotHome(epoch, report.home)] * SLOTS


def _parts(sources: Iterable[pipeline.AckedSource]) -> Iterable[list[pipeline.AckedSource]]:
    """Reports in portions that one request may hold."""
    part: list[pipeline.AckedSource] = []
    size = 0
    for one in sources:
        if part and size + len(one.runs) > MERGED_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(one)
        size += len(one.runs)
    if part:
        yield part
