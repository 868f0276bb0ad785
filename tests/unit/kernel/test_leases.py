"""LeaseTable against a dictionary of leases; requests and responses through the official message classes."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from functools import cache

import pytest
from google.pubsub_v1 import types
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from syncpoint import kernel
from syncpoint.kernel import ackids
from syncpoint.kernel.acks import decode_runs, encode_runs
from syncpoint.kernel.errors import BadAckId, Invalid, Malformed
from syncpoint.kernel.leases import LeaseTable, list_ids

Message = types.PubsubMessage.pb()
Pull = types.PullResponse.pb()
Acknowledge = types.AcknowledgeRequest.pb()
Modify = types.ModifyAckDeadlineRequest.pb()
Streaming = types.StreamingPullRequest.pb()

KEY = b"sixteen bytes :)"
SOURCES = (5, 2**64 - 1)
ODD = b"\x02" + (4).to_bytes(2, "little") + b"kind" + (3).to_bytes(2, "little") + b"odd"  # attributes.kind = "odd"


@cache
def body(offset: int) -> bytes:
    """The message at an offset: odd ones match ODD."""
    kind = {"kind": "odd"} if offset % 2 else {}
    return Message(data=b"x" * (offset % 7 * 10 + 1), attributes=kind, message_id=str(offset)).SerializeToString()


def payload_of(first: int, count: int) -> bytes:
    return b"".join(len(body(o)).to_bytes(4, "little") + body(o) for o in range(first, first + count))


@dataclass
class Lease:
    serial: int
    consumer: int
    deadline: int
    size: int


@dataclass(frozen=True)
class Id:
    text: bytes
    source: int
    offset: int
    serial: int
    epoch: int
    generation: int


firsts = st.sampled_from([0, 1000, 1020, 2040, 5000])
picks = st.one_of(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=12),
    st.lists(st.integers(0, 30), min_size=1, max_size=12),
    st.builds(lambda last, many: list(range(last, last - many, -1)), st.integers(0, 60), st.integers(1, 20)),
)


class LeaseMachine(RuleBasedStateMachine):
    """The table under test, and what it should know."""

    @initialize(generation=st.integers(0, 5))
    def begin(self, generation: int) -> None:
        self.epoch, self.generation, self.serial, self.now = 7, generation, 0, 100
        self.real = LeaseTable(KEY, self.epoch, generation)
        self.held: dict[tuple[int, int], Lease] = {}
        self.ids: list[Id] = [
            self.make_id(5, 1001, 1, 6, generation),  # another epoch, another generation, offset never seen
            self.make_id(5, 1001, 1, 7, generation + 1),
            self.make_id(9, 123_456, 1, 6, generation),
        ]

    def make_id(self, source: int, offset: int, serial: int, epoch: int, generation: int) -> Id:
        text = ackids.encode(KEY, source, offset, serial, epoch, generation)
        return Id(text, source, offset, serial, epoch, generation)

    def pick(self, places: list[int]) -> list[Id]:
        return [self.ids[-1 - place % len(self.ids)] for place in places]

    def is_current(self, one: Id) -> bool:
        lease = self.held.get((one.source, one.offset))
        return lease is not None and (one.serial, one.epoch, one.generation) == (
            lease.serial,
            self.epoch,
            self.generation,
        )

    @rule(
        source=st.sampled_from(SOURCES),
        first=firsts,
        count=st.integers(0, 40),
        begin=st.one_of(st.just(0), st.integers(-3, 45)),
        length=st.one_of(st.just(45), st.integers(0, 45)),
        skip=st.one_of(st.none(), st.binary(max_size=6)),
        program=st.sampled_from([b"", b"", ODD]),
        consumer=st.integers(0, 3),
        lasts=st.integers(0, 300),
        max_messages=st.sampled_from([1000, 0, 1, 3, 1000]),
        max_bytes=st.sampled_from([10**9, 0, 1, 100, 500, 10**9, -3]),
        attempt=st.sampled_from([0, 0, 1, 300]),
        first_max_bytes=st.sampled_from([-1, -1, 0, 40, 10**9]),
    )
    def lease(
        self,
        source: int,
        first: int,
        count: int,
        begin: int,
        length: int,
        skip: bytes | None,
        program: bytes,
        consumer: int,
        lasts: int,
        max_messages: int,
        max_bytes: int,
        attempt: int,
        first_max_bytes: int = -1,
    ) -> None:
        begin = max(0, first + begin)
        end = begin + length
        if max_bytes < 0:  # exactly what the first few free ones take
            free = [o for o in range(max(begin, first), first + count) if (source, o) not in self.held]
            max_bytes = sum(len(body(o)) for o in free[:-max_bytes])
        deadline = self.now + lasts
        given: list[int] = []
        dropped: list[int] = []
        total = 0
        at = max(first, min(max(begin, first), first + count))
        while at < min(end, first + count) and len(given) < max_messages and max_bytes > 0:
            bit = at - first
            skipped = skip is not None and bit < len(skip) * 8 and skip[bit // 8] >> bit % 8 & 1
            if not skipped and (source, at) not in self.held:
                if program and at % 2 == 0:
                    dropped.append(at)
                elif (given and total + len(body(at)) > max_bytes) or (
                    not given and 0 <= first_max_bytes < len(body(at))
                ):
                    break
                else:
                    given.append(at)
                    total += len(body(at))
            at += 1
        response, next_offset, number, size, dropped_runs = self.real.lease(
            source, payload_of(first, count), first, begin, end, skip, program, consumer, deadline,
            max_messages, max_bytes, attempt, first_max_bytes,
        )  # fmt: skip
        assert next_offset == max(begin, min(at, end))
        assert (number, size) == (len(given), total)
        assert [o for start, many in decode_runs(dropped_runs) for o in range(start, start + many)] == dropped
        received = Pull.FromString(response).received_messages
        assert [one.message.SerializeToString() for one in received] == [
            Message.FromString(body(o)).SerializeToString() for o in given
        ]
        assert all(one.delivery_attempt == attempt for one in received)
        if given:
            self.serial += 1
        for one, offset in zip(received, given, strict=True):
            parts = (source, offset, self.serial, self.epoch, self.generation)
            assert ackids.decode(KEY, one.ack_id.encode()) == parts
            if offset % 5 == 0:
                self.ids.append(self.make_id(source, offset, self.serial, self.epoch - 1, self.generation))
            self.ids.append(Id(one.ack_id.encode(), *parts))
            self.held[source, offset] = Lease(self.serial, consumer, deadline, len(body(offset)))

    @rule(source=st.sampled_from(SOURCES), first=firsts, consumer=st.integers(0, 3), lasts=st.integers(0, 300))
    def lease_all(self, source: int, first: int, consumer: int, lasts: int) -> None:
        self.lease(source, first, 25, 0, 25, None, b"", consumer, lasts, 1000, 10**9, 0)

    @rule(passes=st.integers(0, 150))
    def wait(self, passes: int) -> None:
        self.now += passes

    @rule()  # no invariant: asking makes the table look after its bounds, which must be right without that, too
    def next_deadline(self) -> None:
        assert self.real.next_deadline() == min((lease.deadline for lease in self.held.values()), default=-1)

    @rule(places=picks, strict=st.booleans(), streaming=st.booleans())
    def acknowledge(self, places: list[int], strict: bool, streaming: bool) -> None:
        sent = self.pick(places)
        texts = [one.text.decode() for one in sent]
        kind = Streaming if streaming else Acknowledge
        request = kind(subscription="projects/p/subscriptions/s", ack_ids=texts).SerializeToString()
        good = [one for one in sent if self.counts(one, strict)]
        failed = [one.text for one in dict.fromkeys(sent) if strict and one not in good]
        count, acknowledged, refused = self.real.acknowledge(request, 2, self.now, strict)
        assert count == len(sent)
        assert refused == failed
        assert {
            (source, o) for source, runs in acknowledged for b, n in decode_runs(runs) for o in range(b, b + n)
        } == {(one.source, one.offset) for one in good}
        assert len({source for source, _ in acknowledged}) == len(acknowledged)
        for one in good:
            self.held.pop((one.source, one.offset), None)

    def counts(self, one: Id, strict: bool) -> bool:
        if strict:
            return self.is_current(one) and self.held[one.source, one.offset].deadline > self.now
        return one.generation == self.generation

    @rule(
        places=picks, strict=st.booleans(), seconds=st.one_of(st.none(), st.sampled_from([0, 1, 600])), data=st.data()
    )
    def modify(self, places: list[int], strict: bool, seconds: int | None, data: st.DataObject) -> None:
        sent = self.pick(places)
        texts = [one.text.decode() for one in sent]
        wanted: int | list[int]
        if seconds is None:
            values = st.lists(st.sampled_from([0, 1, 30]), min_size=len(sent), max_size=len(sent))
            each = wanted = data.draw(values)
            request = Streaming(modify_deadline_ack_ids=texts, modify_deadline_seconds=each).SerializeToString()
        else:
            wanted, each = seconds, [seconds] * len(sent)
            request = Modify(ack_ids=texts, ack_deadline_seconds=seconds).SerializeToString()
        nacked, well, bad = [], set(), []
        for one, number in zip(sent, each, strict=True):
            place = (one.source, one.offset)
            if not self.is_current(one) or (strict and self.held[place].deadline <= self.now):
                bad.append(one)
                continue
            well.add(one)
            if number == 0:
                nacked.append(place)
                del self.held[place]
            else:
                self.held[place].deadline = self.now + number * 100
        failed = [one.text for one in dict.fromkeys(bad) if strict and one not in well]
        assert self.real.modify(request, 4, wanted, self.now, strict) == (nacked, failed)

    def end(self, which: list[tuple[int, int]]) -> list[tuple[int, int]]:
        for place in which:
            del self.held[place]
        return sorted(which)

    @rule(passes=st.integers(0, 200))
    def expire(self, passes: int) -> None:
        self.now += passes
        over = [place for place, lease in self.held.items() if lease.deadline <= self.now]
        assert self.real.expire(self.now) == self.end(over)

    @rule(back=st.integers(0, 5))
    def release_serial(self, back: int) -> None:
        serial = max(0, self.serial - back)
        over = [place for place, lease in self.held.items() if lease.serial == serial]
        assert self.real.release_serial(serial) == self.end(over)

    @rule(kind=st.integers(0, 9), consumer=st.integers(0, 3), places=picks, source=st.sampled_from(SOURCES))
    def disturb(self, kind: int, consumer: int, places: list[int], source: int) -> None:
        """The rarer things, so that there is something outstanding most of the time."""
        if kind <= 2:
            over = [place for place, lease in self.held.items() if lease.consumer == consumer]
            assert self.real.release_consumer(consumer) == self.end(over)
        elif kind <= 7:
            for one in self.pick(places[:2]):
                was = self.held.pop((one.source, one.offset), None)
                assert self.real.revoke(one.source, one.offset) is (was is not None)
        elif kind == 8:
            self.real.drop_source(source)
            self.end([place for place in self.held if place[0] == source])
        else:
            self.generation += 1
            self.real.reset(self.generation)
            self.held.clear()

    @invariant()
    def agrees(self) -> None:
        real, held = self.real, self.held
        assert (real.epoch, real.generation, real.last_serial) == (self.epoch, self.generation, self.serial)
        assert real.total() == (len(held), sum(lease.size for lease in held.values()))
        for consumer in range(4):
            mine = [lease for lease in held.values() if lease.consumer == consumer]
            assert real.outstanding(consumer) == (len(mine), sum(lease.size for lease in mine))
        assert real.blocks() == len({(source, offset // 1024) for source, offset in held})
        oldest = min(((lease.serial, place) for place, lease in held.items()), default=(0, None))[1]
        assert real.oldest() == oldest
        for one in self.ids[-5:]:
            lease = held.get((one.source, one.offset))
            assert real.is_outstanding(one.source, one.offset) is (lease is not None)
            assert real.holder(one.source, one.offset) == (lease.consumer if lease else -1)


LeaseMachine.TestCase.settings = settings(max_examples=120 if kernel.COMPILED else 60, stateful_step_count=30)
TestLeases = LeaseMachine.TestCase


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
