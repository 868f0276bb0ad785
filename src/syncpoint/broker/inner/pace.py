"""How many pushes of one subscription may be under way, and when none may.

Place: under `pusher`; a machine that is given every answer and the time.
Promise: a push window begins small, doubles with every round trip in which it was used and everything was acknowledged,
and grows by one a round trip above `window_linear`, where slow or failing endpoints bring it back to. A failure
halves it and pauses the subscription: 100 ms first, twice as long each time, up to 60 s; an acknowledgement halves the
next pause. Pushes that were under way when a pause began count as one failure, however many they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncpoint.base.runtime.random import Random

BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.1, 60.0
LATENCY_GOOD_S = 1.0  # a mean latency above it, or a share below the next, ends linear growth
ACKED_GOOD = 0.99
_WEIGHT = 0.05  # of one answer in both means


@dataclass(frozen=True, slots=True)
class PaceLimits:
    """The push window: where it begins, where it ceases to double, where it ends."""

    window_first: int = 4
    window_linear: int = 3_000
    window_max: int = 1_000


class Pace:
    """Limit concurrent pushes of one subscription, with pauses after failures.

    `pause_max_s`: the longest pause in seconds.
    """

    def __init__(self, limits: PaceLimits, random: Random, pause_max_s: float = BACKOFF_MAX_S) -> None:
        self.limits, self.pause_max_s = limits, pause_max_s
        self._random = random
        self._window = float(min(limits.window_first, limits.window_max))
        self._backoff_s = 0.0
        self._paused_at = self._resume_at = float("-inf")
        self._latency_s, self._acked = 0.0, 1.0  # means

    def __repr__(self) -> str:
        return f"<Pace window={self.window} backoff={self._backoff_s:g}s>"

    @property
    def window(self) -> int:
        """How many pushes may be under way."""
        return max(1, int(self._window))

    def set_window_max(self, window_max: int) -> None:
        """The share of this subscription changed."""
        limits = self.limits
        self.limits = PaceLimits(limits.window_first, limits.window_linear, max(1, window_max))
        self._window = min(self._window, float(self.limits.window_max))

    def paused_until(self, now: float) -> float | None:
        """When pushing goes on; None while it is not paused."""
        return self._resume_at if now < self._resume_at else None

    def on_acknowledged(self, latency_s: float, under_way: int) -> None:
        """The endpoint took a message. `under_way`: pushes there were before, this one included."""
        self._note(latency_s, 1.0)
        self._backoff_s = self._backoff_s / 2 if self._backoff_s > BACKOFF_FIRST_S else 0.0
        if 2 * under_way < self._window:
            return  # nobody knows whether it could take more
        linear = self.limits.window_linear
        if self._window < linear:
            grown = self._window + 1
        elif self._latency_s < LATENCY_GOOD_S and self._acked > ACKED_GOOD:
            grown = self._window + 1 / self._window
        else:
            grown = float(linear)
        self._window = min(grown, float(self.limits.window_max))

    def on_failed(self, latency_s: float, began: float, now: float) -> None:
        """The endpoint refused a message, or was silent until its deadline. `began`: when it was sent."""
        self._note(latency_s, 0.0)
        if began <= self._paused_at:
            return  # part of what began the last pause
        self._window = max(1.0, self._window / 2)
        self._backoff_s = min(BACKOFF_MAX_S, max(BACKOFF_FIRST_S, 2 * self._backoff_s))
        pause_s = max(BACKOFF_FIRST_S, self._backoff_s * (1 - self._random.random() / 2))
        self._paused_at, self._resume_at = now, now + min(pause_s, self.pause_max_s)

    def _note(self, latency_s: float, acked: float) -> None:
        self._latency_s += _WEIGHT * (latency_s - self._latency_s)
        self._acked += _WEIGHT * (acked - self._acked)
