"""Circles end: counts of forwards and letters go on through whatever changes a message on its way."""

from __future__ import annotations

import json

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.reserved import COUNTS, FORWARD_HOPS, LETTERS
from syncpoint.base.rules.sql_compile import compile_action
from syncpoint.base.rules.sql_parser import parse_action
from syncpoint.base.rules.system_properties import SERVER_WRITTEN, RuleMessage
from syncpoint.base.rules.trial import check_rule
from syncpoint.broker.forward import forward_kind
from syncpoint.broker.subscribe import expired_letters, lane_rules
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.broker.subscribe.dead_letter import BY_ITSELF, LETTERS_MAX, goes_round, letter
from syncpoint.broker.subscribe.shared_state import Reason
from syncpoint.catalog.metadata.entity_options import MessageRule, SubscriptionOptions
from syncpoint.catalog.metadata.records import DeadLetter
from syncpoint.catalog.transforms.message_transforms import _changed
from syncpoint.front.api.letter_edits import chosen
from syncpoint.testing.rigs.forwarder_harness import TOPIC, ForwarderHarness, Subscriber
from syncpoint.wire.protobuf.messages import pubsub

SPELLINGS = [spelt(name) for name in sorted(SERVER_WRITTEN) for spelt in (str, str.upper, str.lower, str.swapcase)]
ACTIONS = [
    form.format(name)
    for name in SPELLINGS
    for form in ("SET [{}] = '0'", "REMOVE [{}]", "SET user.[{}] = '0'", "SET own = 1; REMOVE [{}]")
]


@pytest.mark.parametrize("action", ACTIONS)
def test_no_action_changes_what_the_server_writes(action: str) -> None:
    before = dict.fromkeys(SERVER_WRITTEN, "3") | {"own": "1"}
    act = compile_action(parse_action(f"{action}; SET own = 2"))
    after = act(RuleMessage(before), str)
    assert {name: after.get(name) for name in SERVER_WRITTEN} == dict.fromkeys(SERVER_WRITTEN, "3")
    assert after["own"] == "2"
    assert not act(RuleMessage({}), str).keys() & SERVER_WRITTEN, "nor does one that is not there come about"


@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_that_names_what_the_server_writes_is_refused_when_it_is_made(action: str) -> None:
    with pytest.raises(InvalidArgument, match="written by the server, and cannot be changed"):
        check_rule(MessageRule("r", "1=1", (), action, ()))
    with pytest.raises(InvalidArgument, match="written by the server, and cannot be changed"):
        chosen(b"", action, [])


@pytest.mark.parametrize("attributes", [{}, {FORWARD_HOPS: "0", LETTERS: "0"}, {FORWARD_HOPS.lower(): "0"}])
def test_no_function_changes_the_counts(attributes: dict[str, str]) -> None:
    message = pubsub.PubsubMessage(data=b"x", attributes=dict.fromkeys(COUNTS, "3"))
    result = json.dumps({"data": "y", "attributes": attributes})
    changed = _changed(message, result)
    assert isinstance(changed, pubsub.PubsubMessage)
    assert {name: changed.attributes[name] for name in COUNTS} == dict.fromkeys(COUNTS, "3")
    fresh = _changed(pubsub.PubsubMessage(data=b"x"), result)
    assert isinstance(fresh, pubsub.PubsubMessage)
    assert not fresh.attributes.keys() & set(COUNTS)


def test_a_letter_begins_anew_and_counts_itself() -> None:
    record = ForwarderHarness(dead_letter=DeadLetter(TOPIC, 5)).record
    message = pubsub.PubsubMessage(data=b"x", attributes={FORWARD_HOPS: "4"})
    for attempts in (3, None):
        for before in range(2 * LETTERS_MAX):
            request = letter(
                message.SerializeToString(), record, CopyId(1, before, 0), attempts, Reason("Odd", ""), left=None
            )
            (message,) = pubsub.PublishRequest.FromString(request).messages
            assert FORWARD_HOPS not in message.attributes
        assert message.attributes[LETTERS] == str(2 * LETTERS_MAX * (1 if attempts else 2))


def test_the_server_ends_circles_that_turn_by_themselves_and_leaves_others_to_consumers() -> None:
    own = {
        expired_letters.EXPIRED.name, lane_rules.FILTER_FAILS, lane_rules.ACTION_FAILS, lane_rules.RESULT_TOO_LARGE,
        forward_kind.TOO_FAR.name, forward_kind.REFUSED,
    }  # fmt: skip
    assert own == BY_ITSELF
    for count in range(LETTERS_MAX + 2):
        message = pubsub.PubsubMessage(attributes={LETTERS: str(count)}).SerializeToString()
        for name in own:
            assert goes_round(message, Reason(name, "")) is (count >= LETTERS_MAX)
        assert not goes_round(message, Reason("Mine", ""))
    assert not goes_round(pubsub.PubsubMessage(data=LETTERS.encode()).SerializeToString(), expired_letters.EXPIRED)


def test_letters_that_run_out_where_they_go_do_not_go_round_for_ever() -> None:
    harness = ForwarderHarness(
        dead_letter=DeadLetter(TOPIC, 5), options=SubscriptionOptions(ttl_s=60, dead_letter_expired=True)
    )
    harness.send("old")
    for _ in range(3 * LETTERS_MAX):
        harness.clock.advance(100)
        subscriber = Subscriber(harness)
        harness.advance(2)
        harness.subscribe.leave(harness.record, subscriber.consumer, ())
    (source,) = harness.publish.sources.of_topic(1)
    assert source.end == 1 + LETTERS_MAX
    ledger = harness.publish.ledgers[harness.record.incarnation]
    assert ledger.covers(source.number, 0, LETTERS_MAX)
    assert not ledger.covers(source.number, LETTERS_MAX, source.end), "the last one stays"
