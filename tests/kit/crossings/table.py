"""Which crossings are tested, which the server refuses, and which cannot be; the page is written from it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Final

from tests.kit.crossings.events import NEEDS
from tests.kit.crossings.features import BY_NAME
from tests.kit.houses import KINDS


@dataclass(frozen=True)
class Crossing:
    """Rows that are crossed with each other, with an event of their own, or with a blow to the whole house, or all."""

    rows: tuple[str, ...]
    column: str = ""
    blow: str = ""

    def __str__(self) -> str:
        return " x ".join([*self.rows, *filter(None, (self.column, self.blow))])


OUTLETS: Final = ("forward", "push", "export")

IMPOSSIBLE: Final[dict[tuple[str, str], str]] = {
    ("push", "export"): "a subscription is pushed or exported, not both",
    ("schedules", "pipeline write"): "an epoch becomes visible as a whole, so its rows are not scheduled",
    ("export", "redrive"): "an export gives no message back, so it has no dead letters",
    ("pipeline read", "rule change"): "a pipeline reads the topic, and no copies that rules make",
}
"""Pairs that nobody can ask for, and why."""

REFUSED: Final[dict[tuple[str, str], str]] = {
    ("exactly once", "push"): "INVALID_ARGUMENT",
    ("pipeline write", "transforms"): "FAILED_PRECONDITION",
}
"""Pairs that the server refuses to configure or to publish to, with the status it answers."""

HOUSES_OF: Final[dict[str, tuple[str, ...]]] = {
    "kill": KINDS,
    "adoption": ("workers", "cluster"),
    "drain": ("cluster",),
    "rolling restart": KINDS,
    "metadata restore": ("cluster",),
    "clock jump": ("node", "workers"),
    "full disk": ("node",),
}
"""Where a blow to a whole house is tried."""

SHORT: Final[tuple[Crossing, ...]] = (
    *(Crossing((row,), "seek back") for row in (*OUTLETS, "retry and dead letters", "duplicate detection")),
    *(Crossing((row,), "snapshot") for row in OUTLETS),
    *(Crossing((row,), "configuration change") for row in OUTLETS),
    *(Crossing(("rules with actions", row)) for row in OUTLETS),
    Crossing(("order", "forward")),
    Crossing(("schedules", "duplicate detection")),
)
"""What lost, doubled or reordered messages once; `make test` runs it."""

TRIPLES: Final[tuple[Crossing, ...]] = (
    Crossing(("rules with actions", "forward"), "seek back", "kill"),
    Crossing(("order", "exactly once", "export"), "rule change"),
    Crossing(("schedules", "duplicate detection", "forward"), "deletion and re-creation"),
    Crossing(("retry and dead letters", "push"), "redrive", "kill"),
    Crossing(("time to live", "pipeline read", "pipeline write"), "", "adoption"),
    Crossing(("schemas", "forward", "transforms"), "", "clock jump"),
    Crossing(("order", "duplicate detection", "forward"), "seek back", "kill"),
    Crossing(("rules with actions", "order", "push"), "snapshot", "adoption"),
    Crossing(("rules with actions", "time to live", "export"), "seek back", "kill"),
    Crossing(("retry and dead letters", "forward", "records"), "redrive"),
    Crossing(("order", "schedules", "forward"), "suspension", "kill"),
    Crossing(("rules with actions", "exactly once", "retry and dead letters"), "seek back", "kill"),
    Crossing(("order", "exactly once", "duplicate detection"), "snapshot", "adoption"),
    Crossing(("order", "retry and dead letters", "push"), "configuration change", "kill"),
    Crossing(("forward", "export"), "configuration change", "kill"),
    Crossing(("rules with actions", "forward", "push"), "rule change", "adoption"),
    Crossing(("filter", "rules with actions", "retry and dead letters"), "redrive", "adoption"),
    Crossing(("order", "duplicate detection", "transforms"), "seek back", "rolling restart"),
    Crossing(("schemas", "pipeline write"), "seek back"),
    Crossing(("schemas", "retry and dead letters", "forward"), "redrive", "kill"),
    Crossing(("time to live", "schedules", "duplicate detection"), "suspension for sending", "kill"),
    Crossing(("order", "forward", "pipeline write"), "seek back", "kill"),
    Crossing(("rules with actions", "export", "pipeline write"), "snapshot"),
    Crossing(("schedules", "pipeline read", "transforms"), "", "kill"),
    Crossing(("rules with actions", "push", "records"), "deletion of records", "kill"),
    Crossing(("exactly once", "retry and dead letters", "forward"), "detaching"),
    Crossing(("rules with actions", "order", "retry and dead letters", "forward"), "redrive", "kill"),
    Crossing(("filter", "schedules", "export"), "deletion and re-creation", "kill"),
    Crossing(("filter", "duplicate detection", "push"), "seek ahead", "kill"),
    Crossing(("time to live", "duplicate detection", "forward"), "snapshot", "adoption"),
    Crossing(("order", "exactly once", "forward"), "seek back", "drain"),
    Crossing(("order", "forward", "export"), "suspension", "rolling restart"),
    Crossing(("rules with actions", "duplicate detection", "forward"), "", "metadata restore"),
    Crossing(("schedules", "forward", "push"), "configuration change", "drain"),
)
"""What crosses most: several rows with an event, many of them while a blow strikes the house."""


def possible(*names: str) -> bool:
    """Whether these rows and columns can be crossed."""
    return not any(set(pair) <= set(names) for pair in (*IMPOSSIBLE, *REFUSED))


def columns_of(column: str) -> list[Crossing]:
    """Each row with this event, and with the row that it needs, if any."""
    need = NEEDS.get(column)
    return [
        Crossing(tuple(name for name in BY_NAME if name in (row, need)), column)
        for row in BY_NAME
        if possible(row, column, *([need] if need else []))
    ]


def struck_by(blow: str) -> list[Crossing]:
    """Each row with this blow to its house."""
    return [Crossing((row,), "", blow) for row in BY_NAME if possible(row, blow)]


def pairs_of(row: str) -> list[Crossing]:
    """This row with each one that stands before it."""
    return [Crossing(pair) for pair in combinations(BY_NAME, 2) if pair[1] == row and possible(*pair)]


def blow_of(crossing: Crossing, kind: str) -> str:
    """The blow that is tried in a house of this kind: a kill where it does not know the crossing's own."""
    return "kill" if crossing.blow and kind not in HOUSES_OF[crossing.blow] else crossing.blow
