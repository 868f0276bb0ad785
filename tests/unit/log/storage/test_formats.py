"""Round trips of everything that is written to a disk."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.log.storage import checksum
from syncpoint.log.storage.disk.disk_identity import (
    DiskIdentity,
    Marks,
    add_span,
    contains,
    decode_identity,
    decode_marks,
    encode_identity,
    encode_marks,
    merge_marks,
    to_spans,
)
from syncpoint.log.storage.index import (
    PAGE,
    ActiveIndex,
    DamagedIndex,
    PageCache,
    SealedIndex,
    check_page,
    encode_index,
    index_bytes,
)
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.record import (
    HEADER_BYTES,
    EntryKind,
    Queued,
    decode_frame,
    decode_header,
    encode_header,
    place_seed,
)
from syncpoint.log.storage.segment import (
    DATA_START,
    SegmentHeader,
    Trailer,
    decode_front,
    decode_mark,
    decode_trailer,
    encode_front,
    encode_mark,
    encode_trailer,
)

u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
sixteen = st.binary(min_size=16, max_size=16)
rules = st.one_of(
    st.sampled_from([AckRule.single(1), AckRule.single(3), AckRule.single(7)]),
    st.builds(AckRule.grid, st.sampled_from([1, 3, 5]), st.sampled_from([1, 3])),
    st.just(AckRule((9, 9, 9, 4, 4, 4, 0, 0, 0), "all", "majority", (1, 2, 3) * 3, 2)),
)


@st.composite
def _headers(draw: st.DrawFn) -> SegmentHeader:
    rule = draw(rules)
    members = draw(st.lists(sixteen, min_size=len(rule), max_size=len(rule)))
    numbers = [draw(u64) for _ in range(5)]
    away = draw(st.integers(0, (1 << len(rule)) - 1))
    return SegmentHeader(*numbers, draw(sixteen), tuple(members), rule, away)  # type: ignore[arg-type]


headers = _headers()


def test_the_checksum_is_crc32c_in_c() -> None:
    assert checksum.IN_C
    assert checksum.crc32c(b"123456789") == 0xE3069283  # the check value of the catalogue of CRCs
    assert checksum.crc32c_of([b"123", bytearray(b"45"), memoryview(b"6789")]) == 0xE3069283


@given(st.sampled_from(list(EntryKind)), u64, u64, u64, u64, u32, u64, st.binary(max_size=200), u64)
def test_frame(kind, position, synced, source, first, count, time_ns, payload, incarnation) -> None:
    seed = place_seed(7, 8, incarnation)
    entry = Queued(kind, position, source, first, count, time_ns, len(payload), checksum.crc32c(payload), (payload,))
    data = b"xx" + encode_header(seed, entry, synced) + payload
    header, found = decode_frame(data, 2, seed)
    assert found == payload
    assert header == (kind, 0, len(payload), position, synced, source, first, count, time_ns, entry.crc)
    assert decode_header(data, 2, place_seed(7, 8, incarnation ^ 1)) is None
    assert decode_header(data, 2, place_seed(7, 9, incarnation)) is None
    assert decode_frame(data[:-1], 2, seed) is None or not payload


@given(st.binary(min_size=1, max_size=100), st.data())
def test_any_flipped_bit_spoils_a_frame(payload: bytes, data: st.DataObject) -> None:
    entry = Queued(1, 2, 3, 4, 5, 6, len(payload), checksum.crc32c(payload), (payload,))
    frame = bytearray(encode_header(11, entry, 1) + payload)
    bit = data.draw(st.integers(0, len(frame) * 8 - 1))
    frame[bit // 8] ^= 1 << bit % 8
    assert decode_frame(bytes(frame), 0, 11) is None


@given(headers)
def test_segment_header(header: SegmentHeader) -> None:
    front = encode_front(header)
    assert len(front) == DATA_START
    assert decode_front(front) == header
    assert decode_front(bytes(PAGE) + front[PAGE:]) == header
    assert decode_front(bytes(2 * PAGE)) is None


@given(headers, st.tuples(u64, u64, u64, u64, u32, u32, u32, st.booleans()))
def test_trailer(header: SegmentHeader, fields: tuple[int, ...]) -> None:
    trailer = Trailer(*fields)
    page = encode_trailer(header, trailer)
    assert len(page) == PAGE
    assert decode_trailer(page) == (header, trailer)
    assert decode_trailer(page[:-1] + bytes([page[-1] ^ 1])) is None


@given(st.lists(u64, max_size=5), u32)
def test_marks_page(positions: list[int], seed: int) -> None:
    front = bytearray(DATA_START)
    for turn, position in enumerate(sorted(positions)):
        offset, data = encode_mark(seed, position, turn)
        front[offset : offset + len(data)] = data
    assert decode_mark(bytes(front), seed) == max(positions, default=0)
    assert decode_mark(bytes(front), seed ^ 1) == 0 or not positions


@given(st.integers(0, 2**64 - 1), sixteen)
def test_identity(universe: int, incarnation: bytes) -> None:
    data = encode_identity(DiskIdentity(universe, incarnation))
    assert decode_identity(data) == DiskIdentity(universe, incarnation)
    assert decode_identity(data.replace(incarnation.hex().encode(), b"0" * 31 + b"g")) is None
    assert decode_identity(None) is None
    assert decode_identity(b"{}") is None
    assert decode_identity(b"\xff\x00") is None


numbers = st.sets(st.integers(1, 40), max_size=15)


@given(numbers, st.dictionaries(st.integers(41, 50), numbers, max_size=3))
def test_marks(logs: set[int], segments: dict[int, set[int]]) -> None:
    marks = Marks(3, 60, live={70: [(1, 3)]})
    for log in logs:
        marks.remove_log(log)
    for log, seqs in segments.items():
        for seq in seqs:
            marks.remove(log, seq)
    again = decode_marks(encode_marks(marks))
    assert again == marks
    assert merge_marks([again, Marks(1, 2, live={1: [(1, 1)]})]).live == {70: [(1, 3)]}
    for log in range(1, 51):
        for seq in range(1, 41):
            assert again.is_removed(log, seq) == (log in logs or seq in segments.get(log, ()))
    assert again.missing({70: [1, 3]}) == [(70, 2)]


@given(numbers)
def test_spans(some: set[int]) -> None:
    spans: list[tuple[int, int]] = []
    for number in some:
        spans = add_span(spans, (number, number))
    assert spans == to_spans(some)
    assert all(contains(spans, number) == (number in some) for number in range(42))


def build(rows: list[tuple[int, int]]) -> tuple[ActiveIndex, list[tuple[int, int, int]]]:
    """An index of batches of 1..3 messages; `rows`: (source, gap before it)."""
    index = ActiveIndex()
    ends: dict[int, int] = {}
    model = []
    for ordinal, (source, gap) in enumerate(rows):
        if source == 0:
            index.add(EntryKind.LEDGER, 0, 0, 0, 0, ordinal * 100, 36, ordinal)
            continue
        first = ends.get(source, 0) + gap
        count = ordinal % 3 + 1
        ends[source] = first + count
        index.add(EntryKind.MESSAGES, source, first, count, 1_000 + ordinal, ordinal * 100, 36, ordinal)
        model.append((source, first, count))
    return index, model


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=400),
    st.integers(0, 5),
    st.integers(0, 900),
    st.integers(900, 1500),
)
def test_both_forms_of_an_index_answer_alike(rows, source: int, begin: int, time_ns: int) -> None:
    active, model = build(rows)
    body, messages, controls, sources = encode_index(active, 99)
    assert len(body) <= index_bytes(len(rows), sources)
    cache = PageCache(5 * PAGE)

    def load(number: int) -> bytes:
        return check_page(body[number * PAGE : number * PAGE + PAGE], 99)

    sealed = SealedIndex(messages, controls, sources, lambda number: cache.get(1, number, load))
    assert list(sealed.messages()) == list(active.messages())
    assert list(sealed.controls()) == list(active.controls())
    assert list(sealed.summaries()) == list(active.summaries())
    expected = [(s, f, c) for s, f, c in model if s == source and f + c > begin][:7]
    for form in (active, sealed):
        assert [(r.source, r.first_offset, r.count) for r in form.records(source, begin, 7)] == expected
    assert sealed.at_time(source, time_ns) == active.at_time(source, time_ns)
    assert len(cache) <= 5


def test_a_damaged_index_page_is_not_believed() -> None:
    body, *_ = encode_index(build([(1, 0)])[0], 5)
    with pytest.raises(DamagedIndex):
        check_page(body[:PAGE], 6)
    for at in (0, 20, PAGE - 1):
        page = bytearray(body[:PAGE])
        page[at] ^= 4
        with pytest.raises(DamagedIndex):
            check_page(bytes(page), 5)


def test_header_size() -> None:
    assert HEADER_BYTES == 64 == struct.calcsize("<IBBHIQQQQIQI") + 4
