"""Readers that have a subscription to themselves: a stream reads its topic by offsets and acknowledges ranges.

Place: `reading` gives it the calls of readers; everybody else who wants to consume is asked by `check_free`.
Promise: while a reader's calls come in time nobody else is delivered anything; a reader is refused while others are
attached or hold messages. A seek ends what a reader has: it is refused until it begins anew where the seek went.
Nothing of it is stored: after a restart the reader's next call takes the subscription again.
"""

from syncpoint.kernel.acks import encode_runs
from syncpoint.metadata.records import Subscription
from syncpoint.model.errors import FailedPrecondition, InvalidArgument, ResetBySeek
from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.runtime.clock import Clock
from syncpoint.subscribe.subscribe_forwarder import SubscribeForwarder

SECONDS_DEFAULT = 60.0
SECONDS_MAX = 3600.0


class ExclusiveReaders:
    """Who reads which subscription alone, and until when."""

    def __init__(self, publish: PublishForwarder, subscribe: SubscribeForwarder, clock: Clock) -> None:
        self.publish, self.subscribe, self.clock = publish, subscribe, clock
        self._held: dict[int, tuple[str, float]] = {}  # by subscription: the reader, and until when

    def reader_of(self, subscription: int) -> str | None:
        """The reader that has a subscription now."""
        held = self._held.get(subscription)
        if held is not None and held[1] <= self.clock.monotonic():
            del self._held[subscription]
            return None
        return held[0] if held is not None else None

    def check_free(self, record: Subscription) -> None:
        """Raises `FailedPrecondition`, naming the reader, for everybody else who wants to consume."""
        reader = self.reader_of(record.incarnation)
        if reader is not None:
            raise FailedPrecondition(
                f"The subscription {record.name} is read by the stream {reader} alone. Stop that stream, or use a"
                " subscription of your own."
            )

    def take(self, record: Subscription, reader: str, seconds: float) -> None:
        """A reader takes the subscription, or goes on having it. Raises `FailedPrecondition`, `InvalidArgument`."""
        if not 0 <= seconds <= SECONDS_MAX:
            raise InvalidArgument("exclusive_seconds", f"must be between 0 (the default) and {SECONDS_MAX:.0f}")
        if self.reader_of(record.incarnation) != reader:
            self.check_free(record)
            self._check_unused(record)
        until = self.clock.monotonic() + (seconds or SECONDS_DEFAULT)
        self._held[record.incarnation] = (reader, until)
        self.subscribe.used[record.incarnation] = self.clock.monotonic()

    def _check_unused(self, record: Subscription) -> None:
        delivery = self.subscribe.deliveries.get(record.incarnation)
        if delivery is None:
            return
        messages, _ = delivery.table.total()
        if delivery.consumers or messages:
            raise FailedPrecondition(
                f"The subscription {record.name} has other consumers: {len(delivery.consumers)} are attached and"
                f" {messages} messages are outstanding. A stream reads it alone: stop the others, wait until what they"
                " hold is acknowledged or its deadline is over, and start again."
            )
        self.subscribe.removed(record.incarnation)  # what it read ahead would be delivered again later

    def release(self, record: Subscription, reader: str) -> None:
        """The reader is done. Idempotent; a reader that does not have it changes nothing."""
        if self.reader_of(record.incarnation) == reader:
            del self._held[record.incarnation]

    def check_generation(self, record: Subscription, generation: int) -> None:
        """Raises `FailedPrecondition` when what a reader has processed is of before a seek."""
        now = self.publish.generation(record.incarnation)
        if generation != now:
            raise ResetBySeek(
                f"The subscription {record.name} was sought while this stream reads it (seek {now}; the stream's"
                f" offsets are of {generation}), and is read from another place now. Stop the stream and begin it with"
                " a new checkpoint, without a starting position: then it reads what the seek left unacknowledged."
            )

    def acknowledge(self, record: Subscription, ends: dict[int, int]) -> None:
        """Everything before these ends, by source, is processed, in the generation of now. Raises `Unavailable` when
        that can not be stored.
        """
        self.publish.check_writable()
        ledger = self.publish.ledgers[record.incarnation]
        for source, end in ends.items():
            if end > 0 and not ledger.covers(source, 0, end):
                self.publish.acknowledge(
                    record.incarnation, ledger.generation, source, encode_runs([(0, end)]), _nobody_waits, urgent=False
                )


def _nobody_waits(error: Exception | None) -> None:
    """A lost acknowledgement comes again with the reader's next call."""
