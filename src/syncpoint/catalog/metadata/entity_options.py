"""Options of topics and subscriptions that Google's interface has no words for, and how rules of a subscription change.

Place: parts of the records of the catalog; changed by the admin services, read by publish and subscribe forwarders.
Promise: pure values; an entity without options holds the shared defaults, so that asking costs one attribute. The
number of a lane is never given again in the life of a subscription. A stopped lane is forgotten once no chain keeps
anything of it (`publish.lane_needs`); that it was empty then, and not given up, is known for `DRAINED_MAX` runs of
numbers.

A lane is one copy of the messages that a subscription gets. All rules without an action share one lane, the plain lane;
each rule with an action has a lane of its own. A lane's rules never come to mean something else for messages that it
began with, unless the change is asked to count for all: then what is not acknowledged is judged anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import NamedTuple

from syncpoint.base.model.errors import ResourceExhausted
from syncpoint.base.model.spans import joined

LANES_MAX = 255
"""Lanes of one subscription at a time, those included that a change for new messages has stopped."""
LANE_RULES_MAX = 100_000
"""Rules of the lanes of one subscription, each counted in every lane that has it."""
ORIGINS_MAX = 64
"""Lanes that are named as what a plain lane began with, from the newest back."""
DRAINED_MAX = 64
"""Runs of numbers of lanes that are remembered to have been empty when they were forgotten."""

NO_WRITER, HERE, WRITTEN_ELSEWHERE, HELD_ELSEWHERE = range(4)
"""Which site takes publishes, where a class decides that; HELD_ELSEWHERE: as WRITTEN_ELSEWHERE, and sending was
suspended before that."""

ParameterValue = bool | int | float | str | None


class MessageRule(NamedTuple):
    """A named rule: which messages it selects (`sql`, or all pairs of `correlation`), and what its action does with the
    copy it makes of them. Without `sql` and `correlation` it selects all.
    """

    name: str
    sql: str = ""
    correlation: tuple[tuple[str, str], ...] = ()
    action: str = ""
    parameters: tuple[tuple[str, ParameterValue], ...] = ()


DEFAULT_RULE = MessageRule("$Default", "1=1")
"""What a new subscription has."""


class RuleLane(NamedTuple):
    """Rules that make one copy of messages: of those stored from catalog revision `revision` on and before `stopped`
    (0: not stopped).

    `copy_of`: the lane begins with what is not acknowledged of these lanes, and not at the end of what is stored.
    `dropped`: the revision at which it was given up with all it held (0: it was not). It stays in the record until each
    chain has learned of that, so that a chain that was away can still make those lanes that begin as copies of it: in
    the order of their numbers.
    """

    number: int
    rules: tuple[MessageRule, ...]
    revision: int = 0
    stopped: int = 0
    dropped: int = 0
    copy_of: tuple[int, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether it is a copy for rules without an action."""
        return not self.rules or not self.rules[0].action

    @property
    def is_in_force(self) -> bool:
        """Whether it takes up what is stored from now on."""
        return not (self.stopped or self.dropped)


DEFAULT_LANES = (RuleLane(0, (DEFAULT_RULE,)),)


class TopicOptions(NamedTuple):
    """Syncpoint's own options of a topic.

    `queue`: the topic has exactly one regular subscription, with its id. `send_suspended`: publishes are refused.
    `duplicate_window_s`: seconds within which a message with an earlier message's id is dropped. A time of 0 means
    none. `records_topic`: the topic for delivery records, "": none. `writer`: one of NO_WRITER to HELD_ELSEWHERE.
    """

    queue: bool = False
    send_suspended: bool = False
    default_ttl_s: int = 0
    duplicate_window_s: int = 0
    records_topic: str = ""
    writer: int = NO_WRITER

    @property
    def written_elsewhere(self) -> bool:
        """Whether only links may write to the topic."""
        return self.writer >= WRITTEN_ELSEWHERE


