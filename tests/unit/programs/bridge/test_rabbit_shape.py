"""Headers of RabbitMQ, also those that its library reads wrong or not at all."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pika.data
import pytest
from pika.spec import Basic, BasicProperties

from syncpoint.programs.bridge.bridge_file import IncomingRule
from syncpoint.programs.bridge.message_shape import shaped
from syncpoint.programs.bridge.rabbit_shape import DEPTH_MAX, foreign, header_text, read_headers_whole


@pytest.fixture(autouse=True)
def whole_headers() -> Iterator[None]:
    before = pika.data.decode_value
    read_headers_whole()
    yield
    pika.data.decode_value = before


def table(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def text_of(value: bytes) -> str:
    """The text of a header's value, as it comes over the network."""
    found, end = pika.data.decode_table(table(b"\x01n" + value) + b"rest", 0)
    assert end == 6 + len(value)
    return header_text(found["n"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"d" + struct.pack(">d", 2.75), "2.75"),
        (b"f" + struct.pack(">f", -0.5), "-0.5"),
        (b"d" + struct.pack(">d", float("nan")), "NaN"),
        (b"D\x02" + struct.pack(">i", 1050), "10.50"),
        (b"A" + table(b"D\x01" + struct.pack(">i", 5) + b"t\x01"), '["0.5", true]'),
        (b"T" + struct.pack(">Q", 0), "1970-01-01T00:00:00+00:00"),
        (b"T" + struct.pack(">Q", 1_764_500_000_000), "1764500000000"),
        (b"T" + struct.pack(">Q", 2**64 - 1), "18446744073709551615"),
        (b"F" + table(b"\x01\xff" + b"V"), '{"/w==": null}'),
        (b"S" + table(b"\xff"), "/w=="),
        (b"l" + struct.pack(">q", -1), "-1"),
    ],
)
def test_a_header_keeps_its_value(value: bytes, text: str) -> None:
    assert text_of(value) == text


def test_a_table_of_any_depth_is_read() -> None:
    value = b"V"
    for _ in range(10_000):
        value = b"F" + table(b"\x01a" + value)
    text = text_of(value)
    assert text.startswith('{"a": {"a": ')
    assert text.count('"a": ') == DEPTH_MAX


def came(routing_key: Any, headers: dict[Any, Any], **fields: Any) -> Any:
    method = Basic.Deliver(exchange="", routing_key=routing_key)
    return foreign("orders", method, BasicProperties(headers=headers, **fields), b"x")


def test_names_that_are_no_text_do_no_harm() -> None:
    found = came(b"\xff", {b"\xff": 1, "unit": "C"}, type=b"\xfe", message_id=b"\xfd")
    made = shaped(found, IncomingRule("all", "{routing_key}", "{message_id}"), "p")
    assert (made.key, made.attributes["sys.MessageId"], made.attributes["/w=="]) == ("/w==", "/Q==", "1")
    assert made.attributes["rabbitmq.type"] == "/g=="


def test_a_sender_reaches_no_topic_of_another_project() -> None:
    forged = came("projects/q/topics/all", {})
    for template in ("{routing_key}", "{1}"):
        with pytest.raises(ValueError, match="projects/p/topics/projects/q"):
            shaped(forged, IncomingRule(template), "p")
    assert shaped(forged, IncomingRule("projects/q/topics/all"), "p").topic == "projects/q/topics/all"
