"""Leases and acknowledgements of a subscriber: what is extended, sent, sent again, and known in the end."""

from __future__ import annotations

from collections import deque
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import Code, PermissionDenied, SyncpointError, Unavailable, Unprocessed
from syncpoint.client.client_errors import AcknowledgeError, AcknowledgeStatus
from syncpoint.client.client_options import FlowControl
from syncpoint.client.held_messages import ACK_S, CALLS_MAX, IDS_MAX, HeldMessages
from syncpoint.client.received_messages import MessageBatch, changes_of
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.status import ack_failure

NUMBERS = count()


class Changes:
    """Takes changes as a reception does."""

    def __init__(self) -> None:
        self.acked: deque = deque()
        self.waiting: deque = deque()

    def wake(self) -> None: ...

    def all(self) -> list:
        return changes_of(self)


class Holder:
    """A table of held messages with what its user does."""

    def __init__(self, **flow) -> None:
        self.changes, self.now = Changes(), 0.0
        self.held = HeldMessages(FlowControl(**flow), lambda: 0.0)

    def receive(self, size: int, origin: str = "a") -> MessageBatch:
        received = [pubsub.ReceivedMessage(ack_id=f"id-{next(NUMBERS)}") for _ in range(size)]
        batch = MessageBatch(received, origin, self.now, self.changes)
        self.held.took(batch)
        return batch

    def calls(self) -> list:
        self.held.change(self.changes.all(), self.now)
        return list(self.held.calls(self.now))

    def answer(self, call) -> None:
        self.resolve(self.held.answered(call))

    def fail(self, call, error: SyncpointError, present: str = "a") -> None:
        self.resolve(self.held.failed(call, error, self.now, present))

    def resolve(self, known) -> None:
        for outcome, error in known:
            if error is None:
                outcome.set_result(AcknowledgeStatus.SUCCESS)
            else:
                outcome.set_exception(error)


def asked(calls) -> list:
    return [(call.seconds, call.ack_ids) for call in calls]


def test_acknowledgements_share_requests_and_a_batch_is_acknowledged_but_for_what_was_done_before():
    holder = Holder()
    batch, other = holder.receive(3), holder.receive(2)
    batch[1].nack()
    batch[1].ack()  # the first one counts
    batch.ack()
    other[0].ack()
    ids = batch.ack_ids
    calls = holder.calls()
    assert asked(calls) == [(None, [other.ack_ids[0], ids[0], ids[2]]), (0, [ids[1]])]
    assert holder.held.messages == 1
    batch.ack()
    batch.nack()
    assert holder.calls() == []
    for call in calls:
        holder.answer(call)
    assert holder.held.idle


def test_requests_have_a_bound_and_so_has_their_number():
    holder = Holder()
    batches = [holder.receive(1_000) for _ in range(12)]
    for batch in batches:
        batch.ack()
    calls = holder.calls()
    assert len(calls) == CALLS_MAX
    found: list[str] = []
    while calls:
        assert all(len(call.ack_ids) <= IDS_MAX for call in calls)
        for call in calls:
            found += call.ack_ids
            holder.answer(call)
        calls = holder.calls()
    assert found == [one for batch in batches for one in batch.ack_ids]
    large = holder.receive(2 * IDS_MAX + 1)
    large.ack()
    assert [len(call.ack_ids) for call in holder.calls()] == [IDS_MAX, IDS_MAX, 1]


def test_what_waits_for_a_call_is_sent_together():
    holder = Holder()
    batch = holder.receive(200)
    for message in batch[: CALLS_MAX + 1]:
        message.ack()
        under_way = holder.calls()
    assert under_way == []
    for message in batch[CALLS_MAX + 1 :]:
        message.ack()
        assert holder.calls() == []
    first = next(iter(holder.held._under_way))
    holder.answer(first)
    (call,) = holder.calls()
    assert call.ack_ids == batch.ack_ids[CALLS_MAX:]


def test_what_is_held_is_extended_until_it_was_held_for_too_long():
    holder = Holder(lease_duration=60, max_lease_duration=100)
    batch = holder.receive(2)
    batch[0].ack()
    holder.answer(*holder.calls())
    extended = []
    for _ in range(20):
        holder.now += 10
        holder.held.extend(holder.now)
        for call in holder.calls():
            assert asked([call]) == [(60, [batch.ack_ids[1]])]
            extended.append(holder.now)
            holder.answer(call)
    assert extended == [30, 60, 90]
    assert holder.held.messages == 0
    batch[1].ack()  # is sent all the same: it counts where nobody else has the message
    assert asked(holder.calls()) == [(None, [batch.ack_ids[1]])]
    assert holder.held.messages == 0


def test_every_lease_can_be_extended_at_once():
    holder = Holder()
    batch = holder.receive(2)
    holder.held.extend(1.0, every=True)
    assert asked(holder.calls()) == [(60, batch.ack_ids)]


def test_an_acknowledgement_that_is_not_answered_is_sent_again_then_where_the_service_is():
    holder = Holder()
    outcome = holder.receive(1)[0].ack_with_response()
    (call,) = holder.calls()
    holder.fail(call, Unavailable("gone"), present="b")
    assert holder.calls() == []
    holder.now = holder.held.wake_s or 0.0
    (again,) = holder.calls()
    assert (again.origin, again.ack_ids) == ("b", call.ack_ids)
    assert not outcome.done()
    holder.answer(again)
    assert outcome.result() is AcknowledgeStatus.SUCCESS


