"""One publish request on its way: what was tried, what may be tried next, and what its caller is shown at last.

Place: under `publisher`, which routes, sends and waits. Plain: times come in, nothing here waits.
Promise: a failure that leaves the outcome unknown is not shown while there is time. Without an ordering key the next
chain takes the request; with one it is sent again to the owner of its chain. Once any attempt may have succeeded, the
caller never reads that nothing was stored.
"""

from __future__ import annotations

import enum

from syncpoint.base.model.errors import (
    Code,
    MetadataSilent,
    OtherSchema,
    OtherTopic,
    StaleEpoch,
    SyncpointError,
    Unavailable,
    Unprocessed,
)
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.publish.intake.key_order import BatchPlace
from syncpoint.catalog.metadata.records import Topic
from syncpoint.catalog.transforms.publish_requests import TransformedRequest
from syncpoint.front.proxy.cancellable_calls import MOVABLE, CancellableCall
from syncpoint.front.proxy.retrying import LAG_S, PAUSES_S
from syncpoint.front.proxy.route_cache import Choice, RouteTarget
from syncpoint.wire.transport.calls import Call

DEADLINE_S = 60.0  # of callers who name none
METADATA_S = 3.0  # how long other chains are tried for what one cannot take while the metadata do not answer
FULL_S = 3.0  # how long full forwarders are asked again before the caller gets an error
TRIES_PER_S = 2_000  # of all batches that wait, together


class NextStep(enum.Enum):
    """What follows a failed attempt. All but the first after a pause."""

    ELSEWHERE = "another chain, immediately"
    AGAIN = "the same again"
    NEWER_ROUTE = "once the topic's newer route is known"
    NEWER_TOPIC = "once the catalog caught up with the topic of this name"
    NEWER_SCHEMA = "once the catalog caught up with the topic's schema settings"


