"""A receiver that moves between two places where the same messages are, and hands out each message once.

Place: in a consumer of active-passive topics. The secondary has copies of what the primary had; after a move there is
after the move what was handled before it. `SeenMessages` decides what is new, `SwitchingReceiver` pulls and
acknowledges. Promise: by id, a message is handed out once, if it comes again within `keep_s` of publish time. By time,
nothing is ever skipped that may be new, with clocks that differ by up to `skew_s`: what was published within that of
the newest one comes again, and is handed out again. Both count what they skip.
Leaves to the caller: handling, `done`, and keeping `SeenMessages.saved()` over its own restarts.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from syncpoint.front.client.client import Client
from syncpoint.wire.protobuf.messages import pubsub

MESSAGE_ID = "sys.MessageId"
SKEW_S = 5.0
KEEP_S = 600.0


class SeenMessages:
    """What was handled, by id: the attribute sys.MessageId where the publisher gave one, else the message's id."""

    def __init__(self, *, keep_s: float = KEEP_S) -> None:
        """`keep_s`: an id is kept until a message is seen that was published this much later."""
        self.skipped = 0
        self._keep_s = keep_s
        self._ids: set[str] = set()
        self._by_time: list[tuple[float, str]] = []
        self._newest_s = 0.0

    def is_new(self, identity: str, publish_time_s: float) -> bool:
        """Whether it is to be handled; counts it as skipped if not."""
        del publish_time_s
        if identity in self._ids:
            self.skipped += 1
            return False
        return True

    def handled(self, identity: str, publish_time_s: float) -> None:
        """Note that a message was handled."""
        if identity not in self._ids:
            self._ids.add(identity)
            heapq.heappush(self._by_time, (publish_time_s, identity))
        self._newest_s = max(self._newest_s, publish_time_s)
        while self._by_time and self._by_time[0][0] < self._newest_s - self._keep_s:
            self._ids.discard(heapq.heappop(self._by_time)[1])

    def moved(self) -> None:
        """The receiver goes to the other place: ids are the same there."""

    def saved(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {"ids": sorted(self._by_time), "skipped": self.skipped}

    @classmethod
    def loaded(cls, saved: Mapping[str, Any], *, keep_s: float = KEEP_S) -> Self:
        """What `saved` gave."""
        made = cls(keep_s=keep_s)
        for publish_time_s, identity in saved["ids"]:
            made.handled(identity, publish_time_s)
        made.skipped = saved["skipped"]
        return made


class SeenUntil:
    """What was handled, by publish time alone: for messages without ids that outlive a copy."""

    def __init__(self, *, skew_s: float = SKEW_S) -> None:
        """`skew_s`: how much clocks of publishers and servers may differ."""
        self.skipped = 0
        self._skew_s = skew_s
        self._newest_s = 0.0
        self._skip_before_s = 0.0

    def is_new(self, identity: str, publish_time_s: float) -> bool:
        """Whether it may not have been handled; counts it as skipped if it was."""
        del identity
        if publish_time_s < self._skip_before_s:
            self.skipped += 1
            return False
        return True

    def handled(self, identity: str, publish_time_s: float) -> None:
        """Note that a message was handled."""
        del identity
        self._newest_s = max(self._newest_s, publish_time_s)

    def moved(self) -> None:
        """The receiver goes to the other place: what is older than the newest by more than the skew is skipped."""
        self._skip_before_s = self._newest_s - self._skew_s


@dataclass(frozen=True, slots=True)
class ReceivingPlace:
    """A server and a subscription there."""

    endpoint: str
    subscription: str


@dataclass(slots=True)
class Received:
    """A message to be handled, and then given to `done`."""

    message: Any
    ack_id: str
    identity: str
    publish_time_s: float
    place: str


@dataclass(slots=True)
class SwitchingReceiver:
    """Pulls from `where()`, a name of `places`; used from one thread, as a context manager."""

    places: Mapping[str, ReceivingPlace]
    where: Callable[[], str]
    seen: SeenMessages | SeenUntil = field(default_factory=SeenMessages)
    connect: Callable[[str], Client] = Client
    moves: int = 0
    _place: str = ""
    _client: Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def receive(self, most: int = 100) -> list[Received]:
        """New messages; those seen before are acknowledged and left out. Raises `SyncpointError`."""
        client = self._at(self.where())
        subscription = self.places[self._place].subscription
        answer = client.call("Subscriber.Pull", pubsub.PullRequest(subscription=subscription, max_messages=most))
        found, again = [], []
        for one in answer.received_messages:
            made = received(one, self._place)
            if self.seen.is_new(made.identity, made.publish_time_s):
                found.append(made)
            else:
                again.append(one.ack_id)
        self._acknowledge(client, again)
        return found

    def done(self, handled: Iterable[Received]) -> None:
        """These were handled: they are not handed out again, wherever they are. Raises `SyncpointError`, after which
        they may be delivered again, and are skipped.
        """
        given = list(handled)
        for one in given:
            self.seen.handled(one.identity, one.publish_time_s)
        if self._client is not None:
            self._acknowledge(self._client, [one.ack_id for one in given if one.place == self._place])

    def _acknowledge(self, client: Client, ack_ids: list[str]) -> None:
        if ack_ids:
            subscription = self.places[self._place].subscription
            client.call("Subscriber.Acknowledge", pubsub.AcknowledgeRequest(subscription=subscription, ack_ids=ack_ids))

    def _at(self, place: str) -> Client:
        if self._client is None or place != self._place:
            self._close()
            if self._place and place != self._place:
                self.moves += 1
                self.seen.moved()
            self._place = place
            self._client = self.connect(self.places[place].endpoint)
        return self._client

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def received(one: Any, place: str = "") -> Received:
    """A pulled message with what it is known by."""
    message = one.message
    identity = message.attributes.get(MESSAGE_ID) or message.message_id
    published = message.publish_time.seconds + message.publish_time.nanos / 1e9
    return Received(message, one.ack_id, identity, published, place)
