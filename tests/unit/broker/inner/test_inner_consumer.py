"""The machine of inner consumers, played against a forwarder that lends in order, for each kind of consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base.model.reserved import FORWARD_HOPS
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.export.file_kind import FileKind, FileLimits
from syncpoint.broker.forward.forward_kind import ForwardKind
from syncpoint.broker.inner.inner_consumer import (
    MESSAGE_BYTES,
    ConsumerKind,
    Discard,
    Effect,
    GiveUp,
    InnerConsumer,
    Send,
    SendOutcome,
)
from syncpoint.broker.inner.lent import Acknowledged, Extended, GivenBack, Lent, Nacked, Room
from syncpoint.broker.inner.pace import Pace, PaceLimits
from syncpoint.broker.push.push_kind import PushKind
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.examples import examples

LEASE_S, MEMORY = 20.0, 24 * (MESSAGE_BYTES + 20)
KINDS: dict[str, tuple[Callable[[], ConsumerKind], PaceLimits]] = {
    "push": (PushKind, PaceLimits(4, 3_000, 16)),
    "forward": (ForwardKind, PaceLimits(4, 3_000, 16)),
    "export": (lambda: FileKind(FileLimits(30.0, max_messages=5)), PaceLimits(1, 1, 1)),
    "export in pieces": (lambda: FileKind(FileLimits(30.0)), PaceLimits(1, 1, 1)),
}


@dataclass
class Forwarder:
    """Lends the messages of an ordered subscription: of a key none before an earlier one is lent or acknowledged; what
    comes back takes all behind it of its key with it. `of[ack id]`: the copy, for ever."""

    one: InnerConsumer
    keys: list[str]
    hops: list[int]
    now: float = 0.0
    generation: int = 0
    room: int = 0
    numbers: int = 0
    of: dict[str, CopyId] = field(default_factory=dict)
    out: dict[CopyId, tuple[str, float]] = field(default_factory=dict)  # ack id and deadline
    acked: set[CopyId] = field(default_factory=set)
    stored: set[CopyId] = field(default_factory=set)
    sending: dict[int, tuple[list[CopyId], bool]] = field(default_factory=dict)  # by number; whether it is the rest
    giving_up: dict[int, tuple[CopyId, str]] = field(default_factory=dict)
    written: dict[int, list[CopyId]] = field(default_factory=dict)  # by number, in parts that are stored
    newest_seen: int = 0
    resting: set[CopyId] = field(default_factory=set)  # kept without a key: their leases end

    def copy(self, number: int) -> CopyId:
        return CopyId(1, number, self.generation)

    def lend(self, most: int = 100) -> None:
        found, blocked = [], set[str]()
        for number, key in enumerate(self.keys):
            copy = self.copy(number)
            if copy in self.acked or copy in self.out:
                continue
            if len(self.out) >= self.room or len(found) >= most or (key and key in blocked):
                blocked.add(key)
                continue
            self.numbers += 1
            ack_id = f"a{self.numbers}"
            self.of[ack_id], self.out[copy] = copy, (ack_id, self.now + LEASE_S)
            message = pubsub.PubsubMessage(data=bytes(10), message_id="one of all", ordering_key=key)
            if self.hops[number]:
                message.attributes[FORWARD_HOPS] = str(self.hops[number])
            found.append(Lent(ack_id, copy, message))
        if found:
            self.newest_seen = self.generation
            self.perform(self.one.received(found, self.now))

    def come_back(self, copy: CopyId) -> None:
        key = self.keys[copy.place]
        for other in list(self.out):
            if other == copy or (key and self.keys[other.place] == key and other.place > copy.place):
                del self.out[other]

    def lends(self, ack_id: str) -> bool:
        copy = self.of[ack_id]
        return copy in self.out and self.out[copy][0] == ack_id

    def perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(number, lent, last):
                    assert number not in self.sending
                    copies = [one.copy for one in lent]
                    self.check(copies, self.written.get(number, []))
                    self.sending[number] = copies, last
                case GiveUp(number, lent_one, _):
                    self.check([lent_one.copy], [])
                    self.giving_up[number] = lent_one.copy, lent_one.ack_id
                case Discard(number):
                    self.written.pop(number, None)
                case Acknowledged(ids):
                    for ack_id in ids:
                        assert self.of[ack_id] in self.stored
                        if self.lends(ack_id):
                            assert self.of[ack_id] not in self.acked
                            self.acked.add(self.of[ack_id])
                            del self.out[self.of[ack_id]]
                case Nacked(ids) | GivenBack(ids):
                    for ack_id in ids:
                        if self.lends(ack_id):
                            self.come_back(self.of[ack_id])
                case Extended(ids):
                    for ack_id in filter(self.lends, ids):
                        self.out[self.of[ack_id]] = ack_id, self.now + LEASE_S
                case Room(messages):
                    self.room = messages

    def check(self, copies: list[CopyId], before: list[CopyId]) -> None:
        """They may be sent now: nothing of their keys that comes first may still come."""
        assert len({copy.generation for copy in copies}) <= 1
        for at, copy in enumerate(copies):
            assert copy.generation == self.newest_seen, "what a seek made void is not sent"
            assert copy not in self.acked
            key, together = self.keys[copy.place], {*before, *copies[:at]}
            if not key or copy.generation != self.generation:
                continue
            for number in (n for n in range(copy.place) if self.keys[n] == key):
                assert self.copy(number) in {*self.acked, *self.stored, *together}
            under_way = [one for part, _ in self.sending.values() for one in part]
            under_way += [one for one, _ in self.giving_up.values()]
            assert all(self.keys[one.place] != key for one in under_way)

    def answer(self, at: int, outcome: SendOutcome, unfit: bool) -> None:
        number = [*self.sending, *self.giving_up][at % (len(self.sending) + len(self.giving_up))]
        if number in self.giving_up:
            copy, ack_id = self.giving_up.pop(number)
            kept = outcome is SendOutcome.UNKNOWN or not self.lends(ack_id)
            if not kept:  # the letter is stored, and the copy acknowledged by who made it
                self.acked.add(copy)
                del self.out[copy]
            if kept and not self.keys[copy.place]:
                self.resting.add(copy)
            self.perform(self.one.given_up(number, self.now, kept=kept))
            return
        copies, last = self.sending.pop(number)
        bad = frozenset(one for one in copies[:1] if unfit and not self.keys[one.place])
        if outcome is SendOutcome.STORED:
            self.written.setdefault(number, []).extend(one for one in copies if one not in bad)
            if last:
                self.stored.update(self.written.pop(number))
        self.perform(self.one.ended(number, outcome, self.now, unfit=bad if outcome is SendOutcome.STORED else ()))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.perform(self.one.tick(self.now))
        for copy in [copy for copy, (_, deadline) in self.out.items() if deadline <= self.now]:
            assert copy in self.resting, "what is held is lent"
            self.resting.discard(copy)
            self.come_back(copy)

    def lose_grants(self) -> None:
        self.out.clear()

    def seek(self) -> None:
        self.generation += 1
        self.out.clear()

    def reconfigure(self) -> None:
        """The feed is closed and opened again."""
        self.perform(self.one.stop())
        assert self.room == 0
        self.one.resume()


OUTCOMES = st.sampled_from([SendOutcome.STORED, *SendOutcome])
STEPS = st.one_of(
    st.tuples(st.just("answer"), st.tuples(st.integers(0, 5), OUTCOMES, st.booleans())),
    st.tuples(st.just("time"), st.sampled_from([0.01, 0.2, 9.9])),
    st.tuples(st.just("lend"), st.integers(1, 8)),
    st.tuples(st.sampled_from(["seek", "lose grants", "reconfigure", "end gathering"]), st.none()),
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(150), deadline=None)
@given(
    what=st.lists(
        st.tuples(st.sampled_from(["", "", "k", "l"]), st.sampled_from([0, 0, 0, 0, 4])), min_size=6, max_size=40
    ),
    steps=st.lists(STEPS, min_size=10, max_size=80),
)
def test_every_copy_ends_once_and_keys_stay_in_order(
    kind: str, what: list[tuple[str, int]], steps: list[tuple[str, object]]
) -> None:
    made, limits = KINDS[kind]
    one = InnerConsumer(made(), Pace(limits, SeededRandom(1)), lease_s=LEASE_S, memory_max=MEMORY)
    lessor = Forwarder(one, [key for key, _ in what], [hops for _, hops in what])
    lessor.perform(one.tick(0.0))
    for step, argument in steps:
        match step, argument:
            case "answer", (int(at), SendOutcome() as outcome, bool(unfit)):
                if lessor.sending or lessor.giving_up:
                    lessor.answer(at, outcome, unfit and kind.startswith("export"))
            case "time", float(seconds):
                lessor.pass_time(seconds)
            case "seek", _:
                lessor.seek()
            case "lose grants", _:
                lessor.lose_grants()
            case "reconfigure", _:
                lessor.reconfigure()
            case "end gathering", _:
                lessor.perform(one.end_gathering(lessor.now))
            case _, int(most):
                lessor.lend(most)
        assert one.held >= sum(len(copies) for copies, _ in lessor.sending.values())
        assert 0 <= one.memory <= MEMORY + len(what) * (MESSAGE_BYTES + 100)
    for _ in range(40 * (len(what) + 2)):
        if not one.held and all(lessor.copy(number) in lessor.acked for number in range(len(what))):
            break
        lessor.lend()
        if lessor.sending or lessor.giving_up:
            lessor.answer(0, SendOutcome.STORED, False)
        lessor.pass_time(9.0)
    assert all(lessor.copy(number) in lessor.acked for number in range(len(what)))
    assert (one.held, one.memory, one.under_way) == (0, 0, 0)


def lent(place: int, key: str = "", *, generation: int = 0, ack_id: str = "") -> Lent:
    message = pubsub.PubsubMessage(message_id="the same", ordering_key=key)
    return Lent(ack_id or f"a{place}.{generation}", CopyId(1, place, generation), message)


def sent(effects: Iterable[Effect]) -> list[list[str]]:
    return [[one.ack_id for one in effect.lent] for effect in effects if isinstance(effect, Send)]


def machine() -> InnerConsumer:
    return InnerConsumer(ForwardKind(), Pace(PaceLimits(4, 3_000, 16), SeededRandom(1)), lease_s=LEASE_S)


def test_what_a_seek_makes_void_is_dropped_and_what_it_brings_back_waits_for_what_is_under_way() -> None:
    one = machine()
    assert sent(one.received([lent(1, "k")], 0.0)) == [["a1.0"]]
    assert sent(one.received([lent(2, "k")], 0.1)) == []
    assert sent(one.received([lent(1, "k", generation=1), lent(2, "k", generation=1)], 0.2)) == []
    assert one.held == 3
    effects = one.ended(1, SendOutcome.STORED, 0.3)
    assert effects[0] == Acknowledged(("a1.0",)), "what the seek brought back is not acknowledged with it"
    assert sent(effects) == [["a1.1", "a2.1"]]
    assert one.received([lent(3)], 0.4) == [GivenBack(("a3.0",))], "somebody lent it who has not learned of the seek"


@pytest.mark.parametrize("outcome", [SendOutcome.REFUSED, SendOutcome.UNKNOWN])
def test_what_was_under_way_at_a_seek_is_not_sent_again(outcome: SendOutcome) -> None:
    one = machine()
    one.received([lent(1, "k"), lent(2, "k")], 0.0)
    one.received([lent(1, "k", generation=1)], 0.1)
    one.ended(1, outcome, 0.2)
    one.tick(200.0)
    assert one.held == 0 or sent(one.received([lent(2, "k", generation=1)], 201.0)) == [["a1.1", "a2.1"]]


def test_a_lane_stays_busy_while_the_feed_is_opened_anew() -> None:
    one = machine()
    one.received([lent(1, "k")], 0.0)
    assert one.received([lent(2, "k")], 0.1) == []
    assert one.stop() == [GivenBack(("a2.0",)), Room(0)]
    one.resume()
    assert sent(one.tick(0.2)) == []
    assert sent(one.received([lent(2, "k", ack_id="b2")], 0.3)) == []
    assert one.ended(1, SendOutcome.UNKNOWN, 0.4)[:2] == [GivenBack(("a1.0",)), GivenBack(("b2",))]


def test_what_fails_takes_what_waits_of_its_lane_with_it_also_where_no_pause_begins() -> None:
    one = machine()
    assert sent(one.received([lent(1, "k"), lent(2, "l")], 0.0)) == [["a1.0"], ["a2.0"]]
    assert one.ended(1, SendOutcome.UNKNOWN, 1.0)[0] == GivenBack(("a1.0",))
    one.tick(1.5)  # the pause is over
    assert sent(one.received([lent(3, "l"), lent(4, "m")], 1.5)) == [["a4.0"]]
    assert one.ended(2, SendOutcome.UNKNOWN, 2.0) == [GivenBack(("a2.0",)), GivenBack(("a3.0",))]


def test_lanes_take_turns() -> None:
    one = InnerConsumer(PushKind(), Pace(PaceLimits(1, 3_000, 1), SeededRandom(1)), lease_s=LEASE_S)
    first = one.received([*(lent(n) for n in range(3)), lent(7, "k"), lent(8, "l")], 0.0)
    order, effects = [], first
    while sent(effects):
        (effect,) = (effect for effect in effects if isinstance(effect, Send))
        order.append(effect.lent[0].copy.place)
        effects = one.ended(effect.number, SendOutcome.STORED, 0.1)
    assert order == [0, 7, 8, 1, 2]
