"""The fault matrix: something dies or is lost, the query is started again, and the logs are compared by ids."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_pubsub.options import ServerAccess
from pyspark_pubsub.rpc import BlockingChannel, pb
from pyspark_pubsub.staging import SinkTarget, StagedPart, stage
from syncpoint.programs.federation.transform import CARRIED
from syncpoint.testing.rigs.log_oracle import LogComparison, judge
from syncpoint.wire.protobuf import methods
from tests.faults_spark.faults_kit import Case, Driver, Failed, Unguarded, kill_one
from tests.spark.federation_kit import Site, awaited

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.shows("spark-faults"),
]  # two cores, with a JVM and several servers on them

Make = Callable[..., Case]
Record = Callable[..., None]
BY_ROW = {"columns": ",".join(CARRIED)}


def newest(folder: Path) -> Path:
    return max((one for one in folder.iterdir() if one.name.isdigit()), key=lambda one: int(one.name))


@pytest.mark.parametrize(
    ("point", "where"),
    [
        ("staged", "while a task has staged"),
        ("commit", "between the sink's writing and the commit"),
        ("committed", "between the commit and Spark's checkpoint"),
        ("committed", "between the commit and Spark's checkpoint, a copy by row"),
    ],
)
def test_driver(point: str, where: str, case: Make, driver: Driver, record: Record) -> None:
    one = case(**(BY_ROW if "by row" in where else {}))
    driver.do("1")
    driver.hold(point)
    one.begin()
    driver.reached(point)
    driver.kill()
    one.publish(300, 400)
    one.run()
    record(f"SIGKILL of the driver {where}", one.begun, one.verdict())
    assert one.verdict().exact
    assert one.verdict().stored == 400


@pytest.mark.parametrize(
    ("point", "where"),
    [
        ("staging", "in the middle of a stage"),
        ("staging", "in the middle of a stage, a copy by row"),
        ("staged", "behind a whole stage"),
    ],
)
def test_worker(point: str, where: str, case: Make, driver: Driver, record: Record) -> None:
    one = case(**(BY_ROW if "by row" in where else {}))
    driver.do("1")
    held = driver.hold(point)
    one.begin()
    kill_one(driver.reached(point))
    held.unlink()
    driver.do("query.awaitTermination()")
    record(f"SIGKILL of the Python worker {where}", one.begun, one.verdict(), "Spark ran the task again")
    assert one.verdict().exact
    assert one.verdict().stored == 300


@pytest.mark.parametrize(
    ("name", "point", "where"),
    [
        ("b", "staging", "the target in the middle of a stage"),
        ("b", "staged", "the target behind a whole stage"),
        ("b", "commit", "the target just before the commit"),
        ("a", "staging", "the source while it is read"),
    ],
)
def test_server(
    name: str, point: str, where: str, case: Make, driver: Driver, clusters: dict[str, Site], record: Record
) -> None:
    one = case()
    driver.do("1")
    held = driver.hold(point)
    one.begin()
    driver.reached(point)
    clusters[name].server.restart(hard=True)
    held.unlink()
    try:
        driver.do("query.awaitTermination()")
        again = 0
    except Failed:
        again = 1 + one.run()
    record(f"SIGKILL of {where}", one.begun, one.verdict(), f"query started again {again} time(s)")
    assert one.verdict().exact
    assert one.verdict().stored == 300


def test_target_within_commits(case: Make, driver: Driver, clusters: dict[str, Site], record: Record) -> None:
    """The target dies a few milliseconds after a commit was sent, epoch after epoch."""
    one = case()
    driver.do("1")
    held = driver.hold("commit")
    one.begin()
    again = 0
    for delay_s in (0.0, 0.004, 0.012):
        driver.reached("commit")
        release = threading.Timer(delay_s, clusters["b"].server.kill9)
        release.start()
        driver.let_go("commit")
        release.join()
        held.touch()
        clusters["b"].server.start()
        if not driver.do("query.isActive"):
            again += 1
            one.begin()
    held.unlink()
    try:
        driver.do("query.awaitTermination()")
    except Failed:
        again += 1 + one.run()
    record("SIGKILL of the target within three commits", one.begun, one.verdict(), f"started again {again} time(s)")
    assert one.verdict().exact


@pytest.mark.parametrize(
    ("what", "folders"), [("newest commit", ("commits",)), ("newest epoch", ("commits", "offsets"))]
)
def test_checkpoint_rolled_back(
    what: str, folders: tuple[str, ...], case: Make, driver: Driver, record: Record
) -> None:
    one = case()
    one.run()
    for name in folders:
        newest(one.checkpoint / name).unlink()
    one.publish(300, 400)
    one.run(rows=70)
    record(f"the checkpoint has lost its {what}", one.begun, one.verdict())
    assert one.verdict().exact
    assert one.verdict().stored == 400


def test_checkpoint_lost(case: Make, driver: Driver, record: Record) -> None:
    one = case()
    one.run()
    shutil.rmtree(one.checkpoint)
    one.publish(300, 400)
    one.run(rows=70)
    record("the whole checkpoint is lost", one.begun, one.verdict(), "all read again, what was there dropped")
    assert one.verdict().exact
    assert one.verdict().stored == 400


def test_several_targets(case: Make, driver: Driver, clusters: dict[str, Site], record: Record) -> None:
    """An epoch that writes to three topics is in all of them or in none, also when the target dies in the commit."""
    one = case(link="")
    names = [clusters["b"].topic(f"part-{number}") for number in range(3)]
    one.options["split"] = "concat('projects/fed/topics/part-', cast(int(attributes['n']) % 3 AS string))"

    def counts() -> list[int]:
        return [len(clusters["b"].log(name)) for name in names]

    driver.do("1")
    held = driver.hold("commit")
    one.begin()
    seen = []
    for kill in (False, True, False):
        driver.reached("commit")
        before = counts()
        if kill:
            clusters["b"].server.kill9()
            clusters["b"].server.start()
        seen.append((before, counts()))
        driver.hold("committed")
        driver.let_go("commit")
        driver.reached("committed")
        held.touch()
        grown = [more - less for more, less in zip(counts(), before, strict=True)]
        assert sum(grown) == 50
        assert min(grown) >= 16
        driver.let_go("committed")
    held.unlink()
    driver.do("query.awaitTermination()")
    assert all(sum(before) % 50 == 0 and before == later for before, later in seen)
    published = clusters["a"].log(one.topic)
    parts = [[message for message in published if int(message.attributes["n"]) % 3 == number] for number in range(3)]
    verdicts = [judge(part, clusters["b"].log(name)) for part, name in zip(parts, names, strict=True)]
    verdict = LogComparison(*map(sum, zip(*map(astuple, verdicts), strict=True)))
    record("three target topics, the target killed before a commit", one.begun, verdict, "epochs in all or in none")
    assert verdict.exact


class Successor:
    """A later run of a query, played by hand: it stages and commits as Spark would, and is not killed with it."""

    def __init__(self, case: Case) -> None:
        self._query = json.loads((case.checkpoint / "metadata").read_text())["id"]
        self._rows = pa.Table.from_batches([batch for _, batch in case.source.oracle.batches(case.topic)])
        access = ServerAccess((case.target.server.endpoint,))
        columns = ("message_id", "publish_time", "data", "attributes", "ordering_key")
        self._target = SinkTarget(access, case.topic, columns, keep_identity=True)

    def stage(self, epoch: int, first: int, end: int) -> None:
        rows = self._rows.slice(first, end - first).combine_chunks()
        stage(self._target, StagedPart(self._query, "the-later-run", epoch, 0, "x"), iter(rows.to_batches()))

    def commit(self, epoch: int) -> None:
        request = pb.CommitEpochRequest(run=pb.Run(query=self._query, run="the-later-run"), epoch=epoch)
        request.stages.add(partition=0, attempt="x")
        BlockingChannel(self._target.access).call(methods.EPOCH_WRITER.CommitEpoch, request)


def zombie(one: Case, driver: Driver) -> str:
    """A run hangs in the middle of a stage of 40 messages. A later one stages the same epoch larger, with 120. Then the
    first wakes up, stages to the end, and commits if it may. At last the later one commits, and goes on. What the first
    was notified.
    """
    driver.do("1")
    held = driver.hold("staging")
    committed = driver.hold("committed").with_name("committed.reached")
    one.begin(rows=40)
    driver.reached("staging")
    later = Successor(one)
    later.stage(0, 0, 120)
    held.unlink()
    awaited(lambda: committed.exists() or not driver.do("query.isActive"), "the end of the first run")
    reported = "" if committed.exists() else str(driver.do("str(query.exception())"))
    driver.kill()
    later.commit(0)
    later.stage(1, 120, 300)
    later.commit(1)
    return reported


def test_zombie(case: Make, driver: Driver, record: Record) -> None:
    one = case(link="")
    reported = zombie(one, driver)
    record("a superseded run wakes up, stages and commits", one.begun, one.verdict(), "refused: it was superseded")
    assert "superseded" in reported
    assert one.verdict().exact
    assert one.verdict().stored == 300


def test_negative_control(case: Make, driver: Driver, record: Record) -> None:
    """A sink that publishes as it goes does duplicate: the matrix can see it."""
    one = case()
    one.what = "naive"
    driver.do("1")
    driver.hold("committed")
    one.begin()
    driver.reached("committed")
    driver.kill()
    one.run()
    stored = one.target.log(one.topic)
    numbers = [message.attributes["n"] for message in stored]
    twice = len(numbers) - len(set(numbers))
    verdict = LogComparison(300, len(stored), 300 - len(set(numbers)), twice, 0, 0, 0)
    record("negative control: a naive sink, the driver killed", one.begun, verdict, "duplicates, as expected")
    assert twice == 50


# -- without a guard, damage is done, and seen -------------------------------------------------------------------------


@pytest.fixture
def without(request: pytest.FixtureRequest, folder: Path) -> Any:
    guard: str = request.param
    site = Site("b", Unguarded(guard, folder / guard.replace(" ", "-")).start())
    yield site
    site.close()


@pytest.mark.parametrize("without", ["run fence"], indirect=True)
def test_without_run_fence(without: Site, case: Make, driver: Driver, record: Record) -> None:
    one = case(target=without, link="")
    assert not zombie(one, driver)
    record("WITHOUT the run fence: a superseded run commits", one.begun, one.verdict(), "lost, as expected")
    assert one.verdict().missing == 80


@pytest.mark.parametrize("without", ["interval"], indirect=True)
def test_without_intervals(without: Site, case: Make, driver: Driver, record: Record) -> None:
    one = case(target=without)
    one.run()
    shutil.rmtree(one.checkpoint)
    one.run()
    record("WITHOUT intervals: the checkpoint is lost", one.begun, one.verdict(), "twice, as expected")
    assert one.verdict().twice == 300


@pytest.mark.parametrize("without", ["idempotent epoch"], indirect=True)
def test_without_idempotent_epochs(without: Site, case: Make, driver: Driver, record: Record) -> None:
    one = case(target=without, link="")
    one.run()
    newest(one.checkpoint / "commits").unlink()
    one.run()
    record("WITHOUT idempotent epochs: the newest commit is lost", one.begun, one.verdict(), "twice, as expected")
    assert one.verdict().twice == 50


@pytest.mark.parametrize("without", ["choice of the attempt"], indirect=True)
def test_without_choice_of_attempt(without: Site, case: Make, driver: Driver, record: Record) -> None:
    one = case(target=without, link="")
    driver.do("1")
    held = driver.hold("staged")
    one.begin()
    kill_one(driver.reached("staged"))
    held.unlink()
    driver.do("query.awaitTermination()")
    record("WITHOUT the choice of the attempt: a worker is killed", one.begun, one.verdict(), "twice, as expected")
    assert one.verdict().twice == 50
