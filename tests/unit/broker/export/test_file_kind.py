"""Which messages go into which file, and what becomes of them, without anything around it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.export.file_kind import FileKind, FileLimits
from syncpoint.broker.inner.inner_consumer import MESSAGE_BYTES, Discard, Effect, InnerConsumer, Send, SendOutcome
from syncpoint.broker.inner.lent import Acknowledged, Extended, GivenBack, Lent, Nacked, Room
from syncpoint.broker.inner.pace import Pace, PaceLimits
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("export")

STORED, UNKNOWN = SendOutcome.STORED, SendOutcome.UNKNOWN


def exporter(memory_max: int = 1 << 21, **limits: int) -> InnerConsumer:
    pace = Pace(PaceLimits(1, 1, 1), SeededRandom(1))
    return InnerConsumer(FileKind(FileLimits(60, **limits)), pace, lease_s=60, memory_max=memory_max)


def lent(*numbers: int, size: int = 10, again: str = "") -> list[Lent]:
    """Copies of one message; only their places differ."""
    message = pubsub.PubsubMessage(data=bytes(size), message_id="m")
    return [Lent(f"a{n}{again}", CopyId(1, n, 0), message) for n in numbers]


def files(effects: Iterable[Effect]) -> list[tuple[int, list[str]]]:
    """The numbers of files, and what is written of each now."""
    return [(one.number, [lent.ack_id for lent in one.lent]) for one in effects if isinstance(one, Send)]


def test_a_file_is_closed_at_the_first_limit_it_reaches_and_acknowledged_once_it_is_stored() -> None:
    one = exporter(max_messages=3, max_bytes=100)
    assert not files(one.received(lent(1, 2), 0))
    ((first, first_ids),) = files(one.received(lent(3, 4), 1))
    assert first_ids == ["a1", "a2", "a3"]
    assert not files(one.tick(60))  # the second began at 1
    assert not files(one.tick(61.5))  # it is due, and waits for the first
    effects = one.ended(first, STORED, 62)
    assert effects[0] == Acknowledged(("a1", "a2", "a3"))
    ((second, second_ids),) = files(effects)
    assert second_ids == ["a4"]
    assert one.ended(second, STORED, 63, unfit={CopyId(1, 4, 0)})[0] == Nacked(("a4",))  # it fits no file
    ((_, third_ids),) = files(one.received(lent(5, 6, size=70), 64))
    assert third_ids == ["a5"]  # two have more than 100 bytes


def test_a_file_that_is_not_stored_is_refused_and_what_waits_given_back() -> None:
    one = exporter(max_messages=2)
    ((first, _),) = files(one.received(lent(1, 2, 3), 0))
    effects = one.ended(first, UNKNOWN, 1)
    assert effects[:2] == [Nacked(("a1", "a2")), GivenBack(("a3",))]
    assert Room(0) in effects
    assert one.received(lent(4), 1.01) == [GivenBack(("a4",))]
    assert one.held == 0
    assert any(isinstance(effect, Room) and effect.messages for effect in one.tick(100))


def test_a_file_that_nothing_more_of_its_keys_comes_for_is_closed() -> None:
    one = exporter(max_messages=10)
    assert not files(one.end_gathering(0))
    one.received(lent(1, 2), 0)
    ((first, first_ids),) = files(one.end_gathering(1))
    assert first_ids == ["a1", "a2"]
    one.received(lent(3), 2)
    assert not files(one.end_gathering(3))  # it waits for the first
    ((_, second_ids),) = files(one.ended(first, STORED, 4))
    assert second_ids == ["a3"]


def test_leases_are_extended_also_while_a_file_is_stored() -> None:
    one = exporter(max_messages=2)
    one.received(lent(1, 2), 0)
    one.received(lent(3), 20)
    assert one.tick(31) == [Extended(("a1", "a2"))]
    assert one.tick(51) == [Extended(("a3",))]


def test_what_is_lent_anew_is_in_its_file_once_under_its_new_id() -> None:
    one = exporter(max_messages=2)
    ((first, _),) = files(one.received(lent(1, 2, 3), 0))
    assert not files(one.received(lent(1, 3, again="x"), 1))
    assert one.ended(first, STORED, 2)[0] == Acknowledged(("a1x", "a2"))
    assert one.held == 1


def test_what_a_seek_brings_back_is_not_in_the_file_that_is_being_stored() -> None:
    one = exporter(max_messages=2)
    ((first, _),) = files(one.received(lent(1, 2), 0))
    one.received([Lent(f"b{n}", CopyId(1, n, 1), pubsub.PubsubMessage(message_id="m")) for n in (1, 2)], 1)
    effects = one.ended(first, STORED, 2)
    assert effects[0] == Acknowledged(("a1", "a2"))
    assert [ids for _, ids in files(effects)] == [["b1", "b2"]]


def test_memory_is_bounded_by_room_and_by_closing_files() -> None:
    one = exporter(memory_max=20 * (MESSAGE_BYTES + 1_000))
    room, number = 0, 0
    for effect in one.tick(0):
        room = effect.messages if isinstance(effect, Room) else room
    while room > one.held:
        number += 1
        for effect in one.received(lent(number, size=1_000), 0.1):
            room = effect.messages if isinstance(effect, Room) else room
    assert one.memory <= one.memory_max + 2_100
    assert 15 < one.held < 25


def test_stopping_gives_back_what_is_not_being_stored() -> None:
    one = exporter(max_messages=2)
    ((first, _),) = files(one.received(lent(1, 2, 3), 0))
    assert one.stop() == [GivenBack(("a3",)), Room(0)]
    assert one.ended(first, STORED, 1) == [Acknowledged(("a1", "a2"))]
    assert one.received(lent(4), 2) == [GivenBack(("a4",))]


def pieces(effects: Iterable[Effect]) -> list[tuple[list[str], bool]]:
    return [([lent.ack_id for lent in one.lent], one.last) for one in effects if isinstance(one, Send)]


def test_a_large_file_is_written_in_pieces_and_acknowledged_when_it_is_whole() -> None:
    one = exporter(memory_max=8 * (MESSAGE_BYTES + 1_100))
    effects = one.received(lent(1, 2, size=1_100), 0)
    assert pieces(effects) == [(["a1", "a2"], False)]
    ((file, _),) = files(effects)
    assert pieces(one.received(lent(3, 4, 5, size=1_100), 1)) == []  # one at a time
    effects = one.ended(file, STORED, 2)
    assert pieces(effects) == [(["a3", "a4", "a5"], False)]
    assert pieces(one.received(lent(6), 3)) == []
    assert not pieces(one.tick(61))  # it is due, and its piece is on its way
    effects = one.ended(file, STORED, 62)
    assert pieces(effects) == [(["a6"], True)]
    assert one.ended(file, STORED, 63)[0] == Acknowledged(("a1", "a2", "a3", "a4", "a5", "a6"))
    assert (one.held, one.memory) == (0, 0)


def test_what_does_not_fit_a_piece_ends_the_file_and_comes_again_for_the_next() -> None:
    one = exporter(memory_max=8 * (MESSAGE_BYTES + 1_100))
    ((file, _),) = files(one.received(lent(1, 2, size=1_100), 0))
    one.received(lent(3), 1)
    effects = one.ended(file, STORED, 2, unfit={CopyId(1, 2, 0)})
    assert (effects[0], pieces(effects)) == (Nacked(("a2",)), [(["a3"], True)])
    one.received(lent(2, size=1_100, again="'"), 3)
    assert one.ended(file, STORED, 4)[0] == Acknowledged(("a1", "a3"))
    assert [ids for _, ids in files(one.tick(64))] == [["a2'"]]


def test_a_file_of_which_a_piece_is_not_written_is_discarded_and_refused_whole() -> None:
    one = exporter(memory_max=4 * (MESSAGE_BYTES + 1_100))
    ((file, _),) = files(one.received(lent(1, size=1_100), 0))
    one.ended(file, STORED, 1)
    one.received(lent(2, size=1_100), 2)
    one.received(lent(3), 3)
    assert one.ended(file, UNKNOWN, 4)[:2] == [Discard(file), Nacked(("a1", "a2", "a3"))]
    assert (one.held, one.memory) == (0, 0)


def test_what_is_written_is_discarded_and_given_back_on_stopping() -> None:
    for waits in (True, False):  # for its next piece, or for the end of one
        one = exporter(memory_max=4 * (MESSAGE_BYTES + 1_100))
        ((file, _),) = files(one.received(lent(1, size=1_100), 0))
        if waits:
            one.ended(file, STORED, 1)
            assert one.stop()[:2] == [Discard(file), GivenBack(("a1",))]
        else:
            assert one.stop() == [Room(0)]
            assert one.ended(file, STORED, 1) == [Discard(file), GivenBack(("a1",))]
