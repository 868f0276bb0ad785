"""LeaseTable against a dictionary of leases; requests and responses through the official message classes."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base import kernel
from syncpoint.base.kernel import ackids
from syncpoint.base.kernel.acks import decode_runs, encode_runs
from syncpoint.base.kernel.errors import BadAckId, Invalid, Malformed
from syncpoint.base.kernel.leases import LeaseTable, list_ids
from tests.kit.lease_requests import KEY, Acknowledge, Modify, Pull, payload_of


def filled(count: int = 3, deadline: int = 1000) -> tuple[LeaseTable, list[str]]:
    table = LeaseTable(KEY, 1, 1)
    response = table.lease(5, payload_of(0, count), 0, 0, count, None, b"", 1, deadline, 9999, 10**9, 0)[0]
    return table, [one.ack_id for one in Pull.FromString(response).received_messages]


def give(table: LeaseTable, first: int, deadline: int, source: int = 5, count: int = 1) -> list[str]:
    """Lease `count` messages to consumer 1; their ack ids."""
    arguments = (source, payload_of(first, count), first, first, first + count, None, b"", 1, deadline, 99, 10**9, 0)
    return [one.ack_id for one in Pull.FromString(table.lease(*arguments)[0]).received_messages]


def acknowledge(table: LeaseTable, texts: list[str], now: int, strict: bool) -> tuple[int, list, list]:
    return table.acknowledge(Acknowledge(ack_ids=texts).SerializeToString(), 2, now, strict)


def test_the_next_deadline_follows_whatever_ends_or_moves() -> None:
    table = LeaseTable(KEY, 1, 1)
    assert table.next_deadline() == -1
    early, middle, late = (give(table, offset, 100 * (offset + 1)) for offset in range(3))
    assert table.next_deadline() == 100
    acknowledge(table, early, 5, False)
    assert table.next_deadline() == 200
    request = Modify(ack_ids=middle).SerializeToString()
    table.modify(request, 4, 60, 5, False)
    assert table.next_deadline() == 300
    table.modify(request, 4, 1, 5, False)
    assert table.next_deadline() == 105
    give(table, 3, 50)
    assert table.next_deadline() == 50
    give(table, 5000, 20)
    assert table.next_deadline() == 20
    assert table.expire(19) == []
    assert table.expire(104) == [(5, 3), (5, 5000)]
    assert table.revoke(5, 1)
    assert table.next_deadline() == 300
    acknowledge(table, late, 5, False)
    assert table.next_deadline() == -1


def test_expire_finds_what_came_or_moved_since_it_last_looked() -> None:
    table = LeaseTable(KEY, 1, 1)
    texts = give(table, 0, 1000)
    assert table.expire(10) == []
    give(table, 1, 50)
    assert table.expire(60) == [(5, 1)]
    table.modify(Modify(ack_ids=texts).SerializeToString(), 4, 1, 60, False)
    assert table.expire(159) == []
    assert table.expire(160) == [(5, 0)]


@pytest.mark.parametrize(("now", "in_time"), [(99, True), (100, False)])
def test_exactly_once_ends_at_the_deadline_itself(now: int, in_time: bool) -> None:
    table = LeaseTable(KEY, 1, 1)
    texts = give(table, 0, 100)
    failed = [] if in_time else [texts[0].encode()]
    assert table.modify(Modify(ack_ids=texts).SerializeToString(), 4, 0, now, True) == ([(5, 0)] * in_time, failed)
    table = LeaseTable(KEY, 1, 1)
    assert acknowledge(table, give(table, 0, 100), now, True)[2] == failed


def test_exactly_once_knows_the_newest_delivery_only() -> None:
    table = LeaseTable(KEY, 1, 1)
    old = give(table, 0, 100)
    assert table.expire(100) == [(5, 0)]
    new = give(table, 0, 300)
    assert acknowledge(table, old, 150, True) == (1, [], [old[0].encode()])
    assert table.modify(Modify(ack_ids=old).SerializeToString(), 4, 0, 150, False) == ([], [])
    assert table.total()[0] == 1
    assert acknowledge(table, old, 150, False) == (1, [(5, encode_runs([(0, 1)]))], [])
    assert table.total()[0] == 0
    assert acknowledge(table, new, 150, True)[2] == [new[0].encode()]


def test_one_call_of_several_in_a_block_is_released() -> None:
    table = LeaseTable(KEY, 1, 1)
    for first in (0, 10, 20):
        give(table, first, 100, count=2)
    assert table.release_serial(2) == [(5, 10), (5, 11)]
    assert table.release_serial(2) == []
    assert table.release_serial(1) == [(5, 0), (5, 1)]
    assert table.release_serial(3) == [(5, 20), (5, 21)]


def test_runs_do_not_reach_from_one_source_into_another() -> None:
    table = LeaseTable(KEY, 1, 1)
    texts = give(table, 0, 100, source=5) + give(table, 1, 100, source=6)
    assert acknowledge(table, texts, 5, True)[1] == [(5, encode_runs([(0, 1)])), (6, encode_runs([(1, 1)]))]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"A" * 48,
        b"A" * 47,
        b"x" * 100_000,
        ackids.encode(b"another key 0123", 5, 0, 1, 1, 1),
        ackids.encode(KEY, 5, 0, 1, 1, 1)[:-1],
        ackids.encode(KEY, 5, 0, 1, 1, 1) + b"=",
        ackids.encode(KEY, 5, 0, 1, 1, 1).replace(b"A", b"+", 1),
        ackids.encode(KEY, 5, 2**62, 1, 1, 1),
    ],
)
def test_one_bad_ack_id_and_nothing_changes(bad: bytes) -> None:
    table, texts = filled()
    for call in (
        lambda request: table.acknowledge(request, 2, 5, False),
        lambda request: table.modify(request, 2, 0, 5, True),
    ):
        request = Acknowledge(ack_ids=[*texts, bad.decode(), texts[0]]).SerializeToString()
        with pytest.raises(BadAckId) as refused:
            call(request)
        assert refused.value.ack_id == bad
        with pytest.raises(Malformed):
            call(Acknowledge(ack_ids=texts).SerializeToString() + b"\x12\xff")
        assert table.total()[0] == 3


@given(st.binary(max_size=120))
def test_random_requests_change_nothing(raw: bytes) -> None:
    table, _ = filled()
    for call in (
        lambda: table.acknowledge(raw, 2, 5, True),
        lambda: table.modify(raw, 4, 0, 5, True),
        lambda: list_ids(raw, 2),
    ):
        try:
            call()
        except (Malformed, BadAckId):
            continue
    assert table.total()[0] == 3


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_random_payloads_and_programs_change_nothing_when_refused(payload: bytes, program: bytes) -> None:
    table = LeaseTable(KEY, 1, 1)
    try:
        table.lease(5, payload, 0, 0, 100, None, program, 1, 1, 100, 1000, 0)
    except Malformed:
        assert table.total() == (0, 0)
        assert table.last_serial == 0
        assert table.blocks() == 0


def test_other_fields_in_any_order_are_passed_over() -> None:
    table, texts = filled()
    ids = [b"\x12\x30" + text.encode() for text in texts]
    noise = [b"\x0a\x03abc", b"\x18\x05", b"\x25abcd", b"\x29abcdefgh", b"\x10\x07", b"\x9a\x01\x00"]
    request = b"".join(part for pair in zip(noise, [*ids, b"", b"", b""], strict=True) for part in pair)
    assert list_ids(request, 2) == [text.encode() for text in texts]
    assert table.acknowledge(request, 2, 5, True) == (3, [(5, encode_runs([(0, 3)]))], [])


def test_an_ack_id_sent_twice_counts_once() -> None:
    table, texts = filled()
    request = Acknowledge(ack_ids=[texts[0], texts[0], texts[1]]).SerializeToString()
    count, acknowledged, failed = table.acknowledge(request, 2, 5, True)
    assert (count, failed) == (3, [])
    assert decode_runs(acknowledged[0][1]) == [(0, 1), (1, 1)] or decode_runs(acknowledged[0][1]) == [(0, 2)]
    assert table.acknowledge(request, 2, 5, True) == (3, [], [texts[0].encode(), texts[1].encode()])


def test_deadlines_must_make_sense() -> None:
    table, texts = filled()
    request = Modify(ack_ids=texts).SerializeToString()
    for seconds in (-1, 2**31, [1], [1, 2, -3], [1, 2, 3, 4]):
        with pytest.raises(Invalid):
            table.modify(request, 4, seconds, 5, False)
    assert table.next_deadline() == 1000


def test_numbers_out_of_range() -> None:
    with pytest.raises(ValueError, match="epoch"):
        LeaseTable(KEY, 2**32, 0)
    with pytest.raises(ValueError, match="16"):
        LeaseTable(b"short", 0, 0)
    table = LeaseTable(KEY, 1, 1)
    fine: dict[str, object] = {
        "source": 5, "payload": payload_of(0, 2), "first_offset": 0, "begin": 0, "end": 2**70, "skip": None,
        "program": b"", "consumer": 1, "deadline": 1, "max_messages": 2**70, "max_bytes": 2**70, "attempt": 0,
    }  # fmt: skip
    for name, value in {
        "source": 2**64,
        "first_offset": -1,
        "begin": -1,
        "consumer": 2**32 - 1,
        "deadline": -1,
    }.items():
        with pytest.raises(ValueError, match="out of range"):
            table.lease(*(fine | {name: value}).values())
    assert table.total() == (0, 0)
    assert table.lease(*fine.values())[2] == 2


def test_memory_is_given_back() -> None:
    table = LeaseTable(KEY, 1, 1)
    count = 2_000
    payload = payload_of(0, count)
    if kernel.COMPILED:  # tracing makes the sources far too slow
        tracemalloc.start()
    try:
        for start in range(0, 10**9, 10**8):
            for source in range(3):
                arguments = (source, payload, start, start, start + count, None, b"", 1, 9, 10**4, 10**9, 0)
                assert table.lease(*arguments)[2] == count
        assert table.total()[0] == 60_000
        assert 59 <= table.blocks() <= 90
        held, _ = tracemalloc.get_traced_memory()
        assert table.blocks() * 20_000 < held < table.blocks() * 22_000 or not kernel.COMPILED
        assert len(table.expire(9)) == 60_000
        kept, _ = tracemalloc.get_traced_memory()
        assert kept < held // 4 or not kernel.COMPILED
    finally:
        tracemalloc.stop()
    assert table.blocks() == 0
    assert table.total() == (0, 0)
    assert table.outstanding(1) == (0, 0)
    assert table.next_deadline() == -1


def test_repr_reports_what_is_outstanding() -> None:
    assert "3 messages" in repr(filled()[0])
