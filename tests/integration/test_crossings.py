"""Every pair of what acts on messages and what happens to them, judged by a ledger of ids, in all three houses.

The pairs are those of `tests/kit/crossings/table.py`. Those of one column run at once, each in a project of its own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from tests.integration.test_recovery_disks import small_disk
from tests.kit.crossings import events
from tests.kit.crossings.cell import Cell
from tests.kit.crossings.features import BY_NAME
from tests.kit.crossings.house import FAKE_CLOCK, House, house
from tests.kit.crossings.table import REFUSED, SHORT, Pair, columns_of, pairs_of
from tests.kit.houses import KINDS

AT_ONCE = 6


@pytest.fixture(scope="module", params=KINDS)
def crossed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One of the three houses; each is started once."""
    with house(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


def cell_of(made: House, names: Sequence[str]) -> Cell:
    return Cell(made.endpoint, made.bucket, [one() for name, one in BY_NAME.items() if name in names])


def each(cells: Sequence[Cell], work: Callable[[Cell], object]) -> list[str]:
    """Do something with cells beside each other; what went wrong. A cell that failed is closed and left out later."""

    def one(cell: Cell) -> str:
        if cell.closed:
            return ""
        try:
            work(cell)
        except Exception as error:
            cell.close()
            return f"{cell}: {type(error).__name__}: {error}"
        return ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [found for found in pool.map(one, cells) if found]


def quiet(made: House, pairs: Sequence[Pair]) -> list[str]:
    """Run pairs with events that leave all others alone; what went wrong."""
    cells = {cell_of(made, pair.rows): pair for pair in pairs}

    def work(cell: Cell) -> None:
        cell.open()
        events.QUIET.get(cells[cell].column, events.nothing)(cell)
        cell.close()

    return each(list(cells), work)


@pytest.mark.long
@pytest.mark.parametrize("column", events.QUIET)
def test_a_column(crossed: House, column: str) -> None:
    assert not (wrong := quiet(crossed, columns_of(column))), "\n".join(wrong)


@pytest.mark.long
@pytest.mark.parametrize("row", BY_NAME)
def test_a_row_with_the_others(crossed: House, row: str) -> None:
    assert not (wrong := quiet(crossed, pairs_of(row))), "\n".join(wrong)


def test_what_once_failed(crossed: House) -> None:
    assert not (wrong := quiet(crossed, SHORT)), "\n".join(wrong)


@pytest.mark.parametrize("pair", REFUSED, ids=" x ".join)
def test_what_is_refused(crossed: House, pair: tuple[str, str]) -> None:
    cell = cell_of(crossed, pair)

    def configure_and_publish() -> None:
        cell.open()
        cell.publish(1)

    try:
        with pytest.raises(grpc.RpcError) as caught:
            configure_and_publish()
        assert caught.value.code().name == REFUSED[pair]
    finally:
        cell.close()


def struck(made: House, column: str, strike: Callable[[], Callable[[], object]]) -> None:
    """All rows at work while `strike` hits the house, until what it returned mends it; then judge."""
    cells = [cell_of(made, pair.rows) for pair in columns_of(column)]
    wrong = each(cells, Cell.open)
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(each, cells, lambda cell: cell.publish(insist=True))
        mend = strike()
        wrong += publishing.result()
    mend()
    wrong += each(cells, lambda cell: cell.publish(insist=True))
    wrong += each(cells, lambda cell: (cell.judge(exact=False), cell.judge_ids()))
    for cell in cells:
        cell.close()
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_kills(crossed: House) -> None:
    struck(crossed, "kill", lambda: (crossed.kill(), lambda: None)[1])


@pytest.mark.long
def test_adoption(crossed: House) -> None:
    if crossed.kind != "cluster":
        pytest.skip("only a cluster has another process that takes a chain over")

    def strike() -> Callable[[], object]:
        name = crossed.adopt()
        return lambda: crossed.bring_back(name)

    struck(crossed, "adoption", strike)


@pytest.mark.long
def test_a_clock_that_jumps(crossed: House) -> None:
    if crossed.kind == "cluster":
        pytest.skip("each process of a cluster has a clock of its own: `make faults` sets them")
    if not FAKE_CLOCK.exists():
        pytest.skip("faketime is not installed (Debian: apt-get install faketime)")

    def strike() -> Callable[[], object]:
        crossed.jump(100)
        return lambda: crossed.jump(0)

    struck(crossed, "clock jump", strike)


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system is mounted, which needs root")
def test_a_full_disk(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(small_disk(tmp_path / "disk", 500, "tmpfs"))
        made = stack.enter_context(house("node", tmp_path, disk))

        def strike() -> Callable[[], object]:
            return made.fill().join

        struck(made, "full disk", strike)
