"""Write tests/integration/crossings.md from the table of crossings that the tests run.

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

PAGE = ROOT / "tests" / "integration" / "crossings.md"
LETTERS = {"node": "S", "workers": "W", "cluster": "C"}


def houses(kinds: Iterable[str]) -> str:
    """The letters of some houses."""
    return " ".join(LETTERS[kind] for kind in kinds)


def summary(text: str | None) -> str:
    """The first line of a docstring."""
    return (text or "").strip().splitlines()[0]


def page() -> str:
    """The whole page."""
    rows, columns = list(BY_NAME), [*QUIET, *HARD]
    lines = [
        "# Crossings: features under events, and with each other",
        "",
        "Every feature that acts on messages is tried with every other feature, and while everything happens that",
        "can happen to messages. An official client publishes numbered messages and receives them where the feature",
        "sends them; a ledger judges: nothing is lost, nothing arrives that should not, keys keep their order, no copy",
        "is stored under a second id, and, unless a process dies, nothing arrives twice. Where delivery is",
        "exactly-once, nothing arrives again once its acknowledgement is confirmed.",
        "",
        "`tests/integration/test_crossings.py` runs the table, and `make crossings` writes this page from it.",
        f"`make test` runs the {len(SHORT)} crossings that failed at some time, `make test-long` runs all.",
        "Sizes, keys, requests and pauses are drawn from a seed; `SYNCPOINT_CROSSINGS_SEED` sets another one. A single",
        'crossing: `python -m tests.kit.crossings.run cluster "forward x seek back" --seed 7`.',
        "",
        f"**Features**: {', '.join(rows)}. Each pair runs on one server (S), with workers (W) and in a cluster (C).",
        "",
        "| event | runs on | what happens |",
        "|---|---|---|",
    ]
    for name, event in QUIET.items():
        also = f" Runs together with *{NEEDS[name]}*." if name in NEEDS else ""
        lines.append(f"| {name} | {houses(HOUSES_OF.get(name, KINDS))} | {summary(event.__doc__)}{also} |")
    lines += [f"| {name} | {houses(HOUSES_OF.get(name, KINDS))} | {what[0].upper()}{what[1:]}. |"
              for name, what in HARD.items()]  # fmt: skip
    lines += [
        "",
        "Wrong clocks and full disks of single processes of a cluster are [other tests](../../docs/history/faults.md).",
    ]
    lines += ["", "| pair that does not run | why |", "|---|---|"]
    lines += [f"| {first}, {second} | {why} |" for (first, second), why in IMPOSSIBLE.items()]
    lines += [f"| {first}, {second} | refused with {code}, which a test checks |"
              for (first, second), code in REFUSED.items()]  # fmt: skip
    pairs = len(list(combinations(rows, 2))) + len(rows) * len(columns)
    tested = pairs - len(IMPOSSIBLE) - len(REFUSED)
    lines += ["", f"{pairs} pairs: {tested} tested, {len(REFUSED)} refused, {len(IMPOSSIBLE)} impossible.", ""]
    lines += ["## Several features under an event", "", "Where the blow cannot happen, it is a kill.", ""]
    lines += ["| features | event | blow during it | runs on |", "|---|---|---|---|"]
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
