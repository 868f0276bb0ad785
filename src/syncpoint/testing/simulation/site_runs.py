"""One seed of two sites that exchange acknowledgements: published at both, copied both ways, consumed at both.

Place: over `sim_site`. Steps are drawn from the seed: publishing, consuming, copying, rounds of the exchange that may
stop in their middle for ever or for a while, power cuts, seeks, deletion. Then all is healed, copied and exchanged, and
judged: what was acknowledged at one site waits at none, what nobody acknowledged since the newest seek waits at both.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.pipeline.links import LinkState
from syncpoint.catalog.metadata.seek_stamps import stamped
from syncpoint.programs.federation.acks.ack_pair import AckPair, RoundResult
from syncpoint.programs.federation.acks.snapshot_pair import AckCall, OriginLinks, SiteEnd
from syncpoint.testing.simulation.base import Trace
from syncpoint.testing.simulation.moving_homes import SiteServers, home_methods
from syncpoint.testing.simulation.sim_runs import RunResult
from syncpoint.testing.simulation.sim_site import SUBSCRIPTION, SimSite, StoredMessage
from syncpoint.testing.simulation.site_snapshots import SiteSnapshots

KEPT, DELETED = "kept", "deleted"  # a topic with a retention, and seeks; or what is acknowledged is deleted
SNAPPED = "snapped"  # as deleted, with snapshots
HOMED = "homed"  # as kept, without seeks: one of three sites delivers, and that moves
STEPS = 60
ROUNDS_MAX = 40
Round = Generator[AckCall, Any, RoundResult]
Stamp = tuple[int, str]
_T = TypeVar("_T")


@dataclass
class CopyFlow:
    """One direction: its copies, and its pair."""

    name: str
    source: SimSite
    target: SimSite
    epoch: int = 0
    pair: AckPair = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A link that begins anew knows nothing."""
        ends = SiteEnd(self.source.name, SUBSCRIPTION), SiteEnd(self.target.name, SUBSCRIPTION)
        self.pair = AckPair(self.name, *ends, [OriginLinks(f"{self.target.name}{self.source.name}.orders", "")])


