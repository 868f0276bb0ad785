"""One subscription that forwards as a machine: events in, effects out."""

from __future__ import annotations

import base64
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.reserved import FORWARD_HOPS, FORWARDED_FROM
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.forward import forward_kind
from syncpoint.broker.forward.forward_kind import AHEAD_MAX, REFUSED, TOO_FAR, ForwardKind
from syncpoint.broker.forward.forwarded_message import hops_of, publish_request
from syncpoint.broker.inner.inner_consumer import REST_S, Effect, GiveUp, InnerConsumer, Send, SendOutcome
from syncpoint.broker.inner.lent import Acknowledged, Extended, GivenBack, Lent, Room
from syncpoint.broker.inner.pace import Pace, PaceLimits
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.wire.protobuf.messages import pubsub

MEMORY = 32 << 20
STORED, UNKNOWN = SendOutcome.STORED, SendOutcome.UNKNOWN


def ack_id(number: int, lease: int = 0, generation: int = 0) -> str:
    raw = b"".join(
        one.to_bytes(size, "little") for one, size in ((7, 8), (number, 8), (0, 4), (lease, 4), (generation, 4))
    )
    return base64.urlsafe_b64encode(raw + bytes(8)).decode()


def lent(number: int, key: str = "", *, hops: int = 0, lease: int = 0, generation: int = 0, nbytes: int = 1) -> Lent:
    message = pubsub.PubsubMessage(data=b"x" * nbytes, message_id=str(number), ordering_key=key)
    if hops:
        message.attributes[FORWARD_HOPS] = str(hops)
    return Lent(ack_id(number, lease, generation), CopyId(7, number, generation), message)


def machine(window: int = 4, lease_s: float = 20.0) -> InnerConsumer:
    pace = Pace(PaceLimits(window, 3_000, 16), SeededRandom(1))
    return InnerConsumer(ForwardKind(), pace, lease_s=lease_s, memory_max=MEMORY)


def requests(effects: Iterable[Effect]) -> list[list[int]]:
    """The numbers of the messages of each request."""
    found = (one.lent for one in effects if isinstance(one, Send))
    return [[int(one.message.message_id) for one in part] for part in found]


def test_what_comes_together_is_published_together_and_keys_apart() -> None:
    one = machine()
    assert one.tick(0.0) == [Room(AHEAD_MAX)]
    effects = one.received([lent(1), lent(2, "k"), lent(3), lent(4, "k")], 0.0)
    assert requests(effects) == [[1, 3], [2, 4]]
    assert one.ended(1, STORED, 0.1) == [Acknowledged((ack_id(1), ack_id(3)))]
    assert one.ended(2, STORED, 0.1) == [Acknowledged((ack_id(2), ack_id(4)))]
    assert (one.held, one.free, one.counts["acknowledged"]) == (0, MEMORY, 4)


def test_of_a_key_one_request_is_under_way() -> None:
    one = machine()
    assert requests(one.received([lent(1, "k")], 0.0)) == [[1]]
    assert requests(one.received([lent(2, "k"), lent(3, "l")], 0.0)) == [[3]]
    assert requests(one.ended(1, STORED, 0.1)) == [[2]]


def test_requests_are_as_large_as_they_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_kind, "REQUEST_BYTES", 10_000)
    monkeypatch.setattr(forward_kind, "REQUEST_MESSAGES_MAX", 5)
    one = machine(window=10)
    few = [lent(number, nbytes=3_000) for number in range(4)]
    assert requests(one.received(few, 0.0)) == [[0, 1], [2, 3]]
    many = [lent(number) for number in range(10, 17)]
    assert requests(one.received(many, 0.0)) == [[10, 11, 12, 13, 14], [15, 16]]
    assert requests(one.received([lent(20, nbytes=20_000), lent(21)], 0.0)) == [[20], [21]]


def test_a_failure_gives_back_what_is_not_under_way_and_takes_nothing_for_a_while() -> None:
    one = machine(window=2)
    effects = one.received([lent(1, "k"), lent(2, "l"), lent(3, "m")], 0.0)
    assert requests(effects) == [[1], [2]]
    effects = one.ended(1, UNKNOWN, 1.0)
    assert effects == [GivenBack((ack_id(1),)), GivenBack((ack_id(3),)), Room(0)]
    assert one.received([lent(4)], 1.01) == [GivenBack((ack_id(4),))]
    assert one.ended(2, STORED, 1.02) == [Acknowledged((ack_id(2),))]
    assert one.tick(5.0) == [Room(AHEAD_MAX)]
    assert one.held == 0


