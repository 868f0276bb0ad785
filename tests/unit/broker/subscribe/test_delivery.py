"""Delivery through both forwarders over a log in memory: lending, coming back, order, seek, restart, and a bad link
between them.
"""

import itertools
from collections import deque
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base.model.delivery import Reply
from syncpoint.base.model.errors import Unavailable
from syncpoint.broker.publish.keep.backlog import unacknowledged
from syncpoint.testing.rigs.forwarder_harness import ForwarderHarness, Subscriber
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.examples import examples

pytestmark = pytest.mark.shows("exactly-once")


def test_a_message_is_answered_and_delivered_once_it_is_persisted() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    caller = harness.send("a", "b", quiesce=False)
    while harness.soon:
        harness.soon.popleft()()
    assert caller.ids is None, "nobody learns of it before the disks have it"
    assert subscriber.received == []
    harness.quiesce()
    assert subscriber.data == ["a", "b"]
    assert caller.ids == [message.message.message_id for message in subscriber.received]


def test_everything_of_one_turn_is_one_entry_and_one_commit() -> None:
    harness = ForwarderHarness()
    before, flushes = len(harness.store.entries), harness.store.flushes
    callers = [harness.send(str(n), quiesce=False) for n in range(10)]
    harness.quiesce()
    assert len(harness.store.entries) - before == 2, "the opening of the source, and one batch"
    assert harness.store.flushes - flushes == 1
    ids = [caller.ids[0] for caller in callers if caller.ids]
    assert ids == sorted(ids)
    assert len(set(ids)) == 10


def _looks(harness: ForwarderHarness) -> int:
    """Run the steps of this turn and those that follow; how many looked for messages."""
    looks = 0
    while harness.soon:
        step = harness.soon.popleft()
        looks += "_look" in repr(step)
        step()
    return looks


def test_one_message_is_one_look_and_its_acknowledgement_none() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a")
    harness.send("b", quiesce=False)
    assert _looks(harness) == 0, "nothing is persisted yet"
    harness.store.persist()
    assert _looks(harness) == 1, "the second message was read to its end in the first look"
    assert subscriber.data == ["a", "b"]
    request = pubsub.AcknowledgeRequest(ack_ids=list(subscriber.held)).SerializeToString()
    harness.leases.acknowledge(request, 2, harness.clock.monotonic(), None)
    assert _looks(harness) == 0, "nothing waits for the room that it makes"
    assert harness.leases.table.total() == (0, 0)


@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"exactly_once": True}])
def test_an_acknowledgement_makes_room_for_what_waits(options: dict[str, bool]) -> None:
    harness = ForwarderHarness(**options)
    subscriber = Subscriber(harness, max_messages=1)
    harness.send("a", "b", "c", "d")
    for count in range(1, 4):
        assert len(subscriber.data) == count, "one at a time"
        subscriber.ack()
    assert subscriber.data == ["a", "b", "c", "d"]


def test_a_second_response_follows_in_the_next_turn_where_more_was_read() -> None:
    harness = ForwarderHarness()
    for _ in range(3):  # three entries, which are read at once
        harness.send("a" * (2 << 20))
    subscriber = Subscriber(harness)
    harness.quiesce()
    assert len(subscriber.data) == 3
    assert subscriber.responses > 1


def test_an_acknowledged_message_stays_acknowledged_after_a_crash() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a", "b", "c")
    first = next(ack_id for ack_id, data in subscriber.held.items() if data == "b")
    subscriber.ack(first)
    harness.restart()
    again = Subscriber(harness)
    harness.quiesce()
    assert again.data == ["a", "c"]


def test_with_order_what_comes_after_a_finished_source_begins_at_once_over_a_slow_link() -> None:
    harness = ForwarderHarness(ordered=True, delay_s=0.3)
    harness.send("a", "b")
    harness.restart()  # a second source, behind the first one
    harness.send("c", "d", key="k")
    subscriber = Subscriber(harness)
    harness.advance(2.0)
    assert subscriber.data == ["a", "b", "c", "d"]


@pytest.mark.parametrize("ordered", [False, True])
def test_what_comes_while_an_answer_without_it_is_on_its_way_is_delivered(ordered: bool) -> None:
    harness = ForwarderHarness(ordered=ordered)
    subscriber = Subscriber(harness)
    server = harness.publish.server
    fetch, answers = server.fetch, deque[Callable[[], None]]()

    def late(subscription: int, source: int, begin: int, max_bytes: int, reply: Reply) -> None:
        fetch(subscription, source, begin, max_bytes, lambda found: answers.append(partial(reply, found)))

    server.fetch = late  # type: ignore[method-assign]
    harness.send("a", key="k")
    assert answers, "the source was asked when it was opened, before the message was persisted"
    while answers:
        answers.popleft()()
        harness.quiesce()
    assert subscriber.data == ["a"]


