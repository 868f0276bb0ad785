"""Whose turn it is: turns over many sources, and what must come first where keys are ordered."""

from syncpoint.base.model.delivery import Batch, SourceView
from syncpoint.broker.subscribe.fetch import FetchCursor
from syncpoint.broker.subscribe.subscription_sources import SOURCES_AHEAD, SubscriptionSources


class Shelf:
    """Sources with batches of one message; `ended` ones have nothing."""

    def __init__(self, *, ordered: bool) -> None:
        self.asked: list[int] = []
        self.left: dict[int, int] = {}
        self.sources = SubscriptionSources(self._read_on, ordered=ordered)

    def _read_on(self, cursor: FetchCursor) -> None:
        if not cursor.wants_more:
            return
        self.asked.append(cursor.source)
        cursor.asking = True
        if self.left.get(cursor.source, 0):
            self.left[cursor.source] -= 1
            cursor.received([Batch(cursor.source, 0, cursor.begin, cursor.begin + 1, None, 0, b"")])
        else:
            cursor.received([])

    def name(self, number: int, *, messages: int = 0, **fields: object) -> None:
        self.left[number] = messages
        self.sources.named(SourceView(number, 0, **{"sealed": False, **fields}))  # type: ignore[arg-type]

    def take(self) -> list[int]:
        """Sources in the order in which their messages come."""
        taken = []
        while (ready := self.sources.next_ready()) is not None:
            batch, cursor = ready
            cursor.advance(batch.end)
            taken.append(batch.source)
        return taken


def test_sources_take_turns() -> None:
    shelf = Shelf(ordered=False)
    for number in range(1, 5):
        shelf.name(number, messages=2)
    assert shelf.take() == [1, 2, 3, 4, 1, 2, 3, 4]


def test_only_some_are_read_ahead() -> None:
    shelf = Shelf(ordered=False)
    for number in range(1, 17):
        shelf.name(number, messages=1)
    shelf.sources.ask_ahead()
    assert len(shelf.asked) == SOURCES_AHEAD
    assert sorted(shelf.take()) == list(range(1, 17))


def test_with_keys_nothing_is_read_before_every_source_is_known() -> None:
    shelf = Shelf(ordered=True)
    shelf.name(1, messages=1)
    assert shelf.take() == []
    shelf.sources.complete = True
    assert shelf.take() == [1]


def test_with_keys_a_source_waits_for_lower_epochs_and_earlier_ones_of_its_chain() -> None:
    shelf = Shelf(ordered=True)
    shelf.sources.complete = True
    shelf.name(30, messages=1, epoch=1, chain=3, sealed=True)
    shelf.name(10, messages=1, epoch=2, chain=1)
    shelf.name(21, messages=1, epoch=1, chain=2, sealed=True)
    shelf.name(20, messages=1, epoch=1, chain=2, sealed=True)
    order = shelf.take()
    assert sorted(order) == [10, 20, 21, 30]
    assert order[-1] == 10
    assert order.index(20) < order.index(21)


def test_with_keys_what_others_deliver_comes_first_until_it_is_done() -> None:
    shelf = Shelf(ordered=True)
    shelf.sources.complete = True
    shelf.name(1, epoch=1, chain=1, sealed=True, held=False)
    shelf.name(2, messages=1, epoch=2, chain=2)
    assert shelf.take() == []
    assert shelf.sources.waits
    shelf.name(1, epoch=1, chain=1, sealed=True, done=True)
    assert shelf.take() == [2]
    assert not shelf.sources.waits


def test_a_revoked_source_comes_first_again_even_if_it_was_read_to_its_end() -> None:
    shelf = Shelf(ordered=True)
    shelf.sources.complete = True
    shelf.name(1, messages=1, epoch=1, chain=1, sealed=True)
    shelf.name(2, messages=1, epoch=2, chain=2)
    assert shelf.take() == [1, 2]
    shelf.sources.forget(1)
    shelf.left[2] = 1
    shelf.sources.data_came(2)
    assert shelf.take() == []


def test_the_same_grant_again_reads_nothing_again_and_another_one_does() -> None:
    shelf = Shelf(ordered=False)
    shelf.name(1, messages=1, sealed=True, grant=5)
    assert shelf.take() == [1]
    shelf.name(1, messages=1, sealed=True, grant=5)
    assert shelf.take() == []
    shelf.name(1, messages=1, sealed=True, grant=6)
    assert shelf.take() == [1]


def test_a_source_in_doubt_goes_on_where_it_stopped() -> None:
    shelf = Shelf(ordered=False)
    shelf.name(1, messages=1, grant=5)
    assert shelf.take() == [1]
    shelf.name(1, messages=1, grant=5, held=False)
    assert shelf.take() == []
    shelf.name(1, messages=1, grant=5)
    batch, _ = shelf.sources.next_ready() or (None, None)
    assert batch is not None
    assert batch.begin == 1
