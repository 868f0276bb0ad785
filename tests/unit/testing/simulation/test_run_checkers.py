"""The judges of simulated lives: each finds what it is there for, and blames nothing that was promised to nobody."""

from __future__ import annotations

from syncpoint.testing.rigs.history import History, MessageIdentity, Outcome, seal
from syncpoint.testing.simulation.base import Moments
from syncpoint.testing.simulation.run_checkers import (
    confirmed_once,
    failed_means_failed,
    letters_arrive,
    nobody_else_acknowledges,
    nothing_comes_while_it_is_acknowledged,
    progress,
    resets_deliver_again,
    snapshots_keep_acknowledgements,
)
from syncpoint.testing.simulation.sets import Seek, Taken, named

TOPIC, SUB = "topic", "sub"


class Life:
    """A history made by hand: one subscription, messages by number, seeks into generations."""

    def __init__(self, *, kept: bool = True, once: bool = False) -> None:
        self.history, self.moments = History(), Moments()
        self.created = self.history.creating(SUB, TOPIC, exactly_once=once)
        self.history.end(self.created, Outcome.OK)
        self.kept, self.once = kept, once
        self.seeks: list[Seek] = []
        self.times: dict[str, int] = {}

    @property
    def name(self) -> str:
        return named(SUB, len(self.seeks))

    def publish(self, number: int, at: float = 0.0) -> None:
        identity = MessageIdentity("p", number)
        self.history.published(self.history.publishing(TOPIC, identity), str(number))
        self.moments.published[identity] = at
        self.times[str(number)] = number * 10**9

    def deliver(self, *numbers: int, at: float = 0.0, name: str = "") -> None:
        for number in numbers:
            identity = MessageIdentity("p", number)
            self.history.delivered(name or self.name, "r", str(number), seal(identity))
            self.moments.delivered.setdefault((SUB, identity), at)

    def ack(self, number: int, outcome: Outcome = Outcome.OK, name: str = "") -> None:
        self.history.end(self.history.acking(name or self.name, str(number)), outcome)

    def snapshot(self) -> Taken:
        return Taken(SUB, len(self.seeks), 1, self.history.stamp(), self.history.stamp())

    def seek(self, taken: Taken | None, *, time_ns: int = 0, quiet: bool = False) -> None:
        self.created.until = begun = self.history.stamp()
        self.created = self.history.creating(named(SUB, len(self.seeks) + 1), TOPIC, exactly_once=self.once)
        self.history.end(self.created, Outcome.OK)
        self.seeks.append(Seek(SUB, len(self.seeks) + 1, taken, time_ns, begun, self.created.ended, self.kept, quiet))

    def lacking(self) -> tuple[str, ...]:
        return resets_deliver_again(self.history, TOPIC, self.seeks, self.times).violations

    def too_much(self) -> tuple[str, ...]:
        return snapshots_keep_acknowledgements(self.history, TOPIC, self.seeks, self.times).violations


def snapped() -> tuple[Life, Taken]:
    """Of three messages one is acknowledged when a snapshot is taken, one later; then it is moved to."""
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
    assert life.lacking() == ("sub did not get 3 again after its seek",)
    life.deliver(3)
    assert not life.lacking()


def test_what_was_acknowledged_at_a_snapshot_stays_so() -> None:
    life, _ = snapped()
    life.deliver(2, 3)
    assert not life.too_much()
    life.deliver(1)
    assert len(life.too_much()) == 1


def test_after_a_seek_to_the_beginning_everything_comes_again_also_what_is_older_than_the_subscription() -> None:
    life = Life()
    life.history.publishes.clear()
    life.publish(1)
    late = life.history.creating("late", TOPIC)
    life.history.end(late, Outcome.OK)
    life.publish(2)
    life.deliver(2, name="late")
    late.until = life.history.stamp()
    life.history.end(life.history.creating("late@1", TOPIC), Outcome.OK)
    seek = Seek("late", 1, None, 0, late.until, life.history.stamp())
    life.deliver(2, name="late@1")
    found = resets_deliver_again(life.history, TOPIC, [seek], life.times)
    assert found.violations == ("late did not get 1 again after its seek",)


