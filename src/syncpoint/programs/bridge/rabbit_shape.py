"""Messages of AMQP 0.9.1: what of their properties and headers are attributes, and the other way.

Place: beside `message_shape`, which makes messages of topics of what is returned.
"""

from __future__ import annotations

import base64
import datetime
import json
import struct
import threading
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import pika.data
from pika.spec import Basic, BasicProperties

from syncpoint.programs.bridge.message_shape import (
    MESSAGE_ID,
    BridgedMessage,
    ForeignMessage,
    UnfitMessage,
    user_attributes,
)

STREAM_OFFSET: Final = "x-stream-offset"
BROKERS: Final = (STREAM_OFFSET, "x-delivery-count", "x-death", "x-received-from")
"""Headers that the broker writes: they say how a message came here, and may be long."""
TEXTS: Final = {
    "rabbitmq.contentType": "content_type",
    "rabbitmq.contentEncoding": "content_encoding",
    "rabbitmq.correlationId": "correlation_id",
    "rabbitmq.replyTo": "reply_to",
    "rabbitmq.expiration": "expiration",
    "rabbitmq.messageId": "message_id",
    "rabbitmq.type": "type",
    "rabbitmq.userId": "user_id",
    "rabbitmq.appId": "app_id",
}
NOT_SENT: Final = ("rabbitmq.userId", "rabbitmq.expiration", "rabbitmq.messageId")
"""The broker checks the user, an expiry was counted from another time, and the id is written anew."""
PRIORITY: Final = "rabbitmq.priority"
TIMESTAMP: Final = "rabbitmq.timestamp"
SHORT_BYTES_MAX: Final = 255
HEADERS_BYTES_MAX: Final = 100_000  # a frame has 131,072
DEPTH_MAX: Final = 32  # of tables and arrays in a header; what is deeper stays bytes
TIME_MAX: Final = 253_402_300_799  # seconds: the end of the year 9999


def foreign(queue: str, method: Basic.Deliver, properties: BasicProperties, body: bytes) -> ForeignMessage:
    """A message as it came."""
    headers: Mapping[str, Any] = properties.headers or {}
    pairs = [(header_text(name), header_text(value)) for name, value in headers.items() if name not in BROKERS]
    values = {
        "queue": queue, "exchange": header_text(method.exchange), "routing_key": header_text(method.routing_key)
    }  # fmt: skip
    values |= {f"header.{name}": value for name, value in pairs}
    values |= {str(number): word for number, word in enumerate(values["routing_key"].split("."), 1)}
    if properties.message_id:
        values["message_id"] = header_text(properties.message_id)
    attributes = user_attributes(pairs) | {"rabbitmq.queue": queue, "rabbitmq.routingKey": values["routing_key"]}
    if method.exchange:
        attributes["rabbitmq.exchange"] = values["exchange"]
    if STREAM_OFFSET in headers:
        values["offset"] = attributes["rabbitmq.offset"] = str(headers[STREAM_OFFSET])
    for name, known in TEXTS.items():
        if text := getattr(properties, known):
            attributes[name] = header_text(text)
    for name, number in ((PRIORITY, properties.priority), (TIMESTAMP, properties.timestamp)):
        if number is not None:
            attributes[name] = str(number)
    return ForeignMessage(f"the queue {queue!r}", body, values, attributes)


def header_text(value: Any) -> str:
    """The value of a header as text: numbers and truth as JSON has them, bytes that are no text in base64."""
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _plain(value: Any) -> Any:
    """What JSON can have."""
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {_plain(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


_library_reads: Callable[[bytes, int], tuple[Any, int]] = pika.data.decode_value
_within = threading.local()


def read_headers_whole() -> None:
    """Have the library read headers as they were sent. By itself it cuts 2.5 to 2, and fails at a time after the year
    9999, at NaN and at deep tables: one such message would end each connection that it comes over.
    """
    pika.data.decode_value = _read_header


def _read_header(encoded: bytes, offset: int) -> tuple[Any, int]:
    kind, begin = encoded[offset : offset + 1], offset + 1
    if kind == b"f":
        return struct.unpack_from(">f", encoded, begin)[0], begin + 4
    if kind == b"d":
        return struct.unpack_from(">d", encoded, begin)[0], begin + 8
    if kind == b"T":
        (seconds,) = struct.unpack_from(">Q", encoded, begin)
        if seconds > TIME_MAX:
            return seconds, begin + 8
    if kind not in (b"A", b"F"):
        return _library_reads(encoded, offset)
    depth = getattr(_within, "depth", 0)
    if depth >= DEPTH_MAX:
        end = begin + 4 + struct.unpack_from(">I", encoded, begin)[0]
        return encoded[begin + 4 : end], end
    _within.depth = depth + 1
    try:
        return _library_reads(encoded, offset)
    finally:
        _within.depth = depth


def published(message: BridgedMessage) -> BasicProperties:
    """Properties and headers to send. Raises `UnfitMessage`."""
    rule, given = message.rule, message.given
    texts = {known: given[name] for name, known in TEXTS.items() if name in given and name not in NOT_SENT}
    texts["message_id"] = given.get(MESSAGE_ID) or message.id
    if rule.content_type:
        texts["content_type"] = rule.content_type
    if rule.expiry_ms:
        texts["expiration"] = str(rule.expiry_ms)
    for name, text in {"routing key": message.target, **texts}.items():
        if len(text.encode()) > SHORT_BYTES_MAX:
            raise UnfitMessage(f"its {name} has more than {SHORT_BYTES_MAX} bytes")
    if any(len(name.encode()) > SHORT_BYTES_MAX for name in message.headers):
        raise UnfitMessage(f"the name of an attribute has more than {SHORT_BYTES_MAX} bytes")
    if sum(len(name.encode()) + len(one.encode()) + 6 for name, one in message.headers.items()) > HEADERS_BYTES_MAX:
        raise UnfitMessage(f"its attributes have more than {HEADERS_BYTES_MAX:,} bytes")
    return BasicProperties(
        **texts,
        headers=dict(message.headers),
        delivery_mode=2,
        priority=_whole(given, PRIORITY, 255),
        timestamp=_whole(given, TIMESTAMP, 2**63 - 1),
    )


def _whole(given: Mapping[str, str], name: str, most: int) -> int | None:
    text = given.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and int(text) <= most else None
