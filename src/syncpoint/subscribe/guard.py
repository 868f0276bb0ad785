"""Guard: steps of the clock that must not end each other.

What fails is logged and counted, and tried again at the next tick; heartbeats, deadlines and redelivery of everything
else go on.
"""

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)
LOGGED_EVERY = 100  # a step that fails at every tick is told about every ten seconds


class Guard:
    """Counts in `failures`."""

    def __init__(self) -> None:
        self.failures = 0

    def run(self, step: Callable[[], object]) -> None:
        """Do a step."""
        try:
            step()
        except Exception:
            if self.failures % LOGGED_EVERY == 0:
                log.exception("a step of the subscribe forwarder failed (%d so far)", self.failures + 1)
            self.failures += 1
