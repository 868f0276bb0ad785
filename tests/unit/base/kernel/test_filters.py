"""Filter programs against a small evaluator of the same trees."""

from __future__ import annotations

import pytest
from google.pubsub_v1 import types
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.kernel.filters import matches

Message = types.PubsubMessage.pb()
HAS, EQ, NE, PREFIX, NOT, AND, OR = range(1, 8)
LEAVES = (HAS, EQ, NE, PREFIX)

keys = st.sampled_from(["a", "b", "ab", "ü", ""])
values = st.sampled_from(["", "x", "xy", "xyz", "y", "ü"])
attributes = st.dictionaries(keys, values, max_size=4)
leaves = st.tuples(st.sampled_from(LEAVES), keys, values)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.just(NOT), inner),
        st.tuples(st.sampled_from([AND, OR]), inner, inner),
    ),
    max_leaves=12,
)


def text(value: str) -> bytes:
    raw = value.encode()
    return len(raw).to_bytes(2, "little") + raw


def program(tree: tuple) -> bytes:
    op, *rest = tree
    if op == HAS:
        return bytes([op]) + text(rest[0])
    if op in LEAVES:
        return bytes([op]) + text(rest[0]) + text(rest[1])
    return b"".join(program(part) for part in rest) + bytes([op])


def evaluate(tree: tuple, held: dict[str, str]) -> bool:
    op, *rest = tree
    if op == NOT:
        return not evaluate(rest[0], held)
    if op == AND:
        return evaluate(rest[0], held) and evaluate(rest[1], held)
    if op == OR:
        return evaluate(rest[0], held) or evaluate(rest[1], held)
    key, value = rest
    if op == HAS:
        return key in held
    if op == EQ:
        return held.get(key) == value
    if op == NE:
        return held.get(key) != value
    return key in held and held[key].startswith(value)


@given(trees, attributes, st.binary(max_size=20))
def test_programs_mean_what_their_trees_mean(tree: tuple, held: dict[str, str], data: bytes) -> None:
    message = Message(data=data, attributes=held, message_id="1").SerializeToString()
    assert matches(program(tree), message) is evaluate(tree, held)


@given(trees, st.lists(attributes, min_size=2, max_size=3))
def test_of_equal_keys_the_last_counts(tree: tuple, parts: list[dict[str, str]]) -> None:
    joined = b"".join(Message(attributes=part).SerializeToString() for part in parts)
    held = {key: value for part in parts for key, value in part.items()}
    assert dict(Message.FromString(joined).attributes) == held
    assert matches(program(tree), joined) is evaluate(tree, held)


def test_the_empty_program_matches_everything() -> None:
    assert matches(b"", b"")
    assert matches(b"", Message(attributes={"a": "b"}).SerializeToString())


def test_a_prefix_does_not_go_on_behind_the_value() -> None:
    message = Message(attributes={"a": "x"}, message_id="1").SerializeToString()
    assert b"x\x1a\x011" in message
    assert matches(program((PREFIX, "a", "x")), message)
    assert not matches(program((PREFIX, "a", "x\x1a\x011")), message)


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_any_bytes_are_a_verdict_or_malformed(code: bytes, message: bytes) -> None:
    try:
        assert matches(code, message) in (True, False)
    except Malformed:
        return


@given(trees, st.data())
def test_cut_programs_are_malformed_or_shorter_programs(tree: tuple, data: st.DataObject) -> None:
    code = program(tree)
    size = data.draw(st.integers(1, len(code) - 1))
    try:
        matches(code[:size], b"")
    except Malformed:
        return
    assert code[0] in LEAVES


def test_the_stack_is_64_deep() -> None:
    leaf = program((EQ, "a", "x"))
    message = Message(attributes={"a": "x"}).SerializeToString()
    assert matches(leaf * 64 + bytes([AND]) * 63, message) is True
    assert matches(leaf * 63 + program((EQ, "a", "y")) + bytes([AND]) * 63, message) is False
    assert matches(program((EQ, "a", "y")) + leaf * 63 + bytes([AND]) * 63, message) is False
    with pytest.raises(Malformed):
        matches(leaf * 65 + bytes([AND]) * 64, message)


@pytest.mark.parametrize("code", [b"\x05", b"\x00", b"\x08", b"\x01", b"\x01\x05\x00ab", b"\x01\x01\x00a\x06"])
def test_broken_programs(code: bytes) -> None:
    with pytest.raises(Malformed):
        matches(code, b"")


def test_two_results_are_one_too_many() -> None:
    with pytest.raises(Malformed):
        matches(program((HAS, "a", "")) * 2, b"")
