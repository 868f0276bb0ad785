"""The filter language: what is legal, what it means, and that the kernel's program means the same."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import Code, InvalidArgument
from syncpoint.base.rules import pubsub_filter
from syncpoint.base.rules.pubsub_filter import All, Any, Equals, Has, HasPrefix, Node, Not, evaluate, parse
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("filters")


def run(program: bytes, attributes: Mapping[str, str]) -> bool:
    """A second reading of the program format, so that a mistake in it shows even without the kernel."""
    stack: list[bool] = []
    at = 0

    def text() -> str:
        nonlocal at
        size = int.from_bytes(program[at : at + 2], "little")
        data = program[at + 2 : at + 2 + size]
        assert len(data) == size
        at += 2 + size
        return data.decode()

    while at < len(program):
        operation = program[at]
        at += 1
        if operation == 1:
            stack.append(text() in attributes)
        elif operation in (2, 3, 4):
            key, value = text(), text()
            if operation == 4:
                stack.append(key in attributes and attributes[key].startswith(value))
            else:
                stack.append((attributes.get(key) == value) == (operation == 2))
        elif operation == 5:
            stack.append(not stack.pop())
        else:
            right, left = stack.pop(), stack.pop()
            stack.append((left and right) if operation == 6 else (left or right))
        assert len(stack) <= 64
    (result,) = stack or [True]
    return result


CASES: list[tuple[str, Node]] = [
    ("attributes:domain", Has("domain")),
    ('attributes.domain = "com"', Equals("domain", "com")),
    ('attributes.domain="com"', Equals("domain", "com")),
    ('attributes.domain != "com"', Equals("domain", "com", negated=True)),
    ('hasPrefix(attributes.domain, "co")', HasPrefix("domain", "co")),
    ('hasPrefix ( attributes . domain ,"co" )', HasPrefix("domain", "co")),
    ("NOT attributes:a", Not(Has("a"))),
    ("-attributes:a", Not(Has("a"))),
    ("- attributes:a", Not(Has("a"))),
    ("NOT(attributes:a)", Not(Has("a"))),
    ("attributes:a AND attributes:b", All((Has("a"), Has("b")))),
    ("attributes:a OR attributes:b OR attributes:c", Any((Has("a"), Has("b"), Has("c")))),
    ("NOT attributes:a AND attributes:b", All((Not(Has("a")), Has("b")))),
    ("attributes:a AND (attributes:b OR NOT attributes:c)", All((Has("a"), Any((Has("b"), Not(Has("c"))))))),
    ("((attributes:a))", Has("a")),
    ("attributes:my-key_1", Has("my-key_1")),
    ("attributes:1st", Has("1st")),
    ('attributes:"iana.org/language_tag"', Has("iana.org/language_tag")),
    ('attributes."a b" = "x y"', Equals("a b", "x y")),
    ("attributes:みんな", Has("みんな")),
    ('attributes:"\\u307F\\u3093\\u306A"', Has("みんな")),
    ('attributes:"\\xe3\\x81\\xbf\\343\\202\\223"', Has("みん")),
    ('attributes:"\\U0001F600\\ud83d\\ude00"', Has("😀😀")),
    ('attributes.k = "a\\"b\\\\c\\n\\t\\101"', Equals("k", 'a"b\\c\n\tA')),
    ('attributes.k = ""', Equals("k", "")),
    ('attributes.k = "attributes:a AND"', Equals("k", "attributes:a AND")),
    ("attributes:AND AND attributes:NOT", All((Has("AND"), Has("NOT")))),
    (" \n attributes:a\t", Has("a")),
]


@pytest.mark.parametrize(("text", "node"), CASES, ids=[text for text, _ in CASES])
def test_legal_filters(text: str, node: Node) -> None:
    assert parse(text) == node


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (" ", 2),
        ("attributes", 11),
        ("attributes.a", 13),
        ("attributes:", 12),
        ("attributes.a = b", 16),
        ("attributes.a = 'b'", 16),
        ('attributes.a > "b"', 14),
        ('"com" = attributes.name', 1),
        ("attributes.name = attributes.website", 19),
        ("attributes:a AND attributes:b OR attributes:c", 31),
        ("attributes:a OR attributes:b AND attributes:c", 30),
        ("attributes:a and attributes:b", 14),
        ("attributes:a attributes:b", 14),
        ("attributes:a AND", 17),
        ("AND attributes:a", 1),
        ("NOT NOT attributes:a", 5),
        ("(attributes:a", 14),
        ("attributes:a)", 13),
        ("attributes:a.b", 13),
        ('attributes.k = "x', 16),
        ('attributes.k = "\\q"', 17),
        ('attributes.k = "\\u12"', 17),
        ('attributes.k = "\\777"', 17),
        ('attributes.k = "\\xff"', 16),
        ('attributes.k = "\\ud800"', 16),
        ('attributes.k = "\\UFFFFFFFF"', 17),
        ('attributes:""', 12),
        ("attributes:\\u307F", 12),
        ('hasprefix(attributes.a, "b")', 1),
        ('hasPrefix(attributes:a, "b")', 21),
        ('hasPrefix(attributes.a "b")', 24),
        ("data:a", 1),
        ("attributesX:a", 1),
        ("(" * 100 + "attributes:a" + ")" * 100, 52),
    ],
)
def test_illegal_filters_say_where(text: str, position: int) -> None:
    with pytest.raises(InvalidArgument) as caught:
        pubsub_filter.compile(text)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.field == "filter"
    assert f" at character {position} of " in caught.value.message


def test_the_length_is_counted_in_bytes() -> None:
    head = 'attributes.k = "'
    assert pubsub_filter.compile(head + "x" * (256 - len(head) - 1) + '"')
    for filler in ("x" * (256 - len(head)), "é" * (256 - len(head) - 1)):
        with pytest.raises(InvalidArgument, match="256 bytes"):
            pubsub_filter.compile(head + filler + '"')


def test_the_empty_filter_lets_everything_pass() -> None:
    assert pubsub_filter.compile("") == b""


def test_a_missing_attribute_differs_from_every_value() -> None:
    assert evaluate(parse('attributes.a != "x"'), {})
    assert not evaluate(parse('attributes.a = ""'), {})
    assert not evaluate(parse('hasPrefix(attributes.a, "")'), {})
    assert evaluate(parse('hasPrefix(attributes.a, "")'), {"a": ""})


keys = st.sampled_from(["a", "b", "my-key", "é", "with space"])
values = st.sampled_from(["", "x", "xy", "é", 'quote"', "back\\slash", "😀"])
leaves = st.one_of(
    st.builds(Has, keys), st.builds(Equals, keys, values, st.booleans()), st.builds(HasPrefix, keys, values)
)
nodes = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, min_size=2, max_size=3).map(lambda found: All(tuple(found))),
        st.lists(inner, min_size=2, max_size=3).map(lambda found: Any(tuple(found))),
    ),
    max_leaves=4,
)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def written(node: Node) -> str:
    match node:
        case Has(key):
            return f"attributes:{quoted(key)}"
        case Equals(key, value, negated):
            return f"attributes.{quoted(key)}{'!=' if negated else '='}{quoted(value)}"
        case HasPrefix(key, prefix):
            return f"hasPrefix(attributes.{quoted(key)},{quoted(prefix)})"
        case Not(operand):
            return f"NOT ({written(operand)})"
        case All(operands):
            return " AND ".join(f"({written(operand)})" for operand in operands)
        case Any(operands):
            return " OR ".join(f"({written(operand)})" for operand in operands)


@given(nodes, st.dictionaries(keys, values))
def test_program_and_tree_agree(node: Node, attributes: dict[str, str]) -> None:
    text = written(node)
    if len(text.encode()) > 256:
        with pytest.raises(InvalidArgument):
            parse(text)
        return
    assert parse(text) == node
    expected = evaluate(node, attributes)
    assert run(pubsub_filter.compile(text), attributes) is expected
    if importlib.util.find_spec("syncpoint.base.kernel") and importlib.util.find_spec("syncpoint.base.kernel.filters"):
        from syncpoint.base.kernel import filters

        message = pubsub.PubsubMessage(data=b"x", attributes=attributes, ordering_key="k").SerializeToString()
        assert filters.matches(pubsub_filter.compile(text), message) is expected


@given(st.text(alphabet='atribues.:=!"()ANDORT hPfx,\\-', max_size=80))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        program = pubsub_filter.compile(text)
    except InvalidArgument:
        return
    run(program, {})
