"""Work in other processes: results, errors and ends come back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from syncpoint.base.model.errors import InvalidArgument, ResourceExhausted, Unavailable
from syncpoint.base.runtime.child_processes import MEMORY_BYTES, THREADS, TURN_S, ChildProcesses, worked
from syncpoint.catalog.schemas.publishing import check_definition
from syncpoint.testing.rigs.plain_tests import on_loop


@on_loop
async def test_work_is_done_by_another_process_which_may_end() -> None:
    children = ChildProcesses()
    try:
        child = await children(os.getpid, "")
        assert child != os.getpid()
        with pytest.raises(InvalidArgument, match="Invalid schema") as refused:
            await children(partial(check_definition, b"\x0a\x02\x10\x01"), "")
        assert refused.value.problem
        with pytest.raises(MemoryError):
            await children(partial(bytes, MEMORY_BYTES), "")
        with pytest.raises(Unavailable, match="Try again"):
            await children(partial(os._exit, 1), "")
        assert await children(os.getpid, "") not in (child, os.getpid())
    finally:
        children.close()


@on_loop
async def test_work_that_is_not_done_ends_at_the_end(*, tmp_path: Path) -> None:
    children, pipe = ChildProcesses(), tmp_path / "pipe"
    os.mkfifo(pipe)
    work = asyncio.ensure_future(children(partial(Path.read_bytes, pipe), ""))
    writer = await asyncio.to_thread(os.open, pipe, os.O_WRONLY)  # it reads, and waits for more
    children.close()
    with pytest.raises(Unavailable, match="Try again"):
        await work
    os.close(writer)


PARENT = """
import asyncio, os, time
from functools import partial
from syncpoint.base.runtime.child_processes import ChildProcesses

async def run():
    children = ChildProcesses()
    print(await children(os.getpid, ""), flush=True)
    await children(partial(time.sleep, 60), "")

if __name__ == "__main__":
    asyncio.run(run())
"""


def test_children_end_at_work_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    end = time.monotonic() + 20
    while alive(child):
        assert time.monotonic() < end, "it lives on"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Ledger:
    """An account: who has been charged what; projects of `behind` are refused."""

    def __init__(self) -> None:
        self.charged: dict[str, float] = {}
        self.behind: set[str] = set()

    def check(self, project: str) -> None:
        if project in self.behind:
            raise ResourceExhausted("later")

    def charge(self, project: str, seconds: float) -> None:
        self.charged[project] = self.charged.get(project, 0.0) + seconds


def spin(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@on_loop
async def test_work_is_charged_to_its_project_wherever_it_is_done() -> None:
    children = ChildProcesses()
    ledger = children.account = Ledger()
    try:
        await children(partial(spin, 0.05), "projects/a")
        assert ledger.charged["projects/a"] >= 0.05
        with children.here("projects/b"):
            spin(TURN_S)
        assert ledger.charged["projects/b"] >= TURN_S
        assert children.busy, "this turn of the loop has had its share"
        await asyncio.sleep(0)
        assert not children.busy
        ledger.behind.add("projects/a")
        with pytest.raises(ResourceExhausted):
            await children(os.getpid, "projects/a")
        with pytest.raises(ResourceExhausted), children.here("projects/a"):
            raise AssertionError("never begun")
        await children(os.getpid, "projects/b")
    finally:
        children.close()


@on_loop
async def test_work_in_a_thread_is_charged_and_leaves_a_place_to_others() -> None:
    children = ChildProcesses()
    ledger = children.account = Ledger()
    assert await children.in_thread(os.getpid, "projects/a") == os.getpid()
    with pytest.raises(ValueError, match="no number"):
        await children.in_thread(partial(_fail_after, 0.05), "projects/a")
    assert ledger.charged["projects/a"] >= 0.05
    begun, go = [threading.Event() for _ in range(THREADS)], threading.Event()
    works = [asyncio.ensure_future(children.in_thread(partial(_wait, one, go), "projects/a")) for one in begun]
    for one in begun[:-1]:
        await asyncio.to_thread(one.wait)
    for work in works:
        work.cancel()
    assert await children.in_thread(os.getpid, "projects/b") == os.getpid()
    assert not any(work.done() for work in works[:-1]), "its thread is not free before it has ended"
    go.set()
    await asyncio.wait(works)
    assert all(work.cancelled() for work in works)
    assert not begun[-1].is_set()
    ledger.behind.add("projects/a")
    with pytest.raises(ResourceExhausted):
        await children.in_thread(os.getpid, "projects/a")


@on_loop
async def test_small_work_waits_for_a_later_turn_rather_than_for_a_process() -> None:
    children = ChildProcesses()
    try:
        with children.here(""):
            spin(TURN_S)
        works = [worked(children, f"projects/{one}", partial(spin, TURN_S / 2), large=False) for one in "abcd"]
        pids = await asyncio.gather(*works, worked(children, "projects/e", os.getpid, large=False))
        assert pids[-1] == os.getpid()
        assert await worked(children, "projects/e", os.getpid, large=True) != os.getpid()
    finally:
        children.close()


def _wait(begun: threading.Event, go: threading.Event) -> None:
    begun.set()
    go.wait()


def _fail_after(seconds: float) -> None:
    spin(seconds)
    raise ValueError("no number")


@on_loop
async def test_who_gives_up_keeps_its_turn_until_the_process_is_free(*, tmp_path: Path) -> None:
    children = ChildProcesses()
    pipes = [tmp_path / name for name in "abc"]
    try:
        for pipe in pipes:
            os.mkfifo(pipe)
        works = [asyncio.ensure_future(children(partial(Path.read_bytes, pipe), "projects/a")) for pipe in pipes]
        writers = [await asyncio.to_thread(os.open, pipe, os.O_WRONLY) for pipe in pipes[:2]]  # both are at work
        for work in works[:2]:
            work.cancel()
        assert await children(os.getpid, "projects/b"), "a place is left to others"
        assert not any(work.done() for work in works), "the third has not begun, though two gave up"
        for writer in writers:
            os.close(writer)
        os.close(await asyncio.to_thread(os.open, pipes[2], os.O_WRONLY))
        assert await works[2] == b""
        await asyncio.wait(works)
        assert all(work.cancelled() for work in works[:2])
    finally:
        children.close()
