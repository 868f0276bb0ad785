"""Limits on the bytes of publishes that are underway to the forwarders, and the order in which the others wait.

Place: in front of every publish, in the proxy. A spike waits here and leaves at the rate at which the forwarders
answer, taking turns by topic, so it costs its own publishers time and nobody else; what exceeds the room for waiting is
refused with RESOURCE_EXHAUSTED, which means "not stored".
Promise: bytes underway stay below `window_bytes`, of one topic below `topic_window_bytes`, except that a request larger
than either goes alone; bytes underway and waiting stay below the flow limits of system and topic. Within a topic the
order of arrival is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from syncpoint.model.errors import ResourceExhausted
from syncpoint.model.flow import FlowLimits

WINDOW_BYTES = 64 << 20
TOPIC_WINDOW_BYTES = 32 << 20


class _TopicLoad:
    """One topic's bytes."""

    __slots__ = ("bytes", "held", "waiting")

    def __init__(self) -> None:
        self.bytes = 0  # underway
        self.held = 0  # underway and waiting
        self.waiting: deque[tuple[int, Callable[[], None]]] = deque()


class RateLimiter:
    """Counts, lets go, refuses. `underway` and `held` are bytes; `refused` counts requests."""

    def __init__(
        self, limits: FlowLimits, *, window_bytes: int = WINDOW_BYTES, topic_window_bytes: int = TOPIC_WINDOW_BYTES
    ) -> None:
        self.limits, self.window, self.topic_window = limits, window_bytes, topic_window_bytes
        self.underway = self.held = self.refused = self.delayed = 0
        self._topics: dict[str, _TopicLoad] = {}
        self._turns: deque[str] = deque()  # topics with somebody waiting

    def enter(self, topic: str, nbytes: int, go: Callable[[], None]) -> None:
        """`go` is called once, now or later, when the request may leave. Raises `ResourceExhausted`."""
        load = self._topics.get(topic)
        mine = 0 if load is None else load.held
        self._check(topic, mine, nbytes)
        if load is None:
            load = self._topics[topic] = _TopicLoad()
        load.held += nbytes
        self.held += nbytes
        if load.waiting or not self._fits(load, nbytes):
            self.delayed += 1
            if not load.waiting:
                self._turns.append(topic)
            load.waiting.append((nbytes, go))
            return
        self._start(load, nbytes)
        go()

    def release(self, topic: str, nbytes: int) -> None:
        """A request that was let go is over."""
        load = self._topics[topic]
        load.bytes -= nbytes
        load.held -= nbytes
        self.underway -= nbytes
        self.held -= nbytes
        if not load.held:
            del self._topics[topic]
        if self._turns:
            self._let_go()

    def _check(self, topic: str, mine: int, nbytes: int) -> None:
        if self.held and self.held + nbytes > self.limits.system.bytes_max:
            self._refuse("the system", self.held)
        if mine and mine + nbytes > self.limits.of_topic(topic).bytes_max:
            self._refuse(f"topic {topic}", mine)

    def _refuse(self, scope: str, held: int) -> None:
        self.refused += 1
        raise ResourceExhausted(f"Flow control of {scope}: {held} bytes are on their way; retry later.")

    def _fits(self, load: _TopicLoad, nbytes: int) -> bool:
        return (not self.underway or self.underway + nbytes <= self.window) and (
            not load.bytes or load.bytes + nbytes <= self.topic_window
        )

    def _start(self, load: _TopicLoad, nbytes: int) -> None:
        load.bytes += nbytes
        self.underway += nbytes

    def _let_go(self) -> None:
        """One request of each topic at a time, as long as one fits."""
        passed = 0
        while passed < len(self._turns):
            topic = self._turns.popleft()
            load = self._topics[topic]
            nbytes, go = load.waiting[0]
            if self.underway and self.underway + nbytes > self.window:
                self._turns.appendleft(topic)  # nobody overtakes it, however small
                return
            if not self._fits(load, nbytes):
                self._turns.append(topic)
                passed += 1
                continue
            passed = 0
            load.waiting.popleft()
            if load.waiting:
                self._turns.append(topic)
            self._start(load, nbytes)
            go()
