"""Messages that were given back: when they come again, and what waits for them."""

from collections.abc import Sequence

from syncpoint.base.model.limits import RESPONSE_BYTES_MAX
from syncpoint.catalog.metadata.records import DeadLetter, Retry
from syncpoint.testing.rigs.forwarder_harness import ForwarderHarness, Subscriber


def test_a_nack_brings_it_back_at_once_and_a_policy_later() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a")
    subscriber.nack(*subscriber.held)
    assert subscriber.data == ["a", "a"]

    harness = ForwarderHarness(retry=Retry(1.0, 3.0))
    subscriber = Subscriber(harness)
    harness.send("a")
    waits = []
    for expected in (1.0, 2.0, 3.0, 3.0):
        subscriber.nack(*subscriber.held)
        waited, seen = 0.0, len(subscriber.data)
        while len(subscriber.data) == seen:
            harness.advance(0.1)
            waited += 0.1
        waits.append((round(waited, 1), expected))
    assert all(abs(waited - expected) < 0.25 for waited, expected in waits), waits


def test_a_key_stays_in_order_through_a_nack() -> None:
    harness = ForwarderHarness(ordered=True)
    one, two = Subscriber(harness), Subscriber(harness)
    for n in range(6):
        harness.send(f"k{n}", key="k")
    harness.send("free")
    holder, other = (one, two) if "k0" in one.data else (two, one)
    assert [data for data in holder.data if data != "free"] == [f"k{n}" for n in range(6)]
    assert not [data for data in other.data if data != "free"]
    by_data = {data: ack_id for ack_id, data in holder.held.items()}
    seen = len(one.data) + len(two.data)
    holder.ack(by_data["k0"], by_data["k1"])
    holder.nack(by_data["k2"])
    again = (one.data + two.data, len(one.data) + len(two.data) - seen)
    assert again[1] == 4, "k2 and everything after it comes again"
    last = one if one.data[-1] == "k5" and one.responses > 1 else two
    assert last.data[-4:] == ["k2", "k3", "k4", "k5"]


def test_an_ack_during_the_backoff_of_a_key_lets_the_key_go_on() -> None:
    harness = ForwarderHarness(ordered=True, retry=Retry(1.0, 1.0))
    subscriber = Subscriber(harness)
    for data in "abc":
        harness.send(data, key="k")
    first = next(ack_id for ack_id, data in subscriber.held.items() if data == "a")
    subscriber.nack(first)
    subscriber.ack(first)
    harness.quiesce()
    assert subscriber.data == ["a", "b", "c", "b", "c"], "what it rested for is done"


def test_a_key_rests_until_the_last_of_its_backoffs_is_over() -> None:
    harness = ForwarderHarness(ordered=True, retry=Retry(1.0, 8.0))
    subscriber = Subscriber(harness)
    for data in "ab":
        harness.send(data, key="k")
    by_data = {data: ack_id for ack_id, data in subscriber.held.items()}
    subscriber.nack(by_data["b"])
    harness.advance(1.1)
    by_data = {data: ack_id for ack_id, data in subscriber.held.items()}
    subscriber.nack(by_data["a"], by_data["b"])  # the first time for one, the second for the other
    harness.advance(1.5)
    assert subscriber.data == ["a", "b", "b"]
    harness.advance(1.0)
    assert subscriber.data == ["a", "b", "b", "a", "b"]


def test_messages_without_a_key_come_back_beside_those_of_a_key() -> None:
    harness = ForwarderHarness(ordered=True, retry=Retry(1.0, 1.0))
    subscriber = Subscriber(harness)
    for number, key in enumerate(("k", "", "k", "", "")):
        harness.send(str(number), key=key)
    subscriber.nack(*subscriber.held)
    harness.advance(1.5)
    assert sorted(subscriber.data[5:]) == ["0", "1", "2", "3", "4"]


def test_what_waits_for_its_next_delivery_keeps_its_count_while_nobody_listens() -> None:
    harness = ForwarderHarness(dead_letter=DeadLetter("projects/p/topics/dead", 5))
    subscriber = Subscriber(harness)
    harness.send("a", "b")
    harness.subscribe.leave(harness.record, subscriber.consumer)
    subscriber.nack(*subscriber.held)
    second = Subscriber(harness, single=True, max_messages=1)
    harness.quiesce()
    assert [message.delivery_attempt for message in second.received] == [2]
    second.ack()
    harness.advance(0.5)
    third = Subscriber(harness)
    harness.quiesce()
    assert [message.delivery_attempt for message in third.received] == [2]


def test_held_back_messages_of_a_key_respect_bytes_outstanding_and_the_size_of_a_response() -> None:
    harness = ForwarderHarness(ordered=True)
    subscriber = Subscriber(harness, max_messages=1)
    for number in range(40):
        harness.send(f"{number:02}" + "x" * 300_000, key="k")
    subscriber.consumer.max_messages, subscriber.consumer.max_bytes = 1000, 1_000_000
    responses: list[int] = []
    deliver = subscriber.consumer.send

    def send(parts: Sequence[bytes], serials: Sequence[int]) -> None:
        responses.append(sum(map(len, parts)))
        deliver(parts, serials)

    subscriber.consumer.send = send
    subscriber.nack(*subscriber.held)
    received = []
    while subscriber.held:
        assert len(subscriber.held) <= 3, "three of them fit into the million bytes"
        received += [data[:2] for data in subscriber.held.values()]
        subscriber.ack()
    assert received == [f"{number:02}" for number in range(40)]
    assert max(responses) < RESPONSE_BYTES_MAX + 1000
