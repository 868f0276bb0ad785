"""Lease tables against a plain model, by random steps."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from syncpoint.base import kernel
from syncpoint.base.kernel import ackids
from syncpoint.base.kernel.acks import decode_runs
from syncpoint.base.kernel.leases import LeaseTable
from tests.kit.examples import examples
from tests.kit.lease_requests import KEY, ODD, SOURCES, Acknowledge, Message, Modify, Pull, Streaming, body, payload_of

pytestmark = pytest.mark.shows("kernel")

firsts = st.sampled_from([0, 1000, 1020, 2040, 5000])
picks = st.one_of(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=12),
    st.lists(st.integers(0, 30), min_size=1, max_size=12),
    st.builds(lambda last, many: list(range(last, last - many, -1)), st.integers(0, 60), st.integers(1, 20)),
)


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

    @rule(places=picks, strict=st.booleans(), streaming=st.booleans(), taken_back=st.one_of(st.just([]), picks))
    def acknowledge(self, places: list[int], strict: bool, streaming: bool, taken_back: list[int]) -> None:
        void = {(one.source, one.offset): one.serial for one in self.pick(taken_back)}
        sent = self.pick(places)
        texts = [one.text.decode() for one in sent]
        kind = Streaming if streaming else Acknowledge
        request = kind(subscription="projects/p/subscriptions/s", ack_ids=texts).SerializeToString()
        good = [one for one in sent if self.counts(one, strict, void)]
        failed = [one.text for one in dict.fromkeys(sent) if strict and one not in good]
        count, acknowledged, refused = self.real.acknowledge(request, 2, self.now, strict, void)
        assert count == len(sent)
        assert refused == failed
        assert {
            (source, o) for source, runs in acknowledged for b, n in decode_runs(runs) for o in range(b, b + n)
        } == {(one.source, one.offset) for one in good}
        assert len({source for source, _ in acknowledged}) == len(acknowledged)
        for one in good:
            self.held.pop((one.source, one.offset), None)

    def counts(self, one: Id, strict: bool, void: dict[tuple[int, int], int]) -> bool:
        if strict:
            return self.is_current(one) and self.held[one.source, one.offset].deadline > self.now
        last = void.get((one.source, one.offset))
        is_void = last is not None and (one.epoch != self.epoch or one.serial <= last)
        return one.generation == self.generation and not is_void

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


LeaseMachine.TestCase.settings = settings(max_examples=examples(120 if kernel.COMPILED else 60), stateful_step_count=30)


TestLeases = LeaseMachine.TestCase
