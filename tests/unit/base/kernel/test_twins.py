"""Compiled and uncompiled modules side by side: the same inputs, the same results, the same refusals."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from syncpoint.base import kernel
from syncpoint.base.kernel import ackids, acks, filters, frames, json_fields, leases, publish
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model import varint
from syncpoint.base.rules.sql_values import number_of
from tests.kit.examples import examples

pytestmark = pytest.mark.skipif(not kernel.COMPILED, reason="nothing is compiled")

KEY = b"0123456789abcdef"
COMPILED = SimpleNamespace(ackids=ackids, acks=acks, filters=filters, frames=frames, leases=leases, publish=publish)


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call, or what it raised (classes of the two packages differ, their names do not)."""
    try:
        return call(*arguments)
    except Exception as error:
        return type(error).__name__, error.args


def field(number: int, value: bytes) -> bytes:
    return varint.encode(number << 3 | 2) + varint.encode(len(value)) + value


texts = st.one_of(st.binary(max_size=12), st.text(max_size=12).map(str.encode), st.sampled_from([b"goog", b"k" * 257]))
entries = st.builds(lambda key, value: field(2, field(1, key) + field(2, value)), texts, texts)
parts = st.one_of(
    st.binary(max_size=40).map(lambda data: field(1, data)),
    entries,
    texts.map(lambda key: field(5, key)),
    texts.map(lambda key: field(3, key)),
    st.binary(max_size=6),
    st.builds(
        lambda number, value: varint.encode(number << 3) + varint.encode(value),
        st.integers(1, 40),
        st.integers(0, 2**70),
    ),
)
bodies = st.lists(parts, max_size=5).map(b"".join)
requests = st.lists(st.one_of(bodies.map(lambda body: field(2, body)), parts), max_size=6).map(b"".join)


@given(requests, st.binary(max_size=40), st.integers(-1, 10**12), st.integers(-1, 2**63), st.integers(0, 10**9))
@settings(max_examples=examples(400))
def test_publish(pure: SimpleNamespace, raw: bytes, prefix: bytes, first: int, seconds: int, nanos: int) -> None:
    assert outcome(publish.topic_of, raw) == outcome(pure.publish.topic_of, raw)
    arguments = (raw, prefix, first, seconds, nanos)
    assert outcome(publish.scan, *arguments) == outcome(pure.publish.scan, *arguments)
    together = ([raw, raw, raw[:-1]], 0, topic_in(raw), prefix, first, seconds, nanos)
    assert outcome(publish.scan_plain, *together) == outcome(pure.publish.scan_plain, *together)


def topic_in(raw: bytes) -> bytes:
    try:
        return publish.topic_of(raw)
    except Malformed:
        return b""


payloads = st.one_of(
    st.lists(bodies.map(lambda body: len(body).to_bytes(4, "little") + body), max_size=5).map(b"".join),
    st.binary(max_size=60),
)


@given(payloads, st.integers(-1, 6), st.integers(-1, 6))
def test_frames(pure: SimpleNamespace, payload: bytes, skip: int, take: int) -> None:
    assert outcome(frames.count, payload) == outcome(pure.frames.count, payload)
    assert outcome(frames.describe, payload) == outcome(pure.frames.describe, payload)
    assert outcome(frames.slice_payload, payload, skip, take) == outcome(pure.frames.slice_payload, payload, skip, take)
    assert outcome(frames.message_at, payload, take) == outcome(pure.frames.message_at, payload, take)


def operand(value: bytes) -> bytes:
    return len(value).to_bytes(2, "little") + value


