"""Peers: one publish forwarder process as a subscribe forwarder sees it, over one Serve stream.

Machine below `gather`, above `link`. A peer is *up* from its first word on a stream until the stream is lost, or until
it has been silent too long: then everything asked of it has an unknown outcome. The time counts from when the last
heartbeat that came back was sent, so we stop relying on a grant before its giver stops honouring it. And since a giver
may have lost a chain without knowing, it reports how long ago the chain's disks obeyed it; that counts, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Protocol

from syncpoint.base.model.delivery import AttemptRun, Batch, Fetched, Freshness
from syncpoint.base.model.errors import SyncpointError, Unavailable, received
from syncpoint.base.model.times import BEAT_S, HOLD_S
from syncpoint.base.runtime.clock import Clock
from syncpoint.broker.subscribe.step_guard import EVERYTHING, StepGuard
from syncpoint.wire.protobuf.messages import internal

ANSWER_S = 15.0  # a request that is not answered on a living stream is asked again by who needs it
VERSION = 1

log = logging.getLogger(__name__)


class PeerTransport(Protocol):
    """The driver's end of the stream: see `link.ServeLink`."""

    def send(self, message: bytes) -> None:
        """Send on the stream there is; without one it goes nowhere."""

    def reset(self) -> None:
        """Give the stream up and connect anew."""

    def close(self) -> None:
        """For good."""


class Visitor(Protocol):
    """Who learns of a peer: the gatherer."""

    def peer_up(self, peer: Peer) -> None: ...

    def peer_down(self, peer: Peer) -> None: ...

    def peer_said(self, peer: Peer, kind: str, what: Any) -> None: ...


class _Asked(NamedTuple):
    at: float
    about: int  # the subscription
    answered: Callable[[Any, SyncpointError | None], None]


