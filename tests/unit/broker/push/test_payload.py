"""What an endpoint gets."""

from __future__ import annotations

import base64
import json

import pytest

from syncpoint.broker.inner.lent import Lent
from syncpoint.broker.push.payload import request_of
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.wire.protobuf.messages import pubsub

SUB = "projects/p/subscriptions/s"
PLAIN = pubsub.PushConfig(push_endpoint="https://e.example/")


def lent(*, attempt: int = 0, **fields: object) -> Lent:
    message = pubsub.PubsubMessage(message_id="17", **fields)
    message.publish_time.FromJsonString("2026-02-26T19:13:55.749Z")
    return Lent("a", CopyId(1, 1, 0), message, attempt)


def test_a_wrapped_message_has_every_name_google_gives() -> None:
    headers, body = request_of(
        PLAIN, SUB, lent(data=b"Hello", attributes={"b": "2", "a": "ä"}, ordering_key="k", attempt=3)
    )
    assert headers == [(b"content-type", b"application/json")]
    assert json.loads(body) == {
        "message": {
            "attributes": {"a": "ä", "b": "2"},
            "data": base64.b64encode(b"Hello").decode(),
            "messageId": "17",
            "message_id": "17",
            "orderingKey": "k",
            "publishTime": "2026-02-26T19:13:55.749Z",
            "publish_time": "2026-02-26T19:13:55.749Z",
        },
        "subscription": SUB,
        "deliveryAttempt": 3,
    }


def test_what_a_message_has_not_is_not_named() -> None:
    explicit = pubsub.PushConfig(push_endpoint="https://e.example/")
    explicit.pubsub_wrapper.SetInParent()
    for config in (PLAIN, explicit):
        body = json.loads(request_of(config, SUB, lent(attributes={"a": "1"}))[1])
        assert sorted(body["message"]) == ["attributes", "messageId", "message_id", "publishTime", "publish_time"]
        assert "deliveryAttempt" not in body


def unwrapped(*, metadata: bool) -> pubsub.PushConfig:
    config = pubsub.PushConfig(push_endpoint="https://e.example/")
    config.no_wrapper.write_metadata = metadata
    return config


def test_an_unwrapped_message_is_its_data() -> None:
    assert request_of(unwrapped(metadata=False), SUB, lent(data=b"\x00raw", attributes={"a": "1"})) == ([], b"\x00raw")


def test_metadata_become_headers() -> None:
    message = lent(data=b"raw", attributes={"Content-Type": "text/csv", "color": "red"}, ordering_key="k")
    headers, body = request_of(unwrapped(metadata=True), SUB, message)
    assert body == b"raw"
    assert headers == [
        (b"x-goog-pubsub-subscription-name", SUB.encode()),
        (b"x-goog-pubsub-message-id", b"17"),
        (b"x-goog-pubsub-publish-time", b"2026-02-26T19:13:55.749Z"),
        (b"x-goog-pubsub-ordering-key", b"k"),
        (b"content-type", b"text/csv"),
        (b"color", b"red"),
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Host", "internal"), ("authorization", "Bearer x"), ("Content-Length", "0"), ("Transfer-Encoding", "chunked"),
        ("x-goog-pubsub-message-id", "18"), ("X-Goog-Authenticated-User", "me"), ("x-forwarded-for", "10.0.0.1"),
        ("bad name", "x"), ("naïve", "x"), ("", "x"), ("a:b", "x"), ("fine", "x\r\ninjected: y"), ("fine", "x\0y"),
        ("fine", "x\ny"),
    ],
)  # fmt: skip
def test_attributes_that_are_no_headers_or_would_be_ours_are_left_out(name: str, value: str) -> None:
    headers, _ = request_of(unwrapped(metadata=True), SUB, lent(data=b"x", attributes={name: value}))
    assert len(headers) == 3
