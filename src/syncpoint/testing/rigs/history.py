"""What the clients of a test did and saw, in one order: the material the checkers judge.

Place on the message's path: outside of it, at both ends. Every operation is entered when it begins and again when
its outcome is known: *ok* (it happened), *failed* (it certainly did not), *unknown* (the answer was lost: it may have
happened, once or more often). Message bodies are sealed: client, number and a CRC over everything, so that a body
proves by itself which publish it came from and that no byte changed.
Promises: one counter orders all events of all threads (an event entered after another one returned has the larger
stamp); bodies are not kept, so that a long run costs about 200 bytes per event.
Leaves to `syncpoint.testing.rigs.checkers` what is right, and to its user to enter *unknown* whenever an outcome is not
certain.
"""

from __future__ import annotations

import enum
import itertools
import struct
import threading
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field


class Outcome(enum.Enum):
    """How an operation ended, as far as its client knows. PENDING counts as UNKNOWN when the history is judged."""

    PENDING = "pending"
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, order=True)
class MessageIdentity:
    """Which publish a message is: the publishing client's name and its number there, counted from 0."""

    client: str
    number: int


@dataclass(slots=True)
class Publish:
    """One published message. `begun` and `ended` are stamps; `ended` is 0 while pending. `error`: why it is not OK."""

    topic: str
    identity: MessageIdentity
    key: str
    begun: int
    ended: int = 0
    outcome: Outcome = Outcome.PENDING
    message_id: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Receipt:
    """One message handed to a client. `identity` is None when the body was not one of ours, or damaged.

    `arrived`: the wall clock when it came to the client's process, where that kept it before it handed it on; else 0.
    """

    subscription: str
    receiver: str
    identity: MessageIdentity | None
    message_id: str
    key: str
    at: int
    arrived: float = 0.0


@dataclass(slots=True)
class Ack:
    """One acknowledgement of one delivered message. `known`: the wall clock when its outcome was."""

    subscription: str
    message_id: str
    begun: int
    ended: int = 0
    outcome: Outcome = Outcome.PENDING
    known: float = 0.0


@dataclass(slots=True)
class Creation:
    """One subscription coming to be; `ended` is the sync point when the outcome is ok.

    `until`: the stamp from which it is owed nothing any more, because it was deleted or reset by a seek elsewhere; 0
    for never. `letters`: the subscription that gets its dead letters, "" where it has none.
    """

    subscription: str
    topic: str
    begun: int
    ended: int = 0
    outcome: Outcome = Outcome.PENDING
    exactly_once: bool = False
    ordered: bool = False
    until: int = 0
    letters: str = ""


Operation = Publish | Ack | Creation


@dataclass(slots=True)
class History:
    """All operations of one run. Every method may be called from any thread."""

    publishes: list[Publish] = field(default_factory=list)
    deliveries: list[Receipt] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    creations: list[Creation] = field(default_factory=list)
    _stamps: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def publishing(self, topic: str, identity: MessageIdentity, key: str = "") -> Publish:
        """A publish begins. Publishes of one key must come from one client, in the order of their numbers."""
        with self._lock:
            operation = Publish(topic, identity, key, next(self._stamps))
            self.publishes.append(operation)
        return operation

    def published(self, operation: Publish, message_id: str) -> None:
        """The server confirmed it under this id."""
        operation.message_id = message_id
        self.end(operation, Outcome.OK)

    def creating(
        self, subscription: str, topic: str, *, exactly_once: bool = False, ordered: bool = False, letters: str = ""
    ) -> Creation:
        """A subscription is being created; `end` it when the call returned."""
        with self._lock:
            operation = Creation(
                subscription, topic, next(self._stamps), exactly_once=exactly_once, ordered=ordered, letters=letters
            )
            self.creations.append(operation)
        return operation

    def delivered(
        self, subscription: str, receiver: str, message_id: str, body: bytes, key: str = "", arrived: float = 0.0
    ) -> Receipt:
        """A client was handed a message, which came to its process at `arrived`; 0: just now."""
        identity = unseal(body)
        with self._lock:
            delivery = Receipt(subscription, receiver, identity, message_id, key, next(self._stamps), arrived)
            self.deliveries.append(delivery)
        return delivery

    def acking(self, subscription: str, message_id: str) -> Ack:
        """An acknowledgement begins."""
        with self._lock:
            operation = Ack(subscription, message_id, next(self._stamps))
            self.acks.append(operation)
        return operation

    def stamp(self) -> int:
        """This moment, in the order of all others."""
        with self._lock:
            return next(self._stamps)

    def end(self, operation: Operation, outcome: Outcome) -> None:
        """An operation ended this way."""
        with self._lock:
            operation.ended = next(self._stamps)
            operation.outcome = outcome
            if isinstance(operation, Ack):
                operation.known = time.time()

    def missing(self, subscription: str, topic: str) -> set[MessageIdentity]:
        """Confirmed publishes of `topic` not yet seen on `subscription`: what a drain has to wait for."""
        with self._lock:
            seen = {one.identity for one in self.deliveries if one.subscription == subscription}
            confirmed = (one for one in self.publishes if one.topic == topic and one.outcome is Outcome.OK)
            return {one.identity for one in confirmed} - seen

    def counts(self) -> dict[str, int]:
        """How many operations of each kind and outcome there are: shows at a glance whether a run did anything."""
        counted = {"deliveries": len(self.deliveries)}
        kinds: dict[str, Iterable[Operation]] = {
            "publish": self.publishes,
            "ack": self.acks,
            "create": self.creations,
        }
        for kind, operations in kinds.items():
            for operation in operations:
                name = f"{kind} {operation.outcome.value}"
                counted[name] = counted.get(name, 0) + 1
        return counted


_HEAD = struct.Struct("<IHQ")
"""CRC-32 of all that follows, length of the client's name, number."""


def seal(identity: MessageIdentity, filler: bytes = b"") -> bytes:
    """A message body that proves which publish it is and that it is whole; `filler` makes it as long as wanted."""
    name = identity.client.encode()
    rest = struct.pack("<HQ", len(name), identity.number) + name + filler
    return struct.pack("<I", zlib.crc32(rest)) + rest


def unseal(body: bytes) -> MessageIdentity | None:
    """The publish a body came from; None if it was never sealed, or any byte changed."""
    if len(body) < _HEAD.size:
        return None
    crc, length, number = _HEAD.unpack_from(body)
    if zlib.crc32(body[4:]) != crc or len(body) < _HEAD.size + length:
        return None
    return MessageIdentity(body[_HEAD.size : _HEAD.size + length].decode("utf-8", "replace"), number)
