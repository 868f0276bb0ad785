"""Step guard: a step of a subscription that fails ends no other step.

Whatever comes to a subscription from outside is a step of its own: a tick of the clock, an answer, a word of a chain,
what a subscriber asks for. What fails is logged and counted, and tried again at the next tick; heartbeats, deadlines
and redelivery of everything else go on. What a step that failed has left undone nobody knows: the subscription it was
about is begun anew. Until then one of which no message may be with two (ordered or exactly-once) lends nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from syncpoint.base.kernel.errors import BadAckId, Malformed
from syncpoint.base.model.delivery import Done, Listener, PublishSide, Reply, SourceView
from syncpoint.base.model.errors import SyncpointError

log = logging.getLogger(__name__)
T = TypeVar("T")
EVERYTHING = 0  # no subscription has this number
LOGGED_EVERY = 100  # a step that fails at every tick is reported about every ten seconds


class StepGuard:
    """Counts in `failures`. `doubted`: the subscriptions that failed steps were about, since somebody last looked."""

    def __init__(self) -> None:
        self.failures = 0
        self.doubted: set[int] = set()

    def run(self, step: Callable[[], object], about: int = EVERYTHING) -> None:
        """Do a step, which is about one subscription or about all."""
        try:
            step()
        except Exception:
            self.failed(about)

    def ask(self, step: Callable[[], T], about: int) -> T:
        """Do what somebody asked for, who learns of a failure. A refusal has changed nothing."""
        try:
            return step()
        except (SyncpointError, BadAckId, Malformed):
            raise
        except Exception:
            self.failed(about)
            raise

    def answer(self, take: Callable[[T], object], about: int) -> Callable[[T], None]:
        """An answer that is taken in a step of its own, whenever it comes and from any caller."""

        def taken(answer: T) -> None:
            try:
                take(answer)
            except Exception:
                self.failed(about)

        return taken

    def doubts(self, subscription: int) -> bool:
        """Whether it is still to be begun anew."""
        return bool(self.doubted) and (subscription in self.doubted or EVERYTHING in self.doubted)

    def failed(self, about: int) -> None:
        """A step has failed, with the exception that is being handled."""
        if self.failures % LOGGED_EVERY == 0:
            log.exception("a step of the subscribe forwarder failed (%d so far)", self.failures + 1)
        self.failures += 1
        self.doubted.add(about)


class GuardedSide:
    """The publish side for one subscription's delivery: each answer, and each word to its listener, is a step about
    that subscription. So what fails in one ends neither what others wait for, nor whoever brought it.
    """

    def __init__(self, inner: PublishSide, guard: StepGuard, subscription: int) -> None:
        self._inner, self._guard, self._about = inner, guard, subscription
        self.detach, self.set_demand, self.note_attempts = inner.detach, inner.set_demand, inner.note_attempts
        self.check_grants, self.check_writable = inner.check_grants, inner.check_writable
        self.generation = inner.generation

    def attach(self, subscription: int, listener: Listener) -> None:
        self._inner.attach(subscription, _GuardedListener(listener, self._guard, self._about))

    def fetch(self, subscription: int, source: int, begin: int, max_bytes: int, reply: Reply) -> None:
        self._inner.fetch(subscription, source, begin, max_bytes, self._guard.answer(reply, self._about))

    def acknowledge(
        self, subscription: int, generation: int, source: int, runs: bytes, done: Done, *, urgent: bool
    ) -> None:
        taken = self._guard.answer(done, self._about)
        self._inner.acknowledge(subscription, generation, source, runs, taken, urgent=urgent)

    def publish(self, topic: str, request: bytes, done: Callable[[bytes | Exception], None]) -> None:
        self._inner.publish(topic, request, self._guard.answer(done, self._about))


class _GuardedListener:
    """A listener whose failures are caught by `GuardedSide`."""

    def __init__(self, inner: Listener, guard: StepGuard, about: int) -> None:
        self._inner, self._guard, self._about = inner, guard, about

    def on_sources(self, views: Sequence[SourceView], complete: bool) -> None:
        self._guard.run(partial(self._inner.on_sources, views, complete), self._about)

    def on_data(self, source: int) -> None:
        try:
            self._inner.on_data(source)
        except Exception:
            self._guard.failed(self._about)

    def on_revoked(self, source: int) -> None:
        self._guard.run(partial(self._inner.on_revoked, source), self._about)

    def on_reset(self) -> None:
        self._guard.run(self._inner.on_reset, self._about)

    def on_removed(self) -> None:
        self._guard.run(self._inner.on_removed, self._about)