def test_what_fails_takes_what_waits_of_its_key_with_it_also_where_no_pause_begins() -> None:
    one = machine()
    assert requests(one.received([lent(1, "k"), lent(2, "l")], 0.0)) == [[1], [2]]
    one.ended(1, UNKNOWN, 1.0)
    one.tick(1.5)  # the pause is over
    assert requests(one.received([lent(3, "l"), lent(4, "m"), lent(5, "m")], 1.5)) == [[4, 5]]
    assert one.ended(2, UNKNOWN, 2.0) == [GivenBack((ack_id(2),)), GivenBack((ack_id(3),))]
    assert one.held == 2


def test_what_is_refused_together_is_tried_alone_and_given_up_alone() -> None:
    one = machine()
    assert requests(one.received([lent(1, "k"), lent(2, "k"), lent(3, "k")], 0.0)) == [[1, 2, 3]]
    assert requests(one.received([lent(4, "k")], 0.0)) == []
    assert requests(one.ended(1, SendOutcome.REFUSED, 0.1, why="too large")) == [[1]]
    assert requests(one.ended(3, STORED, 0.2)) == [[2]]
    (given,) = (
        effect for effect in one.ended(4, SendOutcome.REFUSED, 0.3, why="too large") if isinstance(effect, GiveUp)
    )
    assert (given.lent.message.message_id, given.reason.name, given.reason.description) == ("2", REFUSED, "too large")
    assert requests(one.given_up(given.number, 0.4, kept=False)) == [[3]]
    assert (one.counts["acknowledged"], one.counts["given_up"], one.counts["kept"]) == (1, 1, 0)


def test_the_fifth_hop_is_none() -> None:
    one = machine()
    effects = one.received([lent(1, "k", hops=3), lent(2, "k", hops=4), lent(3, "k")], 0.0)
    assert requests(effects) == [[1]]
    (given,) = (effect for effect in one.ended(1, STORED, 0.1) if isinstance(effect, GiveUp))
    assert (given.lent.message.message_id, given.reason) == ("2", TOO_FAR)


def test_what_cannot_be_given_up_keeps_its_place_in_its_key() -> None:
    one = machine()
    (first, *_) = one.received([lent(1, "k", hops=4), lent(2, "k"), lent(3)], 0.0)
    assert isinstance(first, GiveUp)
    assert requests(one.given_up(first.number, 1.0, kept=True)) == []
    assert requests(one.tick(REST_S)) == []
    (again,) = (effect for effect in one.tick(REST_S + 1.0) if isinstance(effect, GiveUp))
    assert again.lent.message.message_id == "1"
    assert requests(one.given_up(again.number, 20.0, kept=False)) == [[2]]


def test_what_cannot_be_given_up_and_has_no_key_is_let_go() -> None:
    one = machine()
    (first, *_) = one.received([lent(1, hops=4)], 0.0)
    assert isinstance(first, GiveUp)
    assert one.given_up(first.number, 1.0, kept=True) == []
    assert one.held == 0


def test_leases_last_as_long_as_messages_are_held() -> None:
    one = machine(lease_s=10.0)
    one.received([lent(1, "k"), lent(2, "k")], 0.0)
    one.received([lent(3, "k")], 3.0)
    assert one.tick(4.9) == []
    assert one.tick(5.0) == [Extended((ack_id(1), ack_id(2)))]
    assert one.tick(8.0) == [Extended((ack_id(3),))]


def test_what_is_lent_anew_is_published_once_and_acknowledged_by_its_newest_id() -> None:
    one = machine()
    one.received([lent(1, "k"), lent(2, "k")], 0.0)
    assert requests(one.received([lent(1, "k", lease=1)], 0.1)) == []
    assert one.ended(1, STORED, 0.2) == [Acknowledged((ack_id(1, 1), ack_id(2)))]


def test_after_its_end_it_takes_nothing_and_what_is_under_way_still_counts() -> None:
    one = machine(window=1)
    one.received([lent(1, "k"), lent(2, "l")], 0.0)
    assert one.stop() == [GivenBack((ack_id(2),)), Room(0)]
    assert one.received([lent(3)], 0.1) == [GivenBack((ack_id(3),))]
    assert one.tick(30.0) == [Extended((ack_id(1),))]
    assert one.ended(1, STORED, 31.0) == [Acknowledged((ack_id(1),))]


