"""Filters, parsed and evaluated, against the plain evaluation of the trees their texts were made from."""

from __future__ import annotations

import itertools

from google.pubsub_v1 import types
from hypothesis import example, given, settings
from hypothesis import strategies as st

from syncpoint.base.kernel.filters import matches
from syncpoint.base.rules.explain import Part, explain
from syncpoint.base.rules.kernel_program import program_of
from syncpoint.base.rules.sql_compile import compile_filter
from syncpoint.base.rules.sql_parser import parse_filter
from syncpoint.base.rules.sql_tree import Negation
from syncpoint.base.rules.sql_values import RuleError
from syncpoint.base.rules.system_properties import RuleMessage
from tests.kit.examples import examples
from tests.unit.base.rules import reference
from tests.unit.base.rules.reference import Tree

Message = types.PubsubMessage.pb()
NAMES = ["a", "b", "B", "cc"]
TEXTS = [
    "", "1", "2", "-3", "+3", "2.5", ".5", "2.", "1e1", "1e999", "9223372036854775807", "9223372036854775808", "true",
    "False", "x", "x%", "ax_b", "o'hara", "ü", "üx\U0001f600", "1 ", "0x1", "é",
]  # fmt: skip
messages = st.dictionaries(st.sampled_from([*NAMES, "A", "Cc", "CC"]), st.sampled_from(TEXTS), max_size=4)
constants = st.tuples(
    st.just("constant"),
    st.sampled_from([*TEXTS, *TEXTS, 0, 1, 2, 3, 9223372036854775807, 2.5, 0.5, 1e300, None, True, False]),
)
properties = st.tuples(st.just("property"), st.sampled_from(NAMES))
leaves = constants | properties | properties
numbers = st.tuples(st.just("constant"), st.sampled_from([0, 1, 2, 3, 2.5])) | properties
expressions: st.SearchStrategy[Tree] = st.recursive(
    leaves,
    lambda inner: st.tuples(st.sampled_from("+-*/%"), inner, inner) | st.tuples(st.just("negative"), numbers),
    max_leaves=4,
)
plain: st.SearchStrategy[Tree] = st.one_of(
    st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), leaves, leaves),
    st.tuples(st.sampled_from(["in", "not in"]), leaves, st.lists(leaves, min_size=1, max_size=3)),
    st.tuples(
        st.sampled_from(["like", "not like"]),
        properties | constants,
        st.tuples(st.just("constant"), st.text("%_!xüa\U0001f600", max_size=6)),
        st.none() | st.just(("constant", "!")),
    ),
    st.tuples(st.sampled_from(["is null", "is not null", "exists"]), st.sampled_from(NAMES)),
)
"""Conditions without arithmetic."""
computed: st.SearchStrategy[Tree] = plain | st.tuples(
    st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), expressions, expressions
)


def joined(conditions: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    """Conditions of conditions."""
    return st.recursive(
        conditions,
        lambda inner: st.tuples(st.just("not"), inner) | st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        max_leaves=5,
    )


def outcome(tree: Tree, message: dict[str, str]) -> bool | str | None:
    """By the reference."""
    try:
        return reference.holds(tree, message)
    except reference.Fails:
        return "fails"


def in_bytes(message: dict[str, str]) -> bytes:
    return Message(attributes=message, message_id="1").SerializeToString()


@given(joined(plain), st.lists(messages, min_size=3, max_size=3))
@settings(max_examples=examples(200), deadline=None)
def test_the_kernel_means_the_same(tree: Tree, held: list[dict[str, str]]) -> None:
    node = parse_filter(reference.text(tree))
    program = program_of(node)
    negated = program_of(Negation((0, 0), node))
    if program is None or negated is None:
        assert outcome(tree, {}) == "fails" or "!" in reference.text(tree)
        return
    for message in held:
        wanted = outcome(tree, message)
        assert matches(program, in_bytes(message)) is (wanted is True), (reference.text(tree), message)
        assert matches(negated, in_bytes(message)) is (wanted is False), (reference.text(tree), message)


def failing_part(parts: list[Part]) -> Part:
    """The innermost part that fails as the whole does: all parts of it are well."""
    assert parts[0].result.startswith("fails: ")
    causes = [at for at, part in enumerate(parts) if part.result == parts[0].result]
    depth, at = max((parts[one].depth, one) for one in causes)
    inside = itertools.takewhile(lambda part: part.depth > depth, parts[at + 1 :])
    assert not any(part.result.startswith("fails: ") for part in inside)
    return parts[at]


@given(joined(computed), st.lists(messages, min_size=3, max_size=3))
@example(("=", ("-", ("-", ("constant", 3), ("constant", 2)), ("constant", 1)), ("constant", 0)), [{}])
@example(("=", ("/", ("/", ("constant", 8), ("constant", 4)), ("constant", 2)), ("constant", 1)), [{}])
@settings(max_examples=examples(150), deadline=None)
def test_a_filter_means_what_its_tree_says(tree: Tree, held: list[dict[str, str]]) -> None:
    text = reference.text(tree)
    node = parse_filter(text)
    evaluate = compile_filter(node)
    for message in held:
        try:
            found: bool | str | None = evaluate(RuleMessage(message), str)
        except RuleError:
            found = "fails"
        assert found == outcome(tree, message), (text, message)
        parts = explain(text, node, RuleMessage(message), str)
        if found != "fails":
            assert parts[0].result == {True: "true", False: "false", None: "unknown"}[found]
            continue
        named = failing_part(parts)
        assert named.text in text
        assert named.result == parts[0].result
