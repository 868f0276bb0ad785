"""Faults under the patterns of a federation: one job with six tasks, killed as a whole at one point after the other.

Each round publishes more, holds whoever comes to the point first, kills it there, and lets a new job go on.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults_spark.faults_kit import Driver
from tests.spark.federation_kit import Site
from tests.spark.patterns_kit import PatternTasks

pytestmark = pytest.mark.patterns


@pytest.fixture(scope="module")
def patterns(driver: Driver, clusters: dict[str, Site], folder: Path) -> PatternTasks:
    made = PatternTasks(clusters, folder)
    made.publish()
    driver.start()
    begin(driver, made)
    made.caught_up()
    return made


def begin(driver: Driver, patterns: PatternTasks) -> None:
    driver.do(f"job(spark, {str(patterns.file)!r})")


def _judged(patterns: PatternTasks, record: Callable[..., None], what: str, begun: float) -> None:
    patterns.caught_up()
    for task, verdict in patterns.outcomes():
        record(f"{task}: {what}", begun, verdict)
        assert verdict.exact, (task, what, verdict)
        assert verdict.published >= patterns.published


@pytest.mark.parametrize("point", ["staging", "staged", "commit", "between", "committed"])
def test_the_job_is_killed_at_a_point(
    driver: Driver, patterns: PatternTasks, record: Callable[..., None], point: str
) -> None:
    begun = time.monotonic()
    driver.hold(point)
    patterns.publish()
    driver.reached(point)
    driver.kill()
    driver.start()
    begin(driver, patterns)
    _judged(patterns, record, f"SIGKILL of all of Spark at *{point}*", begun)


def test_the_state_folder_is_lost(driver: Driver, patterns: PatternTasks, record: Callable[..., None]) -> None:
    begun = time.monotonic()
    driver.hold("committed")
    patterns.publish()
    driver.reached("committed")
    driver.kill()
    shutil.rmtree(patterns.folder / "federation-state")
    driver.start()
    begin(driver, patterns)
    _judged(patterns, record, "SIGKILL behind a commit, and the whole state folder lost", begun)


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_server_is_killed(driver: Driver, patterns: PatternTasks, record: Callable[..., None], name: str) -> None:
    begun = time.monotonic()
    driver.hold("staged")
    patterns.publish()
    driver.reached("staged")
    patterns.clusters[name].server.kill9()
    driver.let_go("staged")
    patterns.clusters[name].server.start(120)
    _judged(patterns, record, f"SIGKILL of the {'source' if name == 'a' else 'target'} behind a stage", begun)
