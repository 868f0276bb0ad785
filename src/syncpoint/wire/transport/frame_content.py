"""Takes padding and priority off frames, and puts header blocks together that come in several frames.

Place: asked by the loop over frames for what is rare: flags PADDED and PRIORITY, and CONTINUATION.
Promise: content never reaches beyond its frame; a block is bounded in bytes and in frames.
Leaves to the connection: that nothing else comes in the middle of a block.
"""

from __future__ import annotations

from syncpoint.wire.transport import frames
from syncpoint.wire.transport.frames import ConnectionFault, ErrorCode
from syncpoint.wire.transport.limits import TransportLimits

PADDED, PRIORITY = 0x8, 0x20
"""Flags that say that there is more in a frame than its content."""


def content(flags: int, sid: int, data: bytes, start: int, end: int) -> tuple[int, int]:
    """Where the content of the frame in data[start:end] lies between priority fields and padding."""
    if flags & PADDED:
        if start == end:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "no room for the padding's length")
        pad = data[start]
        start += 1
        end -= pad
    if flags & PRIORITY:
        if end - start < 5:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "no room for priority fields")
        if int.from_bytes(data[start : start + 4], "big") & frames.WINDOW_MAX == sid:
            # The block after it must still be decoded to keep the table right; ending the connection is allowed too.
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "stream depends on itself")
        start += 5
    if end < start:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "more padding than payload")
    return start, end


class HeaderBlock:
    """The block of stream `sid`, of which CONTINUATION frames are still to come. `last`: it ends its stream."""

    __slots__ = ("_frames", "_limits", "data", "last", "sid")

    def __init__(self, sid: int, last: int, block: bytes, limits: TransportLimits) -> None:
        self.sid = sid
        self.last = last
        self.data = bytearray(block)
        self._frames = 0
        self._limits = limits

    def add(self, payload: bytes) -> None:
        """Append what one more frame brings."""
        self._frames += 1
        limits = self._limits
        if self._frames > limits.continuations_per_block or len(self.data) + len(payload) > limits.header_block_bytes:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "header block too large")
        self.data += payload
