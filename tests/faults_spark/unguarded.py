"""A server without one of its guards: `python unguarded.py GUARD serve ...`. What it stores is wrong, on purpose."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from syncpoint.broker.pipeline import links
from syncpoint.broker.pipeline.epoch_commits import CommitRequest
from syncpoint.broker.pipeline.epochs import EpochState


def _fence() -> None:
    EpochState._fence = lambda state, query, run: None  # type: ignore[assignment,method-assign]


def _interval() -> None:
    links.floor = lambda link, planned: 0  # type: ignore[assignment]


def _epoch() -> None:
    EpochState._is_committed = lambda state, query, ask, link: False  # type: ignore[assignment,method-assign]


def _attempt() -> None:
    def everything(state: EpochState, ask: CommitRequest) -> tuple[Any, ...]:
        return tuple(stage for stage in state.stages.values() if stage.epoch == ask.epoch)

    EpochState._chosen = everything  # type: ignore[assignment,method-assign]


GUARDS: dict[str, Callable[[], None]] = {
    "run fence": _fence,
    "interval": _interval,
    "idempotent epoch": _epoch,
    "choice of the attempt": _attempt,
}

if __name__ == "__main__":
    GUARDS[sys.argv.pop(1)]()
    from syncpoint.programs.cli.main import main

    main()
