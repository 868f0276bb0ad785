"""The publish forwarder of a node: its one chain, opened from its disks, and the catalog that lies in its log."""

from __future__ import annotations

from dataclasses import replace

from syncpoint.base.model.cluster import ChainRecord
from syncpoint.broker.pipeline.home import SoloHomes
from syncpoint.broker.pipeline.mounting import ChainPipelines
from syncpoint.broker.publish.chain.chain import ChainContext
from syncpoint.broker.publish.chain.host import ChainHost
from syncpoint.broker.publish.facts.recovery import RecoveredState
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.cluster.control.log_commit import LogCommit
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.cluster.control.solo_ownership import SOLO_CHAIN, NobodyAsks, OwnDisks, SoloOwnership
from syncpoint.front.api.options_admin import LIMITS, take_limits
from syncpoint.node.metadata import align
from syncpoint.node.solo.solo_context import NODE, SoloContext
from syncpoint.node.uses import anchor_ns


async def _sealed(topic: int, epoch: int, chain: int) -> None:
    """There are no other chains."""


async def _next_log() -> int | None:
    """The disks say it."""
    return None


class LogRole:
    """Run the log of a node.

    `publish`: the forwarder of the chain; `store`: its storage; `control` changes the catalog.
    """

    def __init__(self, context: SoloContext) -> None:
        self._context = context

    async def start(self) -> None:
        """Recover. Raises `SyncpointError` with what to do when the disks cannot be used."""
        context, copy, identities = self._context, self._context.shared, self._context.identities
        settings, environment = context.settings, context.environment
        folders = [str(folder) for folder in settings.disk_folders]
        self.host = ChainHost(
            ChainContext(
                copy,
                NobodyAsks(copy),
                lambda topic: None,
                _sealed,
                lambda record, epoch: (environment.files, folders),
                _next_log,
                identities.universe,
                replace(environment, clock=context.trusted),
                context.limits,
                settings.storage,
                known_disks=OwnDisks(identities, settings.disk_folders),
                own_catalog=self._own_catalog,
                counter_floor=identities.log_counter_floor,
                mount=lambda chain: ChainPipelines(chain, SoloHomes(SOLO_CHAIN)),
                tracer=context.tracer,
                recorder=context.recorder,
            )
        )
        context.recorder.on_added = self.host.record_found
        self._owner = SoloOwnership(self.host, ChainRecord(SOLO_CHAIN, "", "", "", "", durability=settings.durability))
        self.chain = chain = await self._owner.open()
        self.publish, self.store = chain.forwarder, chain.store
        context.recorder.writer = f"{NODE}/{self.store.log_counter}"  # each life writes another log
        context.recorder.follow(copy)
        identities.adopt_universe(self.store.universe)
        identities.raise_log_counter_floor(self.store.log_counter)
        commits = LogCommit(chain.follower, context.mirror, copy.on_change)
        self.control = ControlPlane(commits, context.trusted, context.random)
        assert isinstance(chain.mounted, ChainPipelines)
        self.pipelines = chain.mounted

    def _own_catalog(self, memory: RecoveredState) -> Catalog:
        context = self._context
        context.trusted.known(anchor_ns(memory))
        stored_limits = memory.catalog.setting(LIMITS)
        if stored_limits is not None:
            take_limits(context.limits, stored_limits)
        align(context.mirror, memory)
        context.shared.catalog = memory.catalog
        return memory.catalog

    async def on_joined(self) -> None:
        """Do what the clock asks for."""
        self.host.start()

    async def drain(self) -> None:
        """What is published until the port has drained is stored."""

    async def stop(self) -> None:
        """Seal the log where that is possible."""
        await self._owner.close()
