"""Bugs planted where messages run out, in the shipped modules as they are now. Listed in `planted_bugs`."""

from __future__ import annotations

from contextlib import AbstractContextManager

from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.broker.publish.facts.time_to_live import ExpiryIndex
from syncpoint.broker.subscribe.expired_letters import ExpiredLetters
from syncpoint.broker.subscribe.ordering import Identity
from syncpoint.broker.subscribe.shared_state import Reason
from syncpoint.testing.simulation.planted import EXPIRING, planted
from syncpoint.testing.simulation.scaled import patched


@planted(EXPIRING, "crash", "takeover", seed=0)
def times_to_live_are_not_recovered() -> AbstractContextManager[None]:
    """An owner knows only of times to live that messages carried which were published to it."""
    return patched(ExpiryIndex, recover=lambda self, found, unsure: None)


@planted(EXPIRING, "clock jump", seed=0)
def expiry_by_the_wall_clock() -> AbstractContextManager[None]:
    """One clock that is ahead lets messages run out."""
    return patched(TrustedClock, sure_ns=TrustedClock.time_ns)


@planted(EXPIRING, "subscribe forwarder parted", "connections broken", seed=0)
def expiry_does_not_look_at_leases() -> AbstractContextManager[None]:
    """What a subscriber has is moved to the dead letters all the same once its time is over."""

    def take(self: ExpiredLetters, identity: Identity, reason: Reason) -> None:
        self._waiting[identity] = reason

    return patched(ExpiredLetters, take=take)
