"""The fixtures of the fault matrix, and the table of what was found."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "spark"))
from faults_kit import Case, Driver  # helpers beside the tests; they are imported by path
from federation_kit import Site, sites

from syncpoint.testing.logs import Verdict

FOUND: list[tuple[str, str, Verdict, float, str]] = []


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="session")
def driver(folder: Path) -> Iterator[Driver]:
    made = Driver(folder / "driver")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def clusters(folder: Path) -> Iterator[dict[str, Site]]:
    with sites("ab", folder) as made:
        yield made


@pytest.fixture
def case(
    driver: Driver, clusters: dict[str, Site], folder: Path, request: pytest.FixtureRequest
) -> Callable[..., Case]:
    def make(*, target: Site | None = None, **options: Any) -> Case:
        name = request.node.name.replace("[", "-").replace("]", "").replace(" ", "-")
        return Case(name, driver, clusters["a"], target or clusters["b"], folder, **options)

    return make


@pytest.fixture
def record() -> Callable[..., None]:
    """Put a row into the table of results."""

    def put(kind: str, what: str, case: Case, verdict: Verdict, note: str = "") -> None:
        FOUND.append((kind, what, verdict, time.monotonic() - case.begun, note))

    return put


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = os.environ.get("SYNCPOINT_FAULTS_TABLE")
    if not path or not FOUND:
        return
    text = Path(path).read_text()
    head, mark, _ = text.partition("<!-- results -->\n")
    rows = [
        f"Run of {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {len(FOUND)} rows.",
        "",
        "| what was done | published | stored | lost | twice | changed | out of order | seconds | seen |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for _, what, verdict, seconds, note in FOUND:
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
    Path(path).write_text(head + mark + "\n" + "\n".join(rows) + "\n")
