"""Calls made together: every outcome in its place, whatever fails, with threads and without."""

from __future__ import annotations

import threading

import pytest

from syncpoint.base.runtime.step_workers import ManualWorkers, ThreadWorkers


@pytest.mark.parametrize("workers", [ThreadWorkers(), ManualWorkers()], ids=["threads", "one by one"])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_outcomes_are_in_the_order_of_the_calls(workers: ThreadWorkers | ManualWorkers, count: int) -> None:
    def call(number: int) -> int:
        if number % 3 == 1:
            raise OSError(number, "not this one")
        return number * 10

    found = workers.together([lambda number=number: call(number) for number in range(count)])  # type: ignore[misc]
    assert [one.errno if isinstance(one, OSError) else one for one in found] == [
        number if number % 3 == 1 else number * 10 for number in range(count)
    ]


def test_threads_make_the_calls_at_once() -> None:
    together = threading.Barrier(5, timeout=30)
    assert sorted(ThreadWorkers().together([together.wait] * 5)) == [0, 1, 2, 3, 4]  # type: ignore[type-var]