places = st.builds(lambda kind, name: bytes([kind]) + operand(name), st.integers(0, 2), texts) | st.binary(max_size=4)
operands = st.one_of(
    texts.map(lambda text: b"\x01" + operand(text)),
    st.integers(-5, 5).map(lambda number: b"\x02" + number.to_bytes(8, "little", signed=True)),
    st.floats().map(lambda number: b"\x03" + struct.pack("<d", number)),
    st.sampled_from([b"\x00", b"\x04\x00", b"\x04\x01"]),
    places.map(lambda place: b"\x05" + place),
    st.binary(max_size=3),
)
conditions = st.one_of(
    st.builds(
        lambda place, relation, side: b"\x08" + operand(place + bytes([relation]) + side),
        places,
        st.integers(0, 8),
        operands,
    ),
    st.builds(lambda place, sides: b"\x09" + operand(place + b"".join(sides)), places, st.lists(operands, max_size=3)),
    st.builds(lambda place, pattern: b"\x0a" + operand(place + pattern), places, texts),
    places.map(lambda place: b"\x0b" + operand(place)),
    st.binary(max_size=2).map(lambda truth: b"\x0c" + operand(truth)),
)
operations = st.one_of(
    st.builds(lambda key: b"\x01" + operand(key), texts),
    st.builds(lambda op, key, value: bytes([op]) + operand(key) + operand(value), st.integers(2, 4), texts, texts),
    st.sampled_from([b"\x05", b"\x06", b"\x07"]),
    st.binary(max_size=3),
    conditions,
)


@given(st.lists(operations, max_size=8).map(b"".join), bodies)
def test_filters(pure: SimpleNamespace, program: bytes, message: bytes) -> None:
    assert outcome(filters.matches, program, message) == outcome(pure.filters.matches, program, message)


NUMBERS = "+-.eE0123459 x"


