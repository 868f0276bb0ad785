"""What comes again, when and to whom: deadlines, nacks, extensions, and several subscribers on one subscription.

Where a wait of seconds is needed, deadlines are cut short with ModifyAckDeadline, and several waits run side by side.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from syncpoint.testing.rigs.official import bodies, eventually

pytestmark = pytest.mark.shows("redelivery")


def test_an_unacknowledged_message_comes_again_under_a_new_ack_id(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    space.publish(topic, b"x")
    (first,) = space.pull(subscription)
    assert not space.peek(subscription), "it is leased"
    space.deadline(subscription, 1, first)
    (second,) = space.pull(subscription)
    assert second.message == first.message
    assert second.ack_id != first.ack_id


def test_an_extended_message_stays_away_while_another_one_expires(space):
    topic, subscription = space.pair(ack_deadline_seconds=10)
    space.publish(topic, b"short", b"long")
    got = {one.message.data: one for one in space.pull(subscription, 2)}
    space.deadline(subscription, 600, got[b"long"])
    space.deadline(subscription, 1, got[b"short"])
    assert bodies(space.pull(subscription, within=30)) == [b"short"]
    assert not space.peek(subscription)


def test_the_deadline_of_ten_seconds_holds_for_pull_and_streams(space):
    """Four waits at once: by subscription, by stream, by a changed stream deadline, and one that was extended."""
    topic = space.topic()
    pulled = space.subscription(topic, "pulled", ack_deadline_seconds=10)
    extended = space.subscription(topic, "extended", ack_deadline_seconds=10)
    streamed = space.subscription(topic, "streamed", ack_deadline_seconds=600)
    changed = space.subscription(topic, "changed", ack_deadline_seconds=600)
    stream = space.stream(streamed, stream_ack_deadline_seconds=10)
    changing = space.stream(changed, stream_ack_deadline_seconds=600, protocol_version=1)
    changing.send(stream_ack_deadline_seconds=10)
    eventually(lambda: changing.responses, what="the change was received")
    begun = time.monotonic()
    space.publish(topic, b"x")
    (first,) = space.pull(pulled)
    (kept,) = space.pull(extended)
    space.deadline(extended, 60, kept)
    stream.wait(1)
    changing.wait(1)
    (again,) = space.pull(pulled, within=40)
    assert time.monotonic() - begun > 9, "not before the deadline"
    assert again.ack_id != first.ack_id
    assert len({one.ack_id for one in stream.wait(2, within=40)[:2]}) == 2
    assert len({one.ack_id for one in changing.wait(2, within=40)[:2]}) == 2
    assert not space.peek(extended)


def test_a_late_ack_still_counts(space):
    """At-least-once subscriptions accept an ack whose deadline has passed, also when the message is out again."""
    topic, subscription = space.pair(ack_deadline_seconds=600)
    space.publish(topic, b"x")
    (first,) = space.pull(subscription)
    space.nack(subscription, first)
    (second,) = space.pull(subscription)
    space.ack(subscription, first)
    space.nack(subscription, second)
    space.publish(topic, b"barrier")
    assert bodies(space.pull(subscription)) == [b"barrier"]


def test_an_old_ack_id_cannot_nack_or_extend_the_new_delivery(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    space.publish(topic, b"x")
    (first,) = space.pull(subscription)
    space.nack(subscription, first)
    (second,) = space.pull(subscription)
    space.nack(subscription, first)
    assert not space.peek(subscription)
    space.deadline(subscription, 600, first)
    space.deadline(subscription, 1, second)
    assert bodies(space.pull(subscription)) == [b"x"]


def test_a_nacked_message_goes_to_whoever_asks(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    stream = space.stream(subscription, max_outstanding_messages=1)
    space.publish(topic, b"x")
    (held,) = stream.wait(1)
    space.deadline(subscription, 600, held)  # as all clients do: it has arrived
    stream.cancel()
    assert not space.peek(subscription), "a message that has arrived stays leased"
    space.nack(subscription, held)
    assert bodies(space.pull(subscription)) == [b"x"]


def test_a_thousand_nacks_bring_a_thousand_messages(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    ids = set(space.publish(topic, *[b"%d" % number for number in range(1000)]))
    for _ in range(3):
        got = space.pull(subscription, 1000)
        assert {one.message.message_id for one in got} == ids
        space.nack(subscription, *got)
    space.pull(subscription, 1000, ack=True)
    assert not space.peek(subscription)


def test_a_redelivered_message_does_not_starve_new_ones(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    space.publish(topic, b"poison")
    stream = space.stream(subscription, max_outstanding_messages=10)
    stop = threading.Event()

    def nack_poison():
        done = 0
        while not stop.wait(0.005):
            fresh = stream.messages[done:]
            done += len(fresh)
            for one in fresh:
                if one.message.data == b"poison":
                    space.nack(subscription, one)
                else:
                    space.ack(subscription, one)

    worker = threading.Thread(target=nack_poison)
    worker.start()
    try:
        for number in range(20):
            space.publish(topic, b"%d" % number)
        eventually(lambda: {b"%d" % number for number in range(20)} <= set(stream.bodies))
    finally:
        stop.set()
        worker.join()


class Worker:
    """A stream whose messages are acknowledged at once, as they come."""

    def __init__(self, space, subscription, **first):
        self.space, self.subscription = space, subscription
        self.stream = space.stream(subscription, **first)
        self.stop = threading.Event()
        self.done = 0
        self.open: set[str] = set()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        while not self.stop.wait(0.002) or self.done < len(self.stream.messages):
            fresh = self.stream.messages[self.done :]
            if fresh:
                self.space.ack(self.subscription, *fresh)
                self.done += len(fresh)

    def leave(self):
        """Half-close, acknowledge everything that still came, and go. `open` has then what was not acknowledged when
        it closed its side: that goes to others at once.
        """
        done = self.done
        self.stream.half_close()
        self.stream.ended()
        self.stop.set()
        self.thread.join()
        self.open = {one.message.message_id for one in self.stream.messages[done:]}
        return [one.message.message_id for one in self.stream.messages]


def test_competing_subscribers_share_without_loss_or_repetition_while_they_join_and_leave(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    workers = [Worker(space, subscription, max_outstanding_messages=10) for _ in range(3)]
    everybody, ids, taken = list(workers), [], []
    space.attached(subscription, 3)
    try:
        for step in range(60):
            ids += space.publish(topic, *[b"x"] * 20)
            if step == 20:
                workers.append(Worker(space, subscription, max_outstanding_messages=10))
                everybody.append(workers[-1])
                space.attached(subscription, 4)
            if step == 40:
                taken.append(workers.pop(0).leave())

        def got_all() -> bool:
            streams = [one.message.message_id for worker in workers for one in worker.stream.messages]
            return {*streams, *(one for share in taken for one in share)} >= set(ids)

        eventually(got_all)
    finally:
        taken += [worker.leave() for worker in workers]
    got = Counter(one for share in taken for one in share)
    assert set(got) == set(ids)
    twice = {one for one, count in got.items() if count > 1}
    assert twice <= set().union(*(worker.open for worker in everybody)), "only what somebody left unacknowledged"
    assert all(share for share in taken), "everyone gets a share"


def test_equal_subscribers_get_fair_shares(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    workers = [Worker(space, subscription, max_outstanding_messages=5) for _ in range(4)]
    space.attached(subscription, 4)
    try:
        for _ in range(50):
            space.publish(topic, *[b"x"] * 20)
        # Acknowledged, not only received: what a worker that leaves has not acknowledged goes to another one.
        eventually(lambda: sum(worker.done for worker in workers) >= 1000)
    finally:
        shares = [len(worker.leave()) for worker in workers]
    assert sum(shares) == 1000
    assert min(shares) >= 50, f"unfair: {shares}"


def test_one_subscriber_that_never_acknowledges_holds_up_nobody_else(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    stuck = space.stream(subscription, max_outstanding_messages=5)
    space.publish(topic, *[b"x"] * 5)
    stuck.wait(5)
    worker = Worker(space, subscription, max_outstanding_messages=10)
    try:
        space.publish(topic, *[b"y"] * 100)
        worker.stream.wait(100)
    finally:
        assert len(worker.leave()) == 100
    assert len(stuck.messages) == 5


@pytest.mark.parametrize("size", [10, 3000, 100_000])
@pytest.mark.parametrize("give_back", [0, 1])
@pytest.mark.parametrize("ordered", [False, True])
def test_many_messages_come_again_whatever_their_size(space, size, give_back, ordered):
    """Published one by one, given back all at once, by nack or by expiry: what is read again is many batches."""
    topic, subscription = space.pair(ack_deadline_seconds=600, enable_message_ordering=ordered)
    ids = [space.publish(topic, b"x" * size, key="k" if ordered else "")[0] for _ in range(100)]
    stream = space.stream(subscription)
    for turn in (1, 2, 3):
        stream.wait(100 * turn, 60)
        got = stream.messages[-100:]
        assert sorted(one.message.message_id for one in got) == ids
        assert not ordered or [one.message.message_id for one in got] == ids
        space.deadline(subscription, give_back if turn < 3 else 600, *got)
    space.ack(subscription, *got)
    assert not space.peek(subscription)
