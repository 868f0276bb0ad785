"""One subscription that forwards: which messages are published together, and what becomes of them.

Place: between a subscriber of the subscribe forwarder (messages come lent, under ack ids) and the publish path. A plain
machine: events in, effects out in the order in which they are to be done; time is an argument.
Promise: a message is acknowledged only once it is persisted in the target. Of an ordering key one request is under way
at a time, with its messages in order. A request that fails is given back, uncounted, with all that waits of its key;
nothing more is forwarded for a while, and all that is not under way is given back (a request that was under way when
the last pause began is part of that failure, and begins no other pause). A message that the target can never take, or
that was forwarded `HOPS_MAX` times, is given up, for a reason. Where that cannot be, a message of a key is tried again
after `REST_S`, and nothing of its key overtakes it; others come again when their lease ends. Leases are extended for as
long as a message is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from syncpoint.forward.forwarded_message import HOPS_MAX, hops_of
from syncpoint.push.pace import Pace
from syncpoint.push.pusher import Acknowledged, Extended, GivenBack, Lent, Reported, Room
from syncpoint.subscribe.confirm import CopyId
from syncpoint.subscribe.shared_state import Reason

REQUEST_MESSAGES_MAX = 1_000
REQUEST_BYTES = 1 << 20  # of messages; one that is larger goes alone
AHEAD_MAX = 4_000  # messages that are held
HELD_MAX = 32 << 20  # their bytes
REST_S = 10.0
MESSAGE_BYTES = 1_024  # what a message costs in memory beside its data
REFUSED = "ForwardingRefused"
TOO_FAR = Reason(
    "MaxTransferHopCountExceeded",
    f"It was forwarded {HOPS_MAX} times before: forwards may lead back to where they began.",
)


@dataclass(slots=True, eq=False)
class _Held:
    lent: Lent
    lent_at: float
    alone: bool = False  # it was refused together with others
    rests_until: float = float("-inf")

    @property
    def nbytes(self) -> int:
        return int(self.lent.message.ByteSize()) + MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class Forward:
    """Publish these, all of one key or of none. `forwarded`, `refused` or `failed` is to be called with the number."""

    number: int
    lent: tuple[Lent, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Make a dead letter of it. `given_up` is to be called with the number."""

    number: int
    lent: Lent
    reason: Reason


Effect = Forward | GiveUp | Reported


@dataclass(slots=True)
class _RequestUnderWay:
    held: list[_Held]
    key: str
    began: float


