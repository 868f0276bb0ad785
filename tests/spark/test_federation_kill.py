"""One SIGKILL over the plain link: the driver dies between the target's commit and Spark's checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from tests.faults_spark.faults_kit import Case, Driver
from tests.spark.federation_kit import Site, sites


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    made = Driver(tmp_path / "driver")
    yield made
    made.stop()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[dict[str, Site]]:
    with sites("ab", tmp_path) as made:
        yield made


def test_a_driver_killed_behind_the_commit_neither_loses_nor_duplicates(
    driver: Driver, pair: dict[str, Site], tmp_path: Path
) -> None:
    case = Case("killed", driver, pair["a"], pair["b"], tmp_path)
    driver.start()
    driver.hold("committed")
    case.begin()
    driver.reached("committed")
    driver.kill()
    case.publish(300, 400)
    case.run()
    verdict = case.verdict()
    assert verdict.exact
    assert (verdict.published, verdict.stored) == (400, 400)
