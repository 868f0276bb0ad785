"""The supervisor: keeps as much of Spark running as the flows need, down to nothing.

Place: the process of `syncpoint federation run`; a driver around `scaling`, without a JVM. Once a second it asks the
sources how much waits, decides, and starts, resizes or stops Spark. A job that dies is started again, with pauses that
grow. Checkpoints and the targets' own records make every restart exact.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.backoff import Backoff
from syncpoint.programs.federation.flow_plan import FederationLink, Flow, absent_topics
from syncpoint.programs.federation.metrics import Metrics
from syncpoint.programs.federation.run_summary import RunSummary
from syncpoint.programs.federation.scaling import Scaling
from syncpoint.programs.federation.servers import FlowProgress, Servers
from syncpoint.programs.federation.sparks import Spark
from syncpoint.programs.federation.spec import Federation
from syncpoint.programs.federation.state import StateFolder, SupervisorState
from syncpoint.programs.federation.streams.stream_reports import with_reports

LOOK_S = 1.0
TOPICS_S = 5.0  # how often it is asked which topics there are
ASKED_MAX = 15  # of flows that have not begun, in one look
GIVE_UP_S = 30.0  # time after which a failing flow without progress, or a silent server, is not waited for
DEATHS_MAX = 3

log = logging.getLogger(__name__)


class Supervisor:
    """One federation. `on_progress` is called for every look: the flows' progress, and the state."""

    def __init__(
        self,
        file: Path,
        federation: Federation,
        links: Sequence[FederationLink],
        spark: Spark,
        state: StateFolder,
        *,
        metrics: Metrics | None = None,
        stopping: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.links, self.spark, self.state, self.metrics = list(links), spark, state, metrics
        runtime = federation.runtime
        if any(link.source.stream is not None for link in links):
            runtime = replace(runtime, warm=True)  # asleep, nobody would see what comes
        self.scaling = Scaling(runtime)
        self.flows: list[Flow] = []
        self.summary = RunSummary()
        self.stopping = stopping or threading.Event()
        self.on_progress: Callable[[Sequence[FlowProgress], SupervisorState], None] = lambda progress, state: None
        self._clock = clock
        self._said = SupervisorState(pid=os.getpid(), file=str(file), started=time.time())
        self._topics_at = -TOPICS_S
        self._asked_max: int | None = ASKED_MAX
        self._backoff, self._not_before = Backoff(1.0, 30.0), 0.0
        self._started_at: float | None = None  # when Spark was started, until a flow has copied something
        self._expected = False  # the job should be running
        self._failing: dict[str, tuple[int, float]] = {}  # flow -> rows it has copied, and since when that fails
        self._unlisted: dict[str, str] = {}  # sources whose topics could not be listed, and why
        self._absent: dict[str, str] = {}  # tasks whose topic does not exist, with remarks
        self._silent: dict[str, tuple[float, str]] = {}  # servers that do not answer: since when, and why
        self._deaths = 0  # of jobs in a row that have copied nothing
        self._spark_fails: tuple[float, str] | None = None  # since when Spark cannot be started, and why

    def run(self, *, until_done: bool = False) -> dict[str, str]:
        """Until `stopping` is set (or, `until_done`, until nothing waits any more, by the word of every server); then
        Spark is stopped. Returns the flows that could not be finished, the servers that did not answer, and why.
        """
        if until_done:
            self._asked_max = None  # whether all is copied has to be known of each flow, now
        quiet = 0  # looks in a row without anything to wait for; flows are asked one after the other
        unable: dict[str, str] = {}
        try:
            with Servers() as servers:
                while not self.stopping.is_set() and not (until_done and quiet == 2):
                    progress = self.step(servers)
                    unable = self.unable(progress)
                    quiet = quiet + 1 if self.quiet(progress, unable) else 0
                    if until_done and quiet:
                        self._topics_at = -TOPICS_S  # what has come last may travel on, in topics that are new
                    self.stopping.wait(LOOK_S)
        finally:
            self.spark.resize(0)
        return unable

    def unable(self, progress: Sequence[FlowProgress]) -> dict[str, str]:
        """What gets no further, and why: flows stopped by a gap, or failing again and again; servers that have not
        answered for a while; tasks whose topic does not exist; Spark, when it does not start.
        """
        now, flows, found = self._clock(), self.state.flows(), {}
        for one in progress:
            name, state = one.flow.name, flows.get(one.flow.name)
            if one.gap:
                found[name] = f"a gap before {one.gap}"
            elif not one.waiting or state is None or state.state != "failed":
                self._failing.pop(name, None)
            else:
                rows, since = self._failing.get(name, (-1, now))
                if rows != one.rows:
                    since = now
                self._failing[name] = (one.rows, since)
                if now - since >= GIVE_UP_S:
                    found[name] = state.error
        found |= {name: why for name, (since, why) in self._silent.items() if now - since >= GIVE_UP_S}
        found |= self._absent
        if self._spark_fails is not None and now - self._spark_fails[0] >= GIVE_UP_S:
            found["Spark"] = self._spark_fails[1]
        if self._deaths >= DEATHS_MAX:
            found["Spark"] = f"its job ended {self._deaths} times without copying anything"
        return found

    def quiet(self, progress: Sequence[FlowProgress], unable: Mapping[str, str]) -> bool:
        """Nothing waits that could still be copied. A server that does not answer is waited for until it is among the
        `unable`: what it has, nobody knows.
        """
        if any(name not in unable for name in self._silent):
            return False
        if "Spark" in unable:
            return True
        return all(
            one.lag == 0 or one.paused or one.flow.name in unable or any(name in unable for name in one.silent)
            for one in progress
        )

    def step(self, servers: Servers) -> list[FlowProgress]:
        """One look, and what follows from it; how far the flows are."""
        now = self._clock()
        if now - self._topics_at >= TOPICS_S:
            self._topics_at = now
            self.flows = self._existing(servers)
        paused = self.state.paused()
        found = with_reports(servers.progress_of(self.flows, self._asked_max), self.state.flows())
        progress = [replace(one, paused=one.flow.name in paused) for one in found]
        self.summary.look(progress, self.state.flows(), whole=not self._unlisted)
        self._note_silence(progress)
        lag = sum(one.waiting for one in progress if not one.gap and not one.paused)
        wanted = self.scaling.wanted(now, lag)
        self._notice_death(now)
        self._notice_life(now)
        if now >= self._not_before and (wanted != self.spark.executors or bool(wanted) != bool(self.spark.job)):
            self._resize(wanted, now)
        self._said = replace(
            self._said,
            job=self.spark.job,
            executors=self.spark.executors,
            wanted=wanted,
            lags={one.flow.name: one.lag for one in progress if one.lag is not None},
        )
        self.state.say(self._said)
        if self.metrics is not None:
            self.metrics.put(progress, self._said, self.state.flows())
        self.on_progress(progress, self._said)
        return progress

    def _existing(self, servers: Servers) -> list[Flow]:
        before = self._unlisted
        reported, self._unlisted = servers.reported_flows(self.links)
        for name, why in self._unlisted.items():
            if name not in before:
                log.warning("cannot list the topics of %s: %s", name, why)
        for name in before.keys() - self._unlisted.keys():
            log.info("the topics of %s can be listed again", name)
        flows = reported + [flow for flow in self.flows if flow.link.source.name in self._unlisted]
        absent = absent_topics(self.links, flows, self._unlisted)
        for task, why in absent.items() - self._absent.items():
            log.warning("%s: %s", task, why)
        self._absent = absent
        return flows

    def _note_silence(self, progress: Sequence[FlowProgress]) -> None:
        """Since when who has not answered. Topics that could not be listed are listed at the next look."""
        now, found = self._clock(), dict(self._unlisted)
        for one in progress:
            found.update(one.silent)
        self._silent = {name: (self._silent.get(name, (now, ""))[0], why) for name, why in found.items()}
        if self._unlisted:
            self._topics_at = -TOPICS_S

    def _notice_death(self, now: float) -> None:
        if self._expected and not self.spark.job:
            self._expected = False
            self._deaths += 1
            self._said = replace(self._said, failures=self._said.failures + 1)
            log.warning("the Spark job ended; restarting it in %.0f s", self._backoff.pause_s)
            self._not_before = now + self._backoff.failed()

    def _notice_life(self, now: float) -> None:
        if self._deaths and any(flow.batches for flow in self.state.flows().values()):
            self._deaths = 0
        if self._started_at is not None and any(flow.batches for flow in self.state.flows().values()):
            self._said = replace(self._said, woke_s=round(now - self._started_at, 1))
            self._started_at = None
            self._backoff.succeeded()

    def _resize(self, wanted: int, now: float) -> None:
        starting = bool(wanted) and not self.spark.job
        if starting:
            self.state.forget_flows()
        log.info("executors: %d, wanted: %d", self.spark.executors, wanted)
        try:
            self.spark.resize(wanted)
        except SyncpointError as error:
            log.error("%s", error.message)
            self._spark_fails = (self._spark_fails[0] if self._spark_fails else now, error.message)
            self._not_before = now + self._backoff.failed()
            return
        self._spark_fails = None
        self._expected = bool(wanted)
        if not wanted:
            self.state.forget_flows()
        if starting:
            self._started_at = now
            self._said = replace(self._said, starts=self._said.starts + 1)
