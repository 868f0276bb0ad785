"""Work done apart, as other processes would do it, but at once; what was asked for is remembered."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any


class WorkingApart:
    """`apart`: who asked for work of other processes; `at_once`: for small work on the loop. `busy`: as in `Apart`."""

    def __init__(self) -> None:
        self.busy = False
        self.apart: list[str] = []
        self.at_once: list[str] = []
        self.in_threads: list[str] = []

    @contextlib.contextmanager
    def here(self, project: str) -> Iterator[None]:
        self.at_once.append(project)
        yield

    async def __call__(self, work: Callable[[], Any], project: str, /) -> Any:
        self.apart.append(project)
        try:
            return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(work))()))
        except Exception as error:
            raise pickle.loads(pickle.dumps(error)) from None

    async def in_thread(self, work: Callable[[], Any], project: str, /) -> Any:
        self.in_threads.append(project)
        return work()
