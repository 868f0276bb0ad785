"""A clock to delete by: what is too old is judged by more than one reading of one wall clock.

Place: one in every process that deletes for age or stamps what is deleted for age later; a machine, the clock is its
argument. Witnesses are this process's own monotonic clock, its own wall clock, a time that is known to have been
reached in an earlier life (the anchor), and the wall clocks of other hosts, as their processes report them.
Promise: `sure_ns` is a time that has surely been reached, as far as witnesses can say. One wrong clock never makes it
run ahead: with other hosts it is what the majority of hosts say has been reached, one by itself must have led in step
with the monotonic clock for as long as it leads, a day at most, before it is followed. So what is deleted by it is
deleted late rather than early. `time_ns`, for stamps, is the wall clock, but never before what is sure: a clock that
goes back makes nothing look older than it is.
Leaves to others: to report other hosts' clocks (`control.clocks`), to remember an anchor.
"""

from __future__ import annotations

from syncpoint.base.model.times import FRESH_S
from syncpoint.base.runtime.clock import Clock

STEP_NS = 10_000_000_000  # a wall clock that moves so far against the monotonic one has been set
PATIENCE_NS = 86_400_000_000_000
LOOK_NS = 50_000_000


class TrustedClock:
    """A clock that is safe to delete by, however the wall clock is set; also a `Clock` for stamps.

    `anchor_ns`: a time known to have been reached before, 0: none. `host`: the host of this process, "" while unknown,
    which leaves nobody as a witness.
    """

    __slots__ = ("_anchor", "_at", "_base", "_clock", "_high", "_observed", "_since", "_sure", "host")

    def __init__(self, clock: Clock, anchor_ns: int = 0, host: str = "") -> None:
        self._clock, self.host = clock, host
        wall, now = self._read()
        self._at = now  # of the last look
        self._base = wall - now  # what the wall clock must keep to, not to count as set
        self._since = now  # since when it has
        self._sure = wall
        self._high = 0  # for stamps: not lowered again by a wall clock that goes back
        self._anchor = 0
        # (host, process) -> its wall clock less our monotonic one, and when we read it.
        self._observed: dict[tuple[str, str], tuple[int, int]] = {}
        self.known(anchor_ns)

    def known(self, anchor_ns: int) -> None:
        """This time had been reached when this process began. To be reported before anything is deleted."""
        if anchor_ns > self._anchor:
            wall, now = self._read()
            self._anchor = anchor_ns
            self._high = max(self._high + now - self._at if self._high else 0, anchor_ns)
            self._sure, self._at = min(wall, anchor_ns), now

    def observe(self, host: str, process: str, wall_ns: int) -> None:
        """The wall clock of another process shows this now. Of all on one host the earliest counts, once."""
        now = _mono_ns(self._clock)
        self._observed[host, process] = wall_ns - now, now

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def time_ns(self) -> int:
        """For stamps: now, and never before what is sure."""
        wall, now = self._clock.time_ns(), round(self._clock.monotonic() * 1e9)  # as `_read`, at every message
        if now - self._at >= LOOK_NS:
            self._judge(wall, now)
        return max(wall, self._high + now - self._at) if self._high else wall

    def pause_s(self, seconds: float) -> float:
        return self._clock.pause_s(seconds)

    def sure_ns(self) -> int:
        """A time that has surely been reached."""
        if _mono_ns(self._clock) - self._at >= LOOK_NS:
            self._judge(*self._read())
        return self._sure

    def _read(self) -> tuple[int, int]:
        """The wall clock, then the monotonic one: a process that stands still between the two takes the wall clock for
        slower than it is, never for faster, which would put later stamps ahead of the time for as long as it runs.
        """
        return self._clock.time_ns(), _mono_ns(self._clock)

    def _judge(self, wall: int, now: int) -> None:
        passed = now - self._at
        hosts = self._hosts(wall, now)
        wall = hosts.pop(self.host)
        self._at = now
        self._sure += passed
        if self._high:
            self._high += passed
        if abs(wall - now - self._base) > STEP_NS:
            self._base, self._since = wall - now, now
        if hosts and self.host:  # until it is known where this process runs, the others may be on the same host
            self._agree(wall, now, list(hosts.values()))
        else:
            self._alone(wall, now)

    def _hosts(self, wall: int, now: int) -> dict[str, int]:
        """The earliest wall clock of each host, this one's among them."""
        hosts = {self.host: wall}
        for key, (offset, at) in list(self._observed.items()):
            if now - at >= FRESH_S * 1e9:
                del self._observed[key]
            else:
                hosts[key[0]] = min(hosts.get(key[0], offset + now), offset + now)
        return hosts

    def _agree(self, wall: int, now: int, others: list[int]) -> None:
        """What a majority of hosts say has been reached."""
        reached = sorted((wall, *others), reverse=True)
        agreed = reached[len(reached) // 2]
        self._sure = agreed
        # Two may disagree because one has gone back: only more of them can say that stamps were too late.
        self._high = agreed if len(reached) > 2 else max(self._high, agreed)
        if wall - agreed > STEP_NS:
            self._since = now  # contradicted: it begins anew when the others are not received any more

    def _alone(self, wall: int, now: int) -> None:
        self._sure = min(self._sure, wall)
        lead = wall - self._sure
        if lead and now - self._since >= min(lead, PATIENCE_NS):
            self._sure = wall
            self._high = max(self._high, wall)


def _mono_ns(clock: Clock) -> int:
    return round(clock.monotonic() * 1e9)
