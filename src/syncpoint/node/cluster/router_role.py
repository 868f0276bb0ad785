"""The router's role: ordered lists for proxies, and the plan behind them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.broker.router.load_scaling import ScalingSettings
from syncpoint.broker.router.planner import PlannerSettings
from syncpoint.broker.router.router import Router
from syncpoint.catalog.access.access import audit_log
from syncpoint.catalog.access.audit import AuditLog
from syncpoint.catalog.access.settings import load
from syncpoint.cluster.control.operations import Operations
from syncpoint.cluster.control.peer_channels import Reach
from syncpoint.cluster.mitigation.mitigation_driver import MitigationDriver
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.node.process import Role
from syncpoint.node.process_metrics import Measured
from syncpoint.watch.metrics.role_families import MITIGATION, ROUTER, HeadroomRoom, StatusRoom
from syncpoint.wire.transport.calls import Methods

log = logging.getLogger(__name__)


def in_milliseconds(distances: Mapping[str, float]) -> dict[str, float]:
    """Distances as they are reported: to a millisecond, so that a report is news and not noise."""
    return {region: round(distance, 3) for region, distance in distances.items()}


class RouterRole(Role):
    """Run a router."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._audit: AuditLog | None = None

    async def start(self) -> None:
        """Make the parts; nothing is planned before this process is a member."""
        context = self._context
        self._open_audit_log()
        self.service = Router(
            context.store,
            context.view,
            context.shared,
            context.member,
            self._ping,
            context.clock,
            context.random,
            settings=PlannerSettings(
                balance=context.settings.balance, scaling=ScalingSettings(floor=context.settings.split_at)
            ),
            spanning=context.classes.spanning,
        )

        self.mitigation = MitigationDriver(
            context.store,
            context.view,
            Operations(context.view, context.catalog, context.clock),
            context.settings.mitigation,
            lambda: self.service.leads,
            context.clock,
            self._note_audited,
        )

    def methods(self) -> Methods:
        return self.service.methods()

    async def on_joined(self) -> None:
        """Answer and plan from now on."""
        await self.service.start()
        self.mitigation.start()

    async def drain(self) -> None:
        """Proxies that watch go elsewhere."""
        await self.mitigation.stop()
        await self.service.stop()

    async def stop(self) -> None:
        """Nothing is left but the audit log."""
        if self._audit is not None:
            self._audit.close()

    def _open_audit_log(self) -> None:
        """Where this machine has the file of `auth`, which only proxies must have."""
        auth = self._context.settings.auth
        if auth is not None:
            try:
                self._audit = audit_log(load(auth), self._context.clock, f"{self._context.process.name}-mitigation")
            except InvalidArgument as error:
                log.warning("mitigation decisions are not audited: %s", error.message)

    def _note_audited(self, action: str, process: str, done: bool, why: str) -> None:
        if self._audit is not None:
            self._audit.note("mitigation", "", f"Mitigation.{action}", "syncpoint.routing.drain", process, done, 0, why)
            self._audit.flush()

    def status(self) -> dict[str, Any]:
        return dict(self.service.status())

    def measure(self, found: Measured) -> None:
        found.further += [
            StatusRoom("router", ROUTER, self.service.status),
            StatusRoom("mitigation", MITIGATION, self.mitigation.status),
            HeadroomRoom(self._context.view, lambda: self.service.leads),
        ]

    def load(self, seconds: float) -> dict[str, Any]:
        return {"distances": in_milliseconds(self.service.distances.known())}

    async def _ping(self, address: str) -> bool:
        return await self._context.peers.ping(address) is Reach.ANSWERED
