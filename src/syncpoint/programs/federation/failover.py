"""The runbook of active-passive: where publishers and consumers are, and which move may be made next.

    primary ── failover ──► secondary ── publishers back ──► draining ── consumers back ──► primary

Place: under the commands `syncpoint federation failover` and `failback`. `decide` is pure: what is there and what was
observed come in. What was decided is kept in the state folder, in a file that applications read to learn where to go.
Promise: no move is made out of order, and none on a guess: what could not be asked refuses it.
"""

from __future__ import annotations

import enum
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from syncpoint.base.model.errors import FailedPrecondition


class FailoverStage(enum.StrEnum):
    """Where everybody is."""

    PRIMARY = "primary"  # publishers and consumers
    SECONDARY = "secondary"  # both
    DRAINING = "draining"  # publishers at the primary, consumers still at the secondary


class FailoverMove(enum.StrEnum):
    """What may be done."""

    FAILOVER = "failover"
    PUBLISHERS_BACK = "failback --publishers"
    CONSUMERS_BACK = "failback --consumers"


AFTER = {
    FailoverMove.FAILOVER: FailoverStage.SECONDARY,
    FailoverMove.PUBLISHERS_BACK: FailoverStage.DRAINING,
    FailoverMove.CONSUMERS_BACK: FailoverStage.PRIMARY,
}
FROM = {
    FailoverMove.FAILOVER: FailoverStage.PRIMARY,
    FailoverMove.PUBLISHERS_BACK: FailoverStage.SECONDARY,
    FailoverMove.CONSUMERS_BACK: FailoverStage.DRAINING,
}
NEXT = {stage: move for move, stage in FROM.items()}


@dataclass(frozen=True, slots=True)
class Observed:
    """What was asked just now. `local_left`: messages that were published at the secondary and are not acknowledged
    there, at least; None: unknown.
    """

    primary_answers: bool
    secondary_answers: bool
    local_left: int | None = None


@dataclass(frozen=True, slots=True)
class FailoverPlaces:
    """The file: clusters by name, and when it was last changed (seconds since 1970)."""

    task: str
    stage: str
    publishers: str
    consumers: str
    changed_at: float


def decide(stage: FailoverStage, move: FailoverMove, observed: Observed, *, planned: bool = False) -> FailoverStage:
    """The stage after a move. Raises `FailedPrecondition`, which names the step that has to come first."""
    if stage is not FROM[move]:
        raise FailedPrecondition(
            f"`{move}` is not the next step: publishers and consumers are at stage {stage}; next is `{NEXT[stage]}`"
        )
    if move is FailoverMove.FAILOVER:
        if not observed.secondary_answers:
            raise FailedPrecondition("the secondary does not answer, so failover is not possible")
        if observed.primary_answers and not planned:
            raise FailedPrecondition("the primary answers, so no failover is needed; --planned fails over anyway")
    elif move is FailoverMove.PUBLISHERS_BACK:
        if not observed.primary_answers:
            raise FailedPrecondition("the primary does not answer yet: publishers stay at the secondary")
    else:
        if not observed.primary_answers:
            raise FailedPrecondition("the primary does not answer: consumers stay at the secondary")
        if observed.local_left is None:
            raise FailedPrecondition("the secondary does not report how many messages published there are left")
        if observed.local_left:
            raise FailedPrecondition(
                f"at least {observed.local_left} messages published at the secondary are unacknowledged there: let the"
                " consumers drain them first"
            )
    return AFTER[move]


def placed(task: str, stage: FailoverStage, primary: str, secondary: str, now_s: float) -> FailoverPlaces:
    """Who is where at a stage."""
    publishers = secondary if stage is FailoverStage.SECONDARY else primary
    consumers = primary if stage is FailoverStage.PRIMARY else secondary
    return FailoverPlaces(task, stage, publishers, consumers, now_s)


def path_of(state: Path, task: str) -> Path:
    """Where a task's file is."""
    return state / "active-passive" / f"{task}.json"


def tasks(state: Path) -> list[str]:
    """The tasks that have a file."""
    return sorted(path.stem for path in (state / "active-passive").glob("*.json"))


def load_stage(state: Path, task: str) -> FailoverStage:
    """The stage of a task; without a file it is at its primary. Raises `FailedPrecondition` for a file that is none."""
    places = load_places(state, task)
    return FailoverStage.PRIMARY if places is None else FailoverStage(places.stage)


def load_places(state: Path, task: str) -> FailoverPlaces | None:
    """The file of a task, if there is one. Raises `FailedPrecondition` for a file that is none."""
    path = path_of(state, task)
    try:
        found = FailoverPlaces(**json.loads(path.read_text(encoding="utf-8")))
        FailoverStage(found.stage)
        return found
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise FailedPrecondition(
            f"{path} does not record where publishers and consumers are; find out, then correct or delete the file"
        ) from None


def save(state: Path, directory: FailoverPlaces) -> None:
    """Replace the file, durably, as a whole."""
    path = path_of(state, directory.task)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as out:
        json.dump(asdict(directory), out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
