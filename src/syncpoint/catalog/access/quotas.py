"""Quotas of projects and tenants: how much one may ask of this process, so that others are served, too.

Place: asked by `gate` once it has allowed a call.
Promise: what is beyond a quota is refused before any work, with RESOURCE_EXHAUSTED and the time after which to try
again. A rate may be exceeded for `BURST_S`; over longer times it holds. Each process counts for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from syncpoint.base.model.errors import ResourceExhausted, SyncpointError
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.wire.protobuf.status import quota_exceeded
from syncpoint.wire.transport.calls import AnyConnection

BURST_S: Final = 2.0
CPU_BURST_S: Final = 10.0
PROJECTS_MAX: Final = 100_000  # of which rates are remembered
QUOTA_BOUND: Final = 1e15  # a quota is less
RETRY_S_MAX: Final = 10.0  # after which a caller beyond a rate is sent to try again, however many there are
CREATING_S: Final = 10.0  # for which a resource that is being created counts as one that exists


class Quota(NamedTuple):
    """What one project may. 0: as much as it likes. Rates of requests and their bytes; numbers that may exist."""

    requests_per_s: float = 0.0
    bytes_per_s: float = 0.0
    outstanding_bytes: int = 0  # of messages that are delivered and not acknowledged; see `subscribe`
    connections: int = 0
    streams: int = 0
    topics: int = 0
    subscriptions: int = 0
    cpu: float = 2.0  # seconds of a processor in each second, for work in proportion to requests; see `CpuQuota`


UNBOUNDED: Final = Quota(cpu=0.0)


class Payer(NamedTuple):
    """Projects that are counted together: a single one, or all of a tenant (tenants/NAME)."""

    name: str
    quota: Quota
    projects: tuple[str, ...]
    weight: int = 1


PayersOf = Callable[[str], tuple[Payer, ...]]
"""Those that pay for what projects/P asks for, the project first; each of them can refuse it."""


class CpuQuota:
    """What projects may use of the processor beyond the plain road of messages: conditions, rules that are evaluated
    message by message, schemas, what is decoded or tried. An account of `runtime.child_processes`: the work itself is
    charged when it is done, and refused while what was used is not paid for. Time of `CPU_BURST_S` may be used ahead.
    """

    def __init__(self, payers_of: PayersOf, monotonic: Callable[[], float]) -> None:
        self._payers_of, self._monotonic = payers_of, monotonic
        self.refused = 0
        self._paid_until: dict[str, float] = {}

    def check(self, project: str) -> None:
        """Raises `ResourceExhausted`, with the time after which to try again."""
        if not self._paid_until:
            return
        for payer in self._payers_of(project):
            until = self._paid_until.get(payer.name)
            if until is None or not payer.quota.cpu:
                continue
            after_s = until - self._monotonic() - CPU_BURST_S
            if after_s > 0:
                self.refused += 1
                raise quota_exceeded(payer.name, "seconds of a processor", after_s)

    def charge(self, project: str, seconds: float) -> None:
        """The project has used this much."""
        for payer in self._payers_of(project):
            cpu = payer.quota.cpu
            if not cpu:
                continue
            if len(self._paid_until) >= PROJECTS_MAX:
                self._paid_until.clear()
            now = self._monotonic()
            self._paid_until[payer.name] = max(self._paid_until.get(payer.name, now), now) + seconds / cpu

    def share_of(self, project: str) -> tuple[str, float]:
        """The name under which projects/P shares turns, and how large that share is."""
        payer = self._payers_of(project)[-1]
        return payer.name, payer.weight


class OverRate(ResourceExhausted):
    """A request beyond a rate, which may come again `after_s`."""

    def __init__(self, payer: str, metric: str, after_s: float) -> None:
        refusal = quota_exceeded(payer, metric, after_s)
        super().__init__(refusal.message, refusal.details)
        self.payer, self.metric, self.after_s = payer, metric, after_s

    def once_held(self, held_s: float) -> SyncpointError:
        """The answer to a caller that was kept waiting for part of that time."""
        return quota_exceeded(self.payer, self.metric, max(0.0, self.after_s - held_s))


class Quotas:
    """What projects and tenants have used."""

    def __init__(self, payers_of: PayersOf, catalog: Catalog, monotonic: Callable[[], float]) -> None:
        self._payers_of, self._catalog, self._monotonic = payers_of, catalog, monotonic
        self.refused = 0
        self._rates: dict[str, list[float]] = {}
        self._connections: dict[str, set[AnyConnection]] = {}
        self._creating: dict[str, dict[str, float]] = {}

    def take(self, project: str, size: int, connection: AnyConnection | None = None) -> None:
        """Count one request of this size, and the connection it came by. Raises `ResourceExhausted`."""
        payers, now = self._payers_of(project), self._monotonic()
        for payer in payers:
            quota = payer.quota
            if quota.connections and connection is not None:
                self._connect(payer.name, connection, quota.connections)
            times = self._rates.get(payer.name)
            if times is None:
                continue
            # Until when what was let in before is paid for: more is let in while that is not far ahead.
            if times[0] > now + BURST_S and quota.requests_per_s:
                raise self._later(payer, times, times[0], now, "requests", 1 / quota.requests_per_s)
            if times[1] > now + BURST_S and quota.bytes_per_s:
                raise self._later(payer, times, times[1], now, "bytes of requests", size / quota.bytes_per_s)
        for payer in payers:
            quota = payer.quota
            if quota.requests_per_s or quota.bytes_per_s:
                times = self._rates.get(payer.name) or self._begun(payer.name, now)
                if quota.requests_per_s:
                    times[0] = (times[0] if times[0] > now else now) + 1 / quota.requests_per_s
                if quota.bytes_per_s:
                    times[1] = (times[1] if times[1] > now else now) + size / quota.bytes_per_s

    def _begun(self, name: str, now: float) -> list[float]:
        if len(self._rates) >= PROJECTS_MAX:
            self._rates.clear()
        made = self._rates[name] = [now, now, now]
        return made

    def _later(
        self, payer: Payer, times: list[float], until: float, now: float, metric: str, cost_s: float
    ) -> OverRate:
        """Callers are sent to one moment each: together they would be refused again, all but one."""
        at = min(max(times[2], until - BURST_S), now + RETRY_S_MAX)
        times[2] = at + cost_s
        self.refused += 1
        return OverRate(payer.name, metric, at - now)

    def _refusal(self, project: str, metric: str, after_s: float | None = None) -> SyncpointError:
        self.refused += 1
        return quota_exceeded(project, metric, after_s)

    def sweep(self) -> None:
        """Forget the connections that are closed."""
        for project, known in list(self._connections.items()):
            self._connections[project] = known = {one for one in known if not one.is_closing()}
            if not known:
                del self._connections[project]

    def _connect(self, project: str, connection: AnyConnection, most: int) -> None:
        known = self._connections.setdefault(project, set())
        if connection in known:
            return
        if len(known) >= most:
            self._connections[project] = known = {one for one in known if not one.is_closing()}
            if len(known) >= most:
                raise self._refusal(project, "connections", 1.0)
        known.add(connection)

    def check_new(self, project: str, permission: str, name: Callable[[], str]) -> None:
        """Raise `ResourceExhausted` if a permission is for one thing more than the project may have. `name`: of the
        thing; it counts from now on, so that many that are created at once are not more than those one by one."""
        catalog = self._catalog
        known: Callable[[str], object]
        listed: Callable[[str, None, int], Sequence[object]]
        if permission == "pubsub.topics.create":
            metric, known, listed = "topics", catalog.topic, catalog.topics_in
        elif permission == "pubsub.subscriptions.create":
            metric, known, listed = "subscriptions", catalog.subscription, catalog.subscriptions_in
        else:
            return
        bounds = [(payer, most) for payer in self._payers_of(project) if (most := getattr(payer.quota, metric))]
        if not bounds or known(wanted := name()) is not None:
            return
        now, counted = self._monotonic(), []
        for payer, most in bounds:
            creating = self._creating.setdefault(f"{metric} of {payer.name}", {})
            for one, until in list(creating.items()):
                if now >= until or known(one) is not None:
                    del creating[one]
            if wanted in creating:
                continue
            there = sum(len(listed(one, None, most)) for one in payer.projects)
            if there + len(creating) >= most:
                raise self._refusal(payer.name, metric)
            counted.append(creating)
        for creating in counted:
            creating[wanted] = now + CREATING_S

    def check_streams(self, project: str, open_in: Callable[[Collection[str]], int]) -> None:
        """Raise `ResourceExhausted` if the project has as many streams open as it may; `open_in` counts those of
        projects."""
        for payer in self._payers_of(project):
            if payer.quota.streams and open_in(payer.projects) >= payer.quota.streams:
                raise self._refusal(payer.name, "open streams", 1.0)


def project_in(resource: str) -> str:
    """The project of a resource; "" of what lies in none."""
    end = resource.find("/", 9)
    return (resource if end < 0 else resource[:end]) if resource.startswith("projects/") else ""
