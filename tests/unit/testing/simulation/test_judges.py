"""The judges of simulated lives: each finds what it is there for, and blames nothing that was promised to nobody."""

from __future__ import annotations

from syncpoint.testing.history import History, Identity, Outcome, seal
from syncpoint.testing.simulation.base import Moments
from syncpoint.testing.simulation.judges import (
    Seek,
    Taken,
    progress,
    snapshots_keep_acknowledgements,
    sought_is_delivered_again,
)

TOPIC, SUB = "topic", "sub"


class Life:
    """A history made by hand: one subscription, messages by number."""

    def __init__(self) -> None:
        self.history, self.moments = History(), Moments()
        self.history.end(self.history.creating(SUB, TOPIC), Outcome.OK)
        self.seeks: list[Seek] = []

    def publish(self, number: int, at: float = 0.0) -> None:
        identity = Identity("p", number)
        self.history.published(self.history.publishing(TOPIC, identity), str(number))
        self.moments.published[identity] = at

    def deliver(self, *numbers: int, at: float = 0.0) -> None:
        for number in numbers:
            identity = Identity("p", number)
            self.history.delivered(SUB, "r", str(number), seal(identity))
            self.moments.delivered.setdefault((SUB, identity), at)

    def ack(self, number: int, outcome: Outcome = Outcome.OK) -> None:
        self.history.end(self.history.acking(SUB, str(number)), outcome)

    def snapshot(self) -> Taken:
        return Taken(SUB, 1, self.history.stamp(), self.history.stamp())

    def seek(self, taken: Taken | None, *, quiet: bool = False) -> None:
        self.seeks.append(Seek(SUB, taken, self.history.stamp(), self.history.stamp(), quiet))


def snapped() -> tuple[Life, Taken]:
    """Of three messages one is acknowledged when a snapshot is taken, one later; then it is sought to."""
    life = Life()
    for number in (1, 2, 3):
        life.publish(number)
    life.deliver(1, 2)
    life.ack(1)
    taken = life.snapshot()
    life.ack(2)
    life.seek(taken, quiet=True)
    return life, taken


def test_what_was_not_acknowledged_at_a_snapshot_has_to_come_again() -> None:
    life, _ = snapped()
    life.deliver(2)
    found = sought_is_delivered_again(life.history, life.seeks)
    assert found.violations == ("sub did not get 3 again after its seek",)
    life.deliver(3)
    assert sought_is_delivered_again(life.history, life.seeks).good


def test_what_was_acknowledged_at_a_snapshot_stays_so() -> None:
    life, _ = snapped()
    life.deliver(2, 3)
    assert snapshots_keep_acknowledgements(life.history, life.seeks).good
    life.deliver(1)
    assert len(snapshots_keep_acknowledgements(life.history, life.seeks).violations) == 1


def test_after_a_seek_to_the_beginning_everything_comes_again() -> None:
    life, _ = snapped()
    life.seek(None)
    life.deliver(2, 3)
    assert sought_is_delivered_again(life.history, life.seeks).violations == ("sub did not get 1 again after its seek",)


def test_an_acknowledgement_of_what_came_before_a_seek_is_not_certain_after_it() -> None:
    life = Life()
    life.publish(1)
    life.deliver(1)
    life.seek(None)
    life.ack(1)
    taken = life.snapshot()
    life.seek(taken, quiet=True)
    life.deliver(1)
    assert snapshots_keep_acknowledgements(life.history, life.seeks).good


def test_an_unknown_acknowledgement_blames_nobody() -> None:
    life = Life()
    life.publish(1)
    life.deliver(1)
    life.ack(1, Outcome.UNKNOWN)
    life.seek(life.snapshot(), quiet=True)
    assert sought_is_delivered_again(life.history, life.seeks).good
    life.deliver(1)
    assert snapshots_keep_acknowledgements(life.history, life.seeks).good


def test_progress_counts_from_the_healing_and_from_the_publish() -> None:
    life = Life()
    life.publish(1, at=1.0)
    life.publish(2, at=50.0)
    life.moments.healed = 10.0
    life.deliver(1, at=29.0)
    life.deliver(2, at=69.0)
    assert progress(life.history, life.moments, 20.0).good
    assert len(progress(life.history, life.moments, 18.0).violations) == 2
