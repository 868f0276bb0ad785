"""Lane rules: what the rules of a subscription make of a message, lane by lane, ready to be called.

Place: between the records of the catalog and `rule_batches`, `lease_batches`. Where the kernel can judge by a program
it does, on whole batches; everything else is judged here, message by message.
Promise: the same message in the same lane comes to the same copy, however often it is read: also what `newid()` gives.
A rule that cannot be evaluated for a message does not select it, nor one whose action cannot be carried out; where no
other rule of the lane selects the message, the failure is reported.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from syncpoint.base.kernel.filters import matches
from syncpoint.base.model.lanes import place_in
from syncpoint.base.model.limits import ATTRIBUTE_KEY_BYTES_MAX, ATTRIBUTE_VALUE_BYTES_MAX, MESSAGE_ATTRIBUTES_MAX
from syncpoint.base.rules.correlation import correlation
from syncpoint.base.rules.kernel_program import MATCH_ALL, any_of, correlation_program, program_of
from syncpoint.base.rules.sql_compile import Action, compile_action, compile_filter
from syncpoint.base.rules.sql_values import RuleError
from syncpoint.base.rules.system_properties import RULE_NAME, RuleMessage
from syncpoint.catalog.metadata.entity_options import MessageRule, RuleLane
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.catalog.schemas.publishing import ATTRIBUTES_ADDED
from syncpoint.wire.protobuf.messages import pubsub

EVERYTHING = ("", "1=1")  # filters that need no look at a message
LAZY_CHARS = 512  # of a lane's rules: 15 ms are read
MESSAGE_CHARS = 80  # what a message costs besides its rules
_PLACE = struct.Struct("<QQQI")


class RuleFailure(NamedTuple):
    """What a rule fails at for a message: a kind of failure, and which rule and why."""

    kind: str
    text: str


FILTER_FAILS, ACTION_FAILS, RESULT_TOO_LARGE = "FilterEvaluationException", "RuleActionException", "HeaderSizeExceeded"
Judge = Callable[[bytes, int, int], bytes | RuleFailure | None]
"""(a serialised PubsubMessage, its source, its place): the copy the lane makes of it; None: the lane is not for it."""
_Selects = Callable[[RuleMessage, Callable[[int], str]], bool]


class LaneWork(NamedTuple):
    """What another process needs to judge the messages of a lane one by one."""

    lane: RuleLane
    subscription: int
    program: bytes  # of its filter

    @property
    def message_chars(self) -> int:
        """In proportion to which a message costs."""
        return MESSAGE_CHARS + chars_of(self.lane)


def chars_of(lane: RuleLane) -> int:
    """The length of its rules."""
    return sum(len(one.sql) + len(one.action) + sum(len(text) for _, text in one.correlation) for one in lane.rules)


Outcome = bytes | RuleFailure | bool
"""What `Judge` gives; True: the message as it came, False: nothing."""


class LaneRules(NamedTuple):
    """Rules of one lane.

    `program`: the kernel's filter; `judge`: an additional check, if any; `work`: that check for another process.
    """

    program: bytes
    judge: Judge | None = None
    work: LaneWork | None = None


NOTHING = LaneRules(any_of(()))
"""A lane that is for no message."""


def compiled(
    record: Subscription,
    program: bytes,
    before: Subscription | None = None,
    known: Mapping[int, LaneRules] | None = None,
    *,
    lazy: bool = False,
) -> dict[int, LaneRules] | None:
    """The lanes a subscription delivers from; None: it has no rules. `program`: of its filter. `known`: what came of
    the record `before`, so that lanes which are as they were need no look. `lazy`: lanes with many rules are not
    compiled here, since that takes long; their `work` is for other processes. Raises `InvalidArgument` for a rule that
    means nothing.
    """
    lanes = record.options.lanes
    if not lanes:
        return None
    had = {one.number: one.rules for one in before.options.lanes} if before is not None and known else {}
    return {
        one.number: known[one.number]
        if known and one.number in known and had.get(one.number) == one.rules
        else (_unread if lazy and chars_of(one) > LAZY_CHARS else _lane)(one, record.incarnation, program)
        for one in lanes
        if not one.dropped
    }


@lru_cache(maxsize=64)
def _judge_of(work: LaneWork) -> Judge:
    made = _lane(*work)
    return made.judge or (lambda message, source, place: message if _fits(made.program, message) else None)


def _fits(program: bytes, message: bytes) -> bool:
    return not program or matches(program, message)


def _unread(lane: RuleLane, subscription: int, program: bytes) -> LaneRules:
    """A lane that is compiled where it is judged, and here only if somebody asks for a single message."""
    work = LaneWork(lane, subscription, program)
    return LaneRules(MATCH_ALL, lambda message, source, place: _judge_of(work)(message, source, place), work)


def is_unread(rules: LaneRules) -> bool:
    """Whether nobody here knows yet what the kernel can judge of a lane."""
    return rules.work is not None and chars_of(rules.work.lane) > LAZY_CHARS


def kernel_program(work: LaneWork) -> bytes | None:
    """The program of a lane that the kernel can judge by itself; to be called in any process."""
    made = _lane(*work)
    return made.program if made.judge is None else None


def judged_by(work: LaneWork, messages: Sequence[tuple[int, int, bytes]], room: int) -> list[Outcome]:
    """What becomes of each message (source, place, bytes) in a lane; to be called in any process. One at least, and no
    more once copies have `room` bytes."""
    judge, found = _judge_of(work), list[Outcome]()
    for source, place, message in messages:
        if room <= 0:
            break
        copy = judge(message, source, place)
        found.append(False if copy is None else True if copy is message else copy)
        room -= len(copy) if isinstance(copy, bytes) else 0
    return found


def _lane(lane: RuleLane, subscription: int, program: bytes) -> LaneRules:
    made = _compiled_lane(lane, subscription, program)
    return made if made.judge is None else made._replace(work=LaneWork(lane, subscription, program))


def _compiled_lane(lane: RuleLane, subscription: int, program: bytes) -> LaneRules:
    tests = [_test(rule) for rule in lane.rules]
    programs = [one for one in tests if isinstance(one, bytes)]
    in_kernel = any_of(programs, program) if len(programs) == len(tests) or MATCH_ALL in programs else None
    if lane.is_plain:
        if in_kernel is not None:
            return LaneRules(in_kernel)
        return _judged(tests, None, [rule.name for rule in lane.rules], subscription, program)
    from syncpoint.base.rules.sql_parser import parse_action  # its parser is large: only who has such rules loads it

    (rule,) = lane.rules
    action = compile_action(parse_action(rule.action), dict(rule.parameters))
    if in_kernel is not None:
        return _judged([MATCH_ALL], action, [rule.name], subscription, in_kernel)
    return _judged(tests, action, [rule.name], subscription, program)


def _test(rule: MessageRule) -> bytes | _Selects:
    """What a rule selects, as a program of the kernel if there is one."""
    if rule.correlation:
        wanted = correlation(dict(rule.correlation))
        program = correlation_program(wanted)
        return program if program is not None else lambda message, ids: wanted.matches(message)
    if rule.sql in EVERYTHING:
        return MATCH_ALL
    from syncpoint.base.rules.sql_parser import parse_filter

    parsed, given = parse_filter(rule.sql), dict(rule.parameters)
    program = program_of(parsed, given)
    if program is not None:
        return program
    judged = compile_filter(parsed, given)
    return lambda message, ids: judged(message, ids) is True


def _judged(
    tests: Sequence[bytes | _Selects], action: Action | None, names: Sequence[str], subscription: int, program: bytes
) -> LaneRules:
    """`names`: of the rules that the tests are of; `program`: what a message has to match in any case."""
    programs = [one for one in tests if isinstance(one, bytes)]
    selects = [(name, one) for name, one in zip(names, tests, strict=True) if not isinstance(one, bytes)]

    def judge(message: bytes, source: int, place: int) -> bytes | RuleFailure | None:
        if program and not matches(program, message):
            return None
        found = pubsub.PubsubMessage.FromString(message)
        seen = RuleMessage(
            dict(found.attributes),
            found.message_id,
            found.ordering_key,
            found.publish_time.ToNanoseconds(),
            place_in(place)[1],
        )
        ids = _new_ids(subscription, source, place)
        if not any(not one or matches(one, message) for one in programs):
            verdict = _selected(selects, seen, ids)
            if verdict is not True:
                return verdict
        if action is None:
            return message
        try:
            attributes = action(seen, ids)
        except RuleError as error:
            return RuleFailure(ACTION_FAILS, f"The action of rule {names[0]} failed: {error}.")
        attributes[RULE_NAME] = names[0]
        too_large = _too_large(attributes)
        if too_large:
            return RuleFailure(
                RESULT_TOO_LARGE, f"The action of rule {names[0]} exceeded the limits of a message: {too_large}."
            )
        return _with_attributes(found, attributes)

    return LaneRules(MATCH_ALL, judge)


def _selected(
    selects: Sequence[tuple[str, _Selects]], message: RuleMessage, ids: Callable[[int], str]
) -> RuleFailure | Literal[True] | None:
    """True if one of them selects it; else what failed first, if anything did."""
    failure = None
    for name, one in selects:
        try:
            if one(message, ids):
                return True
        except RuleError as error:
            failure = failure or RuleFailure(FILTER_FAILS, f"The filter of rule {name} failed: {error}.")
    return failure


def _too_large(attributes: Mapping[str, str]) -> str:
    """What is beyond the limits of a message; nothing: ""."""
    if len(attributes) > MESSAGE_ATTRIBUTES_MAX + ATTRIBUTES_ADDED + 1:
        return f"{len(attributes)} attributes"
    for name, value in attributes.items():
        if not 0 < len(name.encode()) <= ATTRIBUTE_KEY_BYTES_MAX:
            return f"an attribute with a name of {len(name.encode())} bytes"
        if len(value.encode()) > ATTRIBUTE_VALUE_BYTES_MAX:
            return f"{name} with {len(value.encode())} bytes"
    return ""


def _with_attributes(message: Any, attributes: Mapping[str, str]) -> bytes:
    message.attributes.clear()
    message.attributes.update(attributes)
    encoded: bytes = message.SerializeToString()
    return encoded


def _new_ids(subscription: int, source: int, place: int) -> Callable[[int], str]:
    """What each `newid()` of a rule stands for."""

    def new_id(number: int) -> str:
        digest = blake2b(_PLACE.pack(subscription, source, place, number), digest_size=16).digest()
        return str(uuid.UUID(bytes=digest, version=4))

    return new_id
