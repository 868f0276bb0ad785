"""Pauses between attempts at something that fails: each longer than the one before, until one succeeds.

Place: held by drivers that try again by themselves; when it is, and chance, are their own.
"""

from __future__ import annotations

from collections.abc import Callable


class Backoff:
    """From `first_s` on, `factor` times as long after each failure, `most_s` at most. `pause_s`: the next one."""

    __slots__ = ("factor", "first_s", "most_s", "pause_s")

    def __init__(self, first_s: float, most_s: float, factor: float = 2.0) -> None:
        self.first_s, self.most_s, self.factor = first_s, most_s, factor
        self.pause_s = first_s

    def failed(self, chance: Callable[[], float] | None = None) -> float:
        """The pause after one more failure; with `chance`, half of it or more, so that many do not return in step."""
        pause_s, self.pause_s = self.pause_s, min(self.most_s, self.factor * self.pause_s)
        return pause_s * (1 - chance() / 2) if chance is not None else pause_s

    def succeeded(self) -> None:
        """What comes next begins with the shortest pause."""
        self.pause_s = self.first_s