class SubscriptionOptions(NamedTuple):
    """Syncpoint's own options of a subscription.

    `receive_suspended`: nothing is delivered. `forward_to`: the topic that messages are published to, "": none.
    `lanes`: empty until its rules are changed for the first time (`lanes_of`). `drained`: the number ranges of lanes
    that were empty when they were forgotten. `keys_elsewhere`: a bit for each slot of keys that another site delivers.
    A time of 0 means none.
    """

    receive_suspended: bool = False
    ttl_s: int = 0
    dead_letter_expired: bool = False
    dead_letter_rule_errors: bool = False
    lanes: tuple[RuleLane, ...] = ()
    next_lane: int = 1
    drained: tuple[tuple[int, int], ...] = ()
    forward_to: str = ""
    keys_elsewhere: bytes = b""


NO_TOPIC_OPTIONS = TopicOptions()
NO_SUBSCRIPTION_OPTIONS = SubscriptionOptions()


# -- rules -------------------------------------------------------------------------------------------------------------


class RuleChange(NamedTuple):
    """Rules to add, or to put in the place of those of the same name, and names of rules to delete.

    `to_all`: the change counts for what is stored and not acknowledged, too, and not only for what is stored later.
    """

    put: tuple[MessageRule, ...] = ()
    delete: tuple[str, ...] = ()
    to_all: bool = False


def lanes_of(options: SubscriptionOptions) -> tuple[RuleLane, ...]:
    """By number: exactly one plain lane in force, one of each rule with an action, and stopped and dropped ones."""
    return options.lanes or DEFAULT_LANES


def rules_of(options: SubscriptionOptions) -> tuple[MessageRule, ...]:
    """The rules in force, by name."""
    rules = (rule for lane in lanes_of(options) if lane.is_in_force for rule in lane.rules)
    return tuple(sorted(rules, key=_name))


def lanes_before(options: SubscriptionOptions) -> dict[int, tuple[int, ...]]:
    """By number: the lanes that had stopped when a lane began, so that all they hold was published before."""
    known = [lane for lane in options.lanes if not lane.dropped]
    return {
        lane.number: tuple(one.number for one in known if 0 < one.stopped <= lane.revision)
        for lane in known
        if not lane.copy_of
    }


def changed_rules(options: SubscriptionOptions, change: RuleChange, revision: int) -> SubscriptionOptions:
    """The options with the rules changed by a commit of that revision. Names that are not there are not deleted.
    Raises `ResourceExhausted` for too many lanes.
    """
    now = {rule.name: rule for rule in rules_of(options)}
    wanted = {name: rule for name, rule in now.items() if name not in change.delete}
    wanted.update((rule.name, rule) for rule in change.put)
    if wanted == now:
        return options
    lanes = _Lanes(options, revision)
    plain = lanes.plain()
    if _plain(now) != _plain(wanted):
        if change.to_all:
            lanes.replace_plain(_plain(wanted))
        else:
            lanes.renew_plain(_plain(wanted))
    for name in sorted(now.keys() | wanted.keys()):
        before, after = now.get(name), wanted.get(name)
        if before == after:
            continue
        had = before is not None and bool(before.action)
        copied: tuple[int, ...] = ()
        if change.to_all:
            copied = lanes.drop(name) if had else (*plain, *lanes.drop(name))
        elif had:
            lanes.stop(name)
        if after is not None and after.action:
            lanes.begin((after,), copied)
    living = sum(not lane.dropped for lane in lanes.lanes.values())
    named = sum(len(lane.rules) for lane in lanes.lanes.values())
    if living > LANES_MAX or len(lanes.lanes) > 2 * LANES_MAX or named > LANE_RULES_MAX:
        raise too_many_lanes()
    return options._replace(lanes=tuple(lanes.lanes.values()), next_lane=lanes.next)


def too_many_lanes() -> ResourceExhausted:
    """The refusal where no further lane has room."""
    return ResourceExhausted(
        f"A subscription can make at most {LANES_MAX} copies of a message: one for its rules without actions, one for"
        " each rule with an action, and one more for each rule change that applied to new messages only, while messages"
        " published before it are kept. Acknowledge the backlog of this subscription and of others of the topic, or"
        " delete snapshots. Deleting a rule with scope ALL_MESSAGES (without an action: the last such rule) also"
        " discards its copies and their backlog."
    )


