"""Window beyond their own is lent to streams in the order in which they ask, and to none that needs it no more."""

from __future__ import annotations

import pytest

from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.receive_budget import Counters, ReceiveBudget


class Stream:
    """A stream with a large message on its way."""

    def __init__(self) -> None:
        self.extra, self.done, self.partial = 0, False, True

    def refill(self) -> None:
        """Nobody sends."""


@pytest.mark.parametrize(
    ("become", "given"), [({}, [0, 50, 10]), ({"partial": False}, [0, 0, 10]), ({"done": True}, [0, 0, 10])]
)
def test_who_waits_is_served_in_order_while_it_needs_it(become: dict[str, bool], given: list[int]) -> None:
    budget = ReceiveBudget(TransportLimits(receive_extra_bytes=100), Counters())
    first, second, third = streams = [Stream() for _ in range(3)]
    for stream, extra in ((first, 80), (second, 50), (third, 10)):
        budget.ask(stream, extra)
    assert [one.extra for one in streams] == [80, 0, 0], "what fits does not pass what has waited for longer"
    vars(second).update(become)
    budget.give_back(first)
    assert [one.extra for one in streams] == given
    assert budget.lent == sum(given)
