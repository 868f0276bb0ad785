"""One push subscription: which messages are sent when, and what becomes of each.

Place: between a subscriber of the subscribe forwarder (messages come lent, under ack ids) and an HTTP endpoint. A plain
machine: events in, effects out in the order in which they must be done; time is an argument.
Promise: a message is sent only while it is lent, and acknowledged only after the endpoint took it. Of an ordering key
one message is under way at a time; one that failed takes what is lent of its key behind it with it, as the lease does.
While the subscription is paused nothing is sent: what was lent and not sent is given back, uncounted, and
nothing more is taken. What is under way goes on, and counts when its answer comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from syncpoint.push.pace import Pace
from syncpoint.subscribe.confirm import CopyId, copy_of
from syncpoint.wire.messages import pubsub

ACKNOWLEDGED = frozenset((102, 200, 201, 202, 204))
WAITING_MAX = 1_000  # lent and waiting for another message of their key
LEASE_MARGIN_S = 5.0  # a lease outlives the push: the push ends it, not the deadline


@dataclass(frozen=True, slots=True)
class Lent:
    """A copy of a message as it was lent. `attempt`: which delivery of it this is, 0 where nobody counts."""

    ack_id: str
    copy: CopyId
    message: pubsub.PubsubMessage
    attempt: int = 0


def lent_by(response: Any) -> list[Lent]:
    """What a response to a pull lends."""
    return [
        Lent(one.ack_id, copy_of(one.ack_id), one.message, one.delivery_attempt) for one in response.received_messages
    ]


@dataclass(frozen=True, slots=True)
class Push:
    """Send this. `answered` is to be called with the number."""

    number: int
    lent: Lent


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The endpoint took them."""

    ack_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Nacked:
    """The endpoint did not take them: each counts as a delivery, and comes again as the retry policy says."""

    ack_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GivenBack:
    """They were never sent."""

    ack_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Extended:
    """They are waited with: lend them for as long again."""

    ack_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """So many messages may be lent from now on, all reported."""

    messages: int


Reported = Acknowledged | Nacked | GivenBack | Extended | Room
Effect = Push | Reported


@dataclass(slots=True)
class _UnderWay:
    lent: Lent
    began: float


@dataclass(slots=True)
class _Waiting:
    lent: Lent
    lent_at: float


class Pusher:
    """See the module. `lease_s`: for how long messages are lent."""

    def __init__(self, pace: Pace, *, lease_s: float) -> None:
        self.pace, self.lease_s = pace, lease_s
        self.counts: dict[str, int] = {"acknowledged": 0, "refused": 0, "given_back": 0}
        self._numbers = 0
        self._under_way: dict[int, _UnderWay] = {}
        self._keys: set[str] = set()  # of what is under way
        self._waiting: deque[_Waiting] = deque()
        self._room: int | None = None
        self.stopped = False

    def __repr__(self) -> str:
        return f"<Pusher under_way={len(self._under_way)} waiting={len(self._waiting)} {self.pace!r}>"

    @property
    def at_rest(self) -> bool:
        """Whether time changes nothing: nothing is held, and as much may come as the window has."""
        return not self._under_way and not self._waiting and self._room == self.pace.window

    @property
    def held(self) -> int:
        """How many messages are under way or wait."""
        return len(self._under_way) + len(self._waiting)

    def received(self, lent: Sequence[Lent], now: float) -> list[Effect]:
        """Messages were lent to this subscriber."""
        if self.stopped:
            return self._give_back([one.ack_id for one in lent])
        fresh = {one.copy: one for one in lent}
        for waiting in self._waiting:  # lent anew, after a lost grant: the earlier ack id is void
            again = fresh.pop(waiting.lent.copy, None)
            if again is not None:
                waiting.lent, waiting.lent_at = again, now
        self._waiting.extend(_Waiting(one, now) for one in fresh.values())
        return self._go_on(now)

    def answered(self, number: int, status: int | None, now: float) -> list[Effect]:
        """A push has ended: with the status of the endpoint's answer, or (None) without one."""
        under_way = len(self._under_way)
        push = self._under_way.pop(number)
        key, ack_id, latency_s = push.lent.message.ordering_key, push.lent.ack_id, now - push.began
        self._keys.discard(key)
        effects: list[Effect]
        if status in ACKNOWLEDGED:
            self.counts["acknowledged"] += 1
            self.pace.on_acknowledged(latency_s, under_way)
            effects = [Acknowledged((ack_id,))]
        else:
            self.counts["refused"] += 1
            self.pace.on_failed(latency_s, push.began, now)
            if key:
                self._drop_behind(key)
            effects = [Nacked((ack_id,))]
        return effects + self._go_on(now)

    def tick(self, now: float) -> list[Effect]:
        """Time has passed: a pause may be over, leases of what waits may need more of it."""
        effects = self._go_on(now)
        due = [one for one in self._waiting if now - one.lent_at >= self.lease_s / 2]
        for one in due:
            one.lent_at = now
        if due:
            effects.append(Extended(tuple(one.lent.ack_id for one in due)))
        return effects

    def stop(self) -> list[Effect]:
        """Nothing more is sent from here. What is under way still ends as the endpoint says."""
        self.stopped = True
        waiting = [one.lent.ack_id for one in self._waiting]
        self._waiting.clear()
        return [*self._give_back(waiting), *self._set_room(0)]

    def _go_on(self, now: float) -> list[Effect]:
        """Send what may be sent; then say how much may come."""
        if self.stopped:
            return []
        if self.pace.paused_until(now) is not None:
            waiting = [one.lent.ack_id for one in self._waiting]
            self._waiting.clear()
            return [*self._give_back(waiting), *self._set_room(0)]
        effects: list[Effect] = []
        window, blocked = self.pace.window, deque[_Waiting]()
        held: set[str] = set()  # keys of which something waits: what follows it waits, too
        while self._waiting and len(self._under_way) < window:
            one = self._waiting.popleft()
            key = one.lent.message.ordering_key
            if key and (key in self._keys or key in held):
                held.add(key)
                blocked.append(one)
                continue
            self._numbers += 1
            self._under_way[self._numbers] = _UnderWay(one.lent, now)
            if key:
                self._keys.add(key)
            if now > one.lent_at:
                effects.append(Extended((one.lent.ack_id,)))  # it has a whole deadline from its sending on
            effects.append(Push(self._numbers, one.lent))
        self._waiting = blocked + self._waiting
        return effects + self._set_room(window + min(len(self._waiting), WAITING_MAX))

    def _drop_behind(self, key: str) -> None:
        """What waits of a key of which something failed is not lent any more: the lease takes it back with that."""
        if any(one.lent.message.ordering_key == key for one in self._waiting):
            self._waiting = deque(one for one in self._waiting if one.lent.message.ordering_key != key)

    def _give_back(self, ack_ids: Sequence[str]) -> list[Effect]:
        self.counts["given_back"] += len(ack_ids)
        return [GivenBack(tuple(ack_ids))] if ack_ids else []

    def _set_room(self, messages: int) -> list[Effect]:
        if messages == self._room:
            return []
        self._room = messages
        return [Room(messages)]
