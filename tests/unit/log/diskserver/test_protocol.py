"""Frames: there and back, and what is no frame."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.log.diskserver.protocol import (
    FRAME_MAX,
    LENGTHS,
    ChangeKind,
    DiskOp,
    FileChange,
    Hello,
    Reply,
    Request,
    Status,
    Welcome,
    check_lengths,
    decode_hello,
    decode_reply,
    decode_request,
    decode_welcome,
    encode_hello,
    encode_reply,
    encode_request,
    encode_welcome,
)

numbers = st.integers(0, 2**64 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
writes = st.builds(
    lambda offset, data, name, takers: FileChange(ChangeKind.WRITE, offset, len(data), data, name, takers),
    numbers,
    st.binary(max_size=100),
    numbers,
    st.integers(0, 255),
)
kinds = st.sampled_from([ChangeKind.ZERO, ChangeKind.TRUNCATE, ChangeKind.ALLOCATE, ChangeKind.COPY])
others = st.builds(
    lambda kind, offset, size, name: FileChange(kind, offset, size, b"", name), kinds, numbers, numbers, numbers
)
requests = st.builds(
    Request,
    st.sampled_from(list(DiskOp)),
    numbers,
    numbers,
    numbers,
    texts,
    texts,
    st.integers(0, 255),
    st.lists(st.one_of(writes, others), max_size=5),
    st.lists(numbers, max_size=5),
    numbers,
    numbers,
    st.just(()),  # sizes are not sent,
    st.none(),  # nor who takes the pieces
)


def split(frame: bytes) -> tuple[bytes, memoryview]:
    head, payload = check_lengths(frame[:8])
    assert len(frame) == 8 + head + payload
    return frame[8 : 8 + head], memoryview(frame)[8 + head :]


@given(requests)
def test_requests_there_and_back(request: Request) -> None:
    found = decode_request(*split(b"".join(encode_request(request))))
    changes = [change._replace(data=bytes(change.data)) for change in found.changes]
    assert found._replace(changes=changes) == request


@given(requests, st.data())
def test_a_frame_that_is_not_whole_is_refused(request: Request, data: st.DataObject) -> None:
    head, payload = split(b"".join(encode_request(request)))
    cut = data.draw(st.integers(0, len(head) - 1))
    with pytest.raises(ValueError, match=r"truncated|wrong|long|short|valid|decode|ChangeKind"):
        decode_request(head[:cut], payload)
    with pytest.raises(ValueError, match="too long"):
        decode_request(head, memoryview(bytes(payload) + b"x"))
    if payload:
        with pytest.raises(ValueError, match="too short"):
            decode_request(head, payload[:-1])


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_noise_is_a_value_error_or_a_request(head: bytes, payload: bytes) -> None:
    for act in (lambda: decode_request(head, memoryview(payload)), lambda: decode_hello(head)):
        with suppress(ValueError):
            act()


replies = st.builds(
    Reply,
    st.sampled_from(list(Status)),
    st.integers(-(2**31), 2**31 - 1),
    numbers,
    numbers,
    numbers,
    st.binary(),
    numbers,
    st.just(()),  # the channel makes the pieces
)


@given(replies)
def test_replies_there_and_back(reply: Reply) -> None:
    head, payload = split(b"".join(encode_reply(reply)))
    assert decode_reply(head, bytes(payload)) == reply


def test_hellos_there_and_back() -> None:
    hello = Hello("d1", 7, 3, 2**62, "async", 2, 9)
    head, _ = split(b"".join(encode_hello(hello)))
    assert decode_hello(head) == hello
    newer = head.replace(b'"version":1', b'"version":3')
    assert decode_hello(newer) == hello  # it still speaks ours
    for other in (newer.replace(b'"oldest":1', b'"oldest":2'), head.replace(b'"version":1', b'"version":0')):
        with pytest.raises(ValueError, match="Upgrade one release"):
            decode_hello(other)
    welcome = Welcome(2**50, "boot", Status.FENCED, 5, "why")
    assert decode_welcome(split(b"".join(encode_welcome(welcome)))[0]) == welcome


def test_too_long() -> None:
    with pytest.raises(ValueError, match="bytes"):
        check_lengths(LENGTHS.pack(FRAME_MAX, 1))
    with pytest.raises(ValueError, match="bytes"):
        encode_request(Request(DiskOp.CHANGE, changes=[FileChange(ChangeKind.WRITE, 0, FRAME_MAX, bytes(FRAME_MAX))]))
