"""Write docs/crossings.md from the table of crossings that the tests run.

Usage: crossings.py (write the page) | crossings.py --check (exit code 1 when the page differs).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.kit.crossings.events import HARD, NEEDS, QUIET  # noqa: E402
from tests.kit.crossings.features import BY_NAME  # noqa: E402
from tests.kit.crossings.table import HOUSES_OF, IMPOSSIBLE, REFUSED, SHORT, TRIPLES, blow_of  # noqa: E402
from tests.kit.houses import KINDS  # noqa: E402

PAGE = ROOT / "docs" / "crossings.md"
LETTERS = {"node": "S", "workers": "W", "cluster": "C"}


def houses(kinds: Iterable[str]) -> str:
    """The letters of some houses."""
    return " ".join(LETTERS[kind] for kind in kinds)


def verdict(first: str, second: str) -> str:
    """One cell of the table."""
    for pair in ((first, second), (second, first)):
        if pair in IMPOSSIBLE:
            return "-"
        if pair in REFUSED:
            return "refused"
    return houses(HOUSES_OF.get(second, KINDS))


def summary(text: str | None) -> str:
    """The first line of a docstring."""
    return (text or "").strip().splitlines()[0]


def page() -> str:
    """The whole page."""
    rows, columns = list(BY_NAME), [*QUIET, *HARD]
    lines = [
        "# Crossings: features under events, and with each other",
        "",
        "Every feature that acts on messages is tried against everything that can happen to them, and against every",
        "other feature. Numbered messages are published by an official client, received where the feature sends",
        "them, and judged by a ledger: nothing is lost, nothing arrives that should not, keys keep their order, no",
        "copy is stored under more ids than its message was published with, and, unless a process dies, nothing",
        "arrives twice; where delivery is exactly-once, nothing whose acknowledgement was confirmed ever does.",
        "",
        "`tests/integration/test_crossings.py` runs the table, and `make crossings` writes this page from it. A letter",
        "says that a test runs the pair in that house: S one server, W one with workers, C a cluster. *refused*: the",
        "server refuses the configuration, and a test checks that. `-`: the pair cannot exist.",
        f"`make test` runs the {len(SHORT)} crossings that failed at some time, `make test-long` runs all of them.",
        "Sizes, keys, requests and pauses are drawn from a seed; `SYNCPOINT_CROSSINGS_SEED` gives another one. Single",
        'crossings run by `python -m tests.kit.crossings.run cluster "forward x seek back" --seed 7`.',
        "",
        "## Features under events",
        "",
        "| | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    lines += [f"| {row} | " + " | ".join(verdict(row, column) for column in columns) + " |" for row in rows]
    lines += ["", "| event | what happens |", "|---|---|"]
    for name, event in QUIET.items():
        also = f" Each row is crossed with *{NEEDS[name]}* for it." if name in NEEDS else ""
        lines.append(f"| {name} | {summary(event.__doc__)}{also} |")
    lines += [f"| {name} | {what[0].upper()}{what[1:]}. |" for name, what in HARD.items()]
    lines += [
        "",
        "The wrong clocks of single processes of a cluster, and its full disks, are in [faults.md](faults.md).",
    ]
    lines += ["", "## Features with each other", "", "| | " + " | ".join(rows[:-1]) + " |", "|---" * len(rows) + "|"]
    for at, row in enumerate(rows[1:], 1):
        cells = [verdict(other, row) if number < at else "" for number, other in enumerate(rows[:-1])]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    lines += ["", "| pair | why it is not tested |", "|---|---|"]
    lines += [f"| {first}, {second} | {why} |" for (first, second), why in IMPOSSIBLE.items()]
    lines += [f"| {first}, {second} | refused with {code} |" for (first, second), code in REFUSED.items()]
    pairs = len(list(combinations(rows, 2))) + len(rows) * len(columns)
    tested = pairs - len(IMPOSSIBLE) - len(REFUSED)
    lines += ["", f"{pairs} pairs: {tested} tested, {len(REFUSED)} refused, {len(IMPOSSIBLE)} impossible.", ""]
    lines += ["## Several features under an event", "", "Where a house does not know the blow, it is a kill.", ""]
    lines += ["| features | event | blow during it | its houses |", "|---|---|---|---|"]
    for one in TRIPLES:
        where = [kind for kind in KINDS if blow_of(one, kind) == one.blow]
        lines.append(f"| {', '.join(one.rows)} | {one.column} | {one.blow} | {houses(where)} |")
    return "\n".join([*lines, ""])


def main(arguments: list[str]) -> int:
    """See the module."""
    new = page()
    if arguments == ["--check"]:
        return int(not PAGE.exists() or PAGE.read_text() != new)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