class Forwarding:
    """See the module. `lease_s`: for how long messages are lent."""

    def __init__(self, pace: Pace, *, lease_s: float, held_max: int = HELD_MAX) -> None:
        self.pace, self.lease_s, self.held_max = pace, lease_s, held_max
        self.counts: dict[str, int] = {"forwarded": 0, "given_up": 0, "kept": 0}
        self.stopped = False
        self._numbers = 0
        self._waiting: dict[str, deque[_Held]] = {}  # by ordering key, in the order in which they came
        self._under_way: dict[int, _RequestUnderWay] = {}
        self._keys: set[str] = set()  # of what is under way
        self._known: dict[CopyId, _Held] = {}
        self._nbytes = 0
        self._room: int | None = None

    def __repr__(self) -> str:
        return f"<Forwarding under_way={len(self._under_way)} held={self.held} {self.pace!r}>"

    @property
    def held(self) -> int:
        """How many messages are under way or wait."""
        return len(self._known)

    @property
    def free(self) -> int:
        """Bytes that may come."""
        return max(0, self.held_max - self._nbytes)

    @property
    def at_rest(self) -> bool:
        """Whether time changes nothing."""
        return not self._known and self._room == AHEAD_MAX

    # -- events ------------------------------------------------------------------------------------------------------

    def received(self, lent: Sequence[Lent], now: float) -> list[Effect]:
        """Messages were lent to this subscriber."""
        if self.stopped or self.pace.paused_until(now) is not None:
            return _given_back(one.ack_id for one in lent)
        for one in lent:
            again = self._known.get(one.copy)
            if again is not None:  # after a lost grant: the earlier ack id is void
                again.lent, again.lent_at = one, now
                continue
            held = self._known[one.copy] = _Held(one, now)
            self._nbytes += held.nbytes
            self._waiting.setdefault(one.message.ordering_key, deque()).append(held)
        return self._go_on(now)

    def forwarded(self, number: int, now: float) -> list[Effect]:
        """They are persisted in the target."""
        under_way = len(self._under_way)
        done = self._end_of(number)
        self.pace.on_acknowledged(now - done.began, under_way)
        self.counts["forwarded"] += len(done.held)
        return [Acknowledged(self._let_go(done.held)), *self._go_on(now)]

    def refused(self, number: int, why: str, now: float) -> list[Effect]:
        """The target can never take this request: each of its messages is tried alone; one alone is given up."""
        done = self._end_of(number)
        if len(done.held) == 1:
            return [self._give_up(done.held[0], done.key, Reason(REFUSED, why), now), *self._go_on(now)]
        for one in done.held:
            one.alone = True
        self._waiting.setdefault(done.key, deque()).extendleft(reversed(done.held))
        return self._go_on(now)

    def failed(self, number: int, now: float) -> list[Effect]:
        """They may be persisted, and nobody knows; they are known when they are published again."""
        done = self._end_of(number)
        self.pace.on_failed(now - done.began, done.began, now)
        behind = self._waiting.pop(done.key, ()) if done.key else ()  # also where no pause begins: it would overtake
        return [*_given_back(self._let_go([*done.held, *behind])), *self._go_on(now)]

    def given_up(self, number: int, now: float, *, kept: bool) -> list[Effect]:
        """The letter is persisted, and the message acknowledged with it; `kept`: neither is."""
        done = self._end_of(number)
        self.counts["kept" if kept else "given_up"] += 1
        if kept and done.key and not self.stopped:
            done.held[0].rests_until = now + REST_S
            self._waiting.setdefault(done.key, deque()).appendleft(done.held[0])
        else:
            self._let_go(done.held)  # its lease ends, which counts as a delivery
        return self._go_on(now)

    def tick(self, now: float) -> list[Effect]:
        """Time has passed: a pause may be over, leases may need more of it."""
        effects = self._go_on(now)
        due = [one for one in self._known.values() if now - one.lent_at >= self.lease_s / 2]
        return [*effects, *_extended(due, now)]

    def stop(self) -> list[Effect]:
        """Nothing more is forwarded from here. What is under way still ends as it does."""
        self.stopped = True
        return [*self._drop(), *self._set_room(0)]

    # -- shared ------------------------------------------------------------------------------------------------------

    def _go_on(self, now: float) -> list[Effect]:
        """Publish what may be published; then say how much may come."""
        if self.stopped:
            return []
        if self.pace.paused_until(now) is not None:
            return [*self._drop(), *self._set_room(0)]
        effects: list[Effect] = []
        for key in list(self._waiting):
            while len(self._under_way) < self.pace.window and self._is_next(key, now):
                effects.append(self._next_of(key, now))
        return effects + self._set_room(AHEAD_MAX if self.free else 0)

    def _is_next(self, key: str, now: float) -> bool:
        """Whether something of a key may begin now."""
        waiting = self._waiting.get(key)
        return waiting is not None and key not in self._keys and waiting[0].rests_until <= now

    def _next_of(self, key: str, now: float) -> Effect:
        """What begins with the first that waits of a key."""
        waiting = self._waiting[key]
        first = waiting.popleft()
        taken, nbytes = [first], first.nbytes
        too_far = hops_of(first.lent.message) >= HOPS_MAX
        while waiting and not (too_far or first.alone) and len(taken) < REQUEST_MESSAGES_MAX:
            one = waiting[0]
            nbytes += one.nbytes
            if one.alone or nbytes > REQUEST_BYTES or hops_of(one.lent.message) >= HOPS_MAX:
                break
            taken.append(waiting.popleft())
        if not waiting:
            del self._waiting[key]
        if too_far:
            return self._give_up(first, key, TOO_FAR, now)
        return Forward(self._begin(taken, key, now), tuple(one.lent for one in taken))

    def _give_up(self, one: _Held, key: str, reason: Reason, now: float) -> GiveUp:
        return GiveUp(self._begin([one], key, now), one.lent, reason)

    def _begin(self, held: list[_Held], key: str, now: float) -> int:
        self._numbers += 1
        self._under_way[self._numbers] = _RequestUnderWay(held, key, now)
        if key:
            self._keys.add(key)
        return self._numbers

    def _end_of(self, number: int) -> _RequestUnderWay:
        done = self._under_way.pop(number)
        self._keys.discard(done.key)
        return done

    def _let_go(self, held: Iterable[_Held]) -> tuple[str, ...]:
        """They are not held any more; their ack ids."""
        ack_ids = []
        for one in held:
            del self._known[one.lent.copy]
            self._nbytes -= one.nbytes
            ack_ids.append(one.lent.ack_id)
        return tuple(ack_ids)

    def _drop(self) -> list[Effect]:
        waiting = [one for held in self._waiting.values() for one in held]
        self._waiting.clear()
        return _given_back(self._let_go(waiting))

    def _set_room(self, messages: int) -> list[Effect]:
        if messages == self._room:
            return []
        self._room = messages
        return [Room(messages)]


def _given_back(ack_ids: Iterable[str]) -> list[Effect]:
    ids = tuple(ack_ids)
    return [GivenBack(ids)] if ids else []


def _extended(held: Sequence[_Held], now: float) -> list[Effect]:
    for one in held:
        one.lent_at = now
    return [Extended(tuple(one.lent.ack_id for one in held))] if held else []
