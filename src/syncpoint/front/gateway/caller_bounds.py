"""How much each caller may have under way through a gateway: streams, and bytes of requests.

Place: asked by the relays before anything is sent on. A caller is who shows the same authorization, or the address it
comes from where it shows none; the gateway reads no token, it compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

from syncpoint.base.model.errors import ResourceExhausted
from syncpoint.wire.transport.calls import CallContext

ALL_STREAMS_MAX = 20_000
ALL_BYTES_MAX = 1 << 30
"""Of all callers: one who shows another authorization with each call is another caller each time."""


def caller_of(call: CallContext) -> str:
    """Who makes a call, for counting."""
    shown = call.metadata.get(b"authorization")
    if shown:
        return blake2b(shown, digest_size=12).hexdigest()
    host, _, _ = call.peer.rpartition(":")
    return host


class CallerBounds:
    """What callers have under way; those with nothing are forgotten."""

    def __init__(self, streams_max: int, bytes_max: int) -> None:
        self.streams_max, self.bytes_max = streams_max, bytes_max
        self._streams: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self.open_streams = 0  # of all callers
        self._all_bytes = 0
        self.refused = 0

    @contextmanager
    def sending(self, call: CallContext, size: int) -> Iterator[None]:
        """Count a request while it is under way. Raises `ResourceExhausted`; one request is always let through."""
        who = caller_of(call)
        held = self._bytes.get(who, 0)
        if held and held + size > self.bytes_max:
            self.refused += 1
            raise ResourceExhausted(
                f"{held:,} bytes of this caller are under way through the gateway, of {self.bytes_max:,}"
                " (bytes_per_caller). Wait for answers, then try again."
            )
        if self._all_bytes + size > ALL_BYTES_MAX:
            self.refused += 1
            raise ResourceExhausted(
                f"{self._all_bytes:,} bytes of all callers are under way through the gateway, of {ALL_BYTES_MAX:,}."
                " Try again later, or run more gateways."
            )
        self._bytes[who] = held + size
        self._all_bytes += size
        try:
            yield
        finally:
            self._all_bytes -= size
            left = self._bytes.get(who, 0) - size
            if left:
                self._bytes[who] = left
            else:
                self._bytes.pop(who, None)  # an empty request leaves nothing to count

    def open_stream(self, call: CallContext) -> str:
        """Count a stream until `close_stream` of what is returned. Raises `ResourceExhausted`."""
        who = caller_of(call)
        if self.open_streams >= ALL_STREAMS_MAX:
            self.refused += 1
            raise ResourceExhausted(
                f"{ALL_STREAMS_MAX:,} streams of all callers are open at the gateway, which is the most. Try again"
                " later, or run more gateways."
            )
        if self._streams.get(who, 0) >= self.streams_max:
            self.refused += 1
            raise ResourceExhausted(
                f"This caller has {self.streams_max:,} streams open at the gateway, which is the most"
                " (streams_per_caller). Close some of them, then try again."
            )
        self._streams[who] = self._streams.get(who, 0) + 1
        self.open_streams += 1
        return who

    def close_stream(self, who: str) -> None:
        """A stream is over."""
        self.open_streams -= 1
        self._streams[who] -= 1
        if not self._streams[who]:
            del self._streams[who]
