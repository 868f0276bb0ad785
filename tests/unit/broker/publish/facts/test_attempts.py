"""Counts and rests of messages that came back, through restarts, checkpoints and any order of notes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.delivery import AttemptRun as Run
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.broker.publish.facts import attempts as attempts_module
from syncpoint.broker.publish.facts.attempts import WRITE_S, DeliveryAttempts
from syncpoint.broker.publish.facts.ledger import Ledger
from syncpoint.broker.publish.facts.message_facts import FactLog
from syncpoint.catalog.metadata.records import CatalogChange, DeadLetter, Retry, Topic
from syncpoint.testing.rigs.forwarder_harness import ForwarderHarness, Subscriber
from syncpoint.wire.protobuf.messages import internal
from tests.kit.chain import SUB_NUMBER, ChainHarness, simulated
from tests.kit.chain_subscriber import Subscriber as Session


def log_into(facts: list[bytes]) -> FactLog:
    return FactLog(lambda kind, entry, done: facts.append(entry[2:]))


DEAD = "projects/p/topics/dead"


def harness_with(**options: object) -> ForwarderHarness:
    harness = ForwarderHarness(**options)  # type: ignore[arg-type]
    harness.commit(CatalogChange.put(Topic(9, DEAD)))
    return harness


@pytest.mark.parametrize("backwards", [False, True])
def test_notes_of_before_a_seek_count_for_nothing_whenever_they_are_read(*, backwards: bool) -> None:
    facts: list[bytes] = []
    later: list[Callable[[], None]] = []
    ledgers = {2: Ledger(2)}
    attempts = DeliveryAttempts(log_into(facts), ledgers, {7}, ManualClock(), lambda seconds, act: later.append(act))
    notes = [(generation, [Run(0, 1, times, 0)]) for generation, times in ((0, 9), (1, 3))]
    for generation, runs in reversed(notes) if backwards else notes:
        attempts.came_back(2, generation, 7, runs)
        ledgers[2] = Ledger(2, 1)  # the seek is followed between the two
    later.pop()()
    again = DeliveryAttempts(log_into([]), ledgers, {7}, ManualClock(), lambda seconds, act: None)
    again.recover(facts[::-1] if backwards else facts)
    assert [one.of(2, 7, 0, 1) for one in (attempts, again)] == 2 * [[Run(0, 1, 3, 0)]]


@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_counts_and_rests_survive_a_crash(key: str, checkpoint: bool) -> None:
    harness = harness_with(ordered=bool(key), dead_letter=DeadLetter(DEAD, 5), retry=Retry(600.0, 600.0))
    subscriber = Subscriber(harness)
    for data in "abc":
        harness.send(data, key=key if data != "c" else "")
    first = next(one for one, data in subscriber.held.items() if data == "a")
    subscriber.nack(first)
    harness.advance(2 * WRITE_S)
    if checkpoint:
        harness.checkpoint()
    harness.restart()
    again = Subscriber(harness)
    harness.advance(5)
    assert sorted(again.data) == (["c"] if key else ["b", "c"]), "a rests, and so does what comes after it in its key"
    again.ack()
    harness.advance(600)
    assert again.data[-2:] == (["a", "b"] if key else ["c", "a"])
    assert {one.message.data: one.delivery_attempt for one in again.received}[b"a"] == 2


@pytest.mark.parametrize("ordered", [False, True])
def test_a_rest_that_a_wrong_clock_dated_is_no_longer_than_the_policy_says(ordered: bool) -> None:
    harness = harness_with(ordered=ordered, retry=Retry(10.0, 20.0))
    subscriber = Subscriber(harness)
    harness.send("a", key="k" if ordered else "")
    right = harness.clock.time_ns()
    harness.clock.set_time_ns(right + 500 * 10**9)
    subscriber.nack(*subscriber.held)
    harness.advance(2 * WRITE_S)
    harness.clock.set_time_ns(right)
    harness.restart()
    again = Subscriber(harness)
    harness.advance(9)
    assert again.data == []
    harness.advance(2)
    assert again.data == ["a"]


def test_a_message_becomes_a_dead_letter_although_the_server_died_between_its_deliveries() -> None:
    harness = harness_with(dead_letter=DeadLetter(DEAD, 5))
    harness.send("a")
    for attempt in range(1, 6):
        subscriber = Subscriber(harness)
        harness.quiesce()
        assert [one.delivery_attempt for one in subscriber.received][:1] == [attempt]
        subscriber.consumer.max_messages = 0
        subscriber.nack(*subscriber.held)
        harness.advance(2 * WRITE_S)
        harness.restart()
    subscriber = Subscriber(harness)
    harness.advance(1)
    assert subscriber.data in ([], ["a"])
    for ack_id in list(subscriber.held):
        subscriber.nack(ack_id)
    harness.quiesce()
    assert len(harness.publish.sources.of_topic(9)) == 1, "it is in the dead letter topic"


def test_without_a_policy_nothing_is_noted() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a")
    before = len(harness.store.entries)
    subscriber.nack(*subscriber.held)
    harness.advance(2 * WRITE_S)
    assert len(harness.store.entries) == before
    assert list(harness.publish.attempts.facts()) == []


def test_what_is_acknowledged_or_reset_is_left_out_of_checkpoints() -> None:
    harness = harness_with(dead_letter=DeadLetter(DEAD, 5))
    subscriber = Subscriber(harness)
    harness.send("a", "b")
    subscriber.nack(*subscriber.held)
    harness.quiesce()
    assert len(list(harness.publish.attempts.facts())) == 1
    subscriber.ack()
    assert list(harness.publish.attempts.facts()) == []
    harness.send("c")
    subscriber.nack(*subscriber.held)
    harness.publish.replace_acks(2, {}, None)
    harness.quiesce()
    (source,) = harness.publish.sources.of_topic(1)
    assert harness.publish.attempts.of(2, source.number, 0, 10) == []


def test_of_a_source_that_is_gone_nothing_is_kept() -> None:
    sources = {7, 8}
    facts: list[bytes] = []
    later: list[Callable[[], None]] = []
    attempts = DeliveryAttempts(
        log_into(facts), {1: Ledger(1)}, sources, ManualClock(), lambda seconds, act: later.append(act)
    )
    for source in (7, 8):
        attempts.came_back(1, 0, source, [Run(0, 1, 1, 0)])
    later.pop()()
    found = DeliveryAttempts(log_into(facts), {1: Ledger(1)}, {7}, ManualClock(), lambda seconds, act: None)
    found.recover(list(facts))
    assert len(list(found.facts())) == 1, "what recovery found of source 8 goes with the next checkpoint"
    sources.remove(8)
    attempts.came_back(1, 0, 8, [Run(5, 6, 1, 0)])
    assert not later, "a note that comes late is of no use"


def test_one_that_comes_back_costs_as_much_among_many_as_among_few(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = DeliveryAttempts(log_into([]), {1: Ledger(1)}, {7}, ManualClock(), lambda seconds, act: None)
    attempts.came_back(1, 0, 7, [Run(2 * one, 2 * one + 1, 1, 0) for one in range(20_000)])
    merged: list[int] = []
    inner = attempts_module._merged

    def counted(one: list[Run], other: list[Run]) -> list[Run]:
        merged.append(len(one) + len(other))
        return inner(one, other)

    monkeypatch.setattr(attempts_module, "_merged", counted)
    attempts.came_back(1, 0, 7, [Run(20_000, 20_001, 2, 0), Run(30_001, 30_002, 1, 0)])
    assert sum(merged) <= 6
    assert [one[:3] for one in attempts.of(1, 7, 19_998, 20_003)] == [
        (19_998, 19_999, 1), (20_000, 20_001, 2), (20_002, 20_003, 1),
    ]  # fmt: skip
    assert [one[:3] for one in attempts.of(1, 7, 30_000, 30_003)] == [(30_000, 30_003, 1)]


noted = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 9), st.integers(1, 4), st.sampled_from([0, 5000])), max_size=4
)


@given(st.lists(noted, max_size=6), st.randoms())
def test_notes_may_come_in_any_order_and_more_than_once(notes: list[list[tuple[int, ...]]], random: object) -> None:
    def fresh(found: list[bytes]) -> DeliveryAttempts:
        made = DeliveryAttempts(
            log_into(facts), {1: Ledger(1)}, {7}, ManualClock(), lambda seconds, act: later.append(act)
        )
        made.recover(found)
        return made

    facts: list[bytes] = []
    later: list[Callable[[], None]] = []
    attempts = fresh([])
    expected: dict[int, int] = {}
    for note in notes:
        attempts.came_back(1, 0, 7, [Run(begin, begin + length, times, rest) for begin, length, times, rest in note])
        for begin, length, times, _ in note:
            for offset in range(begin, begin + length):
                expected[offset] = max(times, expected.get(offset, 0))
        while later:
            later.pop()()
    facts += facts[:2]
    random.shuffle(facts)  # type: ignore[attr-defined]
    for one in (attempts, fresh(list(facts))):
        runs = one.of(1, 7, 0, 100)
        assert {offset: run.times for run in runs for offset in range(run.begin, run.end)} == expected
        assert all(first.end <= second.begin for first, second in pairwise(runs))


@simulated
async def test_an_adopter_of_a_chain_hands_out_what_its_predecessor_was_sent(harness: ChainHarness) -> None:
    first = await harness.opened("f1")
    await harness.subscribe(retry=Retry(600.0, 600.0))
    await first.publish("a", "b")
    teller = await Session(first, 11).start()
    await teller.attach()
    (source,) = teller.granted
    run = internal.Attempts(begin=1, end=2, times=3, rest_ms=600_000)
    await teller.send_message(note_attempts=internal.NoteAttempts(subscription=SUB_NUMBER, source=source, runs=[run]))
    await asyncio.sleep(1)
    (reported,) = (await teller.fetch(source)).attempts
    assert (reported.begin, reported.end, reported.times) == (1, 2, 3)
    second = await harness.succeeded(first)
    other = await Session(second, 12).start()
    await other.attach()
    await asyncio.sleep(1)
    (reported,) = (await other.fetch(source)).attempts
    assert (reported.begin, reported.end, reported.times) == (1, 2, 3)
    assert 500_000 < reported.rest_ms <= 600_000


def test_a_rest_that_a_wrong_clock_has_dated_is_over_when_the_clock_is_right_again() -> None:
    clock, ledger = ManualClock(), Ledger(SUB_NUMBER, 0)
    attempts = DeliveryAttempts(log_into([]), {SUB_NUMBER: ledger}, {5}, clock, lambda seconds, act: None)
    right = clock.time_ns()
    clock.set_time_ns(right + 10 * 86_400 * 10**9)
    attempts.came_back(SUB_NUMBER, 0, 5, [Run(1, 2, 3, 400)])
    assert attempts.of(SUB_NUMBER, 5, 0, 9) == [Run(1, 2, 3, 400)]
    clock.set_time_ns(right)
    assert attempts.of(SUB_NUMBER, 5, 0, 9) == [Run(1, 2, 3, 0)]
