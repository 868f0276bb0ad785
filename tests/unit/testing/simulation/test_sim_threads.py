"""Threads that take turns: they stop and go on in simulated time, die with their process, hang with it."""

import asyncio
from collections import Counter
from typing import Any

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.testing.simulation.loop import ProcessLoop, SimProcess, run_in_loop
from syncpoint.testing.simulation.sim_threads import SimLock, SimThreads, in_sim_thread, pause


def sim(work: Any) -> list[str]:
    reported: list[str] = []
    clock = ManualClock(monotonic=0.0)

    async def run(loop: ProcessLoop) -> None:
        sim_threads = SimThreads(loop)
        await work(loop, sim_threads, reported)
        sim_threads.close()

    run_in_loop(clock, run)
    return reported


def test_two_threads_share_the_time() -> None:
    async def work(loop: ProcessLoop, sim_threads: SimThreads, reported: list[str]) -> None:
        process = SimProcess(loop, "p")

        def job(name: str, seconds: float) -> str:
            for turn in range(3):
                reported.append(f"{name}{turn} at {loop.time():.1f}")
                pause(seconds)
            return name

        for name, seconds in (("a", 1.0), ("b", 1.4)):
            sim_threads.run(
                process, lambda name=name, seconds=seconds: job(name, seconds), lambda r, e: reported.append(r)
            )
        await asyncio.sleep(10)

    assert sim(work) == [
        "a0 at 0.0", "b0 at 0.0", "a1 at 1.0", "b1 at 1.4", "a2 at 2.0", "b2 at 2.8", "a", "b",
    ]  # fmt: skip


def test_the_end_of_a_process_is_the_end_of_its_threads() -> None:
    async def work(loop: ProcessLoop, sim_threads: SimThreads, reported: list[str]) -> None:
        process = SimProcess(loop, "p")

        def job() -> None:
            reported.append("begun")
            try:
                pause(1)
            finally:
                reported.append("unwound")
            reported.append("never")

        sim_threads.run(process, job, lambda r, e: reported.append("done"))
        await asyncio.sleep(0.5)
        process.crash()
        await asyncio.sleep(5)

    assert sim(work) == ["begun", "unwound"]


def test_a_thread_hangs_with_its_process() -> None:
    async def work(loop: ProcessLoop, sim_threads: SimThreads, reported: list[str]) -> None:
        process = SimProcess(loop, "p")

        def job() -> None:
            pause(1)
            reported.append(f"on at {loop.time():.0f}")

        sim_threads.run(process, job, lambda r, e: None)
        process.hang()
        await asyncio.sleep(7)
        process.go_on()
        await asyncio.sleep(1)

    assert sim(work) == ["on at 7"]


def test_a_lock_makes_threads_wait() -> None:
    async def work(loop: ProcessLoop, sim_threads: SimThreads, reported: list[str]) -> None:
        process = SimProcess(loop, "p")
        held: Counter[str] = Counter()
        lock = SimLock(held, "disk")

        def job(name: str) -> None:
            with lock, lock:
                reported.append(f"{name} in")
                pause(1)
                reported.append(f"{name} out")

        for name in "ab":
            sim_threads.run(process, lambda name=name: job(name), lambda r, e: None)
        assert held["disk"]
        await asyncio.sleep(5)
        assert not held["disk"]

    assert sim(work) == ["a in", "a out", "b in", "b out"]


def test_errors_come_to_whoever_waits() -> None:
    async def work(loop: ProcessLoop, sim_threads: SimThreads, reported: list[str]) -> None:
        def job() -> None:
            assert in_sim_thread()
            raise OSError(5, "no")

        sim_threads.run(SimProcess(loop, "p"), job, lambda r, e: reported.append(repr(e)))

    assert sim(work) == ["OSError(5, 'no')"]
    assert not in_sim_thread()
