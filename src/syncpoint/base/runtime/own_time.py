"""How long a coroutine runs itself, without what it waits for and without what others do in the meantime.

Place: around work of one process that limits its share of the event loop.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from time import perf_counter
from typing import Any, TypeVar

_Result = TypeVar("_Result")


@types.coroutine
def own_time(work: Coroutine[Any, Any, _Result], spent: Callable[[float], None]) -> Generator[Any, Any, _Result]:
    """Run `work` and return its result; `spent` gets the seconds of each of its steps on the event loop."""
    step: Callable[[Any], Any] = work.send
    value: Any = None
    while True:
        began = perf_counter()
        try:
            waited = step(value)
        except StopIteration as end:
            result: _Result = end.value
            return result
        finally:
            spent(perf_counter() - began)
        try:
            value, step = (yield waited), work.send
        except BaseException as error:  # a cancellation or a timeout, which is the work's to handle
            value, step = error, work.throw
