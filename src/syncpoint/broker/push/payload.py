"""The HTTP request that carries a message: wrapped in JSON, or its data alone.

Place: pure functions under the driver. JSON bodies have every name that Pub/Sub gives, in camel case and, for
`message_id` and `publish_time`, in snake case, too: programs in the field read either.
Promise: nothing that a publisher wrote ends up in a header of our own, or breaks out of one.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from syncpoint.broker.inner.lent import Lent
from syncpoint.wire.protobuf.messages import pubsub

Headers = list[tuple[bytes, bytes]]
JSON_TYPE = (b"content-type", b"application/json")
_METADATA = "x-goog-pubsub-"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_VALUES = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Framing, routing and identity of the request belong to who sends it.
_OURS = frozenset((
    "authorization", "connection", "content-encoding", "content-length", "cookie", "expect", "forwarded", "host",
    "http2-settings", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding",
    "upgrade", "user-agent", "via",
))  # fmt: skip
_OUR_PREFIXES = ("x-goog-", "x-forwarded-", "proxy-", "sec-")


def request_of(config: pubsub.PushConfig, subscription: str, lent: Lent) -> tuple[Headers, bytes]:
    """Headers and body of the push of one message."""
    if config.WhichOneof("wrapper") != "no_wrapper":
        return [JSON_TYPE], wrapped(subscription, lent)
    headers = metadata_headers(subscription, lent) if config.no_wrapper.write_metadata else []
    return headers, lent.message.data


def wrapped(subscription: str, lent: Lent) -> bytes:
    """The message as JSON."""
    message = lent.message
    time = message.publish_time.ToJsonString()
    content: dict[str, Any] = {}
    if message.attributes:
        content["attributes"] = dict(sorted(message.attributes.items()))
    if message.data:
        content["data"] = base64.b64encode(message.data).decode()
    content["messageId"] = content["message_id"] = message.message_id
    if message.ordering_key:
        content["orderingKey"] = message.ordering_key
    content["publishTime"] = content["publish_time"] = time
    body: dict[str, Any] = {"message": content, "subscription": subscription}
    if lent.attempt:
        body["deliveryAttempt"] = lent.attempt
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def metadata_headers(subscription: str, lent: Lent) -> Headers:
    """Metadata and attributes of a message as headers. Attributes that can be no headers, or would be ours, are left
    out.
    """
    message = lent.message
    found = {
        "subscription-name": subscription,
        "message-id": message.message_id,
        "publish-time": message.publish_time.ToJsonString(),
    }
    if message.ordering_key:
        found["ordering-key"] = message.ordering_key
    headers = [(f"{_METADATA}{name}".encode(), _value(value)) for name, value in found.items() if _allowed(value)]
    for name, value in sorted(message.attributes.items()):
        lower = name.lower()
        ours = lower in _OURS or lower.startswith(_OUR_PREFIXES)
        if not ours and _TOKEN.fullmatch(name) and _allowed(value):
            headers.append((lower.encode(), _value(value)))
    return headers


def _allowed(value: str) -> bool:
    return _NOT_IN_VALUES.search(value) is None


def _value(value: str) -> bytes:
    return value.strip(" \t").encode()
