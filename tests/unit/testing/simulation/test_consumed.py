"""The judge of what a refusal takes back finds what does not come again, and blames nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from syncpoint.testing.rigs.history import History, MessageIdentity
from syncpoint.testing.simulation.api_clients import TOPIC
from syncpoint.testing.simulation.consumed import PULLED, ClientAnswer, Consumed, Copy

BEFORE, NOW = (1, 1), (2, 2)  # lives: the server was started again in between


class Receiver:
    """A consumer of two messages of one key, whose answers are made by hand."""

    def __init__(self) -> None:
        self.history = History()
        self.consumed = Consumed(cast("Any", SimpleNamespace(history=self.history)), PULLED, 0)
        self.consumed.ordered, self.consumed.rules, self.consumed.created = True, ("",), 0
        self.first, self.second = (self._publish(number) for number in range(2))

    def _publish(self, number: int) -> Copy:
        identity = MessageIdentity("p", number)
        self.history.published(self.history.publishing(TOPIC, identity, "key"), str(number))
        return Copy(identity, "")

    def lend(self, copy: Copy) -> int:
        at = self.history.stamp()
        self.consumed.lent[copy].append(at)
        self.consumed.arrived[copy].add(at)
        return at

    def answer(
        self, copy: Copy, lent: int, *, refused: bool = False, life: tuple[int, object] = NOW, confirmed: bool = True
    ) -> None:
        answer = ClientAnswer(copy, lent, life, refused, self.history.stamp())
        self.consumed.answers.append(answer)
        if confirmed:
            answer.ended = self.history.stamp()

    def complaints(self) -> tuple[str, ...]:
        return next(one.violations for one in self.consumed.judged({}) if one.name == "what was taken back comes again")


def test_what_was_lent_behind_a_refused_message_has_to_come_again() -> None:
    at = Receiver()
    first, second = at.lend(at.first), at.lend(at.second)
    at.answer(at.first, first, refused=True)
    at.answer(at.second, second)
    assert len(at.complaints()) == 1
    at.lend(at.first)
    at.lend(at.second)
    assert at.complaints() == ()


def test_a_refusal_after_an_acknowledgement_by_an_earlier_lease_takes_nothing_back() -> None:
    at = Receiver()
    earlier = at.lend(at.first)
    first, second = at.lend(at.first), at.lend(at.second)
    at.answer(at.first, earlier, life=BEFORE, confirmed=False)
    at.answer(at.first, first, refused=True)
    at.answer(at.second, second)
    assert at.complaints() == ()


def test_an_acknowledgement_by_an_earlier_lease_after_the_refusal_excuses_nothing() -> None:
    at = Receiver()
    earlier = at.lend(at.first)
    first, second = at.lend(at.first), at.lend(at.second)
    at.answer(at.first, first, refused=True)
    at.answer(at.first, earlier, life=BEFORE, confirmed=False)
    at.answer(at.second, second)
    assert len(at.complaints()) == 1
