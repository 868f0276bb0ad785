"""Streams to the subscribe forwarders that serve subscriptions: who has one, and when another forwarder is to serve.

Place: under `pull_relay`, whose streams end at clients, and `push_feeds`, whose streams end in this process.
Promise: when a forwarder dies, hangs, drains, or another one is to serve the subscription, a stream to the next one is
opened in place of the one that was there. A forwarder that is left of our own will ends its stream first, so everything
that it sent arrives; one that is suspected is left at once, if there is another.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from syncpoint.base.model.cluster import Member
from syncpoint.base.model.errors import Code, SyncpointError, Unavailable
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.catalog.transforms.responses import TransformedResponse
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.front.api.connected_clients import STREAM_NAME
from syncpoint.front.proxy.cancellable_calls import MOVABLE
from syncpoint.front.proxy.failure_detector import FailureDetector
from syncpoint.front.proxy.retrying import LAG_S, PAUSES_S
from syncpoint.front.proxy.sealing import Sealer
from syncpoint.front.proxy.subscription_routing import SubscriptionRouting
from syncpoint.front.proxy.unary_relay import UnaryRelay
from syncpoint.wire.transport.network import AnyStream

TRY_AGAIN = "The service was unable to fulfill your request. Please try again. [code=8a75]"
REVIEW_S = 1.0
STABLE_S = 3.0  # how long another forwarder must be the better one before a stream is moved to it
END_S = 2.0  # how long a forwarder has to end a stream that is moved
MOVES_MAX = 50  # streams moved of our own will at once
ELSEWHERE = frozenset({Code.RESOURCE_EXHAUSTED, *MOVABLE})

log = logging.getLogger(__name__)


class ForwarderStreams:
    """All of one proxy, and what they share. `moved`: how often a client's stream got another forwarder; `name`: by
    which forwarders know the streams of this life of the proxy.
    """

    def __init__(
        self,
        serving: SubscriptionRouting,
        relay: UnaryRelay,
        peers: PeerChannels,
        detector: FailureDetector,
        sealer: Sealer | None,
        name: str = "",
    ) -> None:
        self.serving, self.relay, self.peers, self.detector, self.sealer = serving, relay, peers, detector, sealer
        self.open_streams: dict[ForwarderStream, None] = {}
        self.name = name
        self.responses = self.moved = 0
        self.tasks = Tasks()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, one: ForwarderStream) -> None:
        """Register a stream that opens."""
        self.open_streams[one] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REVIEW_S, self._review)

    def suspected(self, address: str) -> None:
        """An address is silent: its streams go elsewhere at once, if there is another place."""
        for one in list(self.open_streams):
            if one.member is not None and one.member.address == address:
                one.leave_silent()

    def _review(self) -> None:
        """Once a second: does everybody still have the forwarder that is the best one."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(REVIEW_S, self._review) if self.open_streams else None
        moves = 0
        for one in list(self.open_streams):
            if moves < MOVES_MAX:
                moves += one.review(loop.time())

    def stop_reviewing(self) -> None:
        """Everything is about to end."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ForwarderStream(ABC):
    """One, as its user sees it: streams to forwarders, one after the other. `member`: the forwarder that serves it
    now, None between two. `number`: which of the forwarders that share a subscription it prefers.
    """

    _half_closed = False  # no other stream is opened when this one has ended
    _left = False  # who needed it is gone
    _ending: SyncpointError | None = None  # the proxy ends it with that

    def __init__(self, streams: ForwarderStreams, number: int) -> None:
        self.streams, self.number = streams, number
        self.record: Subscription | None = None
        self.member: Member | None = None
        self._running: asyncio.Task[None] | None = None
        self._upstream: AnyStream | None = None
        self._closing: asyncio.Task[None] | None = None
        self._closes = False  # we have the forwarder end the stream that is open
        self._better_since: float | None = None

    @abstractmethod
    async def _subscription(self) -> Subscription:
        """The subscription it is about. Raises what it ends with."""

    @abstractmethod
    async def _relay(self, record: Subscription, member: Member) -> None:
        """Be served by one forwarder until that one ends the stream. Raises what it failed with."""

    @abstractmethod
    def _finish(self, error: SyncpointError | None) -> None:
        """End the stream; with an error if it failed."""

    @abstractmethod
    def drain(self) -> None:
        """The proxy is about to stop."""

    async def _run(self) -> None:
        try:
            error = await self._serve()
        except SyncpointError as failed:
            error = failed
        except asyncio.CancelledError:
            self._finish(Unavailable(TRY_AGAIN))
            raise
        except Exception:
            log.exception("relaying a stream failed")
            error = SyncpointError(Code.INTERNAL, "Internal error.")
        self._finish(error)

    async def _serve(self) -> SyncpointError | None:
        """Have one stream after the other until the end, and say how it ends."""
        loop = asyncio.get_running_loop()
        record = self.record = await self._subscription()
        turns, lag_until = 0, 0.0
        tried: set[str] = set()
        while not self._left:
            if self._ending is not None:
                return self._ending
            members = self.streams.serving.members(record, self.number)
            member = next((one for one in members if one.name not in tried), None)
            if member is None:
                tried.clear()
                await self._pause(turns)
                turns += 1
                continue
            began, error, self._closes = loop.time(), None, False
            try:
                await self._relay(record, member)
            except SyncpointError as failed:
                error = failed
            if self._is_over():
                return None
            if loop.time() >= began + REVIEW_S:
                turns, lag_until = 0, 0.0
                tried.clear()
            if error is None or error.code in ELSEWHERE:
                if self._half_closed or self._ending is not None:
                    return self._ending
                if not self._closes:
                    tried.add(member.name)
            elif error.code is Code.NOT_FOUND and self.streams.serving.known(record):
                lag_until = lag_until or loop.time() + LAG_S  # its copy of the catalog may be older than ours
                if loop.time() > lag_until:
                    return error
                await self._pause(turns)
                turns += 1
            else:
                return error
        return None

    def _is_over(self) -> bool:
        return self._left

    async def _pause(self, turns: int) -> None:
        await asyncio.sleep(PAUSES_S[min(turns, len(PAUSES_S) - 1)])

    @contextmanager
    def _opened_at(self, member: Member, path: str, name: str = "") -> Iterator[AnyStream]:
        """A stream to a forwarder, which is watched while it is open. `name`: what it is called there."""
        streams = self.streams
        upstream = streams.peers.stream(member.address, path, ((STREAM_NAME, name.encode()),) if name else ())
        self.member, self._better_since = member, None
        streams.detector.wait(member.address, self)
        try:
            yield upstream
        finally:
            self.member = self._upstream = None
            if self._closing is not None:
                self._closing.cancel()
                self._closing = None
            upstream.cancel()
            streams.detector.done(member.address, self)
            streams.peers.unpin(member.address)

    async def _unsealed(self, response: bytes) -> bytes:
        """The response with its data opened. Without the keys it waits, as it would for a slow forwarder."""
        sealer, turns = self.streams.sealer, 0
        while sealer is not None and not self._left:
            try:
                return await sealer.open(response)
            except SyncpointError as error:
                if turns % 10 == 0:
                    log.warning("messages of %s wait for their keys: %s", self.record and self.record.name, error)
                await self._pause(turns)
                turns += 1
        return response

    async def _say(self, record: Subscription, upstream: AnyStream, found: TransformedResponse) -> None:
        """What became of a response, to the forwarder that lends in turns."""
        try:
            await upstream.send(found.turn())
        except SyncpointError as error:
            log.debug("a forwarder that ended its stream learns by calls what became of messages: %s", error)
            self.streams.relay.say(record, found)

    # -- moving ------------------------------------------------------------------------------------------------------

    def leave_silent(self) -> None:
        """The forwarder is suspected: leave it, unless there is no other."""
        if self._upstream is not None and self._better() is not None:
            self._upstream.cancel()

    def review(self, now: float) -> bool:
        """Move to a better forwarder when it has been the better one for a while; True when it is done now."""
        better = self._better()
        if better is None or self._ending is not None or self._half_closed:
            self._better_since = None
            return False
        if self._better_since is None:
            self._better_since = now
        if now < self._better_since + STABLE_S:
            return False
        self._better_since = now
        self._close_behind()
        return True

    def _better(self) -> Member | None:
        if self.record is None or self.member is None:
            return None
        members = self.streams.serving.members(self.record, self.number)
        same = not members or (members[0].name, members[0].incarnation) == (self.member.name, self.member.incarnation)
        return None if same else members[0]

    def _close_behind(self) -> None:
        """Let the forwarder end the stream well, so that everything it sent arrives; it is cut off after a while."""
        if self._upstream is not None and self._closing is None:
            self._closes = True
            self._closing = self.streams.tasks.start(self._end(self._upstream))

    async def _end(self, upstream: AnyStream) -> None:
        try:
            async with asyncio.timeout(END_S):
                await upstream.end()
            await asyncio.sleep(END_S)
        except (SyncpointError, TimeoutError) as error:
            log.debug("a stream is cut off: %s", error)
        finally:
            upstream.cancel()
