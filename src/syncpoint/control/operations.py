"""What operators decide about traffic: drains and routing rules, kept in the metadata for everybody to watch.

Place: under the admin servicer of a cluster. Promise: what would leave a topic with nowhere to go is refused before
anything is stored.
Leaves to routers, proxies and forwarders: acting by it. Leaves to `Rules`: what a rule means.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from syncpoint.control.view import DRAINS, ClusterView
from syncpoint.metadata.catalog import Catalog
from syncpoint.metadata.contract import Delete, Indeterminate, Operation, Put, absent
from syncpoint.metadata.contract import Unavailable as StoreUnavailable
from syncpoint.metadata.shared import read_all
from syncpoint.model.cluster import PUBLISH, SUBSCRIBE, Member
from syncpoint.model.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, Unavailable
from syncpoint.runtime.clock import Clock

CONSTRAINTS = "constraints/"
_NAMED_MAX = 5

_T = TypeVar("_T")

Constraint = Mapping[str, Any]
"""A routing rule: name, action ("allow" or "deny"), clients, forwarders, topics, priority, comment, time_ns."""


class Trial(NamedTuple):
    """What a rule would do. `refusal`: why it must not be, "" when it may; the names that its selectors match."""

    refusal: str
    clients: Sequence[str] = ()
    forwarders: Sequence[str] = ()
    topics: Sequence[str] = ()


class Rules(Protocol):
    """The meaning of routing rules."""

    def check(self, constraint: Constraint) -> None:
        """Raise `InvalidArgument` for one that makes no sense by itself."""
        ...

    def try_out(
        self, constraint: Constraint, others: Sequence[Constraint], members: Sequence[Member], catalog: Catalog
    ) -> Trial:
        """What it would do beside the others."""
        ...


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

    def __init__(self, view: ClusterView, catalog: Catalog, rules: Rules, clock: Clock) -> None:
        self._view, self._catalog, self._rules, self._clock = view, catalog, rules, clock

    # -- drains ------------------------------------------------------------------------------------------------------

    async def drain(self, target: str, comment: str) -> Drained:
        """Let a process, cluster or region take nothing new, and give up what it has. Doing it again changes nothing.

        Raises `NotFound` when nobody is meant, `FailedPrecondition` when too little would be left.
        """
        covered = [member for member in self._members() if member.covered_by(target)]
        if not covered:
            raise NotFound(target, f"No living process, cluster or region is called {target!r}.")
        self._check_rest(target)
        value = {"target": target, "comment": comment, "time_ns": self._clock.time_ns()}
        await self._written([Put(DRAINS + target, _dump(value))], absent_key=DRAINS + target)
        return self._drained(target, value)

    async def undrain(self, target: str) -> Drained:
        """Let it take traffic again. Raises `NotFound`."""
        key = DRAINS + target
        if await _answered(self._view.store.get(key)) is None:
            raise NotFound(target, f"{target!r} is not drained.")
        await self._written([Delete(key)])
        return self._drained(target, None)

    async def drained(self, target: str) -> Drained:
        """Where a drain stands. Raises `NotFound` for a target that nobody is meant by."""
        item = await _answered(self._view.store.get(DRAINS + target))
        found = self._drained(target, None if item is None else json.loads(item.value))
        if item is None and not found.members:
            raise NotFound(target, f"No living process, cluster or region is called {target!r}.")
        return found

    async def drains(self) -> list[Drained]:
        """All drains."""
        items, _ = await _answered(read_all(self._view.store, DRAINS))
        return [self._drained(item.key[len(DRAINS) :], json.loads(item.value)) for item in items]

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

    def _check_rest(self, target: str) -> None:
        """Refuse what leaves a topic with nowhere to go."""
        for role, kind in ((PUBLISH, "publish forwarder"), (SUBSCRIBE, "subscribe forwarder")):
            before = [one for one in self._view.with_role(role) if not self._view.draining(one)]
            left = [one for one in before if not one.covered_by(target)]
            if before and not left:
                raise FailedPrecondition(f"Draining {target} would leave no {kind} that takes traffic.")
            regions = {one.region for one in left}
            lost = {one.region for one in before} - regions
            if role == PUBLISH and lost:
                stranded = (one.name for one in self._catalog.topics() if one.regions and not regions & {*one.regions})
                names = sorted(stranded)
                if names:
                    raise FailedPrecondition(
                        f"Draining {target} would leave nowhere to go for {len(names)} topics whose messages may only "
                        f"be stored there: {_some(names)}."
                    )

    # -- routing rules -----------------------------------------------------------------------------------------------

    async def create_constraint(self, constraint: Constraint) -> Constraint:
        """Store a rule. Raises `InvalidArgument`, `AlreadyExists`, `FailedPrecondition`."""
        constraint = {**constraint, "time_ns": self._clock.time_ns()}
        trial = await self.try_constraint(constraint)
        if trial.refusal:
            raise FailedPrecondition(trial.refusal)
        key = CONSTRAINTS + str(constraint["name"])
        if not await self._written([Put(key, _dump(constraint))], absent_key=key):
            raise AlreadyExists(str(constraint["name"]))
        return constraint

    async def try_constraint(self, constraint: Constraint) -> Trial:
        """What a rule would do. Raises `InvalidArgument`."""
        self._rules.check(constraint)
        others = [one for one in await self.constraints() if one["name"] != constraint["name"]]
        return self._rules.try_out(constraint, others, self._members(), self._catalog)

    async def constraints(self) -> list[Constraint]:
        """All rules, by name."""
        items, _ = await _answered(read_all(self._view.store, CONSTRAINTS))
        return [json.loads(item.value) for item in items]

    async def delete_constraint(self, name: str) -> None:
        """Take a rule away. Raises `NotFound`, and `FailedPrecondition` when those that stay, which it may have
        overruled, would leave a topic with nowhere to go.
        """
        known = await self.constraints()
        if all(one["name"] != name for one in known):
            raise NotFound(name)
        rest = [one for one in known if one["name"] != name]
        if rest:
            trial = self._rules.try_out(rest[0], rest[1:], self._members(), self._catalog)
            if trial.refusal:
                raise FailedPrecondition(f"Without {name}: {trial.refusal}")
        await self._written([Delete(CONSTRAINTS + name)])

    # -- shared ------------------------------------------------------------------------------------------------------

    def _members(self) -> list[Member]:
        return [seen.value for _, seen in sorted(self._view.members.items.items())]

    async def _written(self, operations: Sequence[Operation], *, absent_key: str | None = None) -> bool:
        """Write; False when `absent_key` exists."""
        conditions = [] if absent_key is None else [absent(absent_key)]
        return (await _answered(self._view.store.txn(conditions, operations))).ok


def check_name(name: str) -> None:
    """Raise `InvalidArgument` unless it may name a rule."""
    if not 1 <= len(name) <= 100 or not all(char.isascii() and (char.isalnum() or char in "._-") for char in name):
        raise InvalidArgument("name", "1 to 100 letters, digits, dots, dashes and underscores")


async def _answered(call: Awaitable[_T]) -> _T:
    try:
        return await call
    except StoreUnavailable as error:
        raise Unavailable(f"The metadata does not answer, nothing was changed: {error}") from error
    except Indeterminate as error:
        raise Unavailable(f"The change may or may not be stored: {error}") from error


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    rest = len(listed) - _NAMED_MAX
    return ", ".join(listed[:_NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")
