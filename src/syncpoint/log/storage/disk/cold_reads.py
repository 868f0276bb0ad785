"""Cold reads of one disk: when the next piece of old data is read, and how large it is, so that commits hardly notice.

Place: driven by `paced_files`, which has the threads; notified of commits by `disk_writer`, and in a storage process of
the syncs of all its chains.
Promise: a commit waits for one piece at most, and a piece takes a fifth of a quiet commit, or as little as this disk
can do; while a commit is under way none begins, unless reads are owed their least share of the disk's time. That is
theirs however much is written. Nobody is held back where nothing is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median

PIECE_MIN = 16 * 1024
PIECE_SIZES = 7  # each twice the one before: up to 1 MiB
SHARE_MIN = 0.1  # of the disk's time, for reads, whatever is written
CALM_MAX = 1.2  # commits beside reads may take up to this multiple of a quiet one
SLACK_S = 0.0002  # and this much longer: less is nothing to a publisher
PIECE_S = 0.00025  # a piece that takes no longer need not get smaller
IDLE_PIECE_S = 0.005  # the same while nothing is written: the first commit may wait for one
IDLE_S = 1.0  # without a commit: nobody has to be considered
LISTEN_EVERY_S = 2.0  # without a quiet commit among others: what they take without reads is listened for
LISTEN_S = 0.2
CALM_S = 0.005  # after a read some devices are slower for a while: a commit is quiet later
_ROUND = 16  # commits after which the share changes
_CUT, _GROW = 0.8, 0.1
_SAMPLES = 3  # quiet commits that listening is for
_HELD = 33  # quiet commits remembered
_PROBE_EVERY = 512  # pieces after which another size is tried again
_FLAT = 1.5  # pieces that take only this much longer than the smallest cost mostly what any call does


class ColdReads:
    """The reads of one disk, all of them, one piece at a time. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.share = 1.0  # of the disk's time that reads may take at present
        self.bytes = 0
        self._size = 3  # number of the size that pieces have
        self._times: list[float | None] = [None] * PIECE_SIZES  # seconds that a piece of each size takes
        self._tried = [0] * PIECE_SIZES  # at which piece that was last seen
        self._pieces = 0
        self._byte_s: float | None = None  # what a byte takes where no commit is in the way
        self._began: float | None = None  # the piece under way
        self._ended = float("-inf")  # the last one
        self._beside = False  # a commit was under way beside it
        self._free_at = self._owed_at = float("-inf")
        self._quiet: deque[float] = deque(maxlen=_HELD)  # seconds of commits with no piece near them
        self._round: list[float] = []
        self._committed = self._quiet_at = float("-inf")  # the last commit; the last quiet one
        self._listen_until = float("-inf")
        self._wanted = 0

    @property
    def quiet_s(self) -> float | None:
        """What a commit takes while nothing is read."""
        return median(self._quiet) if self._quiet else None

    def watches(self, now: float) -> bool:
        """Whether commits are of interest: something is or was just being read."""
        return self._began is not None or now - self._ended < IDLE_S

    def wait(self, now: float, *, commits: bool) -> float:
        """Seconds until the next piece may begin, 0 for at once. `commits`: whether one is under way; when it ends is
        a reason to ask again.
        """
        if now < self._listen_until:
            return self._listen_until - now
        if now >= self._owed_at:
            return 0.0
        if now < self._free_at:
            return self._free_at - now
        return self._owed_at - now if commits else 0.0

    def begin(self, now: float, *, commits: bool) -> int:
        """A piece begins; returns how many bytes it may have."""
        self._began, self._beside = now, commits
        limit = IDLE_PIECE_S
        if now - self._committed < IDLE_S:
            limit = max(PIECE_S, (CALM_MAX - 1) * (self.quiet_s or 0.0))
        if self._pieces - self._tried[0] > _PROBE_EVERY:
            self._size = 0
        else:
            known = [one for one in self._times if one is not None]
            least = 0.0 if self._times[0] is None else min(known)
            self._size = self._fitting(max(limit, _FLAT * least))
        return PIECE_MIN << self._size

    def _fitting(self, limit: float) -> int:
        size = self._size
        while size and (self._times[size] or 0.0) > limit:
            size -= 1
        if size == self._size and size + 1 < PIECE_SIZES and self._times[size] is not None:
            larger = self._times[size + 1]
            if larger is None or larger <= limit or self._pieces - self._tried[size + 1] > _PROBE_EVERY:
                size += 1
        return size

    def end(self, now: float, size: int) -> None:
        """The piece has been read."""
        assert self._began is not None
        took = max(0.0, now - self._began)
        cost = took
        self._pieces += 1
        self.bytes += size
        if self._beside or self._committed > self._began:
            if self._byte_s is not None:
                cost = min(took, size * self._byte_s)  # the rest of the time was the commit's
        elif size:
            self._byte_s = _nearer(self._byte_s, took / size)
            if size == PIECE_MIN << self._size:
                self._times[self._size] = _nearer(self._times[self._size], took)
                self._tried[self._size] = self._pieces
        self._began, self._ended = None, now
        share = self.share if now - self._committed < IDLE_S else 1.0
        self._free_at = now + cost * (1 / share - 1)
        self._owed_at = now + cost * (1 / SHARE_MIN - 1)

    def committed(self, now: float, took: float) -> None:
        """A commit has ended; it took `took` seconds."""
        self._committed = now
        if self._began is None and self._ended <= now - took - CALM_S:
            self._quiet.append(took)
            self._quiet_at, self._wanted = now, self._wanted - 1
            if self._wanted <= 0:
                self._listen_until = float("-inf")
        elif now - max(self._quiet_at, self._listen_until) > LISTEN_EVERY_S:
            self._listen_until, self._wanted = now + LISTEN_S, _SAMPLES
        self._round.append(took)
        if len(self._round) < _ROUND:
            return
        if self._quiet:
            usual = max(CALM_MAX * _reached_by(self._quiet, 0.6), _reached_by(self._quiet, 0.8))
            slowed = _reached_by(self._round, 0.6) > usual + SLACK_S
            self.share = max(SHARE_MIN, self.share * _CUT) if slowed else min(1.0, self.share + _GROW)
        self._round.clear()


def _reached_by(values: Iterable[float], share: float) -> float:
    """What this share of them do not exceed."""
    ordered = sorted(values)
    return ordered[int(share * len(ordered))]


def _nearer(known: float | None, seen: float) -> float:
    """Follow what is seen: sooner where it is more."""
    if known is None:
        return seen
    return known + (seen - known) * (0.3 if seen > known else 0.1)