def test_a_source_is_asked_once_for_what_came_last_and_again_for_what_comes_then() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a")
    server, asked = harness.publish.server, list[int]()
    fetch = server.fetch

    def counted(subscription: int, source: int, begin: int, max_bytes: int, reply: Reply) -> None:
        asked.append(begin)
        fetch(subscription, source, begin, max_bytes, reply)

    server.fetch = counted  # type: ignore[method-assign]
    for number, data in enumerate("bcd", 1):
        harness.send(data)
        assert len(asked) == number, "the answer went up to the end"
    assert subscriber.data == ["a", "b", "c", "d"]


def test_a_lease_ends_at_its_deadline() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a")
    harness.advance(9.5)
    assert subscriber.data == ["a"]
    harness.advance(1)
    assert subscriber.data == ["a", "a"]


@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"exactly_once": True}])
def test_what_a_step_that_failed_in_its_middle_left_undone_comes_back(options: dict[str, bool]) -> None:
    harness = ForwarderHarness(**options)
    subscriber = Subscriber(harness)
    harness.send("a", "b")
    assert subscriber.data == ["a", "b"]
    leases = harness.leases

    def fails(*_: object, **__: object) -> None:
        raise MemoryError

    leases.came_back = fails  # type: ignore[method-assign]
    for _ in range(30):
        harness.advance(0.5)
    assert subscriber.data[:4] == ["a", "b", "a", "b"]
    subscriber.ack(*[one.ack_id for one in subscriber.received[2:4]])
    harness.quiesce()
    assert unacknowledged(harness.publish, harness.record) == 0


@pytest.mark.parametrize("size", [10, 3_000, 100_000])
def test_everything_comes_back_whatever_its_size(size: int) -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    sent = [f"{number:03d}" + "x" * size for number in range(100)]
    for begin in range(0, 100, 10):
        harness.send(*sent[begin : begin + 10])
    assert len(subscriber.data) == 100
    harness.advance(10.5)
    assert subscriber.data[100:] == sent
    subscriber.nack(*subscriber.held)
    assert sorted(subscriber.data[200:]) == sent


def test_more_than_is_read_at_once_comes_back_to_several_subscribers_without_an_ack() -> None:
    harness = ForwarderHarness()
    subscribers = [Subscriber(harness, max_messages=2000), Subscriber(harness, max_messages=2000)]
    for begin in range(0, 3000, 1000):
        harness.send(*(str(number) for number in range(begin, begin + 1000)))
    assert sum(len(subscriber.data) for subscriber in subscribers) == 3000
    harness.advance(10.5)
    assert sum(len(subscriber.data) for subscriber in subscribers) == 6000


def test_consumers_share_fairly_and_stop_at_their_limits() -> None:
    harness = ForwarderHarness()
    one, two = Subscriber(harness, max_messages=30), Subscriber(harness)
    harness.send(*(str(n) for n in range(200)))
    assert len(one.data) == 30
    assert sorted(one.data + two.data, key=int) == [str(n) for n in range(200)]
    one.ack(*list(one.held)[:10])
    harness.send(*(str(n) for n in range(200, 300)))
    assert 30 < len(one.data) <= 40

    harness = ForwarderHarness()
    one, two = Subscriber(harness), Subscriber(harness)
    harness.send(*(str(n) for n in range(100)))
    assert (len(one.data), len(two.data)) == (50, 50)


def test_bytes_are_limited_and_a_first_message_too_large_is_still_delivered() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness, max_bytes=1000)
    harness.send("x" * 5000)
    assert len(subscriber.data) == 1
    harness.send("y")
    assert len(subscriber.data) == 1
    subscriber.ack()
    assert len(subscriber.data) == 2


def test_a_unary_pull_takes_one_response() -> None:
    harness = ForwarderHarness()
    harness.send("a", "b", "c")
    pull = Subscriber(harness, max_messages=2, single=True)
    harness.quiesce()
    assert pull.data == ["a", "b"]
    assert pull.responses == 1
    second = Subscriber(harness, max_messages=2, single=True)
    harness.quiesce()
    assert second.data == ["c"]


