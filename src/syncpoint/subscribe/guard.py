"""Guard: steps of the clock that must not end each other.

What fails is logged and counted, and tried again at the next tick; heartbeats, deadlines and redelivery of everything
else go on. What a step that failed has left undone nobody knows: the subscription it was about is begun anew.
"""

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)
EVERYTHING = 0  # no subscription has this number
LOGGED_EVERY = 100  # a step that fails at every tick is told about every ten seconds


class Guard:
    """Counts in `failures`. `doubted`: the subscriptions that failed steps were about, since somebody last looked."""

    def __init__(self) -> None:
        self.failures = 0
        self.doubted: set[int] = set()

    def run(self, step: Callable[[], object], about: int = EVERYTHING) -> None:
        """Do a step, which is about one subscription or about all."""
        try:
            step()
        except Exception:
            if self.failures % LOGGED_EVERY == 0:
                log.exception("a step of the subscribe forwarder failed (%d so far)", self.failures + 1)
            self.failures += 1
            self.doubted.add(about)
