"""Texts, timeouts, binary metadata and compressed messages."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.transport import encoding

MIB = 1 << 20


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_percent_round_trip(text: str) -> None:
    raw = encoding.percent_encode(text)
    assert all(0x20 <= c < 0x7F for c in raw)
    assert encoding.percent_decode(raw) == text


@given(st.binary(max_size=50))
def test_percent_decode_takes_anything(raw: bytes) -> None:
    encoding.percent_decode(raw)


def test_percent_keeps_what_is_not_encoded_properly() -> None:
    assert encoding.percent_decode(b"100% of %4") == "100% of %4"
    assert encoding.percent_encode("a%ä\n") == b"a%25%C3%A4%0A"


@given(st.floats(1e-9, 3e6))
def test_timeouts_are_never_shorter_than_asked(seconds: float) -> None:
    raw = encoding.write_timeout(seconds)
    read = encoding.read_timeout(raw)
    assert read is not None
    assert seconds * 0.999999 <= read <= seconds * 1.011 + 1e-9
    assert len(raw) <= 9


@pytest.mark.parametrize(("raw", "seconds"), [(b"1S", 1), (b"250m", 0.25), (b"2H", 7200), (b"99999999M", 946080000)])
def test_read_timeout(raw: bytes, seconds: float) -> None:
    assert encoding.read_timeout(raw) == pytest.approx(seconds)


@pytest.mark.parametrize("raw", [b"", b"S", b"1", b"-1S", b"1x", b"123456789S", b"1.5S"])
def test_malformed_timeouts(raw: bytes) -> None:
    assert encoding.read_timeout(raw) is None


@given(st.binary())
def test_binary_round_trip(value: bytes) -> None:
    raw = encoding.write_binary(value)
    assert encoding.read_binary(raw) == value
    assert encoding.read_binary(raw + b"=" * (-len(raw) % 4)) == value


@given(st.binary(max_size=5000), st.sampled_from([b"gzip", b"deflate"]))
def test_inflate_undoes_deflate(message: bytes, name: bytes) -> None:
    assert encoding.inflate(1, name, encoding.deflate(name, message), MIB) == message


def test_a_bomb_unfolds_no_further_than_the_limit() -> None:
    bomb = zlib.compress(bytes(50 * MIB), wbits=31)
    assert len(bomb) < MIB
    with pytest.raises(SyncpointError) as caught:
        encoding.inflate(1, b"gzip", bomb, MIB)
    assert caught.value.code == Code.RESOURCE_EXHAUSTED
    exact = zlib.compress(bytes(MIB), wbits=31)
    assert len(encoding.inflate(1, b"gzip", exact, MIB)) == MIB


@pytest.mark.parametrize(
    ("flag", "name", "payload"),
    [(1, b"", b"x"), (1, b"identity", b"x"), (2, b"gzip", b"x"), (1, b"gzip", b"junk"), (1, b"gzip", b"\x1f\x8b\x08")],
)
def test_messages_that_cannot_be_unfolded(flag: int, name: bytes, payload: bytes) -> None:
    with pytest.raises(SyncpointError) as caught:
        encoding.inflate(flag, name, payload, MIB)
    assert caught.value.code == Code.INTERNAL