class Peer:
    """One publish forwarder, as a subscribe forwarder sees it.

    `connect(address, peer)` opens its transport; the driver calls `began`, `received` and `lost`.
    """

    def __init__(
        self,
        address: str,
        member: str,
        incarnation: int,
        clock: Clock,
        visitor: Visitor,
        connect: Callable[[str, Peer], PeerTransport],
        *,
        registered: int = 0,
        streams: Iterator[int] | None = None,
        guard: StepGuard | None = None,
    ) -> None:
        """`registered`: the revision the process is a member since. `streams` numbers streams, upward over all peers of
        the process. `step_guard`: the one of all peers.
        """
        self.address, self.up = address, False
        self.chains: frozenset[int] = frozenset()  # what it reports to have open
        self._owned_at: dict[int, float] = {}  # chain -> as of when its disks are known to have obeyed it
        self.attached: set[int] = set()
        self._hello = internal.Hello(member=member, incarnation=incarnation, version=VERSION, registered=registered)
        self._streams, self._guard = streams or count(1), guard or StepGuard()
        self._clock, self._visitor = clock, visitor
        self._asked: dict[int, _Asked] = {}
        self._last_id = self._last_beat = 0
        self._beats: dict[int, float] = {}  # number -> when it was sent
        self._seen_at = self._beat_at = -1e9
        self._transport = connect(address, self)

    def __repr__(self) -> str:
        return (
            f"<Peer {self.address} {'up' if self.up else 'down'} chains={sorted(self.chains)} asked={len(self._asked)}>"
        )

    # -- from the driver -----------------------------------------------------------------------------------------------

    def began(self) -> None:
        """A new stream is there to be written to; whether anybody reads it we will learn."""
        self._seen_at = self._clock.monotonic()
        self._beats.clear()
        self._hello.stream = next(self._streams)
        self.send_message(hello=self._hello)
        self._beat(self._seen_at)

    def received(self, data: bytes) -> None:
        """One FromChains."""
        message = internal.FromChains.FromString(data)
        try:
            self._take(message)
        except Exception:  # outside of the steps that are about one subscription
            self._guard.doubted.add(EVERYTHING)
            raise

    def _take(self, message: Any) -> None:
        kind = message.WhichOneof("what")
        if kind == "displaced":
            log.info("publish forwarder at %s knows a newer stream than this one", self.address)
            self._transport.reset()
            self.lost()
            return
        if not self.up:
            self.up = True
            self._visitor.peer_up(self)
        if kind == "fetched":
            self._answered(message.fetched)
        elif kind == "acknowledged":
            self._answered(message.acknowledged)
        elif kind == "heartbeat":
            sent = self._beats.pop(message.heartbeat.number, self._seen_at)
            self._seen_at = max(self._seen_at, sent)
            for one in message.heartbeat.chains:
                self._note_owned(one.chain, sent - one.age_ms / 1000)
        elif kind is not None:
            if kind == "owned":
                for chain in self._owned_at.keys() - set(message.owned.chains):
                    del self._owned_at[chain]
            elif kind == "sources":  # it was sent after the last heartbeat that came back was
                self._note_owned(message.sources.chain, self._seen_at - message.sources.age_ms / 1000)
            self._visitor.peer_said(self, kind, getattr(message, kind))
            if kind == "owned":
                self.chains = frozenset(message.owned.chains)

    def lost(self) -> None:
        """The stream is over; the driver connects again by itself."""
        if self.up:
            self.up = False
            self.chains = frozenset()
            self._owned_at.clear()
            self.attached.clear()
            self._visitor.peer_down(self)
        self._give_up(list(self._asked), "the connection was lost")

    # -- to the peer ---------------------------------------------------------------------------------------------------

    def send_message(self, **what: Any) -> None:
        """Send a ToChains that needs no answer."""
        self._transport.send(internal.ToChains(**what).SerializeToString())

    def fetch(self, answered: Callable[[Sequence[Batch] | Exception], None], max_bytes: int, **fields: int) -> None:
        """Ask for messages; `fields` as in the message Fetch."""

        def fetched(answer: Any, error: SyncpointError | None) -> None:
            if error is not None:
                answered(error)
                return
            batches = [_batch(one) for one in answer.batches]
            passed = [(one.begin, one.end) for one in answer.passed]
            attempts = [AttemptRun(one.begin, one.end, one.times, one.rest_ms) for one in answer.attempts]
            freshness = None
            if answer.HasField("freshness"):
                fresh = answer.freshness
                freshness = Freshness(fresh.now_ns, fresh.live_ns, fresh.soonest_ns)
            elif not passed and not attempts:
                answered(batches)
                return
            expired = [(one.begin, one.end) for one in answer.expired]
            answered(Fetched(batches, passed, attempts, expired, freshness))

        number = self._ask(fetched, fields["subscription"])
        self.send_message(fetch=internal.Fetch(id=number, max_bytes=max_bytes, **fields))

    def acknowledge(
        self, answered: Callable[[Exception | None], None], runs: bytes, *, urgent: bool, **fields: int
    ) -> None:
        """Have acknowledged offsets recorded; `fields` as in the message Acknowledge."""
        number = self._ask(lambda answer, error: answered(error), fields["subscription"])
        self.send_message(acknowledge=internal.Acknowledge(id=number, runs=runs, urgent=urgent, **fields))

    def tick(self, now: float) -> None:
        """Beat, and give up what has been silent too long."""
        if self.silent(now):
            if self.up or now - self._beat_at >= HOLD_S:
                self._beat_at = now
                self._transport.reset()
                self.lost()
            return
        if now - self._beat_at >= BEAT_S:
            self._beat(now)
        late = [number for number, asked in self._asked.items() if now - asked.at >= ANSWER_S]
        if late:
            self._give_up(late, "no answer came")

    def silent(self, now: float) -> bool:
        """Whether nothing that was granted by it can be relied on."""
        return now - self._seen_at >= HOLD_S

    def unowned(self, now: float) -> list[int]:
        """Chains of which it may have ceased to be the owner without knowing."""
        return [chain for chain, at in self._owned_at.items() if now - at >= HOLD_S]

    def _note_owned(self, chain: int, at: float) -> None:
        self._owned_at[chain] = max(at, self._owned_at.get(chain, at))

    def close(self) -> None:
        self._transport.close()
        self.lost()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _beat(self, now: float) -> None:
        self._last_beat += 1
        self._beat_at = self._beats[self._last_beat] = now
        self.send_message(heartbeat=internal.Heartbeat(number=self._last_beat))

    def _ask(self, answered: Callable[[Any, SyncpointError | None], None], about: int) -> int:
        self._last_id += 1
        self._asked[self._last_id] = _Asked(self._clock.monotonic(), about, answered)
        return self._last_id

    def _answered(self, answer: Any) -> None:
        asked = self._asked.pop(answer.id, None)
        if asked is not None:
            error = received(answer.code, answer.error) if answer.code else None
            self._guard.run(partial(asked.answered, answer, error), asked.about)

    def _give_up(self, numbers: list[int], why: str) -> None:
        for number in numbers:
            asked = self._asked.pop(number, None)
            if asked is not None:
                error = Unavailable(f"publish forwarder at {self.address}: {why}")
                self._guard.run(partial(asked.answered, None, error), asked.about)


def _batch(one: Any) -> Batch:
    return Batch(one.source, one.first_offset, one.begin, one.end, one.skip or None, one.time_ns, one.payload)