def test_filtered_messages_are_neither_delivered_nor_backlog() -> None:
    harness = ForwarderHarness(filter_text='attributes.carrier = "UA"')
    subscriber = Subscriber(harness)
    harness.send("yes", carrier="UA")
    harness.send("no", carrier="AA")
    harness.send("none")
    assert subscriber.data == ["yes"]
    subscriber.ack()
    harness.advance(0.2)
    ledger = harness.publish.ledgers[harness.record.incarnation]
    (source,) = harness.publish.sources.of_topic(1)
    assert ledger.covers(source.number, 0, 3)


def test_a_delivery_at_rest_is_forgotten() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a")
    subscriber.ack()
    harness.subscribe.leave(harness.record, subscriber.consumer)
    harness.advance(0.2)
    assert not harness.subscribe.deliveries


@settings(max_examples=examples(150), deadline=None)
@given(seed=st.integers(0, 10**6), ordered=st.booleans(), exactly_once=st.booleans(), data=st.data())
def test_over_a_link_that_delays_and_drops_nothing_is_lost_and_keys_stay_in_order(
    seed: int, ordered: bool, exactly_once: bool, data: st.DataObject
) -> None:
    harness = ForwarderHarness(loss=0.2, delay_s=0.3, seed=seed, ordered=ordered, exactly_once=exactly_once)
    harness.advance(1)
    subscribers = [Subscriber(harness), Subscriber(harness, max_messages=3)]
    sent, first_seen, acked = [], [], []
    for n in range(data.draw(st.integers(1, 12))):
        key = data.draw(st.sampled_from(["", "a", "b"]))
        sent.append(f"{key}:{n}")
        assert harness.send(sent[-1], key=key).error is None
        if data.draw(st.booleans()):
            harness.advance(0.2)
    for _ in range(600):
        for subscriber in subscribers:
            for ack_id, text in list(subscriber.held.items()):
                if harness.random.random() < 0.2:
                    subscriber.nack(ack_id)
                else:
                    failed = subscriber.ack(ack_id)
                    if not failed:
                        acked.append(text)
        harness.advance(0.5)
        ledger = harness.publish.ledgers[harness.record.incarnation]
        (source,) = harness.publish.sources.of_topic(1)
        if ledger.covers(source.number, 0, len(sent)) and harness.leases.at_rest:
            break
    else:
        raise AssertionError(f"not everything was delivered: {sent} but {acked}")
    assert set(sent) == {text for subscriber in subscribers for text in subscriber.data}
    if ordered:
        for key in ("a", "b"):
            for subscriber in subscribers:
                first_seen = list(dict.fromkeys(text for text in subscriber.data if text.startswith(key)))
                assert first_seen == [text for text in sent if text in first_seen]


def test_a_source_that_cannot_be_read_is_asked_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.quiesce()
    fetch, asked = harness.publish.server.fetch, list[float]()

    def unreachable(subscription: int, source: int, begin: int, max_bytes: int, reply: Reply) -> None:
        asked.append(harness.clock.monotonic())
        reply(Unavailable("no copy can be reached now"))

    monkeypatch.setattr(harness.publish.server, "fetch", unreachable)
    harness.send("a")
    harness.advance(3.0)
    begun = len(asked)
    for _ in range(20):
        harness.send("more")  # what comes behind it is no reason to ask earlier
        harness.advance(1.0)
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert 2 <= begun <= 8
    assert 8 <= len(asked) - begun <= 12, "every other second"
    assert max(gaps) <= 2.3, "and never more rarely"
    monkeypatch.setattr(harness.publish.server, "fetch", fetch)
    harness.advance(2.5)
    assert subscriber.data == ["a"] + ["more"] * 20
    monkeypatch.setattr(harness.publish.server, "fetch", unreachable)
    harness.send("b")
    before = len(asked)
    harness.advance(0.5)
    assert len(asked) - before >= 2, "after an answer it begins anew"


def test_a_key_that_cannot_be_read_again_is_asked_for_at_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ForwarderHarness(ordered=True)
    subscriber = Subscriber(harness)
    harness.send("a", "b", key="k")
    fetch, asked = harness.publish.server.fetch, list[float]()

    def unreachable(subscription: int, source: int, begin: int, max_bytes: int, reply: Reply) -> None:
        asked.append(harness.clock.monotonic())
        harness.run_soon(lambda: reply(Unavailable("no copy can be reached now")))
        assert len(asked) < 100, "again and again without a pause"

    monkeypatch.setattr(harness.publish.server, "fetch", unreachable)
    subscriber.nack(*subscriber.held)
    harness.advance(1.0)
    assert 4 <= len(asked) <= 40
    monkeypatch.setattr(harness.publish.server, "fetch", fetch)
    harness.advance(0.5)
    assert subscriber.data == ["a", "b", "a", "b"]