class SiteRun:
    """The life of two sites."""

    step_s = 0.05

    def __init__(self, seed: int, shape: str, trace: Trace | None, *, ordered: bool = False) -> None:
        self.random, self.clock, self._trace = SeededRandom(seed), ManualClock(), trace
        self.kept, self.homed = shape in (KEPT, HOMED), shape == HOMED
        retention_s = 30 * 86_400 if self.kept else 0
        names = "abc" if self.homed else "ab"
        self.sites = [
            SimSite(name, self.random, self.clock, retention_s, home_methods, ordered=ordered) for name in names
        ]
        self.flows = [CopyFlow(f"{a.name}{b.name}.orders", a, b) for a in self.sites for b in self.sites if a is not b]
        self.servers = SiteServers({site.name: site for site in self.sites})
        self.slow: list[tuple[CopyFlow, Round, Any]] = []  # rounds that stand still, and what they would go on with
        self.happened: Counter[str] = Counter()
        self.confirmed: list[tuple[bytes, Stamp]] = []
        self.tried: list[tuple[bytes, Stamp]] = []
        self.published_ns: dict[bytes, int] = {}
        self.seeks: dict[Stamp, int] = {}
        self.violations: list[str] = []
        self.snapshots = SiteSnapshots(self.sites, self.random, self.happened, self.violations)
        self.snapped = shape == SNAPPED

    def note(self, text: str) -> None:
        if self._trace is not None:
            self._trace(text)

    def run(self) -> None:
        """All of it."""
        for flow in self.flows:  # from the first exchange on, acknowledgements are kept for the other site
            self._publish(flow.source)
            self._copy(flow)
            self._round(flow, whole=True)
        if self.homed:
            self._move()
        for _ in range(STEPS):
            self.clock.advance(self.step_s)
            self._step()
        self._heal()
        self._judge()
        for site in self.sites:
            site.close()

    def _step(self) -> None:
        site, flow = self._one_of(self.sites), self._one_of(self.flows)
        lot = self.random.randrange(0, 100)
        if lot < 20:
            self._publish(site)
        elif lot < 42:
            (self._deliver if self.homed else self._consume)(site)
        elif lot < 56:
            self._copy(flow)
        elif lot < 76:
            self._round(flow)
        elif lot < 84:
            self._go_on()
        elif lot < 90:
            self._crash(site)
        elif self.homed:
            self._move()
        elif self.kept:
            self._seek(site)
        elif self.snapped and lot < 97:
            self.snapshots.step(site)
        else:
            self.happened["deletion"] += 1
            site.collect()
            site.checkpoint()

    def _one_of(self, things: Sequence[_T]) -> _T:
        return things[self.random.randrange(0, len(things))]

    # -- what happens ------------------------------------------------------------------------------------------------

    def _publish(self, site: SimSite) -> None:
        now_ns = self.clock.time_ns()
        for data in site.put(1 + self.random.randrange(0, 4)):
            self.published_ns[data] = now_ns

    def _consume(self, site: SimSite) -> None:
        waiting = site.waiting()
        some = [one for one in waiting if self.random.random() < 0.5]
        self._acknowledge(site, some)

    def _acknowledge(self, site: SimSite, some: Sequence[StoredMessage]) -> None:
        stamp = self._stamp(site)
        confirmed = site.acknowledge(some)
        acked = [(one.data, stamp) for one in some]
        self.tried += acked
        if confirmed:
            self.confirmed += acked
        self.happened["acknowledged"] += len(some)
        self.note(f"{site.name} acknowledges {[one.data for one in some]} at {stamp}: {confirmed}")

    # -- homes -------------------------------------------------------------------------------------------------------

    def _deliver(self, site: SimSite) -> None:
        """As a consumer does that keeps messages for a while; where another site is the home it gets none."""
        acked = {data for data, _ in self.confirmed}
        if not site.record.options.receive_suspended:
            held = {one.data for one in site.lent}
            fresh = [one for one in site.waiting() if one.data not in held and self.random.random() < 0.5]
            for one in fresh:
                if one.data in acked:
                    self.violations.append(f"acknowledged stays acknowledged: {one.data!r} is delivered at {site.name}")
            site.lent += fresh
            self.note(f"{site.name} delivers {[one.data for one in fresh]}")
        done = [one for one in site.lent if self.random.random() < 0.5]
        site.lent = [one for one in site.lent if one not in done]
        self._acknowledge(site, done)

    def _move(self) -> None:
        """Move the home; while that waits, consumers end and links copy."""
        home, lives = self._one_of(self.sites), [site.lives for site in self.sites]
        others = {data for data in self.published_ns if not data.startswith(home.name.encode())}

        def sleep(seconds: float) -> None:
            self.clock.advance(seconds)
            self._copy(self._one_of(self.flows))
            self._deliver(self._one_of(self.sites))
            if self.random.random() < 0.03:
                self._crash(self._one_of(self.sites))

        try:
            found = self.servers.move(home.name, self.clock.monotonic, sleep, drain_s=30.0)
        except SyncpointError as error:
            self.happened["a home stays where it is"] += 1
            self.note(f"{home.name} does not become the home: {error}")
            return
        self.happened["a home moves"] += 1
        self.note(f"{home.name} is the home: {found}")
        if found.epoch > 2 and lives == [site.lives for site in self.sites]:
            lacking = others - {one.data for one in home.stored()}
            if lacking:
                self.violations.append(f"a home has what others took: {home.name} lacks {sorted(lacking)}")

    def _stamp(self, site: SimSite) -> Stamp:
        last, record = stamped(site.publish.catalog, 11), site.record
        own = record.generation - last.generation
        return (last.stamp.number + own, site.name) if own else (last.stamp.number, last.stamp.site)

    def _copy(self, flow: CopyFlow) -> None:
        source, target = flow.source, flow.target
        link = target.writer.state.links.get(flow.name, LinkState(flow.name, ""))
        planned, there = [], source.extents()
        for number, begin, end in there:
            known = link.intervals.get(number)
            newest = link.newest(0)
            first = known.end if known is not None else (begin if newest is None else 0)
            if known is None and newest is not None and number < newest:
                first = end
            planned.append((number, min(max(first, begin), end), end))
        begins = {number: begin for number, begin, _ in planned}
        copies = [one for one in source.stored() if one.offset >= begins[one.source]]
        own = [one for one in copies if one.data.startswith(source.name.encode())]
        try:
            target.take_copies(flow.name, "r", flow.epoch, source.topic_name, own, planned)
        except SyncpointError as error:
            self.note(f"{flow.name} copies nothing: {error}")
            return
        flow.epoch += 1
        self.happened["copied"] += len(own)
        self.note(f"{flow.name} copies {[one.data for one in own]}")

    def _round(self, flow: CopyFlow, *, whole: bool = False) -> RoundResult | None:
        """A round; it may stop in its middle, for a while or for ever."""
        going = flow.pair.round()
        return self._advance(flow, going, None, stops=-1 if whole else self.random.randrange(0, 12))

    def _advance(self, flow: CopyFlow, going: Round, answer: Any, stops: int) -> RoundResult | None:
        try:
            call = going.send(answer)
            while True:
                if stops == 0:
                    self.slow.append((flow, going, call))
                    flow.pair = deepcopy(flow.pair)  # a pair has one round at a time; what is late is another program's
                    self.happened["a round stands still"] += 1
                    return None
                stops -= 1
                site = flow.source if call.at_source else flow.target
                try:
                    answer = site.call(call.method, call.request)
                except SyncpointError as error:
                    call = going.throw(error)
                    continue
                if answer.DESCRIPTOR.name == "FollowSeekResponse":
                    self.happened["a seek is followed"] += 1
                    self.note(f"{site.name} follows {call.request.stamp}")
                call = going.send(answer)
        except StopIteration as over:
            result: RoundResult = over.value
            return result
        except SyncpointError as error:
            self.happened["a round is refused"] += 1
            self.note(f"a round of {flow.name} ends: {error}")
            return None

    def _go_on(self) -> None:
        """A round that stood still makes its call now, or never; then its link begins anew."""
        if not self.slow:
            return
        flow, going, call = self.slow.pop(self.random.randrange(0, len(self.slow)))
        if self.random.random() < 0.3:
            flow.begin()
            return
        site = flow.source if call.at_source else flow.target
        try:
            answer = site.call(call.method, call.request)
        except SyncpointError as error:
            self.note(f"late: {error}")
            flow.begin()
            return
        self.happened["a late call counts"] += 1
        self._advance(flow, going, answer, stops=-1)

    def _crash(self, site: SimSite) -> None:
        self.happened["a power cut"] += 1
        site.crash()
        site.open()
        self.note(f"{site.name} is back")

    def _seek(self, site: SimSite) -> None:
        now_ns = self.clock.time_ns()
        time_ns = self._one_of([0, now_ns, now_ns - self.random.randrange(0, 2_000_000_000)])
        site.seek(time_ns)
        stamp = self._stamp(site)
        self.seeks[stamp] = time_ns
        self.happened["a seek"] += 1
        self.note(f"{site.name} seeks to {time_ns}: {stamp}")

    # -- the end -----------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        for flow, going, call in self.slow:
            site = flow.source if call.at_source else flow.target
            try:
                self._advance(flow, going, site.call(call.method, call.request), stops=-1)
            except SyncpointError as error:
                self.note(f"late: {error}")
        for _ in range(ROUNDS_MAX):
            moved = False
            for flow in self.flows:
                self._copy(flow)
                result = self._round(flow, whole=True)
                moved |= result is None or bool(result.brought) or result.followed or result.again
            if not moved:
                return
        self.violations.append(f"sites agree: two sites do not come to rest in {ROUNDS_MAX} rounds")

    def _judge(self) -> None:
        stamps = {site.name: self._stamp(site) for site in self.sites}
        if not self.homed and len(set(stamps.values())) > 1:
            self.violations.append(f"sites agree: they stand at the seeks {stamps}")
            return
        stamp = next(iter(stamps.values()))
        acked = {data for data, at in self.confirmed if at == stamp}
        tried = {data for data, at in self.tried if at == stamp}
        before_ns = self.seeks.get(stamp, -1)
        waiting = [{message.data for message in site.waiting()} for site in self.sites]
        stored = [{message.data for message in site.stored()} for site in self.sites]
        for site, left, there in zip(self.sites, waiting, stored, strict=True):
            for data in sorted(left & acked):
                self.violations.append(f"acknowledged stays acknowledged: {data!r} waits at {site.name} again")
            owed = {data for data, at_ns in self.published_ns.items() if at_ns >= before_ns} - tried
            if not self.kept:  # what is stored at its own site, and acknowledged nowhere, is everywhere
                for data in sorted(owed - there):
                    self.violations.append(f"nothing is lost: {data!r} is not stored at {site.name}")
            for data in sorted((owed & there) - left):
                self.violations.append(f"nothing is lost: {data!r} waits nowhere at {site.name}")
        self.snapshots.judge()
        everywhere = stored[0].intersection(*stored[1:])
        differ = waiting[0].union(*waiting[1:]) - waiting[0].intersection(*waiting[1:])
        for data in sorted(differ & everywhere):
            self.violations.append(f"sites agree: {data!r} waits at one site only")


def run_sites(
    seed: int,
    *,
    shape: str | None = None,
    kinds: tuple[str, ...] = (),
    beyond: bool = False,
    trace: Trace | None = None,
) -> RunResult:
    """Run one seed. `shape`: `KEPT`, `DELETED`, `HOMED` or `SNAPPED`; drawn from the seed unless given."""
    return lived(
        lambda: SiteRun(seed, shape or (KEPT, DELETED, HOMED, SNAPPED)[seed % 4], trace), seed, quiet=trace is None
    )


def lived(made: Callable[[], SiteRun], seed: int, *, quiet: bool) -> RunResult:
    """Run a life to its end. `quiet`: nothing is logged."""
    begun = time.monotonic()
    if quiet:
        logging.disable(logging.CRITICAL)
    try:
        life = made()
        life.run()
    finally:
        if quiet:
            logging.disable(logging.NOTSET)
    return RunResult(seed, life.violations, life.happened, {}, "", STEPS, 0.0, time.monotonic() - begun)
