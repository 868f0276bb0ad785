"""A connection that publishes, whose bytes are written by hand, and its server's end without a socket."""

from __future__ import annotations

import asyncio
from typing import Any

from hpack import Encoder

from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport import frames
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.server import Server
from syncpoint.wire.transport.server_connection import ServerConnection


class PublishingConnection:
    """A client's connection whose bytes are written by hand, and a socket that keeps what is written."""

    def __init__(self, methods: Methods) -> None:
        loop: Any = asyncio.get_running_loop()
        self.conn = ServerConnection(loop, Server(methods, TransportLimits(), None, loop))
        self.written = bytearray()
        self.encoder, self.next = Encoder(), 1
        self.conn.connection_made(self)  # type: ignore[arg-type]
        self.conn.data_received(frames.PREFACE + frames.settings({}))

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.1", 4711) if name == "peername" else None

    def set_write_buffer_limits(self, high: int | None = None) -> None: ...
    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def close(self) -> None: ...
    def send(self, *requests: bytes) -> list[int]:
        """Publish by one write; the numbers of the streams."""
        sids, data = [], bytearray()
        for request in requests:
            head = [(":method", "POST"), (":scheme", "http"), (":path", "/google.pubsub.v1.Publisher/Publish")]
            block = self.encoder.encode([*head, (":authority", "x"), ("content-type", "application/grpc")])
            body = b"\0" + len(request).to_bytes(4, "big") + request
            data += frames.headers(self.next, block, end=False, frame_bytes=16384)
            data += frames.frame(frames.DATA, frames.END_STREAM, self.next, body)
            sids.append(self.next)
            self.next += 2
        self.conn.data_received(bytes(data))
        return sids

    def answers(self, sids: list[int]) -> list[list[str] | None]:
        """The ids that each stream was answered; None: it failed, or has no answer."""
        bodies: dict[int, bytes] = {}
        for frame in frames.parse(bytes(self.written)):
            if frame.kind == frames.DATA:
                bodies[frame.sid] = bodies.get(frame.sid, b"") + frame.payload
        return [
            list(pubsub.PublishResponse.FromString(bodies[sid][5:]).message_ids) if sid in bodies else None
            for sid in sids
        ]


def publish_request(*data: str, topic: str, key: str = "", **attributes: str) -> bytes:
    """A serialised PublishRequest of one message for each of `data`."""
    messages = [pubsub.PubsubMessage(data=one.encode(), ordering_key=key, attributes=attributes) for one in data]
    return pubsub.PublishRequest(topic=topic, messages=messages).SerializeToString()
