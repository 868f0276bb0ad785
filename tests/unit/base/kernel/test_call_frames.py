"""Calls read from the bytes of a connection, many at once, against a reader that takes one frame at a time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base.kernel import call_frames
from syncpoint.wire.transport import frames
from syncpoint.wire.transport.frames import DATA, END_HEADERS, END_STREAM, HEADERS, WINDOW_UPDATE, Frame
from tests.kit.examples import examples

BLOCK = b"\x82\x86\x84\xbe"
LIMITS = (5, 60, 120)  # calls, bytes of one, bytes of all


def grpc(message: bytes, flag: int = 0, more: int = 0) -> bytes:
    return bytes((flag,)) + (len(message) + more).to_bytes(4, "big") + message


def call_of(sid: int, message: bytes, block: bytes = BLOCK) -> bytes:
    return frames.frame(HEADERS, END_HEADERS, sid, block) + frames.frame(DATA, END_STREAM, sid, grpc(message))


def alike(frame: Frame, kind: int, flags: int, sid: int) -> bool:
    return (frame.kind, frame.flags, frame.sid) == (kind, flags, sid)


def one_by_one(data: bytes, at: int, last: int, count_max: int, data_max: int, bytes_max: int) -> tuple:
    """What `call_frames.read` promises, in words of frames."""
    left = [*frames.parse(data[at:])]
    requests: list[bytes] = []
    windows: list[int] = []
    size = updates = window = 0
    while left:
        first, own, taken, seen = left[0], 0, 1, 0
        if alike(first, WINDOW_UPDATE, 0, 0) and len(first.payload) == 4:
            more = int.from_bytes(first.payload, "big") & frames.WINDOW_MAX
            if not more or window + more > frames.WINDOW_MAX:
                break
            window, updates = window + more, updates + 1
        else:
            sid = last + 2
            if len(requests) >= count_max or size > bytes_max or first.payload != BLOCK:
                break
            if not alike(first, HEADERS, END_HEADERS, sid):
                break
            for frame in left[1:]:
                more = int.from_bytes(frame.payload, "big") & frames.WINDOW_MAX
                if not alike(frame, WINDOW_UPDATE, 0, sid) or len(frame.payload) != 4 or not more:
                    break
                if own + more > frames.WINDOW_MAX:
                    break
                own, taken, seen = own + more, taken + 1, seen + 1
            if len(left) == taken or not alike(left[taken], DATA, END_STREAM, sid):
                break
            body = left[taken].payload
            if not 5 <= len(body) <= data_max or body != grpc(body[5:]):
                break
            requests.append(body[5:])
            windows.append(own)
            size, updates, last, taken = size + len(body), updates + seen, sid, taken + 1
        at += sum(9 + len(frame.payload) for frame in left[:taken])
        del left[:taken]
    return at, requests, windows, size, updates, window


sids = st.sampled_from([0, 1, 3, 5, 7, 9, 11, 13])
pieces = st.one_of(
    st.builds(lambda sid, message: [(HEADERS, END_HEADERS, sid, BLOCK), (DATA, END_STREAM, sid, grpc(message))], sids,
              st.binary(max_size=70)),
    st.builds(lambda sid, more: [(WINDOW_UPDATE, 0, sid, more.to_bytes(4, "big"))], sids,
              st.sampled_from([0, 1, 5, 1 << 31, (1 << 31) - 1])),
    st.builds(lambda sid: [(HEADERS, END_HEADERS, sid, BLOCK)], sids),
    st.builds(lambda sid, flag, more: [(DATA, END_STREAM, sid, grpc(b"m", flag, more))], sids, st.integers(0, 2),
              st.integers(0, 1)),
    st.builds(lambda kind, flags, sid, payload: [(kind, flags, sid, payload)], st.integers(0, 9), st.integers(0, 9),
              sids, st.binary(max_size=9)),
)  # fmt: skip


@st.composite
def received(draw: st.DrawFn) -> bytes:
    """Mostly calls in order, with something between them now and then."""
    out, sid = bytearray(), 1
    for _ in range(draw(st.integers(0, 8))):
        if draw(st.integers(0, 3)):
            own = b"".join(frames.window_update(sid, 5) for _ in range(draw(st.integers(0, 2))))
            body = frames.frame(DATA, END_STREAM, sid, grpc(draw(st.binary(max_size=64))))
            out += frames.frame(HEADERS, END_HEADERS, sid, BLOCK) + own + body
            sid += 2
        else:
            for kind, flags, other, payload in draw(pieces):
                out += frames.frame(kind, flags, other, payload)
    return bytes(out[: len(out) - draw(st.integers(0, 20))])


@given(received(), st.integers(0, 3))
@settings(max_examples=examples(400))
def test_reading_is_as_one_by_one(pure: SimpleNamespace, data: bytes, begin: int) -> None:
    at = min(begin * 9, len(data))
    found = one_by_one(data, at, -1, *LIMITS)
    assert call_frames.read(data, at, BLOCK, -1, *LIMITS) == found
    assert pure.call_frames.read(data, at, BLOCK, -1, *LIMITS) == found


def test_what_it_stops_at() -> None:
    three = b"".join(call_of(sid, b"m%d" % sid) for sid in (1, 3, 5))
    everything = (len(three), [b"m1", b"m3", b"m5"], [0, 0, 0], 21, 0, 0)
    assert call_frames.read(three, 0, BLOCK, -1, 9, 60, 999) == everything
    for count in range(3):
        assert call_frames.read(three, 0, BLOCK, -1, count, 60, 999)[1] == [b"m1", b"m3", b"m5"][:count]
    assert call_frames.read(three, 0, BLOCK, -1, 9, 6, 999)[1] == []
    assert call_frames.read(three, 0, BLOCK, -1, 9, 60, 6)[1] == [b"m1"]
    assert call_frames.read(three, 0, BLOCK, 1, 9, 60, 999)[1] == []
    assert call_frames.read(three, 0, BLOCK[:-1], -1, 9, 60, 999)[1] == []
    for cut in range(len(three)):
        found = call_frames.read(three[:cut], 0, BLOCK, -1, 9, 60, 999)
        assert found[1] == [b"m1", b"m3", b"m5"][: cut // (len(three) // 3)]
        assert found[0] == len(found[1]) * len(three) // 3
    last = call_of(frames.WINDOW_MAX, b"z")
    assert call_frames.read(last, 0, BLOCK, frames.WINDOW_MAX - 2, 9, 60, 999)[1] == [b"z"]
    assert call_frames.read(last, 0, BLOCK, frames.WINDOW_MAX, 9, 60, 999)[1] == []
    with pytest.raises(TypeError):
        call_frames.read("text", 0, BLOCK, -1, 9, 60, 999)  # type: ignore[arg-type]


@given(
    st.lists(st.binary(max_size=300), max_size=6), st.integers(0, 1000), st.binary(max_size=20), st.binary(max_size=9)
)
def test_answers_are_frames(pure: SimpleNamespace, messages: list[bytes], n: int, head: bytes, tail: bytes) -> None:
    first = 2 * n + 1
    wanted = b""
    for sid, message in zip(range(first, first + 2 * len(messages), 2), messages, strict=True):
        wanted += frames.frame(HEADERS, END_HEADERS, sid, head) + frames.frame(DATA, 0, sid, grpc(message))
        wanted += frames.frame(HEADERS, END_HEADERS | END_STREAM, sid, tail)
    assert call_frames.write(messages, first, head, tail) == wanted
    assert pure.call_frames.write(messages, first, head, tail) == wanted