def without_dropped(options: SubscriptionOptions, revision: int) -> SubscriptionOptions:
    """The options without the lanes that were dropped at that revision or before, which each chain knows."""
    return _with_lanes(options, (lane for lane in options.lanes if not 0 < lane.dropped <= revision))


def stopped_lanes(options: SubscriptionOptions) -> list[int]:
    """Lanes that take up nothing any more, and have not been given up."""
    return [lane.number for lane in options.lanes if lane.stopped and not lane.dropped]


def without_drained(options: SubscriptionOptions, drained: Collection[int]) -> SubscriptionOptions:
    """The options without those of the stopped lanes of which no chain keeps anything."""
    gone = {number for number in stopped_lanes(options) if number in drained}
    if not gone:
        return options
    runs = joined([*options.drained, *((number, number + 1) for number in gone)])
    rest = (lane for lane in options.lanes if lane.number not in gone)
    return _with_lanes(options, rest)._replace(drained=tuple(runs[-DRAINED_MAX:]))


def was_drained(options: SubscriptionOptions, lane: int) -> bool:
    """Whether a lane was empty when it was forgotten: all that it had is acknowledged."""
    return any(begin <= lane < end for begin, end in options.drained)


def _with_lanes(options: SubscriptionOptions, rest: Iterable[RuleLane]) -> SubscriptionOptions:
    lanes = tuple(rest)
    return options if lanes == options.lanes else options._replace(lanes=lanes)


def _plain(rules: dict[str, MessageRule]) -> tuple[MessageRule, ...]:
    return tuple(sorted((rule for rule in rules.values() if not rule.action), key=_name))


_name = attrgetter("name")


class _Lanes:
    """The lanes of a subscription while its rules are changed."""

    def __init__(self, options: SubscriptionOptions, revision: int) -> None:
        self.lanes = {lane.number: lane for lane in lanes_of(options)}
        self.next, self._revision = max(1, options.next_lane), revision

    def plain(self, *, but_stopped: bool = False) -> tuple[int, ...]:
        """Plain lanes that hold something, after those that they began as copies of: snapshots may know no others."""
        having = [lane for lane in self._having() if not (but_stopped and lane.stopped)]
        before = sorted({one for lane in having for one in lane.copy_of})[-ORIGINS_MAX:]
        return (*before, *(lane.number for lane in having))

    def begin(self, rules: tuple[MessageRule, ...], copy_of: tuple[int, ...]) -> None:
        self.lanes[self.next] = RuleLane(self.next, rules, self._revision, copy_of=copy_of)
        self.next += 1

    def renew_plain(self, wanted: tuple[MessageRule, ...]) -> None:
        """What is stored stays with the lane it is in; one that selects nothing is of no use then."""
        for lane in self._having():
            if not lane.rules:
                self.lanes[lane.number] = lane._replace(dropped=self._revision)
            elif not lane.stopped:
                self.lanes[lane.number] = lane._replace(stopped=self._revision)
        self.begin(wanted, ())

    def replace_plain(self, wanted: tuple[MessageRule, ...]) -> None:
        """One lane for all that the plain ones hold. It has a number of its own: a process that judges by the rules
        before finds nothing in it, and so passes over nothing that was published since.
        """
        copied = self.plain(but_stopped=not wanted)  # in which nothing can be selected any more
        for lane in self._having():
            self.lanes[lane.number] = lane._replace(dropped=self._revision)
        self.begin(wanted, copied)

    def _having(self) -> list[RuleLane]:
        return [lane for lane in self.lanes.values() if lane.is_plain and not lane.dropped]

    def stop(self, name: str) -> None:
        for lane in self._of(name):
            if not lane.stopped:
                self.lanes[lane.number] = lane._replace(stopped=self._revision)

    def drop(self, name: str) -> tuple[int, ...]:
        """Give up all lanes that a rule has and had; their numbers."""
        dropped = self._of(name)
        self.lanes.update((lane.number, lane._replace(dropped=self._revision)) for lane in dropped)
        return tuple(lane.number for lane in dropped)

    def _of(self, name: str) -> list[RuleLane]:
        lanes = self.lanes.values()
        return [one for one in lanes if not one.is_plain and not one.dropped and one.rules[0].name == name]
