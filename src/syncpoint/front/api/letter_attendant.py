"""Letters without listeners: what runs out, or what rules fail at, while nobody receives from a subscription.

Place: in each process that answers administrators, for the subscriptions that are its own (`mine`); where somebody
receives, subscribe forwarders do the same as they meet such messages.
Promise: subscriptions that do not ask for such letters cost nothing. What is moved could not be delivered any more when
it was seen, and is out with nobody a while later; it is acknowledged once its letter is persisted. Where two move the
same at a time there is one letter: both name it by the copy that it was made from.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.kernel.filters import matches
from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.model.lanes import in_lane
from syncpoint.base.model.names import project_of
from syncpoint.base.rules import pubsub_filter
from syncpoint.base.runtime.child_processes import Apart, at_once
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.periodic import Periodic
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.broker.subscribe.dead_letter import letter, stays
from syncpoint.broker.subscribe.expired_letters import EXPIRED
from syncpoint.broker.subscribe.lane_rules import LaneRules, RuleFailure, compiled
from syncpoint.broker.subscribe.own_copies import OwnCopies, share_of
from syncpoint.broker.subscribe.shared_state import Reason
from syncpoint.catalog.metadata.catalog import CatalogCopy, listening
from syncpoint.catalog.metadata.records import CatalogChange, ChangeOp, Feature, Subscription
from syncpoint.front.api.peek_admin import AskingChains, copies_of
from syncpoint.wire.protobuf.messages import internal

PAUSE_S = 5.0
QUIET_S = 1.0
"""This long after a message expired no forwarder lends it any more, also of what it had read before."""
MOVED_MAX = 500
"""Of one subscription, before others have their turn."""
RAN_OUT, ALL = 1, 2
"""What a peek shows: what ran out alone, or other messages, too."""
_NEVER_NS = (1 << 63) - 1

log = logging.getLogger(__name__)
Place = tuple[int, int]


class AskingAround(AskingChains, Protocol):
    """Ask every process about chains and deliveries."""

    async def deliveries(self, subscription: int) -> tuple[tuple[int, int, int, int], list[str]]: ...


class _GivenUp(NamedTuple):
    chain: int
    copy: CopyId
    message: bytes | None  # None: nobody was to have it
    reason: Reason


@dataclass
class _Attended:
    """A subscription, and how far it was looked through."""

    record: Subscription
    seen: dict[Place, int] = field(default_factory=dict)  # (source, lane) -> place
    due_ns: int = _NEVER_NS  # when something of that runs out


class LetterAttendant:
    """Dead-letter expired messages of subscriptions without subscribers.

    `publish`: publishes a letter; `refusal`: the reason that letters of a subscription must not be made, or "";
    `apart`: evaluates expensive rules in another process.
    """

    def __init__(
        self,
        copy: CatalogCopy,
        asking: AskingAround,
        clock: Clock,
        publish: Callable[[str, bytes], Awaitable[bytes]],
        *,
        mine: Callable[[int], bool] = lambda incarnation: True,
        refusal: Callable[[Subscription], str] = lambda record: "",
        apart: Apart = at_once,
    ) -> None:
        self.moved, self._apart = 0, apart
        self._copy, self._asking, self._clock, self._publish = copy, asking, clock, publish
        self._mine, self._refusal, self._copies = mine, refusal, OwnCopies()
        self._attended: dict[int, _Attended] = {}
        self._listener = listening(self._changed, Subscription, Feature.LETTERS, self._attended)
        self._rounds = Periodic(self._round, lambda: PAUSE_S, (SyncpointError,), "letters come late")

    def start(self) -> None:
        """Begin. Needs the event loop."""
        for record in self._copy.catalog.subscriptions():
            self._note(record)
        self._copy.on_change.append(self._listener)

    async def stop(self) -> None:
        """End, in the middle of a round, too."""
        if self._listener in self._copy.on_change:
            self._copy.on_change.remove(self._listener)
        await self._rounds.stop()

    def _changed(self, change: CatalogChange) -> None:
        assert isinstance(change.record, Subscription)
        if change.op is ChangeOp.DELETE:
            self._attended.pop(change.record.incarnation, None)
        else:
            self._note(change.record)

    def _note(self, record: Subscription) -> None:
        options = record.options
        asked = options.dead_letter_expired or options.dead_letter_rule_errors
        if asked and record.dead_letter is not None and not record.detached:
            self._attended[record.incarnation] = _Attended(record)  # from the beginning
            if not self._rounds.running:
                self._rounds.start()
        else:
            self._attended.pop(record.incarnation, None)

    async def _round(self) -> None:
        for incarnation, attended in list(self._attended.items()):
            if self._attended.get(incarnation) is attended and self._mine(incarnation):
                try:
                    await self._attend(attended)
                except SyncpointError as error:
                    _forget(attended)
                    log.info("letters of %s come late: %s", attended.record.name, error.message)

    async def _attend(self, attended: _Attended) -> None:
        record = attended.record
        if self._refusal(record) or await self._is_used(record):
            _forget(attended)
            return
        found = await self._look(attended)
        if not found:
            return
        await asyncio.sleep(QUIET_S)
        if await self._is_used(record) or self._attended.get(record.incarnation) is not attended:
            _forget(attended)
        else:
            await self._move(record, found)

    async def _is_used(self, record: Subscription) -> bool:
        """Whether anybody receives from it, has something of it, or may have it; at another site, too."""
        out, silent = await self._asking.deliveries(record.incarnation)
        return bool(silent) or any(out) or bool(record.options.keys_elsewhere)

    # -- looking -----------------------------------------------------------------------------------------------------

    async def _look(self, attended: _Attended) -> list[_GivenUp]:
        """What is to be moved of a subscription, as far as it was not looked through before."""
        record = attended.record
        own = pubsub_filter.compile(record.filter_text) if record.filter_text else b""
        lanes = compiled(record, own, lazy=True) or {0: LaneRules(own)}
        again = attended.due_ns <= self._clock.time_ns()
        if again:
            attended.due_ns = _NEVER_NS
        chains, _ = await self._asking.chains(record.topic_incarnation)
        found: list[_GivenUp] = []
        for chain in chains:
            for source in chain.sources:
                for lane, rules in lanes.items():
                    key, first = (source.source, lane), in_lane(lane, source.first_offset)
                    seen = max(first, attended.seen.get(key, first))
                    if again and first < seen:
                        await self._look_into(attended, chain.chain, key, rules, first, seen, found)
                    judged = record.options.dead_letter_rule_errors and rules.judge is not None
                    attended.seen[key] = await self._look_into(
                        attended, chain.chain, key, rules, seen, None, found, judged=judged
                    )
        return found

    async def _look_into(
        self,
        attended: _Attended,
        chain: int,
        key: Place,
        rules: LaneRules,
        begin: int,
        end: int | None,
        found: list[_GivenUp],
        *,
        judged: bool = False,
    ) -> int:
        """Adds what is to be moved; returns how far it was looked. `judged`: what did not run out is judged, too."""
        record = attended.record
        while (end is None or begin < end) and len(found) < MOVED_MAX:
            asked = internal.PeekRequest(
                topic=record.topic_incarnation,
                subscription=record.incarnation,
                source=key[0],
                begin=begin,
                messages_max=MOVED_MAX,
                given_up=ALL if judged else RAN_OUT,
            )
            answer = await self._asking.peek(chain, asked)
            if answer.soonest_ns:
                attended.due_ns = min(attended.due_ns, answer.soonest_ns)
            copies = await copies_of(self._apart, project_of(record.name), rules, key[0], answer.messages)
            for one, copy in zip(answer.messages, copies, strict=True):
                given = _given_up(rules, one.message, copy, expired=one.expired)
                if given is not None:
                    found.append(_GivenUp(chain, CopyId(key[0], one.place, answer.generation), *given))
            begin = answer.next
            if answer.end:
                return begin
        if end is not None and begin < end:
            attended.due_ns = 0  # the rest comes next
        return begin

    # -- moving ------------------------------------------------------------------------------------------------------

    async def _move(self, record: Subscription, found: Iterable[_GivenUp]) -> None:
        """Publish letters one after the other, and acknowledge each once it is persisted."""
        assert record.dead_letter is not None
        topic = record.dead_letter.topic
        for one in found:
            if not await self._waits(record, one):
                continue  # a forwarder was quicker
            if one.message is not None:
                left = share_of(one.message, self._copies.of(self._copy.catalog, record.topic_incarnation))
                if why := stays(record, one.message, one.reason, left):
                    log.info("a message of %s stays: %s", record.name, why)
                    continue
                try:
                    await self._publish(topic, letter(one.message, record, one.copy, 0, one.reason, left=left))
                except SyncpointError as error:
                    if error.code is not Code.INVALID_ARGUMENT:
                        raise
                    await self._publish(topic, letter(one.message, record, one.copy, None, left=left))
            asked = internal.AcknowledgeSeenRequest(
                subscription=record.incarnation,
                source=one.copy.source,
                runs=encode_runs([(one.copy.place, 1)]),
                generation=one.copy.generation,
            )
            await self._asking.acknowledge_seen(one.chain, asked)
            self.moved += 1

    async def _waits(self, record: Subscription, one: _GivenUp) -> bool:
        asked = internal.PeekRequest(
            topic=record.topic_incarnation,
            subscription=record.incarnation,
            source=one.copy.source,
            begin=one.copy.place,
            messages_max=1,
            given_up=ALL,
        )
        answer = await self._asking.peek(one.chain, asked)
        same = answer.generation == one.copy.generation
        return same and any(found.place == one.copy.place for found in answer.messages)


def _given_up(
    rules: LaneRules, message: bytes, copy: bytes | RuleFailure | None, *, expired: bool
) -> tuple[bytes | None, Reason] | None:
    """The message of a letter and why; None where the message is to be delivered. `copy`: what its lane makes of it."""
    if rules.judge is None and rules.program and not matches(rules.program, message):
        copy = None
    if expired:
        return (message if isinstance(copy, RuleFailure) else copy), EXPIRED
    return (message, Reason(*copy)) if isinstance(copy, RuleFailure) else None


def _forget(attended: _Attended) -> None:
    """Schedule a complete new look at the subscription."""
    attended.seen.clear()
    attended.due_ns = _NEVER_NS
