"""Keys that another site delivers: passed by, and delivered once each, in order, when they come back."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.model.delivery import Batch
from syncpoint.base.model.identity import parse_message_id
from syncpoint.base.model.key_homes import SLOTS, slot_of
from syncpoint.broker.publish.keep.backlog import unacknowledged
from syncpoint.broker.subscribe.key_holding import KeyHolding
from syncpoint.catalog.metadata.entity_options import SubscriptionOptions
from syncpoint.catalog.metadata.records import CatalogChange, Retry
from syncpoint.testing.rigs.forwarder_harness import ForwarderHarness, HarnessCaller, Subscriber
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.examples import examples

KEYS = [f"k{number}" for number in range(6)]
SLOT = {key: slot_of(key.encode()) for key in KEYS}
assert len(set(SLOT.values())) == len(KEYS)


def hold(harness: ForwarderHarness, keys: Any, *, suspended: bool = False) -> None:
    """Another site delivers these, and no others."""
    held = sum(1 << SLOT[key] for key in set(keys))
    change(harness, held, suspended=suspended)


def change(harness: ForwarderHarness, held: int, *, suspended: bool = False) -> None:
    options = SubscriptionOptions(suspended, keys_elsewhere=held.to_bytes(SLOTS // 8, "little") if held else b"")
    harness.commit(CatalogChange.put(replace(harness.record, options=options)))
    harness.subscribe.delivery(harness.record)
    harness.quiesce()


def place_of(published: HarnessCaller) -> tuple[int, int]:
    """Source and offset of a message."""
    assert published.ids
    return parse_message_id(published.ids[0])[1:]


def keys_of(subscriber: Subscriber) -> list[str]:
    return [one.message.ordering_key for one in subscriber.received]


@pytest.mark.parametrize("ordered", [False, True])
def test_keys_of_another_site_wait_and_come_back_in_order(*, ordered: bool) -> None:
    harness = ForwarderHarness(ordered=ordered)
    subscriber = Subscriber(harness)
    hold(harness, KEYS[:2])
    for number in range(3):
        for key in KEYS:
            harness.send(f"{key} {number}", key=key)
    assert Counter(keys_of(subscriber)) == dict.fromkeys(KEYS[2:], 3)
    subscriber.ack()
    harness.send("k2 3", key="k2")
    subscriber.received.clear()
    hold(harness, KEYS[1:2])
    assert subscriber.data == ["k0 0", "k0 1", "k0 2"], "what is lent here is not lent again"
    hold(harness, ())
    assert subscriber.data[3:] == ["k1 0", "k1 1", "k1 2"]


def test_messages_without_a_key_fall_into_slots_by_their_ids() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    everything = (1 << SLOTS) - 1
    for slots in (everything >> SLOTS // 2, everything << SLOTS // 2 & everything, 0):
        change(harness, slots)
        if not subscriber.received:
            harness.send(*map(str, range(100)))
            first = len(subscriber.received)
            assert 20 < first < 80
    assert sorted(map(int, subscriber.data)) == list(range(100))


def test_what_comes_back_is_held_once_its_key_has_left_and_what_left_is_counted() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a", key="k0")
    harness.send("b", key="k1")
    hold(harness, ["k0"])
    delivery = harness.subscribe.delivery(harness.record)
    assert delivery.leaving == 2, "all that was lent before"
    harness.send("c", key="k1")
    assert delivery.leaving == 2
    subscriber.nack(next(one for one, data in subscriber.held.items() if data == "a"))
    assert (subscriber.data, delivery.leaving) == (["a", "b", "c"], 1)
    subscriber.ack()
    assert delivery.leaving == 0
    hold(harness, ())
    assert subscriber.data == ["a", "b", "c", "a"]


@pytest.mark.parametrize("suspended", [False, True])
def test_what_is_acknowledged_has_not_left_before_that_is_recorded(*, suspended: bool) -> None:
    """Another site that began earlier would deliver it again."""
    harness = ForwarderHarness(delay_s=0.2)
    subscriber = Subscriber(harness)
    harness.send("a", key="k0")
    harness.send("b", key="k0")
    harness.advance(1.0)
    subscriber.ack(next(iter(subscriber.held)))
    hold(harness, [] if suspended else ["k0"], suspended=suspended)
    subscriber.ack()
    delivery = harness.subscribe.delivery(harness.record)
    assert (delivery.table.total()[0], delivery.leaving) == (0, 2)
    harness.advance(1.0)
    assert delivery.leaving == 0


def test_a_filter_and_a_dead_letter_policy_are_for_who_delivers() -> None:
    """What another site delivers is neither filtered out (acknowledged) nor counted here."""
    harness = ForwarderHarness(filter_text='attributes.kind = "x"', dead_letter=("projects/p/topics/dead", 5))
    subscriber = Subscriber(harness)
    hold(harness, ["k0"])
    for key, kind in itertools.product(("k0", "k1"), ("x", "y")):
        harness.send(f"{key} {kind}", key=key, kind=kind)
    assert subscriber.data == ["k1 x"]
    left = unacknowledged(harness.publish, harness.record)
    assert left == 3, "k1 y is acknowledged, which the filter leaves out; k0 y is for the other site to leave out"
    hold(harness, ())
    assert subscriber.data == ["k1 x", "k0 x"]
    assert [one.delivery_attempt for one in subscriber.received] == [1, 1]


def test_what_rests_until_a_retry_rests_on_when_its_key_comes_back() -> None:
    harness = ForwarderHarness(retry=Retry(5.0, 5.0))
    subscriber = Subscriber(harness)
    harness.send("a", key="k0")
    subscriber.nack(*subscriber.held)
    hold(harness, ["k0"])
    harness.send("b", key="k0")
    hold(harness, ())
    assert subscriber.data == ["a", "b"]
    harness.advance(5.5)
    assert subscriber.data == ["a", "b", "a"]


def test_keys_that_stayed_here_are_not_read_again_while_acknowledgements_are_on_their_way() -> None:
    for seed in range(10):
        harness = ForwarderHarness(delay_s=0.3, loss=0.3, seed=seed)
        subscriber = Subscriber(harness)
        hold(harness, ["k0"])
        harness.send("a", key="k0")
        for number in range(10):
            harness.send(f"{number}", key="k1")
        harness.advance(5.0)
        assert len(subscriber.data) == 10
        subscriber.ack()
        hold(harness, ())
        for _ in range(40):
            if "a" not in subscriber.data:
                harness.advance(0.5)
        assert sorted(subscriber.data) == [*map(str, range(10)), "a"]


@pytest.mark.parametrize("seed", [3, 32, 41])
def test_a_key_that_leaves_while_its_messages_are_read_again_is_not_lent_until_it_comes_back(seed: int) -> None:
    harness = ForwarderHarness(ordered=True, loss=0.3, delay_s=0.3, seed=seed)
    subscriber = Subscriber(harness)
    for number in range(4):
        harness.send(f"{number}", key="k0")
    harness.advance(3.0)
    subscriber.nack(*list(subscriber.held))
    harness.advance(0.18)  # some have arrived
    subscriber.received.clear()
    hold(harness, ["k0"])
    harness.advance(3.0)
    assert subscriber.data == []
    hold(harness, ())
    harness.advance(5.0)
    assert subscriber.data == ["0", "1", "2", "3"]


@pytest.mark.parametrize("ticks", range(1, 7))
def test_what_came_back_while_its_key_was_away_is_in_order_once_it_is_back(ticks: int) -> None:
    """Whether it was not read by then, in part, or altogether."""
    harness = ForwarderHarness(ordered=True, delay_s=0.2)
    subscriber = Subscriber(harness)
    for number in range(4):
        harness.send(f"{number}", key="k0")
    harness.advance(2.0)
    subscriber.consumer.max_messages = 1
    hold(harness, ["k0"])
    subscriber.nack(*subscriber.held)
    harness.advance(ticks / 10)
    subscriber.consumer.max_messages = 100
    hold(harness, ())
    harness.send("4", key="k0")
    harness.advance(3.0)
    assert subscriber.data == ["0", "1", "2", "3", "0", "1", "2", "3", "4"]


def test_what_came_back_to_an_earlier_reader_is_delivered_once_its_key_is_back() -> None:
    harness = ForwarderHarness(ordered=True, retry=Retry(5.0, 5.0))
    subscriber = Subscriber(harness)
    harness.send("x", key="k1")
    harness.send("0", "1", key="k0")
    subscriber.nack(*[one for one, data in subscriber.held.items() if data == "0"])
    subscriber.received.clear()
    subscriber.consumer.max_messages = 1
    harness.subscribe.delivery(harness.record).begin_anew()
    harness.quiesce()  # "0" was read, and waits for room
    subscriber.consumer.max_messages = 100
    for where in (["k0"], ()):
        hold(harness, where)
        harness.advance(6.0)
    assert subscriber.data == ["x", "0", "1"]


def test_an_answer_from_before_a_key_came_back_may_not_know_what_its_site_had_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    hold(harness, ["k0"])
    server, answers = harness.publish.server, list[Any]()
    fetch = server.fetch
    monkeypatch.setattr(
        server, "fetch", lambda *asked: fetch(*asked[:-1], lambda batches: answers.append((asked[-1], batches)))
    )
    source, offset = place_of(harness.send("a", key="k0"))
    while not answers[-1][1]:
        answers[-1][0](())  # asked before it came
        harness.quiesce()
    server.acknowledge(2, 0, source, encode_runs([(offset, 1)]), lambda error: None, urgent=True)
    hold(harness, ())
    monkeypatch.undo()
    reply, batches = answers.pop()
    reply(batches)
    harness.advance(1.0)
    assert subscriber.data == []


steps = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(KEYS)),
    st.tuples(st.just("hold"), st.sets(st.sampled_from(KEYS))),
    st.tuples(st.just("suspend"), st.none()),
    st.tuples(st.just("ack"), st.integers(0, 5)),
    st.tuples(st.just("nack"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.sampled_from([0.2, 11.0])),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("room"), st.integers(1, 3)),
)


SUSPENDED_WHILE_READ: list[tuple[str, Any]] = [
    ("publish", "k0"), ("publish", "k0"), ("wait", 0.2), ("ack", 0), ("nack", 0), ("suspend", None), ("wait", 0.2),
]  # fmt: skip


@settings(max_examples=examples(120), deadline=None)
@given(st.booleans(), st.booleans(), st.lists(steps, max_size=40))
@example(True, True, SUSPENDED_WHILE_READ)
def test_each_is_delivered_once_while_its_key_is_here(ordered: bool, lossy: bool, taken: list[tuple[str, Any]]) -> None:
    """Never while its key is elsewhere; again only after it came back; in order of its key; and all in the end."""
    harness = ForwarderHarness(ordered=ordered, loss=0.2 if lossy else 0.0, delay_s=0.05 if lossy else 0.0)
    subscriber = Subscriber(harness)
    elsewhere: set[str] = set()
    suspended = False
    sent: dict[str, list[str]] = {key: [] for key in KEYS}
    lendable: Counter[str] = Counter()  # how often a message may have been delivered by now
    done: set[str] = set()
    places: dict[str, tuple[int, int]] = {}
    seen = 0

    def check() -> None:
        nonlocal seen
        lent = {(source, at) for source, begin, end in harness.leases.table.lent() for at in range(begin, end)}
        for of_key in sent.values() if ordered else ():
            flags = [places[data] in lent for data in of_key if data not in done]
            assert flags == sorted(flags, reverse=True), "nothing is lent before something earlier of its key"
        for one in subscriber.received[seen:]:
            data = one.message.data.decode()
            assert not suspended
            assert one.message.ordering_key not in elsewhere, f"{data} is for another site"
        counted = Counter(subscriber.data)
        assert all(count <= lendable[data] for data, count in counted.items()), (counted, lendable)
        if ordered:
            for key in KEYS:
                firsts = list(dict.fromkeys(data for data in subscriber.data if data.startswith(f"{key} ")))
                assert firsts == sent[key][: len(firsts)] or suspended_order(firsts, sent[key])
        seen = len(subscriber.received)

    def suspended_order(firsts: list[str], all_of_key: list[str]) -> bool:
        return firsts == sorted(firsts, key=all_of_key.index)

    for number, (what, value) in enumerate(taken):
        if what == "publish":
            data = f"{value} {number}"
            sent[value].append(data)
            lendable[data] = 1
            places[data] = place_of(harness.send(data, key=value))
        elif what == "hold":
            elsewhere, suspended = set(value), False
            hold(harness, value)
        elif what == "suspend":
            suspended = True
            hold(harness, (), suspended=True)
            elsewhere = set()
        elif what in ("ack", "nack") and subscriber.held:
            ack_id, data = list(subscriber.held.items())[value % len(subscriber.held)]
            if what == "ack":
                done.add(data)
                subscriber.ack(ack_id)
            else:
                for later in sent[data.partition(" ")[0]] if ordered else [data]:
                    lendable[later] += 1
                subscriber.nack(ack_id)
        elif what == "wait":
            if value > 10:
                lendable.update(dict.fromkeys(lendable, 2))
                subscriber.held.clear()
            harness.advance(value)
        elif what == "restart":
            lendable.update(dict.fromkeys(lendable, 1))
            harness.restart()
            received, subscriber = subscriber.received, Subscriber(harness)
            harness.quiesce()
            subscriber.received[:0] = received
        elif what == "room":
            subscriber.consumer.max_messages = value
        check()
    subscriber.consumer.max_messages = 1000
    hold(harness, ())
    suspended, elsewhere = False, set()
    lendable.update(dict.fromkeys(lendable, 2))
    harness.advance(12.0)
    harness.advance(12.0)
    every = {data for all_of_key in sent.values() for data in all_of_key}
    assert every - done <= set(subscriber.data)


def test_a_batch_of_messages_without_keys_takes_time_by_their_number() -> None:
    one = pubsub.PubsubMessage(data=b"x" * 20, message_id="1.2.3").SerializeToString()
    holding = KeyHolding(ForwarderHarness().leases)
    holding.take(b"\xff" * (SLOTS // 16))

    def took(count: int) -> float:
        batch = Batch(1, 0, 0, count, None, 0, (len(one).to_bytes(4, "little") + one) * count)
        begun = time.process_time()
        holding.ours([batch])
        return time.process_time() - begun

    few, many = (min(took(count) for _ in range(3)) for count in (2_000, 16_000))
    assert many < 24 * few, "eight times as many; 64 times as long, if each was looked for from the start"
