"""Ack ids of any age, over both forwarders: which still count, which have failed, and which are unknown."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base.kernel.errors import BadAckId
from syncpoint.base.model.errors import FailedPrecondition, Unavailable
from syncpoint.catalog.metadata.records import Retry
from syncpoint.testing.rigs.forwarder_harness import ForwarderHarness, Subscriber
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("exactly-once")


def test_an_ack_id_from_before_a_crash_still_acknowledges() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a")
    held = list(subscriber.held)
    harness.restart()
    Subscriber(harness).ack(*held)
    harness.restart()
    again = Subscriber(harness)
    harness.quiesce()
    assert again.data == []


@pytest.mark.parametrize("counted", [True, False])
def test_an_exactly_once_ack_id_from_before_a_crash_fails_only_if_it_did_not_count(counted: bool) -> None:
    """Whoever was not answered tries it again after the crash: as long as nobody knows, it has not failed."""
    harness = ForwarderHarness(exactly_once=True)
    subscriber = Subscriber(harness)
    harness.send("a", "b")
    held = list(subscriber.held)
    if counted:
        subscriber.ack(held[0])
    harness.restart()
    failed: list[bytes] = []
    unknown: list[bytes] = []

    def again() -> None:
        failed.clear(), unknown.clear()
        request = pubsub.AcknowledgeRequest(ack_ids=held).SerializeToString()
        answer = lambda bad, unsure: (failed.extend(bad), unknown.extend(unsure))  # noqa: E731
        harness.leases.acknowledge(request, 2, harness.clock.monotonic(), answer)
        harness.advance(6)

    again()
    first, second = (one.encode() for one in held)
    assert (failed, unknown) == (([second], [first]) if counted else ([first, second], []))
    again()
    assert (sorted(failed), unknown) == (([second], [first]) if counted else (sorted([first, second]), []))
    assert Subscriber(harness).data == [] or not harness.quiesce()
    harness.advance(1)
    assert harness.leases.table.total()[0] == (1 if counted else 2), "what did not count is lent again"


@pytest.mark.parametrize("options", [{}, {"exactly_once": True}, {"retry": Retry(2.0, 4.0)}])
@settings(deadline=None, max_examples=60)
@given(
    acts=st.lists(st.tuples(st.sampled_from(["ack", "ack", "nack"]), st.integers(0, 40)), max_size=25),
    keys=st.integers(1, 2),
)
def test_a_lease_that_was_taken_back_is_void_at_once(
    options: dict[str, Any], acts: list[tuple[str, int]], keys: int
) -> None:
    """Whatever is said by ids of any age: what follows a message of its key that came back is delivered again."""
    harness = ForwarderHarness(ordered=True, **options)
    once = harness.record.exactly_once
    subscriber = Subscriber(harness)
    for number in range(6):
        harness.send(str(number), key=f"k{number % keys}")
    counts: dict[str, str] = {}  # of ids that may still count: their messages
    seen = 0
    again: set[str] = set()
    done: set[str] = set()

    def look() -> None:
        nonlocal seen
        for one in subscriber.received[seen:]:
            data = one.message.data.decode()
            counts[one.ack_id] = data
            again.discard(data)
        seen = len(subscriber.received)

    def taken_back(first: str) -> None:
        later = [one for one in map(str, range(int(first) + keys, 6, keys)) if one not in done]
        again.update(one for one in later if one in counts.values())
        for ack_id in [ack_id for ack_id, data in counts.items() if data in later]:
            del counts[ack_id]

    look()
    for act, number in acts:
        received = subscriber.received[number % seen]
        ack_id, data = received.ack_id, received.message.data.decode()
        newest = [one.ack_id for one in subscriber.received if one.message.data.decode() == data][-1]
        if act == "ack":
            refused = subscriber.ack(ack_id)
            if ack_id in counts and not refused:
                done.add(data)
            assert once or not refused
            assert not (once and ack_id not in counts and not refused), "an exactly-once sender learns of it"
        elif act == "nack" and ack_id == newest and ack_id in subscriber.held and ack_id in counts and data not in done:
            taken_back(data)
            subscriber.nack(ack_id)
        look()
    harness.advance(16)
    look()
    assert not again
    harness.restart()
    rest = Subscriber(harness)
    harness.advance(8)
    assert sorted(rest.data) == sorted(set(map(str, range(6))) - done)


@pytest.mark.parametrize("tried_before", [True, False])
def test_what_is_refused_has_failed_only_if_it_was_not_tried_before(tried_before: bool) -> None:
    """An earlier attempt whose answer was lost may have counted."""
    harness = ForwarderHarness(exactly_once=True)
    subscriber = Subscriber(harness)
    harness.send("a")
    (ack_id,) = subscriber.held
    answers: list[Exception] = [Unavailable("the answer was lost")] if tried_before else []

    def acknowledge(*given: Any, **_: Any) -> None:
        given[4](answers.pop(0) if answers else FailedPrecondition("the grant is over"))

    harness.leases.publish.acknowledge = acknowledge  # type: ignore[method-assign]
    failed = subscriber.ack(ack_id)
    harness.advance(8)
    assert not answers
    assert (failed, subscriber.unknown) == (([], [ack_id.encode()]) if tried_before else ([ack_id.encode()], []))


def test_exactly_once_refuses_what_expired_was_replaced_or_acknowledged() -> None:
    harness = ForwarderHarness(exactly_once=True)
    subscriber = Subscriber(harness)
    harness.send("a")
    (first,) = subscriber.held
    harness.advance(10.5)
    second = subscriber.received[-1].ack_id
    assert second != first
    assert subscriber.ack(first) == [first.encode()]
    assert subscriber.ack(second) == []
    assert subscriber.ack(second) == [second.encode()]
    harness.advance(20)
    assert subscriber.data == ["a", "a"]


def test_a_forged_ack_id_changes_nothing() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a")
    (good,) = subscriber.held
    forged = good[:-1] + ("A" if good[-1] != "A" else "B")
    with pytest.raises(BadAckId):
        subscriber.ack(good, forged)
    harness.restart()
    again = Subscriber(harness)
    harness.quiesce()
    assert again.data == ["a"]
