"""`sys.Label` is `sys.Subject`: one property, whichever name a publisher or a rule has for it."""

from __future__ import annotations

import pytest
from google.pubsub_v1 import types

from syncpoint.base.kernel.filters import matches
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.rules.correlation import check_texts, correlation
from syncpoint.base.rules.kernel_program import correlation_program, program_of
from syncpoint.base.rules.sql_compile import compile_action, compile_filter
from syncpoint.base.rules.sql_parser import parse_action, parse_filter
from syncpoint.base.rules.system_properties import RuleMessage
from tests.kit.older_names import HELD, LEFT, NAMES, SELECTED

Message = types.PubsubMessage.pb()
STORED = [Message(data=b"x", attributes=one).SerializeToString() for one in HELD]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", SELECTED)
def test_filters_read_both_names(text: str, name: str) -> None:
    node = parse_filter(text.replace("{}", name))
    function, program = compile_filter(node), program_of(node)
    assert program is not None
    assert [number for number, held in enumerate(HELD) if function(RuleMessage(held), str)] == SELECTED[text]
    assert [number for number, stored in enumerate(STORED) if matches(program, stored)] == SELECTED[text]


@pytest.mark.parametrize("name", NAMES)
def test_correlation_reads_both_names(name: str) -> None:
    wanted = correlation({name: "a"})
    program = correlation_program(wanted)
    assert program is not None
    selected = SELECTED["{} = 'a'"]
    assert [number for number, held in enumerate(HELD) if wanted.matches(RuleMessage(held))] == selected
    assert [number for number, stored in enumerate(STORED) if matches(program, stored)] == selected
    both = correlation_program(correlation({name: "a", "n": "1"}))
    assert both is not None
    assert matches(both, Message(attributes={"sys.Label": "a", "n": "1"}).SerializeToString())
    assert not matches(both, Message(attributes={"sys.Label": "a", "n": "2"}).SerializeToString())


def test_a_correlation_filter_asks_for_one_text_of_a_property() -> None:
    check_texts({"sys.Label": "a", "sys.subject": "a", "Label": "b"})
    for name in ("sys.Subject", "sys.label"):
        with pytest.raises(InvalidArgument, match=r"names sys\.Subject twice"):
            check_texts({"sys.Label": "a", name: "b"})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("text", "before", "after"), LEFT)
def test_actions_write_under_the_name_that_is_there(
    text: str, before: dict[str, str], after: dict[str, str], name: str
) -> None:
    assert compile_action(parse_action(text.replace("{}", name)))(RuleMessage(before), str) == after


def test_a_chain_of_both_names_fits_into_the_kernel() -> None:
    text = " OR ".join(f"sys.Label = '{number}'" for number in range(40))
    program = program_of(parse_filter(text))
    assert program is not None
    assert matches(program, Message(attributes={"sys.Label": "39"}).SerializeToString())
    assert not matches(program, Message(attributes={"sys.Label": "40"}).SerializeToString())
