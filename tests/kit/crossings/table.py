"""Which pairs of the table are tested, which the server refuses, and which cannot be; the page is written from it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Final

from tests.kit.crossings.features import BY_NAME


@dataclass(frozen=True)
class Pair:
    """Rows that are crossed with each other, or one row with a column."""

    rows: tuple[str, ...]
    column: str = ""


OUTLETS: Final = ("forward", "push", "export")

IMPOSSIBLE: Final[dict[tuple[str, str], str]] = {
    ("push", "export"): "a subscription is pushed or exported, not both",
    ("schedules", "pipeline write"): "an epoch becomes visible as a whole, so its rows are not scheduled",
    ("pipeline read", "rule change"): "a pipeline reads the topic, and no copies that rules make",
}
"""Pairs that nobody can ask for, and why."""

REFUSED: Final[dict[tuple[str, str], str]] = {
    ("exactly once", "push"): "INVALID_ARGUMENT",
    ("schemas", "pipeline write"): "FAILED_PRECONDITION",
    ("pipeline write", "transforms"): "FAILED_PRECONDITION",
}
"""Pairs that the server refuses to configure or to publish to, with the status it answers."""

HOUSES_OF: Final = {
    "kill": "all three",
    "adoption": "a cluster: only there another process can take a chain over",
    "clock jump": "one server, and with workers: `make faults` sets the clocks of a cluster's processes",
    "full disk": "one server: a disk of a cluster that is full is one that failed",
}
"""Where an event of a whole house is tried."""

SHORT: Final[tuple[Pair, ...]] = (
    *(Pair((row,), "seek back") for row in (*OUTLETS, "retry and dead letters", "duplicate detection")),
    *(Pair((row,), "snapshot") for row in OUTLETS),
    *(Pair((row,), "configuration change") for row in OUTLETS),
    *(Pair(("rules with actions", row)) for row in OUTLETS),
    Pair(("order", "forward")),
    Pair(("schedules", "duplicate detection")),
)
"""Pairs that lost, doubled or reordered messages once; `make test` runs them."""


def possible(*names: str) -> bool:
    """Whether these rows and columns can be crossed."""
    return not any(set(pair) <= set(names) for pair in (*IMPOSSIBLE, *REFUSED))


def columns_of(column: str) -> list[Pair]:
    """Each row with this column."""
    return [Pair((row,), column) for row in BY_NAME if possible(row, column)]


def pairs_of(row: str) -> list[Pair]:
    """This row with each one that stands before it."""
    return [Pair(pair) for pair in combinations(BY_NAME, 2) if pair[1] == row and possible(*pair)]
