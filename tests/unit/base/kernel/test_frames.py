"""Batch payloads: count, describe, slice, and torn ones."""

from __future__ import annotations

import pytest
from google.pubsub_v1 import types
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.kernel import frames
from syncpoint.base.kernel.errors import Malformed

Message = types.PubsubMessage.pb()
messages = st.lists(
    st.builds(lambda data, key: Message(data=data, ordering_key=key), st.binary(max_size=200), st.text(max_size=9)),
    max_size=12,
)


def payload_of(bodies: list[bytes]) -> bytes:
    return b"".join(len(body).to_bytes(4, "little") + body for body in bodies)


@given(messages, st.integers(0, 14), st.integers(0, 14))
def test_payloads_are_lists_of_messages(given_: list[object], skip: int, take: int) -> None:
    bodies = [message.SerializeToString() for message in given_]
    payload = payload_of(bodies)
    assert frames.count(payload) == len(bodies)
    assert frames.describe(payload) == (
        [len(body) for body in bodies],
        [message.ordering_key.encode() for message in given_],
    )
    assert frames.slice_payload(payload, skip, take) == payload_of(bodies[skip : skip + take])
    assert [frames.message_at(payload, i) for i in range(len(bodies))] == bodies
    with pytest.raises(IndexError):
        frames.message_at(payload, len(bodies))


@given(messages.filter(bool), st.integers(1, 300))
def test_torn_payloads(given_: list[object], cut: int) -> None:
    payload = payload_of([message.SerializeToString() for message in given_])
    torn = payload[: max(1, len(payload) - cut)]
    ends = set()
    at = 0
    while at < len(payload):
        at += 4 + int.from_bytes(payload[at : at + 4], "little")
        ends.add(at)
    if len(torn) in ends:
        assert frames.count(torn) < len(given_) or torn == payload
        return
    for call in (frames.count, frames.describe):
        with pytest.raises(Malformed):
            call(torn)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_payload_or_malformed(data: bytes) -> None:
    for call in (frames.count, frames.describe, lambda d: frames.slice_payload(d, 1, 2)):
        try:
            call(data)
        except Malformed:
            continue


def test_counts_of_messages_are_not_negative() -> None:
    for skip, take in ((-1, 1), (0, -1)):
        with pytest.raises(ValueError, match="count"):
            frames.slice_payload(b"", skip, take)
