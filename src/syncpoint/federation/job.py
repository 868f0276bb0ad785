"""The job: all flows of a federation as streaming queries of one Spark application.

    python -m syncpoint.federation.job federation.yaml [--master URL] [--conf KEY=VALUE ...]
    spark-submit --master URL .../syncpoint/federation/job.py federation.yaml

Place: the driver process that the supervisor starts, or spark-submit. Every few seconds it looks which topics exist: a
new one begins to flow. A query that fails is begun again after a while, from its checkpoint; what stops it for good (a
gap) is said in the state folder and in `federation status`. SIGTERM ends it behind the batches under way.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.federation.flow_options import reading, writing
from syncpoint.federation.flow_plan import FederationLink, Flow
from syncpoint.federation.patterns.registry import links_of
from syncpoint.federation.servers import Servers
from syncpoint.federation.session import session
from syncpoint.federation.spec import Federation, load
from syncpoint.federation.state import FlowState, StateFolder
from syncpoint.federation.steps.step_counts import StepCounts
from syncpoint.federation.transform import prepared
from syncpoint.model.errors import SyncpointError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 1.0
TOPICS_S = 5.0
AGAIN_FIRST_S = 1.0
AGAIN_MAX_S = 60.0
TOGETHER = 2  # each starts a Python of its own, which must be up in ten seconds
INITIALISING = "Initializing sources"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Running:
    """One flow on Spark."""

    flow: Flow
    query: StreamingQuery | None = None
    error: str = ""
    again_at: float = 0.0
    pause_s: float = AGAIN_FIRST_S
    paused: bool = False
    lenient: bool = False  # until a batch is committed, a gap is recorded and passed over
    last: dict[str, Any] = field(default_factory=dict)  # progress of the newest batch
    counts: StepCounts = field(default_factory=StepCounts)


class FederationJob:
    """See the module."""

    def __init__(
        self, federation: Federation, links: Sequence[FederationLink], spark: SparkSession, state: StateFolder
    ) -> None:
        self.federation, self.links, self.spark, self.state = federation, list(links), spark, state
        self.running: dict[str, _Running] = {}
        self.stopping = threading.Event()
        self._topics_at = -TOPICS_S

    def run(self) -> None:
        """Until `stopping` is set; then every query ends behind the batch it is in."""
        with Servers() as servers:
            while not self.stopping.is_set():
                self._look(servers)
                self.stopping.wait(LOOK_S)
        for one in self.running.values():
            if one.query is not None:
                one.query.stop()

    def _look(self, servers: Servers) -> None:
        now = time.monotonic()
        if now - self._topics_at >= TOPICS_S:
            self._topics_at = now
            for link in self.links:
                self._discover(servers, link)
        paused = self.state.paused()
        for one in self.running.values():
            self._review(one, now)
            self._hold(one, one.flow.name in paused, now)
            if one.paused:
                continue
            if one.query is None and now >= one.again_at and self._initialising() < TOGETHER:
                self._begin(one, servers, now)
        self.state.say_flows({name: _state_of(one) for name, one in self.running.items()})

    def _hold(self, one: _Running, wanted: bool, now: float) -> None:
        """Pause or resume a flow: its query ends behind what it has committed, and goes on from its checkpoint."""
        if wanted and one.query is not None:
            one.query.stop()
            one.query = None
        if wanted != one.paused:
            log.info("flow %s is %s", one.flow.name, "paused" if wanted else "resumed")
            one.error, one.again_at, one.pause_s = "", now, AGAIN_FIRST_S
        one.paused = wanted

    def _initialising(self) -> int:
        return sum(
            one.query is not None and one.query.status["message"] == INITIALISING for one in self.running.values()
        )

    def _discover(self, servers: Servers, link: FederationLink) -> None:
        try:
            flows = servers.flows([link])
        except SyncpointError as error:
            log.warning("link %s: %s does not answer: %s", link.name, link.source.name, error)
            return
        for flow in flows:
            self.running.setdefault(flow.name, _Running(flow))

    def _begin(self, one: _Running, servers: Servers, now: float) -> None:
        flow = one.flow
        try:
            servers.ensure_target(flow)
            one.lenient = self.state.accepted(flow.name)
            if one.lenient:
                log.warning("flow %s begins anew behind messages that are gone, as accepted", flow.name)
                self.state.begin_anew(flow.name)
            start = flow.link.change.start
            if not self.state.has_checkpoint(flow.name):
                start = servers.begin_at(flow)
            one.query = self._query(flow, start, one.lenient)
        except SyncpointError as error:
            self._failed(one, str(error), now)
        except Exception as error:  # whatever Spark makes of it
            log.exception("flow %s does not begin", flow.name)
            self._failed(one, _error_text(error), now)
        else:
            log.info("flow %s has begun", flow.name)

    def _query(self, flow: Flow, start: str, lenient: bool) -> StreamingQuery:
        runtime = self.federation.runtime
        source = {**reading(flow, runtime), "startingPosition": start}
        frame = self.spark.readStream.format("pubsub").options(**source).load()
        frame = prepared(frame, flow)
        writer = frame.writeStream.format("pubsub").queryName(flow.name).outputMode("append")
        writer = writer.options(**writing(flow, self.state.checkpoint(flow.name)))
        if lenient:
            writer = writer.option("failOnDataLoss", "false")
        return writer.trigger(processingTime=f"{round(runtime.trigger_s * 1000)} milliseconds").start()

    def _review(self, one: _Running, now: float) -> None:
        if one.query is None:
            return
        if one.flow.link.steps:
            one.counts.add(one.query.recentProgress)
        progress = one.query.lastProgress
        if progress is not None and progress["numInputRows"]:
            one.last = dict(progress)
            one.error, one.pause_s = "", AGAIN_FIRST_S
            if one.lenient:
                one.query.stop()  # the gap is recorded; the next one shall stop it again
                one.query, one.lenient = None, False
                return
        if not one.query.isActive:
            error = one.query.exception()
            one.query = None
            self._failed(one, _error_text(error) if error is not None else "the query has ended", now)

    def _failed(self, one: _Running, error: str, now: float) -> None:
        log.error("flow %s: %s", one.flow.name, error)
        one.error, one.again_at = error, now + one.pause_s
        one.pause_s = min(one.pause_s * 2, AGAIN_MAX_S)


def _state_of(one: _Running) -> FlowState:
    state = "failed" if one.error else "running" if one.query is not None else "starting"
    if one.paused:
        state = "paused"
    if not one.last:
        return FlowState(state, one.error, counts=one.counts.totals)
    return FlowState(
        state,
        one.error,
        batches=one.last["batchId"] + 1,
        batch_s=one.last["durationMs"]["triggerExecution"] / 1000,
        counts=one.counts.totals,
    )


def _error_text(error: BaseException) -> str:
    """What a person needs of Spark's exception: the line that says what happened, not the stacks around it."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        del lines[0]  # py4j's own
    said = [line for line in lines if line.startswith(("pyspark_pubsub.", "syncpoint."))]
    return (said or lines or [type(error).__name__])[-1 if said else 0]


def main(arguments: Sequence[str] | None = None) -> int:
    """The program. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="syncpoint.federation.job")
    parser.add_argument("file", type=Path)
    parser.add_argument("--master", help="Spark's master; by default what spark-submit says")
    parser.add_argument("--conf", action="append", default=[], help="KEY=VALUE, a setting of Spark")
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
