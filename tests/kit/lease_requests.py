"""Requests and responses about leases, by the official message classes, and the messages they are about."""

from __future__ import annotations

from functools import cache

from google.pubsub_v1 import types

Message = types.PubsubMessage.pb()


Pull = types.PullResponse.pb()


Acknowledge = types.AcknowledgeRequest.pb()


Modify = types.ModifyAckDeadlineRequest.pb()


Streaming = types.StreamingPullRequest.pb()


KEY = b"sixteen bytes :)"


SOURCES = (5, 2**64 - 1)


ODD = b"\x02" + (4).to_bytes(2, "little") + b"kind" + (3).to_bytes(2, "little") + b"odd"  # attributes.kind = "odd"


@cache
def body(offset: int) -> bytes:
    """The message at an offset: odd ones match ODD."""
    kind = {"kind": "odd"} if offset % 2 else {}
    return Message(data=b"x" * (offset % 7 * 10 + 1), attributes=kind, message_id=str(offset)).SerializeToString()


def payload_of(first: int, count: int) -> bytes:
    return b"".join(len(body(o)).to_bytes(4, "little") + body(o) for o in range(first, first + count))
