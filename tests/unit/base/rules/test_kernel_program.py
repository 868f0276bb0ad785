"""Which filters the kernel evaluates, and where it finds what they name."""

from __future__ import annotations

import pytest
from google.pubsub_v1 import types

from syncpoint.base.kernel.filters import matches
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.rules import pubsub_filter
from syncpoint.base.rules.correlation import correlation
from syncpoint.base.rules.kernel_program import any_of, correlation_program, program_of
from syncpoint.base.rules.sql_compile import compile_filter
from syncpoint.base.rules.sql_parser import parse_filter
from syncpoint.base.rules.system_properties import RuleMessage

Message = types.PubsubMessage.pb()
HELD = {"n": "3", "Name": "O'Hara", "name": "x", "sys.subject": "greeting", "sys.ReplyTo": ""}
STORED = Message(attributes=HELD, message_id="77", ordering_key="key").SerializeToString()
SEEN = RuleMessage(HELD, "77", "key")


def program(text: str, **parameters: bool | int | float | str | None) -> bytes:
    found = program_of(parse_filter(text), parameters)
    assert found is not None, text
    return found


@pytest.mark.parametrize(
    "text",
    [
        "sys.MessageId = 77", "sys.MessageId = '7'", "sys.SessionId = 'key'", "sys.PartitionKey <> 'key'",
        "sys.Label = 'greeting'", "sys.ReplyTo = ''", "sys.ReplyTo IS NULL", "sys.To IS NULL", "NAME = 'O''Hara'",
        "p('n') = 3", "n = @three", "n IN (@three + 1, 1 + 2)", "-n = 3 OR n = 3", "3 > n", "3 >= n", "1=1", "1 = 2",
        "NULL = NULL", "n IN (NULL, 4)", "3 IN (n, 4)", "3 IN (4, 5)", "'ab' LIKE 'a_'", "name LIKE 5", "[n] = n",
        "sys.SessionId IS NOT NULL AND EXISTS(sys.MessageId)", "n = 99999999999.5", "n < 1e300", "n = TRUE",
    ],
)  # fmt: skip
def test_programs_and_closures_agree(text: str) -> None:
    node = parse_filter(text)
    wanted = compile_filter(node, {"three": 3})(SEEN, str)
    found = program_of(node, {"three": 3})
    if text.startswith("-"):
        assert found is None
        return
    assert found is not None
    assert matches(found, STORED) is (wanted is True)


def test_without_a_key_and_an_id_there_is_none() -> None:
    assert not matches(
        program("EXISTS(sys.SessionId) OR EXISTS(sys.MessageId)"), Message(data=b"x").SerializeToString()
    )
    own = Message(attributes={"sys.MessageId": "mine"}, message_id="77").SerializeToString()
    assert matches(program("sys.MessageId = 'mine'"), own)


@pytest.mark.parametrize(
    "text",
    [
        "n + 1 = 4", "größe = 1", "sys.TimeToLive = '0:1'", "sys.SequenceNumber = 1", "p(n) = 1", "newid() = n",
        "n LIKE '%" + "a" * 33 + "%'",
        "n LIKE name", "1 / 0 = 1", "n LIKE '!' ESCAPE '!'", "sys.EnqueuedTimeUtc > '2026-01-01'",
    ],
)  # fmt: skip
def test_the_rest_has_no_program(text: str) -> None:
    assert program_of(parse_filter(text)) is None


def test_a_program_never_needs_more_room_than_the_kernel_has() -> None:
    text = "n=1"
    while program_of(parse_filter(text)) is not None:
        assert matches(program(text), STORED) in (True, False)
        text = f"n=3 OR n=1 AND ({text})" if len(text) < 900 else "n=" + "1+" * 50 + "n"


def test_parameters_have_to_be_given() -> None:
    with pytest.raises(InvalidArgument, match="@gone has no value"):
        program_of(parse_filter("n = @gone"))


def test_correlation_is_equality_of_texts() -> None:
    def finds(**wanted: str) -> bool:
        found = correlation_program(correlation({name.replace("_", "."): text for name, text in wanted.items()}))
        assert found is not None
        return matches(found, STORED)

    assert finds(N="3", name="x", sys_Label="greeting", sys_SessionId="key", sys_MessageId="77")
    assert not finds(n="3.0")
    assert not finds(n="3", gone="")
    assert correlation_program(correlation({"größe": "1"})) is None


def test_rules_together_select_what_one_of_them_does_and_the_filter_of_the_subscription_too() -> None:
    three, unknown, none = program("n = 3"), program("gone <> 1"), any_of([])
    assert not matches(none, STORED)
    assert matches(any_of([unknown, three]), STORED)
    assert matches(any_of([three, unknown]), STORED)
    assert not matches(any_of([unknown, unknown]), STORED)
    for text, passes in (("attributes:n", True), ("attributes:gone", False)):
        own = pubsub_filter.compile(text)
        assert matches(any_of([unknown, three], own), STORED) is passes
        assert matches(any_of([b"", three], own), STORED) is passes
        assert not matches(any_of([unknown], own), STORED)
        assert not matches(any_of([], own), STORED)
    assert any_of([b""]) == b""
