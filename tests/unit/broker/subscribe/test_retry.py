"""Redelivery: runs of due messages, backoff times, and forgetting what was acknowledged."""

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.broker.subscribe.retry import OffsetRun, Redelivery


def test_due_messages_come_in_runs_in_publish_order() -> None:
    queue = Redelivery()
    for offset in (5, 3, 4, 9):
        queue.add(1, offset)
    assert list(queue.take_due(100)) == [OffsetRun(1, 3, 6, 1), OffsetRun(1, 9, 10, 1)]
    assert len(queue) == 0


def test_a_backoff_holds_a_message_until_its_time() -> None:
    queue = Redelivery()
    queue.add(1, 0, at=10.0)
    queue.wake(9.9)
    assert list(queue.take_due(10)) == []
    assert queue.next_time() == 10.0
    queue.wake(10.0)
    assert list(queue.take_due(10)) == [OffsetRun(1, 0, 1, 1)]


def test_different_attempts_are_different_runs() -> None:
    queue = Redelivery()
    queue.count(1, 0)
    queue.count(1, 0)
    queue.count(1, 1)
    queue.add(1, 0)
    queue.add(1, 1)
    assert list(queue.take_due(10)) == [OffsetRun(1, 0, 1, 3), OffsetRun(1, 1, 2, 2)]


def test_an_acknowledged_message_is_not_offered_again() -> None:
    queue = Redelivery()
    for offset in range(5):
        queue.add(1, offset)
    queue.forget_acked(1, encode_runs([(1, 3)]))
    assert list(queue.take_due(10)) == [OffsetRun(1, 0, 1, 1), OffsetRun(1, 4, 5, 1)]


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 20))), st.integers(1, 10))
def test_every_message_is_offered_exactly_once(added: list[tuple[int, int]], limit: int) -> None:
    queue = Redelivery()
    for source, offset in added:
        queue.add(source, offset)
    seen: list[tuple[int, int]] = []
    while runs := list(queue.take_due(limit)):
        assert sum(run.end - run.begin for run in runs) <= limit
        seen += [(run.source, offset) for run in runs for offset in range(run.begin, run.end)]
    assert seen == sorted(set(added))
