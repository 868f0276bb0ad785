"""Work in other processes: results, errors and ends come back."""

from __future__ import annotations

import asyncio
import os
from functools import partial

import pytest

from syncpoint.model.errors import InvalidArgument, Unavailable
from syncpoint.runtime.child_processes import MEMORY_BYTES, ChildProcesses
from syncpoint.schemas.publishing import check_definition


def test_work_is_done_by_another_process_which_may_end() -> None:
    async def run() -> None:
        children = ChildProcesses()
        try:
            child = await children(os.getpid)
            assert child != os.getpid()
            with pytest.raises(InvalidArgument, match="Invalid schema") as refused:
                await children(partial(check_definition, b"\x0a\x02\x10\x01"))
            assert refused.value.problem
            with pytest.raises(MemoryError):
                await children(partial(bytes, MEMORY_BYTES))
            with pytest.raises(Unavailable, match="Try again"):
                await children(partial(os._exit, 1))
            assert await children(os.getpid) not in (child, os.getpid())
        finally:
            children.close()

    asyncio.run(run())
