"""Routing constraints: rules saying which clients may use which forwarders for which topics, and drains.

Place: every list of forwarders and every assignment asks a `Policy` made of all rules and drains; the admin methods
check a new rule by `refusal` and `matches` before it is stored. Pure.
Promise: the matching rule of the highest priority decides, DENY before ALLOW at the same priority; where no rule
matches, everything is allowed. A drain is a DENY above all rules. `refusal` finds every topic that a change would
leave without a way for a client that had one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from syncpoint.base.model.cluster import PROXY, PUBLISH, SUBSCRIBE, Member
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.broker.router.location import may_pass, may_store
from syncpoint.catalog.metadata.records import Topic

ALLOW, DENY = "allow", "deny"
MEMBER_FIELDS = ("name", "region", "zone", "rack")
TOPIC_FIELDS = ("name", "project")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
_VALUE = re.compile(r"[^,=\s]+")
_PRIORITY = 1_000_000


@dataclass(frozen=True, slots=True)
class RoutingRule:
    """One constraint as it is stored. The three selectors are texts such as "region=eu,name=proxy-*"; "" means all."""

    name: str
    action: str = DENY
    clients: str = ""
    forwarders: str = ""
    topics: str = ""
    priority: int = 0
    comment: str = ""
    created_ns: int = 0

    def check(self) -> None:
        """Raises `InvalidArgument` naming the field that is wrong."""
        if not _NAME.fullmatch(self.name):
            raise InvalidArgument(
                "name", "must be 1 to 63 lowercase letters, digits and hyphens, beginning with a letter"
            )
        if self.action not in (ALLOW, DENY):
            raise InvalidArgument("action", f"must be {ALLOW} or {DENY}")
        if abs(self.priority) > _PRIORITY:
            raise InvalidArgument("priority", f"must be between {-_PRIORITY} and {_PRIORITY}")
        for field, text, known in (
            ("clients", self.clients, MEMBER_FIELDS),
            ("forwarders", self.forwarders, MEMBER_FIELDS),
            ("topics", self.topics, TOPIC_FIELDS),
        ):
            try:
                Selector.parse(text, known)
            except ValueError as error:
                raise InvalidArgument(field, str(error)) from None

    def encode(self) -> bytes:
        """The stored form."""
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True).encode()

    @staticmethod
    def decode(data: bytes) -> RoutingRule:
        """Raises `ValueError` for anything else. Fields that a newer version added are passed over."""
        found = json.loads(data)
        if not isinstance(found, dict) or "name" not in found:
            raise ValueError("not a constraint in JSON")
        return RoutingRule(**{name: found[name] for name in RoutingRule.__slots__ if name in found})


@dataclass(frozen=True, slots=True)
class Selector:
    """Conditions (field, pattern) all of which must hold."""

    conditions: tuple[tuple[str, re.Pattern[str]], ...]

    @staticmethod
    def parse(text: str, known: Sequence[str]) -> Selector:
        """`FIELD=VALUE,...`; a value may hold `*`. Raises `ValueError`."""
        conditions = []
        for part in text.split(",") if text.strip() else ():
            field, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or not _VALUE.fullmatch(value):
                raise ValueError(f"{part.strip()!r} must have the form FIELD=VALUE")
            if field not in known:
                raise ValueError(f"unknown field {field!r}; use {', '.join(known)}")
            conditions.append((field, re.compile(".*".join(map(re.escape, value.split("*"))), re.DOTALL)))
        return Selector(tuple(conditions))

    def member(self, member: Member) -> bool:
        """Whether a process is meant."""
        return all(pattern.fullmatch(getattr(member, field)) for field, pattern in self.conditions)

    def topic(self, name: str) -> bool:
        """Whether a topic of this full name is meant. A name is the full one, or the part after `topics/`."""
        _, project, _, short = name.split("/", 3) if name.count("/") >= 3 else ("", "", "", name)
        for field, pattern in self.conditions:
            values = (project,) if field == "project" else (short, name)
            if not any(pattern.fullmatch(value) for value in values):
                return False
        return True


class _CompiledPolicy(NamedTuple):
    rule: RoutingRule
    clients: Selector
    forwarders: Selector
    topics: Selector

    @staticmethod
    def of(rule: RoutingRule) -> _CompiledPolicy:
        return _CompiledPolicy(
            rule,
            Selector.parse(rule.clients, MEMBER_FIELDS),
            Selector.parse(rule.forwarders, MEMBER_FIELDS),
            Selector.parse(rule.topics, TOPIC_FIELDS),
        )


class Policy:
    """All rules and drains of a moment. Rules must have passed `check`."""

    def __init__(self, rules: Iterable[RoutingRule] = (), drains: Iterable[str] = ()) -> None:
        by_rank = sorted(rules, key=lambda rule: (-rule.priority, rule.action != DENY, rule.name))
        self._rules = [_CompiledPolicy.of(rule) for rule in by_rank]
        self.drains = tuple(drains)

    def drained(self, member: Member) -> bool:
        """Whether an operator wants no traffic at a process."""
        return any(member.covered_by(target) for target in self.drains)

    def decides(self, client: Member | None, forwarder: Member, topic: str) -> RoutingRule | None:
        """The rule that decides for these three; None: no rule applies, so it is allowed. Without a client, only rules
        for all clients count."""
        for one in self._rules:
            if one.clients.conditions and (client is None or not one.clients.member(client)):
                continue
            if one.forwarders.member(forwarder) and one.topics.topic(topic):
                return one.rule
        return None

    def permits(self, client: Member | None, forwarder: Member, topic: str) -> bool:
        """Whether the rules let a client use a forwarder for a topic; drains are not checked."""
        rule = self.decides(client, forwarder, topic) if self._rules else None
        return rule is None or rule.action == ALLOW

    def allows(self, client: Member | None, forwarder: Member, topic: str) -> bool:
        """Whether rules and drains let a client use a forwarder for a topic."""
        return not self.drained(forwarder) and self.permits(client, forwarder, topic)

    def ways(self, client: Member | None, topic: Topic, forwarders: Iterable[Member], role: str) -> list[Member]:
        """The forwarders of a role that a client may use for a topic, by rules, drains and location."""
        within = may_store if role == PUBLISH else may_pass
        return [
            one
            for one in forwarders
            if role in one.roles and within(topic, one.region) and self.allows(client, one, topic.name)
        ]

    def topic_kind(self, topic: Topic) -> tuple[object, ...]:
        """Topics of the same kind are treated alike by all rules and by location."""
        matched = tuple(one.topics.topic(topic.name) for one in self._rules)
        return matched, frozenset(topic.regions), topic.enforce_in_transit

    def client_kind(self, client: Member) -> tuple[object, ...]:
        """Clients of the same kind are treated alike by all rules."""
        return tuple(one.clients.member(client) for one in self._rules), self.drained(client), client.region


class Matches(NamedTuple):
    """Names that the selectors of a rule mean now."""

    clients: list[str]
    forwarders: list[str]
    topics: list[str]


def matches(rule: RoutingRule, members: Iterable[Member], topics: Iterable[Topic]) -> Matches:
    """What a rule is about, as things are. The rule must have passed `check`."""
    one, members = _CompiledPolicy.of(rule), list(members)
    return Matches(
        sorted(m.name for m in members if PROXY in m.roles and one.clients.member(m)),
        sorted(m.name for m in members if {PUBLISH, SUBSCRIBE} & set(m.roles) and one.forwarders.member(m)),
        sorted(topic.name for topic in topics if one.topics.topic(topic.name)),
    )


def refusal(before: Policy, after: Policy, members: Iterable[Member], topics: Iterable[Topic]) -> str:
    """Why a change of rules or drains must not be made; "" when it may.

    It must not when it takes the last forwarder of a topic from a client that had one. Members are the living ones.
    A client that is itself drained needs no way; without any living client only what holds for all of them counts.
    """
    members = list(members)
    proxies = [member for member in members if PROXY in member.roles]
    kinds = {
        (before.client_kind(one), after.client_kind(one)): one for one in reversed(proxies) if not after.drained(one)
    }
    if proxies and not kinds:
        return "No proxy would be left that accepts requests."
    clients: list[Member | None] = [*kinds.values()] or [None]
    seen: set[object] = set()
    for topic in topics:
        kind = (before.topic_kind(topic), after.topic_kind(topic))
        if kind in seen:
            continue
        seen.add(kind)
        for client in clients:
            if client is not None and not may_pass(topic, client.region):
                continue
            for role in (PUBLISH, SUBSCRIBE):
                if before.ways(client, topic, members, role) and not after.ways(client, topic, members, role):
                    whom = "" if client is None else f" for clients such as {client.name}"
                    return f"{topic.name} would be left without a {role}{whom}."
    return _roles_left(before, after, members)


def _roles_left(before: Policy, after: Policy, members: Sequence[Member]) -> str:
    """Where there are no topics yet: each role must keep somebody, so that there can be some."""
    for role in (PUBLISH, SUBSCRIBE):
        with_role = [member for member in members if role in member.roles]
        if any(not before.drained(one) for one in with_role) and all(after.drained(one) for one in with_role):
            return f"No {role} would be left."
    return ""


def drain_refusal(
    rules: Iterable[RoutingRule], drains: Iterable[str], target: str, members: Iterable[Member], topics: Iterable[Topic]
) -> str:
    """Why a target must not be drained; "" when it may."""
    rules, drains, members = list(rules), list(drains), list(members)
    if not any(member.covered_by(target) for member in members):
        return f"{target!r} matches no running process. Use a process name, cluster/NAME or region/NAME."
    return refusal(Policy(rules, drains), Policy(rules, [*drains, target]), members, topics)


def rule_refusal(
    rules: Mapping[str, RoutingRule],
    drains: Iterable[str],
    rule: RoutingRule,
    members: Iterable[Member],
    topics: Iterable[Topic],
) -> str:
    """Why a rule must not be added to the stored ones (it replaces one of its name); "" when it may."""
    drains = list(drains)
    added = {**rules, rule.name: rule}
    return refusal(Policy(rules.values(), drains), Policy(added.values(), drains), members, topics)
