"""A link between subscribe and publish forwarders that delays and drops.

In one process the two rooms call each other; between machines a network lies between them. This wrapper behaves as
that network may: a request never arrives, or its answer is lost (then the outcome is unknown: UNAVAILABLE), or
everything comes late and out of step with other calls. Seeded, and driven by `run`, so that a failing run can be
repeated.
"""

import heapq
from collections.abc import Callable, Sequence
from itertools import count

from syncpoint.base.model.delivery import AttemptRun, Batch, Done, Listener, PublishSide, Reply
from syncpoint.base.model.errors import Unavailable
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import Random


class LossyLink:
    """A `PublishSide` behind a bad network. `loss` and `delay_s` may be changed while it runs."""

    def __init__(self, inner: PublishSide, clock: ManualClock, random: Random, *, loss: float, delay_s: float) -> None:
        self.inner, self.clock, self.random = inner, clock, random
        self.loss, self.delay_s = loss, delay_s
        self.lost = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def _later(self, action: Callable[[], None]) -> None:
        at = self.clock.monotonic() + self.random.random() * self.delay_s
        heapq.heappush(self._queue, (at, next(self._order), action))

    def _drops(self) -> bool:
        dropped = self.random.random() < self.loss
        self.lost += dropped
        return dropped

    def run(self) -> None:
        """Do everything that is due by the clock."""
        while self._queue and self._queue[0][0] <= self.clock.monotonic():
            heapq.heappop(self._queue)[2]()

    def attach(self, subscription: int, listener: Listener) -> None:
        self.inner.attach(subscription, listener)

    def detach(self, subscription: int) -> None:
        self.inner.detach(subscription)

    def set_demand(self, subscription: int, wanted: bool) -> None:
        self.inner.set_demand(subscription, wanted)

    def note_attempts(self, subscription: int, generation: int, source: int, runs: Sequence[AttemptRun]) -> None:
        if not self._drops():
            self._later(lambda: self.inner.note_attempts(subscription, generation, source, runs))

    def generation(self, subscription: int) -> int:
        return self.inner.generation(subscription)

    def fetch(self, subscription: int, source: int, begin: int, max_bytes: int, reply: Reply) -> None:
        def arrived(batches: Sequence[Batch] | Exception) -> None:
            answer = Unavailable("the answer was lost") if self._drops() else batches
            self._later(lambda: reply(answer))

        if self._drops():
            self._later(lambda: reply(Unavailable("the request was lost")))
        else:
            self._later(lambda: self.inner.fetch(subscription, source, begin, max_bytes, arrived))

    def check_grants(self, subscription: int) -> None:
        self.inner.check_grants(subscription)

    def check_writable(self) -> None:
        self.inner.check_writable()

    def acknowledge(
        self, subscription: int, generation: int, source: int, runs: bytes, done: Done, *, urgent: bool
    ) -> None:
        def arrived(error: Exception | None) -> None:
            answer = Unavailable("the answer was lost") if self._drops() else error
            self._later(lambda: done(answer))

        if self._drops():
            self._later(lambda: done(Unavailable("the request was lost")))
        else:
            self._later(lambda: self.inner.acknowledge(subscription, generation, source, runs, arrived, urgent=urgent))

    def publish(self, topic: str, request: bytes, done: Callable[[bytes | Exception], None]) -> None:
        self._later(lambda: self.inner.publish(topic, request, done))