@pytest.mark.parametrize("single", [True, False])
def test_an_acknowledgement_is_given_up_in_the_end(single):
    holder = Holder(ack_timeout=30)
    batch = holder.receive(1)
    outcome = batch[0].ack_with_response()
    error = ack_failure([], unknown=batch.ack_ids) if single else Unavailable("not known now")
    sent = 0
    while not outcome.done():
        for call in holder.calls():
            sent += 1
            holder.fail(call, error)
        holder.now = holder.held.wake_s or holder.now
    with pytest.raises(AcknowledgeError, match=r"OTHER: .*not known") as caught:
        outcome.result()
    assert caught.value.error_code is AcknowledgeStatus.OTHER
    assert 18 < holder.now <= 30
    assert sent == 9


def test_one_that_nobody_waits_for_is_sent_for_longer():
    holder = Holder(ack_timeout=30)
    holder.receive(1)[0].ack()
    while calls := holder.calls():
        for call in calls:
            holder.fail(call, Unavailable("gone"))
        holder.now = holder.held.wake_s or holder.now
    assert ACK_S - 20 < holder.now <= ACK_S


def test_ids_of_a_request_end_each_in_its_own_way():
    holder = Holder()
    batch = holder.receive(3)
    good, bad, later = (message.ack_with_response() for message in batch)
    (call,) = holder.calls()
    holder.fail(call, ack_failure([batch.ack_ids[1]], unknown=[batch.ack_ids[2]]))
    assert good.result() is AcknowledgeStatus.SUCCESS
    with pytest.raises(AcknowledgeError) as caught:
        bad.result()
    assert caught.value.error_code is AcknowledgeStatus.INVALID_ACK_ID
    assert not later.done()
    holder.now = holder.held.wake_s or 0.0
    (again,) = holder.calls()
    assert again.ack_ids == [batch.ack_ids[2]]
    holder.fail(again, PermissionDenied("no"))
    with pytest.raises(AcknowledgeError) as caught:
        later.result()
    assert caught.value.error_code is AcknowledgeStatus.PERMISSION_DENIED
    with pytest.raises(AcknowledgeError, match="FAILED_PRECONDITION"):
        batch[0].ack_with_response().result()


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (Unavailable("the connection was lost"), AcknowledgeStatus.OTHER),
        (Unprocessed("no connection"), AcknowledgeStatus.INVALID_ACK_ID),
    ],
)
def test_an_id_that_is_refused_after_an_attempt_without_an_answer_may_have_counted(before, expected):
    holder = Holder()
    batch = holder.receive(1)
    outcome = batch[0].ack_with_response()
    holder.fail(*holder.calls(), before)
    holder.now = 10
    holder.fail(*holder.calls(), ack_failure(batch.ack_ids))
    with pytest.raises(AcknowledgeError) as caught:
        outcome.result()
    assert caught.value.error_code is expected


def test_deadlines_are_changed_as_wished():
    holder = Holder()
    batch = holder.receive(2)
    batch[0].modify_ack_deadline(300)
    batch[1].modify_ack_deadline(0)
    batch[1].modify_ack_deadline(30)
    assert asked(holder.calls()) == [(300, [batch.ack_ids[0]]), (0, [batch.ack_ids[1]])]
    assert holder.held.messages == 1
    with pytest.raises(ValueError, match="from 0 to 600"):
        batch[0].modify_ack_deadline(601)


def test_what_is_given_up_is_known_as_unknown():
    holder = Holder()
    first, second = (message.ack_with_response() for message in holder.receive(2))
    (call,) = holder.calls()
    holder.fail(call, Unavailable("gone"))
    holder.resolve(holder.held.give_up())
    for outcome in (first, second):
        with pytest.raises(AcknowledgeError, match="not known"):
            outcome.result()
    assert holder.held.idle


ENDS = ["good", "gone", "other", "single"]


@given(st.lists(st.tuples(st.integers(1, 5), st.lists(st.sampled_from(["ack", "nack", "ask"]))), max_size=8), st.data())
def test_each_outcome_is_known_once_and_no_acknowledgement_is_lost(batches, data):
    holder = Holder()
    outcomes, wanted, counted, refused = {}, set(), set(), set()
    for size, what in batches:
        batch = holder.receive(size)
        for message, one in zip(batch, what, strict=False):
            if one == "nack":
                message.nack()
            elif one == "ack":
                message.ack()
                wanted.add(message.ack_id)
            else:
                outcomes[message.ack_id] = message.ack_with_response()
                wanted.add(message.ack_id)
    for round_number in range(200):
        calls = holder.calls()
        if not calls:
            if holder.held.idle:
                break
            holder.now = holder.held.wake_s
            continue
        for call in calls:
            end = data.draw(st.sampled_from(ENDS)) if round_number < 20 else "good"
            if end == "good":
                holder.answer(call)
                counted.update(call.ack_ids if call.seconds is None else ())
            elif end == "single":
                bad = call.ack_ids[0]
                holder.fail(call, ack_failure([bad]))
                counted.update(call.ack_ids[1:] if call.seconds is None else ())
                refused.add(bad)
            elif end == "gone":
                holder.fail(call, Unavailable("gone"))
            else:
                holder.fail(call, SyncpointError(Code.ABORTED, "again"))
    assert holder.held.idle
    assert wanted <= counted | refused
    for ack_id, outcome in outcomes.items():
        assert outcome.done()
        assert (outcome.exception() is None) == (ack_id in counted)
