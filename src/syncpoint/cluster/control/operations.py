"""What operators decide about traffic: drains and routing rules, kept in the metadata for everybody to watch.

Place: under the admin servicer of a cluster. Promise: what would leave a topic with nowhere to go is refused before
anything is stored. Changes are made one after another, each over what was checked when it was checked: one that
arrives late, when nobody knows any more what became of it, changes nothing once another has been made.
Leaves to `router.routing_rules`: what a rule means, and what is refused. Leaves to routers, proxies and forwarders:
acting by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from syncpoint.base.model.cluster import Member
from syncpoint.base.model.errors import Aborted, AlreadyExists, FailedPrecondition, NotFound
from syncpoint.base.runtime.clock import Clock
from syncpoint.broker.router.routing_rules import (
    Matches,
    Policy,
    RoutingRule,
    drain_refusal,
    matches,
    refusal,
    rule_refusal,
)
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.contract import Delete, KeyValue, Operation, Put, unchanged
from syncpoint.catalog.metadata.layout import CONSTRAINTS, DRAINS, OPERATIONS
from syncpoint.catalog.metadata.store_client import answered, read_all
from syncpoint.catalog.metadata.view import ClusterView


class Trial(NamedTuple):
    """What a rule would do. `refusal`: why it must not be, "" when it may."""

    refusal: str
    matches: Matches


class Drained(NamedTuple):
    """A drain, and what its target still has."""

    target: str
    draining: bool
    members: tuple[str, ...]
    connections: int
    chains: int
    comment: str
    time_ns: int


class Operations:
    """Drains and routing rules."""

    def __init__(self, view: ClusterView, catalog: Catalog, clock: Clock) -> None:
        self._view, self._catalog, self._clock = view, catalog, clock

    # -- drains ------------------------------------------------------------------------------------------------------

    async def drain(self, target: str, comment: str) -> Drained:
        """Let a process, cluster or region take nothing new, and give up what it has. Doing it again changes nothing.

        Raises `NotFound` when nobody is meant, `FailedPrecondition` when too little would be left.
        """
        seen = await self._changes()
        members = self._members()
        if not any(member.covered_by(target) for member in members):
            raise NotFound(target, f"No running process, cluster or region is named {target!r}.")
        drains = await self._targets()
        reason = drain_refusal(await self.constraints(), drains, target, members, self._catalog.topics())
        if reason and target not in drains:
            raise FailedPrecondition(f"{target} cannot be drained: {reason}")
        value = {"target": target, "comment": comment, "time_ns": self._clock.time_ns()}
        if target not in drains:
            await self._written(seen, Put(DRAINS.key(target), _dump(value)))
        return self._drained(target, value)

    async def undrain(self, target: str) -> Drained:
        """Let it take traffic again. Raises `NotFound`."""
        seen, key = await self._changes(), DRAINS.key(target)
        if await answered(self._view.store.get(key)) is None:
            raise NotFound(target, f"{target!r} is not drained.")
        await self._written(seen, Delete(key))
        return self._drained(target, None)

    async def drained(self, target: str) -> Drained:
        """Where a drain stands. Raises `NotFound` for a target that nobody is meant by."""
        item = await answered(self._view.store.get(DRAINS.key(target)))
        found = self._drained(target, None if item is None else json.loads(item.value))
        if item is None and not found.members:
            raise NotFound(target, f"No running process, cluster or region is named {target!r}.")
        return found

    async def drains(self) -> list[Drained]:
        """All drains."""
        items, _ = await answered(read_all(self._view.store, DRAINS))
        return [self._drained(DRAINS.name(item.key), json.loads(item.value)) for item in items]

    def _drained(self, target: str, value: Mapping[str, Any] | None) -> Drained:
        covered = {member.name: member for member in self._members() if member.covered_by(target)}
        loads = (self._view.loads.get(name) or {} for name in covered)
        owners = (seen.value.member for seen in self._view.owners.items.values())
        known = value or {}
        return Drained(
            target,
            value is not None,
            tuple(sorted(covered)),
            sum(int(load.get("connections", 0)) for load in loads),
            sum(owner in covered for owner in owners),
            str(known.get("comment", "")),
            int(known.get("time_ns", 0)),
        )

    # -- routing rules -----------------------------------------------------------------------------------------------

    async def create_constraint(self, rule: RoutingRule) -> RoutingRule:
        """Store a rule. Raises `InvalidArgument`, `AlreadyExists`, `FailedPrecondition`."""
        seen = await self._changes()
        rule = replace(rule, created_ns=self._clock.time_ns())
        trial = await self.try_constraint(rule)
        if trial.refusal:
            raise FailedPrecondition(f"The rule cannot be used: {trial.refusal}")
        key = CONSTRAINTS.key(rule.name)
        if await answered(self._view.store.get(key)) is not None:
            raise AlreadyExists(rule.name)
        await self._written(seen, Put(key, rule.encode()))
        return rule

    async def try_constraint(self, rule: RoutingRule) -> Trial:
        """What a rule would do. Raises `InvalidArgument`."""
        rule.check()
        known = {one.name: one for one in await self.constraints()}
        members, topics = self._members(), list(self._catalog.topics())
        reason = rule_refusal(known, await self._targets(), rule, members, topics)
        return Trial(reason, matches(rule, members, topics))

    async def constraints(self) -> list[RoutingRule]:
        """All rules, by name."""
        items, _ = await answered(read_all(self._view.store, CONSTRAINTS))
        return [RoutingRule.decode(item.value) for item in items]

    async def delete_constraint(self, name: str) -> None:
        """Take a rule away. Raises `NotFound`, and `FailedPrecondition` when those that stay, which it may have
        overruled, would leave a topic with nowhere to go.
        """
        seen = await self._changes()
        known = await self.constraints()
        rest = [one for one in known if one.name != name]
        if len(rest) == len(known):
            raise NotFound(name)
        drains = await self._targets()
        reason = refusal(Policy(known, drains), Policy(rest, drains), self._members(), self._catalog.topics())
        if reason:
            raise FailedPrecondition(f"{name} cannot be deleted: {reason}")
        await self._written(seen, Delete(CONSTRAINTS.key(name)))

    # -- shared ------------------------------------------------------------------------------------------------------

    def _members(self) -> list[Member]:
        return [seen.value for _, seen in sorted(self._view.members.items.items())]

    async def _targets(self) -> list[str]:
        """What is drained, as the store has it now."""
        items, _ = await answered(read_all(self._view.store, DRAINS))
        return [DRAINS.name(item.key) for item in items]

    async def _changes(self) -> KeyValue | None:
        """To be asked before anything is checked that a change is checked against."""
        return await answered(self._view.store.get(OPERATIONS))

    async def _written(self, seen: KeyValue | None, operation: Operation) -> None:
        """Write, if nothing was changed since `seen`. Raises `Aborted` otherwise, and `Unavailable`."""
        revision, count = (0, 0) if seen is None else (seen.revision, int(seen.value))
        one_more = Put(OPERATIONS, b"%d" % (count + 1))
        if not (await answered(self._view.store.txn([unchanged(OPERATIONS, revision)], [operation, one_more]))).ok:
            raise Aborted("Another caller changed drains or routing rules at the same time. Try again.")


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
