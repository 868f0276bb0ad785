"""Ack ids: the published SipHash vectors, one spelling each, and no forgeries."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.kernel import ackids
from syncpoint.base.kernel.errors import BadAckId

KEY = bytes(range(16))
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(
    ("size", "tag"),
    [(0, 0x726FDB47DD0E0E31), (1, 0x74F839C593DC67FD), (8, 0x93F5F5799A932462), (15, 0xA129CA6149BE45E5)],
)
def test_siphash_vectors(size: int, tag: int) -> None:
    """From the reference implementation: key 00..0f, data 00..(size-1)."""
    assert ackids.tag_of(KEY, bytes(range(size))) == tag


@given(U64, U64, U32, U32, U32)
def test_round_trip_in_48_base64url_letters(source: int, offset: int, serial: int, epoch: int, generation: int) -> None:
    ack_id = ackids.encode(KEY, source, offset, serial, epoch, generation)
    raw = base64.urlsafe_b64decode(ack_id)
    assert len(ack_id) == 48
    assert raw[:8] == source.to_bytes(8, "little")
    assert raw[28:] == ackids.tag_of(KEY, raw[:28]).to_bytes(8, "little")
    assert ackids.decode(KEY, ack_id) == (source, offset, serial, epoch, generation)


@given(st.integers(0, 47), st.integers(0, 255))
def test_any_other_letter_anywhere_is_refused(place: int, letter: int) -> None:
    ack_id = bytearray(ackids.encode(KEY, 1, 2, 3, 4, 5))
    before = bytes(ack_id)
    ack_id[place] = letter
    if bytes(ack_id) == before:
        return
    with pytest.raises(BadAckId):
        ackids.decode(KEY, bytes(ack_id))


def test_a_letter_outside_of_the_alphabet_is_not_taken_for_the_last_one_of_it() -> None:
    ack_ids = [ackids.encode(KEY, 1, offset, 3, 4, 5) for offset in range(100)]
    ack_id = next(one for one in ack_ids if b"_" in one)
    for letter in (b"!", b"/", b"\xff"):
        with pytest.raises(BadAckId):
            ackids.decode(KEY, ack_id.replace(b"_", letter))


@given(st.binary(max_size=100))
def test_random_bytes_are_refused(ack_id: bytes) -> None:
    with pytest.raises(BadAckId) as refused:
        ackids.decode(KEY, ack_id)
    assert refused.value.ack_id == ack_id


@given(st.binary(min_size=16, max_size=16).filter(lambda key: key != KEY))
def test_other_keys_do_not_open_it(other: bytes) -> None:
    with pytest.raises(BadAckId):
        ackids.decode(other, ackids.encode(KEY, 1, 2, 3, 4, 5))


def test_keys_have_16_bytes() -> None:
    with pytest.raises(ValueError, match="16"):
        ackids.encode(b"short", 1, 2, 3, 4, 5)


def test_what_a_bad_ack_id_says() -> None:
    assert str(BadAckId(b"abc")) == "Invalid ack id (ack_id=abc)"
    assert len(str(BadAckId(b"\xff" * 1_000_000))) < 200
