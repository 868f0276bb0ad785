"""Which of several places a message is sent to, and when to the next one, so that it is stored before its deadline.

Place: the decisions of `edge_publisher`; pure, the time comes in. `PlaceHealth` is shared by all messages of a
publisher, `EdgeRoute` is about one of them.
Promise: a message goes to the most preferred place that has not failed lately; to the next one as soon as a place
refuses or has not answered for `patience_s`; round again until the deadline. A place that failed rests, for longer each
time up to REST_MAX_S, and is then tried by one message. Where all rest, all are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from syncpoint.base.model.errors import Code
from syncpoint.client.client_options import PASSING

REST_FIRST_S: Final = 1.0
REST_MAX_S: Final = 30.0
PAUSE_S: Final = 0.2  # between two rounds of refusals


class PlaceHealth:
    """Which places answer, by what messages met there. `names`: most preferred first."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._rests: dict[str, tuple[float, float]] = {}  # until when, and how long that was

    def order(self, now_s: float) -> list[str]:
        """All places, the one to try first in front. One whose rest is over is tried by the asking message alone."""
        ready = [name for name in self._names if self._rests.get(name, (0.0, 0.0))[0] <= now_s]
        resting = sorted((name for name in self._names if name not in ready), key=lambda name: self._rests[name][0])
        return [*ready, *resting]

    def tried(self, name: str, now_s: float) -> None:
        """A message was sent there: until it is known what became of it, a place that had failed rests on."""
        if name in self._rests:
            _, rest_s = self._rests[name]
            self._rests[name] = (now_s + rest_s, rest_s)

    def failed(self, name: str, now_s: float) -> None:
        """Note that a place refused or timed out; it rests for twice the previous pause."""
        last_s = self._rests.get(name, (0.0, 0.0))[1]
        rest_s = min(max(REST_FIRST_S, 2 * last_s), REST_MAX_S)
        self._rests[name] = (now_s + rest_s, rest_s)

    def answered(self, name: str) -> None:
        """Note that a place stored a message, which ends its rest."""
        self._rests.pop(name, None)


class EdgeRoute:
    """One message's way. The caller sends to `sends`, reports what comes of it, and asks again at `wake_s`."""

    def __init__(self, health: PlaceHealth, now_s: float, end_s: float, patience_s: float) -> None:
        """`end_s`: the deadline, on the same clock as `now_s`."""
        self._health, self._end_s, self._patience_s = health, end_s, patience_s
        self._under_way: dict[str, float] = {}  # since when
        self._late: set[str] = set()  # of these: were given up hope on
        self._round: set[str] = set()  # were tried since the last pause
        self._pause_end_s = now_s
        self._in_doubt: set[str] = set()
        self._lasting: set[str] = set()
        self.wake_s = now_s

    @property
    def in_doubt(self) -> list[str]:
        """Places that may have stored the message without having confirmed it."""
        return sorted({*self._under_way, *self._in_doubt})

    def sends(self, now_s: float) -> list[str]:
        """Where the message is to be sent now; sets `wake_s`."""
        for name, since_s in self._under_way.items():
            if name not in self._late and now_s >= since_s + self._patience_s:
                self._late.add(name)
                self._health.failed(name, now_s)
        found = []
        waiting = len(self._under_way) > len(self._late)
        if not waiting and self._pause_end_s <= now_s < self._end_s:
            free = next((one for one in self._health.order(now_s) if one not in self._round), None)
            if free is not None:
                self._round.add(free)
                self._health.tried(free, now_s)
                self._under_way[free] = now_s
                found.append(free)
            elif not self._under_way:
                self._round.clear()
                self._pause_end_s = now_s + PAUSE_S
            else:  # what is late may be sent again only where nothing is under way
                self._round = set(self._under_way)
                self._pause_end_s = now_s + PAUSE_S
        hopes = [since_s + self._patience_s for name, since_s in self._under_way.items() if name not in self._late]
        self.wake_s = min([self._end_s, *hopes, *([self._pause_end_s] if self._pause_end_s > now_s else [])])
        return found

    def answered(self, name: str) -> None:
        """This place has stored it."""
        self._under_way.pop(name, None)
        self._late.discard(name)
        self._health.answered(name)

    def refused(self, name: str, code: Code, now_s: float, *, in_doubt: bool) -> bool:
        """This place has not; `in_doubt`: as far as is known. Returns False when no place will store it: it is wrong in
        itself, or all have refused it for good.
        """
        self._under_way.pop(name, None)
        if in_doubt:
            self._in_doubt.add(name)
        if code is Code.INVALID_ARGUMENT:
            return False
        if code not in PASSING:
            self._lasting.add(name)
        if name not in self._late:
            self._health.failed(name, now_s)
        self._late.discard(name)
        return bool(self.in_doubt) or not self._lasting.issuperset(self._health.order(now_s))
