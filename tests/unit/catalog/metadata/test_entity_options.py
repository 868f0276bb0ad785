"""Options of records, and lanes: what rules that are changed do to messages, held against a plain account of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base.model.errors import ResourceExhausted
from syncpoint.catalog.metadata.entity_options import (
    DEFAULT_LANES,
    DEFAULT_RULE,
    LANES_MAX,
    NO_SUBSCRIPTION_OPTIONS,
    NO_TOPIC_OPTIONS,
    MessageRule,
    RuleChange,
    RuleLane,
    SubscriptionOptions,
    TopicOptions,
    changed_rules,
    lanes_of,
    rules_of,
    stopped_lanes,
    was_drained,
    without_drained,
    without_dropped,
)
from syncpoint.catalog.metadata.records import Subscription, Topic, decode_record, encode_record
from syncpoint.wire.protobuf.messages import catalog

pytestmark = pytest.mark.shows("options")

T = "projects/p/topics/t"
PLAIN, ACTION = MessageRule("r", "a = 1"), MessageRule("r", "a = 1", action="SET b = 2")


def subscription(options: SubscriptionOptions) -> Subscription:
    return Subscription(2, "projects/p/subscriptions/s", 1, T, options=options)


def stored(options: SubscriptionOptions) -> SubscriptionOptions:
    read = decode_record(encode_record(subscription(options)))
    assert isinstance(read, Subscription)
    return read.options


def test_records_without_options_share_them_and_store_nothing() -> None:
    topic, plain = Topic(1, T), subscription(NO_SUBSCRIPTION_OPTIONS)
    assert decode_record(encode_record(topic)).options is NO_TOPIC_OPTIONS  # type: ignore[union-attr]
    assert stored(NO_SUBSCRIPTION_OPTIONS) is NO_SUBSCRIPTION_OPTIONS
    assert len(encode_record(plain)) < len(encode_record(subscription(SubscriptionOptions(receive_suspended=True))))
    assert lanes_of(plain.options) is DEFAULT_LANES
    assert rules_of(plain.options) == (DEFAULT_RULE,)


def test_options_come_back_as_they_were() -> None:
    topic = Topic(1, T, options=TopicOptions(True, True, 120, 600))
    assert decode_record(encode_record(topic)) == topic
    parameters = (("a", True), ("b", 7), ("c", 7.5), ("d", "x"), ("e", None))
    rules = (MessageRule("r", correlation=(("k", "v"), ("l", "")), action="SET a = @b", parameters=parameters),)
    lanes = (RuleLane(0, (DEFAULT_RULE,), 0, 9), RuleLane(1 << 20, rules, 9, 10, 11, (0, 3)), RuleLane(7, ()))
    options = SubscriptionOptions(True, 2, True, True, lanes, 8)
    found = stored(options)
    assert found == options
    assert [type(value) for _, value in found.lanes[1].rules[0].parameters] == [bool, int, float, str, type(None)]


@pytest.mark.parametrize("order", ["as they come", "backwards", "mixed"])
def test_lanes_that_have_much_together_take_the_room_of_their_rules_once(order: str) -> None:
    """Each rule is added, changed and deleted while nothing of what was published is acknowledged."""
    numbers = list(range(80))
    if order == "backwards":
        numbers.reverse()
    elif order == "mixed":
        numbers.sort(key=lambda one: one * 37 % 80)
    options = NO_SUBSCRIPTION_OPTIONS
    put = [MessageRule(f"r{one:02}", "a" * 1000) for one in numbers]
    put += [MessageRule(f"r{one:02}", "a=@p", parameters=(("p", value),)) for one, value in ((1, True), (2, 1))]
    changes = [RuleChange((one,)) for one in put]
    changes += [RuleChange(delete=(name,)) for name in ("$Default", *(f"r{one:02}" for one in numbers))]
    for revision, change in enumerate(changes, 1):
        options = changed_rules(options, change, revision)
        found = stored(options)
        assert found == options
        assert len(encode_record(subscription(options))) < 300_000
        again = [[type(value) for rule in lane.rules for _, value in rule.parameters] for lane in found.lanes]
        assert again == [[type(value) for rule in lane.rules for _, value in rule.parameters] for lane in options.lanes]
    assert len(options.lanes) > 150


def test_what_lanes_have_is_written_with_each_where_it_is_little() -> None:
    """Versions before there was a table of rules read it so."""
    options = changed_rules(NO_SUBSCRIPTION_OPTIONS, RuleChange((PLAIN,)), 1)
    written = catalog.Record.FromString(encode_record(subscription(options))).subscription.options
    assert not written.rules
    assert [[rule.sql for rule in lane.rules] for lane in written.lanes] == [["1=1"], ["1=1", "a = 1"]]


def test_changes_for_what_comes_are_new_lanes() -> None:
    options = changed_rules(NO_SUBSCRIPTION_OPTIONS, RuleChange((ACTION,)), 5)
    assert options.lanes == (*DEFAULT_LANES, RuleLane(1, (ACTION,), 5))
    options = changed_rules(options, RuleChange((PLAIN,), ("$Default",)), 6)
    assert options.lanes == (
        RuleLane(0, (DEFAULT_RULE,), 0, 6),
        RuleLane(1, (ACTION,), 5, 6),
        RuleLane(2, (PLAIN,), 6),
    )
    assert without_drained(options, {0, 2}).lanes == options.lanes[1:]
    assert changed_rules(options, RuleChange((PLAIN,), ("absent",)), 7) is options


def test_changes_for_all_keep_what_is_acknowledged() -> None:
    every = changed_rules(NO_SUBSCRIPTION_OPTIONS, RuleChange((PLAIN,), ("$Default",), to_all=True), 5)
    assert every.lanes == (RuleLane(0, (DEFAULT_RULE,), dropped=5), RuleLane(1, (PLAIN,), 5, copy_of=(0,)))
    every = without_dropped(every, 5)
    options = changed_rules(every, RuleChange((ACTION,), to_all=True), 6)
    assert options.lanes[1:] == (RuleLane(2, (), 6, copy_of=(0, 1)), RuleLane(3, (ACTION,), 6, copy_of=(0, 1)))
    options = changed_rules(without_dropped(options, 6), RuleChange((ACTION._replace(sql="a = 2"),), to_all=True), 7)
    assert options.lanes[1:] == (
        RuleLane(3, (ACTION,), 6, 0, 7, (0, 1)),
        RuleLane(4, (ACTION._replace(sql="a = 2"),), 7, copy_of=(3,)),
    )
    assert without_dropped(options, 6) is options
    assert without_dropped(options, 7).lanes == (options.lanes[0], options.lanes[2])


def test_a_change_for_all_gives_plain_rules_a_lane_of_their_own() -> None:
    """Who still judges by the rules before finds nothing in a lane that is no more, and passes over nothing new."""
    options = changed_rules(NO_SUBSCRIPTION_OPTIONS, RuleChange((PLAIN,)), 5)
    options = changed_rules(options, RuleChange((PLAIN._replace(sql="a = 2"),), to_all=True), 6)
    assert [(lane.number, lane.is_in_force, lane.copy_of) for lane in options.lanes] == [
        (0, False, ()), (1, False, ()), (2, True, (0, 1)),
    ]  # fmt: skip
    for revision in range(7, 300):
        rule = PLAIN._replace(sql=f"a = {revision}")
        options = without_dropped(changed_rules(options, RuleChange((rule,), to_all=True), revision), revision)
    assert len(options.lanes) == 1
    assert options.lanes[0].copy_of == tuple(range(294 - 64, 295))


def test_numbers_are_not_given_again() -> None:
    options = NO_SUBSCRIPTION_OPTIONS
    for revision in range(1, 9, 2):
        options = changed_rules(options, RuleChange((ACTION,)), revision)
        options = changed_rules(options, RuleChange((), ("r",), to_all=True), revision + 1)
        options = without_dropped(options, revision + 1)
    assert options == SubscriptionOptions(lanes=DEFAULT_LANES, next_lane=5)


def test_lanes_are_bounded() -> None:
    rules = tuple(ACTION._replace(name=f"r{n}") for n in range(LANES_MAX))
    options = changed_rules(NO_SUBSCRIPTION_OPTIONS, RuleChange(rules[1:]), 1)
    with pytest.raises(ResourceExhausted, match="at most 255"):
        changed_rules(options, RuleChange(rules), 2)


def test_changes_for_what_comes_are_bounded_until_rules_are_given_up() -> None:
    options = NO_SUBSCRIPTION_OPTIONS
    for revision in range(1, LANES_MAX):
        options = changed_rules(options, RuleChange((PLAIN._replace(sql=f"a = {revision}"),)), revision)
    assert len(lanes_of(options)) == LANES_MAX
    for refused in (RuleChange((PLAIN,)), RuleChange(delete=("r",))):
        with pytest.raises(ResourceExhausted, match="discards its copies"):
            changed_rules(options, refused, 500)
    given_up = changed_rules(options, RuleChange(delete=("r", "$Default"), to_all=True), 500)
    assert len(without_dropped(given_up, 500).lanes) == 1


# -- held against a plain account --------------------------------------------------------------------------------------


@dataclass
class Account:
    """What one message means to a subscription: the plain rules that judge it (None: none ever will), and by name those
    with an action. `current`: it is in the plain lane in force."""

    plain: tuple[MessageRule, ...] | None
    actions: dict[str, list[MessageRule]]
    current: bool = True


@dataclass
class Chain:
    """Messages of each lane, followed as a chain does: from records, one after another."""

    lanes: dict[int, set[int]] = field(default_factory=lambda: {0: set()})
    known: set[int] = field(default_factory=lambda: {0})

    def follow(self, options: SubscriptionOptions) -> None:
        for lane in sorted(lanes_of(options)):
            if lane.number not in self.known:
                self.known.add(lane.number)
                self.lanes[lane.number] = set().union(*(self.lanes.get(number, set()) for number in lane.copy_of))
        kept = {lane.number for lane in lanes_of(options) if not lane.dropped}
        self.lanes = {number: held for number, held in self.lanes.items() if number in kept}

    def store(self, message: int, options: SubscriptionOptions) -> None:
        for lane in lanes_of(options):
            if lane.is_in_force:
                self.lanes[lane.number].add(message)


def account(messages: list[Account], change: RuleChange, now: tuple[MessageRule, ...]) -> tuple[MessageRule, ...]:
    """Apply a change of rules to what is known of messages; the rules afterwards."""
    wanted = {rule.name: rule for rule in now if rule.name not in change.delete} | {r.name: r for r in change.put}
    before = {rule.name: rule for rule in now}
    plain = tuple(wanted[name] for name in sorted(wanted) if not wanted[name].action)
    changed = plain != tuple(before[name] for name in sorted(before) if not before[name].action)
    for one in messages:
        judged = one.plain is not None
        if changed and change.to_all and judged:
            one.plain = plain if one.current or plain else None
            one.current = True  # all of it is in one lane then
        elif changed and not change.to_all:
            one.plain, one.current = (one.plain or None), False
        if not change.to_all:
            continue
        for name in before.keys() | wanted.keys():
            old, new = before.get(name), wanted.get(name)
            if old == new:
                continue
            had = one.actions.pop(name, None) is not None
            if new is not None and new.action and (had or (judged and not (old is not None and old.action))):
                one.actions[name] = [new]
    return tuple(wanted[name] for name in sorted(wanted))


names = st.sampled_from("abc")
rules = st.tuples(names, st.sampled_from(["x", "y"]), st.sampled_from(["", "SET z = 1"])).map(
    lambda parts: MessageRule(parts[0], parts[1], action=parts[2])
)
changes = st.builds(
    RuleChange,
    st.lists(rules, max_size=2, unique_by=lambda rule: rule.name).map(tuple),
    st.lists(st.sampled_from(["a", "b", "c", "$Default"]), max_size=2).map(tuple),
    st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(changes, st.booleans()), max_size=9))
def test_lanes_hold_what_a_plain_account_says(steps: list[tuple[RuleChange, bool]]) -> None:
    options, chain, late = NO_SUBSCRIPTION_OPTIONS, Chain(), Chain()
    now: tuple[MessageRule, ...] = (DEFAULT_RULE,)
    messages: list[Account] = []
    for revision, (change, confirmed) in enumerate(steps, 1):
        number = len(messages)
        chain.store(number, options)
        if number == 0:
            late.store(number, options)  # the only message of a chain that learns of everything at the end
        actions = {rule.name: [rule] for rule in now if rule.action}
        messages.append(Account(tuple(rule for rule in now if not rule.action), actions))
        options = stored(changed_rules(options, change, revision))
        now = account(messages, change, now)
        chain.follow(options)
        assert rules_of(options) == now
        assert sum(lane.is_plain and lane.is_in_force for lane in lanes_of(options)) == 1
        if confirmed and revision == len(steps):
            late.follow(options)
            options = without_dropped(options, revision)
            chain.follow(options)
    late.follow(options)
    lanes = {lane.number: lane for lane in lanes_of(options)}
    assert sorted(lanes) == list(lanes)
    for number, one in enumerate(messages):
        for followed in (chain, late) if number == 0 else (chain,):
            held = [lanes[lane] for lane, members in followed.lanes.items() if number in members]
            assert [lane.rules for lane in held if lane.is_plain] == ([] if one.plain is None else [one.plain])
            found = sorted(lane.rules[0] for lane in held if not lane.is_plain)
            assert found == sorted(rule for versions in one.actions.values() for rule in versions)


def test_what_was_empty_when_it_was_removed_is_remembered_by_runs() -> None:
    options = NO_SUBSCRIPTION_OPTIONS
    for revision in range(1, 9):
        options = changed_rules(options, RuleChange((PLAIN._replace(sql=f"a = {revision}"),)), revision)
    options = without_drained(options, {0, 1, 3, 8})
    assert (options.drained, [lane.number for lane in options.lanes]) == (((0, 2), (3, 4)), [2, 4, 5, 6, 7, 8])
    options = without_drained(options, {2, 5})
    assert stored(options).drained == ((0, 4), (5, 6))
    assert [was_drained(options, lane) for lane in range(8)] == [True] * 4 + [False, True, False, False]
    assert without_drained(options, {0, 8}) is options


def test_rules_do_not_wear_out() -> None:
    options = NO_SUBSCRIPTION_OPTIONS
    for revision in range(1, 2001):
        action = f"SET a = {revision}" if revision % 3 == 0 else ""
        rule = PLAIN._replace(sql=f"a = {revision}", action=action)
        options = without_drained(changed_rules(options, RuleChange((rule,)), revision), stopped_lanes(options))
    assert len(options.lanes) <= 4
    assert len(options.drained) == 1
