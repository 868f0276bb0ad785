"""The publish forwarder's role: chains opened, adopted and handed over, and everything others ask of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

from syncpoint.base.model.errors import Unavailable
from syncpoint.broker.pipeline.homes import Homes
from syncpoint.broker.pipeline.mounting import Pipelines
from syncpoint.broker.publish.chain.chain import ChainContext
from syncpoint.broker.publish.chain.host import ChainHost
from syncpoint.broker.publish.chain.known_disks import KnownDisks
from syncpoint.broker.publish.chain.service import ChainsService
from syncpoint.broker.router.assignment import TopicAssignment
from syncpoint.catalog.metadata.layout import ASSIGNED_TOPICS, LOG_COUNTER
from syncpoint.catalog.metadata.view import View
from syncpoint.cluster.control.barrier import Barrier
from syncpoint.cluster.control.chain_creation import ChainCreator
from syncpoint.cluster.control.chain_placement import planner
from syncpoint.cluster.control.due_publishes import DuePublishes
from syncpoint.cluster.control.hand_over import hand_over_methods
from syncpoint.cluster.control.ownership_driver import OwnershipDriver
from syncpoint.cluster.control.registration import Registration
from syncpoint.front.api.options_admin import follow_limits
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.node.cluster.own_load import DiskLooks, ObservedDisk
from syncpoint.wire.transport.calls import Methods


class PublishRole:
    """Run a publish forwarder."""

    disk_address = ""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._driver: OwnershipDriver | None = None
        self._disk_looks = DiskLooks()

    async def start(self) -> None:
        """Make the host; it has no chain before this process is a member."""
        context = self._context
        self._assigned: View[TopicAssignment] = View(context.store, ASSIGNED_TOPICS, TopicAssignment.decode)
        await self._assigned.start()
        self._assigned.listeners.append(self._assignments_changed)
        self.limits = follow_limits(context.shared)
        self._pipelines = Pipelines(Homes(context.store), context.shared)
        barrier = Barrier(context.view, context.peers)
        due = DuePublishes(
            context.view, context.peers, lambda topic: self._assigned.get(str(topic)), context.incarnation
        )
        self.host = ChainHost(
            ChainContext(
                context.shared,
                _LateRegistrar(context),
                lambda topic: self._assigned.get(str(topic)),
                barrier.sealed,
                lambda record, epoch: context.environment.disks_of(record, epoch, context.disk_address_of),
                self._next_log,
                context.universe,
                replace(context.environment, clock=context.clock),
                self.limits,
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
        )
        context.recording.recorder.on_added = self.host.record_found
        self.host.start()

    def methods(self) -> Methods:
        return {
            **ChainsService(self.host).methods(),
            **hand_over_methods(_LateOwnership(self)),
            **self._pipelines.methods(self.host),
        }

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
        """Hand over every chain, sealed."""
        if self._driver is not None:
            self._context.classes.listeners.remove(self._founder.classes_grew)
            await self._founder.stop()
            await self._driver.stop()

    async def stop(self) -> None:
        await self.host.stop()
        await self._assigned.close()

    def status(self) -> dict[str, Any]:
        return self.host.status()

    def load(self, seconds: float) -> dict[str, Any]:
        topics = self.host.take_load()
        loads = {str(one): [count / seconds, nbytes / seconds] for one, (count, nbytes) in topics.items()}
        return {"topics": loads, **self._disk_looks.take(self._observed())}

    def _observed(self) -> Iterator[ObservedDisk]:
        """The disks of all chains that are open here."""
        for number, chain in self.host.chains.items():
            counts, states = chain.store.disk_counts, chain.store.status().disks
            for slot, (place, one, disk) in enumerate(zip(chain.record.places, counts, states, strict=False)):
                key = (number, chain.epoch, slot)
                yield ObservedDisk(key, place.process, one.sync, disk.state in ("away", "failed"))

    @property
    def driver(self) -> OwnershipDriver:
        """Raises `Unavailable` before this process is a member."""
        if self._driver is None:
            raise Unavailable("This process is not a member yet.")
        return self._driver

    async def _next_log(self) -> int:
        return await self._context.store.counter(LOG_COUNTER)

    def _assignments_changed(self, topics: set[str]) -> None:
        for topic in topics:
            self.host.assigned(int(topic))


class _LateRegistrar:
    """Registration begins when this process is a member: its owner's keys name it."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._made: Registration | None = None

    def _registration(self) -> Registration:
        if self._made is None:
            self._made = Registration(self._context.store, self._context.shared, self._context.member)
        return self._made

    async def register(self, topic: int, chain: int) -> int:
        return await self._registration().register(topic, chain)

    async def unregister(self, topic: int, chain: int, epoch: int, still: Callable[[], bool]) -> bool:
        return await self._registration().unregister(topic, chain, epoch, still)

    async def registered(self, chain: int) -> Collection[int]:
        return await self._registration().registered(chain)


class _LateOwnership:
    """The listener opens before the ownership driver exists."""

    def __init__(self, role: PublishRole) -> None:
        self._role = role

    async def hand_over(self, chain: int) -> None:
        await self._role.driver.hand_over(chain)

    async def can_serve(self, chain: int) -> None:
        await self._role.driver.can_serve(chain)
