"""One client's streaming pull through a gateway: a stream at the home, and its end when the home is another site.

Place: made for each call of StreamingPull; between `calls.StreamingCall` and a site's `network.AnyStream`.
Promise: responses pass as they come, their ack ids tagged with the site. When the site dies, hangs or is left, the
client's stream ends with UNAVAILABLE, after which official clients open it again at once: it is then served by the
site that is the home. Where the site is left by command, nothing more is taken from it, and the stream ends when what
was lent on it is acknowledged or given back, or after `drain_s`. Ack ids on the stream go to the site that lent them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from syncpoint.base.kernel import split
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model.errors import Code, InvalidArgument, SyncpointError, Unavailable, Unprocessed, not_a
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.front.gateway.dual_delivery import DualBook
from syncpoint.front.gateway.site_link import SiteLink
from syncpoint.front.gateway.unary_calls import UnaryCalls, check_ack_bytes, passed_on
from syncpoint.front.proxy.cancellable_calls import MOVABLE
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.serving import parsed
from syncpoint.wire.protobuf.status import ack_outcomes
from syncpoint.wire.transport.calls import CallContext, Methods, Streaming, StreamingCall
from syncpoint.wire.transport.network import AnyStream

UPWARD_BYTES_MAX: Final = 8 << 20  # requests of one client that wait for its site
UPWARD_TOTAL_BYTES_MAX: Final = 256 << 20  # of all clients: who calls is not checked here
TRY_AGAIN: Final = "The service was unable to fulfill your request. Please try again. [code=8a75]"
LOOK_S: Final = 0.1  # between two looks whether what was lent is back
_ACKS, _DEADLINES = 2, 4

log = logging.getLogger(__name__)


async def _no_book(call: CallContext, subscription: str) -> DualBook | None:
    return None


class GatewayStreams:
    """All of a gateway. `drain_s`: how long one that moves by command waits for what was lent."""

    def __init__(self, calls: UnaryCalls, drain_s: float) -> None:
        self.calls, self.drain_s = calls, drain_s
        self.tasks = Tasks()
        self.open: dict[GatewayStream, None] = {}
        self.astray: set[GatewayStream] = set()
        """Those that opened at another site than the home, which refused them."""
        self.moved = self.responses = self.upward_bytes = 0
        self.book_of: Callable[[CallContext, str], Awaitable[DualBook | None]] = _no_book

    def methods(self) -> Methods:
        """StreamingPull."""
        return {methods.SUBSCRIBER.StreamingPull.encode(): Streaming(self.opened, methods.PUBLISHER.Publish.encode())}

    def opened(self, stream: StreamingCall) -> None:
        """A client opens a stream."""
        try:
            who = self.calls.bounds.open_stream(stream)
        except SyncpointError as error:
            stream.finish(error)
            return
        self.open[self.made(stream, who)] = None

    def come_home(self) -> None:
        """The home answers: what is astray goes there, also when the home was never masked."""
        astray, self.astray = self.astray, set()
        for one in astray:
            if one.link is not None and one.link.name != self.calls.board.home:
                one.move()

    def made(self, stream: StreamingCall, who: str) -> GatewayStream:
        """The relay of a stream."""
        return GatewayStream(stream, self, who)

    async def close(self) -> None:
        """Leave nothing running."""
        for one in list(self.open):
            one.finish(Unavailable(TRY_AGAIN))
        await self.tasks.stop()


class GatewayStream:
    """One client's stream. `subscription`: "" until its first request came."""

    def __init__(self, stream: StreamingCall, streams: GatewayStreams, who: str) -> None:
        self.stream, self.streams, self.who = stream, streams, who
        self.subscription = ""
        self.link: SiteLink | None = None
        self._upstream: AnyStream | None = None
        self._upward: deque[bytes] = deque()
        self._upward_bytes = 0
        self._sending = self._moving = self._half_closed = self._over = False
        self._room: asyncio.Future[None] | None = None
        stream.on_message, stream.on_end = self._message, self._ended
        stream.on_cancel, stream.on_writable = self._cancelled, self._writable
        stream.on_drain = self.lost

    # -- from the client ----------------------------------------------------------------------------------------------

    def _message(self, request: bytes) -> None:
        if self._over:
            return
        try:
            check_ack_bytes(request)
        except SyncpointError as error:
            self.finish(error)
            return
        if not self.subscription:
            try:
                self.subscription = parsed(pubsub.StreamingPullRequest, request).subscription or "?"
            except SyncpointError as error:
                self.finish(error)
                return
            self.streams.tasks.start(self._run(request))
            return
        self._upward.append(request)
        self._count(len(request))
        if self._upward_bytes > UPWARD_BYTES_MAX or self.streams.upward_bytes > UPWARD_TOTAL_BYTES_MAX:
            self.finish(Unavailable(TRY_AGAIN))
        else:
            self._send_soon()

    def _count(self, size: int) -> None:
        self._upward_bytes += size
        self.streams.upward_bytes += size

    def _ended(self) -> None:
        self._half_closed = True
        if not self.subscription:
            self.finish(InvalidArgument("", "first message must set subscription"))
        else:
            self._send_soon()

    def _cancelled(self) -> None:
        self._leave()

    def _writable(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    # -- SiteStream ---------------------------------------------------------------------------------------------------

    def lost(self) -> None:
        """The site is left: the client opens its stream at the next one."""
        self.streams.moved += 1
        self.finish(Unavailable(TRY_AGAIN))

    def move(self) -> None:
        """Another site is the home: take nothing more from this one, and end once what was lent is back."""
        if not self._moving and not self._over:
            self._moving = True
            self.streams.tasks.start(self._drained())

    async def _drained(self) -> None:
        loop, link = asyncio.get_running_loop(), self.link
        until = loop.time() + self.streams.drain_s
        upstream, self._upstream = self._upstream, None
        try:
            if upstream is not None:
                async with asyncio.timeout(2.0):
                    await upstream.end()
        except (SyncpointError, TimeoutError) as error:
            log.debug("a stream that moves is cut off: %s", error)
        self._send_soon()
        while link is not None and self.subscription in link.outstanding and loop.time() < until and not self._over:
            await asyncio.sleep(LOOK_S)
        self.lost()

    # -- upwards ------------------------------------------------------------------------------------------------------

    def _send_soon(self) -> None:
        if not self._sending and (self._upstream is not None or self._moving):
            self._sending = True
            self.streams.tasks.start(self._send())

    async def _send(self) -> None:
        """Ack ids go to the sites that lent the messages, also while the stream moves; all else goes up."""
        try:
            while self._upward and (self._upstream is not None or self._moving):
                request = self._upward.popleft()
                self._count(-len(request))
                rest = await self._without_acks(request)
                if self._upstream is not None and (rest or not request):
                    await self._upstream.send(rest)
            if self._half_closed and self._upstream is not None:
                await self._upstream.end()
        except SyncpointError as error:
            log.debug("the stream of %.300r: %.300s", self.subscription, error)  # who receives sees it, too
        finally:
            self._sending = False

    async def _without_acks(self, request: bytes) -> bytes:
        """A request without its ack ids, which have gone to the sites that lent the messages."""
        try:
            ids, deadlines = split.by_tag(request, _ACKS, 0), split.by_tag(request, _DEADLINES, 0)
        except Malformed:
            self.finish(not_a("StreamingPullRequest"))
            return b""
        if not ids[1] and not deadlines[1]:
            return request
        asked = parsed(pubsub.StreamingPullRequest, request)
        if len(asked.modify_deadline_seconds) != len(asked.modify_deadline_ack_ids):
            return request  # the site reports what is wrong with it
        name, kind = self.subscription, pubsub.StreamingPullResponse
        if asked.ack_ids:
            acks = pubsub.AcknowledgeRequest(subscription=name, ack_ids=asked.ack_ids)
            found = await self._bring(
                methods.SUBSCRIBER.Acknowledge, acks.SerializeToString(), _ACKS, list(asked.ack_ids)
            )
            self._confirm(kind(acknowledge_confirmation=kind.AcknowledgeConfirmation(**found)))
        by_seconds: dict[int, list[str]] = {}
        for ack_id, seconds in zip(asked.modify_deadline_ack_ids, asked.modify_deadline_seconds, strict=True):
            by_seconds.setdefault(seconds, []).append(ack_id)
        for seconds, some in by_seconds.items():
            modify = pubsub.ModifyAckDeadlineRequest(subscription=name, ack_ids=some, ack_deadline_seconds=seconds)
            found = await self._bring(
                methods.SUBSCRIBER.ModifyAckDeadline, modify.SerializeToString(), _DEADLINES, some
            )
            self._confirm(kind(modify_ack_deadline_confirmation=kind.ModifyAckDeadlineConfirmation(**found)))
        for field in ("ack_ids", "modify_deadline_seconds", "modify_deadline_ack_ids"):
            asked.ClearField(field)
        rest: bytes = asked.SerializeToString()
        return rest

    async def _bring(self, path: str, request: bytes, field: int, ids: list[str]) -> dict[str, list[str]]:
        """Where ack ids went to, as a confirmation has it."""
        try:
            await self.streams.calls.to_holders(self.stream, path, request, field)
        except SyncpointError as error:
            outcomes = ack_outcomes(error)
            if not outcomes:
                if error.code is Code.INVALID_ARGUMENT:
                    self.finish(error)
                return {"temporary_failed_ack_ids": list(ids)}
            unknown = [one for one in ids if outcomes.get(one, "").startswith("TRANSIENT_")]
            return {
                "ack_ids": [one for one in ids if one not in outcomes],
                "invalid_ack_ids": [one for one in ids if one in outcomes and one not in unknown],
                "temporary_failed_ack_ids": unknown,
            }
        return {"ack_ids": list(ids)}

    def _confirm(self, response: pubsub.StreamingPullResponse) -> None:
        if self._exactly_once and not self._over:
            self.stream.send(response.SerializeToString() + self._properties)

    # -- downwards ----------------------------------------------------------------------------------------------------

    _properties = b""
    _exactly_once = False
    _book: DualBook | None = None
    _receives = ""  # the site that its book counts it at

    async def _run(self, first: bytes) -> None:
        board, links = self.streams.calls.board, self.streams.calls.links
        error: SyncpointError = Unavailable(TRY_AGAIN)
        try:
            self._book = await self.streams.book_of(self.stream, self.subscription)
        except SyncpointError as unknown:
            log.info("%.300r: %s", self.subscription, unknown)
            self.finish(Unavailable(TRY_AGAIN))
            return
        opening = await self._without_acks(first)
        for name in board.open_sites():
            if self._over:
                return
            try:
                await self._relay(links[name], opening)
                error = Unavailable(TRY_AGAIN)
                break
            except Unprocessed:
                self.streams.calls.on_lost(name)
                continue
            except SyncpointError as failed:
                error = failed
                break
        if self._moving and not self._over:
            return  # it ends when what was lent is back
        if error.code in MOVABLE:
            if self.link is not None:
                self.streams.calls.on_lost(self.link.name)
            error = Unavailable(TRY_AGAIN)
        self.finish(None if self._half_closed and error.code is Code.UNAVAILABLE else error)

    async def _relay(self, link: SiteLink, opening: bytes) -> None:
        upstream = link.stream(self, methods.SUBSCRIBER.StreamingPull, passed_on(self.stream))
        try:
            await upstream.send(opening)
            self.link, self._upstream = link, upstream
            if link.name != self.streams.calls.board.home:
                self.streams.astray.add(self)
            if self._book is not None:
                self._book.streams[link.name] = self._book.streams.get(link.name, 0) + 1
                self._receives = link.name
            self._send_soon()
            while (response := await upstream.receive()) is not None:
                if self._over:
                    return
                self.deliver(link, response)
                if not self.stream.writable:
                    await self._until_writable()
        finally:
            upstream.cancel()
            link.end_stream(self)
            self._upstream = None
            if not self._moving:
                self._done_with()

    def deliver(self, link: SiteLink, response: bytes) -> None:
        """Pass a response on."""
        if self._book is not None:
            found = parsed(pubsub.StreamingPullResponse, response)
            self._book.delivered(link, found)
            tagged, count = found.SerializeToString(), len(found.received_messages)
        else:
            tagged, count = split.tag_ack_ids(response, link.tag)
        if count == 0 or not self._properties:
            self._learn(response)
        link.lent(self.subscription, count)
        self.streams.responses += 1
        self.stream.send(tagged)

    def _learn(self, response: bytes) -> None:
        """The subscription's properties, which confirmations repeat."""
        found = parsed(pubsub.StreamingPullResponse, response)
        if found.HasField("subscription_properties"):
            properties = pubsub.StreamingPullResponse(subscription_properties=found.subscription_properties)
            self._properties = properties.SerializeToString()
            self._exactly_once = found.subscription_properties.exactly_once_delivery_enabled

    async def _until_writable(self) -> None:
        self._room = asyncio.get_running_loop().create_future()
        try:
            while not (self._over or self.stream.writable):
                await asyncio.wait((self._room,))
                self._room = asyncio.get_running_loop().create_future()
        finally:
            self._room = None

    def _done_with(self) -> None:
        """Nothing of the site's is under way on this stream any more."""
        site, self._receives = self._receives, ""
        if self._book is not None and site:
            self._book.streams[site] -= 1
            self._book.used()

    # -- the end ------------------------------------------------------------------------------------------------------

    def finish(self, error: SyncpointError | None) -> None:
        """End the client's stream."""
        over = self._over
        self._leave()
        if not over and not self.stream.cancelled:
            self.stream.finish(error)

    def _leave(self) -> None:
        if self._over:
            return
        self._over = True
        self._upward.clear()
        self._count(-self._upward_bytes)
        self.streams.open.pop(self, None)
        self.streams.astray.discard(self)
        if self._moving:
            self._done_with()
        self.streams.calls.bounds.close_stream(self.who)
        if self.link is not None and not any(
            one.link is self.link and one.subscription == self.subscription for one in self.streams.open
        ):
            self.link.outstanding.pop(self.subscription, None)
        if self._upstream is not None:
            self._upstream.cancel()
        self._writable()
