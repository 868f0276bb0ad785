"""Limits on the bytes of publishes that are underway to the forwarders, and the order in which the others wait.

Place: in front of every publish, in the proxy. A spike waits here and leaves at the rate at which the forwarders
answer, taking turns by topic, so it costs its own publishers time and nobody else; what exceeds the room for waiting is
refused with RESOURCE_EXHAUSTED, which means "not stored". What must be transformed before, which may take long, waits
for that in a window of its own, taking turns by project, and only then for this one.
Promise: bytes underway stay below `window_bytes`, of one topic below `topic_window_bytes`, except that a request larger
than either goes alone; bytes underway and waiting stay below the flow limits of system and topic, and those that a
project has in front of its transforms below what is left to all others. Within a topic the order of arrival is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from syncpoint.base.model.errors import ResourceExhausted
from syncpoint.base.model.flow import FlowLimits

WINDOW_BYTES = 64 << 20
TOPIC_WINDOW_BYTES = 32 << 20
TRANSFORM_BYTES = 32 << 20
PROJECT_TRANSFORM_BYTES = 16 << 20


class _Line:
    """The bytes of one name."""

    __slots__ = ("bytes", "held", "waiting")

    def __init__(self) -> None:
        self.bytes = 0  # underway
        self.held = 0  # underway and waiting
        self.waiting: deque[tuple[int, Callable[[], None]]] = deque()


class TurnWindow:
    """Bytes underway, bounded together and for each name; the others wait, and names take turns."""

    def __init__(self, window_bytes: int, name_window_bytes: int) -> None:
        self.window, self.name_window = window_bytes, name_window_bytes
        self.underway = self.held = self.delayed = 0
        self._lines: dict[str, _Line] = {}
        self._turns: deque[str] = deque()  # names with somebody waiting

    def held_of(self, name: str) -> int:
        """Bytes underway and waiting."""
        line = self._lines.get(name)
        return 0 if line is None else line.held

    def enter(self, name: str, nbytes: int, go: Callable[[], None]) -> None:
        """`go` is called once, now or later, when the request may leave."""
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = _Line()
        line.held += nbytes
        self.held += nbytes
        if line.waiting or not self._fits(line, nbytes):
            self.delayed += 1
            if not line.waiting:
                self._turns.append(name)
            line.waiting.append((nbytes, go))
            return
        self._start(line, nbytes)
        go()

    def release(self, name: str, nbytes: int) -> None:
        """A request that was let go is over."""
        line = self._lines[name]
        line.bytes -= nbytes
        line.held -= nbytes
        self.underway -= nbytes
        self.held -= nbytes
        if not line.held:
            del self._lines[name]
        if self._turns:
            self._let_go()

    def _fits(self, line: _Line, nbytes: int) -> bool:
        return (not self.underway or self.underway + nbytes <= self.window) and (
            not line.bytes or line.bytes + nbytes <= self.name_window
        )

    def _start(self, line: _Line, nbytes: int) -> None:
        line.bytes += nbytes
        self.underway += nbytes

    def _let_go(self) -> None:
        """One request of each name at a time, as long as one fits."""
        passed = 0
        while passed < len(self._turns):
            name = self._turns.popleft()
            line = self._lines[name]
            nbytes, go = line.waiting[0]
            if self.underway and self.underway + nbytes > self.window:
                self._turns.appendleft(name)  # nobody overtakes it, however small
                return
            if not self._fits(line, nbytes):
                self._turns.append(name)
                passed += 1
                continue
            passed = 0
            line.waiting.popleft()
            if line.waiting:
                self._turns.append(name)
            self._start(line, nbytes)
            go()


class RateLimiter:
    """Counts, lets go, refuses. `held`: bytes that wait or are underway; `refused` counts requests. `sending`: to the
    forwarders, by topic; `transforming`: in front of that, by project."""

    def __init__(
        self, limits: FlowLimits, *, window_bytes: int = WINDOW_BYTES, topic_window_bytes: int = TOPIC_WINDOW_BYTES
    ) -> None:
        self.limits = limits
        self.sending = TurnWindow(window_bytes, topic_window_bytes)
        self.transforming = TurnWindow(TRANSFORM_BYTES, PROJECT_TRANSFORM_BYTES)
        self.refused = 0
        self._held: dict[str, int] = {}  # by topic

    @property
    def held(self) -> int:
        return self.sending.held + self.transforming.held

    def enter(self, topic: str, nbytes: int, go: Callable[[], None]) -> None:
        """`go` is called once, now or later, when the request may leave. Raises `ResourceExhausted`."""
        self._hold(topic, nbytes)
        self.sending.enter(topic, nbytes, go)

    def release(self, topic: str, nbytes: int) -> None:
        """A request that was let go is over."""
        self._give_up(topic, nbytes)
        self.sending.release(topic, nbytes)

    def enter_transforming(self, project: str, topic: str, nbytes: int, go: Callable[[], None]) -> None:
        """`go` is called once, now or later, when the request may be transformed. Raises `ResourceExhausted`."""
        mine = self.transforming.held_of(project)
        if mine and mine + nbytes > self.limits.system.bytes_max - self.held - nbytes:
            self._refuse(f"what is to be transformed for {project}", mine)
        self._hold(topic, nbytes)
        self.transforming.enter(project, nbytes, go)

    def leave_transforming(self, project: str, topic: str, nbytes: int) -> None:
        """A request that was let go there is transformed, or failed."""
        self._give_up(topic, nbytes)
        self.transforming.release(project, nbytes)

    def _hold(self, topic: str, nbytes: int) -> None:
        held, mine = self.held, self._held.get(topic, 0)
        if held and held + nbytes > self.limits.system.bytes_max:
            self._refuse("the system", held)
        if mine and mine + nbytes > self.limits.of_topic(topic).bytes_max:
            self._refuse(f"topic {topic}", mine)
        self._held[topic] = mine + nbytes

    def _give_up(self, topic: str, nbytes: int) -> None:
        left = self._held[topic] - nbytes
        if left:
            self._held[topic] = left
        else:
            del self._held[topic]

    def _refuse(self, scope: str, held: int) -> None:
        self.refused += 1
        raise ResourceExhausted(
            f"Flow control limit of {scope} reached: {held} bytes are being published. Retry with backoff."
        )
