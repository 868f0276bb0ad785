"""One push subscription as a machine: events in, effects out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.inner.inner_consumer import Effect, InnerConsumer, Send, SendOutcome
from syncpoint.broker.inner.lent import Acknowledged, Extended, GivenBack, Lent, Nacked, Room
from syncpoint.broker.inner.pace import Pace, PaceLimits
from syncpoint.broker.push.push_kind import PushKind
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.wire.protobuf.messages import pubsub

STORED, UNKNOWN = SendOutcome.STORED, SendOutcome.UNKNOWN


def lent(number: int, key: str = "", ack_id: str = "") -> Lent:
    message = pubsub.PubsubMessage(data=b"x", message_id=str(number), ordering_key=key)
    return Lent(ack_id or f"a{number}", CopyId(1, number, 0), message)


def machine(window: int = 4, lease_s: float = 15.0) -> InnerConsumer:
    return InnerConsumer(PushKind(), Pace(PaceLimits(window, 3_000, 1_000), SeededRandom(1)), lease_s=lease_s)


def sent(effects: list[Effect]) -> list[str]:
    return [one.lent[0].ack_id for one in effects if isinstance(one, Send)]


def test_it_asks_for_what_its_window_allows_and_sends_at_once() -> None:
    one = machine()
    assert one.tick(0.0) == [Room(4)]
    effects = one.received([lent(1), lent(2)], 0.0)
    assert sent(effects) == ["a1", "a2"]


def test_a_pause_gives_back_what_was_not_sent_and_takes_nothing() -> None:
    one = machine(window=2)
    effects = one.received([lent(1), lent(2), lent(3)], 0.0)
    assert sent(effects) == ["a1", "a2"]
    effects = one.ended(1, UNKNOWN, 1.0)
    assert effects == [Nacked(("a1",)), GivenBack(("a3",)), Room(0)]
    assert one.received([lent(4)], 1.05) == [GivenBack(("a4",))]  # it was on its way
    assert one.ended(2, STORED, 1.06) == [Acknowledged(("a2",))]  # what is under way goes on, and counts
    assert one.tick(1.09) == []
    assert one.tick(1.2) == [Room(one.pace.window)]


def test_of_a_key_one_message_is_under_way() -> None:
    one = machine(window=10)
    effects = one.received([lent(1, "k"), lent(2, "k"), lent(3, "l"), lent(4)], 0.0)
    assert sent(effects) == ["a1", "a3", "a4"]
    assert Room(11) in effects  # the one that waits takes nobody's place
    assert sent(one.ended(3, STORED, 0.1)) == []
    assert sent(one.ended(1, STORED, 0.2)) == ["a2"]


def test_a_failure_takes_what_waits_of_its_key_with_it() -> None:
    one = machine(window=10)
    one.received([lent(1, "k"), lent(2, "k"), lent(3, "k"), lent(4, "l"), lent(5, "l")], 0.0)
    effects = one.ended(1, UNKNOWN, 0.1)
    assert effects == [Nacked(("a1",)), GivenBack(("a2", "a3")), GivenBack(("a5",)), Room(0)]
    one.ended(4, STORED, 0.2)
    effects = one.received([lent(1, "k", "b1"), lent(2, "k", "b2")], 1.0)
    assert sent(effects) == ["b1"]


def test_what_is_held_is_lent_for_longer() -> None:
    one = machine(window=10, lease_s=10.0)
    one.received([lent(1, "k"), lent(2, "k")], 0.0)
    assert one.tick(4.9) == []
    assert one.tick(5.1) == [Extended(("a1", "a2"))]
    effects = one.ended(1, STORED, 6.0)
    assert (effects[0], sent(effects)) == (Acknowledged(("a1",)), ["a2"])
    assert one.tick(9.0) == []
    assert one.tick(10.2) == [Extended(("a2",))], "also while it is under way"


def test_what_is_lent_anew_while_it_waits_is_sent_once_and_acknowledged_by_its_newest_id() -> None:
    one = machine(window=10)
    one.received([lent(1, "k"), lent(2, "k")], 0.0)
    one.received([lent(2, "k", "b2")], 1.0)
    assert sent(one.ended(1, STORED, 1.0)) == ["a2"]
    assert one.ended(2, STORED, 2.0)[0] == Acknowledged(("b2",))


def test_copies_of_one_message_are_sent_each() -> None:
    one = machine(window=1)
    message = pubsub.PubsubMessage(message_id="1")
    assert sent(one.received([Lent(f"a{place}", CopyId(1, place, 0), message) for place in (1, 2, 3)], 0.0)) == ["a1"]
    assert one.held == 3


def test_after_its_end_it_sends_nothing_and_says_what_becomes_of_the_rest() -> None:
    one = machine(window=1)
    one.received([lent(1), lent(2)], 0.0)
    assert one.stop() == [GivenBack(("a2",)), Room(0)]
    assert one.received([lent(3)], 0.1) == [GivenBack(("a3",))]
    assert one.tick(5.0) == []
    assert one.ended(1, STORED, 6.0) == [Acknowledged(("a1",))]
    assert not one.held


@given(
    keys=st.lists(st.sampled_from(["", "", "k", "l"]), min_size=1, max_size=30),
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from([STORED, STORED, UNKNOWN, SendOutcome.REFUSED]), st.floats(0, 3)),
        max_size=60,
    ),
)
def test_every_message_ends_once_and_keys_stay_in_order(
    keys: list[str], steps: list[tuple[int, SendOutcome, float]]
) -> None:
    """Played against the simplest forwarder: what comes back is lent again, behind nothing of its key."""
    one, now = machine(), 0.0
    ready = [(number, key) for number, key in enumerate(keys)]
    held: dict[str, tuple[int, str]] = {}
    under_way: dict[int, str] = {}
    acked: list[tuple[int, str]] = []
    room, ids = 0, 0

    def come_back(number: int, key: str) -> None:
        if key:
            for ack_id in [ack_id for ack_id, (other, its) in held.items() if its == key and other > number]:
                if ack_id not in under_way.values():
                    ready.append(held.pop(ack_id))
        ready.append((number, key))
        ready.sort()

    def perform(effects: list[Effect]) -> None:
        nonlocal room
        for effect in effects:
            match effect:
                case Send(number, (what,), True):
                    key = what.message.ordering_key
                    assert what.ack_id in held
                    assert not key or all(held[other][1] != key for other in under_way.values())
                    under_way[number] = what.ack_id
                case Acknowledged(ack_ids):
                    acked.extend(held.pop(ack_id) for ack_id in ack_ids)
                case Nacked(ack_ids) | GivenBack(ack_ids):
                    for ack_id in ack_ids:
                        if ack_id in held:
                            come_back(*held.pop(ack_id))
                case Room(messages):
                    room = messages

    def lend() -> None:
        nonlocal ids
        found = []
        while ready and len(held) < room:
            number, key = ready.pop(0)
            ids += 1
            held[f"i{ids}"] = (number, key)
            found.append(lent(number, key, f"i{ids}"))
        if found:
            perform(one.received(found, now))

    def answer(which: int, outcome: SendOutcome) -> None:
        if under_way:
            number = sorted(under_way)[which % len(under_way)]
            effects = one.ended(number, outcome, now)
            del under_way[number]
            perform(effects)

    perform(one.tick(now))
    for which, outcome, passed in steps:
        lend()
        now += passed
        answer(which, outcome)
        perform(one.tick(now))
    for _ in range(1000):
        if len(acked) == len(keys):
            break
        lend()
        answer(0, STORED)
        now += 61.0
        perform(one.tick(now))
    assert sorted(number for number, _ in acked) == list(range(len(keys)))
    for key in ("k", "l"):
        of_key = [number for number, its in acked if its == key]
        assert of_key == sorted(of_key)
    assert not one.held
