"""What each frame without content does to a connection: SETTINGS, PING, WINDOW_UPDATE, RST_STREAM, GOAWAY and others.

Place: called by the loop over frames in `connection`, which handles DATA and header blocks itself.
Promise: what breaks a rule of RFC 9113 raises the fault that the RFC names, before anything is changed.
Leaves to the roles: what a peer's GOAWAY, settings or answered PING mean to their calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from syncpoint.wire.transport import frames, guard
from syncpoint.wire.transport.frames import ConnectionFault, ErrorCode, SettingId, StreamFault

if TYPE_CHECKING:
    from syncpoint.wire.transport.connection import Connection

_SID = frames.WINDOW_MAX


def _window_update(conn: Connection, flags: int, sid: int, payload: bytes) -> None:
    if len(payload) != 4:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "bad WINDOW_UPDATE")
    conn.guard.count(guard.UPDATES)
    more = int.from_bytes(payload, "big") & _SID
    if sid == 0:
        if more == 0:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "window update by 0")
        conn.widen(more)
        return
    stream = conn.stream_of(sid)
    if stream is None:
        if conn.idle(sid):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE on an idle stream")
        return
    if more == 0:
        raise StreamFault(sid, ErrorCode.PROTOCOL_ERROR, "window update by 0")
    stream.more_window(more)


def _ping(conn: Connection, flags: int, sid: int, payload: bytes) -> None:
    if sid:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
    if len(payload) != 8:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "bad PING")
    if flags & frames.ACK and conn.on_pong(payload):
        return
    conn.guard.count(guard.PINGS)
    if not flags & frames.ACK:
        conn.out.append(frames.frame(frames.PING, frames.ACK, 0, payload))


def _settings(conn: Connection, flags: int, sid: int, payload: bytes) -> None:
    if sid:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream")
    if len(payload) % 6 or (flags & frames.ACK and payload):
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "bad SETTINGS")
    conn.guard.count(guard.SETTINGS)
    if flags & frames.ACK:
        return
    for key, value in frames.read_settings(payload):
        _set(conn, key, value)
    conn.liveness.greeted = True
    conn.out.append(frames.frame(frames.SETTINGS, frames.ACK, 0))
    conn.on_settings()


def _set(conn: Connection, key: int, value: int) -> None:
    if key == SettingId.INITIAL_WINDOW_SIZE:
        if value > frames.WINDOW_MAX:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "initial window too large")
        more = value - conn.peer_window
        conn.peer_window = value
        if more:
            for stream in list(conn.streams.values()):
                try:
                    stream.more_window(more)
                except StreamFault as fault:
                    raise ConnectionFault(fault.code, fault.reason) from None
    elif key == SettingId.MAX_FRAME_SIZE:
        if not frames.FRAME_BYTES_MIN <= value <= frames.FRAME_BYTES_MAX:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "bad frame size")
        conn.peer_frame_bytes = value
    elif key == SettingId.ENABLE_PUSH:
        if value > 1 or (value and not conn.server_side):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "bad ENABLE_PUSH")
    elif key == SettingId.MAX_CONCURRENT_STREAMS:
        conn.peer_streams = value
    elif key == SettingId.MAX_HEADER_LIST_SIZE:
        conn.peer_list_bytes = value


def _reset(conn: Connection, flags: int, sid: int, payload: bytes) -> None:
    if len(payload) != 4:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "bad RST_STREAM")
    if sid == 0 or conn.idle(sid):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "RST_STREAM on an idle stream")
    conn.guard.count(guard.RESETS)
    conn.ignored.pop(sid, None)
    stream = conn.stream_of(sid)
    if stream is not None:
        code = int.from_bytes(payload, "big")
        stream.close()
        stream.lost(conn.reset_error(code))


def _goaway(conn: Connection, flags: int, sid: int, payload: bytes) -> None:
    if sid or len(payload) < 8:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR if sid else ErrorCode.FRAME_SIZE_ERROR, "bad GOAWAY")
    conn.guard.count(guard.EMPTIES)
    last, code = int.from_bytes(payload[:4], "big") & _SID, int.from_bytes(payload[4:8], "big")
    conn.on_goaway(last, code, payload[8:264])


def _push_promise(conn: Connection, flags: int, sid: int, payload: bytes) -> None:
    raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE")


def _priority(conn: Connection, flags: int, sid: int, payload: bytes) -> None:
    conn.guard.count(guard.EMPTIES)
    if sid == 0:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PRIORITY on stream 0")
    if len(payload) != 5:
        raise StreamFault(sid, ErrorCode.FRAME_SIZE_ERROR, "bad PRIORITY")
    if int.from_bytes(payload[:4], "big") & _SID == sid:
        raise StreamFault(sid, ErrorCode.PROTOCOL_ERROR, "stream depends on itself")


def unknown(conn: Connection, flags: int, sid: int, payload: bytes) -> None:
    """Ignore a kind of frame that is not in `HANDLERS`."""
    conn.guard.count(guard.EMPTIES)


HANDLERS: dict[int, Callable[[Connection, int, int, bytes], None]] = {
    frames.WINDOW_UPDATE: _window_update,
    frames.PING: _ping,
    frames.SETTINGS: _settings,
    frames.RST_STREAM: _reset,
    frames.GOAWAY: _goaway,
    frames.PUSH_PROMISE: _push_promise,
    frames.PRIORITY: _priority,
}
"""Called with the connection, and flags, stream and payload of a frame of this kind."""
