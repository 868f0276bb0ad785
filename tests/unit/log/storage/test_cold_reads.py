"""Cold reads beside commits, on a simulated disk that does one thing after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median, quantiles

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.log.storage.disk.cold_reads import IDLE_PIECE_S, LISTEN_S, PIECE_MIN, SHARE_MIN, ColdReads

pytestmark = pytest.mark.shows("laggards")
BYTES_S = 50e6


@dataclass
class Disk:
    """A disk, one writer, and reading without end. `commit_s`: what the next commit takes of the disk's time."""

    machine: ColdReads = field(default_factory=ColdReads)
    bytes_s: float = BYTES_S
    call_s: float = 0.00003  # of each read, however small
    commit_s: Callable[[float], float] = lambda now: 0.001
    now: float = 0.0
    got: int = 0
    read_s: float = 0.0  # the disk's time that went into reads
    longest_wait: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def run(self, until: float, arrivals: Iterable[float] = (), *, reading: bool = True) -> None:
        waiting, m = deque(arrivals), self.machine
        free_at, size, asked = self.now, 0, self.now
        piece_end = commit_end = None
        began = arrived = 0.0
        while self.now < until:
            if piece_end is not None and piece_end <= self.now:
                m.end(self.now, size)
                self.got += size
                piece_end, asked = None, self.now
            if commit_end is not None and commit_end <= self.now:
                m.committed(self.now, self.now - began)
                self.latencies.append(self.now - arrived)
                commit_end = None
            if commit_end is None and waiting and waiting[0] <= self.now:
                arrived, began = waiting.popleft(), self.now
                free_at = commit_end = max(free_at, self.now) + self.commit_s(self.now)
            wait = None
            if reading and piece_end is None:
                wait = m.wait(self.now, commits=commit_end is not None)
                if wait <= 0:
                    self.longest_wait = max(self.longest_wait, self.now - asked)
                    size = m.begin(self.now, commits=commit_end is not None)
                    cost = self.call_s + size / self.bytes_s
                    self.read_s += cost
                    free_at = piece_end = max(free_at, self.now) + cost
                    wait = None
            soon = [piece_end, commit_end, waiting[0] if waiting and commit_end is None else None]
            soon.append(None if wait is None else self.now + wait)
            self.now = max(self.now, min((one for one in soon if one is not None), default=until))


def every(interval: float, until: float, begin: float = 0.0) -> list[float]:
    return [begin + number * interval for number in range(int((until - begin) / interval))]


def test_a_commit_beside_readers_takes_what_it_takes_alone() -> None:
    alone, beside = Disk(), Disk()
    alone.run(10, every(0.0053, 10), reading=False)
    beside.run(10, every(0.0053, 10))
    assert median(beside.latencies) < 1.2 * median(alone.latencies)
    piece = PIECE_MIN / BYTES_S + beside.call_s
    assert quantiles(beside.latencies, n=100)[-1] < quantiles(alone.latencies, n=100)[-1] + 1.1 * piece
    left = 10 - sum(alone.latencies)
    assert beside.got > 0.7 * left * BYTES_S, "the rest of the disk is theirs"


def test_slow_commits_leave_room_for_larger_pieces() -> None:
    disk = Disk(commit_s=lambda now: 0.02)
    disk.run(15, every(0.1, 15))
    assert disk.machine.begin(disk.now, commits=False) >= 4 * PIECE_MIN
    assert median(disk.latencies) < 1.2 * 0.02


def test_reads_get_their_least_share_while_commits_never_end() -> None:
    disk = Disk()
    disk.run(10, every(0.0005, 40))  # twice as many as the disk can do
    assert disk.read_s > 0.8 * SHARE_MIN * 10
    assert disk.read_s < 2 * SHARE_MIN * 10, "and no more than that while others want the disk"
    assert disk.longest_wait < LISTEN_S + 0.05


def test_reads_that_slow_commits_down_all_the_same_are_cut_and_come_back() -> None:
    disk = Disk()
    disturbed = True

    def commit_s(now: float) -> float:
        """A device that is slower for a while after each read."""
        return 0.001 * (4 if disturbed and now - disk.machine._ended < 0.0003 else 1)

    disk.commit_s = commit_s
    disk.run(10, every(0.0053, 10))
    assert disk.machine.share < 0.6
    before, disk.read_s = disk.machine.share, 0.0
    disk.latencies.clear()
    disk.run(20, every(0.0053, 20, 10))
    assert disk.read_s < 10 * max(0.6, before) + 0.1, "they take no more than their share"
    assert median(disk.latencies) < 1.4 * 0.001
    disturbed = False
    disk.run(35, every(0.0053, 35, 20))
    assert disk.machine.share == 1.0


def test_nobody_is_held_back_where_nothing_is_written() -> None:
    disk = Disk()
    disk.run(5)
    assert disk.longest_wait == 0
    assert disk.got > 0.95 * 5 * BYTES_S
    assert IDLE_PIECE_S / 4 < disk.machine.begin(5, commits=False) / BYTES_S <= 2 * IDLE_PIECE_S


def test_pieces_are_not_cut_where_that_saves_no_time() -> None:
    far = Disk(call_s=0.0006, bytes_s=2e9)  # a disk behind a network: each call costs the same
    far.run(10, every(0.0053, 10))
    assert far.got / 10 > 100e6
    assert far.machine.begin(10, commits=False) > 4 * PIECE_MIN


def test_what_comes_from_memory_is_not_held_up() -> None:
    disk = Disk(bytes_s=5e9, call_s=0.00001)
    disk.run(5, every(0.0053, 5))
    assert disk.got / 5 > 1e9


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0001, 0.05), st.floats(0.0001, 0.02)), min_size=1, max_size=150),
    st.floats(1e6, 2e9),
    st.floats(0.00001, 0.005),
)
def test_whatever_is_written_readers_wait_for_bounded_times(
    commits: list[tuple[float, float]], bytes_s: float, call_s: float
) -> None:
    times = iter([took for _, took in commits] * 2)
    disk = Disk(bytes_s=bytes_s, call_s=call_s, commit_s=lambda now: next(times))
    arrivals, at = [], 0.0
    for gap, _ in commits:
        at += gap
        arrivals.append(at)
    disk.run(at + 1, arrivals)
    piece = call_s + (PIECE_MIN << 6) / bytes_s
    assert disk.longest_wait <= (piece + 0.02) * (1 / SHARE_MIN - 1) + LISTEN_S
    assert SHARE_MIN <= disk.machine.share <= 1
    assert disk.got > 0
