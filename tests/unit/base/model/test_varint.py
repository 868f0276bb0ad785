"""Varints are those of protobuf."""

from __future__ import annotations

import pytest
from google.protobuf.internal import decoder, encoder
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model import varint


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_numbers_are_written_and_read_as_protobuf_does(value: int, rest: bytes) -> None:
    data = rest + varint.encode(value)
    assert data[len(rest) :] == encoder._VarintBytes(value)
    assert varint.decode(data + rest, len(rest)) == (value, len(data)) == decoder._DecodeVarint(data + rest, len(rest))


def test_broken_numbers_are_refused() -> None:
    with pytest.raises(IndexError):
        varint.decode(b"\xff", 0)
    with pytest.raises(ValueError, match="too long"):
        varint.decode(b"\xff" * 11, 0)
