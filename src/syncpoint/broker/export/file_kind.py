"""What is in a file together: all that comes until one of the file's limits is reached, and when some of it is written.

Place: the `ConsumerKind` of Cloud Storage subscriptions, under `export_driver`; a batch is a file.
Promise: files are stored one after the other, in the order in which their messages came, so those of an ordering key
are in order. A large one is written in pieces of at least a quarter of the memory that there is.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncpoint.broker.inner.inner_consumer import ConsumerKind, HeldBatch, InnerConsumer
from syncpoint.wire.protobuf.messages import pubsub

WRITTEN_MAX = 200_000  # messages of a file, each of which is leased until it is stored: it is closed early then
AHEAD_MAX = 1_000  # messages asked for beside those that are held


@dataclass(frozen=True, slots=True)
class FileLimits:
    """When a file is closed; 0: this limit is not set."""

    duration_s: float
    max_bytes: int = 0
    max_messages: int = 0


class FileKind(ConsumerKind):
    """How messages are gathered into files, within `limits`."""

    counts_failures = True

    def __init__(self, limits: FileLimits) -> None:
        self.limits = limits

    def lane(self, message: pubsub.PubsubMessage) -> str:
        """All messages share one lane: files are written one after the other."""
        return "files"

    def takes(self, batch: HeldBatch, nbytes: int) -> bool:
        """Whether the batch stays within the limits of a file with a message of this size."""
        limits = self.limits
        return not self._is_full(batch) and not (limits.max_bytes and batch.nbytes + nbytes > limits.max_bytes)

    def is_due(self, batch: HeldBatch, now: float) -> bool:
        """Whether the file has all the messages or bytes that it may, or is old enough."""
        return self._is_full(batch) or now >= batch.begun + self.limits.duration_s

    def is_part_due(self, batch: HeldBatch, memory_max: int) -> bool:
        """Whether the file takes a quarter of the memory."""
        return 4 * batch.memory >= memory_max

    def room(self, machine: InnerConsumer) -> int:
        """How many messages may be held: those held now, and as many as the free memory takes by their mean size."""
        free = machine.free
        return machine.held + (min(AHEAD_MAX, max(1, int(free / machine.mean_bytes))) if free else 0)

    def _is_full(self, batch: HeldBatch) -> bool:
        limits = self.limits
        long = bool(limits.max_bytes) and batch.nbytes >= limits.max_bytes
        return long or len(batch) >= min(limits.max_messages or WRITTEN_MAX, WRITTEN_MAX)
