"""Messages as fields of a Publish request, made without an object for each.

Place: in front of `publish_queue`, in the thread that publishes. A request is its topic and then these bytes, joined.
Promise: what the classes of protobuf would write for the same messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from syncpoint.client.client_errors import MessageTooLargeError
from syncpoint.client.client_options import REQUEST_BYTES_MAX

TOPIC_BYTES_MAX = 1_000
MESSAGE_BYTES_MAX = REQUEST_BYTES_MAX - TOPIC_BYTES_MAX


@lru_cache(maxsize=4096)
def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def text_field(tag: bytes, value: bytes) -> bytes:
    """A string or bytes field; `tag`: its number and kind."""
    return b"%b%b%b" % (tag, varint(len(value)), value)


@lru_cache(maxsize=4096)
def plain_head(size: int) -> bytes:
    """What stands before the data of a message that is nothing but its data, of this many bytes."""
    head = b"\x0a" + varint(size)
    return b"\x12" + varint(len(head) + size) + head


@lru_cache(maxsize=64)
def topic_field(topic: str) -> bytes:
    """How a Publish request begins."""
    return text_field(b"\x0a", topic.encode())


def encode_message(data: bytes, ordering_key: str, attributes: Mapping[str, str]) -> bytes:
    """One message as a field of a Publish request. Raises `TypeError` and `MessageTooLargeError`."""
    if not isinstance(data, bytes):
        raise TypeError(f"data must be bytes, and is {type(data).__name__}")
    if not ordering_key and not attributes:
        found = plain_head(len(data)) + data
    else:
        fields = [text_field(b"\x0a", data)] if data else []
        for name, value in attributes.items():
            if not isinstance(value, str):
                raise TypeError(f"the attribute {name} must be a string, and is {type(value).__name__}")
            fields.append(text_field(b"\x12", text_field(b"\x0a", name.encode()) + text_field(b"\x12", value.encode())))
        if ordering_key:
            fields.append(text_field(b"\x2a", ordering_key.encode()))
        found = text_field(b"\x12", b"".join(fields))
    if len(found) > MESSAGE_BYTES_MAX:
        raise MessageTooLargeError(f"a message of {len(found):,} bytes: at most {MESSAGE_BYTES_MAX:,} can be sent")
    return found


def encode_plain(datas: Sequence[bytes]) -> bytes:
    """Messages without key and attributes, one after the other. Raises `TypeError`."""
    parts: list[bytes] = [b""] * (2 * len(datas))
    parts[::2] = [plain_head(len(data)) for data in datas]
    parts[1::2] = datas
    return b"".join(parts)