def test_after_a_seek_to_a_time_what_is_not_older_comes_again() -> None:
    life = Life()
    for number in (1, 2, 3):
        life.publish(number)
    life.deliver(1, 2, 3)
    life.seek(None, time_ns=2 * 10**9 - 10**7)
    assert [one.split()[4] for one in life.lacking()] == ["2", "3"]


def test_where_acknowledged_messages_go_a_seek_brings_back_only_the_others() -> None:
    life = Life(kept=False)
    life.publish(1)
    life.publish(2)
    life.deliver(1)
    life.ack(1)
    life.seek(None)
    assert life.lacking() == ("sub did not get 2 again after its seek",)


def test_an_acknowledgement_of_what_came_before_a_seek_is_not_certain_after_it() -> None:
    life = Life()
    life.publish(1)
    life.deliver(1)
    life.seek(None)
    life.ack(1, name=SUB)
    taken = life.snapshot()
    life.seek(taken, quiet=True)
    life.deliver(1)
    assert not life.too_much()


def test_an_unknown_acknowledgement_blames_nobody() -> None:
    life = Life()
    life.publish(1)
    life.deliver(1)
    life.ack(1, Outcome.UNKNOWN)
    life.seek(life.snapshot(), quiet=True)
    assert not life.lacking()
    life.deliver(1)
    assert not life.too_much()


def test_two_confirmations_of_one_message_are_one_too_many() -> None:
    life = Life(once=True)
    life.publish(1)
    life.deliver(1)
    life.ack(1)
    assert confirmed_once(life.history).good
    life.ack(1)
    assert len(confirmed_once(life.history).violations) == 1


def test_what_is_being_acknowledged_is_not_delivered_until_that_has_failed() -> None:
    life = Life(once=True)
    life.publish(1)
    life.publish(2)
    life.deliver(1, 2)
    confirmed = life.history.acking(life.name, "1")
    failed = life.history.acking(life.name, "2")
    life.deliver(2)
    life.history.end(failed, Outcome.FAILED)
    assert nothing_comes_while_it_is_acknowledged(life.history).good
    life.deliver(1)
    life.history.end(confirmed, Outcome.OK)
    assert len(nothing_comes_while_it_is_acknowledged(life.history).violations) == 1


def test_what_counts_as_acknowledged_was_acknowledged_by_somebody() -> None:
    life = Life()
    life.publish(1)
    life.deliver(1)
    assert len(nobody_else_acknowledges(life.history).violations) == 1
    assert nobody_else_acknowledges(life.history, [SUB]).good
    life.ack(1, Outcome.UNKNOWN)
    assert nobody_else_acknowledges(life.history).good


def test_a_failed_acknowledgement_is_followed_by_another_one() -> None:
    life = Life(once=True)
    life.publish(1)
    life.deliver(1)
    life.ack(1, Outcome.FAILED)
    assert len(failed_means_failed(life.history).violations) == 1
    life.ack(1)
    assert failed_means_failed(life.history).good


def test_what_nobody_acknowledged_arrives_as_a_letter() -> None:
    life = Life()
    life.publish(1)
    life.publish(2)
    life.deliver(1, 2)
    life.ack(1)
    assert len(letters_arrive(life.history, SUB, "letters").violations) == 1
    life.deliver(2, name="letters")
    assert letters_arrive(life.history, SUB, "letters").good


def test_progress_counts_from_the_healing_and_from_the_publish() -> None:
    life = Life()
    life.publish(1, at=1.0)
    life.publish(2, at=50.0)
    life.moments.healed = 10.0
    life.deliver(1, at=29.0)
    life.deliver(2, at=69.0)
    assert progress(life.history, life.moments, 20.0).good
    assert len(progress(life.history, life.moments, 18.0).violations) == 2
