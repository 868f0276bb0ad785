"""Frames: what is written is read back, however many there are and wherever the bytes end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.wire.transport import frames

some_frames = st.lists(
    st.builds(
        frames.Frame,
        st.integers(0, 255),
        st.integers(0, 255),
        st.integers(0, frames.WINDOW_MAX),
        st.binary(max_size=300),
    ),
    max_size=8,
)


@given(some_frames, st.binary(max_size=8))
def test_round_trip(written: list[frames.Frame], rest: bytes) -> None:
    data = b"".join(frames.frame(*f) for f in written)
    assert list(frames.parse(data + rest)) == written


@given(some_frames, st.data())
def test_a_cut_string_gives_the_whole_frames_before_the_cut(written: list[frames.Frame], data: st.DataObject) -> None:
    raw = b"".join(frames.frame(*f) for f in written)
    cut = data.draw(st.integers(0, len(raw)))
    read = list(frames.parse(raw[:cut]))
    assert read == written[: len(read)]
    assert sum(9 + len(f.payload) for f in written[: len(read) + 1]) > cut or len(read) == len(written)


@given(st.integers(0, (1 << 24) - 1), st.integers(1, frames.WINDOW_MAX))
def test_data_head_is_the_head_of_a_data_frame(size: int, sid: int) -> None:
    high, low, kind, flags, read_sid = frames.unpack_head(frames.data_head(size, sid, frames.END_STREAM), 0)
    assert (high << 16 | low, kind, flags, read_sid) == (size, frames.DATA, frames.END_STREAM, sid)


@given(st.binary(max_size=400), st.integers(1, 64), st.booleans())
def test_headers_are_cut_to_the_peers_frame_size(block: bytes, frame_bytes: int, end: bool) -> None:
    read = list(frames.parse(frames.headers(7, block, end=end, frame_bytes=frame_bytes)))
    assert b"".join(f.payload for f in read) == block
    assert all(len(f.payload) <= frame_bytes and f.sid == 7 for f in read)
    assert [f.kind for f in read] == [frames.HEADERS] + [frames.CONTINUATION] * (len(read) - 1)
    assert bool(read[0].flags & frames.END_STREAM) == end
    assert [bool(f.flags & frames.END_HEADERS) for f in read] == [False] * (len(read) - 1) + [True]


@given(st.dictionaries(st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF), max_size=6))
def test_settings_round_trip(values: dict[int, int]) -> None:
    (frame,) = frames.parse(frames.settings(values))
    assert dict(frames.read_settings(frame.payload)) == values


def test_small_frames_have_the_bytes_of_the_rfc() -> None:
    assert frames.window_update(3, 5) == bytes.fromhex("00000408000000000300000005")
    assert frames.rst_stream(1, frames.ErrorCode.CANCEL) == bytes.fromhex("00000403000000000100000008")
    assert frames.goaway(5, frames.ErrorCode.NO_ERROR) == bytes.fromhex("0000080700000000000000000500000000")
