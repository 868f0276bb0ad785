"""What publish and subscribe forwarders say to each other.

The two rooms do not know each other; these words and the two protocols are all they share. Every call may be answered
later, and every answer may be a failure whose outcome is unknown (`SyncpointError` with UNAVAILABLE): on one node the
answers come in the same turn, between machines they cross a network that delays and drops. Batches are opaque: nobody
between storage and the kernel looks at single messages.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class Batch(NamedTuple):
    """Consecutive messages of one source, as stored.

    `payload` holds the messages from `first_offset` on, each with a length before it. Only those with offsets in
    `[begin, end)` are granted; of these the ones whose bit is set in `skip` (bit i = `first_offset` + i) are
    acknowledged already.
    """

    source: int
    first_offset: int
    begin: int
    end: int
    skip: bytes | None
    time_ns: int
    payload: bytes


class SourceView(NamedTuple):
    """One publish message source as a subscription sees it: the first offset not acknowledged, and whether it can
    still grow.
    """

    source: int
    begin: int
    sealed: bool


Reply = Callable[[Sequence[Batch] | Exception], None]
Done = Callable[[Exception | None], None]


class Listener(Protocol):
    """What a subscribe forwarder is told about one subscription it serves."""

    def on_data(self, source: int) -> None:
        """Messages of `source` became available (the source may be new)."""

    def on_reset(self) -> None:
        """The subscription was sought: its generation changed, every lease and cursor is void."""

    def on_removed(self) -> None:
        """The subscription was deleted or detached."""


class PublishSide(Protocol):
    """What a subscribe forwarder may ask of the publish forwarders that hold sources of a topic."""

    def attach(self, subscription: int, listener: Listener) -> list[SourceView]:
        """Begin to serve a subscription: its sources in publish order. `listener` hears of new data from now on."""

    def detach(self, subscription: int) -> None:
        """Stop serving it."""

    def fetch(self, subscription: int, source: int, begin: int, max_bytes: int, reply: Reply) -> None:
        """Ask for messages of `source` from `begin` on that are not acknowledged, about `max_bytes` of credit. No
        batches: none yet.
        """

    def check_writable(self) -> None:
        """Raise `Unavailable` if acknowledgements are known not to be recordable now; nothing was changed then."""

    def acknowledge(
        self, subscription: int, generation: int, source: int, runs: bytes, done: Done, *, urgent: bool
    ) -> None:
        """Record acknowledged offsets (kernel run encoding; sending them twice changes nothing).

        `done` hears when the record is persisted, or that nobody knows. Not urgent: it may ride with the next commit.
        """

    def generation(self, subscription: int) -> int:
        """The subscription's seek generation, which ack ids carry."""

    def publish(self, topic: str, request: bytes, done: Callable[[bytes | Exception], None]) -> None:
        """Publish on behalf of the service itself (dead letters). `request` is a serialised PublishRequest."""
