"""What the proxy reads of requests and responses, against protobuf's own reading."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.kernel import ackids, split
from syncpoint.base.kernel.errors import Malformed
from syncpoint.wire.protobuf.messages import pubsub

KEY = b"0123456789abcdef"


def ack_id(lender: int, offset: int) -> str:
    return ackids.encode(KEY, 5, offset, 1, lender << 16 | 3, 0).decode()


@given(st.text(max_size=20), st.lists(st.text(max_size=5), max_size=3))
def test_route_of(topic: str, keys: list[str]) -> None:
    messages = [pubsub.PubsubMessage(data=b"x", ordering_key=key) for key in keys]
    request = pubsub.PublishRequest(topic=topic, messages=messages).SerializeToString()
    assert split.route_of(request) == (topic.encode(), keys[0].encode() if keys else b"")


@given(st.integers(0, 2**31 - 1), st.text(max_size=5))
def test_varint_of(seconds: int, name: str) -> None:
    request = pubsub.StreamingPullRequest(subscription=name, stream_ack_deadline_seconds=seconds).SerializeToString()
    assert split.varint_of(request, 5) == (seconds or -1)


@given(st.lists(st.tuples(st.integers(0, 65_535), st.integers(0, 9)), max_size=12))
def test_by_lender(lent: list[tuple[int, int]]) -> None:
    ids = [ack_id(*one) for one in lent]
    asked = pubsub.ModifyAckDeadlineRequest(subscription="s", ack_ids=[*ids, "no id"], ack_deadline_seconds=17)
    others, groups = split.by_lender(asked.SerializeToString(), 4)
    assert pubsub.ModifyAckDeadlineRequest.FromString(others) == pubsub.ModifyAckDeadlineRequest(
        subscription="s", ack_deadline_seconds=17
    )
    found = {lender: pubsub.ModifyAckDeadlineRequest.FromString(group).ack_ids for lender, group in groups.items()}
    expected: dict[int, list[str]] = {}
    for (lender, _), text in zip(lent, ids, strict=True):
        expected.setdefault(lender, []).append(text)
    assert found == {**expected, -1: ["no id"]}


def test_by_lender_of_parted_fields() -> None:
    one = pubsub.AcknowledgeRequest(subscription="s", ack_ids=[ack_id(1, 1)]).SerializeToString()
    two = pubsub.AcknowledgeRequest(subscription="t", ack_ids=[ack_id(2, 1), ack_id(1, 2)]).SerializeToString()
    others, groups = split.by_lender(one + two, 2)
    assert pubsub.AcknowledgeRequest.FromString(others).subscription == "t"
    assert list(pubsub.AcknowledgeRequest.FromString(groups[1]).ack_ids) == [ack_id(1, 1), ack_id(1, 2)]
    assert list(pubsub.AcknowledgeRequest.FromString(groups[2]).ack_ids) == [ack_id(2, 1)]


@given(st.lists(st.text("abc", min_size=1, max_size=60), max_size=20))
def test_modify_fields(ids: list[str]) -> None:
    received = [pubsub.ReceivedMessage(ack_id=one, message=pubsub.PubsubMessage(data=b"x")) for one in ids]
    pieces = split.modify_fields(pubsub.PullResponse(received_messages=received).SerializeToString())
    assert list(pubsub.ModifyAckDeadlineRequest.FromString(b"".join(pieces)).ack_ids) == ids


def test_modify_fields_come_in_pieces_that_may_be_sent() -> None:
    received = [pubsub.ReceivedMessage(ack_id=ack_id(1, one)) for one in range(20_000)]
    pieces = split.modify_fields(pubsub.PullResponse(received_messages=received).SerializeToString())
    assert len(pieces) == 3
    assert max(map(len, pieces)) < 512 << 10


def outcome(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except ValueError as error:
        return type(error).__name__, error.args


fields = st.builds(
    lambda n, value: bytes((n << 3 | 2, len(value))) + value,
    st.integers(1, 5),
    st.one_of(st.binary(max_size=20), st.text("AZaz09-_=", min_size=48, max_size=48).map(str.encode)),
)
raws = st.lists(st.one_of(fields, st.binary(max_size=5), st.just(b"\x28\x07")), max_size=6).map(b"".join)


@given(raws, st.integers(1, 5))
def test_compiled_and_uncompiled_agree(pure: SimpleNamespace, raw: bytes, number: int) -> None:
    assert outcome(split.route_of, raw) == outcome(pure.split.route_of, raw)
    assert outcome(split.varint_of, raw, number) == outcome(pure.split.varint_of, raw, number)
    assert outcome(split.by_lender, raw, number) == outcome(pure.split.by_lender, raw, number)
    assert outcome(split.modify_fields, raw) == outcome(pure.split.modify_fields, raw)


def test_torn_requests_are_refused() -> None:
    for call in (split.route_of, split.modify_fields):
        with pytest.raises(Malformed):
            call(b"\x0a\x05x")
    with pytest.raises(Malformed):
        split.by_lender(b"\x0a\x05x", 2)
    with pytest.raises(Malformed):
        split.varint_of(b"\x0a\x05x", 2)


@given(st.lists(st.tuples(st.text("abc", max_size=200), st.binary(max_size=300)), max_size=6))
def test_tag_ack_ids(lent: list[tuple[str, bytes]]) -> None:
    received = [
        pubsub.ReceivedMessage(ack_id=text, message=pubsub.PubsubMessage(data=data), delivery_attempt=3)
        for text, data in lent
    ]
    response = pubsub.StreamingPullResponse(
        received_messages=received, subscription_properties={"message_ordering_enabled": True}
    )
    tagged, count = split.tag_ack_ids(response.SerializeToString(), b"xyz.")
    for one in response.received_messages:
        if one.ack_id:  # an empty one is not on the wire
            one.ack_id = "xyz." + one.ack_id
    assert pubsub.StreamingPullResponse.FromString(tagged) == response
    assert count == sum(bool(text) for text, _ in lent)


@given(st.lists(st.text("ab", min_size=1, max_size=150), max_size=10), st.integers(1, 4))
def test_by_tag(ids: list[str], size: int) -> None:
    asked = pubsub.ModifyAckDeadlineRequest(subscription="s", ack_ids=ids, ack_deadline_seconds=17)
    others, groups = split.by_tag(asked.SerializeToString(), 4, size)
    assert pubsub.ModifyAckDeadlineRequest.FromString(others) == pubsub.ModifyAckDeadlineRequest(
        subscription="s", ack_deadline_seconds=17
    )
    found = {
        tag.decode(): list(pubsub.ModifyAckDeadlineRequest.FromString(group).ack_ids) for tag, group in groups.items()
    }
    expected: dict[str, list[str]] = {}
    for text in ids:
        tag, rest = (text[:size], text[size:]) if len(text) > size else ("", text)
        expected.setdefault(tag, []).append(rest)
    assert found == expected


@pytest.mark.parametrize("data", [b"\x0a\x05abc", b"\x0a\x03\x0a\x05a"])
def test_tags_of_what_is_no_response(data: bytes) -> None:
    with pytest.raises(Malformed):
        split.tag_ack_ids(data, b"xyz.")
