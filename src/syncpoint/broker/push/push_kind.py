"""What is pushed together: each message alone, of an ordering key one after the other.

Place: the `ConsumerKind` of push subscriptions, under `push_driver`.
"""

from __future__ import annotations

from syncpoint.broker.inner.inner_consumer import ConsumerKind, HeldBatch, InnerConsumer

WAITING_MAX = 1_000  # lent and waiting for another message of their key


class PushKind(ConsumerKind):
    """Batch messages for pushes."""

    counts_failures = True

    def takes(self, batch: HeldBatch, nbytes: int) -> bool:
        """None beside the first."""
        return False

    def room(self, machine: InnerConsumer) -> int:
        """How many messages may be held: as many as may be under way, and some that wait."""
        return machine.pace.window + min(machine.held - machine.under_way, WAITING_MAX)
