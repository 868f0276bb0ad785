"""The queue of a publisher: whatever the server answers, each entry ends once, and keys keep their order."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.client.client_errors import PausedOrderingKeyError
from syncpoint.client.client_options import BatchSettings, ClientRetry
from syncpoint.client.publish_queue import BYTES_MAX, REQUESTS_MAX, PublishEntry, PublishQueue

BATCH = BatchSettings(max_messages=3, max_bytes=100, max_latency=1.0)
RETRY = ClientRetry(initial=1.0, multiplier=2.0, maximum=8.0, deadline=30.0)
LOST = SyncpointError(Code.UNAVAILABLE, "lost")
WRONG = SyncpointError(Code.INVALID_ARGUMENT, "wrong")


def queue(batch: BatchSettings = BATCH) -> PublishQueue:
    return PublishQueue(batch, RETRY, lambda: 0.0)


def entry(name: str, count: int = 1, size: int = 10) -> PublishEntry:
    return PublishEntry(name.encode().ljust(size), count, name)


def names(requests) -> list[list[str]]:
    return [[one.outcome for one in request.entries] for request in requests]


def test_a_request_is_sent_when_it_is_full_or_its_first_message_is_old_enough():
    q = queue()
    assert q.add("t", "", entry("a"), 10.0)  # wakes whoever waits, for the time at which it is due
    assert (q.due(10.5), q.wake_s) == ([], 11.0)
    assert not q.add("t", "", entry("b"), 10.9)
    assert names(q.due(11.0)) == [["a", "b"]]
    for name in "cde":
        q.add("t", "", entry(name), 11.0)
    assert names(q.due(11.0)) == [["c", "d", "e"]]
    q.add("t", "", entry("f", size=100), 11.0)
    assert names(q.due(11.0)) == [["f"]]
    assert q.messages == 6


def test_an_entry_is_not_divided_and_those_that_do_not_fit_go_next():
    q = queue()
    q.add("t", "", entry("a", 2), 0.0)
    q.add("t", "", entry("b", 2), 0.0)
    q.add("t", "", entry("c", 9), 0.0)
    assert names(q.due(0.0)) == [["a"], ["b"], ["c"]]


def test_a_key_has_one_request_under_way_and_others_do_not_wait_for_it():
    q = queue()
    for name in "abcd":
        q.add("t", "k", entry(name), 0.0)
    q.add("t", "other", entry("x", 3), 0.0)
    first, other = q.due(0.0)
    assert names([first, other]) == [["a", "b", "c"], ["x"]]
    q.flush(0.1)
    assert q.due(0.1) == []
    q.answered(first, 0.2)
    assert names(q.due(0.2)) == [["d"]]


def test_what_failed_for_a_moment_is_sent_again_with_growing_pauses_and_given_up_in_the_end():
    q = queue()
    q.add("t", "k", entry("a", 3), 0.0)
    q.add("t", "k", entry("b", 3), 0.0)
    now, times = 0.0, []
    while (found := q.due(now)) or q.wake_s is not None:
        if found:
            assert names(found) == [["a"]]
            times.append(now)
            failed = q.failed(found[0], LOST, now)
        else:
            now = q.wake_s
    assert times == [0.0, 1.0, 3.0, 7.0, 15.0, 23.0]
    assert [one.outcome for one in failed] == ["a", "b"]
    assert q.messages == q.nbytes == 0


def test_requests_and_bytes_under_way_are_bounded():
    q = queue()
    for n in range(REQUESTS_MAX + 5):
        q.add("t", "", entry(str(n), 3), 0.0)
    sent = q.due(0.0)
    assert len(sent) == REQUESTS_MAX
    assert q.due(0.0) == []
    q.answered(sent[0], 0.0)
    assert len(q.due(0.0)) == 1
    q = queue()
    for n in range(5):
        q.add("t", "", entry(str(n), 3, size=BYTES_MAX // 2), 0.0)
    sent = q.due(0.0)
    assert len(sent) == 2
    q.failed(sent[0], LOST, 0.0)
    assert len(q.due(0.0)) == 1


def test_a_key_is_paused_after_what_cannot_be_stored_until_it_is_resumed():
    q = queue()
    for name in "abcd":
        q.add("t", "k", entry(name), 0.0)
    (request,) = q.due(0.0)
    assert [one.outcome for one in q.failed(request, WRONG, 0.0)] == ["a", "b", "c", "d"]
    with pytest.raises(PausedOrderingKeyError, match="resume_publish"):
        q.add("t", "k", entry("e"), 0.0)
    q.add("t", "other", entry("x", 3), 0.0)
    q.add("t", "", entry("y", 3), 0.0)
    assert names(q.due(0.0)) == [["x"], ["y"]]
    q.resume("t", "k")
    q.add("t", "k", entry("e", 3), 0.0)
    assert names(q.due(0.0)) == [["e"]]


def test_a_failure_without_a_key_concerns_its_request_alone():
    q = queue()
    q.add("t", "", entry("a", 3), 0.0)
    q.add("t", "", entry("b"), 0.0)
    (request,) = q.due(0.0)
    assert [one.outcome for one in q.failed(request, WRONG, 0.0)] == ["a"]
    q.flush(0.0)
    assert names(q.due(0.0)) == [["b"]]


def test_what_is_given_up_is_everything_wherever_it_is():
    q = queue()
    for name in "abc":
        q.add("t", "k", entry(name, 3), 0.0)
    q.add("t", "", entry("x"), 0.0)
    q.add("t", "again", entry("y", 3), 0.0)
    sent = q.due(0.0)
    q.failed(sent[1], LOST, 0.0)
    assert sorted(one.outcome for one in q.give_up()) == ["a", "b", "c", "x", "y"]
    assert q.messages == q.nbytes == 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(["", "k1", "k2"]), st.integers(1, 4)),
        st.tuples(st.just("time"), st.floats(0.1, 3.0), st.none()),
        st.tuples(st.just("end"), st.integers(0, 7), st.sampled_from(["stored", "lost", "stored and lost", "wrong"])),
        st.tuples(st.just("flush"), st.none(), st.none()),
        st.tuples(st.just("resume"), st.sampled_from(["k1", "k2"]), st.none()),
    ),
    max_size=120,
)


class Served:
    """A queue and the server behind it."""

    def __init__(self) -> None:
        self.queue, self.now = queue(), 0.0
        self.under_way: list = []
        self.stored: dict[str, list[int]] = defaultdict(list)
        self.added: dict[str, list[int]] = defaultdict(list)
        self.ended: dict[int, str] = {}
        self.number = 0

    def step(self, kind: str, one, other) -> None:
        if kind == "add":
            try:
                self.queue.add("t", one, PublishEntry(b"x" * 10, other, self.number), self.now)
            except PausedOrderingKeyError:
                assert one
            else:
                self.added[one].append(self.number)
                self.number += 1
        elif kind == "time":
            self.now += one
        elif kind == "flush":
            self.queue.flush(self.now)
        elif kind == "resume":
            self.queue.resume("t", one)
        elif self.under_way:
            self.end(self.under_way.pop(one % len(self.under_way)), other)
        self.under_way += self.queue.due(self.now)
        assert len(self.under_way) <= REQUESTS_MAX
        keys = [one.lane.ordering_key for one in self.under_way if one.lane.ordering_key]
        assert len(set(keys)) == len(keys)

    def end(self, request, outcome: str) -> None:
        if outcome.startswith("stored"):
            self.stored[request.lane.ordering_key] += [entry.outcome for entry in request.entries]
        if outcome == "stored":
            self.queue.answered(request, self.now)
            self.note(request.entries, "stored")
        else:
            error = WRONG if outcome == "wrong" else LOST
            self.note(self.queue.failed(request, error, self.now), "failed")

    def note(self, entries, how: str) -> None:
        for one in entries:
            assert one.outcome not in self.ended
            self.ended[one.outcome] = how

    def finish(self) -> None:
        self.queue.flush(self.now)
        for _ in range(1000):
            self.under_way += self.queue.due(self.now)
            if not self.under_way:
                if self.queue.wake_s is None:
                    break
                self.now = max(self.now, self.queue.wake_s)
                continue
            self.end(self.under_way.pop(0), "stored")


@given(STEPS)
def test_each_entry_ends_once_and_keys_are_stored_in_order(steps):
    served = Served()
    for step in steps:
        served.step(*step)
    served.finish()
    assert sorted(served.ended) == list(range(served.number))
    assert served.queue.messages == served.queue.nbytes == 0
    for key, found in served.stored.items():
        firsts = list(dict.fromkeys(found))
        if key:
            assert firsts == sorted(firsts)
        assert {n for n in served.added[key] if served.ended[n] == "stored"} <= set(found)
