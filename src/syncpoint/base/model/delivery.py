"""The contract between publish and subscribe forwarders: two protocols, and the values they pass.

The two rooms do not know each other; these words and the two protocols are all they share. Every call may be answered
later, and every answer may be a failure whose outcome is unknown (`SyncpointError` with UNAVAILABLE): on one node the
answers come in the same turn, between machines they cross a network that delays and drops. Batches are opaque: nobody
between storage and the kernel looks at single messages.
"""

from collections.abc import Callable, Iterable, Sequence
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

    def skips(self, offset: int) -> bool:
        """Whether one of its offsets is to be skipped."""
        index = offset - self.first_offset
        return self.skip is not None and self.skip[index >> 3] >> (index & 7) & 1 == 1


class SourceView(NamedTuple):
    """One publish message source as a subscription sees it.

    `begin` is the first offset not acknowledged, `sealed` means that it cannot grow any more. `epoch` and `chain` give
    its place in the order of keys: a source comes after every source of a lower epoch, and after every source of the
    same chain with a lower number. `grant` numbers the permission to deliver from it; 0 on one node, where there is
    nobody to share with. `held` False: it exists, but it is not, or not known to be, granted here; it only counts for
    the order of keys until it is `done`, sealed and acknowledged to its end.
    """

    source: int
    begin: int
    sealed: bool
    epoch: int = 0
    chain: int = 0
    grant: int = 0
    held: bool = True
    done: bool = False


class AttemptRun(NamedTuple):
    """Messages `[begin, end)` of a source came back undone `times` times by now; not to be delivered again before
    `rest_ms` are over.
    """

    begin: int
    end: int
    times: int
    rest_ms: int


class Freshness(NamedTuple):
    """When batches run out: nothing of them before `soonest_ns`; everything `live_ns` (0: never) after it was
    published, and a message by a time to live that it carries. `now_ns`: a time that had been reached when they were
    handed out.
    """

    now_ns: int
    live_ns: int
    soonest_ns: int


class Fetched(list[Batch]):
    """Batches, and what lies before or between them that could not be read now; how often some came back before.

    Offsets in `passed`, ranges of begin and end, are not acknowledged and may be readable later. What is neither here
    nor there, up to the end of the last batch, needs no delivery. Of what is in the batches the ranges in `expired`
    have outlived their time to live: not to be delivered, but to go to the dead-letter topic. `freshness`: None where
    nothing of the batches runs out.
    """

    def __init__(
        self,
        batches: Iterable[Batch] = (),
        passed: Iterable[tuple[int, int]] = (),
        attempts: Iterable[AttemptRun] = (),
        expired: Iterable[tuple[int, int]] = (),
        freshness: Freshness | None = None,
    ) -> None:
        super().__init__(batches)
        self.passed = tuple(passed)
        self.attempts = tuple(attempts)
        self.expired = tuple(expired)
        self.freshness = freshness


class UpToEnd(list[Batch]):
    """Batches up to the end of what there was, with nothing to say of them: no more is to be asked for before data
    come.
    """


def passed_over(batches: Sequence[Batch]) -> tuple[tuple[int, int], ...]:
    """The ranges an answer passed over."""
    return batches.passed if isinstance(batches, Fetched) else ()


def attempts_of(batches: Sequence[Batch]) -> tuple[AttemptRun, ...]:
    """What an answer reports about earlier deliveries."""
    return batches.attempts if isinstance(batches, Fetched) else ()


def expired_of(batches: Sequence[Batch]) -> tuple[tuple[int, int], ...]:
    """The ranges of an answer that have run out and go to the dead-letter topic."""
    return batches.expired if isinstance(batches, Fetched) else ()


def freshness_of(batches: Sequence[Batch]) -> Freshness | None:
    """When what an answer brought runs out."""
    return batches.freshness if isinstance(batches, Fetched) else None


Reply = Callable[[Sequence[Batch] | Exception], None]
Done = Callable[[Exception | None], None]


class Listener(Protocol):
    """What a subscribe forwarder receives about one subscription it serves."""

    def on_sources(self, views: Sequence[SourceView], complete: bool) -> None:
        """These sources may be delivered from now on (those that are `held`); also called when one is sealed. The
        same grant again changes nothing that was read or lent. `complete`: every source of the topic that is known
        anywhere has been named by now, so order can be judged.
        """

    def on_data(self, source: int) -> None:
        """Messages of a granted source became available."""

    def on_revoked(self, source: int) -> None:
        """The grant of a source has ended: its cursor and its leases are void, somebody else delivers from it."""

    def on_reset(self) -> None:
        """The subscription was reset by a seek: its generation changed, every lease and cursor is void."""

    def on_removed(self) -> None:
        """The subscription was deleted or detached."""


class PublishSide(Protocol):
    """What a subscribe forwarder may ask of the publish forwarders that hold sources of a topic."""

    def attach(self, subscription: int, listener: Listener) -> None:
        """Begin to serve a subscription. `listener` is called for its sources, at once or later, and of new data.
        Attaching again names all sources again. Raises `NotFound`.
        """

    def detach(self, subscription: int) -> None:
        """Stop serving it."""

    def set_demand(self, subscription: int, wanted: bool) -> None:
        """Whether somebody here can take messages of it at all; sources go where they are wanted (protocol rule 19)."""

    def fetch(self, subscription: int, source: int, begin: int, max_bytes: int, reply: Reply) -> None:
        """Ask for messages of `source` from `begin` on that are not acknowledged, about `max_bytes` of credit. No
        batches: none yet. The answer may be `Fetched`, with what could not be read, or `UpToEnd`.
        """

    def check_grants(self, subscription: int) -> None:
        """Asked before messages of a strict subscription are lent: what was granted and cannot be relied on at this
        moment is named to the listener as not held.
        """

    def check_writable(self) -> None:
        """Raise `Unavailable` if acknowledgements are known not to be recordable now; nothing was changed then."""

    def acknowledge(
        self, subscription: int, generation: int, source: int, runs: bytes, done: Done, *, urgent: bool
    ) -> None:
        """Record acknowledged offsets (kernel run encoding; sending them twice changes nothing).

        `done` is called when the record is persisted, or that nobody knows; `FailedPrecondition` when it does not
        count: the subscription was reset by a seek, or is gone, or an exactly-once subscription's source is granted to
        somebody else. Only an exactly-once sender has to know. Not urgent: it may ride with the next commit.
        """

    def note_attempts(self, subscription: int, generation: int, source: int, runs: Sequence[AttemptRun]) -> None:
        """Messages came back undone; remembered for their next reader. Nobody waits for it."""

    def generation(self, subscription: int) -> int:
        """The subscription's seek generation, which ack ids carry."""

    def publish(self, topic: str, request: bytes, done: Callable[[bytes | Exception], None]) -> None:
        """Publish on behalf of the service itself (dead letters). `request` is a serialised PublishRequest."""
