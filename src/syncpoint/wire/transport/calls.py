"""Calls as a method sees them: the context of a caller, and its stream.

Place: the face of the transport to `api`; implemented by `server_streams` over sockets and by `memory` without.
Promise: a handler is called once per call; after the answer, or after `on_cancel`, nothing more is called and what is
sent goes nowhere.
Leaves to the handler: to answer every call, and to stop its work in `on_cancel`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from syncpoint.base.model.errors import SyncpointError
from syncpoint.wire.transport.call_counts import CallCounts
from syncpoint.wire.transport.stream_state import Message

if TYPE_CHECKING:
    from syncpoint.wire.transport.call_batches import CallBatch


class AnyConnection(Protocol):
    """The connection of a call, as asyncio's transports are."""

    def is_closing(self) -> bool: ...


class CallContext(Protocol):
    """What both kinds of call know. `deadline`: monotonic seconds, in the time of the event loop; `metadata` must not
    be changed."""

    @property
    def path(self) -> bytes: ...
    @property
    def metadata(self) -> dict[bytes, bytes]: ...
    @property
    def deadline(self) -> float | None: ...
    @property
    def peer(self) -> str: ...
    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The caller's certificate, as `ssl` describes one it has verified; empty or None without one."""
        ...

    @property
    def connection(self) -> AnyConnection | None:
        """What it came by; calls of one connection have the same object. None: by no connection of its own."""
        ...

    @property
    def cancelled(self) -> bool: ...

    on_cancel: Callable[[], object] | None
    """Called once when the caller is gone: reset, connection lost, deadline passed."""


class Call(CallContext, Protocol):
    """A unary call; answered once by `reply` or `fail`, now or later. Later answers are ignored."""

    @property
    def began(self) -> float:
        """When the call began, in the time of the event loop."""
        ...

    @property
    def noted(self) -> dict[str, float]:
        """Shared by the calls of one connection: until when it is known that the connection calls for a name, in the
        time of the event loop. For `api.connected_clients`."""
        ...

    def reply(self, message: Message) -> None: ...
    def fail(self, error: SyncpointError) -> None: ...


class StreamingCall(CallContext, Protocol):
    """A streaming call. The handler sets the callbacks before it returns."""

    on_message: Callable[[bytes], None] | None
    on_end: Callable[[], None] | None
    """The caller closed its side."""
    on_writable: Callable[[], None] | None
    """Called once after `writable` was read as False and became True."""
    on_drain: Callable[[], object] | None
    """The server is about to stop; the application should `finish` the stream soon."""

    @property
    def over(self) -> bool:
        """True once the call was finished or the caller is gone."""
        ...

    @property
    def writable(self) -> bool:
        """False while bytes are held back by windows or the socket; do not send then."""
        ...

    def keep(self, more: int) -> None:
        """So many bytes of messages that came are still to be worked through (negative: are not any more). The caller
        gets no window for them, so it stops sending when they are as many as the window of a stream.
        """
        ...

    def send(self, message: Message, token: object = None) -> None:
        """Send one message. `token` comes back from `take_back` if nothing of it left."""
        ...

    def finish(self, error: SyncpointError | None = None) -> None:
        """End the stream after what was sent: OK, or `error`."""
        ...

    def take_back(self) -> list[object]:
        """Tokens of messages none of whose bytes left, and now never will; also after `on_cancel`."""
        ...


@dataclass(frozen=True, slots=True)
class Unary:
    """A method with one request and one response. The handler runs synchronously with the request's bytes.

    `batch_handler(batch, at)` takes calls of one caller that came one right after the other, from the one at `at` on,
    and returns how many it took, all about the resource that the first one names; 0, or a
    `SyncpointError`: `handler` is to serve that one. None: each call is served alone.
    """

    handler: Callable[[Call, bytes], None]
    counts: CallCounts = field(default_factory=CallCounts, compare=False, repr=False)
    batch_handler: Callable[[CallBatch, int], int] | None = None
    variant: tuple[bytes, Trailing] | None = field(default=None, compare=False, repr=False)
    """What serves calls that carry this header, in place of `handler`; it has passed no gate."""

    def varied(self, header: bytes, variant: Trailing) -> Unary:
        """Return the method with a variant for calls that carry a header."""
        return replace(self, variant=(header, variant))

    def guarded_by(self, handler: Callable[[Call, bytes], None]) -> Unary:
        """Return the method with a handler that checks each call before it passes it on; none is served in a batch."""
        return replace(self, handler=handler, batch_handler=None, variant=None)


class Trailing(Unary):
    """One whose answers may have trailers of their own: its calls have `trail(name, value)`."""


class Preceding(Unary):
    """One whose answers go ahead of streams of their connection, see `Streaming`."""


@dataclass(frozen=True, slots=True)
class Streaming:
    """A method with streams. The handler runs when the head arrived. `behind`: path of a unary method; see
    `behind_answers`.
    """

    handler: Callable[[StreamingCall], None]
    behind: bytes = b""
    counts: CallCounts = field(default_factory=CallCounts, compare=False, repr=False)


Methods = Mapping[bytes, Unary | Streaming]
"""Methods by path (b"/package.Service/Method"). Looked up once per header block of a connection: fill it before
serving."""