@given(
    st.text(NUMBERS, max_size=12) | st.from_regex(r"[+-]?[0-9]{17,21}(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
)
@example("9223372036854775807")
@example("-9223372036854775808")
@example("9223372036854775808")
@example("-9223372036854775809")
@example("1e308")
@example("1e309")
@example("0" * 63 + "7")
@example("0" * 64 + "7")
@settings(max_examples=examples(300))
def test_numbers(pure: SimpleNamespace, text: str) -> None:
    """Read as rules read them, compared with one half, which parts integers from other numbers, too."""
    number = number_of(text)
    message = field(2, field(1, b"n") + field(2, text.encode()))
    for relation, wanted in ((2, number == number), (1, number is not None and number < 0.5)):
        beside = 0.5 if relation == 1 or number is None else number
        side = struct.pack("<Bd", 3, beside) if isinstance(beside, float) else struct.pack("<Bq", 2, beside)
        program = b"\x08" + operand(b"\x00\x01\x00n" + bytes([relation]) + side)
        assert filters.matches(program, message) == pure.filters.matches(program, message)
        assert filters.matches(program, message) is (number is not None and wanted), text


@given(st.binary(max_size=70), st.binary(max_size=60))
def test_ackids(pure: SimpleNamespace, data: bytes, ack_id: bytes) -> None:
    assert ackids.tag_of(KEY, data) == pure.ackids.tag_of(KEY, data)
    assert outcome(ackids.decode, KEY, ack_id) == outcome(pure.ackids.decode, KEY, ack_id)


@given(st.binary(max_size=40), st.binary(max_size=60))
def test_broken_runs_and_sets(pure: SimpleNamespace, runs: bytes, encoded: bytes) -> None:
    assert outcome(acks.decode_runs, runs) == outcome(pure.acks.decode_runs, runs)
    assert outcome(acks.AckSet().add_runs, runs) == outcome(pure.acks.AckSet().add_runs, runs)
    mine, theirs = outcome(acks.AckSet.decode, b"\x01" + encoded), outcome(pure.acks.AckSet.decode, b"\x01" + encoded)
    if isinstance(mine, tuple):
        assert mine == theirs
    else:
        assert mine.encode() == theirs.encode()


json_bits = st.sampled_from(
    [b'"a"', b'"b"', b"{", b"}", b"[", b"]", b":", b",", b"1", b"-0", b"2.5", b"1e3", b"true", b"null", b" ",
     b'"\\n', b"\xc3", b'{"a":', b',"b":', b'"a long text of letters"'],
)  # fmt: skip


@given(st.lists(st.lists(json_bits, max_size=12).map(b"".join), max_size=3), st.integers(-1, 2), st.integers(-1, 3))
@settings(max_examples=examples(400))
def test_json_fields(pure: SimpleNamespace, values: list[bytes], first: int, rows: int) -> None:
    ends = struct.pack(f"<{len(values) + 1}I", *(len(b"".join(values[:i])) for i in range(len(values) + 1)))
    paths, without = [[b"a"], [b"a", b"b"]], [b"c"]
    one, other = json_fields.FieldFinder(paths, without), pure.json_fields.FieldFinder(paths, without)
    arguments = (b"".join(values), ends, first, rows)
    assert outcome(one.find, *arguments) == outcome(other.find, *arguments)


@given(st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_acksets(pure: SimpleNamespace, chance: random.Random) -> None:
    mine, theirs = acks.AckSet(), pure.acks.AckSet()
    for _ in range(25):
        begin = chance.choice([chance.randrange(400_000), 65_536 * chance.randrange(5) + chance.randrange(-9, 9)])
        end = begin + chance.choice([0, 1, chance.randrange(200), chance.randrange(200_000)])
        name = chance.choice(["add", "add", "add", "remove", "count", "covers", "mask", "first_gap", "contains"])
        arguments = (begin,) if name in ("first_gap", "contains") else (begin, end)
        assert outcome(getattr(mine, name), *arguments) == outcome(getattr(theirs, name), *arguments)
    assert mine.encode() == theirs.encode()
    assert list(mine.runs()) == list(theirs.runs())


@given(st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_leases(pure: SimpleNamespace, chance: random.Random) -> None:
    tables = [leases.LeaseTable(KEY, 3, 1), pure.leases.LeaseTable(KEY, 3, 1)]
    ids = [ackids.encode(KEY, 1, 2, 3, 3, 1), ackids.encode(KEY, 1, 2, 3, 3, 2), b"bad"]
    now = 0

    def both(name: str, *arguments: Any) -> Any:
        mine, theirs = (outcome(getattr(table, name), *arguments) for table in tables)
        assert mine == theirs, name
        return mine

    for _ in range(25):
        now += chance.randrange(3)
        known = [chance.choice(ids) for _ in range(chance.randrange(6))]
        raw = b"".join(field(2, one) for one in known) + chance.choice([b"", b"", field(1, b"s"), b"\x12"])
        match chance.randrange(8):
            case 0 | 1 | 2:
                count, first = chance.randrange(30), chance.choice([0, 1010, 2**61])
                payload = b"".join(
                    operand(body)[:2] + b"\0\0" + body
                    for body in (field(1, b"x" * chance.randrange(9)) + field(2, field(1, b"k")) for _ in range(count))
                )
                begin = first + chance.randrange(10)
                response = both(
                    "lease", chance.choice([1, 2**64 - 1]), payload, first, begin, begin + chance.randrange(40),
                    chance.choice([None, chance.randbytes(3)]), chance.choice([b"", b"", b"\x01\x01\0k", b"\x05"]),
                    chance.randrange(3), now + chance.randrange(20), chance.choice([2, 100]),
                    chance.choice([0, 50, 10**6]), chance.choice([0, 0, 5]), chance.choice([-1, -1, 12]),
                )  # fmt: skip
                if isinstance(response[0], bytes):
                    parsed = leases.list_ids(response[0], 1)
                    ids += [leases.list_ids(one, 1)[0] for one in parsed]
            case 3 | 4:
                both("acknowledge", raw, 2, now, chance.random() < 0.5)
            case 5:
                seconds = chance.choice([0, 1, -1, [0] * len(known), [1]])
                both("modify", raw, 2, seconds, now, chance.random() < 0.5)
            case 6:
                both("expire", now)
            case _:
                name = chance.choice(["release_serial", "release_consumer", "drop_source"])
                both(name, chance.randrange(4))
        for name in ("total", "next_deadline", "oldest", "blocks"):
            both(name)
