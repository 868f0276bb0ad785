"""Pauses between attempts that fail."""

from __future__ import annotations

from syncpoint.base.runtime.backoff import Backoff


def test_pauses_grow_to_the_longest_and_begin_anew_after_a_success() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.failed() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.succeeded()
    assert (backoff.pause_s, backoff.failed(), backoff.pause_s) == (0.5, 0.5, 1.0)


def test_chance_takes_half_of_a_pause_at_most_and_does_not_hold_back_the_next() -> None:
    backoff = Backoff(1.0, 8.0, 4.0)
    assert [backoff.failed(lambda: 0.5), backoff.failed(lambda: 0.0), backoff.failed(lambda: 1.0)] == [0.75, 4.0, 4.0]
