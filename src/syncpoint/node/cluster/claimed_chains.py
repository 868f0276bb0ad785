"""Chains of a cluster that this process opens, adopts and hands over, as the metadata say.

Place: the `ChainsHere` of a process of a cluster, and of a worker.
"""

from __future__ import annotations

from dataclasses import replace

from syncpoint.base.model.errors import Unavailable
from syncpoint.broker.pipeline.homes import Homes
from syncpoint.broker.pipeline.mounting import Pipelines
from syncpoint.broker.publish.chain.chain import Chain, ChainContext
from syncpoint.broker.publish.chain.known_disks import KnownDisks
from syncpoint.broker.router.assignment import TopicAssignment
from syncpoint.catalog.metadata.layout import ASSIGNED_TOPICS, LOG_COUNTER
from syncpoint.catalog.metadata.view import View
from syncpoint.cluster.control.barrier import Barrier
from syncpoint.cluster.control.chain_creation import ChainCreator
from syncpoint.cluster.control.chain_placement import planner
from syncpoint.cluster.control.due_publishes import DuePublishes
from syncpoint.cluster.control.failure_domains import domains_of_chain
from syncpoint.cluster.control.hand_over import hand_over_methods
from syncpoint.cluster.control.ownership_driver import OwnershipDriver
from syncpoint.cluster.control.registration import Registration
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.node.process_metrics import Measured
from syncpoint.node.publish_role import ChainsHere
from syncpoint.watch.metrics.risk_families import WatchedChain
from syncpoint.watch.metrics.role_families import ChainDiskRoom
from syncpoint.wire.transport.calls import Methods


class ClaimedChains(ChainsHere):
    """Nothing is owned before this process is a member."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._driver: OwnershipDriver | None = None

    async def context(self) -> ChainContext:
        context = self._context
        self._assigned: View[TopicAssignment] = View(context.store, ASSIGNED_TOPICS, TopicAssignment.decode)
        await self._assigned.start()
        self._assigned.listeners.append(self._assignments_changed)
        self._pipelines = Pipelines(Homes(context.store), context.shared, context.environment.apart)
        barrier = Barrier(context.view, context.peers)
        due = DuePublishes(context.view, context.peers, self._assignment, context.incarnation)
        return ChainContext(
            context.shared,
            Registration(context.store, context.shared, lambda: context.member),
            self._assignment,
            barrier.sealed,
            lambda record, epoch: context.environment.disks_of(record, epoch, context.disk_address_of),
            self._next_log,
            context.universe,
            replace(context.environment, clock=context.clock),
            context.limits,
            context.settings.storage,
            known_disks=KnownDisks(context.store),
            registered=lambda topic, chain: chain in context.directory.chains_of(topic),
            registrations=context.directory.topics_of,
            mount=self._pipelines.mount,
            ids_of_others=barrier.ids_of_others,
            publish_by_key=due.publish,
            tracer=context.tracer,
            recorder=context.recording.recorder,
        )

    def methods(self) -> Methods:
        return {**hand_over_methods(self), **self._pipelines.methods(self.host)}

    async def on_joined(self) -> None:
        """Own chains from now on, and make those that this process should have."""
        context = self._context
        self._driver = OwnershipDriver(context.view, context.membership, self.host, context.peers, context.clock)
        self.host.on_ended = self._driver.ended
        self._driver.start()
        self._founder = ChainCreator(
            context.store,
            context.membership,
            context.classes,
            planner(context.view, context.member, context.classes),
            universe=context.universe,
        )
        context.classes.listeners.append(self._founder.classes_grew)
        self._founder.start()

    async def drain(self) -> None:
        if self._driver is not None:
            self._context.classes.listeners.remove(self._founder.classes_grew)
            await self._founder.stop()
            await self._driver.stop()

    async def stop(self) -> None:
        await self._assigned.close()

    def measure(self, found: Measured) -> None:
        chains, name = self.host.chains, self._context.name

        def watched(chain: Chain) -> WatchedChain:
            disks = [f"/{place.cluster}/{place.disk}" for place in chain.record.places]
            return WatchedChain(chain.forwarder, disks, domains_of_chain(chain.record, name), name)

        found.watched = watched
        found.further.append(ChainDiskRoom(lambda: [chain.record for chain in chains.values()]))

    async def hand_over(self, chain: int) -> None:
        """Close a chain and give its ownership up. Raises `Unavailable` before this process is a member."""
        await self.driver.hand_over(chain)

    async def can_serve(self, chain: int) -> None:
        """Raises `FailedPrecondition` where this process could not, and as `hand_over`."""
        await self.driver.can_serve(chain)

    @property
    def driver(self) -> OwnershipDriver:
        """Raises `Unavailable` before this process is a member."""
        if self._driver is None:
            raise Unavailable("This process is not a member yet.")
        return self._driver

    def _assignment(self, topic: int) -> TopicAssignment | None:
        return self._assigned.get(str(topic))

    async def _next_log(self) -> int:
        return await self._context.store.counter(LOG_COUNTER)

    def _assignments_changed(self, topics: set[str]) -> None:
        for topic in topics:
            self.host.assigned(int(topic))
