"""Header blocks: read like the reference decoder reads them, and bounded against everything else."""

from __future__ import annotations

import pytest
from hpack import Decoder, Encoder, HPACKError
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.wire.transport import fields
from syncpoint.wire.transport.fields import FieldReader
from syncpoint.wire.transport.frames import ConnectionFault, ErrorCode

names = st.sampled_from([b":path", b"x-a", b"x-goog-request-params", b"te", b"cookie"]) | st.binary(max_size=20)
headers = st.lists(st.tuples(names, st.binary(max_size=200)), max_size=12)


@given(st.lists(st.tuples(headers, st.booleans(), st.none() | st.integers(0, 4096)), max_size=6))
def test_reads_what_the_reference_encoder_writes(blocks: list) -> None:
    encoder, reader = Encoder(), FieldReader(1 << 20)
    for written, huffman, table in blocks:
        if table is not None:
            encoder.header_table_size = table
        block = encoder.encode(written, huffman=huffman)
        read, size = reader.read(block)
        assert read == written
        assert size == sum(len(n) + len(v) + 32 for n, v in written)


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_agrees_with_the_reference_decoder_on_any_bytes(blocks: list[bytes]) -> None:
    reader, reference = FieldReader(1 << 20), Decoder()
    for block in blocks:
        try:
            expected = [tuple(field) for field in reference.decode(block, raw=True)]
        except HPACKError:
            with pytest.raises(ConnectionFault):
                reader.read(block)
            return
        assert reader.read(block)[0] == expected


@given(headers)
def test_a_steady_block_means_the_same_again(written: list) -> None:
    encoder, reader = Encoder(), FieldReader(1 << 20)
    for _ in range(3):
        block = encoder.encode(written)
        read, _ = reader.read(block)
        if reader.steady:
            assert reader.read(block)[0] == read == written
    ours = fields.write(written)
    assert reader.read(ours)[0] == written
    assert reader.steady


def test_a_header_bomb_stops_at_the_hard_limit() -> None:
    reader = FieldReader(10_000)
    big = b"\x40" + b"\x01x" + b"\x7f\x81\x1e" + b"v" * 3968  # one field into the table
    reader.read(big)
    with pytest.raises(ConnectionFault) as caught:
        reader.read(b"\xbe" * 16_000)
    assert caught.value.code == ErrorCode.ENHANCE_YOUR_CALM


MALFORMED = {
    "index-0": b"\x80",
    "long-integer": b"\xff\xff\xff\xff\xff\xff\xff\x01",
    "beyond-table": b"\xc0",
    "short-name": b"\x40\x05ab",
    "no-name": b"\x40",
    "late-resize": b"\x82\x20",
    "table-too-large": b"\x3f\xff\xff\x01",
    "padding": b"\x00\x81\xff\x00",
}


@pytest.mark.parametrize("block", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_blocks(block: bytes) -> None:
    with pytest.raises(ConnectionFault) as caught:
        FieldReader(1 << 20).read(block)
    assert caught.value.code == ErrorCode.COMPRESSION_ERROR
