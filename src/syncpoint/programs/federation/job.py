"""The job: all flows of a federation on one Spark application, those of a link in one streaming query.

    python -m syncpoint.programs.federation.job federation.yaml [--master URL] [--conf KEY=VALUE ...]
    spark-submit --master URL .../syncpoint/federation/job.py federation.yaml

Place: the driver process that the supervisor starts, or spark-submit. Every few seconds it looks which topics exist: a
new one begins to flow. A flow that fails leaves the others' query and is tried by itself, after pauses that grow, until
a batch of it is committed; then it joins them again. What stops it permanently (a gap) is recorded in the state folder
and in `federation status`. SIGTERM ends all after the batches under way.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.backoff import Backoff
from syncpoint.programs.federation.flow_plan import FederationLink, Flow
from syncpoint.programs.federation.flow_starts import FlowStart, begin_at, starts
from syncpoint.programs.federation.link_query import LinkQuery
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.session import session
from syncpoint.programs.federation.spec import Federation, load
from syncpoint.programs.federation.state import FlowState, StateFolder
from syncpoint.programs.federation.steps.step_counts import StepCounts
from syncpoint.programs.federation.streams.stream_queries import stream_query, stream_start
from syncpoint.programs.federation.transform import FlowsUnknown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 1.0
TOPICS_S = 5.0
TOGETHER = 2  # each starts a Python of its own, which must be up in ten seconds
ALONE_MAX = 8  # queries of single flows of one link that many share; the others wait
UNKNOWN_MAX = 2  # failures of a shared query in a row, of which nobody can say whose they are

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Running:
    """One flow on Spark. `place`: the query that it is in; `leaving`: one that it was taken out of just now."""

    flow: Flow
    alone: bool = False  # has a query of its own, until a batch is committed
    place: LinkQuery | None = None
    leaving: LinkQuery | None = None
    error: str = ""
    again_at: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(1.0, 60.0))
    paused: bool = False


class FederationJob:
    """Run a federation's flows on Spark."""

    def __init__(
        self, federation: Federation, links: Sequence[FederationLink], spark: SparkSession, state: StateFolder
    ) -> None:
        self.federation, self.links, self.spark, self.state = federation, list(links), spark, state
        self.running: dict[str, _Running] = {}
        self.queries: dict[str, LinkQuery] = {}  # by name: of a link, or of a flow that is alone
        self.stopping = threading.Event()
        self._apart = {link.name for link in links if link.single}  # links whose flows never share a query
        self._unknown: dict[str, int] = {}  # by link: failures in a row, of which nobody knows whose they are
        self._counts: dict[str, StepCounts] = {}  # of steps, by query
        self._topics_at = -TOPICS_S

    def run(self) -> None:
        """Until `stopping` is set; then every query ends after its current batch."""
        self.state.clear_queries()
        with Servers() as servers:
            while not self.stopping.is_set():
                self._look(servers)
                self.stopping.wait(LOOK_S)
        for query in self.queries.values():
            query.stop()

    def _look(self, servers: Servers) -> None:
        now = time.monotonic()
        if now - self._topics_at >= TOPICS_S:
            self._topics_at = now
            for link in self.links:
                self._discover(servers, link)
        for query in list(self.queries.values()):
            self._review(query, now)
        paused = self.state.paused()
        for one in self.running.values():
            self._hold(one, one.flow.name in paused, now)
        for link in self.links:
            self._begin(link, servers, now)
        self.state.say_flows({name: self._state_of(one) for name, one in self.running.items()})

    def _discover(self, servers: Servers, link: FederationLink) -> None:
        try:
            flows = servers.flows([link])
        except SyncpointError as error:
            log.warning("link %s: %s does not answer: %s", link.name, link.source.name, error)
            return
        for flow in flows:
            self.running.setdefault(flow.name, _Running(flow))

    # -- queries that run ------------------------------------------------------------------------------------------

    def _review(self, query: LinkQuery, now: float) -> None:
        members = [self.running[name] for name in query.flows]
        well = query.look()
        for name, error in query.failures().items():
            self._leave(query, self.running[name])
            self._failed(self.running[name], error, now)
        if not query.active:
            self._ended(query, now)
            return
        if not well:
            return
        if query.only is None:
            self._unknown.pop(query.name, None)
        for one in members:
            if one.place is query:
                one.error = ""
                one.backoff.succeeded()
                # One with a gap that was accepted stays until a batch has recorded it.
                if query.only is not None and (bool(query.last) if query.lenient else not self._for_itself(one)):
                    self._leave(query, one)  # it joins the others; or, the gap being recorded, the next one stops it
                    one.alone = False

    def _ended(self, query: LinkQuery, now: float) -> None:
        """A query has failed. When nobody knows whose failure it is, the flows whose batch it was are tried alone."""
        error = query.query.exception() if query.query is not None else None
        text = _error_text(error) if error is not None else "the query has ended"
        members, suspects = set(query.flows), set(query.suspects())
        if query.only is None and members:
            self._unknown[query.name] = self._unknown.get(query.name, 0) + 1
            apart = len(suspects) == 1 or self._unknown[query.name] >= UNKNOWN_MAX
            for name in suspects & members if apart else ():
                self.running[name].alone = True
            if apart:
                self._unknown.pop(query.name)
        self._drop(query)
        for name in members:
            one = self.running[name]
            one.place, one.again_at = None, now + one.backoff.pause_s
            if name in suspects or not suspects or len(members) == 1:
                self._failed(one, text, now, alone=one.alone)

    def _leave(self, query: LinkQuery, one: _Running) -> None:
        """Take a flow out of a query, which ends when it was the last one."""
        one.place, one.leaving = None, query
        query.change(remove=[one.flow.name])
        if not query.flows:
            query.stop()
            self._drop(query)

    def _drop(self, query: LinkQuery) -> None:
        self.queries.pop(query.name, None)
        query.remove()

    def _failed(self, one: _Running, error: str, now: float, *, alone: bool = True) -> None:
        log.error("flow %s: %s", one.flow.name, error)
        one.error, one.again_at, one.alone = error, now + one.backoff.failed(), alone

    def _hold(self, one: _Running, wanted: bool, now: float) -> None:
        """Pause or resume a flow: it ends after its last commit, and continues from there."""
        if one.leaving is not None and one.leaving.has_left(one.flow.name):
            one.leaving = None
        if wanted and one.place is not None:
            self._leave(one.place, one)
        if wanted != one.paused:
            log.info("flow %s is %s", one.flow.name, "paused" if wanted else "resumed")
            one.error, one.again_at = "", now
            one.backoff.succeeded()
        one.paused = wanted

    # -- flows that begin ------------------------------------------------------------------------------------------

    def _for_itself(self, one: _Running) -> bool:
        """Whether a flow never shares a query."""
        return one.flow.link.name in self._apart

    def _begin(self, link: FederationLink, servers: Servers, now: float) -> None:
        waiting = [
            one
            for one in self.running.values()
            if one.flow.link is link
            and one.place is None
            and one.leaving is None
            and not one.paused
            and now >= one.again_at
        ]
        by_itself = [one for one in waiting if one.alone or self._for_itself(one) or self.state.accepted(one.flow.name)]
        together = [one for one in waiting if one not in by_itself]
        for one in by_itself:
            if self._has_place(link):
                self._join(servers, [one], now, only=one)
        if together and (link.name in self.queries or self._initialising() < TOGETHER):
            self._join(servers, together, now)

    def _has_place(self, link: FederationLink) -> bool:
        alone = sum(query.only is not None and query.link is link for query in self.queries.values())
        return self._initialising() < TOGETHER and (link.name in self._apart or alone < ALONE_MAX)

    def _initialising(self) -> int:
        return sum(query.initialising for query in self.queries.values())

    def _join(self, servers: Servers, flows: Sequence[_Running], now: float, only: _Running | None = None) -> None:
        """Put flows into the query they share, or one into its own, and begin the query if it does not run."""
        link = flows[0].flow.link
        try:
            flows = self._able(flows, servers.ensure_targets([one.flow for one in flows]), now)
            found: dict[str, FlowStart | SyncpointError]
            lenient = only is not None and self.state.accepted(only.flow.name)
            if only is not None and lenient:
                log.warning("flow %s skips the deleted messages of an accepted gap", only.flow.name)
            if link.source.stream is not None:
                found = self._stream_starts(servers, [one.flow for one in flows], accepted=lenient)
            elif only is not None and lenient:
                found = {one.flow.name: FlowStart(begin_at(servers, one.flow)) for one in flows}
            else:
                found = starts(servers, [one.flow for one in flows])
            failed = {name: start for name, start in found.items() if isinstance(start, SyncpointError)}
            flows = self._able(flows, failed, now)
            added = [(one.flow, start) for one in flows if isinstance(start := found[one.flow.name], FlowStart)]
            if not added:
                return
            query = self._query(link, only.flow if only is not None else None, lenient)
            query.change(add=added)
            if query.query is None:
                query.start(self.spark)
            if only is not None and lenient:
                self.state.begin_anew(only.flow.name)
        except FlowsUnknown:
            log.info("the flows of %s run as separate queries: the function drops the column `flow`", link.name)
            self._apart.add(link.name)
            self._drop(self.queries[link.name])
        except SyncpointError as error:
            self._not_begun(flows, str(error), now, only)
        except Exception as error:  # whatever Spark makes of it
            log.exception("%s does not begin", only.flow.name if only is not None else link.name)
            self._not_begun(flows, _error_text(error), now, only)
        else:
            for one in flows:
                one.place = query
                log.info("flow %s has started", one.flow.name)

    def _stream_starts(
        self, servers: Servers, flows: Sequence[Flow], *, accepted: bool
    ) -> dict[str, FlowStart | SyncpointError]:
        """Where flows begin that read a stream; Spark is asked, which alone can see it."""
        found: dict[str, FlowStart | SyncpointError] = {}
        for flow in flows:
            try:
                found[flow.name] = stream_start(self.spark, servers, flow, self.state, accepted=accepted)
            except SyncpointError as error:
                found[flow.name] = error
        return found

    def _able(self, flows: Sequence[_Running], failed: Mapping[str, SyncpointError], now: float) -> Sequence[_Running]:
        """Those of which nothing has failed; the others wait."""
        for one in flows:
            if one.flow.name in failed:
                self._failed(one, str(failed[one.flow.name]), now, alone=one.alone)
        return [one for one in flows if one.flow.name not in failed]

    def _query(self, link: FederationLink, only: Flow | None, lenient: bool) -> LinkQuery:
        """The one that runs, or one that is to begin."""
        name = only.name if only is not None else link.name
        found = self.queries.get(name)
        if found is None:
            folder, counts = self.state.query(name), self._counts.setdefault(name, StepCounts())
            make = stream_query(link) or LinkQuery
            found = self.queries[name] = make(link, self.federation.runtime, folder, counts, only=only, lenient=lenient)
            found.prepare()
        return found

    def _not_begun(self, flows: Sequence[_Running], error: str, now: float, only: _Running | None) -> None:
        query = self.queries.get(only.flow.name if only is not None else flows[0].flow.link.name)
        if query is not None and query.query is None:
            self._drop(query)
        for one in flows:
            self._failed(one, error, now, alone=one.alone)

    def _state_of(self, one: _Running) -> FlowState:
        begun = one.place is not None or one.leaving is not None
        state = "failed" if one.error else "running" if begun else "starting"
        if one.paused and one.leaving is None:
            state = "paused"
        query = one.place
        if query is None:
            return FlowState(state, one.error)
        counts = query.counts.totals
        if counts and len(query.flows) > 1:
            counts = {**counts, "flows": len(query.flows)}
        batches, batch_s = 0, 0.0
        if query.last:
            batches, batch_s = query.last["batchId"] + 1, query.last["durationMs"]["triggerExecution"] / 1000
        return FlowState(state, one.error, batches, batch_s, counts, query.lag, query.rows)


def _error_text(error: BaseException) -> str:
    """The one line of Spark's exception that explains what happened, without the stacks around it."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        del lines[0]  # py4j's own
    ours = [line for line in lines if line.startswith(("pyspark_pubsub.", "syncpoint."))]
    return (ours or lines or [type(error).__name__])[-1 if ours else 0]


def main(arguments: Sequence[str] | None = None) -> int:
    """The program. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="syncpoint.programs.federation.job")
    parser.add_argument("file", type=Path)
    parser.add_argument("--master", help="Spark's master; by default that of spark-submit")
    parser.add_argument("--conf", action="append", default=[], help="Spark setting as KEY=VALUE")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        federation = load(given.file)
        links = links_of(federation)
    except (SyncpointError, OSError) as error:
        print(f"{given.file}: {error}", file=sys.stderr)
        return 2
    settings = dict(federation.runtime.spark)
    settings |= dict(one.split("=", 1) for one in given.conf)
    state = StateFolder(federation.runtime.state)
    spark = session(f"syncpoint {given.file.name}", given.master, settings)
    job = FederationJob(federation, links, spark, state)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: job.stopping.set())
    try:
        job.run()
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
