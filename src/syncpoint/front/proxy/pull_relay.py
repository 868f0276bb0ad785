"""One client's streaming pull, and the upstream streams that serve it, one after the other.

Place: made by `pull_relays` for every call; between `calls.StreamingCall` on one side and `network.AnyStream` on the
other.
Promise: see `pull_relays`. Where the subscription has transforms, the forwarder lends in turns: a response after this
side has reported what became of the one before, so that nothing overtakes a message of its key that failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial

from google.protobuf.message import DecodeError

from syncpoint.base.kernel import split
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model.cluster import Member
from syncpoint.base.model.errors import InvalidArgument, SyncpointError, Unavailable, not_a
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.catalog.transforms.responses import held_back
from syncpoint.front.api.streaming_pull import check_first
from syncpoint.front.proxy import stray_acks
from syncpoint.front.proxy.forwarder_stream import TRY_AGAIN, ForwarderStream, ForwarderStreams
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub
from syncpoint.wire.protobuf.pull_properties import PROPERTIES
from syncpoint.wire.protobuf.serving import parsed
from syncpoint.wire.transport.calls import StreamingCall
from syncpoint.wire.transport.network import AnyStream

DEADLINE_FIELD = 5  # stream_ack_deadline_seconds
PROTOCOL_FIELD = 10  # protocol_version
UPWARD_BYTES_MAX = 8 << 20  # requests of one client that wait for a forwarder

log = logging.getLogger(__name__)


class PullRelay(ForwarderStream):
    """One client's stream."""

    def __init__(self, stream: StreamingCall, streams: ForwarderStreams, number: int) -> None:
        super().__init__(streams, number)
        self.stream = stream
        self.first = b""
        self._answers_pings = False
        self._deadline_s = 0
        self._upward: deque[bytes] = deque()
        self._upward_bytes = 0
        self._sending: asyncio.Task[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._unsent: list[bytes] = []
        self._strays: list[asyncio.Task[None]] = []
        self._opened_once = self._in_turns = False
        stream.on_message = self.message
        stream.on_end = self.half_closed
        stream.on_cancel = self.cancelled
        stream.on_writable = self.writable
        stream.on_drain = self.drain

    @property
    def name(self) -> str:
        """What it is called at its forwarder, among the streams of all proxies."""
        return f"{self.streams.name}/{self.number}"

    # -- from the client ---------------------------------------------------------------------------------------------

    def message(self, request: bytes) -> None:
        """A request of the client: the first one opens a stream upstream, the others follow it."""
        if self._running is None:
            self.first = request
            self._answers_pings = _speaks_of_pings(request)
            self._running = self.streams.tasks.start(self._run())
            return
        if not request and self._upstream is None and self._answers_pings and self.record is not None:
            # A keep-alive while there is no forwarder: a client without an answer gives its stream up.
            self.stream.send(PROPERTIES[self.record.exactly_once, self.record.ordered])
            return
        try:
            seconds = split.varint_of(request, DEADLINE_FIELD)
        except Malformed:
            self._finish(not_a("StreamingPullRequest"))
            return
        if 0 < seconds < 1 << 31:
            self._deadline_s = seconds
        self._upward.append(request)
        self._upward_bytes += len(request)
        if self._upward_bytes > UPWARD_BYTES_MAX:
            self._finish(Unavailable(TRY_AGAIN))
        else:
            self._send_soon()

    def half_closed(self) -> None:
        """The client has nothing more to say, and waits for the end."""
        self._half_closed = True
        if self._running is None:
            self._finish(InvalidArgument("", "first message must set subscription"))
        else:
            self._send_soon()

    def cancelled(self) -> None:
        """End the relay: the client canceled its call."""
        self._leave(stays=False)

    def writable(self) -> None:
        """The client can take more."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def drain(self) -> None:
        """The proxy is about to stop: the client opens its stream elsewhere, once all that is underway is there."""
        if self._running is None:
            self._finish(Unavailable(TRY_AGAIN))
        elif self._ending is None:
            self._ending = Unavailable(TRY_AGAIN)
            self._close_behind()

    # -- upwards -----------------------------------------------------------------------------------------------------

    def _send_soon(self) -> None:
        if self._sending is None and self._upstream is not None:
            self._sending = self.streams.tasks.start(self._send(self._upstream))

    async def _send(self, upstream: AnyStream) -> None:
        """Pass on what waits, as the forwarder takes it. What fails is seen by who receives."""
        try:
            while self._upward and upstream is self._upstream:
                request = self._without_strays(self._upward[0])
                self._upward_bytes += len(request) - len(self._upward[0])
                self._upward[0] = request
                await upstream.send(self._wrapped(request))
                if upstream is self._upstream and self._upward and self._upward[0] is request:
                    self._upward.popleft()
                    self._upward_bytes -= len(request)
            if self._half_closed and upstream is self._upstream:
                await asyncio.gather(*self._strays, return_exceptions=True)
                await self._end_upstream(upstream)
        except SyncpointError as error:
            log.debug("a request is sent again when there is another forwarder: %s", error)
        finally:
            if self._sending is asyncio.current_task():
                self._sending = None

    async def _end_upstream(self, upstream: AnyStream) -> None:
        """Tell the forwarder that the client has ended. A forwarder whose stream ends takes the client to go on
        elsewhere, so the stream is cancelled, once everything has left; but where confirmations are still to come,
        nothing is given back that was delivered.
        """
        if self.record is not None and self.streams.serving.current(self.record).exactly_once:
            await upstream.end()
        else:
            await upstream.send(b"")  # returns when all that was sent before has left
            self._finish(None)

    def _without_strays(self, request: bytes) -> bytes:
        """The request for the forwarder that serves the stream now; what is for others goes to them."""
        member, record = self.member, self.record
        if not request or member is None or record is None:
            return request

        def is_elsewhere(lender: int) -> bool:
            holders = [(one.name, one.incarnation) for one in self.streams.serving.lease_holders(lender)]
            return bool(holders) and (member.name, member.incarnation) not in holders

        rest, strays = stray_acks.part(request, is_elsewhere)
        if strays is not None:
            self._strays = [task for task in self._strays if not task.done()]
            self._strays.append(self.streams.tasks.start(self._bring(record, strays)))
        return rest

    async def _bring(self, record: Subscription, strays: stray_acks.StrayAcks) -> None:
        try:
            await stray_acks.bring(self.streams.relay, record, strays, partial(self._confirm, record))
        except SyncpointError as error:
            self._finish(error)

    def _confirm(self, record: Subscription, response: pubsub.StreamingPullResponse) -> None:
        current = self.streams.serving.current(record)
        if current.exactly_once and not (self._left or self.stream.cancelled):
            self.stream.send(response.SerializeToString() + PROPERTIES[current.exactly_once, current.ordered])

    # -- downwards ---------------------------------------------------------------------------------------------------

    async def _subscription(self) -> Subscription:
        asked = parsed(pubsub.StreamingPullRequest, self.first)
        check_first(asked)
        return await self.streams.serving.find(asked.subscription)

    async def _relay(self, record: Subscription, member: Member) -> None:
        streams, stream = self.streams, self.stream
        self._in_turns = bool(streams.serving.current(record).transforms)
        path = methods.DELIVERIES.LendInTurns if self._in_turns else methods.SUBSCRIBER.StreamingPull
        try:
            with self._opened_at(member, path, self.name) as upstream:
                await upstream.send(self._wrapped(self._opening()))
                self._upstream = upstream
                self._send_soon()
                while (response := await upstream.receive()) is not None:
                    response = await self._unsealed(response)
                    if self._in_turns or streams.serving.current(record).transforms:
                        await self._transform(record, upstream, response)
                    elif self._left:
                        self._unsent.append(response)
                    else:
                        streams.responses += 1
                        stream.send(response, response)
                    if not stream.writable:
                        await self._until_writable()
        finally:
            self._sending = None
            if self._half_closed:
                self._take_back()
            elif not self._left:
                streams.moved += 1
            if self._unsent and record.exactly_once:
                streams.relay.give_back(record, member, self._unsent)

    def _opening(self) -> bytes:
        """The first request, as it came or, from the second time on, without acknowledgements and with the newest
        deadline.
        """
        if not self._opened_once:
            self._opened_once = True
            self.first = self._without_strays(self.first)
            return self.first
        try:
            asked = pubsub.StreamingPullRequest.FromString(self.first)
        except DecodeError:
            return self.first  # the forwarder reports what is wrong with it
        for field in ("ack_ids", "modify_deadline_seconds", "modify_deadline_ack_ids"):
            asked.ClearField(field)
        if self._deadline_s:
            asked.stream_ack_deadline_seconds = self._deadline_s
        opening: bytes = asked.SerializeToString()
        return opening

    async def _transform(self, record: Subscription, upstream: AnyStream, response: bytes) -> None:
        """Send on what the transforms leave of a response, and say what became of the rest."""
        relay, kind = self.streams.relay, pubsub.StreamingPullResponse
        if self._in_turns:
            found = await relay.transformed(record, kind, response)
        else:  # the transforms are new: a stream that lends in turns is opened in place of this one
            found = held_back(kind, response)
            self._close_behind()
        if self._left:
            self._unsent.append(response)
            return
        for part in found.responses:
            self.streams.responses += 1
            self.stream.send(part, response)
        if found.messages and self._in_turns:
            await self._say(record, upstream, found)
        else:
            relay.say(record, found)

    def _wrapped(self, request: bytes) -> bytes:
        """A request of the client as it goes to the forwarder."""
        if not self._in_turns:
            return request
        wrapped: bytes = internal.TurnRequest(request=request).SerializeToString()
        return wrapped

    async def _until_writable(self) -> None:
        self._room = asyncio.get_running_loop().create_future()
        try:
            while not (self._left or self.stream.writable):
                await asyncio.wait((self._room,))
                self._room = asyncio.get_running_loop().create_future()
        finally:
            self._room = None

    # -- the end -----------------------------------------------------------------------------------------------------

    def _finish(self, error: SyncpointError | None) -> None:
        """End the client's stream: OK only after a half-close."""
        left = self._left
        if error is None and not self._half_closed:
            error = Unavailable(TRY_AGAIN)
        self._leave(stays=isinstance(error, Unavailable))
        if not left and not self.stream.cancelled:
            self.stream.finish(error)

    def _leave(self, *, stays: bool) -> None:
        """End the relay, whichever side ended it. `stays`: the client goes on by another stream, and all that was sent
        arrives; otherwise what did not reach it is given back, where the forwarder does not do so by itself.
        """
        self._left = True
        if not stays:
            self._take_back()
        self.streams.open_streams.pop(self, None)
        if self._upstream is not None:
            self._upstream.cancel()
        self.writable()

    def _take_back(self) -> None:
        self._unsent += [token for token in self.stream.take_back() if isinstance(token, bytes)]


def _speaks_of_pings(first: bytes) -> bool:
    """Whether a client that begins so waits for answers to its keep-alives."""
    try:
        return split.varint_of(first, PROTOCOL_FIELD) >= 1
    except Malformed:
        return False  # the forwarder reports what is wrong with it
