"""Run crossings on a house, and say what went wrong in each.

From a shell: python -m tests.kit.crossings.run cluster "forward x seek back" "export x kill" --seed 7
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.kit.crossings import events
from tests.kit.crossings.cell import Cell
from tests.kit.crossings.features import BY_NAME
from tests.kit.crossings.house import House, house
from tests.kit.crossings.table import TRIPLES, Crossing, blow_of, columns_of, pairs_of, struck_by
from tests.kit.houses import KINDS

AT_ONCE: Final = 6
QUIET_AT_ONCE, STRUCK_AT_ONCE = 24, 20


def each(cells: Sequence[Cell], work: Callable[[Cell], object], at_once: int = AT_ONCE) -> list[str]:
    """Do something with cells beside each other; what went wrong. A cell that failed is closed and left out later."""

    def one(cell: Cell) -> str:
        if cell.closed:
            return ""
        try:
            work(cell)
        except Exception as error:
            cell.close()
            steps = [one for one in traceback.extract_tb(error.__traceback__) if "crossings" in one.filename]
            where = " > ".join(f"{one.name}:{one.lineno}" for one in steps[1:])
            return f"{cell}: {where}: {type(error).__name__}: {error}"
        return ""

    with ThreadPoolExecutor(at_once) as pool:
        return [found for found in pool.map(one, cells) if found]


def cell_of(made: House, crossing: Crossing, seed: int = 0) -> Cell:
    """The cell in which a crossing is run."""
    features = [one() for name, one in BY_NAME.items() if name in crossing.rows]
    return Cell(made.endpoint, made.bucket, features, str(crossing), seed=seed, struck=bool(crossing.blow))


def quiet(made: House, crossings: Sequence[Crossing], seed: int = 0) -> list[str]:
    """Run crossings whose events leave all others alone; what went wrong."""
    cells = {cell_of(made, crossing, seed): crossing for crossing in crossings}

    def work(cell: Cell) -> None:
        cell.open()
        events.QUIET.get(cells[cell].column, events.nothing)(cell)
        cell.close()

    return each(list(cells), work)


def struck(made: House, crossings: Sequence[Crossing], seed: int = 0) -> list[str]:
    """Run crossings that one blow strikes, all at work while it does; what went wrong."""
    cells = {cell_of(made, crossing, seed): crossing for crossing in crossings}
    wrong = each(list(cells), Cell.open)

    def work(cell: Cell) -> None:
        column = cells[cell].column
        events.QUIET[column](cell) if column else cell.publish()

    (blow,) = {blow_of(crossing, made.kind) for crossing in crossings}
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(each, list(cells), work, len(cells))
        mend = made.strike(blow)
        mend()
        wrong += working.result()
    wrong += each(list(cells), Cell.publish)
    wrong += each(list(cells), Cell.judge)
    for cell in cells:
        cell.close()
    return wrong


def all_of(kind: str) -> list[Crossing]:
    """Everything that can be run in a house of this kind, but for a disk of its own."""
    found = [one for column in events.QUIET for one in columns_of(column)]
    found += [one for row in BY_NAME for one in pairs_of(row)]
    found += [one for blow in events.HARD for one in struck_by(blow) if blow_of(one, kind) == blow != "full disk"]
    return [*found, *TRIPLES]


def groups_of(kind: str, crossings: Sequence[Crossing]) -> Iterator[list[Crossing]]:
    """Crossings that can be run beside each other in a house of this kind: quiet ones, or those of one blow."""
    parts: dict[tuple[str, bool], list[Crossing]] = {}
    for one in crossings:
        parts.setdefault((blow_of(one, kind), one in TRIPLES), []).append(one)
    for (blow, _), part in parts.items():
        size = STRUCK_AT_ONCE if blow else QUIET_AT_ONCE
        yield from (part[at : at + size] for at in range(0, len(part), size))


def run(made: House, crossings: Sequence[Crossing], seed: int = 0) -> list[str]:
    """Run crossings of one group; what went wrong."""
    return (struck if crossings[0].blow else quiet)(made, crossings, seed)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("crossings", nargs="+", help="each as its rows, event and blow, with x in between; or `all`")
    parser.add_argument("--seed", type=int, action="append")
    given = parser.parse_args()
    known = {str(one): one for one in all_of(given.kind)}
    if unknown := set(given.crossings) - {"all", *known}:
        parser.error(f"unknown in this house: {', '.join(sorted(unknown))}")
    chosen = [one for name, one in known.items() if {name, "all"} & set(given.crossings)]
    failed = 0
    with tempfile.TemporaryDirectory() as folder, house(given.kind, Path(folder)) as made:
        for seed in given.seed or [0]:
            for group in groups_of(given.kind, chosen):
                begun = time.monotonic()
                wrong = run(made, group, seed)
                took_s = time.monotonic() - begun
                print(f"seed {seed}, {len(group)} from {group[0]} on: {took_s:.0f} s", *wrong, sep="\n", flush=True)
                failed += len(wrong)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