class PublishAttempt(CancellableCall):
    """A request and its attempts. `chain`: where the last one went; `topic`: as it is known now."""

    __slots__ = (
        "call", "chain", "deadline", "doubtful", "judged", "key", "number", "origin", "place", "plain", "request",
        "schema", "silent", "size", "started", "topic", "transformed", "transforming", "tried", "turns",
    )  # fmt: skip

    def __init__(self, call: Call, request: bytes, topic: Topic, key: bytes, number: int, now: float) -> None:
        super().__init__()
        self.call, self.request, self.topic, self.key, self.number = call, request, topic, key, number
        self.plain = request  # as it came
        self.size = len(request)
        self.started = now
        self.deadline = now + DEADLINE_S if call.deadline is None else call.deadline
        self.place: BatchPlace | None = None
        self.chain = 0
        self.origin = PublishOrigin.CLIENT
        self.judged = False  # chains know it by the ids of its messages
        self.schema = 0  # what it was checked against
        self.transforming = False  # it is not yet among those to be sent
        self.transformed: TransformedRequest | None = None  # by the topic, if that has transforms
        self.doubtful: set[int] = set()  # chains at which an attempt may have succeeded
        self.tried: set[int] = set()
        self.silent = False  # a chain could not take it because the metadata did not answer
        self.turns = 0  # pauses so far

    @property
    def unknown(self) -> bool:
        """Whether some attempt may have succeeded."""
        return bool(self.doubtful)

    # -- where to ----------------------------------------------------------------------------------------------------

    def next_target(self, choice: Choice) -> RouteTarget | None:
        """The next chain to try without a key: one of those that share the topic by turns, then the others."""
        first = choice.first
        for at in range(len(first)):
            target = first[(self.number + at) % len(first)]
            if target.chain not in self.tried:
                return target
        return next((one for one in choice.others if one.chain not in self.tried), None)

    def begin_round(self) -> None:
        """Every chain was tried: all of them may be tried again. Raises where none could without the metadata."""
        if self.silent and not self.unknown:
            raise self._no_metadata()
        self.tried.clear()

    def begin(self, chain: int, now: float) -> float:
        """Seconds that an attempt at this chain may take. Raises once the time is over."""
        left_s = self.deadline - now
        if left_s <= 0:
            raise self._too_late()
        self.chain = chain
        self.tried.add(chain)
        return left_s

    # -- after a failure ---------------------------------------------------------------------------------------------

    def failed(self, error: SyncpointError, now: float, *, others: bool, exists: bool) -> NextStep:
        """What follows this failure; raises what the caller is shown where nothing may.

        `others`: a chain that shares the topic was not tried; `exists`: the topic does, as far as is known here.
        """
        code = error.code
        if isinstance(error, MetadataSilent):
            self.silent = True  # another chain may have the topic open
            if not self.unknown and (self.key or now > self.started + METADATA_S or now >= self.deadline):
                raise self._no_metadata()
        if code in MOVABLE:
            if not isinstance(error, (Unprocessed, MetadataSilent)):
                self.doubtful.add(self.chain)
            if self.key or now >= self.deadline:
                return self._stay()
            return NextStep.ELSEWHERE
        if isinstance(error, StaleEpoch) and self.key:
            return NextStep.NEWER_ROUTE
        if isinstance(error, OtherTopic):
            return self._stay(NextStep.NEWER_TOPIC)
        if isinstance(error, OtherSchema):
            return self._stay(NextStep.NEWER_SCHEMA)
        if code is Code.NOT_FOUND and exists and now <= self.started + LAG_S:
            return self._stay()  # the forwarder's copy of the catalog may be a moment older than ours
        if code is Code.RESOURCE_EXHAUSTED:
            if others and not self.key:
                return NextStep.ELSEWHERE
            if now <= self.started + FULL_S:
                return self._stay()
        raise error

    def _stay(self, step: NextStep = NextStep.AGAIN) -> NextStep:
        """Allow the current chain to be tried again."""
        self.tried.discard(self.chain)
        return step

    def refuse_old_schema(self, now: float) -> None:
        """Our copy of the catalog has caught up and is unchanged: raises once the forwarder's had time to."""
        if now > self.started + LAG_S:
            raise Unavailable(
                f"The schema settings of {self.topic.name} have changed and have not reached all of the cluster yet."
                " Try again."
            )

    def left_s(self, now: float) -> float:
        """Seconds until nobody waits for it any more. Raises once nobody does."""
        left_s = self.deadline - now
        if left_s <= 0 or self.call.cancelled:
            raise self._too_late()
        return left_s

    def pause_s(self, now: float, waiting: int) -> float:
        """How long to wait for something to change; `waiting`: how many batches do. Raises once the time is over."""
        left_s = self.left_s(now)
        pause_s = max(PAUSES_S[min(self.turns, len(PAUSES_S) - 1)], waiting / TRIES_PER_S)
        self.turns += 1
        return min(left_s, pause_s, PAUSES_S[-1])

    # -- what the caller is shown ------------------------------------------------------------------------------------

    def _too_late(self) -> SyncpointError:
        if self.call.deadline is not None:
            return SyncpointError(Code.DEADLINE_EXCEEDED, "Deadline exceeded.")
        if self.unknown:
            return outcome_unknown("the forwarders did not answer in time")
        return Unavailable(
            f"No publish forwarder can accept messages of {self.topic.name} now. Nothing was stored. Try again."
        )

    def cut_off(self) -> SyncpointError:
        """No forwarder of the regions that may store the topic is reachable, and nobody knows for how long."""
        where = f"no publish forwarder in {', '.join(self.topic.regions)} is reachable from here"
        if self.unknown:
            return outcome_unknown(where)
        return Unavailable(
            f"The message_storage_policy of {self.topic.name} allows no other region, and {where}. Nothing was"
            " stored. Try again later."
        )

    def _no_metadata(self) -> MetadataSilent:
        return MetadataSilent(
            f"{self.topic.name} must be opened before it accepts messages. That needs the metadata store, and the"
            " metadata"
            " store does not answer. Nothing was stored. Try again."
        )


def outcome_unknown(why: str) -> Unavailable:
    """Some attempt may have succeeded."""
    return Unavailable(f"The messages may or may not be stored: {why}. Publish them again (duplicates are possible).")
