"""Quotas of projects: how much one may ask of this process, so that others are served, too.

Place: asked by `gate` once it has allowed a call.
Promise: what is beyond a quota is refused before any work, with RESOURCE_EXHAUSTED and the time after which to try
again. A rate may be exceeded for `BURST_S`; over longer times it holds. Each process counts for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from syncpoint.base.model.errors import SyncpointError
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.wire.protobuf.status import quota_exceeded
from syncpoint.wire.transport.calls import AnyConnection

BURST_S: Final = 2.0
CPU_BURST_S: Final = 10.0
PROJECTS_MAX: Final = 100_000  # of which rates are remembered
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


class CpuQuota:
    """What projects may use of the processor beyond the plain road of messages: conditions, rules that are evaluated
    message by message, schemas, what is decoded or tried. An account of `runtime.child_processes`: the work itself is
    charged when it is done, and refused while what was used is not paid for. Time of `CPU_BURST_S` may be used ahead.
    """

    def __init__(self, quota_of: Callable[[str], Quota], monotonic: Callable[[], float]) -> None:
        self._quota_of, self._monotonic = quota_of, monotonic
        self.refused = 0
        self._paid_until: dict[str, float] = {}

    def check(self, project: str) -> None:
        """Raises `ResourceExhausted`, with the time after which to try again."""
        until = self._paid_until.get(project)
        if until is None:
            return
        after_s = until - self._monotonic() - CPU_BURST_S
        if after_s > 0 and self._quota_of(project).cpu:
            self.refused += 1
            raise quota_exceeded(project, "seconds of a processor", after_s)

    def charge(self, project: str, seconds: float) -> None:
        """The project has used this much."""
        cpu = self._quota_of(project).cpu
        if not cpu:
            return
        if len(self._paid_until) >= PROJECTS_MAX:
            self._paid_until.clear()
        now = self._monotonic()
        self._paid_until[project] = max(self._paid_until.get(project, now), now) + seconds / cpu


class Quotas:
    """What projects have used. `quota_of`: what holds for projects/P."""

    def __init__(self, quota_of: Callable[[str], Quota], catalog: Catalog, monotonic: Callable[[], float]) -> None:
        self._quota_of, self._catalog, self._monotonic = quota_of, catalog, monotonic
        self.refused = 0
        self._rates: dict[str, list[float]] = {}
        self._connections: dict[str, set[AnyConnection]] = {}
        self._creating: dict[str, dict[str, float]] = {}

    def take(self, project: str, size: int, connection: AnyConnection | None = None) -> None:
        """Count one request of this size, and the connection it came by. Raises `ResourceExhausted`."""
        quota = self._quota_of(project)
        if quota.connections and connection is not None:
            self._connect(project, connection, quota.connections)
        if not (quota.requests_per_s or quota.bytes_per_s):
            return
        now = self._monotonic()
        paid = self._rates.get(project)
        if paid is None:
            if len(self._rates) >= PROJECTS_MAX:
                self._rates.clear()
            paid = self._rates[project] = [now, now]
        # Until when what was let in before is paid for: more is let in while that is not far ahead.
        for until, metric in zip(paid, ("requests", "bytes of requests"), strict=True):
            if until > now + BURST_S:
                raise self._refusal(project, metric, until - now - BURST_S)
        if quota.requests_per_s:
            paid[0] = max(paid[0], now) + 1 / quota.requests_per_s
        if quota.bytes_per_s:
            paid[1] = max(paid[1], now) + size / quota.bytes_per_s

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
        quota, catalog = self._quota_of(project), self._catalog
        known: Callable[[str], object]
        if permission == "pubsub.topics.create" and quota.topics:
            most, metric, known = quota.topics, "topics", catalog.topic
            there = len(catalog.topics_in(project, None, most))
        elif permission == "pubsub.subscriptions.create" and quota.subscriptions:
            most, metric, known = quota.subscriptions, "subscriptions", catalog.subscription
            there = len(catalog.subscriptions_in(project, None, most))
        else:
            return
        now, wanted, creating = self._monotonic(), name(), self._creating.setdefault(f"{metric} of {project}", {})
        for one, until in list(creating.items()):
            if now >= until or known(one) is not None:
                del creating[one]
        if wanted in creating or known(wanted) is not None:
            return
        if there + len(creating) < most:
            creating[wanted] = now + CREATING_S
        else:
            raise self._refusal(project, metric)

    def check_streams(self, project: str, open_now: Callable[[], int]) -> None:
        """Raise `ResourceExhausted` if the project has as many streams open as it may; `open_now` counts them."""
        most = self._quota_of(project).streams
        if most and open_now() >= most:
            raise self._refusal(project, "open streams", 1.0)


def project_in(resource: str) -> str:
    """The project of a resource; "" of what lies in none."""
    end = resource.find("/", 9)
    return (resource if end < 0 else resource[:end]) if resource.startswith("projects/") else ""
