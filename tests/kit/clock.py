"""Tests in a time of their own: what waits for seconds takes none."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from syncpoint.runtime.clock import ManualClock
from syncpoint.testing.simulated_loop import run_simulated


def in_simulated_time(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine, on a loop whose time passes only when nothing else is left to do."""

    @wraps(work)
    def test(*arguments: Any, **named: Any) -> None:
        run_simulated(ManualClock(), work(*arguments, **named))

    return test
