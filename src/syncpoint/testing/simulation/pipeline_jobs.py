"""What a run of jobs is, over one node and over a cluster: jobs come and go, faults happen, all is judged at the end.

Place: under `pipeline_runs` (one node) and `pipeline_clusters`, which say what a simulation begins with, which faults
there are, and what is killed before everything is checked once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.pipeline import epoch_apply, epochs, mounting, staging
from syncpoint.broker.pipeline.writing import EpochWriter
from syncpoint.testing.rigs.checkers import CheckResult
from syncpoint.testing.simulation.pipeline_calls import AWAY, GapFound, PipelineCalls
from syncpoint.testing.simulation.pipeline_checkers import (
    FoundRow,
    copies_are_mapped,
    epochs_are_whole,
    epochs_in_order,
    everything_is_read,
    links_copy_once,
    links_count,
    nothing_else_is_visible,
    older_runs_are_fenced,
    resets_are_read_again,
    results_are_true,
    stays,
)
from syncpoint.testing.simulation.pipeline_history import Row, SeekSpan, SourcePlace
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.sim_runs import SimRun
from syncpoint.testing.simulation.simulated_jobs import ALONE, LINK, PipelineShape, SimulatedJobs
from syncpoint.testing.simulation.spark import drive
from syncpoint.testing.simulation.spark_jobs import (
    SOURCE,
    SUBSCRIPTION,
    TARGETS,
    Concurrent,
    JobFailed,
    QueryFenced,
    SimJob,
)
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline, pubsub

W = TypeVar("W", bound=SimulatedJobs)
DRAIN_S = 40.0
QUIESCE_S = 20.0
PULLED = "pulled"
KEPT_S = 30 * 86_400
STALE_S = 4.0  # of what is staged, once all is quiet


@contextmanager
def small_steps(shape: PipelineShape) -> Iterator[None]:
    """Sizes and times on which no promise depends, so that a small epoch takes many steps."""
    with ExitStack() as stack:
        stack.enter_context(patched(mounting, TIDY_S=3.0))
        if shape.small:
            stack.enter_context(patched(staging, PIECE_BYTES=300))
            stack.enter_context(patched(epoch_apply, TURN_BYTES=700, UNPERSISTED_BYTES_MAX=1_500, AGAIN_S=0.2))
        yield


def _retaining(topic: str) -> str:
    """The subscription because of which a topic keeps its messages."""
    return f"keeps-{topic.rpartition('/')[2]}"


class JobsRun(SimRun[W]):
    """Run jobs over a node or a cluster.

    `patience_s`: how long clients ask again; `last_s`: within so long all that live get on.
    """

    patience_s = 4.0
    drain_s, quiesce_s, last_s = DRAIN_S, QUIESCE_S, 40.0
    keeping = frozenset(f"projects/p/subscriptions/{_retaining(topic)}" for topic in TARGETS)

    def __init__(self, sim: W, seed: int, random: SeededRandom) -> None:
        super().__init__(sim, seed, random)
        self.calls = PipelineCalls(sim, patience_s=20.0)
        self.seconds = 2.0 + 5.0 * self.random.random()
        self.jobs = [SimJob(sim, kind, self.patience_s) for kind in sim.shape.queries]
        self.well = False  # drivers die no more
        self.zombies: list[asyncio.Task[None]] = []
        self.runs = 0
        self.quiescing = False

    async def begin(self) -> None:
        """Start everything that serves."""
        raise NotImplementedError

    def now_ns(self) -> int | None:
        """What the clock says by which messages are stamped; None: there are several, and they do not agree."""
        return None

    async def go_wrong(self) -> None:
        """Faults happen."""
        raise NotImplementedError

    def heal(self) -> None:
        """They are over."""
        raise NotImplementedError

    async def strike(self) -> None:
        """Once all is quiet: kill what serves, and start it again."""
        raise NotImplementedError

    def writers(self) -> list[EpochWriter]:
        """The writing sides of all logs that are served."""
        raise NotImplementedError

    async def run(self) -> None:
        sim = self.sim
        await self.begin()
        await self.within([self._create()], self.last_s)
        publishing = [self.start(self._publish(f"p{number}")) for number in range(1 + self.random.randrange(0, 2))]
        watching = [self.start(self._watch(job)) for job in self.jobs]
        looking = self.start(self._look())
        living = [*publishing, *([self.start(self._seek())] if ALONE in sim.shape.queries else [])]
        await self.go_wrong()
        self.heal()
        self.healed()
        self.well = True
        for zombie in self.zombies:
            zombie.cancel()
        await self.within(living, self.last_s)
        complaints = await self.drain(self.drain_s)
        looking.cancel()
        for one in watching:
            one.cancel()
        await asyncio.sleep(0)
        if not complaints:
            complaints = await self._quiesce()
        self._coverage()
        verdicts = await self._asked(self._verdicts()) if not complaints else []
        self.judge(complaints, 1e9, *verdicts)
        await sim.close()

    async def _asked(self, work: Any) -> Any:
        """What a client finds out, once all is well."""
        task = self.start(work)
        await self.within([task], 60)
        return task.result() if task.done() and not task.cancelled() else []

    # -- what happens ------------------------------------------------------------------------------------------------

    async def _create(self) -> None:
        sim = self.sim
        await sim.create_topic(SOURCE, KEPT_S if sim.shape.kept else 0)
        for topic in TARGETS:
            await sim.create_topic(topic)
            await sim.subscribe(_retaining(topic), topic=topic, judged_as=topic)
        if ALONE in sim.shape.queries:
            await sim.subscribe(ALONE, topic=SOURCE, judged_as=SOURCE)
        for creation in sim.history.creations:
            creation.until = 1  # they keep messages; nobody is to be delivered any
        if sim.shape.pulled:
            await sim.subscribe(PULLED, topic=SOURCE, judged_as=SOURCE, exactly_once=self.seconds > 4)
            for number in range(2):
                self.start(sim.consume(PULLED, f"c{number}"))

    async def _publish(self, client: str) -> None:
        number = 0
        while self.publishing:
            await self.sim.publish(client, number, "", topic=SOURCE, judged_as=SOURCE)
            number += 1
            await asyncio.sleep(self.random.random() ** 2 * 0.16)

    async def _seek(self) -> None:
        sim, pipelines = self.sim, self.sim.pipelines
        for _ in range(self.random.randrange(0, 3)):
            await asyncio.sleep(0.5 + self.random.random() * self.seconds * 0.6)
            if not self.publishing:
                return
            back = sim.shape.kept and self.random.random() < 0.7
            now_ns = self.now_ns()
            if not back and now_ns is None:
                return
            request = pubsub.SeekRequest(subscription=SUBSCRIPTION)
            request.time.FromNanoseconds(10**9 if back or now_ns is None else now_ns)
            seek_span = SeekSpan(back, sim.shape.kept, sim.history.stamp())
            pipelines.seeks.append(seek_span)
            await sim.insist(methods.SUBSCRIBER.Seek, request)
            seek_span.ended = sim.history.stamp()
            sim.coverage.sometimes("a subscription is reset while it is read alone")
            sim.note(f"client: reset by a seek {'back' if back else 'to now'}")

    # -- jobs --------------------------------------------------------------------------------------------------------

    def _new_run(self) -> str:
        self.runs += 1
        return f"r{self.runs}"

    async def _watch(self, job: SimJob) -> None:
        """Drivers die, or are given up and go on; new ones begin, mostly as a new run."""
        sim, run = self.sim, self._new_run()
        while True:
            driver = self.start(drive(job, run))
            life_s = 1e9 if self.well or self.random.random() < 0.2 else 0.2 + 2.5 * self.random.random() ** 2
            over = sim.loop.time() + life_s
            try:
                while not driver.done() and (self.well or sim.loop.time() < over):
                    await asyncio.wait([driver], timeout=min(0.5, max(0.01, over - sim.loop.time())))
            except asyncio.CancelledError:
                driver.cancel()
                raise
            if driver.done():
                try:
                    driver.result()
                except (JobFailed, QueryFenced, Concurrent, SyncpointError, GapFound) as error:
                    sim.coverage.sometimes(f"a driver fails: {type(error).__name__}")
                    job.note(f"{run} ends: {type(error).__name__} {str(error)[:60]}")
            elif self.random.random() < 0.5:
                driver.cancel()
                sim.coverage.sometimes("a driver is killed")
                job.note(f"{run} is killed")
            else:
                self.zombies.append(driver)
                driver.add_done_callback(_ended)
                sim.coverage.sometimes("a driver goes on as a zombie")
                job.note(f"{run} goes on as a zombie")
            job.idle_since = None
            if not self.well:
                self._set_back(job)
            if self.random.random() < 0.8:
                run = self._new_run()
            await asyncio.sleep(0.3 * self.random.random())

    def _set_back(self, job: SimJob) -> None:
        """Where the driver was, the power may have gone, too."""
        lots = self.random.random()
        if lots < 0.15:
            plan = job.kind == LINK and lots < 0.1
            job.checkpoint.lose(plan)
            self.sim.coverage.sometimes("a checkpoint loses a plan" if plan else "a checkpoint loses a commit")
        elif lots > 0.96 and job.kind != ALONE:
            job.fresh()
            job.latest = job.kind == LINK and self.random.random() < 0.5
            self.sim.pipelines.gaps_begun += job.latest
            self.sim.coverage.sometimes("a checkpoint is lost")

    # -- what is visible ---------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """While all goes on: what is visible was named by a commit that had been asked for."""
        while True:
            await asyncio.sleep(0.3 + self.random.random())
            topic = TARGETS[self.random.randrange(0, len(TARGETS))]
            try:
                found = await self._visible(PipelineCalls(self.sim, 0.0), topic)
            except SyncpointError as error:
                # A disk that cannot be read says so, whatever the reason.
                self.sim.coverage.always("looking is answered", error.code in (*AWAY, Code.DATA_LOSS), str(error))
                continue
            named = {attempt for commit in self.sim.pipelines.commits for attempt in commit.attempts}
            for one in found:
                early = one.row.attempt not in named
                self.sim.coverage.always("nothing is visible before its commit", not early, f"{one}")

    async def _visible(self, calls: PipelineCalls, topic: str) -> list[FoundRow]:
        positions = await calls.positions(topic=topic)
        found = []
        for one in positions.sources:
            rows = await calls.read(topic, positions.topic_incarnation, one.source, one.begin, one.end)
            found += [FoundRow(topic, SourcePlace(one.source, offset), Row.decode(body)) for offset, body in rows]
        return found

    # -- the end -----------------------------------------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        sim = self.sim
        found = [
            f"the job {job.checkpoint.query} has more to do, it is at batch {job.checkpoint.next}"
            for job in self.jobs
            if job.idle_since is None or sim.now - job.idle_since < 1.0
        ]
        return found + self.owed()

    def staged(self) -> list[str]:
        """What is staged, or decided and not done."""
        found = []
        for writer in self.writers():
            state, area = writer.state, writer.area
            found += [f"stage {one.id} of epoch {one.epoch} of {one.query} is left" for one in state.stages.values()]
            found += [f"epoch {one.epoch} of {one.query} is decided and not done" for one in state.decisions.values()]
            found += [f"{area.bytes} bytes are held as staged"] if area.bytes else []
        return found

    async def _quiesce(self) -> list[str]:
        """Stages that nobody commits are dropped, and so is what nobody needs."""
        with patched(epochs, STALE_NS=round(STALE_S * 1e9)):
            self.quiescing = True
            return await self.drain(self.quiesce_s)

    def _coverage(self) -> None:
        pipelines, coverage = self.sim.pipelines, self.sim.coverage
        links = [link for writer in self.writers() for link in writer.state.links.values()]
        coverage.sometimes("a gap is accepted", any(link.skipped for link in links))
        coverage.sometimes("a commit stays unknown", any(one.result is None for one in pipelines.commits))

    async def _state(self) -> dict[str, Any]:
        """Everything that must stay."""
        links = await self._links()
        asked = pipeline.ListCursorsRequest(topic=SOURCE)
        cursors = await self.calls.patiently(methods.LOG_READER.ListCursors, asked)
        state: dict[str, Any] = {f"link {link.name}": link.SerializeToString(deterministic=True) for link in links}
        for cursor in cursors.cursors:
            for one in cursor.ranges:
                if one.begin < one.end:
                    state[f"cursor {cursor.name} at {one.source}"] = (one.begin, one.end)
        for topic in TARGETS:
            state[topic] = await self._visible(self.calls, topic)
        return state

    async def _links(self) -> list[Any]:
        answer = await self.calls.patiently(methods.EPOCH_WRITER.ListLinks, pipeline.ListLinksRequest())
        return list(answer.links)

    async def _verdicts(self) -> list[CheckResult]:
        """In a client: look at everything, let what serves die, look again, judge."""
        pipelines = self.sim.pipelines
        await asyncio.sleep(2.0)  # movements of cursors are written within a second
        before = await self._state()
        await self.strike()
        after = await self._state()
        rows = [one for topic in TARGETS for one in after[topic]]
        links = await self._links()
        mapped = {}
        for link in links:
            for source in {row.place.source for _, _, row in rows if row.query.startswith(LINK)}:
                mapped.update(await self._mapped(link.name, source))
        return [
            stays(before, after),
            epochs_are_whole(pipelines, rows),
            epochs_in_order(rows),
            nothing_else_is_visible(pipelines, rows),
            results_are_true(pipelines, rows),
            older_runs_are_fenced(pipelines),
            links_copy_once(pipelines, rows, links),
            links_count(pipelines, rows, links),
            copies_are_mapped(rows, mapped),
            everything_is_read(self.sim.history, pipelines, rows, self._began()),
            *await self._alone(rows),
            *self.further_verdicts(),
        ]

    def _began(self) -> dict[str, int]:
        """By query, since when it has read everything; a subscription that is read alone is judged by itself."""
        checkpoints = [job.checkpoint for job in self.jobs if job.kind != ALONE]
        return {one.query: one.began for one in checkpoints if one.began}

    async def _alone(self, rows: list[FoundRow]) -> list[CheckResult]:
        if ALONE not in self.sim.shape.queries:
            return []
        positions = await self.calls.positions(subscription=SUBSCRIPTION)
        return [resets_are_read_again(self.sim.history, self.sim.pipelines, rows, positions.generation)]

    def further_verdicts(self) -> list[CheckResult]:
        """Those that only some simulations have."""
        return []

    async def _mapped(self, link: str, source: int) -> dict[SourcePlace, tuple[str, SourcePlace]]:
        found: dict[SourcePlace, tuple[str, SourcePlace]] = {}
        request = pipeline.MapOffsetsRequest(link=link, source=source, begin=0, end=1 << 40)
        answer = await self.calls.patiently(methods.EPOCH_WRITER.MapOffsets, request)
        for one in answer.mappings:
            begin = getattr(one, "from").begin
            for to in one.to:
                for offset in range(to.begin, to.end):
                    found[SourcePlace(source, begin + offset - to.begin)] = (to.topic, SourcePlace(to.source, offset))
        return found


def _ended(zombie: asyncio.Task[None]) -> None:
    """What becomes of a zombie is its own affair."""
    if not zombie.cancelled():
        error = zombie.exception()
        if error is not None and not isinstance(error, (JobFailed, QueryFenced, Concurrent, SyncpointError, GapFound)):
            raise error
