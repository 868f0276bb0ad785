"""The fixtures of the fault matrix, and the table of what was found."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from syncpoint.testing.rigs.log_oracle import LogComparison
from tests.faults_spark.faults_kit import Case, Driver
from tests.spark.federation_kit import Site, sites

APART = {"clusters": "between two clusters", "patterns": "under the patterns of a federation"}
FOUND: list[tuple[str, LogComparison, float, str]] = []
FIGURES: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    for name, what in APART.items():
        parser.addoption(f"--{name}", action="store_true", help=f"the matrix {what}, and nothing else")


def pytest_configure(config: pytest.Config) -> None:
    for name, what in APART.items():
        config.addinivalue_line("markers", f"{name}: of the matrix {what}")


def _chosen(config: pytest.Config) -> str:
    """Which matrix this run is; "": the one that has no name."""
    return next((name for name in APART if config.getoption(f"--{name}")), "")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each run of the matrix has a table of its own."""
    chosen = _chosen(config)
    others = [one for one in items if next((name for name in APART if one.get_closest_marker(name)), "") != chosen]
    config.hook.pytest_deselected(items=others)
    items[:] = [one for one in items if one not in others]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def driver(folder: Path) -> Iterator[Driver]:
    made = Driver(folder / "driver")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def clusters(folder: Path) -> Iterator[dict[str, Site]]:
    with sites("ab", folder) as made:
        yield made


@pytest.fixture
def case(
    driver: Driver, clusters: dict[str, Site], folder: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Case]]:
    def make(*, target: Site | None = None, **options: Any) -> Case:
        name = re.sub("[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
        return Case(name, driver, clusters["a"], target or clusters["b"], folder, **options)

    yield make
    driver.release()


@pytest.fixture
def record() -> Callable[..., None]:
    """Put a row into the table of results."""

    def put(what: str, begun: float, verdict: LogComparison, note: str = "") -> None:
        FOUND.append((what, verdict, time.monotonic() - begun, note))

    return put


@pytest.fixture
def figure() -> Callable[[str], None]:
    """Print a figure, and put it beside the table."""

    def put(text: str) -> None:
        print(text)
        FIGURES.append(text)

    return put


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = os.environ.get("SYNCPOINT_FAULTS_TABLE")
    if not path or not (FOUND or FIGURES):
        return
    chosen = _chosen(session.config)
    text, mark = Path(path).read_text(), f"<!-- results{f' of {chosen}' if chosen else ''} -->\n"
    head, _, rest = text.partition(mark)
    following = rest.find("<!-- ")
    rows = [
        f"Run of {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {len(FOUND)} rows.",
        "",
        "| what was done | published | stored | lost | twice | changed | out of order | seconds | seen |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for what, verdict, seconds, note in FOUND:
        numbers = (
            verdict.published,
            verdict.stored,
            verdict.missing,
            verdict.twice,
            verdict.changed,
            verdict.disordered,
            round(seconds),
        )
        rows.append(f"| {what} | {' | '.join(map(str, numbers))} | {note} |")
    if FIGURES:
        rows += ["", "## Waking up", "", *(f"- {figure}" for figure in FIGURES)]
    behind = "" if following < 0 else "\n" + rest[following:]
    Path(path).write_text(head + mark + "\n" + "\n".join(rows) + "\n" + behind)
