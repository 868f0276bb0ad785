"""syncpoint.admin.v1 of a cluster: members, chains, drains, routing rules, and what it shares with a node.

Place: beside the other admin servicers, in every proxy. It reads the metadata's view of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from syncpoint.base.model.flow import FlowLimits
from syncpoint.broker.router.routing_rules import ALLOW, DENY, RoutingRule
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.chain_placement import refuse_what_has_no_place
from syncpoint.cluster.control.durability_classes import DurabilityClass, DurabilityClasses
from syncpoint.cluster.control.operations import Drained, Operations
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.cluster_disks import cluster_disks
from syncpoint.front.api.mitigation_admin import MitigationAdmin
from syncpoint.front.api.options_admin import Handlers, admin_table
from syncpoint.front.api.rollout_admin import RolloutAdmin
from syncpoint.front.api.server_admin import Asking, ServerAdmin, ServerIdentity
from syncpoint.front.api.validate import refused
from syncpoint.wire.protobuf.messages import admin
from syncpoint.wire.protobuf.methods import ADMIN
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods


class AskingAll(Asking, Protocol):
    """Ask every process of a cluster."""

    async def statuses(self) -> tuple[Mapping[str, Mapping[str, Any]], list[str]]: ...


class ClusterAdmin(ServerAdmin):
    """The service on messages; `methods()` serves it on bytes. `classes`: the durability classes."""

    def __init__(
        self,
        control: ControlPlane,
        view: ClusterView,
        operations: Operations,
        limits: FlowLimits,
        identity: ServerIdentity,
        classes: DurabilityClasses,
        inquiry: AskingAll,
    ) -> None:
        super().__init__(control, limits, identity, inquiry, classes)
        self._inquiry, self._view, self._operations, self._classes = inquiry, view, operations, classes

    def methods(self) -> Methods:
        """The method table of this service."""
        table: Handlers = {
            "CreateConstraint": self.create_constraint,
            "ListConstraints": self.list_constraints,
            "DeleteConstraint": self.delete_constraint,
            "TestConstraint": self.test_constraint,
            "Drain": self.drain,
            "GetDrain": self.get_drain,
            "ListDrains": self.list_drains,
            "Undrain": self.undrain,
        }
        return {
            **super().methods(),
            **admin_table(self.control, table),
            **MitigationAdmin(self.control, self._view).methods(),
            **RolloutAdmin(self.control, self._view.store).methods(),
            # These also while the metadata do not answer.
            **served({ADMIN.ListMembers: self.list_members, ADMIN.ListChains: self.list_chains}, fair=True),
        }

    async def list_disks(self, request: admin.ListDisksRequest) -> admin.ListDisksResponse:
        """ListDisks: those of living processes, and those that chains lie on whose process is not there. State and
        position are what the chains' owners find, free bytes what the storage processes say.
        """
        statuses, unknown = await self._inquiry.statuses()
        return cluster_disks(self._view, statuses, unknown)

    async def add_class(self, made: DurabilityClass, *, validate_only: bool) -> None:
        """In the metadata, from where all processes learn of it; refused where there is no place for it."""
        if self._classes.fixed:
            await super().add_class(made, validate_only=validate_only)
        await self._classes.refresh()
        self._classes.refuse_known(made.name)
        refuse_what_has_no_place(self._view, made)
        if not validate_only:
            await self._classes.add(made)

    # -- who is there ------------------------------------------------------------------------------------------------

    async def list_members(self, request: admin.ListMembersRequest) -> admin.ListMembersResponse:
        """ListMembers."""
        return admin.ListMembersResponse(members=member_messages(self._view))

    async def list_chains(self, request: admin.ListChainsRequest) -> admin.ListChainsResponse:
        """ListChains."""
        return admin.ListChainsResponse(chains=chain_messages(self._view))

    # -- traffic -----------------------------------------------------------------------------------------------------

    async def create_constraint(self, request: admin.CreateConstraintRequest) -> admin.Constraint:
        """CreateConstraint."""
        return _constraint_message(await self._operations.create_constraint(_constraint(request.constraint)))

    async def list_constraints(self, request: admin.ListConstraintsRequest) -> admin.ListConstraintsResponse:
        """ListConstraints."""
        return admin.ListConstraintsResponse(constraints=map(_constraint_message, await self._operations.constraints()))

    async def delete_constraint(self, request: admin.DeleteConstraintRequest) -> admin.DeleteConstraintResponse:
        """DeleteConstraint."""
        await self._operations.delete_constraint(request.name)
        return admin.DeleteConstraintResponse()

    async def test_constraint(self, request: admin.TestConstraintRequest) -> admin.TestConstraintResponse:
        """TestConstraint."""
        rule = _constraint(request.constraint)
        trial = await self._operations.try_constraint(replace(rule, name=rule.name or "unnamed"))
        return admin.TestConstraintResponse(refusal=trial.refusal, **trial.matches._asdict())

    async def drain(self, request: admin.DrainRequest) -> admin.DrainState:
        """Drain."""
        if not request.target:
            raise refused("target", "target must be set: the name of a process, cluster/NAME or region/NAME")
        return _drain_message(await self._operations.drain(request.target, request.comment))

    async def get_drain(self, request: admin.GetDrainRequest) -> admin.DrainState:
        """GetDrain."""
        return _drain_message(await self._operations.drained(request.target))

    async def list_drains(self, request: admin.ListDrainsRequest) -> admin.ListDrainsResponse:
        """ListDrains."""
        return admin.ListDrainsResponse(drains=map(_drain_message, await self._operations.drains()))

    async def undrain(self, request: admin.UndrainRequest) -> admin.DrainState:
        """Undrain."""
        return _drain_message(await self._operations.undrain(request.target))


def member_messages(view: ClusterView) -> list[admin.Member]:
    """The members of a view, by name, as messages."""
    owned: dict[str, int] = {}
    for seen in view.owners.items.values():
        owned[seen.value.member] = owned.get(seen.value.member, 0) + 1
    members = []
    for name, known in sorted(view.members.items.items()):
        member, load = known.value, view.loads.get(name) or {}
        members.append(
            admin.Member(
                name=name,
                roles=member.roles,
                address=member.address,
                incarnation=f"{member.incarnation:016x}",
                region=member.region,
                zone=member.zone,
                rack=member.rack,
                cluster=member.cluster,
                disks=member.disks,
                version=member.version,
                draining=view.draining(member),
                connections=int(load.get("connections", 0)),
                messages_per_second=float(load.get("messages_s", 0.0)),
                bytes_per_second=float(load.get("bytes_s", 0.0)),
                chains=owned.get(name, 0),
                weight=member.weight,
            )
        )
    return members


def chain_messages(view: ClusterView) -> list[admin.Chain]:
    """The chains of a view, by number, as messages."""
    chains = []
    records = sorted((seen.value for seen in view.chains.items.values()), key=lambda one: one.number)
    for record in records:
        owner = view.owner(record.number)
        chains.append(
            admin.Chain(
                number=record.number,
                name=record.name,
                durability_class=record.klass,
                region=record.region,
                home=record.home,
                owner="" if owner is None else owner.member,
                epoch=0 if owner is None else owner.epoch,
                disks=[admin.ChainDisk(**place._asdict()) for place in record.places],
                below_policy=record.below_policy,
            )
        )
    return chains


def _constraint(message: admin.Constraint) -> RoutingRule:
    if message.action not in (admin.Constraint.ALLOW, admin.Constraint.DENY):
        raise refused("action", "action must be ALLOW or DENY")
    return RoutingRule(
        message.name,
        ALLOW if message.action == admin.Constraint.ALLOW else DENY,
        message.clients,
        message.forwarders,
        message.topics,
        message.priority,
        message.comment,
    )


def _constraint_message(rule: RoutingRule) -> admin.Constraint:
    message = admin.Constraint(
        name=rule.name,
        action=admin.Constraint.ALLOW if rule.action == ALLOW else admin.Constraint.DENY,
        clients=rule.clients,
        forwarders=rule.forwarders,
        topics=rule.topics,
        priority=rule.priority,
        comment=rule.comment,
    )
    message.create_time.FromNanoseconds(rule.created_ns)
    return message


def _drain_message(drained: Drained) -> admin.DrainState:
    message = admin.DrainState(
        target=drained.target,
        draining=drained.draining,
        members=drained.members,
        connections=drained.connections,
        chains=drained.chains,
        comment=drained.comment,
    )
    if drained.time_ns:
        message.create_time.FromNanoseconds(drained.time_ns)
    return message