@pytest.mark.parametrize(("text", "hops"), [("", 0), ("3", 3), ("-1", 0), ("x", 0), ("٣", 0), ("9" * 30, 0)])
def test_hops_are_what_the_attribute_says(text: str, hops: int) -> None:
    assert hops_of(pubsub.PubsubMessage(attributes={FORWARD_HOPS: text})) == hops


def test_a_forwarded_message_says_where_it_comes_from() -> None:
    record = Subscription(5, "projects/p/subscriptions/s", 1, "projects/p/topics/t", generation=2)
    original = lent(9, "k", hops=1, generation=3)
    original.message.attributes["own"] = "kept"
    original.message.attributes[FORWARDED_FROM] = "4.0/16777216/0"  # as its publisher, or an earlier forward, has it
    request = pubsub.PublishRequest.FromString(publish_request("projects/p/topics/u", record, [original], 1))
    assert request.topic == "projects/p/topics/u"
    (message,) = request.messages
    assert (message.data, message.ordering_key, message.message_id) == (b"x", "k", "")
    assert dict(message.attributes) == {"own": "kept", FORWARD_HOPS: "2", FORWARDED_FROM: "5.3/7/9"}, (
        "by the lease, as the record may be older"
    )
    assert original.message.attributes[FORWARD_HOPS] == "1", "the one that was lent stays as it is"


@given(
    what=st.lists(st.tuples(st.sampled_from(["", "", "k", "l"]), st.sampled_from([0, 0, 0, 4])), max_size=30),
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["ok", "ok", "refused", "failed"]), st.floats(0, 15)), max_size=80
    ),
)
def test_every_message_ends_once_and_keys_stay_in_order(
    what: list[tuple[str, int]], steps: list[tuple[int, str, float]]
) -> None:
    """Played against the simplest forwarder: what is given back is lent again, with what is behind it of its key."""
    one, now, lease = machine(), 0.0, 0
    ready = [(number, key, hops) for number, (key, hops) in enumerate(what)]
    held: dict[str, tuple[int, str, int]] = {}
    under_way: dict[int, list[str]] = {}
    stored: list[tuple[int, str]] = []
    ended: list[int] = []
    room = 0

    def perform(effects: list[Effect]) -> None:
        nonlocal room
        for effect in effects:
            match effect:
                case Send(number, messages, True):
                    ids = [each.ack_id for each in messages]
                    keys = {each.message.ordering_key for each in messages}
                    assert set(ids) <= held.keys()
                    assert len(keys) == 1
                    busy = {held[each][1] for mine in under_way.values() for each in mine}
                    assert keys == {""} or not keys & busy
                    under_way[number] = ids
                case GiveUp(number, message, _):
                    under_way[number] = [message.ack_id]
                case Acknowledged(ids_):
                    ended.extend(held.pop(each)[0] for each in ids_)
                case GivenBack(ids_):
                    ready.extend(held.pop(each) for each in ids_)
                    ready.sort()
                case Room(messages_):
                    room = messages_
                case Extended(ids_):
                    assert set(ids_) <= held.keys()

    perform(one.tick(now))
    for at, outcome, seconds in [*steps, *((0, "ok", 15.0) for _ in range(4 * len(what) + 4))]:
        now += seconds
        lendable = ready[: max(0, room - len(held))]
        del ready[: len(lendable)]
        lease += 1
        part = [lent(number, key, hops=hops, lease=lease) for number, key, hops in lendable]
        held.update((each.ack_id, which) for each, which in zip(part, lendable, strict=True))
        if part:
            perform(one.received(part, now))
        perform(one.tick(now))
        if not under_way:
            continue
        number = list(under_way)[at % len(under_way)]
        ids = under_way.pop(number)
        hops = held[ids[0]][2]
        if len(ids) == 1 and hops:
            kept = outcome == "failed"
            if not kept:
                ended.append(held.pop(ids[0])[0])
            elif not held[ids[0]][1]:
                ready.append(held.pop(ids[0]))
                ready.sort()
            perform(one.given_up(number, now, kept=kept))
        elif outcome == "ok" or (outcome == "refused" and len(ids) == 1):
            stored.extend(held[each][:2] for each in ids)
            perform(one.ended(number, STORED, now))
        elif outcome == "refused":
            perform(one.ended(number, SendOutcome.REFUSED, now, why="no"))
        else:
            perform(one.ended(number, UNKNOWN, now))
    assert sorted(ended) == list(range(len(what)))
    assert one.held == 0
    for key in "kl":
        order = [number for number, its in stored if its == key]
        assert order == sorted(order)
