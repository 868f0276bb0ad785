"""The table of `tests/faults/results.md`: a row for each scenario, with the day it was last played."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from tests.faults.stage import Played

MARK = "<!-- results -->\n"
HEAD = (
    "| scenario | what is done | verdict | day (UTC), seed | seconds | confirmed | unsure | delivered | longest gap, s"
    " | beside |",
    "|---|---|---|---|--:|--:|--:|--:|--:|---|",
)


def enter(path: Path, played: Sequence[Played], seed: int, now: datetime) -> None:
    """Put rows in place of those of the same names, and keep the others."""
    text, mark, rest = path.read_text().partition(MARK)
    rows = {row.split("|")[1].strip(): row for row in rest.splitlines() if row.startswith("| ") and row not in HEAD}
    for one in played:
        rows[one.name] = row_of(one, seed, now)
    path.write_text("\n".join([text + mark, *HEAD, *rows.values()]) + "\n")


def row_of(one: Played, seed: int, now: datetime) -> str:
    """One row."""
    cells = (
        one.name,
        one.what,
        "good" if one.good else "**BROKEN**",
        f"{now:%Y-%m-%d %H:%M}, {seed}",
        f"{one.seconds:.0f}",
        str(one.confirmed),
        str(one.unsure),
        str(one.delivered),
        " / ".join(f"{gap:.1f}" for gap in one.gaps),
        "; ".join(one.notes),
    )
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"
