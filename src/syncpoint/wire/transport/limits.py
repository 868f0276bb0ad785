"""Every bound of the transport, in one place.

Place: handed to `serve` and `Channel`; read by the connection, its streams and its guard.
Promise: a peer that goes over a bound is refused, slowed or cut off; memory held for one connection stays below
`concurrent_streams * stream_window_bytes + receive_extra_bytes + unsent_bytes + socket_buffer_bytes` and the blocks of
its headers; over all connections of a process what comes in is bounded by `held_bytes`, what goes out by
`unsent_total_bytes`.
Leaves to the operating system: the number of packets, and what lies in socket buffers.

Names end in their unit. `interval` below is `interval_s`; a count per interval starts anew when it is over.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncpoint.base.model.limits import RPC_REQUEST_BYTES_MAX

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """Bounds of one server or channel; the defaults suit official Pub/Sub clients."""

    # -- sizes -----------------------------------------------------------------------------------------------------
    message_bytes: int = RPC_REQUEST_BYTES_MAX
    """Largest message received (also after decompression); a larger one fails its call with RESOURCE_EXHAUSTED."""
    frame_bytes: int = 256 * 1024
    """SETTINGS_MAX_FRAME_SIZE as announced to the peer (16,384 .. 16,777,215); a larger frame ends the connection."""
    header_block_bytes: int = 32 * 1024
    """Compressed header block, HEADERS plus CONTINUATION; a larger one ends the connection."""
    header_list_bytes: int = 16 * 1024
    """Decoded header list (RFC 9113, 6.5.2), as announced; a larger one fails its call with RESOURCE_EXHAUSTED."""
    header_list_bytes_hard: int = 64 * 1024
    """Decoded header list at which decoding stops and the connection ends (a header bomb)."""
    header_cache_blocks: int = 128
    """Decoded header blocks remembered per connection."""

    # -- receiving -------------------------------------------------------------------------------------------------
    stream_window_bytes: int = 256 * 1024
    """Bytes a peer may send on one stream before we have consumed them."""
    connection_window_bytes: int = 16 * MIB
    """Bytes a peer may send on one connection ahead of our reading of its frames."""
    receive_extra_bytes: int = 64 * MIB
    """Window given beyond `stream_window_bytes`, over all streams of a connection, to messages larger than it.
    One message is always let in."""
    held_bytes: int = 1024 * MIB
    """Unfinished messages over all connections of a server; above it the growing call fails with RESOURCE_EXHAUSTED."""

    # -- sending ---------------------------------------------------------------------------------------------------
    socket_buffer_bytes: int = MIB
    """Bytes handed to the socket beyond which streams are no longer writable."""
    unsent_bytes: int = 128 * MIB
    """Bytes waiting for windows or the socket on one connection; above it the connection ends (a slow reader)."""
    unsent_total_bytes: int = 512 * MIB
    """The same over all connections of a process, with what sockets have not taken yet; above it connections end, the
    largest and slowest first."""
    stall_s: float = 120.0
    """Seconds without any progress of a full socket, or of an answer that is complete; then it is cut off."""

    # -- counts ----------------------------------------------------------------------------------------------------
    connections: int = 10_000
    """Open connections of a server; one more is closed at once."""
    concurrent_streams: int = 1000
    """Open streams of a connection (SETTINGS_MAX_CONCURRENT_STREAMS); one more is refused with REFUSED_STREAM."""
    interval_s: float = 10.0
    """Length of the interval the following counts are taken over."""
    resets_per_interval: int = 4000
    """Streams reset by the peer, or by us for its mistakes (rapid reset)."""
    settings_per_interval: int = 1000
    """SETTINGS frames."""
    pings_per_interval: int = 100_000
    """PING frames. Generous: clients that estimate bandwidth send one per round trip."""
    empties_per_interval: int = 10_000
    """Frames that bring nothing: DATA without a byte or an end, PRIORITY, unknown types."""
    updates_per_interval: int = 500_000
    """WINDOW_UPDATE frames."""
    continuations_per_block: int = 32
    """CONTINUATION frames of one header block."""

    # -- times -----------------------------------------------------------------------------------------------------
    handshake_s: float = 10.0
    """Seconds that TLS may take."""
    greeting_s: float = 5.0
    """Seconds from then on, without TLS from the beginning, until preface and first SETTINGS have come."""
    first_request_s: float = 10.0
    """Seconds after its greeting at which a connection that has asked for nothing is drained: its client connects again
    when it has something to ask."""
    frame_s: float = 60.0
    """Seconds that one frame, or one header block, may take from its first byte to its last."""
    keepalive_s: float = 60.0
    """Silence after which we send a PING; 0 sends none."""
    keepalive_answer_s: float = 20.0
    """Silence after our PING at which the connection counts as dead."""
    drain_ping_s: float = 1.0
    """Seconds a draining connection waits for the answer to its PING before it names the last stream."""
    close_s: float = 2.0
    """Seconds a closed connection may take to write its last bytes."""
    sweep_s: float = 1.0
    """How often the times above are checked."""
